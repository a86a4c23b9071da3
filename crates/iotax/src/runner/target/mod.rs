//! Targets that have been built, each at one of five sites: this host, a guest, a Xen domain, another machine, or a network path.

mod domain;
mod guest;
mod network;
mod record;
mod storage;

use std::time::Duration;

use anyhow::Context;
use iotax_model::Plan;
use iotax_model::target::{ImageSpec, LayerInterface, TargetSpec, VirtioSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::warning::Warning;
use iotax_model::wire::{ByteRange, Job, StampedFill};
use iotax_model::workload::{Verify, Workload};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::export::StorageDaemon;
use iotax_testbed::guest::BlockLayer;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::UndoLog;

use super::remote_agent::RemoteAgent;
use super::{Progress, interrupted, local_agent};
pub(super) use domain::{DomainSite, RunningDomain};
pub(super) use guest::{GuestSite, GuestSlot, MeasuredDevice, RunningGuest};
pub(super) use network::{NetworkClient, NetworkSite};
pub(super) use storage::{HostSite, LocalStorage, RemoteSite};

/// A built target; one of its instances if the target has several guests or servers.
pub(super) struct Target {
    pub(super) spec: TargetSpec,
    pub(super) site: Site,
    /// True if the storage holds all data that workloads expect. False before filling, after a workload that began with unwritten space or
    /// freed space, and after one that left unknown what stamped blocks hold.
    pub(super) is_filled: bool,
    /// The stamps of the filled data, for verification; `None` before filling, and without stamps: in a plan without verification, on
    /// storage that existed before, and on storage that another target uses too.
    pub(super) stamped: Option<StampedFill>,
}

/// The place where a target is measured, with the agent, storage or connection there.
pub(super) enum Site {
    Host(HostSite),
    Guest(Box<GuestSite>),
    Domain(Box<DomainSite>),
    Remote(Box<RemoteSite>),
    Network(NetworkSite),
}

/// An agent that measures one target only, with QEMU's block layer if it is in a guest.
pub(super) struct OwnAgent<'a> {
    pub(super) client: &'a mut AgentClient,
    pub(super) blocks: Option<BlockLayer<'a>>,
}

impl<'a> OwnAgent<'a> {
    const fn on_host(client: &'a mut AgentClient) -> Self {
        Self { client, blocks: None }
    }
}

/// Returns the instances to build for a target: one, or one for each guest or server. The names of all but the first end in `+` and a
/// number, which no name in a plan can.
pub(super) fn instances(spec: &TargetSpec) -> impl Iterator<Item = TargetSpec> + '_ {
    let count = spec.kind().map_or(1, |kind| kind.instances(spec));
    (1..=count).map(|number| match number {
        1 => spec.clone(),
        _ => TargetSpec { name: format!("{}+{number}", spec.name), ..spec.clone() },
    })
}

impl Target {
    /// Returns a name that is unique among the instances measured at the same time: their number from 1, or the server's address.
    pub(super) fn name_among(&self, number: u64) -> String {
        match &self.site {
            Site::Network(site) if !site.client.is_guest() => site.path.peer.name(),
            _ => (number + 1).to_string(),
        }
    }

