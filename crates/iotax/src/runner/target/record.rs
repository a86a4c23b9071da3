//! Records of targets: the layers below them as the system reports them, and the layers of their guests.

use std::path::Path;

use iotax_model::record::TargetRecord;
use iotax_model::target::{Accel, FileSpec, GuestSpec, Layer, LayerKind, NetworkSpec, RbdSpec, TargetSpec};
use iotax_model::units::human;
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::host_info;
use iotax_testbed::stack::{self, LayerStack};
use iotax_testbed::target::{self, Built, inspect};

use super::guest::{GuestSite, RunningGuest};
use super::storage::{HostSite, LocalStorage};
use super::{Site, Target};

impl Target {
    /// Returns the record of the target with its layers and timeouts, without inspecting the storage's content.
    pub(in crate::runner) fn record(&self) -> anyhow::Result<TargetRecord> {
        let name = self.spec.name.clone();
        let (LayerStack { layers, timeouts, .. }, running) = match &self.site {
            Site::Remote(site) => return site.agent.record(&name),
            Site::Host(HostSite { storage, .. }) => (storage_stack(&self.spec, storage)?, None),
            Site::Guest(site) => {
                let mut stack = storage_stack(&self.spec, &site.storage)?;
                stack.layers.extend(disk_layers(&self.spec, site));
                (stack, site.running())
            }
            Site::Domain(site) => {
                let mut stack = storage_stack(&self.spec, &site.storage)?;
                let image = self.spec.file().filter(|_| !site.is_device());
                stack.layers.extend(image.map(FileSpec::image_layers).unwrap_or_default());
                stack.layers.extend(site.layers());
                (stack, None)
            }
            Site::Network(site) => {
                let mut stack = LayerStack::default();
                stack.layers.extend(network_layers(&site.spec));
                let guest = site.client.guest();
                stack.layers.extend(guest.iter().flat_map(|(spec, running)| guest_layers(spec, *running)));
                (stack, guest.and_then(|(_, running)| running))
            }
        };
        let domain = match &self.site {
            Site::Domain(site) => site.running.as_ref(),
            _ => None,
        };
        let hello = running.map(|running| &running.hello).or(domain.map(|domain| &domain.hello));
        let is_tcg = running.is_some_and(|running| running.accel == Accel::Tcg);
        Ok(TargetRecord {
            name,
            layers,
            timeouts,
            guest_timeouts: hello.map(|hello| hello.timeouts.clone()).unwrap_or_default(),
            emulated: is_tcg || domain.is_some() && host_info::is_emulated(Path::new("/")),
            command_line: running.map(|running| running.guest.command_line().to_owned()),
            guest_kernel: hello.map(|hello| hello.kernel.clone()),
            guest_clocksource: hello.and_then(|hello| hello.clocksource.clone()),
            interfaces: Vec::new(),
            boot_ns: running.map(|running| running.boot_ns).or(domain.map(|domain| domain.boot_ns)),
            allocation: None,
            purged: None,
            found: None,
            lost: None,
        })
    }

    /// Returns the record of a target that is ready: its layers, and its storage's allocation and content or its network interfaces.
    pub(in crate::runner) fn inspected(
        &mut self,
        run_agent: &mut AgentClient,
    ) -> anyhow::Result<TargetRecord> {
        let record = self.record()?;
        match &mut self.site {
            Site::Remote(_) => Ok(record),
            Site::Network(site) => Ok(TargetRecord { interfaces: site.interfaces(run_agent)?, ..record }),
            Site::Host(HostSite { storage, .. }) => Ok(inspected(&self.spec, &storage.built, record)),
            Site::Guest(site) => Ok(inspected(&self.spec, &site.storage.built, record)),
            Site::Domain(site) => Ok(inspected(&self.spec, &site.storage.built, record)),
        }
    }
}

fn inspected(spec: &TargetSpec, built: &Built, record: TargetRecord) -> TargetRecord {
    // A cluster's file is larger than the image, which may lie anywhere in it.
    let stored = built.stored().filter(|_| !spec.stack.has::<RbdSpec>());
    TargetRecord {
        allocation: stored.and_then(|(path, format)| inspect::allocation(path, format)),
        found: if built.writable { None } else { inspect::found(&built.path) },
        purged: built.purged.clone(),
        ..record
    }
}

fn storage_stack(spec: &TargetSpec, storage: &LocalStorage) -> anyhow::Result<LayerStack> {
    let offset = storage.built.offset;
    let mut stack = match storage.built.stored() {
        Some((path, _)) => stack::of_path(Path::new("/"), path)?,
        None => LayerStack::default(),
    };
    if offset.0 > 0
        && let Some(top) = stack.layers.last_mut()
    {
        top.detail = format!("{}, the area begins at byte {}", top.detail, offset.0);
    }
    stack.layers.extend(target::recorded(spec, &storage.built));
    if storage.built.exported.as_ref().is_some_and(|image| image.is_device) {
        let above = stack::of_path(Path::new("/"), &storage.built.path)?;
        stack.layers.extend(above.layers);
        stack.disks.extend(above.disks);
    }
    Ok(stack)
}

/// Returns the layers of a guest's disk, from the image to the guest's filesystem.
fn disk_layers(target: &TargetSpec, site: &GuestSite) -> Vec<Layer> {
    let mut layers = site.image().map(FileSpec::image_layers).unwrap_or_default();
    let spec = site.spec();
    // A directory is recorded with the storage.
    if target.shared_directory().is_none() {
        layers.push(spec.bus_layer());
    }
    layers.extend(guest_layers(spec, site.running()));
    layers
}

/// Returns the layers of a guest: the guest itself, and the filesystem in it.
fn guest_layers(spec: &GuestSpec, running: Option<&RunningGuest>) -> Vec<Layer> {
    let accel = running.map(|running| format!(", {}", running.accel.word().to_uppercase()));
    let memory = human::bytes(spec.memory.0);
    let accel = accel.unwrap_or_default();
    let detail = format!("{}, {} vCPU, {memory}{accel}", spec.machine_type(), spec.vcpus);
    let name = if spec.count > 1 { format!("{} guests", spec.count) } else { "guest".to_owned() };
    let guest = Layer::new(LayerKind::Guest, name, detail);
    [guest].into_iter().chain(running.and_then(|running| running.hello.filesystem.clone())).collect()
}

/// Returns the layers of a network path: the path, and the guest's network card on it.
fn network_layers(network: &NetworkSpec) -> Vec<Layer> {
    let mut words = Vec::new();
    words.extend(network.mtu.map(|mtu| format!("mtu={mtu}")));
    words.extend(network.peer.clone());
    let mut layers = vec![Layer::new(LayerKind::Network, network.via.word(), words.join(" "))];
    if network.via.needs_guest() {
        let mut words = Vec::new();
        words.extend(network.queues.map(|queues| format!("queues={queues}")));
        words.extend(network.vhost.map(|vhost| format!("vhost={vhost}")));
        layers.push(Layer::new(LayerKind::Nic, network.nic.word(), words.join(" ")));
    }
    layers
}
