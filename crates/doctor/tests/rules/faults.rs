//! Tests of planted faults: each changes a few lines of the recorded host, and exactly one rule must find it.

use std::collections::HashSet;
use std::path::Path;

use iotax_doctor::{examine, rules};
use iotax_model::survey::{Fact, Survey, SwallowedFlushes};
use iotax_testkit::tree;

use crate::{HOST, qcow2, short, survey_of};

/// Short names for device directories, used at the beginning of a changed line.
const COMPONENTS: [(&str, &str); 9] = [
    ("NVME/", "sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/"),
    ("SDA/", "sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda/"),
    ("MD5/", "sys/devices/virtual/block/md5/"),
    ("DM-0/", "sys/devices/virtual/block/dm-0/"),
    ("DM-1/", "sys/devices/virtual/block/dm-1/"),
    ("DM-3/", "sys/devices/virtual/block/dm-3/"),
    ("DM-4/", "sys/devices/virtual/block/dm-4/"),
    ("VDA/", "sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda/"),
    ("NET/", "sys/class/net/"),
];

/// Short names for lines of which a part is changed: `@NAME|part|replacement`.
const LINES: [(&str, &str); 7] = [
    ("@mounts", "proc/self/mountinfo"),
    ("@guest", "proc/4242/cmdline"),
    ("@table", "commands/dmsetup table"),
    ("@status", "commands/dmsetup status --noflush"),
    ("@smart", "commands/smartctl -j -A !dev!nvme0"),
    ("@features", "commands/ethtool -k eth0"),
    ("@ring", "commands/ethtool -g eth0"),
];

