//! Collects kernel modules for the initramfs: dependencies, load order, decompression.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use iotax_model::target::{Bus, DirectoryProtocol, GuestFs, GuestSpec, MachineType, Nic, PlannedDevice};

/// Modules that newer kernels have merged into others or dropped, so they may be missing.
const OPTIONAL: [&str; 1] = ["crc32c_generic"];

/// Names of the modules that a Xen domain needs; its console is built into the kernel.
pub const IN_DOMAIN: [&str; 1] = ["xen_blkfront"];

/// Returns the names of the modules that a guest needs: for its machine type, and for its disk and filesystem, its network card or its directory.
#[must_use]
pub fn needed(spec: &GuestSpec, device: PlannedDevice<'_>) -> Vec<&'static str> {
    let transport = match spec.machine_type() {
        MachineType::Q35 | MachineType::Pc => "virtio_pci",
        MachineType::Microvm => "virtio_mmio",
    };
    let of_device: &[&str] = match device {
        PlannedDevice::Disk => return for_disk(spec, transport),
        PlannedDevice::Card(network) => match network.nic {
            Nic::VirtioNet => &["virtio_net"],
            Nic::E1000 => &["e1000"],
            Nic::E1000e => &["e1000e"],
        },
        PlannedDevice::Directory(DirectoryProtocol::NineP) => &["9p", "9pnet_virtio"],
        PlannedDevice::Directory(DirectoryProtocol::Virtiofs) => &["virtiofs"],
    };
    [&[transport], of_device, &["virtio_console"]].concat()
}

fn for_disk(spec: &GuestSpec, transport: &'static str) -> Vec<&'static str> {
    let disk: &[&str] = match spec.bus {
        Bus::VirtioBlk => &["virtio_blk"],
        Bus::VirtioScsi => &["virtio_scsi", "sd_mod"],
        Bus::Nvme => &["nvme"],
        Bus::Sata => &["ahci", "sd_mod"],
        Bus::Ide => &["ata_piix", "sd_mod"],
    };
    // Filesystems request their checksum by an alias, which the kernel cannot resolve in a guest.
    let filesystem: &[&str] = match spec.filesystem {
        None => &[],
        Some(GuestFs::Ext4) => &["crc32c_generic", "ext4"],
        Some(GuestFs::Xfs) => &["crc32c_generic", "xfs"],
    };
    [&[transport], disk, &["virtio_console"], filesystem].concat()
}

/// A kernel module, ready for the initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The module's name, with underscores instead of hyphens.
    pub name: String,
    /// Content of the module's ELF file, decompressed.
    pub object: Vec<u8>,
}

/// An error while collecting kernel modules for the initramfs.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// An index file or a module file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call or of the decompressor.
        source: io::Error,
    },
    /// The kernel neither has this module nor has it built in.
    #[error(
        "{} has no module {name:?}, and it is not built in: the guest needs it; take another kernel with --kernel and \
         --modules (Debian: {})",
        dir.display(),
        // Debian's cloud kernel has virtio, NVMe and IDE, but neither AHCI, 9p nor old network cards.
        if ["ahci", "9p", "e1000", "e1000e"].contains(&name.as_str()) {
            "linux-image-amd64"
        } else {
            "linux-image-cloud-amd64"
        }
    )]
    Missing {
        /// Path of the kernel's module directory.
        dir: PathBuf,
        /// Name of the missing module.
        name: String,
    },
    /// The module file's compression is not supported.
    #[error("{}: accepted are .ko, .ko.xz and .ko.zst", path.display())]
    Compression {
        /// Path of the module's file.
        path: PathBuf,
    },
    /// `modules.dep` has a dependency cycle.
    #[error("{}: module {name:?} depends on itself; run depmod", dir.display())]
    Cycle {
        /// Path of the kernel's module directory.
        dir: PathBuf,
        /// Name of the module that depends on itself.
        name: String,
    },
}

/// Reads the modules `names` and their dependencies from a kernel's module directory, in load order. Leaves out modules that are built in,
/// and missing ones that newer kernels have merged or dropped.
pub fn load(dir: &Path, names: &[&str]) -> Result<Vec<Module>, ModulesError> {
    paths(dir, names)?.iter().map(|path| read(&dir.join(path))).collect()
}

