//! Tests that network paths are compared by their traffic, and that each network check fires only in its own case.

use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Grade, Judgement, Metric, Network};
use iotax_model::Run;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::record::{Probes, Share};
use iotax_model::units::BitRate;
use iotax_model::workload::Kind;
use iotax_model::{CellKey, Warning, WarningKind};

use iotax_testkit::runs::network::{
    LOOPBACK, TestPath, VETH, VIRTIO, alone, ladder, measurement, rtt, run, tcp, udp, workload,
};

pub(crate) fn found(run: &Run) -> Vec<Warning> {
    judge(run).warnings
}

/// The kinds that were found, each once.
pub(crate) fn kinds(run: &Run) -> Vec<WarningKind> {
    let mut kinds: Vec<WarningKind> = found(run).into_iter().map(|warning| warning.kind).collect();
    kinds.dedup();
    kinds
}

pub(crate) fn two(workload: iotax_model::Workload) -> Run {
    run(&[VETH, VIRTIO], &[workload], 3)
}

/// Returns the only finding in a run with one faulty measurement.
pub(crate) fn only(run: &Run, kind: WarningKind) -> Warning {
    let mut all = found(run);
    assert_eq!(all.iter().map(|warning| warning.kind).collect::<Vec<_>>(), [kind], "{all:?}");
    all.remove(0)
}

pub(crate) fn first(run: &mut Run) -> &mut iotax_model::record::Measurement {
    &mut run.measurements[1]
}

/// The packets of datagrams on a target.
pub(crate) fn network<'a>(judgement: &'a Judgement, target: &str) -> &'a Network {
    judgement
        .cell(CellKey { workload: "udp-upload-1470", target })
        .and_then(|cell| cell.network.as_ref())
        .expect("a network's")
}

/// Loses one datagram per `each` received, before or after the server's interface. The interface also counts headers, whose bytes exceed
/// half of the lost ones.
fn lose(m: &mut iotax_model::record::Measurement, each: u64, reached: bool) {
    let flow = &mut m.outcome.carried.as_mut().expect("a network's").flows[0];
    let (bytes, received) = (flow.received_bytes.expect("told"), flow.received_packets.expect("told"));
    let lost = received / each;
    flow.lost = Some(lost);
    let far = m.host.as_mut().expect("observed").nics.get_mut("far0").expect("watched");
    let arrived = if reached { received + lost } else { received };
    (far.rx_packets, far.rx_bytes) = (6 * arrived, bytes / received * arrived + 42 * 6 * arrived);
}

#[test]
fn an_honest_ladder_is_clean_and_disks_checks_are_silent() {
    assert_eq!(found(&ladder()), []);
    assert_eq!(found(&alone()), []);
}

#[test]
fn streams_are_compared_by_what_they_carry_and_round_trips_by_their_time() {
    let judgement = judge(&ladder());
    let of = |workload: &str| -> Vec<Metric> {
        let all = judgement.comparisons.iter();
        all.filter(|c| c.workload == workload && c.target == "veth").map(|c| c.metric).collect()
    };
    assert_eq!(of("tcp-upload"), [Metric::BYTES_PER_S, Metric::CPU_PER_IO, Metric::CPU_PER_GIB]);
    assert_eq!(
        of("udp-upload-1470"),
        [Metric::IOPS, Metric::BYTES_PER_S, Metric::CPU_PER_IO, Metric::CPU_PER_GIB]
    );
    assert_eq!(
        of("tcp-rtt"),
        [
            Metric::LATENCY_MEAN,
            Metric::LATENCY_P50,
            Metric::LATENCY_P90,
            Metric::LATENCY_P99,
            Metric::LATENCY_P99_9,
            Metric::CPU_PER_IO
        ]
    );
    let up = judgement
        .comparison(CellKey { workload: "tcp-upload", target: "vm-virtio" }, Metric::BYTES_PER_S)
        .expect("compared");
    assert!((up.ratio.mean - VIRTIO.rate / LOOPBACK.rate).abs() < 0.02, "{}", up.ratio.mean);
    assert_eq!(up.ratio.verdict, Verdict::Slower, "less is carried");
    let cpu = judgement
        .comparison(CellKey { workload: "tcp-upload", target: "vm-virtio" }, Metric::CPU_PER_GIB)
        .expect("compared");
    assert!((cpu.ratio.mean / (VIRTIO.cpu_ns / LOOPBACK.cpu_ns) - 1.0).abs() < 0.02, "{}", cpu.ratio.mean);
    let given = judgement
        .comparison(CellKey { workload: "udp-upload-1470", target: "veth" }, Metric::BYTES_PER_S)
        .expect("compared");
    assert_eq!(given.ratio.verdict, Verdict::Same, "the bitrate was given");
}

