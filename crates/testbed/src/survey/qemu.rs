//! Surveys running guests by the command lines of QEMU processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use iotax_model::survey::{Fact, GuestDisk, GuestNic, GuestSetup, Known};
use serde_json::Value;

use super::reader::Reader;

/// The options of a QEMU command line: the name of each, and its keys with their values.
type Options = Vec<(String, BTreeMap<String, String>)>;

/// Maximum number of block nodes to follow for a disk, because a command line may contain a cycle.
const MOST_NODES: usize = 32;

/// Lists the guests that run on this machine.
pub(super) fn running(reader: &Reader<'_>) -> Vec<GuestSetup> {
    let processes = reader.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let guest = |pid: u32| {
        let source = format!("/proc/{pid}/cmdline");
        let line = fs::read(reader.full_path(&source)).ok()?;
        let words: Vec<String> = String::from_utf8_lossy(&line)
            .trim_end_matches(['\0', '\n'])
            .split('\0')
            .map(str::to_owned)
            .collect();
        let program = words.first()?.rsplit('/').next()?;
        let is_qemu = program.starts_with("qemu-system-") || ["kvm", "qemu-kvm"].contains(&program);
        is_qemu.then(|| {
            let mut guest = GuestSetup { pid: Some(pid), ..setup(&words[1..], &source, pid) };
            guest.emulated = emulated(reader, pid, program, &options(&words[1..]), &source);
            let directory = fs::read_link(reader.full_path(&format!("/proc/{pid}/cwd"))).ok();
            guest.disks.iter_mut().for_each(|disk| locate(disk, directory.as_deref()));
            guest
        })
    };
    processes.filter_map(guest).collect()
}

/// Returns true if a guest runs without hardware virtualization; `None` if that is unknown. QEMU's open files show the accelerator; if they
/// cannot be read, the command line shows which accelerators QEMU tries.
fn emulated(reader: &Reader<'_>, pid: u32, program: &str, options: &Options, source: &str) -> Known<bool> {
    const OF_ACCELERATORS: [&str; 3] = ["anon_inode:kvm-vm", "anon_inode:mshv", "/dev/xen/"];
    let files = format!("/proc/{pid}/fd");
    let open = fs::read_dir(reader.full_path(&files)).into_iter().flatten().flatten();
    let open: Vec<String> = open
        .filter_map(|file| Some(fs::read_link(file.path()).ok()?.to_string_lossy().into_owned()))
        .collect();
    if open.iter().any(|file| OF_ACCELERATORS.iter().any(|prefix| file.starts_with(prefix))) {
        return Some(Fact::new(false, files));
    }
    let named = |name: &str, key: &str| {
        let all = options.iter().filter(|(option, _)| option == name);
        all.filter_map(|(_, keys)| keys.get(key).cloned()).collect::<Vec<_>>()
    };
    let mut tried = named("accel", "accel");
    for machine in ["machine", "M"] {
        tried.extend(named(machine, "accel"));
    }
    let by_option = |(option, _): &(String, _)| match option.as_str() {
        "enable-kvm" => Some("kvm".to_owned()),
        "xen-domid" => Some("xen".to_owned()),
        _ => None,
    };
    tried.extend(options.iter().filter_map(by_option));
    let tried: Vec<&str> = tried.iter().flat_map(|words| words.split(':')).collect();
    // QEMU tries several accelerators in turn. Without any, it tries KVM first if its name ends in kvm, else TCG.
    let by_command_line = match tried[..] {
        ["tcg", ..] => Some(true),
        // Without an accelerator QEMU refuses the host's own model.
        [] if named("cpu", "model").iter().any(|model| model == "host") => {
            return Some(Fact::new(false, source));
        }
        [] if !program.ends_with("kvm") => Some(true),
        [] => None,
        _ if tried.contains(&"tcg") => None,
        _ => return Some(Fact::new(false, source)),
    };
    match by_command_line {
        Some(emulated) => Some(Fact::new(emulated, source)),
        None if open.is_empty() => None,
        None => Some(Fact::new(true, files)),
    }
}

