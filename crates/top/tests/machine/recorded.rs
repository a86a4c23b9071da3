//! Tests of exact rates from recorded trees.

use std::path::Path;

use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::tree;
use iotax_top::collect::{Collector, Options};
use iotax_top::rates::{self, Frame, LayerRates};
use iotax_top::raw::{MachineSnapshot, QemuDisk};
use iotax_top::{json, prometheus, table};

const HOST: &str = include_str!("trees/host.tree");

fn collector(root: &Path) -> Collector {
    let options = Options { root: root.to_owned(), percentiles: false, qmp: Vec::new() };
    Collector::new(&options, &Interrupt::default())
}

/// Reads the recorded host twice, half a second apart; the second tree contains the activity.
fn half_a_second() -> (MachineSnapshot, MachineSnapshot) {
    let root = tree::build(HOST);
    // The command line has zero bytes between its words.
    tree::write(
        root.path(),
        "proc/200/cmdline",
        &[
            "qemu-system-x86_64",
            "-name",
            "guest=web,debug-threads=on",
            "-drive",
            "file=/srv/web.qcow2,if=virtio",
        ]
        .join("\0"),
    );
    let mut collector = collector(root.path());
    let mut earlier = collector.snapshot();
    let later = [
        "8 0 sda 1100 30 80800 2300 600 70 9600 2500 3 3250 4800 0 0 0 0 9 74",
        "8 1 sda1 680 30 48640 1440 500 60 8000 2200 0 2200 3600",
        "8 2 sda2 420 0 32160 860 100 10 1600 300 0 1050 1160",
        "8 16 sdb 620 0 48160 1220 500 0 8000 2200 0 2200 3600",
        "8 17 sdb1 620 0 48160 1220 500 0 8000 2200 0 2200 3600",
        "9 0 md0 1300 0 96800 0 500 0 8000 0 0 0 0",
        "253 0 dm-0 1300 0 96800 2900 500 0 8000 2300 0 2750 5200",
        "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0",
        "7 1 loop1 40 0 400 100 0 0 0 0 0 40 100",
    ];
    tree::write(root.path(), "proc/diskstats", &later.join("\n"));
    let io = |calls: u64, read: u64, write: u64| {
        format!("rchar: 1\nwchar: 2\nsyscr: {calls}\nsyscw: 5\nread_bytes: {read}\nwrite_bytes: {write}")
    };
    tree::write(root.path(), "proc/100/io", &io(1100, 4_505_600, 0));
    tree::write(root.path(), "proc/200/io", &io(5, 1_000_000, 2_819_200));
    tree::write(root.path(), "proc/pressure/io", "some avg10=0 total=1125000\nfull avg10=0 total=500000");
    tree::write(
        root.path(),
        "sys/fs/cgroup/machine.slice/web.scope/io.stat",
        "253:0 rbytes=5096 wbytes=0 rios=20 wios=0 dbytes=0 dios=0",
    );
    tree::write(root.path(), "proc/self/net/dev", "h\nh\n  eth0: 1500 15 0 1 0 0 0 0 2000 20 0 3 0 0 0 0");
    let mut later = collector.snapshot();
    (earlier.clock_ns, later.clock_ns) = (0, 500_000_000);
    (earlier, later)
}

fn frame() -> Frame {
    let (earlier, later) = half_a_second();
    rates::between(&earlier, &later).expect("time passed")
}

fn layer<'a>(frame: &'a Frame, name: &str) -> &'a LayerRates {
    frame.layers.iter().find(|layer| layer.name == name).unwrap_or_else(|| panic!("{name}: {frame:?}"))
}

#[test]
fn devices_stand_after_what_they_stand_on() {
    let frame = frame();
    let order: Vec<(&str, usize)> =
        frame.layers.iter().map(|layer| (layer.title.as_str(), layer.depth)).collect();
    let expected = [
        ("sda", 0),
        ("sda1", 1),
        ("md0", 2),
        ("vg0/images", 3),
        ("loop1", 4),
        ("sda2", 1),
        ("sdb", 0),
        ("sdb1", 1),
    ];
    assert_eq!(order, expected, "a loop device without a file is none");
    assert_eq!(layer(&frame, "md0").on, ["sda1", "sdb1"]);
    assert_eq!(layer(&frame, "dm-0").mounts, ["/srv"]);
}