/// A fault: the rule, the changed lines, and the end of the evidence's source.
type Fault = (&'static str, &'static [&'static str], &'static str);

const DISKS: &[Fault] = &[
    ("disk-offline", &["SDA/device/state = offline"], "sda/device/state"),
    ("disk-warns", &["@smart|\"critical_warning\": 0|\"critical_warning\": 4"], "smartctl -j -A /dev/nvme0"),
    ("disk-media-errors", &["@smart|\"media_errors\": 0|\"media_errors\": 7"], "smartctl -j -A /dev/nvme0"),
    ("disk-worn", &["@smart|\"percentage_used\": 3|\"percentage_used\": 97"], "smartctl -j -A /dev/nvme0"),
    ("flushes-dropped", &["SDA/queue/write_cache = write through"], "sda/queue/write_cache"),
    ("partition-misaligned", &["SDA/sda1/start = 63"], "sda1/start"),
    ("partition-not-on-4k", &["VDA/vda1/start = 63"], "vda1/start"),
    ("bfq-on-nvme", &["NVME/nvme0n1/queue/scheduler = none kyber [bfq]"], "nvme0n1/queue/scheduler"),
    ("scheduler-on-nvme", &["NVME/nvme0n1/queue/scheduler = none [mq-deadline]"], "nvme0n1/queue/scheduler"),
    ("no-scheduler-on-hdd", &["SDA/queue/scheduler = [none] mq-deadline"], "sda/queue/scheduler"),
    ("nvme-rotational", &["NVME/nvme0n1/queue/rotational = 1"], "nvme0n1/queue/rotational"),
    ("read-ahead-off", &["SDA/queue/read_ahead_kb = 0"], "sda/queue/read_ahead_kb"),
    ("read-ahead-long", &["SDA/queue/read_ahead_kb = 65536"], "sda/queue/read_ahead_kb"),
    ("requests-small", &["NVME/nvme0n1/queue/max_sectors_kb = 16"], "nvme0n1/queue/max_sectors_kb"),
    ("merges-off", &["NVME/nvme0n1/queue/nomerges = 2"], "nvme0n1/queue/nomerges"),
    ("queue-few-requests", &["SDA/queue/nr_requests = 4"], "sda/queue/nr_requests"),
    ("queue-depth-one", &["SDA/device/queue_depth = 1"], "sda/device/queue_depth"),
    ("write-cache-off", &["SDA/device/scsi_disk/0:0:0:0/cache_type = write through"], "0:0:0:0/cache_type"),
    ("timeout-short", &["SDA/device/timeout = 3"], "sda/device/timeout"),
    ("pci-link-narrow", &["NVME/device/current_link_width = 1"], "nvme0/device/current_link_width"),
    (
        "pci-link-narrow",
        &["NVME/device/current_link_speed = 2.5 GT/s PCIe"],
        "nvme0/device/current_link_width",
    ),
    ("node-unknown", &["NVME/device/numa_node = -1"], "nvme0/device/numa_node"),
    ("interrupts-on-one-cpu", &["proc/irq/42/effective_affinity_list = 0"], "irq/41/effective_affinity_list"),
    ("virtio-one-queue", &["VDA/mq/1/nr_tags"], "vda/mq"),
    (
        "virtio-no-event-index",
        &["VDA/device/features = 00101010011101100000000000001000100000"],
        "vda/device/features",
    ),
];

const LAYERS: &[Fault] = &[
    ("layer-misaligned", &["MD5/alignment_offset = -1"], "md5/alignment_offset"),
    ("layer-misaligned", &["DM-0/alignment_offset = 3584"], "dm-0/alignment_offset"),
    (
        "blocks-smaller-than-below",
        &["DM-0/queue/logical_block_size = 4096"],
        "loop0/queue/logical_block_size",
    ),
    ("loop-through-cache", &["sys/devices/virtual/block/loop0/loop/dio = 0"], "loop0/loop/dio"),
    ("discard-stops", &["DM-3/queue/discard_max_bytes = 0"], "dm-3/queue/discard_max_bytes"),
    ("raid-degraded", &["MD5/md/degraded = 1"], "md5/md/degraded"),
    ("raid-mismatch", &["MD5/md/mismatch_cnt = 128"], "md5/md/mismatch_cnt"),
    ("raid-busy", &["MD5/md/sync_action = recover"], "md5/md/sync_action"),
    ("raid-without-bitmap", &["MD5/md/bitmap/location = none"], "md5/md/bitmap/location"),
    ("thin-pool-full", &["@status|200/1000|950/1000"], "dmsetup status --noflush"),
    ("thin-pool-full", &["@status|100/1024|1000/1024"], "dmsetup status --noflush"),
    (
        "snapshot-full",
        &["@status|vg0-srv: 0 1048576 linear|vg0-srv: 0 1048576 snapshot 95000/100000 400"],
        "dmsetup status --noflush",
    ),
    (
        "snapshot-full",
        &["@status|vg0-srv: 0 1048576 linear|vg0-srv: 0 1048576 snapshot Invalid"],
        "dmsetup status --noflush",
    ),
    (
        "volume-has-snapshot",
        &["DM-1/dm/uuid = LVM-0aB2-real", "DM-0/slaves/dm-1 -> ../../dm-1"],
        "dm-0/dm/uuid",
    ),
    (
        "crypt-workqueues",
        &["@table|3 allow_discards no_read_workqueue no_write_workqueue|1 allow_discards"],
        "dmsetup table",
    ),
    ("multipath-one-path", &["DM-4/slaves/sdf"], "dm-4/dm/uuid"),
    ("multipath-path-failed", &["@status|8:80 A|8:80 F"], "dmsetup status --noflush"),
    ("multipath-waits-forever", &["@table|multipath 0 0|multipath 1 queue_if_no_path 0"], "dmsetup table"),
    (
        "iscsi-slow-failover",
        &["sys/class/iscsi_session/session1/recovery_tmo = 120"],
        "session1/recovery_tmo",
    ),
    (
        "fc-slow-failover",
        &["sys/class/fc_remote_ports/rport-5:0-1/fast_io_fail_tmo = off"],
        "rport-5:0-1/fast_io_fail_tmo",
    ),
    (
        "bcache-inconsistent",
        &["sys/devices/virtual/block/bcache0/bcache/state = inconsistent"],
        "bcache0/bcache/state",
    ),
    (
        "bcache-without-cache",
        &["sys/devices/virtual/block/bcache0/bcache/state = no cache"],
        "bcache0/bcache/state",
    ),
    (
        "bcache-without-cache",
        &["sys/devices/virtual/block/bcache0/bcache/cache_mode = writeback [none]"],
        "bcache0/bcache/cache_mode",
    ),
];

const FILESYSTEMS: &[Fault] = &[
    ("filesystem-errors", &["sys/fs/ext4/nvme0n1p2/errors_count = 2"], "nvme0n1p2/errors_count"),
    (
        "filesystem-errors",
        &["sys/fs/btrfs/1111-bbbb/devinfo/1/error_stats = write_errs 0\\nread_errs 3"],
        "devinfo/1/error_stats",
    ),
    ("btrfs-device-missing", &["sys/fs/btrfs/1111-bbbb/devinfo/2/missing = 1"], "devinfo/2/missing"),
    ("barriers-off", &["@mounts|rw,errors=remount-ro|rw,nobarrier"], "/proc/self/mountinfo"),
    ("inodes-used-up", &["commands/stat -f -c %S %b %a %c %d ! = 4096 10000000 5000000 2000000 100"], "%d /"),
    (
        "filesystem-nearly-full",
        &["commands/stat -f -c %S %b %a %c %d ! = 4096 10000000 100000 2000000 1900000"],
        "%d /",
    ),
    ("mounted-sync", &["@mounts|/ / rw,relatime|/ / rw,sync,relatime"], "/proc/self/mountinfo"),
    ("journal-has-data", &["@mounts|rw,errors=remount-ro|rw,data=journal"], "/proc/self/mountinfo"),
    ("data-writeback", &["@mounts|rw,errors=remount-ro|rw,data=writeback"], "/proc/self/mountinfo"),
    ("access-times", &["@mounts|/ /srv rw,relatime|/ /srv rw"], "/proc/self/mountinfo"),
    ("commit-rare", &["@mounts|rw,errors=remount-ro|rw,commit=600"], "/proc/self/mountinfo"),
    ("stripe-unknown", &["@mounts|rw,stripe=256|rw"], "/proc/self/mountinfo"),
    (
        "never-trimmed",
        &[
            "etc/systemd/system/timers.target.wants/fstrim.timer",
            "etc/systemd/system/a.mount = a unit",
            "NVME/nvme0n1/nvme0n1p2/partition = 2",
        ],
        "fstrim.timer",
    ),
];

/// Faults on a path that only a survey of this path reads.
const PATHS: &[(&str, Fault)] = &[
    ("/net/a.img", ("nfs-soft", &["@mounts|wsize=1048576,hard|wsize=1048576,soft"], "/proc/self/mountinfo")),
    ("/net/a.img", ("nfs-over-udp", &["@mounts|proto=tcp|proto=udp"], "/proc/self/mountinfo")),
    ("/net/a.img", ("nfs-small-transfers", &["@mounts|rsize=1048576|rsize=8192"], "/proc/self/mountinfo")),
    ("/net/a.img", ("nfs-no-attribute-cache", &["@mounts|vers=4.2|vers=4.2,noac"], "/proc/self/mountinfo")),
    ("/remote", ("filesystem-in-user-space", &["@mounts|- sshfs|- fuse.sshfs"], "/proc/self/mountinfo")),
    (
        "/pool/a.qcow2",
        (
            "image-copy-on-write",
            &[
                "@mounts|rw,nodatacow|rw",
                "commands/lsattr -d !pool!a.qcow2 = ---------------------- /pool/a.qcow2",
            ],
            "lsattr -d /pool/a.qcow2",
        ),
    ),
    ("/net/a.img", ("image-foreign-format", &["net/a.img = KDMV"], "/net/a.img")),
];

const IMAGES: &[Fault] = &[
    ("image-corrupt", &["qcow2 srv/web1.qcow2 features=2"], "/srv/web1.qcow2"),
    ("image-larger-than-space", &["qcow2 srv/web1.qcow2 size=549755813888 bits=20"], "%B /srv/web1.qcow2"),
    ("image-backing-missing", &["qcow2 srv/web1.qcow2 base=/srv/base.raw format=raw"], "/srv/web1.qcow2"),
    (
        "image-backing-loop",
        &["qcow2 srv/web1.qcow2 base=1 format=qcow2", "qcow2 srv/1 base=/srv/web1.qcow2 format=qcow2"],
        "/srv/web1.qcow2",
    ),
    ("image-raw-base-probed", &["qcow2 srv/web1.qcow2 base=1", "srv/1 = data"], "/srv/web1.qcow2"),
    ("image-format-probed", &["qcow2 srv/web1.qcow2 base=1", "qcow2 srv/1"], "/srv/web1.qcow2"),
    ("image-aes", &["qcow2 srv/web1.qcow2 crypt=1"], "/srv/web1.qcow2"),
    (
        "image-tables-beyond-cache",
        &[
            "qcow2 srv/web1.qcow2 size=300000000000",
            "commands/stat -c %s %b %B !srv!web1.qcow2 = 300000000000 585937500 512",
        ],
        "/srv/web1.qcow2",
    ),
    ("image-small-clusters", &["qcow2 srv/web1.qcow2 bits=12"], "/srv/web1.qcow2"),
    (
        "overlay-copies-clusters",
        &["qcow2 srv/web1.qcow2 bits=21 base=1 format=raw", "srv/1 = data"],
        "/srv/web1.qcow2",
    ),
    (
        "image-chain-long",
        &[
            "qcow2 srv/web1.qcow2 base=4 format=qcow2",
            "qcow2 srv/4 base=3 format=qcow2",
            "qcow2 srv/3 base=2 format=qcow2",
            "qcow2 srv/2 base=1 format=qcow2",
            "qcow2 srv/1",
        ],
        "/srv/web1.qcow2",
    ),
    ("image-internal-snapshots", &["qcow2 srv/web1.qcow2 snapshots=1"], "/srv/web1.qcow2"),
    ("image-old-version", &["qcow2 srv/web1.qcow2 version=2"], "/srv/web1.qcow2"),
    (
        "image-fragmented",
        &["commands/filefrag !srv!web1.qcow2 = /srv/web1.qcow2: 40000 extents found"],
        "filefrag /srv/web1.qcow2",
    ),
];

const GUESTS: &[Fault] = &[
    (
        "cache-unsafe",
        &["@guest|\"no-flush\":false}}\\x00-object|\"no-flush\":true}}\\x00-object"],
        "/proc/4242/cmdline",
    ),
    (
        "write-errors-ignored",
        &["@guest|\"num-queues\":4|\"num-queues\":4,\"werror\":\"ignore\""],
        "/proc/4242/cmdline",
    ),
    (
        "native-aio-buffered",
        &["@guest|\"direct\":true|\"direct\":false", "@guest|\"direct\":true|\"direct\":false"],
        "/proc/4242/cmdline",
    ),
    ("image-shared", &["@guest|\"num-queues\":4|\"num-queues\":4,\"share-rw\":true"], "/proc/4242/cmdline"),
    (
        "io-uring-forbidden",
        &["@guest|\"aio\":\"native\"|\"aio\":\"io_uring\"", "proc/sys/kernel/io_uring_disabled = 2"],
        "kernel/io_uring_disabled",
    ),
    ("guest-emulated", &["@guest|-accel\\x00kvm|-accel\\x00tcg"], "/proc/4242/cmdline"),
    ("guest-cpus-beyond-host", &["@guest|-smp\\x004|-smp\\x0016"], "/proc/4242/cmdline"),
    ("guest-cpu-model", &["@guest|-cpu\\x00host|-cpu\\x00kvm64"], "/proc/4242/cmdline"),
    ("cache-writethrough", &["@guest|\"write-cache\":\"on\"|\"write-cache\":\"off\""], "/proc/4242/cmdline"),
    ("disk-emulated", &["@guest|virtio-blk-pci|ide-hd"], "/proc/4242/cmdline"),
    (
        "guest-blocks-smaller-than-disk",
        &["NVME/nvme0n1/queue/logical_block_size = 4096", "NVME/nvme0n1/queue/physical_block_size = 4096"],
        "/proc/4242/cmdline",
    ),
    ("threads-for-direct-io", &["@guest|\"aio\":\"native\"|\"aio\":\"threads\""], "/proc/4242/cmdline"),
    ("no-iothread", &["@guest|\"iothread\":\"io1\",|"], "/proc/4242/cmdline"),
    ("disk-one-queue", &["@guest|\"num-queues\":4|\"num-queues\":1"], "/proc/4242/cmdline"),
    (
        "guest-discards-dropped",
        &["@guest|\"file\":\"s\",\"discard\":\"unmap\"|\"file\":\"s\",\"discard\":\"ignore\""],
        "/proc/4242/cmdline",
    ),
    (
        "guest-throttled",
        &[
            "@guest|\"drive\":\"f\"|\"drive\":\"t\"",
            "@guest|-object\\x00iothread|-blockdev\\x00throttle,node-name=t,throttle-group=g1,file=f\\x00-object\\x00iothread",
        ],
        "/proc/4242/cmdline",
    ),
    ("nic-emulated", &["@guest|virtio-net-pci|e1000"], "/proc/4242/cmdline"),
    ("nic-without-vhost", &["@guest|vhost=on|vhost=off"], "/proc/4242/cmdline"),
    ("nic-user-mode", &["@guest|tap,fd=30|user,restrict=off"], "/proc/4242/cmdline"),
];

const MACHINES: &[Fault] = &[
    ("aio-used-up", &["proc/sys/fs/aio-nr = 65000"], "fs/aio-nr"),
    (
        "clocksource-slow",
        &["sys/devices/system/clocksource/clocksource0/current_clocksource = hpet"],
        "current_clocksource",
    ),
    (
        "governor-powersave",
        &["sys/devices/system/cpu/cpu0/cpufreq/scaling_driver = acpi-cpufreq"],
        "scaling_governor",
    ),
    (
        "dirty-limit-small",
        &["proc/sys/vm/dirty_bytes = 1048576", "proc/sys/vm/dirty_ratio = 0"],
        "vm/dirty_bytes",
    ),
    ("dirty-limit-large", &["proc/sys/vm/dirty_ratio = 80"], "vm/dirty_ratio"),
    (
        "dirty-background-above-limit",
        &["proc/sys/vm/dirty_background_ratio = 30"],
        "vm/dirty_background_ratio",
    ),
    (
        "dirty-background-above-limit",
        &[
            "proc/sys/vm/dirty_background_bytes = 536870912",
            "proc/sys/vm/dirty_bytes = 536870912",
            "proc/sys/vm/dirty_background_ratio = 0",
            "proc/sys/vm/dirty_ratio = 0",
        ],
        "vm/dirty_background_bytes",
    ),
    ("swappiness-extreme", &["proc/sys/vm/swappiness = 0"], "vm/swappiness"),
    ("swappiness-extreme", &["proc/sys/vm/swappiness = 180"], "vm/swappiness"),
    ("zone-reclaim", &["proc/sys/vm/zone_reclaim_mode = 1"], "vm/zone_reclaim_mode"),
    (
        "huge-page-stalls",
        &["sys/kernel/mm/transparent_hugepage/defrag = [always] defer madvise never"],
        "transparent_hugepage/defrag",
    ),
    (
        "memory-stalls",
        &[
            "proc/pressure/memory = some avg10=0.00 avg60=0.00 avg300=20.00 total=9\\nfull avg10=0.00 avg60=1.00 avg300=12.50 total=0",
        ],
        "/proc/pressure/memory",
    ),
    ("cpu-stolen", &["proc/stat = cpu  1000 0 1000 9000 0 0 0 900 0 0"], "/proc/stat"),
    ("mitigations-off", &["proc/cmdline = root=/dev/nvme0n1p2 ro mitigations=off"], "/proc/cmdline"),
    (
        "cgroup-limit",
        &["sys/fs/cgroup/user.slice/io.max = 259:0 rbps=max wbps=10485760 riops=max wiops=max"],
        "user.slice/io.max",
    ),
    (
        "cgroup-limit",
        &["sys/fs/cgroup/machine.slice/web1.scope/cpu.max = 50000 100000"],
        "web1.scope/cpu.max",
    ),
    (
        "cgroup-limit",
        &[
            "proc/self/cgroup = 7:blkio:/box",
            "sys/fs/cgroup/blkio/box/blkio.throttle.write_bps_device = 259:0 1048576",
        ],
        "blkio.throttle.write_bps_device",
    ),
];

const NETWORKS: &[Fault] = &[
    ("mtu-mismatch", &["NET/vnet0/mtu = 9000"], "vnet0/mtu"),
    ("mtu-mismatch", &["NET/veth1/mtu = 9000"], "veth0/mtu"),
    ("mtu-mismatch", &["NET/eth0/mtu = 1500"], "eth0/mtu"),
    ("tunnel-mtu", &["NET/vxlan0/mtu = 9000"], "vxlan0/mtu"),
    ("half-duplex", &["NET/eth0/duplex = half"], "eth0/duplex"),
    ("checksum-errors", &["NET/eth0/statistics/rx_crc_errors = 4000"], "statistics/rx_crc_errors"),
    ("bond-port-down", &["NET/eth0/bonding_slave/mii_status = down"], "bonding_slave/mii_status"),
    ("link-slow", &["NET/eth0/speed = 100"], "eth0/speed"),
    (
        "offload-off",
        &["@features|generic-receive-offload: on|generic-receive-offload: off"],
        "ethtool -k eth0",
    ),
    ("checksum-offload-off", &["@features|tx-checksumming: on|tx-checksumming: off"], "ethtool -k eth0"),
    ("ring-small", &["NET/eth0/statistics/rx_missed_errors = 12"], "statistics/rx_missed_errors"),
    ("one-receive-queue", &["NET/eth0/queues/rx-1/rps_cpus"], "eth0/queues"),
    ("tcp-window-scaling-off", &["proc/sys/net/ipv4/tcp_window_scaling = 0"], "ipv4/tcp_window_scaling"),
    ("tcp-sack-off", &["proc/sys/net/ipv4/tcp_sack = 0"], "ipv4/tcp_sack"),
    ("tcp-buffer-small", &["proc/sys/net/ipv4/tcp_rmem = 4096 87380 174760"], "ipv4/tcp_rmem"),
];

/// The path of a line.
fn path_of(line: &str) -> &str {
    line.split(" = ").next().and_then(|line| line.split(" -> ").next()).unwrap_or_default()
}

fn line_of(path: &str) -> Option<&'static str> {
    HOST.lines().find(|line| !line.starts_with('#') && path_of(line) == path)
}

