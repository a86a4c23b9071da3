//! The guest's disk in QEMU's options: block nodes, I/O threads, controller and device.

use std::fs;
use std::path::Path;

use iotax_model::guest_abi::DISK_SERIAL;
use iotax_model::target::{Aio, Bus, CacheMode, Discard, Format, GuestSpec, MachineType};
use iotax_model::units::Bytes;
use serde_json::{Value, json};

use super::image::{ChainImage, SECRET, secret_option};

/// QEMU's id of the disk device.
pub const DISK: &str = "disk0";
/// QEMU's id of the disk controller, if that is a separate device.
const CONTROLLER: &str = "controller";
/// Sector size of a guest's disk in bytes. The disk's length is a multiple of it.
const SECTOR: u64 = 512;

/// The images of a guest's disk, with the options of their format.
#[derive(Debug, Clone, Copy)]
pub struct DiskChain<'a> {
    /// The image and its backing files, topmost first; at least one.
    pub chain: &'a [ChainImage],
    /// Size in bytes of the L2 table cache of each qcow2 image; `None` for QEMU's default.
    pub l2_cache_size: Option<Bytes>,
}

/// QEMU's options for the images of a drive.
#[derive(Debug, Clone, Copy)]
pub struct Drive {
    /// QEMU's cache mode, such as `none` or `writeback`.
    pub cache: CacheMode,
    /// QEMU's I/O backend: threads, native or io_uring.
    pub aio: Aio,
    /// Treatment of discard requests from the guest: ignored or passed to the image.
    pub discard: Discard,
}

impl DiskChain<'_> {
    /// Builds QEMU's arguments for this disk: key, images, I/O threads, controller and device.
    pub(super) fn arguments(&self, spec: &GuestSpec) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        for number in 0..spec.iothreads() {
            add("-object", format!("iothread,id={}", iothread(number)));
        }
        if self.is_encrypted() {
            add("-object", secret_option());
        }
        add("-blockdev", self.node(&node_name(0), spec).to_string());
        let mut devices = devices(spec);
        if let Some(disk) = devices.last_mut()
            && self.chain[0].part.is_some()
        {
            // Guests of other targets share the file and run one at a time; without this QEMU would reject all but the first.
            disk["share-rw"] = json!(true);
        }
        for device in devices {
            add("-device", device.to_string());
        }
        arguments
    }

    /// Returns whether any image in the chain is encrypted, so that QEMU needs the key.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.chain.iter().any(|image| image.encrypted)
    }

    /// Returns the names of the chain's files that QEMU opens with `aio=threads` instead of the backend `given`, see `aio`.
    #[must_use]
    pub fn with_threads(&self, given: Aio) -> Vec<String> {
        let files =
            self.chain.iter().flat_map(|image| [Some(&image.path), image.data_file.as_ref()]).flatten();
        let others = files.filter(|path| aio(path, given) != given);
        others.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
    }

    /// Returns the block node of the images, with the options of a guest's disk.
    #[must_use]
    pub fn node(&self, name: &str, spec: &GuestSpec) -> Value {
        self.node_of(name, drive_of(spec))
    }

    /// Returns the block node of the images, named `name`, for `-blockdev` and `blockdev-add`.
    ///
    /// Describes every image of the chain explicitly: a backing file that QEMU opens on its own gets the default I/O backend.
    #[must_use]
    pub fn node_of(&self, name: &str, drive: Drive) -> Value {
        let mut below = Value::Null;
        for (depth, image) in self.chain.iter().enumerate().rev() {
            let cache = json!({ "direct": drive.cache.direct(), "no-flush": drive.cache.no_flush() });
            let read_only = depth > 0 || image.part.is_some_and(|part| !part.writable);
            let on_device = image.part.is_some() && !image.path.is_file();
            let mut node = json!({
                "driver": image.format.word(),
                "read-only": read_only,
                "discard": drive.discard.word(),
                "cache": cache,
                "file": {
                    "driver": if on_device { "host_device" } else { "file" },
                    "filename": image.path.to_string_lossy(),
                    "read-only": read_only,
                    "discard": drive.discard.word(),
                    "cache": cache,
                    "aio": aio(&image.path, drive.aio).word(),
                },
            });
            if let Some(part) = image.part {
                node["offset"] = json!(part.offset.0);
                node["size"] = json!(part.size.0.next_multiple_of(SECTOR));
            }
            if depth == 0 {
                node["node-name"] = json!(name);
            }
            match image.format {
                Format::Qcow2 if image.encrypted => {
                    node["encrypt"] = json!({ "format": "luks", "key-secret": SECRET });
                }
                _ if image.encrypted => node["key-secret"] = json!(SECRET),
                _ => {}
            }
            if let Some(data) = &image.data_file {
                let mut file = node["file"].clone();
                file["filename"] = json!(data.to_string_lossy());
                file["aio"] = json!(aio(data, drive.aio).word());
                node["data-file"] = file;
            }
            if image.format == Format::Qcow2 {
                // Null means no backing file, and stops QEMU from looking for one.
                node["backing"] = below;
                if let Some(size) = self.l2_cache_size {
                    node["l2-cache-size"] = json!(size.0);
                }
            }
            below = node;
        }
        below
    }
}

