//! Comparisons, checks and sentences that apply only to paths that are alike: several interfaces, remote servers, neighbours.

use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, Question, Side, Which, compare};
use iotax_analysis::judge;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::plan::Neighbour;
use iotax_model::record::Share;
use iotax_model::target::NetPath;
use iotax_model::workload::Kind;
use iotax_model::{CellKey, Run};
use iotax_report::{document, html};

use crate::conclusions::sentences;
use crate::network::{shown, two};
use iotax_testkit::runs::network::{LOOPBACK, VETH, VIRTIO, rtt, run, tcp, udp, workload};

#[test]
fn the_hosts_cpu_is_not_compared_where_it_does_not_do_the_same() {
    let alike = run(&[LOOPBACK, VETH, VIRTIO], &[tcp(Direction::Upload), rtt()], 3);
    let compares = |run: &Run, target: &str| {
        let judgement = judge(run);
        let said = sentences(run).iter().any(|said| said.contains(target) && said.contains("host CPU"));
        let all = judgement.comparisons.iter().chain(&judgement.steps).filter(|c| c.target == target);
        (all.filter(|c| c.metric.is_cpu()).count(), said)
    };
    assert_eq!(compares(&alike, "vm-virtio"), (6, true));
    let mut remote = alike.clone();
    remote.plan.targets[2].stack.find_mut::<iotax_model::target::NetworkSpec>().expect("a network").via =
        NetPath::Remote;
    assert_eq!(compares(&remote, "vm-virtio"), (0, false));
    let mut beside = alike.clone();
    beside.plan.targets[2].neighbour = Some("host".into());
    assert_eq!(compares(&beside, "vm-virtio"), (0, false));
    assert_eq!(compares(&beside, "veth").0, 6, "the others are");
    assert!(
        judge(&beside)
            .comparison(CellKey { workload: "tcp-upload", target: "vm-virtio" }, Metric::BYTES_PER_S)
            .is_some()
    );
    let account = |run: &Run| Account::of(run, &judge(run));
    let cpus = |one: &Account, other: &Account| {
        let question =
            Question { baseline: Which::A, metrics: document::SHOWN.to_vec(), margin: 0.02, gates: vec![] };
        let (a, b) = (Side { account: one, target: None }, Side { account: other, target: None });
        let compared = compare(&a, &b, &question).expect("they have all in common");
        assert_eq!(compared.missing, []);
        compared.cells.iter().filter(|c| c.target == 2 && c.metric.is_cpu()).count()
    };
    let (mut again, mut beside) = (alike.clone(), beside);
    (again.id, beside.id) = (alike.id + 1, alike.id + 1);
    assert_eq!(cpus(&account(&alike), &account(&again)), 2, "per GiB of streams and per round trip");
    assert_eq!(cpus(&account(&alike), &account(&beside)), 0);
}

#[test]
fn packets_are_compared_only_where_they_are_as_long() {
    let compared = |run: &Run, workload: &str, metric| {
        judge(run).comparison(CellKey { workload, target: "vm-virtio" }, metric).is_some()
    };
    let mut run = run(&[VETH, VIRTIO], &[tcp(Direction::Upload), udp()], 3);
    assert!(compared(&run, "tcp-upload", Metric::CPU_PER_IO));
    let mss = |run: &mut Run, mss| first_of_virtio(run).outcome.carried.as_mut().expect("told").mss = mss;
    mss(&mut run, Some(1460));
    assert!(compared(&run, "tcp-upload", Metric::CPU_PER_IO), "a hair");
    for other in [Some(8948), None] {
        mss(&mut run, other);
        assert!(!compared(&run, "tcp-upload", Metric::CPU_PER_IO), "{other:?}");
    }
    assert!(compared(&run, "tcp-upload", Metric::CPU_PER_GIB));
    for metric in [Metric::IOPS, Metric::CPU_PER_IO] {
        assert!(compared(&run, "udp-upload-1470", metric));
    }
    let Kind::Streams(net) = &mut run.plan.workloads[1].kind else { panic!("a network's") };
    net.length = None;
    for metric in [Metric::IOPS, Metric::CPU_PER_IO] {
        assert!(!compared(&run, "udp-upload-1470", metric), "{metric:?}");
    }
    assert!(compared(&run, "udp-upload-1470", Metric::BYTES_PER_S));
    assert!(shown(&run).contains("packets/s"), "it is shown all the same");
}

fn first_of_virtio(run: &mut Run) -> &mut iotax_model::record::Measurement {
    let found = run.measurements.iter_mut().find(|m| m.target == "vm-virtio");
    found.expect("measured")
}

#[test]
fn a_neighbour_is_told_in_the_units_of_its_own_work() {
    let mut run = two(udp());
    let beside = |test| Neighbour {
        target: iotax_model::TargetSpec {
            name: "host".into(),
            ..iotax_testkit::runs::network::target("veth")
        },
        workload: workload(Traffic::new(test)),
    };
    run.plan.targets[1].neighbour = Some("host".into());
    run.plan.neighbours = vec![beside(NetTest::Tcp)];
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-virtio") {
        let mut tallies = m.outcome.tallies.clone();
        let tally = tallies.write.as_mut().expect("up");
        (tally.ios, tally.bytes) = (7 * tally.ios, 3 * tally.bytes);
        m.neighbour = Some(Share { name: "host".into(), duration_ns: m.outcome.duration_ns, tallies });
    }
    let judgement = judge(&run);
    let noises: Vec<_> = judgement.cells.iter().filter_map(|cell| cell.neighbour.as_ref()).collect();
    let together = noises[0].together.expect("streams beside streams");
    assert!((together.share - 0.75).abs() < 1e-6 && (together.bytes_per_s / 50e6 - 1.0).abs() < 0.01);
    // (1 + 3)^2 / (2 * (1 + 9))
    assert!((together.fairness.expect("two").mean - 0.8).abs() < 1e-6, "{together:?}");
    let words =
        "host made 300 Mbit/s; together 400 Mbit/s, of which vm-virtio had 25% and host 75%, fairness 0.800";
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined(&shown(&run)).contains(&format!("beside vm-virtio, {words}")), "{}", shown(&run));
    let page = html::render(&run, &judge(&run));
    assert!(page.contains("together 400 Mbit/s, of which vm-virtio had 25%"));
    // Round trips are not divided among neighbours.
    run.plan.neighbours = vec![beside(NetTest::TcpRtt)];
    let judgement = judge(&run);
    assert!(
        judgement
            .cells
            .iter()
            .filter_map(|cell| cell.neighbour.as_ref())
            .all(|noise| noise.together.is_none())
    );
    assert!(joined(&shown(&run)).contains("trips/s, 300 Mbit/s"), "{}", shown(&run));
}