/// Expands the lines of a fault. A line without content removes its file.
fn lines(changes: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for change in changes {
        if let Some((name, rest)) = change.split_once('|').filter(|(name, _)| name.starts_with('@')) {
            let (part, replacement) = rest.split_once('|').expect("a part and its replacement");
            let (_, path) = LINES.iter().find(|(known, _)| *known == name).expect("a known line");
            // A line that was changed already is changed further.
            let earlier = lines.iter().position(|line| path_of(line) == *path);
            let line = earlier.map(|index| lines.remove(index));
            let line = line.unwrap_or_else(|| line_of(path).expect("in the tree").to_owned());
            assert!(line.contains(part), "{part} is not in {line}");
            lines.push(line.replacen(part, replacement, 1));
        } else if let Some(image) = change.strip_prefix("qcow2 ") {
            lines.push(qcow2::line(image));
        } else {
            let component = COMPONENTS.iter().find(|(name, _)| change.starts_with(name));
            let line = |(name, path): &(&str, &str)| change.replacen(name, path, 1);
            lines.push(component.map_or_else(|| (*change).to_owned(), line));
        }
    }
    lines
}

/// Surveys the tree with a fault, and restores it.
fn survey_with(root: &Path, changes: &[&str], path: Option<&str>) -> Survey {
    let lines = lines(changes);
    for line in &lines {
        if line_of(path_of(line)).is_some() {
            tree::remove(root, path_of(line));
        }
        if path_of(line) != line {
            tree::add(root, line);
        }
    }
    let survey = survey_of(root, path);
    for line in &lines {
        if path_of(line) != line {
            tree::remove(root, path_of(line));
        }
        if let Some(line) = line_of(path_of(line)) {
            tree::add(root, line);
        }
    }
    survey
}

