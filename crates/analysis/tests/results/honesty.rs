//! Tests that each check fires in its own case and only there.

use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Grade, Metric};
use iotax_model::Run;
use iotax_model::record::{
    Allocation, CpuPace, DiskActivity, ErrorCount, HostCpu, LayerCounters, Mapper, PageCache, SampledContent,
    Stop, Tally,
};
use iotax_model::target::{
    CacheMode, DeviceSpec, Discard, FileSpec, FilesystemSpec, FsType, Layer, LayerKind, PathSpec, Stack,
};
use iotax_model::units::Bytes;
use iotax_model::workload::{FileLayout, Rw, SyncMode};
use iotax_model::{Warning, WarningKind};

use iotax_testkit::runs::{HOST, Truth, bench, ladder, run};

const QD1: &str = "randread-4k-qd1";
const WRITES: &str = "randwrite-4k-qd32";
const GIB: u64 = 1 << 30;

fn found(run: &Run) -> Vec<Warning> {
    judge(run).warnings
}

/// A host and a guest that write.
fn writes() -> Run {
    run(&[("host-file", HOST), ("vm-raw", Truth { slowdown: 1.3, ..HOST })], &[WRITES], 3, false)
}

/// Makes the devices receive only a share of the target's writes, and the given bytes after the window, within the given time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a positive figure")]
fn put_off(run: &mut Run, target: &str, share: f64, flush: Option<(u64, f64)>) {
    for m in run.measurements.iter_mut().filter(|m| m.target == target) {
        let bytes = m.outcome.tallies.write.as_ref().expect("it writes").bytes as f64;
        m.outcome.flush_ns = flush.map(|(ns, _)| ns);
        let host = m.host.as_mut().expect("observed");
        host.disks.get_mut("vda").expect("its disk").write_bytes = (bytes * share) as u64;
        let later = flush.map(|(_, share)| DiskActivity {
            write_bytes: (bytes * share) as u64,
            ..DiskActivity::default()
        });
        host.flushed.extend(later.map(|disk| ("vda".into(), disk)));
    }
}

#[test]
fn writes_that_a_cache_took_are_no_measurement_of_the_device() {
    let mut run = writes();
    put_off(&mut run, "vm-raw", 0.1, Some((3_200_000_000, 0.2)));
    let judgement = judge(&run);
    assert_eq!(judgement.warnings.len(), 3, "{:?}", judgement.warnings);
    let warning = &judgement.warnings[0];
    assert_eq!(
        (warning.kind, warning.target.as_deref(), warning.round),
        (WarningKind::CacheLie, Some("vm-raw"), Some(1))
    );
    for words in ["the guest was told", "(10%)", "the flush afterwards took 3.20 s", "another", "host memory"]
    {
        assert!(warning.evidence.contains(words), "{words}: {}", warning.evidence);
    }
    assert!(warning.remedy.contains("dsync"), "{}", warning.remedy);

    // With cache = "unsafe" a flush is not passed on.
    let mut run = writes();
    put_off(&mut run, "vm-raw", 0.1, Some((90_000, 0.0)));
    let said = &found(&run)[0].evidence;
    assert!(said.contains("in which the device got nothing"), "{said}");
    let mut run = writes();
    put_off(&mut run, "host-file", 0.1, None);
    let said = &found(&run)[0].evidence;
    assert!(said.starts_with("the program was told") && !said.contains("flush"), "{said}");
}

#[test]
fn writes_that_reached_the_device_or_were_to_be_cached_are_no_lie() {
    let mut honest = writes();
    put_off(&mut honest, "vm-raw", 1.0, Some((400_000, 0.0)));
    assert_eq!(found(&honest), []);
    let mut buffered = writes();
    buffered.plan.workloads[0].direct = false;
    put_off(&mut buffered, "vm-raw", 0.0, Some((3_000_000_000, 1.0)));
    assert_eq!(found(&buffered), []);
    // Writes that a layer made shorter are not in a cache.
    let mut zeros = writes();
    zeros.plan.workloads[0].zero_buffers = true;
    put_off(&mut zeros, "vm-raw", 0.0, None);
    assert_eq!(found(&zeros), []);
}

