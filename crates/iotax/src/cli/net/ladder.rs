//! `iotax net ladder`: sends the same traffic over several paths.

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::plan::{Neighbour, Plan};
use iotax_model::target::{GuestSpec, NetPath, NetworkSpec, Nic, PlannedDevice, Stack};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{Workload, WorkloadKeys};
use iotax_testbed::network;

use crate::causes::with_causes;
use crate::cli::args::{DesignArgs, GuestArgs, LengthArgs, RemoteArgs};
use crate::cli::known_words::text_of;
use crate::cli::number;
use crate::cli::output::OutputArgs;
use crate::cli::print_plan::print_plan;
use crate::cli::say::note;
use crate::cli::session::Session;
use crate::cli::{Failure, OrExit, usage};
use crate::runner;

/// Flags of `iotax net ladder`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// Rungs to build: loopback, veth, vm-virtio, vm-e1000, vm-user, vm-passt; the baseline is veth, else the first [default: all
    /// that are possible here, without vm-passt]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(RUNGS.map(|(name, ..)| name)))]
    rungs: Vec<String>,
    /// Add a rung from this machine to another one, where ssh starts the server: ssh://HOST, ssh://USER@HOST:PORT
    #[arg(long, value_name = "URL")]
    peer: Vec<String>,
    /// Workloads to run: tcp-upload, tcp-download, tcp-both, udp-upload, udp-download, tcp-rtt, udp-rtt, icmp-rtt, udp-rtt-loaded-upload,
    /// udp-rtt-loaded-download [default: tcp-upload, tcp-download, udp-upload, udp-rtt]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(known_workloads().map(|known| known.name)))]
    workloads: Vec<String>,
    /// Repeat rungs with guests under competing traffic: two ends on the host, joined by a veth pair, send as fast as they can
    #[arg(long)]
    together: bool,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    design: DesignArgs,
    /// CPUs of each guest
    #[arg(long, value_name = "N", default_value_t = GuestSpec::default().vcpus, value_parser = number::whole::<u32>(1..=64))]
    vcpus: u32,
    /// Print the ladder as a plan file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    /// Begin without asking
    #[arg(long, short)]
    yes: bool,
    /// Seed for the order [default: random]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    guest: GuestArgs,
}

