//! Tests that a stopped QEMU is given up within seconds, in every phase.

use std::time::{Duration, Instant};

use iotax_model::units::Nanos;
use iotax_model::wire::Event;
use iotax_model::workload::Rw;
use iotax_testbed::agent_client::AgentError;
use iotax_testbed::guest::qmp::QmpError;
use iotax_testbed::guest::{Guest, GuestError};
use iotax_testbed::interrupt::{Interrupt, SILENCE};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{BOOT, Rig, job};

/// Additional time on a busy machine.
const SLACK: Duration = Duration::from_secs(25);
const LONG: Duration = Duration::from_mins(5);

fn stop(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, Signal::STOP).expect("it runs");
}

fn in_time(began: Instant) -> bool {
    (SILENCE..SILENCE + SLACK).contains(&began.elapsed())
}

#[test]
fn a_guest_that_is_stopped_while_it_boots_is_given_up() {
    let Some(rig) = Rig::build() else { return };
    let mut guest = Guest::boot(&rig.config("stopped-early"), &Interrupt::default()).expect("started");
    stop(guest.pid());
    let began = Instant::now();
    let ready = guest.wait_ready(LONG);
    assert!(matches!(ready, Err(GuestError::AgentClient(AgentError::Silent { .. }))), "{ready:?}");
    assert!(in_time(began), "{:?}", began.elapsed());
}

#[test]
fn a_guest_that_is_stopped_while_it_measures_is_given_up() {
    let Some(rig) = Rig::build() else { return };
    let mut guest = rig.boot("stopped-late");
    let mut long = job(Rw::RandRead);
    long.workload.runtime = Nanos::from_secs(600);
    let (pid, mut began) = (guest.pid(), None);
    let freeze = &mut |_: &Event| {
        began.get_or_insert_with(|| {
            stop(pid);
            Instant::now()
        });
    };
    let ran = guest.agent().run(&long, BOOT, freeze);
    assert!(matches!(ran, Err(AgentError::Silent { request: "run", .. })), "{ran:?}");
    assert!(in_time(began.expect("measured")), "{began:?}");
    let began = Instant::now();
    let paused = guest.pause();
    assert!(matches!(paused, Err(GuestError::Qmp { error: QmpError::Stopped { .. }, .. })), "{paused:?}");
    assert!(in_time(began), "{:?}", began.elapsed());
}

/// Tests that an agent that sends nothing for longer than the timeout is still known to be working.
#[test]
fn a_guest_that_only_works_for_long_is_waited_for() {
    let Some(rig) = Rig::build() else { return };
    let mut guest = rig.boot("busy");
    let mut long = job(Rw::RandRead);
    long.workload.runtime = Nanos::from_secs(20);
    long.interval = Nanos::from_secs(20);
    let outcome = guest.agent().run(&long, BOOT, &mut |_| {}).expect("measured");
    assert!(outcome.tallies.ios() > 0);
}