#[test]
fn rates_are_exact() {
    let frame = frame();
    let sda = layer(&frame, "sda");
    assert_eq!((sda.read_iops, sda.write_iops), (Some(200.0), Some(200.0)));
    assert_eq!((sda.read_bytes_per_s, sda.write_bytes_per_s), (Some(819_200.0), Some(1_638_400.0)));
    assert_eq!((sda.read_latency_ns, sda.write_latency_ns), (Some(3e6), Some(1e7)));
    assert_eq!((sda.queue, sda.busy, sda.in_flight), (Some(2.6), Some(0.5), Some(3.0)));
    assert_eq!((sda.read_merges_per_s, sda.write_merges_per_s), (Some(40.0), Some(40.0)));
    assert_eq!((sda.flush_iops, sda.flush_latency_ns), (Some(4.0), Some(2e6)));
    assert_eq!((sda.read_p99_ns, sda.device_latency_ns), (None, None), "nobody measured them");
    let sda1 = layer(&frame, "sda1");
    assert_eq!((sda1.flush_iops, sda1.discard_iops), (None, None), "an old kernel does not tell them");
    let md0 = layer(&frame, "md0");
    assert_eq!((md0.read_iops, md0.read_latency_ns, md0.busy), (Some(200.0), None, None), "md kept no times");

    let fio = &frame.processes[1];
    assert_eq!(
        (fio.pid, fio.name.as_str(), fio.cgroup.as_deref()),
        (100, "fio", Some("/user.slice/u1.scope"))
    );
    assert_eq!((fio.read_bytes_per_s, fio.read_calls_per_s), (Some(819_200.0), Some(200.0)));
    assert_eq!(frame.processes[0].pid, 200, "the busiest first");
    assert_eq!(frame.processes.len(), 2, "an idle process is none");

    let [group] = &frame.cgroups[..] else { panic!("leaves alone: {:?}", frame.cgroups) };
    assert_eq!((group.path.as_str(), group.device.as_str()), ("/machine.slice/web.scope", "vg0/images"));
    assert_eq!((group.read_bytes_per_s, group.read_iops), (Some(8192.0), Some(20.0)));

    let [eth0] = &frame.interfaces[..] else { panic!("one: {:?}", frame.interfaces) };
    assert_eq!((eth0.rx_bytes_per_s, eth0.rx_packets_per_s), (Some(1000.0), Some(10.0)));
    assert_eq!((eth0.rx_drops_per_s, eth0.tx_drops_per_s), (Some(0.0), Some(6.0)));
    let pressure = frame.pressure.expect("known");
    assert_eq!((pressure.io_some, pressure.io_full), (Some(0.25), Some(0.0)));
}

#[test]
fn a_counter_that_ran_backwards_is_unknown() {
    let frame = frame();
    let loop1 = layer(&frame, "loop1");
    assert_eq!((loop1.read_iops, loop1.read_latency_ns), (None, None), "another file was attached");
    assert_eq!(loop1.write_iops, Some(0.0));
}

#[test]
fn parts_add_up_to_the_whole() {
    let frame = frame();
    let sum = |parts: &[&str], of: fn(&LayerRates) -> Option<f64>| {
        parts.iter().map(|part| of(layer(&frame, part)).expect("known")).sum::<f64>()
    };
    let figures: [fn(&LayerRates) -> Option<f64>; 4] =
        [|l| l.read_iops, |l| l.write_iops, |l| l.read_bytes_per_s, |l| l.write_bytes_per_s];
    for figure in figures {
        assert!((sum(&["sda1", "sda2"], figure) / sum(&["sda"], figure) - 1.0).abs() < 0.02);
    }
    // A mirror reads from one member and writes to each.
    assert!((sum(&["sda1", "sdb1"], figures[0]) / sum(&["md0"], figures[0]) - 1.0).abs() < 0.02);
    assert!((sum(&["sda1", "sdb1"], figures[1]) / sum(&["md0"], figures[1]) - 2.0).abs() < 0.02);
    assert!((sum(&["dm-0"], figures[3]) / sum(&["md0"], figures[3]) - 1.0).abs() < 0.02);
}