#[test]
fn packets_that_took_another_way_are_no_measurement_of_this_one() {
    let mut run = two(tcp(Direction::Upload));
    let inside = first(&mut run).outcome.inside.as_mut().expect("a guest");
    inside.nics.get_mut("eth0").expect("its card").tx_bytes = 4_000_000;
    let warning = only(&run, WarningKind::Bypassed);
    assert!(warning.evidence.contains("eth0 at the client sent 3.81 MiB"), "{}", warning.evidence);
    let judgement = judge(&run);
    assert_eq!(judgement.grades[1], Grade::Unusable);
    assert!(judgement.comparisons.iter().all(|c| c.ratio.withheld.is_some()), "no verdict rests on it");
    // Nothing follows from an interface that was not observed.
    first(&mut run).outcome.inside.as_mut().expect("a guest").nics.clear();
    assert_eq!(kinds(&run), []);
}

#[test]
fn others_on_the_network_are_seen_beside_a_guest_that_is_alone() {
    let mut run = two(udp());
    let inside = first(&mut run).outcome.inside.as_mut().expect("a guest");
    inside.nics.get_mut("eth0").expect("its card").rx_bytes = 300_000_000;
    let warning = only(&run, WarningKind::OtherLoad);
    assert!(warning.evidence.starts_with("eth0 at the client counted"), "{}", warning.evidence);
}

#[test]
fn a_link_that_was_full_was_measured_and_one_that_was_not_is_not_named() {
    let mut run = two(tcp(Direction::Upload));
    run.targets[0].interfaces[0].speed = Some(32_000_000_000);
    let all = found(&run);
    assert!(all.len() == 3 && all.iter().all(|w| w.kind == WarningKind::LinkBound), "{all:?}");
    assert!(
        all[0].evidence.contains("of the 32.0 Gbit/s of near0 (client) were carried"),
        "{}",
        all[0].evidence
    );
    run.targets[0].interfaces[0].speed = Some(50_000_000_000);
    assert_eq!(kinds(&run), []);
    // An emulated card keeps to no speed.
    run.targets[1].interfaces[0].speed = Some(10_000_000_000);
    assert_eq!(kinds(&run), []);
}

#[test]
fn an_end_that_used_all_of_its_cpu_is_named() {
    let mut run = two(tcp(Direction::Upload));
    let far = first(&mut run).outcome.carried.as_mut().expect("a network's");
    far.server_cpu.as_mut().expect("told").system_ns = 5_900_000_000;
    let warning = only(&run, WarningKind::CpuBound);
    assert!(warning.evidence.contains("the server, which receives, used"), "{}", warning.evidence);
    // Two threads have twice the time.
    let mut run = two(workload(Traffic { parallel: 2, ..Traffic::new(NetTest::Tcp) }));
    let far = first(&mut run).outcome.carried.as_mut().expect("a network's");
    far.server_cpu.as_mut().expect("told").system_ns = 5_900_000_000;
    assert_eq!(kinds(&run), []);
}

#[test]
fn what_tcp_sends_again_is_named_from_one_in_a_thousand_on() {
    let retransmits = |share: f64| {
        let mut run = two(tcp(Direction::Upload));
        let flow = &mut first(&mut run).outcome.carried.as_mut().expect("a network's").flows[0];
        let sent = flow.sent_packets.expect("told") as f64;
        flow.retransmits = Some(iotax_testkit::runs::whole(share * sent));
        run
    };
    assert_eq!(kinds(&retransmits(0.0005)), []);
    let warning = only(&retransmits(0.004), WarningKind::Retransmits);
    assert!(warning.evidence.contains("0.40% of all"), "{}", warning.evidence);
}

