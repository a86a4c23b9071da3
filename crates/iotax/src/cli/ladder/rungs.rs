//! The rungs of a ladder: their names and their layers.

use std::path::Path;

use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::target::{DeviceSpec, Format, GuestSpec, LayerInterface, PathSpec, Stack};
use iotax_model::words::WordError;

use crate::cli::args::target_name;
use crate::cli::{Failure, OrExit, usage};

/// The base on which a rung's layers are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The block device of `--device`.
    Device,
    /// The directory that the command names.
    Directory,
    /// Nothing: the rung's lowest layer brings its own storage, such as memory.
    Own,
}

/// The ladders that include a rung by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ladder {
    /// Included by default, and with `--everything`.
    Default,
    /// Included only with `--everything`.
    Everything,
    /// Included if workloads make files, and with `--everything`.
    Files,
}

/// A rung: one way to build the storage, with its name, its base and the layers on top.
#[derive(Debug, Clone)]
pub(super) struct Rung {
    pub(super) name: String,
    pub(super) base: Base,
    pub(super) layers: Stack,
}

use Base::{Device, Directory, Own};
use Ladder::{Default, Everything, Files};

/// The named rungs in the order of a ladder: name, ladder, base, and the layers on top as a stack line. There are further rungs for other
/// image formats, such as `virtio-vmdk` and `vm-vmdk`.
const RUNGS: [(&str, Ladder, Base, &str); 37] = [
    ("host-device", Default, Device, ""),
    ("host-lvm", Default, Device, "thick LVM volume"),
    ("host-lvm-file", Default, Device, "thick LVM volume > ext4 > raw file"),
    ("host-file", Default, Directory, "raw file"),
    ("host-ext4", Files, Directory, "raw file > loop direct_io=true > ext4 > raw file"),
    ("host-overlay", Everything, Directory, "overlay > raw file"),
    ("host-nfs", Everything, Directory, "nfs share > raw file"),
    ("host-smb", Everything, Directory, "smb share > raw file"),
    ("host-loop", Everything, Directory, "raw file > loop direct_io=true"),
    ("host-luks", Everything, Directory, "raw file > loop direct_io=true > luks"),
    ("host-integrity", Everything, Directory, "raw file > loop direct_io=true > integrity"),
    ("host-dm-cache", Everything, Directory, "raw file > loop direct_io=true > dm-cache size=64m"),
    ("host-dm-writecache", Everything, Directory, "raw file > loop direct_io=true > dm-writecache size=64m"),
    ("host-raid1", Everything, Directory, "raid1 raid_devices=2"),
    (
        "host-zvol",
        Everything,
        Directory,
        "raw file > loop direct_io=true > zvol volblocksize=16k sync=always primarycache=metadata",
    ),
    (
        "host-zfs",
        Everything,
        Directory,
        "raw file > loop direct_io=true > zfs dataset recordsize=16k sync=always primarycache=metadata > raw file",
    ),
    ("host-nvme-tcp", Everything, Directory, "raw file > nvme-tcp"),
    ("fuse-raw", Everything, Directory, "raw file > fuse"),
    ("nbd-raw", Everything, Directory, "raw file > nbd > virtio"),
    ("nbd-kernel", Everything, Directory, "raw file > nbd client=kernel"),
    ("iscsi-raw", Everything, Directory, "raw file > iscsi > virtio"),
    ("nfs-raw", Everything, Directory, "raw file > nfs > virtio"),
    ("rbd-raw", Everything, Directory, "raw file > rbd > virtio"),
    ("virtio-raw", Default, Directory, "raw file > virtio"),
    ("virtio-qcow2", Default, Directory, "qcow2 file preallocation=metadata > virtio"),
    (
        "virtio-qcow2-snapshot",
        Default,
        Directory,
        "qcow2 file + external snapshot preallocation=metadata > virtio",
    ),
    ("xen-pv-loop", Everything, Directory, "raw file > loop direct_io=true > pv domain"),
    ("xen-pv-raw", Everything, Directory, "raw file > pv domain backend=qdisk"),
    ("xen-pv-qcow2", Everything, Directory, "qcow2 file preallocation=metadata > pv domain backend=qdisk"),
    ("xen-pvh-loop", Everything, Directory, "raw file > loop direct_io=true > pvh domain"),
    ("vm-device", Default, Device, "virtio-blk > guest"),
    ("vm-lvm", Default, Device, "thick LVM volume > virtio-blk > guest"),
    ("vm-raw", Default, Directory, "raw file > virtio-blk > guest"),
    ("vm-qcow2", Default, Directory, "qcow2 file preallocation=metadata > virtio-blk > guest"),
    (
        "vm-qcow2-snapshot",
        Default,
        Directory,
        "qcow2 file + external snapshot preallocation=metadata > virtio-blk > guest",
    ),
    ("vm-9p", Everything, Directory, "9p > guest"),
    ("vm-virtiofs", Everything, Directory, "virtiofs > guest"),
];

