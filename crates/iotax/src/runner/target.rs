//! A target that stands: its file, its guest if it has one, its layers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_model::record::TargetRecord;
use iotax_model::target::{
    Accel, Discard, FileSpec, Format, GuestSpec, Layer, LayerKind, Snapshot, TargetSpec,
};
use iotax_model::units::{Bytes, human};
use iotax_model::wire::{AgentHello, Area, Identity};
use iotax_model::workload::Content;
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::guest::{BlockLayer, Guest};
use iotax_testbed::monitor::GuestThreads;
use iotax_testbed::stack;
use iotax_testbed::target::{Built, inspect, qcow2};
use iotax_testbed::undo::{UndoEntry, UndoLog};

use super::network::{self, Way};
use super::remote_agent::RemoteAgent;
use super::{Progress, interrupted};

/// The guest side of a target.
pub(super) struct Machine {
    pub(super) guest: Guest,
    pub(super) hello: AgentHello,
    pub(super) accel: Accel,
    pub(super) boot_ns: u64,
}

impl Machine {
    /// QEMU's threads, for the monitor.
    pub(super) fn threads(&mut self) -> anyhow::Result<GuestThreads> {
        Ok(GuestThreads { pid: self.guest.pid(), roles: self.guest.threads()? })
    }
}

/// A target, or one of its guests where it has several.
pub(super) struct Target {
    pub(super) spec: TargetSpec,
    pub(super) built: Built,
    pub(super) machine: Option<Machine>,
    /// The agent on the other machine that it is on, if it is on one.
    pub(super) remote_agent: Option<RemoteAgent>,
    /// The network that it is, if it is one.
    pub(super) way: Option<Way>,
    /// An agent on this host that measures nothing else. Absent: the guest's, the remote_agent's or the run's.
    pub(super) agent: Option<AgentClient>,
    /// The overlays between the image and the one that is written, from the bottom up.
    beneath: Vec<PathBuf>,
    /// The overlay that stands now, and how many there were.
    overlay: Option<UndoEntry>,
    overlays: u32,
    /// The snapshot of the volume that stands now.
    volume_snapshot: Option<UndoEntry>,
    /// The directory beside it that stands now.
    directory: Option<(PathBuf, UndoEntry)>,
}

/// What is built for a target: itself, or a disk for each of its guests, or the path to each of its servers. The names of all but the first have a number, with a
/// sign that no target's own name may contain.
pub(super) fn instances(spec: &TargetSpec) -> impl Iterator<Item = TargetSpec> + '_ {
    let guests = spec.guest.as_ref().map_or(1, |guest| guest.count as usize);
    let servers = spec.network.as_ref().map_or(0, |network| network.servers().len());
    let count = guests.max(servers);
    (1..=count).map(|number| match number {
        1 => spec.clone(),
        _ => TargetSpec { name: format!("{}+{number}", spec.name), ..spec.clone() },
    })
}

impl Target {
    pub(super) fn new(spec: TargetSpec, built: Built, remote_agent: Option<RemoteAgent>) -> Self {
        Self {
            spec,
            built,
            machine: None,
            remote_agent,
            way: None,
            agent: None,
            beneath: Vec::new(),
            overlay: None,
            overlays: 0,
            volume_snapshot: None,
            directory: None,
        }
    }

    /// A network, with the agent at its client if that is neither a guest's nor the run's.
    pub(super) fn network(spec: TargetSpec, way: Way, agent: Option<AgentClient>) -> Self {
        // There is no storage that could be filled, read or written.
        let nothing = Built::found("/".into(), Bytes(0));
        Self { way: Some(way), agent, ..Self::new(spec, nothing, None) }
    }

    /// What tells it from others that are measured at the same time: its number, or its server's address.
    pub(super) fn name_among(&self, number: u64) -> String {
        match &self.way {
            Some(way) if !self.is_guest() => way.peer.name(),
            _ => (number + 1).to_string(),
        }
    }

    pub(super) fn is_guest(&self) -> bool {
        self.spec.guest.is_some()
    }

