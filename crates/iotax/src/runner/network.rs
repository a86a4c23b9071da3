//! A target that is a way between two ends: what was made for it, and the far end's agent.

use std::time::Duration;

use anyhow::Context;
use iotax_model::net::Peer;
use iotax_model::record::Interface;
use iotax_model::target::{Layer, LayerKind, NetPath, TargetSpec};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::guest::nic::Card;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::network;
use iotax_testbed::undo::UndoLog;

use super::remote_agent::RemoteAgent;
use super::{interrupted, own_program};

/// An agent in a namespace is started by another program first.
const AGENT_START: Duration = Duration::from_secs(20);

/// The way and its far end. The near end is the target's guest or its agent.
pub(super) struct Way {
    /// Absent: the far end is on another machine.
    laid: Option<network::Way>,
    pub(super) via: NetPath,
    far: Far,
    /// Where the near end finds the far one.
    pub(super) peer: Peer,
}

/// Who is at the far end.
enum Far {
    /// An agent on this host.
    Here(AgentClient),
    /// One on another machine.
    There(Box<RemoteAgent>),
}

impl Far {
    fn link(&mut self) -> &mut AgentClient {
        match self {
            Self::Here(link) => link,
            Self::There(remote_agent) => remote_agent.link(),
        }
    }
}

impl Way {
    /// Makes what packets pass, and has the far end listen there.
    pub(super) fn lay(
        spec: &TargetSpec,
        remote_agent: Option<RemoteAgent>,
        tag: &str,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let network = spec.network.as_ref().context("a way has a network")?;
        let laid = network::build(network, spec.guest.as_ref(), tag, undo_log)?;
        let (far, host) = match (remote_agent, &laid) {
            (Some(remote_agent), _) => {
                let host = remote_agent.address()?;
                (Far::There(Box::new(remote_agent)), host)
            }
            (None, Some(way)) => {
                let link = agent(way.far.namespace.as_deref(), stop)?;
                (Far::Here(link), way.far.address.to_string())
            }
            (None, None) => anyhow::bail!("nobody is at the far end"),
        };
        let mut way = Self { laid, via: network.via, far, peer: Peer::at(host, 0) };
        way.listen()?;
        Ok(way)
    }

    /// Has the far end listen. What others can reach asks for a secret.
    fn listen(&mut self) -> anyhow::Result<()> {
        let (bind, token) = match &self.laid {
            Some(way) => (way.listen.to_string(), None),
            None => ("::".to_owned(), Some(format!("{:016x}", super::fresh_seed()?))),
        };
        let link = self.far.link();
        let port = link.serve(&bind, token.as_deref()).or_else(|error| match (&error, &self.laid) {
            // Without IPv6.
            (AgentError::Failed { .. }, None) => link.serve("0.0.0.0", token.as_deref()),
            _ => Err(error),
        });
        self.peer.port = port.map_err(interrupted)?;
        self.peer.token = token;
        Ok(())
    }

    /// Starts the far end anew after a failure; on another machine before the next measurement.
    pub(super) fn restart(&mut self, stop: &Interrupt) -> anyhow::Result<()> {
        match &mut self.far {
            Far::Here(link) => {
                let namespace = self.laid.as_ref().and_then(|way| way.far.namespace.as_deref());
                *link = agent(namespace, stop)?;
            }
            Far::There(remote_agent) => {
                remote_agent.give_up();
                return Ok(());
            }
        }
        self.listen()
    }

    /// Makes the link to another machine anew that was given up.
    pub(super) fn reach(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.far {
            Far::There(remote_agent) if remote_agent.is_given_up() => {
                remote_agent.reach(undo_log)?;
                self.listen()
            }
            _ => Ok(()),
        }
    }

    /// The agent at the near end, unless that is a guest or this host itself, where the run's agent is.
    pub(super) fn near_agent(&self, stop: &Interrupt) -> anyhow::Result<Option<AgentClient>> {
        let way = self.laid.as_ref().filter(|way| way.card.is_none());
        let namespace = way.and_then(|way| way.near.namespace.as_deref());
        namespace.map(|namespace| agent(Some(namespace), stop)).transpose()
    }

    /// The card of the guest at the near end.
    pub(super) fn card(&self) -> Option<&Card> {
        self.laid.as_ref()?.card.as_ref()
    }

    /// The process at the far end, if it is on this host.
    pub(super) fn far_process(&self) -> Option<u32> {
        match &self.far {
            Far::Here(link) => link.pid(),
            Far::There(_) => None,
        }
    }

    /// The interfaces of both ends; of loopback's ends, which are one place, once.
    pub(super) fn interfaces(&mut self, near: &mut AgentClient) -> anyhow::Result<Vec<Interface>> {
        let via = self.via;
        let mut all = placed(near, "near", via)?;
        if via != NetPath::Loopback {
            all.extend(placed(self.far.link(), "far", via)?);
        }
        Ok(all)
    }

    /// The other machine that the far end is on.
    pub(super) fn remote_agent(&mut self) -> Option<&mut RemoteAgent> {
        match &mut self.far {
            Far::Here(_) => None,
            Far::There(remote_agent) => Some(remote_agent),
        }
    }
}

/// An agent in a namespace, or where this process is.
fn agent(namespace: Option<&str>, stop: &Interrupt) -> anyhow::Result<AgentClient> {
    let mut link = AgentClient::spawn_in(namespace, own_program(), stop)?;
    link.hello(AGENT_START).map_err(interrupted)?;
    Ok(link)
}

/// What packets may pass at an end.
fn placed(link: &mut AgentClient, place: &str, via: NetPath) -> anyhow::Result<Vec<Interface>> {
    let all = link.interfaces().map_err(interrupted)?;
    // QEMU's own stack speaks to the far end over loopback.
    let loopback = match via {
        NetPath::Loopback => true,
        NetPath::User | NetPath::Passt => place == "far",
        NetPath::Veth | NetPath::Bridge | NetPath::Remote => false,
    };
    let passed: Vec<Interface> =
        all.into_iter().filter(|interface| (interface.name == "lo") == loopback).collect();
    if via == NetPath::Remote && passed.len() != 1 {
        // Nothing tells by which of them the packets go.
        return Ok(Vec::new());
    }
    let placed = |interface: Interface| {
        let place = if place == "far" && via == NetPath::Bridge {
            watched_at(via, &interface.name).unwrap_or(place)
        } else {
            place
        };
        Interface { place: place.to_owned(), ..interface }
    };
    Ok(passed.into_iter().map(placed).collect())
}

/// Where an interface is that is watched on this host while a way is measured; absent if the packets do not pass it.
pub(super) fn watched_at(via: NetPath, name: &str) -> Option<&'static str> {
    match via {
        NetPath::Loopback => (name == "lo").then_some("near"),
        NetPath::User | NetPath::Passt => (name == "lo").then_some("far"),
        // What leads to the guest lies between its card and the far end.
        NetPath::Bridge if name.starts_with("tap") => Some("host"),
        NetPath::Bridge => (name != "lo").then_some("far"),
        NetPath::Veth | NetPath::Remote => (name != "lo").then_some("near"),
    }
}

/// The way as a layer, and the guest's card on it.
pub(super) fn layers(spec: &TargetSpec) -> Vec<Layer> {
    let Some(network) = &spec.network else { return Vec::new() };
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