/// Plants a fault and surveys `path`, or the machine without one. Returns the errors.
fn wrong(root: &Path, path: Option<&str>, (rule, changes, evidence): Fault) -> Option<String> {
    let found = examine(&survey_with(root, changes, path));
    let is_right = !found.is_empty()
        && found.iter().all(|finding| finding.rule.id == rule && !finding.violation.remedy.is_empty())
        && found.iter().any(|finding| finding.violation.source.ends_with(evidence));
    (!is_right).then(|| format!("{rule} by {changes:?}, evidence {evidence}: {:?}", short(&found)))
}

/// Tests the rule based on a run's measurements, which a recorded tree does not contain.
const MEASURED: &str = "flushes-swallowed";

#[test]
fn a_layer_that_swallowed_flushes_is_named_with_their_counts() {
    let root = tree::build(HOST);
    let mut survey = survey_of(root.path(), None);
    let swallowed = SwallowedFlushes {
        target: "t".into(),
        layer: "volatile (drop_flush=1)".into(),
        asked: 1000,
        passed_on: 0,
        report: "iotax report 7".into(),
    };
    survey.swallowed_flushes.push(Fact::new(swallowed, "run 7 of 2026-11-28T12:00:00Z"));
    let found = examine(&survey);
    let [finding] = found.as_slice() else { panic!("{:?}", short(&found)) };
    assert_eq!((finding.rule.id, finding.violation.component.as_str()), (MEASURED, "t"));
    assert_eq!(finding.violation.observed, "1,000 asked, 0 passed on by volatile (drop_flush=1)");
    assert_eq!(finding.violation.source, "run 7 of 2026-11-28T12:00:00Z");
}

const ALL: [&[Fault]; 7] = [DISKS, LAYERS, FILESYSTEMS, IMAGES, GUESTS, MACHINES, NETWORKS];

#[test]
fn every_planted_fault_is_found_and_nothing_else() {
    let root = tree::build(HOST);
    let root = root.path();
    let of_machine = ALL.into_iter().flatten().filter_map(|fault| wrong(root, None, *fault));
    let of_paths = PATHS.iter().filter_map(|(path, fault)| wrong(root, Some(path), *fault));
    let wrong: Vec<String> = of_machine.chain(of_paths).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_planted_fault() {
    let planted: HashSet<&str> = ALL
        .into_iter()
        .flatten()
        .chain(PATHS.iter().map(|(_, fault)| fault))
        .map(|(rule, _, _)| *rule)
        .chain([MEASURED])
        .collect();
    let missing: Vec<&str> = rules::all().map(|rule| rule.id).filter(|id| !planted.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