    /// The path that an agent opens: on the host the file, in a guest its disk.
    pub(super) fn agent_path(&self) -> Option<&Path> {
        self.machine.is_none().then_some(self.built.path.as_path())
    }

    /// What the agent is held to, where it sees the file or device itself.
    pub(super) fn agent_identity(&self) -> Option<Identity> {
        self.built.identity.filter(|_| self.machine.is_none())
    }

    /// Where its area begins there: a guest's disk is the area and nothing else.
    pub(super) fn agent_offset(&self) -> Bytes {
        if self.machine.is_none() { self.built.offset } else { Bytes(0) }
    }

    /// The agent that measures it.
    pub(super) fn link<'a>(&'a mut self, local: &'a mut AgentClient) -> &'a mut AgentClient {
        self.own_link().0.unwrap_or(local)
    }

    /// Its own agent, if it has one, and QEMU's block layer beneath its guest.
    pub(super) fn own_link(&mut self) -> (Option<&mut AgentClient>, Option<BlockLayer<'_>>) {
        match (&mut self.machine, &mut self.remote_agent) {
            (Some(machine), _) => {
                let (link, blocks) = machine.guest.agent_and_blocks();
                (Some(link), Some(blocks))
            }
            (None, Some(remote_agent)) => (Some(remote_agent.link()), None),
            (None, None) => (self.agent.as_mut(), None),
        }
    }

    /// The other machine that it, or its server, is on.
    pub(super) fn remote_agent(&mut self) -> Option<&mut RemoteAgent> {
        self.remote_agent.as_mut().or_else(|| self.way.as_mut()?.remote_agent())
    }