#[test]
fn the_arcs_own_counts_tell_what_it_answered() {
    let counted = |hits: f64, misses: f64, prefetched: f64| {
        let mut run = run(&[("zvol", HOST)], &[QD1], 1, false);
        let m = &mut run.measurements[0];
        let ios = m.outcome.tallies.read.as_ref().expect("reads").ios as f64;
        let counts = [
            (LayerCounters::ARC_HITS, hits),
            (LayerCounters::ARC_MISSES, misses),
            (LayerCounters::ARC_PREFETCHED, prefetched),
        ];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a positive figure"
        )]
        let counts = counts.map(|(name, share)| (name.to_owned(), (ios * share) as u64)).into();
        m.counters = vec![LayerCounters { layer: LayerCounters::ARC.into(), counts }];
        found(&run)
    };
    // The disk served as many bytes as were read: ZFS reads whole blocks.
    let [warning] = counted(0.9, 0.05, 0.05).try_into().expect("one");
    let Warning { kind, evidence, remedy, .. } = warning;
    assert_eq!(kind, WarningKind::CacheLie);
    assert!(
        evidence.contains("blocks from its disks (10%): its cache in memory (ARC) answered"),
        "{evidence}"
    );
    assert!(remedy.contains("zfs_arc_max"), "{remedy}");
    for (hits, misses, prefetched) in [(0.3, 0.7, 0.0), (0.9, 0.1, 0.8), (0.0, 0.0, 0.0), (0.01, 0.02, 0.0)] {
        assert_eq!(counted(hits, misses, prefetched), [], "{hits} {misses} {prefetched}");
    }
}