/// Returns the I/O backend to open a file with: `given`, or threads instead of io_uring if the file does not end at a sector boundary. QEMU
/// 10.0.2 sometimes hangs while it opens such a file with io_uring.
pub(crate) fn aio(path: &Path, given: Aio) -> Aio {
    let ends_within = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() % SECTOR != 0);
    if ends_within && given == Aio::IoUring { Aio::Threads } else { given }
}

/// Returns the cache mode, I/O backend and discard mode of a guest's disk.
pub(super) const fn drive_of(spec: &GuestSpec) -> Drive {
    Drive { cache: spec.cache, aio: spec.aio, discard: spec.discard }
}

/// Returns the name of the disk's block node after this many image swaps.
#[must_use]
pub fn node_name(swaps: u32) -> String {
    format!("image{swaps}")
}

/// Returns QEMU's id of the disk's I/O thread `number`.
pub(super) fn iothread(number: u32) -> String {
    format!("iothread{number}")
}

/// Returns the suffix of virtio driver names on this machine type: `pci` or `device`.
pub(super) const fn transport(machine: MachineType) -> &'static str {
    match machine {
        MachineType::Q35 | MachineType::Pc => "pci",
        MachineType::Microvm => "device",
    }
}

/// Returns the disk as a QEMU device, after its controller if that is a separate device.
pub(super) fn devices(spec: &GuestSpec) -> Vec<Value> {
    let machine = spec.machine_type();
    let transport = transport(machine);
    let mut disk = json!({
        "id": DISK,
        "drive": node_name(0),
        "serial": DISK_SERIAL,
        "write-cache": if spec.cache.write_cache() { "on" } else { "off" },
    });
    let mut controller = None;
    match spec.bus {
        Bus::VirtioBlk => {
            disk["driver"] = json!(format!("virtio-blk-{transport}"));
            serve(&mut disk, "num-queues", spec);
        }
        Bus::VirtioScsi => {
            let mut scsi = json!({ "driver": format!("virtio-scsi-{transport}"), "id": CONTROLLER });
            serve(&mut scsi, "num_queues", spec);
            controller = Some(scsi);
            disk["driver"] = json!("scsi-hd");
        }
        Bus::Nvme => {
            disk["driver"] = json!("nvme");
            serve(&mut disk, "max_ioqpairs", spec);
        }
        Bus::Sata | Bus::Ide => {
            disk["driver"] = json!("ide-hd");
            // Every q35 has an AHCI controller and every pc a PIIX3, both with this name.
            disk["bus"] = json!("ide.0");
            if spec.bus == Bus::Sata && machine == MachineType::Pc {
                controller = Some(json!({ "driver": "ich9-ahci", "id": CONTROLLER }));
            }
        }
    }
    if controller.is_some() {
        disk["bus"] = json!(format!("{CONTROLLER}.0"));
    }
    controller.into_iter().chain([disk]).collect()
}