/// Fails unless the kernel with the module directory `dir` has the modules `names` and their dependencies, loadable or built in. Modules
/// that newer kernels have merged or dropped may be missing.
pub fn check(dir: &Path, names: &[&str]) -> Result<(), ModulesError> {
    paths(dir, names).map(drop)
}

/// Returns the paths of the modules and their dependencies, relative to `dir`, in load order.
fn paths(dir: &Path, names: &[&str]) -> Result<Vec<String>, ModulesError> {
    let mut order = Order { dir, index: Index::read(dir)?, paths: Vec::new(), begun: HashSet::new() };
    for name in names {
        match order.add(&normal(name)) {
            Err(ModulesError::Missing { .. }) if OPTIONAL.contains(name) => {}
            other => other?,
        }
    }
    Ok(order.paths)
}

/// The contents of `modules.dep` and `modules.builtin`.
struct Index {
    /// Path of each module and paths of its dependencies, by the module's name; relative to the module directory.
    modules: HashMap<String, (String, Vec<String>)>,
    builtin: HashSet<String>,
}

impl Index {
    fn read(dir: &Path) -> Result<Self, ModulesError> {
        let text = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|source| ModulesError::Read { path, source })
        };
        let modules = text("modules.dep")?
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, needs)| {
                (module_name(path), (path.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
            })
            .collect();
        Ok(Self { modules, builtin: text("modules.builtin")?.lines().map(module_name).collect() })
    }
}

/// State of a depth-first walk over module dependencies.
struct Order<'a> {
    dir: &'a Path,
    index: Index,
    paths: Vec<String>,
    begun: HashSet<String>,
}

impl Order<'_> {
    /// Adds a module to the load order, after its dependencies. Does nothing for a built-in module.
    fn add(&mut self, name: &str) -> Result<(), ModulesError> {
        if self.index.builtin.contains(name) {
            return Ok(());
        }
        let Some((path, needs)) = self.index.modules.get(name).cloned() else {
            return Err(ModulesError::Missing { dir: self.dir.to_owned(), name: name.to_owned() });
        };
        if self.paths.contains(&path) {
            return Ok(());
        }
        if !self.begun.insert(name.to_owned()) {
            return Err(ModulesError::Cycle { dir: self.dir.to_owned(), name: name.to_owned() });
        }
        for need in needs {
            self.add(&module_name(&need))?;
        }
        self.paths.push(path);
        Ok(())
    }
}

/// Returns the module name of a path: `virtio_blk` for `kernel/drivers/block/virtio-blk.ko.xz`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    normal(file.split(".ko").next().unwrap_or(file))
}