/// Returns the names of all rungs except those with other image formats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RUNGS.into_iter().map(|(name, ..)| name)
}

/// Returns the rungs of the default ladder for workloads that make files, or for others.
pub(super) fn usual(makes_files: bool) -> Vec<Rung> {
    let is_usual = |ladder: Ladder| ladder == Default || ladder == Files && makes_files;
    RUNGS.iter().filter(|rung| is_usual(rung.1)).filter_map(|(name, ..)| Rung::known(name)).collect()
}

/// Returns the rungs of `--formats`: a plain file, then every image format through QEMU's block layer.
pub(super) fn formats() -> Vec<Rung> {
    ["host-file".to_owned()].into_iter().chain(of_formats()).filter_map(|name| Rung::known(&name)).collect()
}

/// Returns the rungs of `--everything`: on the host, through QEMU's block layer, and in guests.
pub(super) fn everything() -> Vec<Rung> {
    let (below, guests): (Vec<_>, Vec<_>) = names().partition(|name| !name.starts_with("vm-"));
    let others = of_formats().filter(|name| !names().any(|known| known == name));
    let all = below.into_iter().map(str::to_owned).chain(others).chain(guests.into_iter().map(str::to_owned));
    all.filter_map(|name| Rung::known(&name)).collect()
}

/// Returns the names of the rungs that read each image format through QEMU's block layer, such as `virtio-qcow2`.
fn of_formats() -> impl Iterator<Item = String> {
    Format::WORDS.iter().map(|format| format!("virtio-{format}"))
}

/// Returns the layers of a rung such as `virtio-vmdk` or `vm-vmdk`, as a stack line: `vmdk file > virtio`. `None` for other names.
fn line_of_format(name: &str) -> Option<String> {
    let (above, format) = name.split_once('-')?;
    let format: Format = format.parse().ok()?;
    match above {
        "virtio" => Some(format!("{format} file > virtio")),
        "vm" => Some(format!("{format} file > virtio-blk > guest")),
        _ => None,
    }
}

impl Rung {
    /// Returns the rung of this name from `RUNGS`, or one with another image format; `None` for other names.
    fn known(name: &str) -> Option<Self> {
        let (base, line) = match RUNGS.into_iter().find(|(known, ..)| *known == name) {
            Some((_, _, base, line)) => (base, line.to_owned()),
            None => (Directory, line_of_format(name)?),
        };
        let layers = if line.is_empty() { Stack::default() } else { Stack::parse(&line).ok()? };
        Some(Self { name: name.to_owned(), base, layers })
    }

