//! Measures against servers that are already running, with a plan of one target.

use std::cell::RefCell;

use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::net::{PORT, Peer};
use iotax_model::plan::Plan;
use iotax_model::record::Sample;
use iotax_model::target::{NetPath, NetworkSpec};
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

use super::super::number;
use super::lines;
use crate::cli::auth::AuthArgs;
use crate::cli::output::OutputArgs;
use crate::cli::progress::Line;
use crate::cli::say::say;
use crate::cli::session::{LiveOutput, Session};
use crate::cli::{Failure, OrExit, usage};

/// Maximum length of a target's name.
const LONGEST_NAME: usize = 40;

/// Options for reaching a server.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServerArgs {
    /// Server port
    #[arg(long, short, default_value_t = PORT, value_parser = number::whole::<u16>(1..=65535))]
    port: u16,
    /// Local address
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<String>,
    #[command(flatten)]
    auth: AuthArgs,
}

/// A measurement against one or more servers.
pub(super) struct Measurement<'a> {
    /// The command and its arguments, as the run's name.
    pub(super) name: String,
    pub(super) target: TargetSpec,
    pub(super) workloads: Vec<Workload>,
    pub(super) output: &'a OutputArgs,
    pub(super) interval: Nanos,
    pub(super) line: &'a Line<'a>,
}

impl ServerArgs {
    /// Builds the target: one server, or several that are measured at once.
    pub(super) fn target(&self, hosts: &[String], cport: Option<u16>) -> Result<TargetSpec, Failure> {
        let peers = hosts.iter().map(|host| Peer::parse(host, self.port).map_err(usage));
        let peers = peers.collect::<Result<Vec<Peer>, _>>()?;
        let name = match peers.as_slice() {
            [one] => target_name(&one.host),
            _ => "servers".into(),
        };
        let network = NetworkSpec {
            peer: Some(peers.iter().map(Peer::name).collect::<Vec<_>>().join(",")),
            bind: self.bind.clone(),
            cport,
            auth: self.auth.source(),
            ..NetworkSpec::new(NetPath::Server)
        };
        Ok(TargetSpec::new(name, network))
    }
}

/// Returns a valid target name made from a host's name or address.
pub(in crate::cli) fn target_name(host: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = host.trim_start_matches('.').chars().map(fit).take(LONGEST_NAME).collect();
    if name.is_empty() { "server".into() } else { name }
}

/// Refuses intervals below 10 ms, which are too short to measure.
pub(super) fn check_interval(interval: Nanos) -> Result<(), Failure> {
    if interval < Nanos::from_millis(10) {
        return Err(usage(format!("--interval {interval}: accepted: 10ms and more")));
    }
    Ok(())
}

impl Measurement<'_> {
    /// Measures each workload once and reports. If interrupted, prints the current workload's figures so far.
    pub(super) fn carry_out(self) -> Result<Exit, Failure> {
        check_interval(self.interval)?;
        let plan = Plan::new(self.name, vec![self.target], self.workloads);
        plan.check().or_exit(Exit::Usage)?;
        // The current workload, and what was measured of it with each server.
        let so_far: RefCell<(String, Vec<(String, Sample)>)> = RefCell::default();
        let line = |workload: &str, name: &str, sample: &Sample| {
            let (current, sums) = &mut *so_far.borrow_mut();
            if current != workload {
                workload.clone_into(current);
                sums.clear();
            }
            match sums.iter_mut().find(|(from, _)| from == name) {
                Some((_, sum)) => lines::extend(sum, sample),
                None => sums.push((name.to_owned(), sample.clone())),
            }
            (self.line)(workload, name, sample)
        };
        let live = LiveOutput { interval: Some(self.interval), line: Some(&line) };
        let exit = Session { yes: true, ask: false, live, ..Session::new(plan, self.output) }.carry_out()?;
        if exit == Exit::Interrupted {
            let (workload, sums) = &*so_far.borrow();
            for (name, sum) in sums {
                say!("cut short; until then: {}", (self.line)(workload, name, sum).trim_start());
            }
        }
        Ok(exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_one_target_with_a_name_that_can_be_one() {
        let server = ServerArgs { port: 99, bind: None, auth: AuthArgs::default() };
        for (hosts, name, peer) in [
            (&["box"][..], "box", "box:99"),
            (&["[fe80::1]:7"], "fe80--1", "[fe80::1]:7"),
            (&["a", "b:1"], "servers", "a:99,b:1"),
        ] {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let Ok(target) = server.target(&hosts, None) else { panic!("{hosts:?}") };
            assert_eq!((target.name.as_str(), target.check()), (name, Ok(())));
            assert_eq!(target.network().and_then(|network| network.peer.as_deref()), Some(peer));
        }
    }
}