/// Makes the path of a disk's file absolute. A name with a protocol, such as `nbd:...`, is recorded as the protocol instead.
fn locate(disk: &mut GuestDisk, directory: Option<&Path>) {
    let Some(named) = disk.path.take() else { return };
    let name = named.value.strip_prefix("file:").unwrap_or(&named.value);
    match name.split('/').next().unwrap_or_default().split_once(':') {
        Some((protocol, _)) => disk.protocol = named.read(|_| Some(protocol.to_owned())),
        None if name.is_empty() => {}
        None if name.starts_with('/') => disk.path = named.read(|_| Some(name.to_owned())),
        None => disk.path = named.read(|_| directory?.join(name).to_str().map(str::to_owned)),
    }
}

/// Options whose value may begin without a key, with the key that QEMU assumes for it.
const FIRST: [(&str, &str); 11] = [
    ("device", "driver"),
    ("drive", "file"),
    ("blockdev", "driver"),
    ("accel", "accel"),
    ("machine", "type"),
    ("M", "type"),
    ("smp", "cpus"),
    ("netdev", "type"),
    ("nic", "type"),
    ("cpu", "model"),
    ("name", "guest"),
];

fn options(words: &[String]) -> Options {
    let mut found = Options::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        if ["hda", "hdb", "hdc", "hdd"].contains(&option) {
            // The value is a file name, not a list of keys.
            let file = words.next().cloned().unwrap_or_default();
            let keys = [("file".to_owned(), file), ("id".to_owned(), option.to_owned())];
            found.push(("drive".to_owned(), BTreeMap::from(keys)));
            continue;
        }
        let value = match FIRST.iter().find(|(name, _)| *name == option) {
            Some((_, first)) => words.next().map(|text| keys(text, first)).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        found.push((option.to_owned(), value));
    }
    found
}

/// Parses `key=value` pairs separated by commas, or a JSON object. A doubled comma is a comma in a value. Nested keys
/// of an object are joined with dots.
fn keys(text: &str, first: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if text.starts_with('{') {
        flatten("", &serde_json::from_str(text).unwrap_or_default(), &mut found);
        return found;
    }
    let text = text.replace(",,", "\0");
    for (index, part) in text.split(',').enumerate() {
        let part = part.replace('\0', ",");
        match part.split_once('=') {
            Some((key, value)) => found.insert(key.to_owned(), value.to_owned()),
            None if index == 0 => found.insert(first.to_owned(), part),
            None => found.insert(part, "on".to_owned()),
        };
    }
    found
}

fn flatten(prefix: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    let below = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(&below(key), value, found)),
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                flatten(&below(&index.to_string()), value, found);
            }
        }
        Value::String(text) => drop(found.insert(prefix.to_owned(), text.clone())),
        Value::Bool(flag) => {
            drop(found.insert(prefix.to_owned(), if *flag { "on" } else { "off" }.to_owned()));
        }
        Value::Null => {}
        Value::Number(number) => drop(found.insert(prefix.to_owned(), number.to_string())),
    }
}

/// The keys and values of one option, and the source that is recorded for facts from this option.
struct Line<'a> {
    keys: &'a BTreeMap<String, String>,
    source: &'a str,
}

impl Line<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    fn text(&self, key: &str) -> Known<String> {
        self.get(key).map(|value| Fact::new(value.to_owned(), self.source))
    }

    fn number(&self, key: &str) -> Known<u64> {
        self.text(key)?.read(|text| text.parse().ok())
    }

    /// Returns a number of bytes, with an optional suffix such as `k`, `M` or `G`.
    fn bytes(&self, key: &str) -> Known<u64> {
        self.text(key)?.read(|text| {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let shift = match text[digits.len()..].chars().next().map(|c| c.to_ascii_lowercase()) {
                None | Some('b') => 0,
                Some('k') => 10,
                Some('m') => 20,
                Some('g') => 30,
                Some(_) => return None,
            };
            digits.parse::<u64>().ok()?.checked_shl(shift)
        })
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }
}

