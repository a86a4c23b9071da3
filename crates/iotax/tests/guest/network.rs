//! Tests of guests without a disk, with a network card on a bridge or on a user-mode network stack.

use std::fs;
use std::path::Path;
use std::time::Instant;

use iotax_model::net::{NetTest, Peer, Traffic};
use iotax_model::target::{
    Accel, GuestSpec, LocalPath, MachineType, NetPath, NetworkSpec, Nic, PlannedDevice,
};
use iotax_model::units::Nanos;
use iotax_model::wire::Job;
use iotax_model::workload::{Rw, WorkloadKeys};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::guest::{Guest, GuestConfig, GuestDevice, accel, modules};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::monitor::{self, Monitor};
use iotax_testbed::undo::UndoLog;
use iotax_testbed::{netns, network};
use iotax_testkit::{require, skip};

use crate::rig::{BOOT, Rig, job, kernel_with};

/// A guest's network; dropping it removes it.
struct Ground {
    undo_log: UndoLog,
    network_path: network::BuiltNetwork,
}

impl Ground {
    /// Returns `None` and prints the reason if this machine does not support it.
    fn lay(dir: &Path, name: &str, spec: &NetworkSpec, guest: &GuestSpec) -> Option<Self> {
        require!(program "ip");
        if let Err(reason) = network::check(spec) {
            skip!("{reason}");
        }
        let tag = format!("test-{}-{name}", std::process::id());
        let mut undo_log = UndoLog::create(&dir.join("undo log"), &tag).expect("an undo log");
        let path = match spec.via {
            NetPath::Bridge => LocalPath::Bridge(guest),
            NetPath::User => LocalPath::User(guest),
            NetPath::Passt => LocalPath::Passt(guest),
            other => panic!("{other} has no guest"),
        };
        let network_path = network::build(spec, path, &tag, &mut undo_log).expect("built");
        Some(Self { undo_log, network_path })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let (_, failed) = self.undo_log.undo_all();
        assert!(failed.is_empty() || std::thread::panicking(), "{failed:?}");
    }
}

/// Boots a guest and asserts the driver and number of queues of its card. `reach` sends packets through it.
fn lives(name: &str, network: &NetworkSpec, spec: &GuestSpec, driver: &str, reach: impl Fn(&Ground)) {
    require!(guests);
    require!(kernel driver);
    let kernel = kernel_with(&modules::needed(spec, PlannedDevice::Card(network)));
    if let Err(reason) = accel::parameters(spec, Accel::Tcg, Path::new("/")) {
        skip!("{reason}");
    }
    let rig = Rig::build_on(spec, PlannedDevice::Card(network), &kernel);
    let Some(ground) = Ground::lay(rig.dir.path(), name, network, spec) else { return };
    let nic = ground.network_path.nic.clone().expect("a guest has one");
    let queues = nic.queues;
    let config = GuestConfig { device: GuestDevice::Nic(nic), spec: spec.clone(), ..rig.config(name) };
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let hello = guest.wait_ready(BOOT).unwrap_or_else(|error| {
        let console = fs::read_to_string(config.run_dir.join("console.log"));
        panic!("{error}; its console: {console:?}");
    });
    println!("{name}: {:.2} s from the start", guest.boot_ns().expect("known") as f64 / 1e9);
    assert_eq!((hello.disk, hello.filesystem), (None, None));
    let interfaces = guest.agent().interfaces().expect("told");
    let found = interfaces.iter().find(|interface| interface.name != "lo").expect("a card");
    assert_eq!(found.driver.as_deref(), Some(driver));
    assert_eq!(found.queues, Some((queues, queues)));
    assert_eq!(found.mtu, Some(network.mtu.unwrap_or(1500)));
    let offloads = found.offloads.as_ref().expect("every kernel of a guest tells");
    assert!(offloads.iter().any(|name| name == "rx-gro"), "{offloads:?}");
    reach(&ground);
    carries(&ground, &mut guest);
    guest.shutdown();
    let console = fs::read_to_string(config.run_dir.join("console.log")).expect("a console");
    assert!(!console.contains("iotax init:"), "{console}");
}