/// Adds the number of queues and the I/O threads to a device. Queues are assigned to the threads round robin.
fn serve(device: &mut Value, queues: &str, spec: &GuestSpec) {
    if let Some(number) = spec.queues {
        device[queues] = json!(number);
    }
    match spec.iothreads() {
        0 => {}
        1 => device["iothread"] = json!(iothread(0)),
        threads => {
            let mapping: Vec<Value> =
                (0..threads).map(|number| json!({ "iothread": iothread(number) })).collect();
            device["iothread-vq-mapping"] = json!(mapping);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::DevicePart;
    use super::*;
    use iotax_model::target::{CacheMode, Discard};

    #[test]
    fn a_file_that_ends_within_a_sector_is_read_by_threads_in_place_of_io_uring() {
        let dir = tempfile::tempdir().expect("a directory");
        for (length, given, used) in [
            (1024, Aio::IoUring, Aio::IoUring),
            (352, Aio::IoUring, Aio::Threads),
            (352, Aio::Native, Aio::Native),
        ] {
            let path = dir.path().join("image");
            fs::write(&path, vec![0; length]).expect("written");
            assert_eq!(aio(&path, given), used, "{length} {given}");
        }
        assert_eq!(aio(Path::new("/dev/null"), Aio::IoUring), Aio::IoUring);
    }

    fn images(names: &[(&str, Format)]) -> Vec<ChainImage> {
        names.iter().map(|(path, format)| ChainImage::new(path.into(), *format)).collect()
    }

    #[test]
    fn every_cache_mode_means_what_qemu_documents() {
        let table: Vec<String> = CacheMode::WORDS
            .iter()
            .map(|word| {
                let spec = GuestSpec { cache: word.parse().expect("known"), ..GuestSpec::default() };
                let disk = DiskChain { chain: &images(&[("/srv/a", Format::Raw)]), l2_cache_size: None };
                let node = disk.node("image0", &spec);
                assert_eq!(node["cache"], node["file"]["cache"], "both nodes open the file alike");
                format!("{word}: {} write-cache={}", node["cache"], devices(&spec)[0]["write-cache"])
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"), @r#"
        none: {"direct":true,"no-flush":false} write-cache="on"
        writeback: {"direct":false,"no-flush":false} write-cache="on"
        writethrough: {"direct":false,"no-flush":false} write-cache="off"
        directsync: {"direct":true,"no-flush":false} write-cache="off"
        unsafe: {"direct":false,"no-flush":true} write-cache="on"
        "#);
    }

    #[test]
    fn a_part_of_a_block_device_is_opened_as_one_and_shared() {
        let part = Some(DevicePart { offset: Bytes(1 << 20), size: Bytes(4097), writable: false });
        let chain = [ChainImage { part, ..ChainImage::new("/dev/sdx".into(), Format::Raw) }];
        let disk = DiskChain { chain: &chain, l2_cache_size: None };
        let node = disk.node("image0", &GuestSpec::default());
        assert_eq!(node["file"]["driver"], "host_device");
        assert_eq!((&node["offset"], &node["size"]), (&json!(1 << 20), &json!(4608)));
        let arguments = disk.arguments(&GuestSpec::default());
        assert!(
            arguments.last().is_some_and(|device| device.contains(r#""share-rw":true"#)),
            "{arguments:?}"
        );
    }

    #[test]
    fn every_bus_of_every_machine_is_a_device_of_its_own() {
        let table: Vec<String> = [
            ("virtio-blk", "q35", 0, None),
            ("virtio-blk", "pc", 1, Some(4)),
            ("virtio-blk", "microvm", 1, None),
            ("virtio-blk", "q35", 2, Some(4)),
            ("virtio-scsi", "q35", 0, None),
            ("virtio-scsi", "pc", 1, Some(4)),
            ("virtio-scsi", "microvm", 2, Some(2)),
            ("nvme", "q35", 0, Some(4)),
            ("sata", "q35", 0, None),
            ("sata", "pc", 0, None),
            ("ide", "pc", 0, None),
        ]
        .map(|(bus, machine, threads, queues)| {
            let spec = GuestSpec {
                bus: bus.parse().expect("known"),
                machine: Some(machine.parse().expect("known")),
                iothread: Some(threads),
                queues,
                ..GuestSpec::default()
            };
            let devices: Vec<String> = devices(&spec).iter().map(Value::to_string).collect();
            format!("{bus} on {machine}: {}", devices.join(" "))
        })
        .into();
        insta::assert_snapshot!(table.join("\n"), @r#"
        virtio-blk on q35: {"drive":"image0","driver":"virtio-blk-pci","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        virtio-blk on pc: {"drive":"image0","driver":"virtio-blk-pci","id":"disk0","iothread":"iothread0","num-queues":4,"serial":"iotax-disk","write-cache":"on"}
        virtio-blk on microvm: {"drive":"image0","driver":"virtio-blk-device","id":"disk0","iothread":"iothread0","serial":"iotax-disk","write-cache":"on"}
        virtio-blk on q35: {"drive":"image0","driver":"virtio-blk-pci","id":"disk0","iothread-vq-mapping":[{"iothread":"iothread0"},{"iothread":"iothread1"}],"num-queues":4,"serial":"iotax-disk","write-cache":"on"}
        virtio-scsi on q35: {"driver":"virtio-scsi-pci","id":"controller"} {"bus":"controller.0","drive":"image0","driver":"scsi-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        virtio-scsi on pc: {"driver":"virtio-scsi-pci","id":"controller","iothread":"iothread0","num_queues":4} {"bus":"controller.0","drive":"image0","driver":"scsi-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        virtio-scsi on microvm: {"driver":"virtio-scsi-device","id":"controller","iothread-vq-mapping":[{"iothread":"iothread0"},{"iothread":"iothread1"}],"num_queues":2} {"bus":"controller.0","drive":"image0","driver":"scsi-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        nvme on q35: {"drive":"image0","driver":"nvme","id":"disk0","max_ioqpairs":4,"serial":"iotax-disk","write-cache":"on"}
        sata on q35: {"bus":"ide.0","drive":"image0","driver":"ide-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        sata on pc: {"driver":"ich9-ahci","id":"controller"} {"bus":"controller.0","drive":"image0","driver":"ide-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        ide on pc: {"bus":"ide.0","drive":"image0","driver":"ide-hd","id":"disk0","serial":"iotax-disk","write-cache":"on"}
        "#);
    }

    #[test]
    fn discard_and_the_cache_of_tables_reach_every_image() {
        let chain =
            images(&[("/srv/top", Format::Qcow2), ("/srv/base", Format::Qcow2), ("/srv/raw", Format::Raw)]);
        let disk = DiskChain { chain: &chain, l2_cache_size: Some(Bytes(1 << 20)) };
        let node = disk.node("image0", &GuestSpec { discard: Discard::Ignore, ..GuestSpec::default() });
        let mut at = &node;
        for format in ["qcow2", "qcow2", "raw"] {
            assert_eq!(
                (&at["driver"], &at["discard"], &at["file"]["discard"]),
                (&json!(format), &json!("ignore"), &json!("ignore"))
            );
            assert_eq!(at.get("l2-cache-size"), (format == "qcow2").then(|| json!(1 << 20)).as_ref());
            at = &at["backing"];
        }
    }
}