/// Normalizes a name: the kernel treats '-' and '_' as equal.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn read(path: &Path) -> Result<Module, ModulesError> {
    let failed = |source| ModulesError::Read { path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => bytes,
        Some("xz") => {
            let mut object = Vec::new();
            liblzma::read::XzDecoder::new(bytes.as_slice()).read_to_end(&mut object).map_err(failed)?;
            object
        }
        Some("zst") => zstd::stream::decode_all(bytes.as_slice()).map_err(failed)?,
        _ => return Err(ModulesError::Compression { path: path.to_owned() }),
    };
    Ok(Module { name: module_name(&name), object })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::target::{NetPath, NetworkSpec};
    use std::io::Write;

    fn tree(dep: &str, builtin: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("modules.dep"), dep).expect("written");
        fs::write(dir.path().join("modules.builtin"), builtin).expect("written");
        dir
    }

    fn names(modules: &[Module]) -> Vec<&str> {
        modules.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn a_guest_of_a_network_or_directory_needs_that_device_and_no_disk() {
        fn with(device: PlannedDevice<'_>) -> Vec<&'static str> {
            let spec = GuestSpec { filesystem: Some(GuestFs::Xfs), ..GuestSpec::default() };
            needed(&spec, device)[1..].to_vec()
        }
        let bridge = NetworkSpec::new(NetPath::Bridge);
        assert_eq!(with(PlannedDevice::Card(&bridge)), ["virtio_net", "virtio_console"]);
        let e1000e = NetworkSpec { nic: Nic::E1000e, ..bridge };
        assert_eq!(with(PlannedDevice::Card(&e1000e)), ["e1000e", "virtio_console"]);
        let nine_p = PlannedDevice::Directory(DirectoryProtocol::NineP);
        assert_eq!(with(nine_p), ["9p", "9pnet_virtio", "virtio_console"]);
        let virtiofs = PlannedDevice::Directory(DirectoryProtocol::Virtiofs);
        assert_eq!(with(virtiofs), ["virtiofs", "virtio_console"]);
    }

    #[test]
    fn what_is_needed_comes_first_and_once_and_builtin_not_at_all() {
        let dir = tree(
            "k/virtio.ko: k/virtio_ring.ko\nk/virtio_ring.ko:\nk/virtio-blk.ko: k/virtio.ko k/virtio_ring.ko\n\
             k/virtio_pci.ko: k/legacy-dev.ko k/virtio.ko\nk/legacy-dev.ko:\nk/unrelated.ko:\n",
            "kernel/drivers/char/virtio-console.ko\n",
        );
        fs::create_dir(dir.path().join("k")).expect("made");
        for name in ["virtio", "virtio_ring", "virtio-blk", "virtio_pci", "legacy-dev"] {
            fs::write(dir.path().join(format!("k/{name}.ko")), name).expect("written");
        }
        let modules = load(dir.path(), &["virtio_blk", "virtio_pci", "virtio_console"]).expect("resolved");
        assert_eq!(names(&modules), ["virtio_ring", "virtio", "virtio_blk", "legacy_dev", "virtio_pci"]);
        assert_eq!(modules[2].object, b"virtio-blk");
    }

    #[test]
    fn compressed_modules_come_out_plain() {
        let dir = tree("a.ko.xz:\nb.ko.zst: a.ko.xz\nc.ko.gz:\n", "");
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
        xz.write_all(b"object a").expect("compressed");
        fs::write(dir.path().join("a.ko.xz"), xz.finish().expect("compressed")).expect("written");
        let zst = zstd::stream::encode_all(b"object b".as_slice(), 3).expect("compressed");
        fs::write(dir.path().join("b.ko.zst"), zst).expect("written");
        fs::write(dir.path().join("c.ko.gz"), "x").expect("written");
        let modules = load(dir.path(), &["b"]).expect("read");
        assert_eq!(names(&modules), ["a", "b"]);
        assert_eq!(
            (modules[0].object.as_slice(), modules[1].object.as_slice()),
            (&b"object a"[..], &b"object b"[..])
        );

        let error = load(dir.path(), &["c"]).expect_err("gzip").to_string();
        assert!(error.contains("c.ko.gz") && error.contains(".ko.zst"), "{error}");
        fs::write(dir.path().join("a.ko.xz"), "not xz").expect("written");
        assert!(load(dir.path(), &["a"]).expect_err("garbage").to_string().contains("a.ko.xz"));
    }

    #[test]
    fn a_missing_module_is_named_and_a_cycle_ends() {
        let dir = tree("a.ko: b.ko\nb.ko: a.ko\n", "");
        let error = load(dir.path(), &["virtio_blk"]).expect_err("missing").to_string();
        assert!(error.contains("\"virtio_blk\"") && error.contains("--kernel"), "{error}");
        assert!(load(dir.path(), &["crc32c_generic"]).expect("not needed by every kernel").is_empty());
        for name in ["ahci", "e1000"] {
            let error = check(dir.path(), &[name]).expect_err("missing").to_string();
            assert!(error.contains(name) && error.contains("Debian: linux-image-amd64"), "{error}");
        }
        assert!(load(dir.path(), &["a"]).expect_err("cycle").to_string().contains("depmod"));
        let none = tempfile::tempdir().expect("a directory");
        assert!(load(none.path(), &["a"]).expect_err("no index").to_string().contains("modules.dep"));
    }
}
