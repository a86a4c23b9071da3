//! Reads all disks and network cards of a domain, for a survey.

use std::path::Path;

use iotax_model::survey::{Fact, GuestDisk, GuestNic, GuestSetup, Known};
use roxmltree::{Document, Node};

use super::{DomainError, child, disk, text};

/// Reads a guest's setup from its domain XML. `source` names the origin of the facts. Settings that the XML leaves to libvirt or QEMU are
/// `None`.
///
/// # Errors
/// The text is not the XML of a domain.
pub fn setup(xml: &str, source: &str) -> Result<GuestSetup, DomainError> {
    let document = Document::parse(xml).map_err(|error| super::not_xml(&error))?;
    let root = super::domain(&document)?;
    let fact = |value: &str| Fact::new(value.to_owned(), source);
    let vcpus =
        child(root, "vcpu").and_then(|vcpu| vcpu.attribute("current").unwrap_or(text(vcpu)).parse().ok());
    let devices: Vec<Node<'_, '_>> =
        child(root, "devices").into_iter().flat_map(|all| all.children()).collect();
    let of = |name: &'static str| devices.iter().copied().filter(move |node| node.tag_name().name() == name);
    let cpu = child(root, "cpu");
    let cpu_model = cpu
        .and_then(|cpu| child(cpu, "model").map(text).or_else(|| cpu.attribute("mode")).map(str::to_owned));
    Ok(GuestSetup {
        name: child(root, "name").map_or("domain", text).to_owned(),
        pid: None,
        emulated: root.attribute("type").map(|kind| Fact::new(kind == "qemu", source)),
        vcpus: vcpus.map(|count| Fact::new(count, source)),
        cpu_model: cpu_model.map(|model| fact(&model)),
        disks: of("disk")
            .filter(|node| node.attribute("device").is_none_or(|device| device == "disk"))
            .map(|node| guest_disk(root, node, source))
            .collect(),
        nics: of("interface").map(|node| nic(node, source)).collect(),
    })
}

fn guest_disk(root: Node<'_, '_>, node: Node<'_, '_>, source: &str) -> GuestDisk {
    let driver = child(node, "driver");
    let controller = disk::controller(root, node);
    let of_controller = controller.and_then(|controller| child(controller, "driver"));
    let fact = |value: &str| Fact::new(value.to_owned(), source);
    let word = |key: &str| {
        driver.and_then(|driver| driver.attribute(key)).filter(|word| *word != "default").map(fact)
    };
    let is_virtio_scsi = controller
        .and_then(|found| found.attribute("model"))
        .is_some_and(|model| model.starts_with("virtio"));
    let (bus, queueing) = match child(node, "target").and_then(|target| target.attribute("bus")) {
        Some("virtio") => (Some("virtio-blk"), driver),
        Some("scsi") if is_virtio_scsi => (Some("virtio-scsi"), of_controller),
        other => (other, None),
    };
    let is_virtio = bus.is_some_and(|bus| bus.starts_with("virtio"));
    let number = |key: &str| queueing.and_then(|driver| driver.attribute(key)?.parse().ok());
    let block = child(node, "blockio").and_then(|block| block.attribute("logical_block_size")?.parse().ok());
    let throttle = child(node, "iotune").map(|tune| {
        let limits = tune.children().filter(Node::is_element);
        limits
            .map(|limit| format!("{}={}", limit.tag_name().name(), text(limit)))
            .collect::<Vec<_>>()
            .join(" ")
    });
    let l2_cache = driver.and_then(|driver| child(child(driver, "metadata_cache")?, "max_size"));
    GuestDisk {
        name: disk::name(node).to_owned(),
        path: disk::source(node).as_deref().and_then(Path::to_str).map(fact),
        protocol: protocol(node).map(fact),
        volume: volume(node).map(|(pool, volume)| fact(&format!("{pool}/{volume}"))),
        format: word("type"),
        bus: bus.map(fact),
        cache: word("cache"),
        aio: word("io"),
        discard: word("discard"),
        write_error: word("error_policy"),
        iothreads: is_virtio.then(|| Fact::new(queueing.map_or(0, disk::threads).into(), source)),
        queues: number("queues").map(|count| Fact::new(count, source)),
        l2_cache_bytes: l2_cache.and_then(|size| bytes(size, source)),
        logical_block_bytes: block.map(|bytes| Fact::new(bytes, source)),
        throttle: throttle.map(|limits| fact(&limits)),
        nothing_lasts: child(node, "readonly")
            .or_else(|| child(node, "transient"))
            .map(|_| Fact::new(true, source)),
        shared: child(node, "shareable").map(|_| Fact::new(true, source)),
    }
}

/// Returns the protocol of a network disk, or the type of a disk that iotax does not know; `None` for a local file, device, directory or
/// volume.
fn protocol<'a>(disk: Node<'a, '_>) -> Option<&'a str> {
    match disk.attribute("type")? {
        "network" => child(disk, "source")?.attribute("protocol"),
        "file" | "block" | "dir" | "volume" => None,
        other => Some(other),
    }
}

/// Returns the names of the storage pool and of the volume behind a disk of type `volume`; `None` for other types.
fn volume<'a>(disk: Node<'a, '_>) -> Option<(&'a str, &'a str)> {
    let source = child(disk, "source")?;
    source.attribute("pool").zip(source.attribute("volume"))
}

fn bytes(node: Node<'_, '_>, source: &str) -> Known<u64> {
    let shift = match node.attribute("unit").unwrap_or("bytes") {
        "b" | "bytes" => 0,
        "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        _ => return None,
    };
    text(node).parse::<u64>().ok()?.checked_shl(shift).map(|bytes| Fact::new(bytes, source))
}

fn nic(node: Node<'_, '_>, source: &str) -> GuestNic {
    let fact = |value: &str| Fact::new(value.to_owned(), source);
    let driver = child(node, "driver");
    let attribute = |name: &str, key: &str| child(node, name).and_then(|found| found.attribute(key));
    let backend = match (node.attribute("type"), attribute("backend", "type")) {
        (Some("user"), Some(own)) => Some(own),
        (Some("network" | "bridge" | "ethernet"), _) => Some("tap"),
        (kind, _) => kind,
    };
    GuestNic {
        name: attribute("target", "dev").or(attribute("mac", "address")).unwrap_or("interface").to_owned(),
        model: attribute("model", "type").map(fact),
        backend: backend.map(fact),
        vhost: driver
            .and_then(|driver| driver.attribute("name"))
            .map(|name| Fact::new(name == "vhost", source)),
        queues: driver
            .and_then(|driver| driver.attribute("queues")?.parse().ok())
            .map(|count| Fact::new(count, source)),
    }
}
