//! Comparisons, checks and sentences that apply only to paths that are alike: several interfaces, remote servers, neighbours.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_model::WarningKind;
use iotax_model::net::Direction;
use iotax_model::record::NicActivity;
use iotax_model::target::{NetPath, NetworkSpec};

use crate::network::{first, found, kinds, network, only, two};
use iotax_testkit::runs::network::{LOOPBACK, VETH, run, tcp, udp};

#[test]
fn of_several_interfaces_of_one_place_nobody_knows_which_it_was() {
    let less = |run: &mut Run| {
        let nics = &mut first(run).host.as_mut().expect("observed").nics;
        nics.get_mut("far0").expect("watched").rx_bytes = 4_000_000;
    };
    let mut run = run(&[LOOPBACK, VETH], &[tcp(Direction::Upload)], 3);
    run.plan.targets[1].stack =
        NetworkSpec { peer: Some("ssh://box".into()), ..NetworkSpec::new(NetPath::Remote) }.into();
    less(&mut run);
    assert!(kinds(&run).contains(&WarningKind::Bypassed), "one alone");
    let other = |name: &str, driver: &str| {
        let far = run.targets[1].interfaces[1].clone();
        iotax_model::record::Interface { name: name.into(), driver: Some(driver.into()), ..far }
    };
    // Another interface of the server does not matter, observed or not, nor does a bridge of other guests.
    let (docker, wlan) = (other("docker0", "bridge"), other("wlan0", "iwlwifi"));
    for another in [docker, wlan] {
        let mut run = run.clone();
        run.targets[1].interfaces[1].speed = Some(32_000_000_000);
        let name = format!("server/{}", another.name);
        run.targets[1].interfaces.push(another);
        assert_eq!(kinds(&run), []);
        first(&mut run).host.as_mut().expect("observed").nics.insert(name, NicActivity::default());
        assert_eq!(kinds(&run), []);
    }
}

#[test]
fn of_a_bridge_and_its_ports_the_bridge_is_the_server() {
    let mut run = two(udp());
    let mut bridge = run.targets[1].interfaces[2].clone();
    (bridge.name, bridge.driver) = ("br0".into(), Some("bridge".into()));
    run.targets[1].interfaces[2] = bridge;
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-virtio") {
        let nics = &mut m.host.as_mut().expect("observed").nics;
        let [tap, far] = ["tap0", "far0"].map(|name| nics.remove(name).expect("watched"));
        let foreign = NicActivity::default();
        *nics = [("host/tap0".into(), tap), ("server/br0".into(), far), ("eth7".into(), foreign)].into();
        m.outcome.inside.as_mut().expect("a guest").nics.insert("lo".into(), foreign);
    }
    let judgement = judge(&run);
    let hops = &network(&judgement, "vm-virtio").hops;
    let positions: Vec<_> = hops.iter().map(|hop| (hop.position.as_deref(), hop.name.as_str())).collect();
    assert_eq!(positions, [(Some("client"), "eth0"), (Some("host"), "tap0"), (Some("server"), "br0")]);
    assert_eq!(judgement.warnings, []);
    let nics = &mut first(&mut run).host.as_mut().expect("observed").nics;
    nics.get_mut("server/br0").expect("watched").rx_bytes = 4_000_000;
    let warning = only(&run, WarningKind::Bypassed);
    assert!(warning.evidence.contains("br0 at the server received"), "{}", warning.evidence);
}

#[test]
fn several_guests_have_as_many_threads_and_bitrates() {
    let busy = |count: u32| {
        let mut run = two(tcp(Direction::Upload));
        run.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").count =
            count;
        let far = first(&mut run).outcome.carried.as_mut().expect("a network's");
        far.server_cpu.as_mut().expect("told").system_ns = 5_900_000_000;
        kinds(&run)
    };
    assert_eq!((busy(1), busy(2)), (vec![WarningKind::CpuBound], vec![]));
    let mut run = two(udp());
    run.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").count = 2;
    let all = found(&run);
    assert!(all.len() == 3 && all.iter().all(|w| w.kind == WarningKind::CannotSustain), "{all:?}");
    assert!(
        all[0].evidence.contains("200 Mbit/s were asked for in the upload and 100 Mbit/s sent"),
        "{all:?}"
    );
}