/// A change to a correct run, with its name.
type Change = (&'static str, fn(&mut Run));

/// A change to a correct run, the expected warning, words of its evidence, and whether the measurement becomes unusable.
type Case = (WarningKind, &'static str, bool, fn(&mut Run));

#[test]
fn each_check_sees_its_case_and_grades_it() {
    let cases: [Case; 16] = [
        (WarningKind::BufferedDirect, "900 MiB of the 1.00 GiB looked at", true, |r| {
            let cache = PageCache { looked_at: GIB, before: 0, after: 900 << 20 };
            r.measurements[0].outcome.page_cache = Some(cache);
        }),
        (WarningKind::Clock, "12% of this host's CPU time", false, |r| {
            let cpu = HostCpu { steal_ns: 1_440_000_000, idle_ns: 10_560_000_000, ..HostCpu::default() };
            r.measurements[0].host.as_mut().expect("observed").cpu = Some(cpu);
        }),
        (WarningKind::Throttled, "the rate fell from", false, |r| {
            for sample in &mut r.measurements[0].samples[3..] {
                sample.tallies.read.as_mut().expect("reads").ios /= 4;
            }
        }),
        (
            WarningKind::Throttled,
            "heat slowed CPUs down 7 times in the window; they ran at 3.00 GHz",
            false,
            |r| {
                let pace = CpuPace {
                    first_hz: Some(3_000_000_000),
                    last_hz: Some(1_200_000_000),
                    throttles: Some(7),
                    ..CpuPace::default()
                };
                r.measurements[0].host.as_mut().expect("observed").pace = Some(pace);
            },
        ),
        (WarningKind::Throttled, "the frequency governor was performance when", false, |r| {
            let pace = CpuPace {
                first_governors: vec!["performance".into()],
                last_governors: vec!["powersave".into()],
                ..CpuPace::default()
            };
            r.measurements[0].host.as_mut().expect("observed").pace = Some(pace);
        }),
        (WarningKind::OtherLoad, "vda read", false, |r| {
            let disk =
                r.measurements[0].host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
            disk.read_bytes *= 3;
        }),
        (WarningKind::OtherLoad, "vda wrote 600 MiB in 2400 I/Os, 0 B of them asked for", false, |r| {
            let disk =
                r.measurements[0].host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
            (disk.writes, disk.write_bytes) = (2400, 600 << 20);
        }),
        (WarningKind::OtherLoad, "of CPU time in 6.00 s: 20% of this host's CPUs", false, |r| {
            let own = r.measurements[0].outcome.cpu.total_ns();
            let host = r.measurements[0].host.as_mut().expect("observed");
            (host.programs_ns, host.watching_ns, host.kernel_ns) = (Some(own), Some(0), Some(100_000_000));
            let busy = own + 100_000_000 + 2_400_000_000;
            host.cpu = Some(HostCpu { user_ns: busy, idle_ns: 12_000_000_000 - busy, ..HostCpu::default() });
        }),
        (WarningKind::Incomplete, "60 x EIO", false, |r| failed(r, 60)),
        (WarningKind::Incomplete, "9000000 x EIO", true, |r| failed(r, 9_000_000)),
        (WarningKind::Incomplete, "9000000 (8999940 of them in the warm-up) x EIO", false, |r| {
            failed(r, 9_000_000);
            r.measurements[0].outcome.errors[0].in_ramp = 8_999_940;
        }),
        (WarningKind::Incomplete, "1 x EIO on sync", true, |r| {
            failed(r, 1);
            r.measurements[0].outcome.errors[0].direction = "sync".into();
        }),
        (WarningKind::Incomplete, "was ended after", true, |r| {
            r.measurements[0].outcome.stop = Some(Stop::Stalled);
        }),
        (WarningKind::Incomplete, "no I/O was completed", true, |r| {
            let m = &mut r.measurements[0];
            m.outcome.tallies.read = Some(Tally::default());
            m.samples.clear();
            m.host = None;
        }),
        (WarningKind::CacheLie, "the program read", true, |r| {
            let disk =
                r.measurements[0].host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
            disk.read_bytes /= 20;
        }),
        (WarningKind::Corrupt, "do", true, |r| {
            r.measurements[0].outcome.verify = Some(iotax_testkit::runs::damaged());
        }),
    ];
    for (kind, words, unusable, change) in cases {
        let mut run = bench();
        assert_eq!(judge(&run).grades, [Grade::Clean]);
        change(&mut run);
        let judgement = judge(&run);
        let [warning] = judgement.warnings.as_slice() else { panic!("{words}: {:?}", judgement.warnings) };
        assert_eq!((warning.kind, warning.round), (kind, Some(1)), "{warning:?}");
        assert!(warning.evidence.contains(words), "{words}: {}", warning.evidence);
        assert!(!warning.remedy.is_empty());
        let grade = if unusable { Grade::Unusable } else { Grade::Remarks };
        assert_eq!(judgement.grades, [grade], "{words}");
    }
}

fn failed(run: &mut Run, count: u64) {
    run.measurements[0].outcome.errors = vec![ErrorCount {
        error: "EIO".into(),
        direction: "read".into(),
        count,
        in_ramp: 0,
        first_offset: 0,
        last_offset: None,
    }];
}

#[test]
fn what_is_near_a_case_and_is_none_draws_no_warning() {
    let changes: [Change; 11] = [
        ("threads of the kernel", |r| {
            let own = r.measurements[0].outcome.cpu.total_ns();
            let host = r.measurements[0].host.as_mut().expect("observed");
            (host.programs_ns, host.watching_ns, host.kernel_ns) = (Some(own), Some(0), Some(2_400_000_000));
            let busy = own + 2_400_000_000;
            host.cpu = Some(HostCpu { user_ns: busy, idle_ns: 12_000_000_000 - busy, ..HostCpu::default() });
        }),
        ("a look at the file by someone", |r| {
            let cache = PageCache { looked_at: GIB, before: 0, after: 32 << 10 };
            r.measurements[0].outcome.page_cache = Some(cache);
        }),
        ("pages that could not be dropped", |r| {
            let cache = PageCache { looked_at: GIB, before: 900 << 20, after: 900 << 20 };
            r.measurements[0].outcome.page_cache = Some(cache);
        }),
        ("buffered I/O in the page cache", |r| {
            r.plan.workloads[0].direct = false;
            let cache = PageCache { looked_at: GIB, before: 0, after: GIB };
            r.measurements[0].outcome.page_cache = Some(cache);
        }),
        ("4% of steal", |r| {
            let cpu = HostCpu { steal_ns: 480_000_000, idle_ns: 11_520_000_000, ..HostCpu::default() };
            r.measurements[0].host.as_mut().expect("observed").cpu = Some(cpu);
        }),
        ("a machine that was never hot", |r| {
            let governors = vec!["powersave".to_owned()];
            let pace = CpuPace {
                first_hz: Some(3_000_000_000),
                last_hz: Some(1_200_000_000),
                throttles: Some(0),
                first_governors: governors.clone(),
                last_governors: governors,
            };
            r.measurements[0].host.as_mut().expect("observed").pace = Some(pace);
        }),
        ("a log beside it", |r| {
            let disk =
                r.measurements[0].host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
            (disk.writes, disk.write_bytes) = (300, 10 << 20);
        }),
        ("what is read ahead through the page cache", |r| {
            r.plan.workloads[0].direct = false;
            let disk =
                r.measurements[0].host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
            disk.read_bytes *= 30;
        }),
        ("interrupts", |r| {
            let own = r.measurements[0].outcome.cpu.total_ns();
            let host = r.measurements[0].host.as_mut().expect("observed");
            host.watching_ns = Some(0);
            let (irq_ns, idle_ns) = (3_000_000_000, 9_000_000_000 - own);
            host.cpu = Some(HostCpu { user_ns: own, irq_ns, idle_ns, ..HostCpu::default() });
        }),
        ("CPU time that nobody told apart", |r| {
            let host = r.measurements[0].host.as_mut().expect("observed");
            host.cpu = Some(HostCpu { user_ns: 12_000_000_000, ..HostCpu::default() });
        }),
        ("the host's own clock", |r| r.environment.clocksource = Some("tsc".into())),
    ];
    for (name, change) in changes {
        let mut run = bench();
        change(&mut run);
        assert_eq!(found(&run), [], "{name}");
    }
}

#[test]
fn a_neighbours_bytes_are_not_counted_as_served() {
    // The devices serve the reads of that many such programs.
    let serving = |programs: u64| {
        let mut run = iotax_testkit::runs::observed::crowd();
        for m in run.measurements.iter_mut().filter(|m| m.target == "vm-noisy") {
            let tallies = &m.outcome.tallies;
            m.neighbour.as_mut().expect("beside it").tallies = tallies.clone();
            let host = m.host.as_mut().expect("observed");
            host.disks.values_mut().for_each(|disk| disk.read_bytes = programs * tallies.bytes());
        }
        run
    };
    let lies = |run: &Run| found(run).iter().filter(|w| w.kind == WarningKind::CacheLie).count();
    assert_eq!((lies(&serving(1)), lies(&serving(2))), (5, 0));
    // A neighbour elsewhere or behind a cache may or may not have used this device.
    let mut elsewhere = serving(1);
    elsewhere.plan.neighbours[0].target.stack = PathSpec("/elsewhere".into()).into();
    let mut buffered = serving(1);
    buffered.plan.neighbours[0].workload.direct = false;
    assert_eq!((lies(&elsewhere), lies(&buffered)), (0, 0));
}

#[test]
fn a_window_that_is_over_before_the_host_looks_accuses_no_cache() {
    for (millis, kinds) in [(1, 0), (199, 0), (200, 1)] {
        let mut run = bench();
        let m = &mut run.measurements[0];
        m.outcome.duration_ns = millis * 1_000_000;
        m.host_duration_ns = None;
        m.samples.clear();
        m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").read_bytes = 0;
        let lies = found(&run).iter().filter(|w| w.kind == WarningKind::CacheLie).count();
        assert_eq!(lies, kinds, "{millis} ms");
    }
}

/// A change to a correct ladder, the expected warning about a target, and words of its evidence.
type OfTarget = (WarningKind, &'static str, fn(&mut Run));

fn allocation(written: u64, unwritten: u64, holes: u64) -> Allocation {
    Allocation { written, unwritten, holes, shared: 0, compressed: 0, source: Mapper::Fiemap }
}

/// Moves a target's file to a filesystem of another kind.
fn onto(run: &mut Run, target: usize, name: &str, options: &str) {
    let layers = &mut run.targets[target].layers;
    let index = layers.iter().position(|layer| layer.kind == LayerKind::Filesystem).expect("a filesystem");
    layers[index] = Layer::new(LayerKind::Filesystem, name, options);
}

#[test]
fn what_lies_beneath_and_within_an_area_is_said_of_its_target() {
    let cases: [OfTarget; 10] = [
        (
            WarningKind::Holes,
            "12.0 GiB of 20.0 GiB (60%) have no data behind them: 8.00 GiB of holes, 4.00 GiB",
            |r| {
                r.targets[1].allocation = Some(allocation(8 * GIB, 4 * GIB, 8 * GIB));
            },
        ),
        (WarningKind::Holes, "2.00 GiB of 8.00 GiB (25%) are shared", |r| {
            r.targets[1].allocation = Some(Allocation { shared: 2 * GIB, ..allocation(8 * GIB, 0, 0) });
        }),
        (WarningKind::Compressible, "50% of the 1.00 MiB looked at are zeros", |r| {
            r.targets[1].found = Some(SampledContent { bytes: 1 << 20, zeros: 1 << 19, compressed: 1 << 19 });
        }),
        (WarningKind::Compressible, "compresses to 50% in the 1.00 MiB looked at, and zfs can", |r| {
            onto(r, 1, "zfs", "rw");
            r.targets[1].found = Some(SampledContent { bytes: 1 << 20, zeros: 0, compressed: 1 << 19 });
        }),
        (WarningKind::Compressible, "70% of what it writes is zeros, and zram0 can make use of it", |r| {
            r.plan.workloads[2].buffer_compress_percentage = 70;
            r.targets[1].layers[0] = Layer::new(LayerKind::Device, "zram0", "");
        }),
        (
            WarningKind::Compressible,
            "30% of its writes repeat earlier ones, and its image or file, of which",
            |r| {
                r.plan.workloads[2].dedupe_percentage = 30;
                r.targets[1].allocation = Some(Allocation { compressed: GIB, ..allocation(8 * GIB, 0, 0) });
            },
        ),
        (WarningKind::BufferedDirect, "this is 6.18.5", |r| onto(r, 1, "btrfs", "/srv, rw,relatime")),
        (WarningKind::Clock, "the clocksource is hpet", |r| {
            r.targets[1].guest_clocksource = Some("hpet".into());
        }),
        (WarningKind::Clock, "the clocksource is acpi_pm", |r| {
            r.targets[1].guest_clocksource = Some("acpi_pm".into());
        }),
        (WarningKind::Holes, "later reads there meet holes; the guest's disk passes them on", |r| {
            r.measurements.retain(|m| m.target != "vm-raw" || m.workload != WRITES || m.round == 1);
            let m = r.measurements.iter_mut().find(|m| m.target == "vm-raw" && m.workload == WRITES);
            let m = m.expect("measured");
            m.outcome.tallies.trim = Some(Tally { ios: 10, bytes: 1 << 20, ..Tally::default() });
        }),
    ];
    for (kind, words, change) in cases {
        let mut run = ladder(false);
        change(&mut run);
        let found: Vec<Warning> =
            found(&run).into_iter().filter(|w| w.kind != WarningKind::Incomplete).collect();
        let [warning] = found.as_slice() else { panic!("{words}: {found:?}") };
        assert_eq!((warning.kind, warning.target.as_deref()), (kind, Some("vm-raw")));
        assert!(warning.evidence.contains(words), "{words}: {}", warning.evidence);
    }
}

#[test]
fn a_target_that_is_filled_and_plain_draws_nothing() {
    let changes: [Change; 10] = [
        ("what another job of the plan reads", |r| {
            let mut writer = r.plan.workloads[2].clone();
            (writer.name, writer.rw, writer.layout) = ("log".into(), Rw::Write, FileLayout::Allocated);
            (writer.offset, writer.size) = (Bytes(4 * GIB), Some(Bytes(4 * GIB)));
            r.plan.workloads.iter_mut().for_each(|workload| workload.size = Some(Bytes(4 * GIB)));
            r.plan.workloads[0].beside = vec![writer];
            r.targets[1].allocation = Some(allocation(4 * GIB, 4 * GIB, 0));
        }),
        ("filled", |r| r.targets[1].allocation = Some(allocation(8 * GIB, 0, 0))),
        ("its last cluster", |r| r.targets[1].allocation = Some(allocation(8 * GIB, 0, 64 << 10))),
        ("noise", |r| {
            r.targets[1].found = Some(SampledContent { bytes: 1 << 20, zeros: 0, compressed: 1 << 20 });
        }),
        ("text on a layer that keeps it", |r| {
            r.targets[1].found = Some(SampledContent { bytes: 1 << 20, zeros: 0, compressed: 1 << 18 });
        }),
        ("zeros on a layer that keeps them", |r| r.plan.workloads[2].zero_buffers = true),
        ("btrfs without checksums", |r| onto(r, 1, "btrfs", "/srv, rw,nodatasum")),
        ("btrfs of files that are not copied", |r| {
            onto(r, 1, "btrfs", "/srv, rw");
            let filesystem = FilesystemSpec { kind: FsType::Btrfs, mount_options: None, nodatacow: true };
            let target = &mut r.plan.targets[1];
            target.stack =
                Stack::from(DeviceSpec("/dev/vdb".into())).with(filesystem).with(FileSpec::default());
        }),
        ("btrfs of an older kernel", |r| {
            onto(r, 1, "btrfs", "/srv, rw");
            r.environment.kernel = Some("6.1.0-28-cloud-amd64".into());
        }),
        ("discards that end at the guest's disk", |r| {
            r.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").discard =
                Discard::Ignore;
            let m = r.measurements.iter_mut().find(|m| m.target == "vm-raw").expect("measured");
            m.outcome.tallies.trim = Some(Tally { ios: 0, bytes: 1 << 20, ..Tally::default() });
        }),
    ];
    for (name, change) in changes {
        let mut run = ladder(false);
        change(&mut run);
        assert_eq!(found(&run), [], "{name}");
    }
}

#[test]
fn a_fall_of_all_rates_in_the_middle_of_a_run_is_seen_across_its_cells() {
    let mut run = ladder(false);
    assert_eq!(found(&run), []);
    let half = run.measurements.len() / 2;
    for m in &mut run.measurements[half..] {
        m.outcome.duration_ns *= 3;
        m.host_duration_ns = None;
        m.samples.clear();
        m.host = None;
    }
    let found: Vec<Warning> = found(&run).into_iter().filter(|w| w.target.is_none()).collect();
    let [warning] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(warning.kind, WarningKind::Throttled);
    assert!(warning.evidence.contains("from measurement 31 of 60 on"), "{}", warning.evidence);

    // A cell that never did anything hides nothing.
    let silent = run.measurements[0].target.clone();
    for m in run.measurements.iter_mut().filter(|m| m.target == silent && m.workload == QD1) {
        m.outcome.tallies.read = Some(Tally::default());
    }
    let fallen = |w: &Warning| w.kind == WarningKind::Throttled && w.target.is_none();
    assert_eq!(self::found(&run).into_iter().filter(fallen).count(), 1);
}

#[test]
fn stacks_that_copy_or_put_off_are_not_taken_for_others_load() {
    let changes: [Change; 3] = [
        ("copies on write", |r| onto(r, 1, "bcachefs", "rw")),
        ("a cache that is written back later", |r| {
            r.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").cache =
                CacheMode::Writeback;
        }),
        ("places that are allocated meanwhile", |r| {
            r.targets[1].allocation = Some(Allocation { shared: 1, ..allocation(8 * GIB, 0, 0) });
        }),
    ];
    let mut busy = writes();
    for m in busy.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").write_bytes *= 9;
    }
    let kinds: Vec<WarningKind> = found(&busy).iter().map(|w| w.kind).collect();
    assert_eq!(kinds, [WarningKind::OtherLoad; 3]);
    for (name, change) in changes {
        let mut run = busy.clone();
        change(&mut run);
        assert_eq!(found(&run), [], "{name}");
    }
}

#[test]
fn pages_and_journals_are_not_taken_for_others_load() {
    // 512-byte writes, each safe before the next: a page and a record of the journal for each.
    let mut run = writes();
    for m in &mut run.measurements {
        let tally = m.outcome.tallies.write.as_mut().expect("it writes");
        let disk = m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk");
        (tally.bytes, disk.write_bytes) = (tally.ios * 512, tally.ios * (4096 + (16 << 10)));
    }
    let safe = |run: &mut Run| run.plan.workloads[0].sync = SyncMode::DSync;
    let flushed = |run: &mut Run| {
        for m in &mut run.measurements {
            let ios = m.outcome.tallies.ios();
            m.outcome.tallies.sync = Some(Tally { ios, ..Tally::default() });
        }
    };
    let gathered = |run: &mut Run| {
        run.plan.workloads[0].direct = false;
        run.plan.workloads[0].bs = Bytes(512);
    };
    assert!(found(&run).iter().all(|w| w.kind == WarningKind::OtherLoad));
    assert_eq!(found(&run).len(), run.measurements.len(), "nothing explains it");
    let changes: [Change; 3] =
        [("dsync", safe), ("fdatasync", flushed), ("pages written several times", gathered)];
    for (name, change) in changes {
        let mut run = run.clone();
        change(&mut run);
        assert_eq!(found(&run), [], "{name}");
    }
}

#[test]
fn a_verdict_that_rests_on_an_unusable_measurement_is_withheld_and_says_why() {
    let honest = judge(&ladder(false));
    let mut run = ladder(false);
    let index =
        run.measurements.iter().position(|m| m.target == "vm-raw" && m.workload == QD1 && m.round == 2);
    let m = &mut run.measurements[index.expect("measured")];
    m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").read_bytes = 0;
    let judgement = judge(&run);
    for comparison in judgement.comparisons.iter().chain(&judgement.steps) {
        let rests = comparison.workload == QD1
            && [&comparison.target, &comparison.baseline].contains(&&"vm-raw".to_owned());
        assert_eq!(comparison.ratio.withheld.is_some(), rests, "{comparison:?}");
        if let Some(why) = &comparison.ratio.withheld {
            assert!(why.starts_with("vm-raw, round 2: cache_lie: the guest read"), "{why}");
            assert_eq!(
                (comparison.ratio.verdict, comparison.ratio.needed_rounds),
                (Verdict::Undecided, None)
            );
            assert_eq!((comparison.ratio.interval, comparison.ratio.confidence), (None, None));
            assert!(comparison.ratio.interval_95.is_some(), "the figures are still told");
        }
    }
    // It does not count among those that are decided together.
    let confidence = |judgement: &iotax_analysis::Judgement| {
        let mut all: Vec<f64> = judgement
            .comparisons
            .iter()
            .filter(|c| c.metric == Metric::LATENCY_MEAN)
            .filter_map(|c| c.ratio.confidence)
            .collect();
        all.sort_by(f64::total_cmp);
        (all.len(), all.pop())
    };
    let ((all, most), (fewer, less)) = (confidence(&honest), confidence(&judgement));
    assert_eq!((all, fewer), (9, 8));
    assert!(less < most, "{less:?} {most:?}");
}

#[test]
fn an_area_that_is_known_lets_less_show_that_i_o_was_buffered() {
    let mut run = bench();
    run.plan.workloads[0].size = Some(Bytes(1 << 40));
    let moved = run.measurements[0].outcome.tallies.bytes();
    // Only 0.1% of the area was sampled, so 0.1% of the data is expected there.
    let cache = PageCache { looked_at: GIB, before: 0, after: moved / 1024 };
    run.measurements[0].outcome.page_cache = Some(cache);
    assert_eq!(found(&run).len(), 1);
}