#[test]
fn a_device_that_comes_or_goes_has_no_rates() {
    let (earlier, later) = half_a_second();
    let mut without = earlier.clone();
    without.devices.retain(|device| device.name != "sdb");
    let came = rates::between(&without, &later).expect("time passed");
    assert_eq!((layer(&came, "sdb").read_iops, layer(&came, "sdb").busy), (None, None));
    let mut without = later.clone();
    without.devices.retain(|device| device.name != "sdb");
    let went = rates::between(&earlier, &without).expect("time passed");
    assert!(went.layers.iter().all(|layer| layer.name != "sdb"));
    let mut other = later;
    other.devices.iter_mut().for_each(|device| device.number = "1:1".to_owned());
    let other = rates::between(&earlier, &other).expect("time passed");
    assert_eq!(layer(&other, "sda").read_iops, None, "another device of that name");
    assert!(rates::between(&earlier, &earlier).is_none(), "no time passed");
}

#[test]
fn a_device_is_found_when_it_appears() {
    let root = tree::build(HOST);
    let mut collector = collector(root.path());
    assert_eq!(collector.snapshot().devices.len(), 8);
    tree::write(root.path(), "sys/devices/virtual/block/nbd0/size", "8");
    let stats = std::fs::read_to_string(root.path().join("proc/diskstats")).expect("read");
    tree::write(root.path(), "proc/diskstats", &format!("{stats} 43 0 nbd0 1 0 8 1 0 0 0 0 0 1 1"));
    let later = collector.snapshot();
    assert_eq!(later.devices.last().map(|device| device.name.as_str()), Some("nbd0"));
}

#[test]
fn a_heading_has_space_for_the_count_of_hidden_rows() {
    let frame = frame();
    let titles = ["LAYER", "GUEST", "PROCESS", "CGROUP", "NETWORK"];
    for (kind, title) in table::TableKind::ALL.into_iter().zip(titles) {
        let table =
            table::table(kind, &frame, &table::TableOptions { width: 80, ..table::TableOptions::default() });
        let head = table.head(12);
        assert!(head.starts_with(&format!("{title}+12 ")), "{head}");
    }
}

#[test]
fn a_guest_has_its_disk_and_the_time_that_each_layer_takes() {
    let (mut earlier, mut later) = half_a_second();
    let [guest] = &later.guests[..] else { panic!("one: {:?}", later.guests) };
    assert_eq!((guest.name.as_str(), guest.pid), ("web", 200));
    assert_eq!(
        (guest.disks[0].path.as_str(), guest.disks[0].device.as_deref()),
        ("/srv/web.qcow2", Some("dm-0"))
    );

    let disk = |reads, read_ns| QemuDisk {
        name: "virtio0".into(),
        path: Some("/srv/web.qcow2".into()),
        reads,
        read_ns,
        ..QemuDisk::default()
    };
    earlier.guests[0].qemu = Some(vec![disk(100, 1_000_000_000)]);
    later.guests[0].qemu = Some(vec![disk(200, 1_800_000_000)]);
    let frame = rates::between(&earlier, &later).expect("time passed");
    let [whole, disk] = &frame.guests[..] else { panic!("the guest and its disk: {:?}", frame.guests) };
    assert_eq!((whole.read_iops, whole.write_bytes_per_s), (Some(200.0), Some(1_638_400.0)));
    assert_eq!((disk.guest_latency_ns, disk.host_latency_ns), (Some(8e6), Some(6.5e6)));
    assert_eq!(disk.above_latency_ns, Some(1.5e6));
}

#[test]
fn every_output_has_every_figure_that_is_known() {
    let frame = frame();
    insta::assert_snapshot!("table_80", stable(&table::text(&frame, 80)));
    insta::assert_snapshot!("table_200", stable(&table::text(&frame, 200)));
    let document = json::document(&frame);
    assert_eq!(document["layers"][0]["read_latency_ns"], 3e6);
    assert_eq!(document["layers"][1]["name"], "sda1");
    assert!(document["layers"][1].get("flush_iops").is_none(), "what is not known is absent");
    let text = prometheus::text(&frame);
    assert!(
        text.contains("iotax_top_layer_read_latency_seconds{device=\"sda\",name=\"sda\"} 0.003\n"),
        "{text}"
    );
    assert!(text.contains("iotax_top_stalled_io_some_ratio 0.25\n"), "{text}");
    for table in [table::text(&frame, 80), table::text(&frame, 60)] {
        assert!(table.lines().skip(2).all(|line| line.chars().count() <= 80), "{table}");
    }
}

/// Removes the time of the reading.
fn stable(text: &str) -> String {
    let (_, rest) = text.split_once('Z').expect("a time");
    format!("TIME{rest}")
}