    /// Parses the name of a rung or a stack line. A line's lowest layer decides whether the rung needs a directory, a device or neither.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(rung) = Self::known(text) {
            return Ok(rung);
        }
        let layers = match Stack::parse(text) {
            Ok(stack) if !stack.has::<PathSpec>() => stack,
            _ if !text.contains(' ') => {
                let guests = Format::WORDS.iter().map(|format| format!("vm-{format}"));
                let mut known: Vec<String> = names().map(str::to_owned).collect();
                let others = of_formats().chain(guests).filter(|name| !known.contains(name));
                known.extend(others.collect::<Vec<_>>());
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(WordError::new("rung", text, &known)).or_exit(Exit::Usage);
            }
            parsed => parsed.map_err(usage)?,
        };
        let lowest = layers.layers().first().map_or(&[][..], |layer| layer.kind().stands_on());
        let base = match lowest {
            on if on.contains(&LayerInterface::Directory) => Directory,
            on if on.contains(&LayerInterface::Nothing) => Own,
            _ => Device,
        };
        Ok(Self { name: target_name(&text.replace(" > ", "-")), base, layers })
    }

    pub(super) fn has_guest(&self) -> bool {
        self.layers.has::<GuestSpec>()
    }

    /// Returns this rung's target in a directory or on a device, with the given number of guests. Fails if its lowest layer, which stands on a
    /// directory, cannot be in a given one.
    pub(super) fn target(
        &self,
        name: String,
        guests: u32,
        dir: Option<&Path>,
        device: Option<&Path>,
    ) -> Result<TargetSpec, Failure> {
        let mut stack = match (self.base, dir) {
            (Device, _) => {
                let device = DeviceSpec(device.map(Path::to_path_buf).unwrap_or_default());
                self.layers.layers().iter().cloned().fold(Stack::from(device), Stack::with)
            }
            (Directory, Some(dir)) => self.layers.in_directory(&dir.to_string_lossy()).map_err(usage)?,
            (Directory, None) | (Own, _) => self.layers.clone(),
        };
        if let Some(guest) = stack.find_mut::<GuestSpec>().filter(|_| guests != 1) {
            guest.count = guests;
        }
        Ok(TargetSpec::new(name, stack))
    }
}

/// Returns whether `name` is the name of a rung.
pub(in crate::cli) fn is_rung(name: &str) -> bool {
    Rung::known(name).is_some()
}

/// Returns the target of the named rung with its image in `dir`. Fails for an unknown name and for a rung on a device.
pub(in crate::cli) fn rung_in(name: &str, dir: &Path) -> Result<TargetSpec, Failure> {
    let rung = Rung::parse(name)?;
    if rung.base == Device {
        return Err(usage(format!(
            "rung {name} stands on a device: iotax ladder --device DEVICE --rungs {name}"
        )));
    }
    rung.target(name.to_owned(), 1, Some(dir), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_rungs_by_its_name() {
        assert_eq!(formats().len(), 1 + Format::WORDS.len());
        for format in Format::WORDS {
            let rung = Rung::parse(&format!("virtio-{format}")).unwrap_or_else(|_| panic!("{format}"));
            assert_eq!((rung.base, rung.has_guest()), (Directory, false), "{format}");
            assert!(Rung::parse(&format!("vm-{format}")).is_ok_and(|rung| rung.has_guest()), "{format}");
        }
        for unknown in ["virtio-png", "lxc-vmdk", "vmdk"] {
            assert!(Rung::known(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn files_need_a_filesystem_on_the_image_too() {
        let has = |rungs: &[Rung]| rungs.iter().any(|rung| rung.name == "host-ext4");
        assert!(has(&usual(true)) && has(&everything()) && !has(&usual(false)));
    }

    #[test]
    fn everything_has_each_rung_once_and_guests_last() {
        let all = everything();
        let mut unique: Vec<&str> = all.iter().map(|rung| rung.name.as_str()).collect();
        let guests = all.iter().position(Rung::has_guest).expect("guests");
        assert!(all[guests..].iter().all(Rung::has_guest));
        assert!(names().all(|name| unique.contains(&name)));
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
    }
}
