use std::collections::BTreeMap;

use super::*;
use iotax_model::record::{BlockStats, BlockTally, HostActivity, Outcome, Share, Tallies, Tally};
use iotax_model::target::{Layer, LayerKind, Stack};
use iotax_model::workload::WorkloadKeys;

fn workload(keys: &[(&str, &str)]) -> Workload {
    let mut own = WorkloadKeys::default();
    own.set("rw", "write").expect("known");
    keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
    own.complete(&WorkloadKeys::default())
}

fn flushed(done: u64) -> DiskFlushes {
    DiskFlushes { done, volatile_cache: Some(true), fua: Some(false), ..DiskFlushes::default() }
}

fn on(disks: &[(&str, Option<DiskFlushes>)]) -> HostActivity {
    let disk = |flushes| DiskActivity { flushes, ..DiskActivity::default() };
    let disks: BTreeMap<String, DiskActivity> =
        disks.iter().map(|(name, flushes)| ((*name).to_owned(), disk(*flushes))).collect();
    HostActivity { disks, ..HostActivity::default() }
}

/// Returns one round with this many writes and flushes of the program.
fn round(writes: u64, syncs: u64, host: HostActivity) -> Measurement {
    let tally = |ios| Some(Tally { ios, ..Tally::default() });
    let tallies = Tallies { write: tally(writes), sync: tally(syncs), ..Tallies::default() };
    Measurement {
        outcome: Outcome { tallies, ..Outcome::default() },
        host: Some(host),
        ..Measurement::default()
    }
}

/// Returns the record of a file on a loop device on a disk.
fn record() -> TargetRecord {
    let layer = |kind, name: &str| Layer::new(kind, name, "");
    let layers = vec![layer(LayerKind::Device, "vda"), layer(LayerKind::Loop, "loop0")];
    TargetRecord { name: "t".into(), layers, ..TargetRecord::default() }
}

fn spec(line: &str) -> TargetSpec {
    TargetSpec::new("t", Stack::parse(line).expect(line))
}

fn account(workload: &Workload, line: &str, rounds: &[Measurement]) -> Option<FlushAccount> {
    FlushAccount::of(workload, &spec(line), Some(&record()), &rounds.iter().collect::<Vec<_>>())
}

const FILE: &str = "raw file > loop";

#[test]
fn flushes_are_followed_from_the_program_to_the_device() {
    let fdatasync = workload(&[("fdatasync", "1")]);
    let two = [
        round(600, 600, on(&[("loop0", Some(flushed(600))), ("vda", Some(flushed(610)))])),
        round(400, 400, on(&[("loop0", Some(flushed(400))), ("vda", Some(flushed(400)))])),
    ];
    let found = account(&fdatasync, FILE, &two).expect("asked");
    let counts: Vec<_> = found.levels.iter().map(|level| (level.name.as_str(), level.flushes)).collect();
    assert_eq!(counts, [("loop0", FlushCount::Counted(1000)), ("vda", FlushCount::Counted(1010))]);
    assert_eq!((found.asked, found.fate), (1000, FlushFate::Kept(1010)));
    // Every write that is durable by itself counts as requested.
    let dsync = account(&workload(&[("sync", "dsync")]), FILE, &two).expect("asked");
    assert_eq!(dsync.asked, 1000);
    // sync_file_range and plain writes request no flushes.
    for keys in [&[("sync_file_range", "write:1")][..], &[]] {
        assert_eq!(account(&workload(keys), FILE, &two), None, "{keys:?}");
    }
}

#[test]
fn who_swallows_them_is_told_by_counts_of_zero_or_by_a_setting() {
    let fdatasync = workload(&[("fdatasync", "1")]);
    let fate = |line: &str, vda: Option<DiskFlushes>| {
        let rounds = [round(5, 5, on(&[("loop0", Some(flushed(5))), ("vda", vda)]))];
        account(&fdatasync, line, &rounds).expect("asked").fate
    };
    let swallowed = |by: &str, evidence| FlushFate::Swallowed { by: by.into(), evidence };
    let none_below = SwallowEvidence::NoneBelow;
    assert_eq!(fate(FILE, Some(flushed(0))), swallowed("a layer between loop0 and vda", none_below));
    let without_barriers = "raw file > loop > ext4 mount_options=noatime,nobarrier > raw file";
    assert_eq!(fate(without_barriers, Some(flushed(0))), swallowed("ext4 (nobarrier)", none_below));
    assert_eq!(fate(without_barriers, Some(flushed(9))), FlushFate::Kept(9));
    let ignoring = "raw file > virtio cache=unsafe";
    assert_eq!(fate(ignoring, Some(flushed(0))), swallowed("QEMU (cache=unsafe)", none_below));
    // Flushes by other programs do not clear the layer.
    assert_eq!(fate(ignoring, Some(flushed(9))), swallowed("QEMU (cache=unsafe)", SwallowEvidence::Setting));
    assert_eq!(fate("raw file > virtio cache=writeback", Some(flushed(9))), FlushFate::Kept(9));
    let setting = SwallowEvidence::Setting;
    let asynchronous = "/srv > nfs share sync=false > raw file";
    assert_eq!(fate(asynchronous, Some(flushed(9))), swallowed("the NFS server (sync=false)", setting));
    let smb = asynchronous.replace("nfs", "smb");
    assert_eq!(fate(&smb, Some(flushed(9))), swallowed("the SMB server (sync=false)", setting));
    let zfs = "/srv > raw file > loop direct_io=true > zvol sync=disabled";
    assert_eq!(fate(zfs, Some(flushed(9))), swallowed("ZFS (sync=disabled)", setting));
    assert_eq!(fate("/srv > nfs share > raw file", Some(flushed(9))), FlushFate::Kept(9));
}