#[test]
fn lost_datagrams_are_named_with_the_place_where_the_interface_knows_it() {
    let lossy = |reached: bool| {
        let mut run = two(udp());
        lose(first(&mut run), 4, reached);
        run
    };
    let above = only(&lossy(true), WarningKind::Loss);
    assert!(above.evidence.contains("its sockets' buffers overflowed"), "{}", above.evidence);
    assert!(above.remedy.contains("(window)"), "{}", above.remedy);
    let below = only(&lossy(false), WarningKind::Loss);
    assert!(
        below
            .evidence
            .ends_with("(20.0%) were lost in the upload, before they reached the receiver's interface"),
        "{}",
        below.evidence
    );
    let mut unwatched = lossy(true);
    first(&mut unwatched).host.as_mut().expect("observed").nics.clear();
    let unknown = only(&unwatched, WarningKind::Loss);
    assert!(unknown.evidence.ends_with("were lost in the upload"), "{}", unknown.evidence);
    // A tenth is within what an interface may count otherwise.
    let mut few = two(udp());
    lose(first(&mut few), 10, true);
    let few = only(&few, WarningKind::Loss);
    assert!(few.evidence.ends_with("(9.1%) were lost in the upload"), "{}", few.evidence);
}

#[test]
fn messages_that_never_came_back_are_lost_but_for_the_last() {
    let lost = |lost: u64| {
        let mut run = two(rtt());
        let carried = first(&mut run).outcome.carried.as_mut().expect("a network's");
        let probes = carried.probes.expect("round trips");
        carried.probes = Some(Probes { sent: probes.received + lost, ..probes });
        run
    };
    assert_eq!(kinds(&lost(1)), []);
    let warning = only(&lost(700), WarningKind::Loss);
    assert!(warning.evidence.contains("never came back"), "{}", warning.evidence);
}

#[test]
fn a_bitrate_that_was_not_reached_was_not_sustained() {
    let mut run = two(udp());
    let Kind::Streams(net) = &mut run.plan.workloads[0].kind else { panic!("a network's") };
    net.bitrate = Some(BitRate(250_000_000));
    let all = found(&run);
    assert_eq!(all.len(), 6, "{all:?}");
    assert!(all.iter().all(|w| w.kind == WarningKind::CannotSustain), "{all:?}");
    assert!(
        all[0].evidence.contains("250 Mbit/s were asked for in the upload and 100 Mbit/s sent"),
        "{}",
        all[0].evidence
    );
}

#[test]
fn interfaces_that_cannot_do_the_same_are_named() {
    let mut run = two(tcp(Direction::Upload));
    let offloads = run.targets[1].interfaces[0].offloads.as_mut().expect("read");
    offloads.retain(|name| name != "tx-tcp-segmentation");
    let warning = only(&run, WarningKind::Offloads);
    assert_eq!(
        (warning.target.as_deref(), warning.evidence.as_str()),
        (Some("vm-virtio"), "eth0 at the client lacks tx-tcp-segmentation unlike near0 of veth")
    );
    // Unreadable offloads count as no difference.
    run.targets[1].interfaces[0].offloads = None;
    assert_eq!(kinds(&run), []);
    for record in &mut run.targets {
        record.interfaces[0].offloads = Some(vec!["rx-gro".into(), "tx-generic-segmentation".into()]);
    }
    let all = found(&run);
    assert!(
        all.iter().all(|w| w.evidence.contains("the kernel cuts TCP into packets")
            || w.target.as_deref() == Some("vm-virtio")),
        "{all:?}"
    );
}

