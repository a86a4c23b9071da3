//! `iotax watch`: measures the cost of an event, such as a snapshot, while storage is in use.

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::net::{NetTest, PORT, Peer, Traffic};
use iotax_model::plan::{Design, Plan, PlannedEvent, Requirement, WatchSpec};
use iotax_model::target::{NetPath, NetworkSpec, VirtioSpec};
use iotax_model::units::Nanos;
use iotax_model::workload::{Memory, Rw, Verify, Workload, WorkloadKeys};

use super::flags::{OwnDefaults, WorkloadFlags};
use super::net::target_name;
use super::number;
use super::print_plan::print_plan;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::{Failure, OrExit, usage};

/// Flags of `iotax watch`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Measure all targets at the same time, so that each event meets all of them; implied by --ping
    #[arg(long)]
    together: bool,
    /// Ping this host during the load (ICMP echo), 100 times a second, to measure the network to it at the same time as the storage
    #[arg(long, value_name = "HOST")]
    ping: Vec<String>,
    /// Run a command during the load, by sh -c on this host, "NAME = COMMAND", or an operation on the measured guest or image: stop,
    /// snapshot, commit, stream, resize, mirror, backup, backup-fleecing; with a time as in "NAME@20s = COMMAND" or backup@20s; events
    /// without a time are spread evenly
    #[arg(long, value_name = "EVENT", value_parser = str::parse::<PlannedEvent>)]
    event: Vec<PlannedEvent>,
    /// Limit the I/Os per second on the file that mirror, backup or backup-fleecing copies to, to simulate a slow backup server [default:
    /// no limit]
    #[arg(long, value_name = "N", value_parser = number::positive::<u32>)]
    copy_iops: Option<u32>,
    /// Exit with code 1 unless this holds, and with code 5 if that is undecided: "gap < 30s", "recovery < 1m", "late = 0", "errors = 0",
    /// "lost = 0"
    #[arg(long, value_name = "CONDITION", value_parser = str::parse::<Requirement>)]
    require: Vec<Requirement>,
    /// Count I/Os as late if they take longer than this, from when they were due [default: 1s]
    #[arg(long, value_name = "TIME")]
    late: Option<Nanos>,
    /// Repetitions on each target [default: 1, with --control 5]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Measure the same load without events too, in random order with the load with events, and report what each event costs by comparison
    #[arg(long)]
    control: bool,
    #[command(flatten)]
    workload: WorkloadFlags,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Default number of I/Os per second: enough to locate the start of a gap to the millisecond, and far below the capacity of any storage.
const RATE: u64 = 1000;
/// Default queue depth without virtio devices, whose own depth is the default: large enough that reads continue for a while if only writes
/// hang.
const DEPTH: u32 = 512;
const RUNTIME: Nanos = Nanos::from_secs(60);
const PINGS: u64 = 100;
const GAP: Nanos = Nanos::from_millis(100);
const RW: Rw = Rw::RandRw;
const MEMORY: Memory = Memory::Malloc;
const VERIFY: Verify = Verify::Xxh3;

/// Returns the defaults that differ from those of `iotax bench`, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    vec![
        ("rw", RW.to_string()),
        ("iodepth", format!("{DEPTH}, or the depth of its virtio devices")),
        ("runtime", RUNTIME.to_string()),
        ("rate_iops", RATE.to_string()),
        ("blackout", GAP.to_string()),
        ("mem", MEMORY.to_string()),
        ("verify", format!("{VERIFY} for what writes")),
    ]
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let given = &args.workload.0;
    let rw = given.rw.unwrap_or(RW);
    let permission = args.run.session.overwrite.permission()?;
    let mut targets = args.targets.read(&permission)?;
    let devices = targets.iter().filter_map(|target| target.stack.find::<VirtioSpec>());
    let depth = devices.map(VirtioSpec::depth).min().unwrap_or(DEPTH);
    let keys = WorkloadKeys {
        rw: Some(rw),
        iodepth: given.iodepth.or(Some(depth)),
        runtime: given.runtime.or(Some(RUNTIME)),
        rate_iops: given.rate_iops.or(given.rate.is_none().then_some(RATE)),
        blackout: given.blackout.or(Some(GAP)),
        mem: given.mem.or(Some(MEMORY)),
        // Data that is only read may come from another program, without stamps to verify.
        verify: given.verify.or(rw.writes().then_some(VERIFY)),
        ..given.clone()
    };
    for host in &args.ping {
        targets.push(pinged(host)?);
    }
    let watch =
        WatchSpec { events: args.event.clone(), require: args.require.clone(), ..WatchSpec::default() };
    let control = args.control.then(|| "control".to_owned());
    let watch = WatchSpec {
        late: args.late.unwrap_or(watch.late),
        control: control.clone(),
        copy_iops: args.copy_iops,
        together: args.together || !args.ping.is_empty(),
        ..watch
    };
    let work = keys.complete(&WorkloadKeys::default());
    let pings = args.ping.first().map(|_| ping(&work));
    let control = control.map(|name| Workload { name, ..work.clone() });
    let plan = Plan {
        seed: args.run.session.seed,
        repeat: args.repeat.unwrap_or(if args.control { 5 } else { 1 }),
        design: Design::Watch(watch),
        ..Plan::new(
            format!("watch {}", args.targets.paths.join(" ")),
            targets,
            [work].into_iter().chain(control).chain(pings).collect(),
        )
    };
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    args.run.session(plan, permission).carry_out()
}

/// Returns the target for ICMP echo requests to a host.
fn pinged(host: &str) -> Result<TargetSpec, Failure> {
    let peer = Peer::parse(host, PORT).map_err(usage)?;
    let network = NetworkSpec { peer: Some(peer.host.clone()), ..NetworkSpec::new(NetPath::Server) };
    let name = format!("ping-{}", target_name(&peer.host));
    Ok(TargetSpec::new(name, network))
}

/// Returns the workload of ICMP echo requests that lasts as long as the load.
fn ping(load: &Workload) -> Workload {
    let keys = WorkloadKeys {
        net: Some(Traffic { rate: Some(PINGS), ..Traffic::new(NetTest::IcmpRtt) }),
        runtime: Some(load.runtime),
        ramp_time: Some(load.ramp_time),
        blackout: load.blackout,
        ..WorkloadKeys::default()
    };
    keys.complete(&WorkloadKeys::default())
}