    /// Returns the target's guest, running or not; `None` without a guest.
    pub(super) fn guest(&mut self) -> Option<GuestSlot<'_>> {
        match &mut self.site {
            Site::Guest(site) => Some(site.slot(&self.spec)),
            Site::Network(site) => site.client.slot(&self.spec),
            Site::Host(_) | Site::Domain(_) | Site::Remote(_) => None,
        }
    }

    /// Returns the target's name and Xen domain, running or not; `None` without a domain.
    pub(super) fn domain(&mut self) -> Option<(&str, &mut DomainSite)> {
        match &mut self.site {
            Site::Domain(site) => Some((&self.spec.name, site)),
            Site::Host(_) | Site::Guest(_) | Site::Remote(_) | Site::Network(_) => None,
        }
    }

    pub(super) const fn is_guest(&self) -> bool {
        match &self.site {
            Site::Guest(_) | Site::Domain(_) => true,
            Site::Network(site) => site.client.is_guest(),
            Site::Host(_) | Site::Remote(_) => false,
        }
    }

    pub(super) fn running_guest(&mut self) -> Option<&mut RunningGuest> {
        self.guest().and_then(|slot| slot.running.as_mut())
    }

    fn running_domain(&mut self) -> Option<&mut RunningDomain> {
        self.domain().and_then(|(_, site)| site.running.as_mut())
    }

    /// Returns the agent in the target's guest or domain; `None` if none runs.
    pub(super) fn agent_in_guest(&mut self) -> Option<&mut AgentClient> {
        if matches!(self.site, Site::Domain(_)) {
            return self.running_domain().map(|running| running.domain.agent());
        }
        self.running_guest().map(|running| running.guest.agent())
    }

    /// Ends the guest or domain, which then no longer has the storage.
    pub(super) fn end_guest(&mut self, undo_log: &mut UndoLog) {
        if let Some(slot) = self.guest() {
            *slot.running = None;
        }
        if let Some((_, site)) = self.domain() {
            // If it cannot be destroyed now, it stays in the undo log.
            let _ = site.end(undo_log);
        }
    }

    /// Kills the guest and drops its overlay: a newly booted guest uses the image itself.
    pub(super) fn kill_guest(&mut self, undo_log: &mut UndoLog) {
        self.end_guest(undo_log);
        if let Site::Guest(site) = &mut self.site {
            site.forget_overlay(undo_log);
        }
    }

    /// Returns the agent that measures only this target; `None` if the run's shared agent measures it.
    pub(super) fn own_agent(&mut self) -> anyhow::Result<Option<OwnAgent<'_>>> {
        match &mut self.site {
            Site::Host(site) => Ok(site.agent.as_mut().map(OwnAgent::on_host)),
            Site::Guest(site) => site.agent().map(Some),
            Site::Domain(site) => site.agent().map(Some),
            Site::Remote(site) => Ok(Some(OwnAgent::on_host(site.agent.client()))),
            Site::Network(site) => site.client.own_agent(),
        }
    }

    /// Starts a separate agent for this target, if the run's shared agent would measure it otherwise.
    pub(super) fn start_own_agent(&mut self, stop: &Interrupt) -> anyhow::Result<()> {
        match &mut self.site {
            Site::Host(site) if site.agent.is_none() => site.agent = Some(local_agent(stop)?),
            Site::Network(NetworkSite { client: client @ NetworkClient::Run, .. }) => {
                *client = NetworkClient::Agent(local_agent(stop)?);
            }
            Site::Host(_) | Site::Guest(_) | Site::Domain(_) | Site::Remote(_) | Site::Network(_) => {}
        }
        Ok(())
    }

    /// Returns the agent that was started on another machine, for the target or its server; `None` if there is no such agent.
    pub(super) fn remote_agent(&mut self) -> Option<&mut RemoteAgent> {
        match &mut self.site {
            Site::Remote(site) => Some(&mut site.agent),
            Site::Network(site) => site.path.remote_agent(),
            Site::Host(_) | Site::Guest(_) | Site::Domain(_) => None,
        }
    }

    /// Applies the target's control group limit, if it has one, to the processes that make its I/O.
    pub(super) fn set_limit(&mut self) -> anyhow::Result<()> {
        let processes = self.processes();
        match self.local_storage().and_then(|storage| storage.built.limit.as_ref()) {
            Some(limit) => limit.set(&processes).context("the limit of its control group cannot be set"),
            None => Ok(()),
        }
    }

    /// Lifts the control group limit, so that it affects only measurements.
    pub(super) fn lift_limit(&mut self) -> anyhow::Result<()> {
        match self.local_storage().and_then(|storage| storage.built.limit.as_ref()) {
            Some(limit) => limit.lift().context("the limit of its control group cannot be lifted"),
            None => Ok(()),
        }
    }

    /// Returns the processes on this host that make only this target's I/O: its agent, the daemons that export its image, its guest.
    fn processes(&mut self) -> Vec<u32> {
        let guest = self.running_guest().map(|running| {
            let daemons = running.guest.daemons().flat_map(StorageDaemon::pids);
            [running.guest.pid()].into_iter().chain(daemons).collect::<Vec<u32>>()
        });
        let agent = match &self.site {
            Site::Host(site) => site.agent.as_ref().and_then(AgentClient::pid),
            Site::Guest(_) | Site::Domain(_) | Site::Remote(_) | Site::Network(_) => None,
        };
        let storage = self.local_storage();
        let daemons =
            storage.iter().flat_map(|storage| storage.built.daemons().flat_map(StorageDaemon::pids));
        guest.into_iter().flatten().chain(agent).chain(daemons).collect()
    }

    /// Returns whether the target's guest or own agent has ended, or no longer answers.
    pub(super) fn is_lost(&mut self) -> bool {
        if matches!(self.site, Site::Domain(_)) {
            return self.agent_in_guest().is_some_and(|agent| agent.is_over());
        }
        if self.is_guest() {
            return self.running_guest().is_some_and(|running| running.guest.is_lost());
        }
        self.own_agent().is_ok_and(|agent| agent.is_some_and(|agent| agent.client.is_over()))
    }

    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        if let Some(running) = self.running_domain() {
            return Ok(running.domain.resume()?);
        }
        self.running_guest().map_or(Ok(()), |running| Ok(running.guest.resume()?))
    }

    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        if let Some(running) = self.running_domain() {
            return Ok(running.domain.pause()?);
        }
        self.running_guest().map_or(Ok(()), |running| Ok(running.guest.pause()?))
    }

    /// Returns the target's storage on this host; `None` for storage on other machines and for networks.
    pub(super) const fn local_storage(&self) -> Option<&LocalStorage> {
        match &self.site {
            Site::Host(site) => Some(&site.storage),
            Site::Guest(site) => Some(&site.storage),
            Site::Domain(site) => Some(&site.storage),
            Site::Remote(_) | Site::Network(_) => None,
        }
    }

    /// Describes each of the user's files below the target that has changed since the last call.
    pub(super) fn changes(&mut self) -> Vec<String> {
        match &mut self.site {
            Site::Host(site) => site.storage.changes(),
            Site::Guest(site) => site.storage.changes(),
            Site::Domain(site) => site.storage.changes(),
            Site::Remote(_) | Site::Network(_) => Vec::new(),
        }
    }

    /// Returns the warnings from building the target.
    pub(super) fn warnings(&self) -> &[Warning] {
        self.local_storage().map_or(&[], |storage| &storage.built.warnings)
    }

    /// Returns whether a snapshot is taken before each measurement.
    pub(super) fn has_snapshot(&self) -> bool {
        self.local_storage().is_some_and(|storage| storage.built.has_snapshot())
    }

    /// Returns the area to measure, as the agent opens it, and true if it may be written. `None` for a network.
    fn area(&self) -> Option<(ByteRange, bool)> {
        match &self.site {
            Site::Host(HostSite { storage, .. }) => Some((storage.area(), storage.built.writable)),
            Site::Guest(site) => Some((site.area(), site.storage.built.writable)),
            Site::Domain(site) => Some((site.area(), site.storage.built.writable)),
            Site::Remote(site) => Some((site.area(), site.writable)),
            Site::Network(_) => None,
        }
    }

    /// Returns whether a workload may begin with unwritten space on this target: in a file that iotax created, or on a filesystem in
    /// the guest.
    pub(super) fn takes_layouts(&self) -> bool {
        match &self.site {
            Site::Host(site) => site.storage.built.writable && site.storage.built.path.is_file(),
            Site::Remote(site) => site.writable && site.agent.image().is_none(),
            Site::Guest(_) => self.spec.stack.offers() == LayerInterface::FileInGuest,
            Site::Domain(_) | Site::Network(_) => false,
        }
    }

    /// Returns the target's area and the number of bytes, from its start, that are filled before the measurements; `None` for storage that existed
    /// before.
    pub(super) fn filled(&self, plan: &Plan) -> Option<(ByteRange, Bytes)> {
        // A user's image is measured with the data that it holds.
        let (area, _) =
            self.area().filter(|(_, writable)| *writable && !self.spec.stack.has::<ImageSpec>())?;
        let filled = if self.takes_layouts() { plan.filled() } else { plan.touched() };
        // SNIA preconditions all of a device, which workloads without a size use.
        let is_whole = plan.preconditions() && plan.reach().is_none() && filled.0 > 0;
        let size = if is_whole { area.size } else { area.size.min(filled) };
        Some((area, size))
    }

    /// Writes a piece of the data that the plan's workloads expect, through the target itself, so that no read finds unwritten space. The
    /// piece has up to `most` bytes, a multiple of 1 MiB, after the first `done` bytes of all passes, and ends with its pass. Returns the
    /// number of bytes written so far; `None` once all are written. Does not write to storage that existed before.
    pub(super) fn fill(
        &mut self,
        run_agent: &mut AgentClient,
        plan: &Plan,
        seed: u64,
        (done, most): (Bytes, Bytes),
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Option<Bytes>> {
        self.is_filled = true;
        let Some((area, length)) = self.filled(plan) else { return Ok(None) };
        let begin = area.offset;
        let total = Bytes(length.0.saturating_mul(plan.fill_passes()));
        if total <= done {
            return Ok(None);
        }
        let within = done.0 % length.0;
        let size = most.min(Bytes(length.0 - within));
        let piece = ByteRange { offset: Bytes(begin.0 + within), size, ..area };
        let name = self.spec.name.clone();
        // Storage slower than 10 MB/s is not worth measuring. The first piece waits for what is dirty on the filesystem, which may be gigabytes.
        let patience = Duration::from_secs(if done.0 == 0 { 120 } else { 60 } + size.0 / 10_000_000);
        self.resume()?;
        let own = self.own_agent()?;
        let agent = own.map_or(run_agent, |own| own.client);
        let mut tell = |more: Bytes| progress.filled(&name, Bytes(done.0 + more.0), total);
        agent.fill(&piece, &plan.content(), seed, patience, &mut tell).map_err(interrupted)?;
        self.pause()?;
        if within + size.0 == length.0 {
            let is_stamped = plan.content().verify != Verify::None && plan.has_own_storage(&self.spec);
            self.stamped = is_stamped.then(|| StampedFill { seed, end: Bytes(begin.0 + length.0) });
        }
        let done = Bytes(done.0 + size.0);
        Ok((done < total).then_some(done))
    }

    /// Builds the agent's job for one measurement of this target.
    pub(super) fn job(&self, workload: &Workload, seed: u64, interval: Nanos) -> Job {
        let mut workload = workload.clone();
        let size = workload.size.unwrap_or_default();
        let read_only = Job::new(workload.clone(), size, seed, interval);
        if let Site::Network(site) = &self.site {
            return Job { peer: Some(site.path.peer.clone()), ..read_only };
        }
        let Some((area, writable)) = self.area() else { return read_only };
        let rest = Bytes(area.size.0.saturating_sub(workload.offset.0));
        let size =
            workload.size.unwrap_or(if workload.needs_directory() { workload.default_size() } else { rest });
        workload.offset.0 += area.offset.0;
        workload.beside.iter_mut().for_each(|job| job.offset.0 += area.offset.0);
        let directory = match &self.site {
            Site::Host(site) => site.directory().map(|path| path.display().to_string()),
            Site::Guest(_) | Site::Domain(_) | Site::Remote(_) | Site::Network(_) => None,
        };
        let ByteRange { path, shared, identity, .. } = area;
        let filled = self.stamped.filter(|_| !workload.lays_out());
        let queue_size = self.spec.stack.find::<VirtioSpec>().and_then(|virtio| virtio.queue_size);
        Job { path, workload, size, writable, shared, identity, queue_size, directory, filled, ..read_only }
    }

    /// Replaces the target's snapshots, so that each measurement begins with fresh ones. A guest must be paused.
    pub(super) fn renew_snapshots(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.site {
            Site::Host(site) => site.storage.renew_snapshot(undo_log),
            Site::Guest(site) => site.renew_snapshots(undo_log),
            Site::Domain(site) => site.storage.renew_snapshot(undo_log),
            Site::Remote(_) | Site::Network(_) => Ok(()),
        }
    }

    /// Creates an empty directory next to a file on this host. Does nothing for other targets, whose agents create directories. `tag` makes
    /// the name unique.
    pub(super) fn make_directory(&mut self, tag: &str, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.site {
            Site::Host(site) => site.make_directory(&format!("iotax-{tag}-{}.d", self.spec.name), undo_log),
            Site::Guest(_) | Site::Domain(_) | Site::Remote(_) | Site::Network(_) => Ok(()),
        }
    }

    /// Removes the directory of [`Self::make_directory`] with its contents.
    pub(super) fn remove_directory(&mut self, undo_log: &mut UndoLog) {
        if let Site::Host(site) = &mut self.site {
            site.remove_directory(undo_log);
        }
    }

    /// Keeps a created file: removes it from the undo log, so that it is not deleted at the end.
    pub(super) fn keep(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.site {
            Site::Host(site) => site.storage.keep(undo_log),
            Site::Guest(site) => site.storage.keep(undo_log),
            Site::Domain(site) => site.storage.keep(undo_log),
            Site::Remote(site) => site.agent.keep(),
            Site::Network(_) => Ok(()),
        }
    }
}