/// Sends bytes from the guest to an agent at the server, and asserts that both ends count them.
fn carries(ground: &Ground, guest: &mut Guest) {
    let namespace = ground.network_path.server.namespace.as_deref();
    let iotax = Path::new(env!("CARGO_BIN_EXE_iotax"));
    let mut server = AgentClient::spawn_in(namespace, iotax, &Interrupt::default()).expect("an agent");
    server.hello(BOOT).expect("it answers");
    let there = server.interfaces().expect("told");
    assert!(there.iter().all(|interface| interface.name != "eth0"), "the host's: {there:?}");
    let port = server.serve(&ground.network_path.listen.to_string(), None).expect("it listens");
    let (runtime, net) = (Some(Nanos::from_millis(500)), Some(Traffic::new(NetTest::Tcp)));
    let keys = WorkloadKeys { net, runtime, ..WorkloadKeys::default() };
    let peer = Some(Peer::at(ground.network_path.server.address.to_string(), port));
    let job = Job { workload: keys.complete(&WorkloadKeys::default()), peer, ..job(Rw::Read) };
    let mut monitor =
        Monitor::new(Path::new("/"), Vec::new(), Vec::new()).with_network(Path::new("/"), server.pid());
    let before = monitor.snapshot();
    let done = guest.agent().run(&job, BOOT, &mut |_| {}).expect("done");
    let outside = monitor::delta(&before, &monitor.snapshot(), Instant::now()).nics;
    let arrived = done.tallies.write.as_ref().expect("it sends").bytes;
    let sent = done.inside.expect("looked at").nics["eth0"].tx_bytes;
    let passed = outside.values().map(|nic| nic.rx_bytes).max();
    println!("{arrived} bytes arrived, the card sent {sent}, {passed:?} passed outside");
    assert!(arrived > 0 && passed.is_some_and(|passed| passed >= arrived), "{outside:?}");
    // An emulated guest looks at its card late, so its window is shorter.
    assert!(sent > arrived / 10, "{sent} of {arrived}");
}

/// Pings the guest from the server's namespace.
fn pinged(ground: &Ground) {
    require!(program "busybox");
    let mut ping = netns::command_in(
        ground.network_path.server.namespace.as_deref(),
        &iotax_testkit::program("busybox"),
    );
    // As large as the path takes it in one packet: an MTU that is not everywhere the same would lose it.
    let mtu = ground.network_path.nic.as_ref().and_then(|nic| nic.mtu).unwrap_or(1500);
    ping.args(["ping", "-c", "3", "-W", "10", "-s", &(mtu - 28).to_string()]);
    let output = ping.arg(ground.network_path.client.address.to_string()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn virtio_net_on_a_bridge_with_a_queue_for_each_cpu() {
    let spec = GuestSpec { vcpus: 2, ..GuestSpec::default() };
    lives("virtio", &NetworkSpec::new(NetPath::Bridge), &spec, "virtio_net", pinged);
}

#[test]
fn e1000_on_a_bridge_with_large_packets() {
    let network = NetworkSpec { nic: Nic::E1000, mtu: Some(4000), ..NetworkSpec::new(NetPath::Bridge) };
    lives("e1000", &network, &GuestSpec::default(), "e1000", pinged);
}

#[test]
fn e1000e_on_a_bridge() {
    let network = NetworkSpec { nic: Nic::E1000e, ..NetworkSpec::new(NetPath::Bridge) };
    lives("e1000e", &network, &GuestSpec::default(), "e1000e", pinged);
}

#[test]
fn virtio_net_over_mmio_on_a_bridge() {
    let spec = GuestSpec { machine: Some(MachineType::Microvm), ..GuestSpec::default() };
    lives("microvm", &NetworkSpec::new(NetPath::Bridge), &spec, "virtio_net", pinged);
}

#[test]
fn a_network_stack_in_user_mode() {
    lives("user", &NetworkSpec::new(NetPath::User), &GuestSpec::default(), "virtio_net", |ground| {
        assert!(
            ground.network_path.listen.is_loopback() && !ground.network_path.server.address.is_loopback()
        );
    });
}