#[test]
fn guests_that_share_a_network_are_held_against_one_another_by_bytes() {
    let mut run = two(tcp(Direction::Upload));
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-virtio") {
        let part = |name: &str, bytes: u64, ios: u64| {
            let tally = iotax_model::record::Tally { ios, bytes, ..Default::default() };
            Share {
                name: name.into(),
                duration_ns: m.outcome.duration_ns,
                tallies: iotax_model::record::Tallies { write: Some(tally), ..Default::default() },
            }
        };
        // The same number of packets, three times as long on one target.
        m.shares = vec![part("1", 3_000_000, 1000), part("2", 1_000_000, 1000)];
    }
    let judgement = judge(&run);
    let fairness = judgement
        .cells
        .iter()
        .find_map(|cell| cell.guests.as_ref())
        .expect("two")
        .fairness
        .expect("two guests");
    assert!((fairness.mean - 0.8).abs() < 1e-9, "{fairness:?}");
}

#[test]
fn streams_without_packets_are_measured_all_the_same() {
    let mut run = two(tcp(Direction::Upload));
    for m in &mut run.measurements {
        m.outcome.tallies.write.as_mut().expect("up").ios = 0;
        m.samples.iter_mut().for_each(|s| s.tallies.write.as_mut().expect("up").ios = 0);
    }
    assert_eq!(kinds(&run), []);
    let judgement = judge(&run);
    assert!(
        judgement
            .comparison(CellKey { workload: "tcp-upload", target: "vm-virtio" }, Metric::BYTES_PER_S)
            .is_some()
    );
    assert!(
        judgement
            .comparison(CellKey { workload: "tcp-upload", target: "vm-virtio" }, Metric::CPU_PER_IO)
            .is_none(),
        "unknown is not 0"
    );
    for m in &mut run.measurements {
        m.outcome.tallies.write.as_mut().expect("up").bytes = 0;
    }
    let all = found(&run);
    assert!(all.iter().any(|w| w.evidence.contains("nothing arrived in the window")), "{all:?}");
}

#[test]
fn one_throughput_that_is_unlike_the_others_is_flagged_as_such() {
    let mut run = run(&[LOOPBACK, VETH, VIRTIO], &[tcp(Direction::Upload)], 5);
    let slow = TestPath { rate: 0.6 * VIRTIO.rate, ..VIRTIO };
    let odd = measurement(&run.plan.workloads[0], slow, 3, 4);
    let index = run.measurements.iter().position(|m| m.target == VIRTIO.name && m.round == 3).expect("there");
    run.measurements[index] =
        iotax_model::record::Measurement { order: run.measurements[index].order, ..odd };
    let all = found(&run);
    let warning = all.iter().find(|w| w.kind == WarningKind::Outlier).expect("flagged");
    assert!(warning.evidence.starts_with("the throughput was 5.79 Gbit/s where"), "{}", warning.evidence);
    assert!(warning.evidence.contains("(-39%)"), "{}", warning.evidence);
}

#[test]
fn interfaces_of_one_name_are_told_apart_by_their_place() {
    let mut run = two(udp());
    for record in &mut run.targets {
        record.interfaces.iter_mut().for_each(|interface| interface.name = "veth0".into());
        record.interfaces.retain(|interface| interface.position != "host");
    }
    for m in run.measurements.iter_mut().filter(|m| m.target == "veth") {
        let nics = &mut m.host.as_mut().expect("observed").nics;
        let [far, near] = ["far0", "near0"].map(|name| nics.remove(name).expect("watched"));
        *nics = [("client/veth0".to_owned(), near), ("server/veth0".to_owned(), far)].into();
    }
    let judgement = judge(&run);
    let hops = &network(&judgement, "veth").hops;
    let positions: Vec<_> = hops.iter().map(|hop| (hop.position.as_deref(), hop.name.as_str())).collect();
    assert_eq!(positions, [(Some("client"), "veth0"), (Some("server"), "veth0")]);
    assert!(hops[0].activity.tx_bytes > 0 && hops[0].activity.rx_bytes == 0, "{hops:?}");
    // Interfaces of the same name without a position are ambiguous.
    for m in run.measurements.iter_mut().filter(|m| m.target == "veth") {
        let nics = &mut m.host.as_mut().expect("observed").nics;
        let near = nics.remove("client/veth0").expect("watched");
        *nics = [("veth0".to_owned(), near)].into();
    }
    assert_eq!(kinds(&run), []);
    assert_eq!(network(&judge(&run), "veth").hops, []);
}