#[test]
fn what_the_kernel_does_not_count_is_no_zero() {
    let fate = |keys: &[(&str, &str)], vda: Option<DiskFlushes>| {
        let rounds = [round(5, 5, on(&[("vda", vda)]))];
        account(&workload(keys), FILE, &rounds).expect("asked").fate
    };
    let fdatasync = &[("fdatasync", "1")][..];
    let through = DiskFlushes { volatile_cache: Some(false), ..flushed(0) };
    assert_eq!(fate(fdatasync, Some(through)), FlushFate::NotNeeded { device: "vda".into() });
    let fua = DiskFlushes { fua: Some(true), ..flushed(0) };
    let FlushFate::NotCountable { reason } = fate(&[("sync", "dsync")], Some(fua)) else {
        panic!("countable")
    };
    assert!(reason.contains("(FUA)"), "{reason}");
    let with_fua = |fua_writes| DiskFlushes { fua_writes: Some(fua_writes), ..fua };
    assert_eq!(fate(&[("sync", "dsync")], Some(with_fua(5))), FlushFate::Kept(5));
    assert!(matches!(fate(&[("sync", "dsync")], Some(with_fua(0))), FlushFate::Swallowed { .. }));
    // A requested flush is not a FUA write.
    assert!(matches!(fate(fdatasync, Some(with_fua(5))), FlushFate::Swallowed { .. }));
    assert!(matches!(fate(fdatasync, Some(fua)), FlushFate::Swallowed { .. }));
    let FlushFate::NotCountable { reason } = fate(fdatasync, None) else { panic!("countable") };
    assert_eq!(reason, "no flushes of vda are counted");
    let nothing =
        account(&workload(fdatasync), FILE, &[round(5, 5, HostActivity::default())]).expect("asked");
    assert!(matches!(nothing.fate, FlushFate::NotCountable { .. }));
}

#[test]
fn a_guest_and_its_qemu_have_counts_of_their_own() {
    let mut m = round(1000, 1000, on(&[("vda", Some(flushed(0)))]));
    m.outcome.inside = Some(on(&[("vdb", Some(flushed(1000)))]));
    let flush = BlockTally { ios: 1000, ..BlockTally::default() };
    m.qemu = Some(BlockStats { flush, ..BlockStats::default() });
    let fsync = workload(&[("fsync", "1")]);
    let of = |line: &str, m: &Measurement| account(&fsync, line, std::slice::from_ref(m)).expect("asked");
    let ignoring = of("raw file > virtio-blk cache=unsafe > guest", &m);
    let names: Vec<&str> = ignoring.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["vdb in the guest", "QEMU", "vda"]);
    let evidence = SwallowEvidence::NoneBelow;
    assert_eq!(ignoring.fate, FlushFate::Swallowed { by: "QEMU (cache=unsafe)".into(), evidence });
    // The guest's kernel sends no flushes to a disk without a volatile cache.
    let through = DiskFlushes { volatile_cache: Some(false), ..flushed(0) };
    m.outcome.inside = Some(on(&[("vdb", Some(through))]));
    m.qemu = Some(BlockStats::default());
    m.host = Some(on(&[("vda", Some(flushed(1003)))]));
    let found = of("raw file > virtio-blk cache=writethrough > guest", &m);
    assert_eq!(found.levels[0].flushes, FlushCount::NoVolatileCache);
    assert_eq!(found.fate, FlushFate::Kept(1003));
}

