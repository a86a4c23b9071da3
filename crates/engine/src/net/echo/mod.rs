//! Round trips: messages that the far end sends back, and how long each took.
//!
//! The near end's [`prober`] is one worker like those of a disk's measurement: it sends when its schedule says so, whatever became of
//! the messages before, and reports its counts by interval. A [`line`] carries the messages: [`icmp`], which any host's kernel
//! answers, or a socket of [`udp`] or [`tcp`] that is connected with a far end of ours, which runs [`answer::datagrams`] or
//! [`answer::messages`] on its own end of it.

pub(crate) mod answer;
mod flights;
mod icmp;
mod line;
mod message;
mod prober;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver};

use iotax_model::net::{NetTest, Peer, Traffic};
use iotax_model::record::{Carried, Outcome};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Rw, Workload};

use self::icmp::Icmp;
use self::line::Line;
use self::prober::{DEADLINE, Prober, Told};
use crate::clock;
use crate::crew::{Crew, Work};
use crate::error::EngineError;
use crate::latencies::Latencies;
use crate::random::{Purpose, SplitMix64};
use crate::watch;
use crate::window::Window;

/// Bytes of a message if nothing else is said.
pub(crate) const LENGTH: Bytes = Bytes(64);

/// Carries out a measurement of round trips.
pub(crate) fn measure(
    job: &Job,
    traffic: &Traffic,
    peer: &Peer,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    if traffic.test != NetTest::IcmpRtt {
        return Err(EngineError::Net(format!("{}: there is no far end for {} yet", peer.host, traffic.test)));
    }
    let line = icmp(traffic, peer)?;
    let note = format!("round trips end when the kernel gets the reply; sent through {}", line.kind());
    let prepared = Prepared::new(job, traffic, line)?;
    events(Event::Ready);
    let mut outcome = prepared.go(Window::new(job, clock::now()), events)?;
    events(Event::Over);
    outcome.notes.push(note);
    Ok(outcome)
}

fn icmp(traffic: &Traffic, peer: &Peer) -> Result<Icmp, EngineError> {
    let name = &peer.host;
    let trouble = |error: std::io::Error| EngineError::Net(format!("{name}: {error}"));
    let bind = peer.bind.as_deref().map(|bind| {
        bind.parse::<IpAddr>().map_err(|_| {
            EngineError::Net(format!(
                "bind = {bind:?}: accepted: an address of this machine, such as 192.0.2.1"
            ))
        })
    });
    let bind = bind.transpose()?;
    let mut hosts = (name.as_str(), 0).to_socket_addrs().map_err(trouble)?.map(|host| host.ip());
    let host = hosts
        .find(|host| bind.is_none_or(|bind| bind.is_ipv4() == host.is_ipv4()))
        .ok_or_else(|| EngineError::Net(format!("{name}: it has no address of the kind of bind")))?;
    Icmp::new(host, bind, length(traffic)).map_err(trouble)
}

/// Bytes of a message.
fn length(traffic: &Traffic) -> usize {
    usize::try_from(traffic.length.unwrap_or(LENGTH).0).unwrap_or(usize::MAX)
}

/// A measurement that is set up: its worker waits for the start.
pub(crate) struct Prepared {
    job: Job,
    crew: Crew,
    room: Latencies,
    told: Receiver<Told>,
}

impl Prepared {
    /// Sets up round trips on a line.
    fn new(job: &Job, traffic: &Traffic, line: impl Line + 'static) -> Result<Self, EngineError> {
        clock::calibrate();
        let workload = as_io(&job.workload, traffic);
        let room = Latencies::new(&workload);
        let (sender, told) = mpsc::channel();
        let cookie = SplitMix64::new(job.seed ^ clock::now(), Purpose::Run, std::process::id().into()).next();
        let prober = Prober {
            line,
            workload: workload.clone(),
            cookie,
            spins: traffic.busy_poll.is_some(),
            told: sender,
        };
        let mut work = Some(Box::new(move |seat| prober.work(seat)) as Work);
        let crew = Crew::muster(1, None, &room, |number| work.take().ok_or(EngineError::Panicked(number)))?;
        Ok(Self { job: Job { workload, ..job.clone() }, crew, room, told })
    }

    /// Makes the round trips of a window.
    fn go(mut self, window: Window, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
        let carried = watch::carry_out(&mut self.crew, &self.job, window, &self.room, events);
        let mut outcome = match carried {
            Ok(outcome) => outcome,
            Err(error) => {
                self.crew.dismiss(self.job.interval);
                return Err(error);
            }
        };
        // A worker that is stuck tells nothing.
        let told = self.told.try_recv().ok();
        outcome.carried = Some(Carried {
            probes: told.map(|told| told.probes),
            mdev_ns: told.and_then(|told| told.mdev_ns),
            ..Carried::default()
        });
        if let Some(late) = told.map(|told| told.late).filter(|late| *late > 0) {
            let deadline = Nanos(DEADLINE);
            outcome.notes.push(format!(
                "{late} replies came more than {deadline} after their messages and count as lost"
            ));
        }
        Ok(outcome)
    }
}

/// Round trips in the words of I/O: a message that comes back is a read.
fn as_io(workload: &Workload, traffic: &Traffic) -> Workload {
    Workload {
        rw: Rw::Read,
        bs: traffic.length.unwrap_or(LENGTH),
        iodepth: 1,
        numjobs: 1,
        rate_iops: traffic.rate,
        rate: None,
        thinktime: None,
        startdelay: None,
        stall_timeout: None,
        test: None,
        ..workload.clone()
    }
}