fn setup(words: &[String], source: &str, pid: u32) -> GuestSetup {
    let options = options(words);
    let all = |name: &'static str| {
        options.iter().filter(move |(option, _)| option == name).map(|(_, keys)| Line { keys, source })
    };
    let devices: Vec<Line<'_>> = all("device").collect();
    let nodes: Vec<Line<'_>> = all("blockdev").collect();
    let mut disks: Vec<GuestDisk> = devices
        .iter()
        .filter_map(|device| attached(device, &devices, &nodes, &all("drive").collect::<Vec<_>>()))
        .collect();
    disks.extend(all("drive").filter(|drive| !drive.is("if", "none")).filter_map(|drive| legacy(&drive)));
    let netdevs: Vec<Line<'_>> = all("netdev").collect();
    let mut nics: Vec<GuestNic> = devices.iter().filter_map(|device| nic(device, &netdevs)).collect();
    nics.extend(all("nic").filter(|line| !line.is("type", "none")).map(|line| GuestNic {
        name: line.get("id").or(line.get("model")).unwrap_or("nic").to_owned(),
        model: line.text("model").map(model),
        backend: line.text("type"),
        vhost: on_off(&line, "vhost"),
        queues: line.number("queues"),
    }));
    GuestSetup {
        name: all("name")
            .next()
            .and_then(|line| line.get("guest").map(str::to_owned))
            .unwrap_or_else(|| format!("QEMU {pid}")),
        pid: None,
        emulated: None,
        vcpus: all("smp").next().and_then(|line| line.number("cpus")),
        cpu_model: all("cpu").next().and_then(|line| line.text("model")),
        disks,
        nics,
    }
}

fn on_off(line: &Line<'_>, key: &str) -> Known<bool> {
    line.text(key)?.read(|word| Some(word == "on" || word == "true"))
}