    /// Whether its guest or its own agent is gone, or does not answer any more.
    pub(super) fn is_lost(&mut self) -> bool {
        match &self.machine {
            Some(machine) => machine.guest.is_lost(),
            None => self.own_link().0.is_some_and(|link| link.is_over()),
        }
    }

    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        self.machine.as_mut().map_or(Ok(()), |machine| Ok(machine.guest.resume()?))
    }

    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        self.machine.as_mut().map_or(Ok(()), |machine| Ok(machine.guest.pause()?))
    }

    /// Writes it once through itself, so that no read meets a hole. What existed is measured as it is.
    pub(super) fn fill(
        &mut self,
        local: &mut AgentClient,
        content: &Content,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        if !self.built.writable {
            return Ok(());
        }
        let (name, size) = (self.spec.name.clone(), self.built.size);
        let path = self.agent_path().map(|path| path.display().to_string());
        let area = Area {
            path,
            offset: self.agent_offset(),
            size,
            shared: self.built.shared,
            identity: self.agent_identity(),
        };
        // 10 MB/s is slower than any storage worth measuring.
        let patience = Duration::from_secs(60 + size.0 / 10_000_000);
        self.resume()?;
        let link = self.link(local);
        link.fill(&area, content, seed, patience, &mut |done| {
            progress.filled(&name, done, size);
        })
        .map_err(interrupted)?;
        self.pause()
    }

    /// A new snapshot in place of the last, so that each measurement meets one that was just taken. The guest must be paused.
    pub(super) fn renew_snapshots(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        if let Some(origin) = &mut self.built.origin {
            // The old one goes first: with two, a write would be paid for twice.
            if let Some(old) = self.volume_snapshot {
                undo(old, undo_log)?;
            }
            self.volume_snapshot = Some(origin.snapshot(undo_log)?);
        }
        match (self.built.snapshot, &mut self.machine) {
            (Some(Snapshot::External), Some(_)) => self.renew_overlay(undo_log),
            (Some(Snapshot::Internal), Some(machine)) => Ok(machine.guest.renew_snapshot()?),
            _ => Ok(()),
        }
    }

    /// A new, empty overlay at the top of the chain, whose lower ones are made once and stay empty.
    fn renew_overlay(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        let (Some(machine), Some(file)) = (&mut self.machine, &self.spec.file) else { return Ok(()) };
        let mut below = (self.built.path.as_path(), self.built.format);
        let mut add = |name: String, (below, format): (&Path, Format)| {
            let path = self.built.path.with_extension(name);
            anyhow::Ok((qcow2::overlay(&path, below, format, file, undo_log)?, path))
        };
        let depth = file.backing_depth.unwrap_or(1) as usize;
        while self.beneath.len() + 1 < depth {
            let lowest = self.beneath.last().map_or(below, |path| (path, Format::Qcow2));
            let (_, path) = add(format!("beneath-{}.qcow2", self.beneath.len() + 1), lowest)?;
            self.beneath.push(path);
        }
        if let Some(path) = self.beneath.last() {
            below = (path, Format::Qcow2);
        }
        self.overlays += 1;
        let (entry, path) = add(format!("overlay-{}.qcow2", self.overlays), below)?;
        machine.guest.swap_disk(&path, Format::Qcow2)?;
        match self.overlay.replace(entry) {
            Some(old) => undo(old, undo_log),
            None => Ok(()),
        }
    }

    /// After a reboot the guest has the image itself again.
    pub(super) fn forget_overlay(&mut self, undo_log: &mut UndoLog) {
        if let Some(entry) = self.overlay.take() {
            // It stays on record if it cannot be removed now.
            let _ = undo_log.undo(entry);
        }
    }

    /// The directory for a test's own files; absent where its agent makes one itself, in a guest and on another machine.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|(path, _)| path.as_path())
    }

    /// Makes an empty directory beside a file on this host. `tag` tells it from all others there.
    pub(super) fn make_directory(&mut self, tag: &str, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        // One that could not be removed before is removed at the end.
        self.directory = None;
        if self.machine.is_none() && self.remote_agent.is_none() {
            let path = self.built.path.with_file_name(format!("iotax-{tag}-{}.d", self.spec.name));
            let entry = undo_log.make_tree(&path)?;
            self.directory = Some((path, entry));
        }
        Ok(())
    }

    /// Removes that directory with all that is in it.
    pub(super) fn remove_directory(&mut self, undo_log: &mut UndoLog) {
        if let Some((_, entry)) = self.directory.take() {
            // It stays on record if it cannot be removed now.
            let _ = undo_log.undo(entry);
        }
    }

    /// Takes the created file off the record, so that it stays.
    pub(super) fn keep(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        if let Some(remote_agent) = &mut self.remote_agent {
            return remote_agent.keep();
        }
        self.built.entry.take().map_or(Ok(()), |entry| Ok(undo_log.commit(entry)?))
    }

    /// Its stack as the system shows it, and what the guest adds on top.
    pub(super) fn record(&self) -> anyhow::Result<TargetRecord> {
        if let Some(remote_agent) = &self.remote_agent {
            return Ok(remote_agent.record(&self.spec.name));
        }
        let mut layers = if self.way.is_some() {
            network::layers(&self.spec)
        } else {
            stack::of_path(Path::new("/"), &self.built.path)?.layers
        };
        if self.built.offset.0 > 0
            && let Some(top) = layers.last_mut()
        {
            top.detail = format!("{}, the area begins at byte {}", top.detail, self.built.offset.0);
        }
        if let Some(lvm) = self.spec.lvm.as_ref().filter(|lvm| lvm.snapshot) {
            let detail = format!("{}, new before each measurement", lvm.kind);
            layers.push(Layer::new(LayerKind::Snapshot, "LVM snapshot", detail));
        }
        layers.extend(self.guest_layers());
        let machine = self.machine.as_ref();
        Ok(TargetRecord {
            name: self.spec.name.clone(),
            layers,
            emulated: machine.is_some_and(|machine| machine.accel == Accel::Tcg),
            command_line: machine.map(|machine| machine.guest.command_line().to_owned()),
            guest_kernel: machine.map(|machine| machine.hello.kernel.clone()),
            guest_clocksource: machine.and_then(|machine| machine.hello.clocksource.clone()),
            interfaces: Vec::new(),
            boot_ns: machine.map(|machine| machine.boot_ns),
            allocation: None,
            found: None,
            lost: None,
        })
    }

    /// The record when everything stands and is filled: with what the area consists of, as far as that can be seen from here.
    pub(super) fn inspected(&mut self, local: &mut AgentClient) -> anyhow::Result<TargetRecord> {
        let record = self.record()?;
        if self.remote_agent.is_some() {
            return Ok(record);
        }
        if let Some(way) = &mut self.way {
            // Guests stand still until they are measured.
            let guest = self.machine.as_mut().map(|machine| &mut machine.guest);
            let interfaces = match guest {
                Some(guest) => {
                    guest.resume()?;
                    let interfaces = way.interfaces(guest.agent());
                    guest.pause()?;
                    interfaces?
                }
                None => way.interfaces(self.agent.as_mut().unwrap_or(local))?,
            };
            return Ok(TargetRecord { interfaces, ..record });
        }
        Ok(TargetRecord {
            allocation: inspect::allocation(&self.built.path, self.built.format),
            found: if self.built.writable { None } else { inspect::found(&self.built.path) },
            ..record
        })
    }

    /// What stands between the file and the program in the guest.
    fn guest_layers(&self) -> Vec<Layer> {
        let Some(guest) = &self.spec.guest else { return Vec::new() };
        let mut layers = Vec::new();
        if let Some(file) = &self.spec.file {
            layers.push(Layer::new(LayerKind::Image, file.format.word(), image_detail(file)));
            if let Some(snapshot) = file.snapshot {
                let depth =
                    file.backing_depth.map(|depth| format!(", {depth} overlays deep")).unwrap_or_default();
                let detail = format!("new before each measurement{depth}");
                layers.push(Layer::new(LayerKind::Snapshot, format!("{snapshot} snapshot"), detail));
            }
        }
        if self.way.is_none() {
            layers.push(Layer::new(LayerKind::Bus, guest.bus.word(), bus_detail(guest)));
        }
        let machine = self.machine.as_ref();
        let accel = machine.map(|machine| format!(", {}", machine.accel.word().to_uppercase()));
        let memory = human::bytes(guest.memory.0);
        let accel = accel.unwrap_or_default();
        let detail = format!("{}, {} vCPU, {memory}{accel}", guest.machine_type(), guest.vcpus);
        let name = if guest.count > 1 { format!("{} guests", guest.count) } else { "guest".to_owned() };
        layers.push(Layer::new(LayerKind::Guest, name, detail));
        layers.extend(machine.and_then(|machine| machine.hello.filesystem.clone()));
        layers
    }
}