/// A rung: its name, the path, the guest's NIC.
type Rung = (&'static str, NetPath, Nic);

/// The rungs, shortest path first.
const RUNGS: [Rung; 6] = [
    ("loopback", NetPath::Loopback, Nic::VirtioNet),
    ("veth", NetPath::Veth, Nic::VirtioNet),
    ("vm-virtio", NetPath::Bridge, Nic::VirtioNet),
    ("vm-e1000", NetPath::Bridge, Nic::E1000),
    ("vm-user", NetPath::User, Nic::VirtioNet),
    ("vm-passt", NetPath::Passt, Nic::VirtioNet),
];

/// The preferred baseline: a veth pair between two ends on the host.
const HOST: &str = "veth";

/// Datagram size that fits into an MTU of 1500 bytes with the headers of any path.
const DATAGRAM: Bytes = Bytes(1400);

/// The default workloads.
const STANDARD: [&str; 4] = ["tcp-upload", "tcp-download", "udp-upload", "udp-rtt"];

/// All workloads: test, direction, and true for round trips under load.
const WORKLOADS: [(NetTest, Direction, bool); 10] = [
    (NetTest::Tcp, Direction::Upload, false),
    (NetTest::Tcp, Direction::Download, false),
    (NetTest::Tcp, Direction::Both, false),
    (NetTest::Udp, Direction::Upload, false),
    (NetTest::Udp, Direction::Download, false),
    (NetTest::TcpRtt, Direction::Upload, false),
    (NetTest::UdpRtt, Direction::Upload, false),
    (NetTest::IcmpRtt, Direction::Upload, false),
    (NetTest::UdpRtt, Direction::Upload, true),
    (NetTest::UdpRtt, Direction::Download, true),
];

/// Builds all workloads. UDP tests send 1,400-byte datagrams, which fit on every path.
fn known_workloads() -> [Workload; 10] {
    WORKLOADS.map(|(test, direction, loaded)| {
        let mut net = Traffic { direction, loaded, ..Traffic::new(test) };
        let name = Some(net.generated_name());
        // The same length on every path: the largest datagrams would differ more than the paths do.
        net.length = (test == NetTest::Udp).then_some(DATAGRAM);
        WorkloadKeys { name, net: Some(net), ..WorkloadKeys::default() }.complete(&WorkloadKeys::default())
    })
}

/// Finds a workload by its name.
fn workload(name: &str) -> Result<Workload, WordError> {
    let known = known_workloads();
    let names: Vec<&str> = known.iter().map(|workload| workload.name.as_str()).collect();
    let found = known.iter().find(|workload| workload.name == name).cloned();
    found.ok_or_else(|| WordError::new("workload of a network", name, &names))
}

impl Args {
    /// Returns the rungs of `--rungs`; by default all except the untested `vm-passt`.
    fn rungs(&self) -> Result<Vec<Rung>, Failure> {
        let names = RUNGS.map(|(name, ..)| name);
        let find = |name: &String| {
            let rung = RUNGS.into_iter().find(|(known, ..)| known == name);
            rung.ok_or_else(|| WordError::new("rung", name, &names)).or_exit(Exit::Usage)
        };
        if self.rungs.is_empty() {
            // passt is untested, and a failing rung would end the ladder.
            return Ok(RUNGS.into_iter().filter(|(_, via, _)| *via != NetPath::Passt).collect());
        }
        self.rungs.iter().map(find).collect()
    }

    /// Leaves out rungs that this machine cannot build. Fails instead for a rung that `--rungs` names.
    fn possible(&self, rungs: Vec<Rung>) -> Result<Vec<Rung>, Failure> {
        let mut possible = Vec::new();
        for rung @ (name, via, nic) in rungs {
            let network = NetworkSpec { nic, ..NetworkSpec::new(via) };
            let mut missing = network::check(&network).map_err(anyhow::Error::from);
            if via.needs_guest() && missing.is_ok() {
                let device = PlannedDevice::Card(&network);
                missing = runner::guests_possible_with(&self.guest.options(), device);
            }
            match missing {
                Ok(()) => possible.push(rung),
                Err(error) if !self.rungs.is_empty() => {
                    return Err(Failure {
                        exit: Exit::Environment,
                        error: error.context(format!("rung {name}")),
                    });
                }
                Err(error) => note!("Without {name}: {}", with_causes(&error)),
            }
        }
        Ok(possible)
    }

    /// Returns the targets of the rungs and of `--peer`. With `--together`, also returns the neighbours, which make competing traffic.
    fn targets(&self, rungs: &[Rung]) -> (Vec<TargetSpec>, Vec<TargetSpec>) {
        let mut targets: Vec<TargetSpec> = rungs.iter().map(|rung| target(*rung, self.vcpus)).collect();
        for (number, peer) in (1..).zip(&self.peer) {
            let network = NetworkSpec { peer: Some(peer.clone()), ..NetworkSpec::new(NetPath::Remote) };
            let name = if self.peer.len() > 1 { format!("remote-{number}") } else { "remote".into() };
            targets.push(TargetSpec::new(name, network));
        }
        if !self.together {
            return (targets, Vec::new());
        }
        let guests = targets.iter().filter(|target| target.guest().is_some());
        let beside = guests.map(|guest| TargetSpec {
            name: format!("{}-and-host", guest.name),
            neighbour: Some(NEIGHBOUR.into()),
            ..guest.clone()
        });
        let beside: Vec<TargetSpec> = beside.collect();
        targets.extend(beside);
        (targets, vec![TargetSpec::new(NEIGHBOUR, NetworkSpec::new(NetPath::Veth))])
    }
}

/// Minimum length of a measurement that is derived from the total time: TCP needs a moment to find its rate.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// Name of the neighbour: two ends on the host that make competing traffic.
const NEIGHBOUR: &str = "host";

fn target((name, via, nic): Rung, vcpus: u32) -> TargetSpec {
    let path = Stack::from(NetworkSpec { nic, ..NetworkSpec::new(via) });
    let guest = || GuestSpec { vcpus, ..GuestSpec::default() };
    TargetSpec::new(name, if via.needs_guest() { path.with(guest()) } else { path })
}

fn plan(args: &Args, rungs: &[Rung]) -> Result<Plan, Failure> {
    let names: Vec<&str> = if args.workloads.is_empty() {
        STANDARD.to_vec()
    } else {
        args.workloads.iter().map(String::as_str).collect()
    };
    let (targets, beside) = args.targets(rungs);
    let (runtime, ramp_time) = args.length.window(targets.len() * names.len(), SHORTEST);
    let timed = |name: &str| {
        workload(name).or_exit(Exit::Usage).map(|workload| Workload { runtime, ramp_time, ..workload })
    };
    let workloads = names.into_iter().map(timed).collect::<Result<Vec<_>, _>>()?;
    if args.together && targets.iter().all(|target| target.guest().is_none()) {
        return Err(usage("--together is for guests, of which there is none among the rungs"));
    }
    let known = |target: &&TargetSpec| target.name == HOST;
    let Some(baseline) = targets.iter().find(known).or(targets.first()).map(|target| target.name.clone())
    else {
        return Err(usage("no rung is left; give --rungs loopback"));
    };
    let noise = timed("tcp-both")?;
    let neighbours = beside.into_iter().map(|target| Neighbour { target, workload: noise.clone() });
    let plan = Plan {
        baseline,
        seed: args.seed,
        neighbours: neighbours.collect(),
        ..Plan::new("net ladder".into(), targets, workloads)
    };
    args.length.apply(plan, &args.design).or_exit(Exit::Usage)
}

pub(in crate::cli) fn main(args: &Args) -> Result<Exit, Failure> {
    let rungs = if args.print_plan { args.rungs()? } else { args.possible(args.rungs()?)? };
    let plan = plan(args, &rungs)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    Session {
        yes: args.yes,
        guests: args.guest.options(),
        leave_agent: args.remote.leave_agent,
        ..Session::new(plan, &args.output)
    }
    .carry_out()
}