#[test]
fn a_volatile_directory_that_drops_flushes_is_told_with_its_own_count() {
    let fdatasync = workload(&[("fdatasync", "1")]);
    let layer = |kind, name: &str| Layer::new(kind, name, "");
    let layers = vec![
        layer(LayerKind::Device, "vda"),
        layer(LayerKind::Filesystem, "volatile"),
        layer(LayerKind::Loop, "loop0"),
    ];
    let record = TargetRecord { layers, ..record() };
    let account = |line: &str, seen: [(u64, u64); 2]| {
        let rounds = seen.map(|(done, dropped)| {
            let counts = on(&[("loop0", Some(flushed(done))), ("vda", Some(flushed(done - dropped)))]);
            let own = [(LayerCounters::FLUSHES, done), (LayerCounters::DROPPED_FLUSHES, dropped)];
            let own = own.map(|(name, count)| (name.to_owned(), count)).into();
            let counters = vec![LayerCounters { layer: VolatileSpec::NAME.into(), counts: own }];
            Measurement { counters, ..round(done, done, counts) }
        });
        let rounds: Vec<_> = rounds.iter().collect();
        FlushAccount::of(&fdatasync, &spec(line), Some(&record), &rounds).expect("asked")
    };
    let line = "/srv > volatile drop_flush=3 > raw file > loop";
    let mut found = account(line, [(600, 200), (400, 133)]);
    let names: Vec<&str> = found.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["loop0", "volatile", "vda"]);
    assert_eq!(found.levels[1].flushes, FlushCount::Dropping { done: 1000, dropped: 333 });
    let by = "volatile (drop_flush=3)".to_owned();
    let evidence = SwallowEvidence::OwnCount { done: 1000, dropped: 333 };
    assert_eq!(found.fate, FlushFate::Swallowed { by: by.clone(), evidence });
    // Another method on the same target.
    let other = account(line, [(3, 1), (6, 2)]);
    assert!(found.ends_as(&other));
    found.add(&other);
    let evidence = SwallowEvidence::OwnCount { done: 1009, dropped: 336 };
    assert_eq!(found.fate, FlushFate::Swallowed { by, evidence });
    // A layer that drops no flushes passes them all on.
    let kept = account("/srv > volatile > raw file > loop", [(600, 0), (400, 0)]);
    assert_eq!((kept.levels[1].flushes, kept.fate), (FlushCount::Counted(1000), FlushFate::Kept(1000)));
}

#[test]
fn flushes_are_counted_for_each_transaction_of_a_database() {
    let sqlite = workload(&[("rw", "randread"), ("test", "sqlite")]);
    let slow = |done| DiskFlushes { wait_ns: done * 410_000, ..flushed(done) };
    let round = |transactions, disks: &[(&str, Option<DiskFlushes>)]| {
        let meta = Some(Tally { ios: transactions, ..Tally::default() });
        let outcome = Outcome { tallies: Tallies { meta, ..Tallies::default() }, ..Outcome::default() };
        Measurement { outcome, host: Some(on(disks)), ..Measurement::default() }
    };
    let rounds = [
        round(100, &[("loop0", Some(flushed(0))), ("vda", Some(slow(150)))]),
        round(300, &[("loop0", Some(flushed(0))), ("vda", Some(slow(350)))]),
    ];
    let each = |workload: &Workload, rounds: &[&Measurement]| {
        FlushesPerTransaction::of(workload, Some(&record()), rounds)
    };
    let both: Vec<&Measurement> = rounds.iter().collect();
    let vda =
        FlushesPerTransaction { layer: "vda".into(), flushes: 1.25, wait_ns: Some(410_000.0), adds_ns: None };
    assert_eq!(each(&sqlite, &both), [vda], "a layer without flushes is left out");
    assert_eq!(each(&workload(&[("fdatasync", "1")]), &both), [], "its flushes are known");
    let share = Share { name: "other".into(), duration_ns: 1, tallies: Tallies::default() };
    let beside = Measurement { neighbour: Some(share), ..rounds[0].clone() };
    assert_eq!(each(&sqlite, &[&beside]), [], "some are the neighbour's");
    assert_eq!(each(&sqlite, &[&round(0, &[("vda", Some(slow(3)))])]), [], "of no transaction");
}

#[test]
fn a_layer_adds_what_the_next_one_below_does_not_take() {
    let sqlite = workload(&[("rw", "randread"), ("test", "sqlite")]);
    let slow = |done, wait_ns| Some(DiskFlushes { wait_ns, ..flushed(done) });
    let adds = |disks: &[(&str, Option<DiskFlushes>)], record: &TargetRecord| {
        let meta = Some(Tally { ios: 100, ..Tally::default() });
        let outcome = Outcome { tallies: Tallies { meta, ..Tallies::default() }, ..Outcome::default() };
        let round = Measurement { outcome, host: Some(on(disks)), ..Measurement::default() };
        let each = FlushesPerTransaction::of(&sqlite, Some(record), &[&round]);
        each.into_iter().map(|of| of.adds_ns).collect::<Vec<_>>()
    };
    // 150 flushes of 2.4 ms over 200 flushes of 0.3 ms, by 100 transactions.
    let loop0 = ("loop0", slow(150, 150 * 2_400_000));
    assert_eq!(adds(&[loop0, ("vda", slow(200, 200 * 300_000))], &record()), [Some(3_000_000.0), None]);
    let busy = ("vda", slow(3000, 3000 * 300_000));
    assert_eq!(adds(&[loop0, busy], &record()), [None, None], "others flush the disk too");
    assert_eq!(adds(&[loop0, ("vda", slow(200, 0))], &record()), [None, None], "its time is not known");
    let mut mirrored = record();
    mirrored.layers.insert(0, Layer::new(LayerKind::Device, "vdb", ""));
    let both = [loop0, ("vda", slow(200, 60_000_000)), ("vdb", slow(200, 60_000_000))];
    assert_eq!(adds(&both, &mirrored), [None, None], "two disks flush at the same time");
}