/// The settings of an image that are not QEMU's own.
fn image_detail(file: &FileSpec) -> String {
    let mut words = vec![format!("preallocation={}", file.preallocation)];
    words.extend(file.cluster_size.map(|size| format!("cluster_size={size}")));
    words.extend(file.extended_l2.then(|| "extended_l2".to_owned()));
    words.extend(file.lazy_refcounts.then(|| "lazy_refcounts".to_owned()));
    words.extend(file.l2_cache_size.map(|size| format!("l2_cache_size={size}")));
    if file.format == Format::Qcow2 {
        // Only qemu-img convert would compress them.
        words.push("not compressed".to_owned());
    }
    words.join(" ")
}

fn bus_detail(guest: &GuestSpec) -> String {
    let mut words = vec![format!("cache={} aio={}", guest.cache, guest.aio)];
    match guest.iothreads() {
        0 => {}
        1 => words.push("iothread".to_owned()),
        threads => words.push(format!("{threads} iothreads")),
    }
    words.extend(guest.queues.map(|queues| format!("queues={queues}")));
    if guest.discard == Discard::Ignore {
        words.push("discard=ignore".to_owned());
    }
    words.join(" ")
}

fn undo(entry: UndoEntry, undo_log: &mut UndoLog) -> anyhow::Result<()> {
    undo_log.undo(entry).map_err(|failure| anyhow::anyhow!("{}: {}", failure.effect, failure.reason))
}