/// Describes the disk of a `-device` option that has a `drive`; `None` for other devices and for CD and floppy drives.
fn attached(
    device: &Line<'_>,
    devices: &[Line<'_>],
    nodes: &[Line<'_>],
    drives: &[Line<'_>],
) -> Option<GuestDisk> {
    let driver = device.get("driver")?;
    let drive = device.get("drive")?;
    if driver.contains("cd") || driver == "floppy" {
        return None;
    }
    let controller = device
        .get("bus")
        .and_then(|bus| bus.split('.').next())
        .and_then(|id| devices.iter().find(|other| other.is("id", id)));
    let of_scsi = || {
        controller.or_else(|| {
            devices
                .iter()
                .find(|other| other.get("driver").is_some_and(|driver| driver.starts_with("virtio-scsi")))
        })
    };
    let (bus, queueing) = match driver {
        _ if driver.starts_with("virtio-blk") => ("virtio-blk", Some(device)),
        _ if driver.starts_with("scsi-") => match of_scsi() {
            Some(controller)
                if controller.get("driver").is_some_and(|driver| driver.starts_with("virtio-scsi")) =>
            {
                ("virtio-scsi", Some(controller))
            }
            _ => ("scsi", None),
        },
        "ide-hd" | "ide-drive" => {
            let is_ahci = controller.is_some_and(|controller| {
                controller.get("driver").is_some_and(|driver| driver.contains("ahci"))
            });
            (if is_ahci { "sata" } else { "ide" }, None)
        }
        _ if driver.starts_with("nvme") => ("nvme", None),
        _ if driver.starts_with("usb") => ("usb", None),
        _ => return None,
    };
    let mut disk = GuestDisk {
        name: device.get("id").unwrap_or(drive).to_owned(),
        bus: Some(Fact::new(bus.to_owned(), device.source)),
        queues: queueing.and_then(|line| line.number("num-queues").or_else(|| line.number("num_queues"))),
        iothreads: queueing.map(|line| Fact::new(threads(line), device.source)),
        logical_block_bytes: device.number("logical_block_size"),
        shared: on_off(device, "share-rw"),
        write_error: device.text("werror"),
        ..GuestDisk::default()
    };
    if let Some(drive) = drives.iter().find(|line| line.is("id", drive)) {
        add_drive(&mut disk, drive);
    } else {
        add_nodes(&mut disk, device, drive, nodes);
    }
    Some(disk)
}

fn threads(line: &Line<'_>) -> u64 {
    let several =
        line.keys.keys().filter(|key| key.starts_with("iothread-vq-mapping.") && key.ends_with(".iothread"));
    match several.count() as u64 {
        0 => u64::from(line.get("iothread").is_some()),
        count => count,
    }
}

/// Copies the settings of a `-drive` option (path, format, cache mode, limits) into a disk's description.
fn add_drive(disk: &mut GuestDisk, drive: &Line<'_>) {
    // A file name may describe a node instead.
    let described = drive.get("file").and_then(|name| name.strip_prefix("json:")).map(|json| {
        let mut all = drive.keys.clone();
        all.remove("file");
        all.extend(keys(json, "driver"));
        all
    });
    let drive = &Line { keys: described.as_ref().unwrap_or(drive.keys), source: drive.source };
    let below = ["file.file.", "file."];
    let bottom = below.into_iter().find(|below| drive.keys.keys().any(|key| key.starts_with(below)));
    let of_bottom = |key: &str| drive.text(&format!("{}{key}", bottom.unwrap_or_default()));
    disk.protocol = bottom.and(of_bottom("driver")).filter(|driver| !is_local(&driver.value));
    disk.path = of_bottom("filename").or_else(|| drive.text("file")).filter(|_| disk.protocol.is_none());
    disk.format = drive.text("format").or_else(|| drive.text("driver"));
    disk.cache = drive.text("cache");
    let lost = ["readonly", "read-only", "snapshot"].into_iter().any(|key| drive.is(key, "on"));
    disk.nothing_lasts = lost.then(|| Fact::new(true, drive.source));
    disk.aio = drive.text("aio");
    disk.discard = drive.text("discard").map(discard);
    disk.write_error = disk.write_error.take().or_else(|| drive.text("werror"));
    disk.l2_cache_bytes = drive.bytes("l2-cache-size");
    let limits = drive.keys.iter().filter(|(key, _)| {
        key.starts_with("throttling.") || key.starts_with("iops") || key.starts_with("bps")
    });
    let limits: Vec<String> = limits.map(|(key, value)| format!("{key}={value}")).collect();
    disk.throttle = (!limits.is_empty()).then(|| Fact::new(limits.join(" "), drive.source));
}

/// Returns whether a block driver accesses a local file or device.
fn is_local(driver: &str) -> bool {
    ["file", "host_device"].contains(&driver)
}

/// A node of `-blockdev`: its option, and the prefix of its keys, such as `file.`, if the node is nested in another one.
type Node<'a> = (&'a Line<'a>, String);

/// Finds the node with this name; `None` if there is none.
fn node_named<'a>(nodes: &'a [Line<'a>], name: &str) -> Option<Node<'a>> {
    nodes.iter().find_map(|line| {
        let key = line.keys.iter().find_map(|(key, value)| {
            key.strip_suffix("node-name")
                .filter(|before| value == name && (before.is_empty() || before.ends_with('.')))
        })?;
        Some((line, key.to_owned()))
    })
}

/// Adds the settings of the `-blockdev` nodes to a disk, from the node `top`, which the device uses, down to the file.
fn add_nodes(disk: &mut GuestDisk, device: &Line<'_>, top: &str, nodes: &[Line<'_>]) {
    let (mut direct, mut unsafe_, mut stated) = (false, false, false);
    let mut next = node_named(nodes, top);
    for _ in 0..MOST_NODES {
        let Some((line, before)) = next else { break };
        let key = |name: &str| format!("{before}{name}");
        // The node below is named, or described within this one.
        let below = key("file.");
        next = match line.get(&key("file")) {
            Some(name) => node_named(nodes, name),
            None => line.keys.keys().any(|key| key.starts_with(&below)).then_some((line, below)),
        };
        match line.get(&key("driver")).unwrap_or_default() {
            "throttle" => disk.throttle = line.text(&key("throttle-group")),
            driver if is_local(driver) => {
                disk.path = line.text(&key("filename"));
                disk.aio = line.text(&key("aio"));
            }
            _ if next.is_none() && line.get(&key("file")).is_none() => {
                disk.protocol = line.text(&key("driver"));
            }
            _ if disk.format.is_none() => disk.format = line.text(&key("driver")),
            _ => {}
        }
        if disk.discard.is_none() {
            disk.discard = line.text(&key("discard")).map(discard);
        }
        disk.l2_cache_bytes = disk.l2_cache_bytes.take().or_else(|| line.bytes(&key("l2-cache-size")));
        let (own_direct, own_flush) = (key("cache.direct"), key("cache.no-flush"));
        direct |= line.is(&own_direct, "on");
        unsafe_ |= line.is(&own_flush, "on");
        if disk.nothing_lasts.is_none() && line.is(&key("read-only"), "on") {
            disk.nothing_lasts = Some(Fact::new(true, line.source));
        }
        stated |= line.get(&own_direct).is_some() || line.get(&own_flush).is_some();
    }
    let writes_through = device.is("write-cache", "off");
    let mode = match (unsafe_, direct, writes_through) {
        (true, _, _) => "unsafe",
        (_, true, true) => "directsync",
        (_, true, false) => "none",
        (_, false, true) => "writethrough",
        (_, false, false) => "writeback",
    };
    disk.cache = (stated || writes_through).then(|| Fact::new(mode.to_owned(), device.source));
}

/// Converts a discard setting to `unmap` or `ignore`; QEMU also accepts `on` and `off`.
fn discard(word: Fact<String>) -> Fact<String> {
    let value = if ["unmap", "on"].contains(&word.value.as_str()) { "unmap" } else { "ignore" };
    Fact { value: value.to_owned(), ..word }
}

/// Describes the disk of a `-drive if=...` option, which needs no `-device`; `None` for CD drives and other interfaces.
fn legacy(drive: &Line<'_>) -> Option<GuestDisk> {
    let bus = match drive.get("if") {
        Some("virtio") => "virtio-blk",
        Some("scsi") => "scsi",
        Some("ide") | None => "ide",
        Some(_) => return None,
    };
    if drive.is("media", "cdrom") || drive.get("file").or(drive.get("file.filename")).is_none() {
        return None;
    }
    let mut disk = GuestDisk {
        name: drive.get("id").or(drive.get("file")).unwrap_or_default().to_owned(),
        bus: Some(Fact::new(bus.to_owned(), drive.source)),
        iothreads: (bus == "virtio-blk").then(|| Fact::new(0, drive.source)),
        ..GuestDisk::default()
    };
    add_drive(&mut disk, drive);
    Some(disk)
}

fn nic(device: &Line<'_>, netdevs: &[Line<'_>]) -> Option<GuestNic> {
    let netdev = device.get("netdev")?;
    let backend = netdevs.iter().find(|line| line.is("id", netdev));
    Some(GuestNic {
        name: device.get("id").unwrap_or(netdev).to_owned(),
        model: device.text("driver").map(model),
        backend: backend.and_then(|line| line.text("type")),
        vhost: backend.and_then(|line| on_off(line, "vhost")),
        queues: backend.and_then(|line| line.number("queues")),
    })
}

/// Returns the model of a network card: `virtio` for all virtio drivers, otherwise the driver's name.
fn model(driver: Fact<String>) -> Fact<String> {
    let value = if driver.value.starts_with("virtio") { "virtio".to_owned() } else { driver.value };
    Fact { value, source: driver.source }
}
