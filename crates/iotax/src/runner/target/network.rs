//! A network path as a target: the path and its client.

use anyhow::Context;
use iotax_model::record::Interface;
use iotax_model::target::{GuestSpec, NetworkSpec, TargetSpec};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::guest::nic::NicBackend;
use iotax_testbed::interrupt::Interrupt;

use super::OwnAgent;
use super::guest::{GuestSlot, MeasuredDevice, RunningGuest, agent};
use crate::runner::local_agent;
use crate::runner::network::NetworkPath;

/// A network path that is measured, and its client.
pub(in crate::runner) struct NetworkSite {
    pub(super) spec: NetworkSpec,
    pub(in crate::runner) client: NetworkClient,
    pub(in crate::runner) path: NetworkPath,
}

/// The agent that is the client of a network path.
pub(in crate::runner) enum NetworkClient {
    /// The run's shared agent on this host.
    Run,
    /// An agent on this host for this target only.
    Agent(AgentClient),
    Guest(Box<NetworkGuest>),
}

/// A guest that is a client.
pub(in crate::runner) struct NetworkGuest {
    spec: GuestSpec,
    nic: NicBackend,
    running: Option<RunningGuest>,
}

impl NetworkSite {
    /// Starts the client's agent if it must be in the path's namespace, or if several paths are measured concurrently.
    pub(in crate::runner) fn new(
        spec: &NetworkSpec,
        guest: Option<&GuestSpec>,
        path: NetworkPath,
        is_one_of_many: bool,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let client = match guest.zip(path.nic()) {
            Some((spec, nic)) => {
                let (spec, nic) = (spec.clone(), nic.clone());
                NetworkClient::Guest(Box::new(NetworkGuest { spec, nic, running: None }))
            }
            None => match path.client_agent(stop)? {
                Some(agent) => NetworkClient::Agent(agent),
                None if is_one_of_many => NetworkClient::Agent(local_agent(stop)?),
                None => NetworkClient::Run,
            },
        };
        Ok(Self { spec: spec.clone(), client, path })
    }

    /// Returns the network interfaces at both ends of the path. A guest as the client is resumed for the query, then paused again.
    pub(super) fn interfaces(&mut self, run_agent: &mut AgentClient) -> anyhow::Result<Vec<Interface>> {
        match &mut self.client {
            NetworkClient::Guest(guest) => {
                let running = guest.running.as_mut().context("the guest is not running")?;
                let guest = &mut running.guest;
                guest.resume()?;
                let interfaces = self.path.interfaces(guest.agent());
                guest.pause()?;
                interfaces
            }
            NetworkClient::Agent(agent) => self.path.interfaces(agent),
            NetworkClient::Run => self.path.interfaces(run_agent),
        }
    }

    /// Returns the process in whose network namespace packets pass: the server's if the client is a guest, otherwise the client's. `None`
    /// if the client is the run's shared agent, or if that process is not known.
    pub(in crate::runner) fn watched_process(&self) -> Option<u32> {
        match &self.client {
            NetworkClient::Guest(_) => self.path.server_process(),
            NetworkClient::Agent(agent) => agent.pid(),
            NetworkClient::Run => None,
        }
    }

    /// Replaces the server and the client's agent after a failure. The caller reboots guests.
    pub(in crate::runner) fn restart(&mut self, stop: &Interrupt) -> anyhow::Result<()> {
        self.path.restart(stop)?;
        if let NetworkClient::Agent(agent) = &mut self.client {
            *agent = self.path.client_agent(stop)?.map_or_else(|| local_agent(stop), Ok)?;
        }
        Ok(())
    }
}

impl NetworkClient {
    pub(super) const fn is_guest(&self) -> bool {
        matches!(self, Self::Guest(_))
    }

    pub(super) fn slot<'a>(&'a mut self, target: &'a TargetSpec) -> Option<GuestSlot<'a>> {
        let Self::Guest(guest) = self else { return None };
        let NetworkGuest { spec, nic, running } = &mut **guest;
        Some(GuestSlot { target, spec, device: MeasuredDevice::Nic(nic), running })
    }

    /// Returns the guest's settings, and the guest if it is running; `None` if the client is not a guest.
    pub(super) fn guest(&self) -> Option<(&GuestSpec, Option<&RunningGuest>)> {
        match self {
            Self::Guest(guest) => Some((&guest.spec, guest.running.as_ref())),
            Self::Agent(_) | Self::Run => None,
        }
    }

    pub(super) fn own_agent(&mut self) -> anyhow::Result<Option<OwnAgent<'_>>> {
        match self {
            Self::Run => Ok(None),
            Self::Agent(agent) => Ok(Some(OwnAgent::on_host(agent))),
            Self::Guest(guest) => agent(&mut guest.running).map(Some),
        }
    }
}
