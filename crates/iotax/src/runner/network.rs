//! A target that is a path between two ends: what was made for it, and who is the server.

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::Context;
use iotax_model::net::Peer;
use iotax_model::record::Interface;
use iotax_model::target::{Layer, LayerKind, NetPath, TargetSpec};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::guest::nic::GuestNic;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::network;
use iotax_testbed::undo::UndoLog;

use super::remote_agent::RemoteAgent;
use super::{interrupted, own_program};

/// An agent in a namespace is started by another program first.
const AGENT_START: Duration = Duration::from_secs(20);

/// The path and its server. The client is the target's guest or its agent.
pub(super) struct Way {
    /// Absent: nothing was made for the run, the server is on another machine or runs already.
    laid: Option<network::BuiltNetwork>,
    pub(super) via: NetPath,
    server: Server,
    /// Where the client finds the server.
    pub(super) peer: Peer,
}

/// Who the server is.
enum Server {
    /// An agent on this host.
    Here(AgentClient),
    /// One on another machine.
    There(Box<RemoteAgent>),
    /// A program that nobody started for the run.
    Given,
}

impl Server {
    fn link(&mut self) -> Option<&mut AgentClient> {
        match self {
            Self::Here(link) => Some(link),
            Self::There(remote_agent) => Some(remote_agent.link()),
            Self::Given => None,
        }
    }
}

impl Way {
    /// Makes what packets pass, and has the server listen there. Of several servers that run already it leads to the one of this
    /// number.
    pub(super) fn lay(
        spec: &TargetSpec,
        number: usize,
        token: Option<&str>,
        remote_agent: Option<RemoteAgent>,
        tag: &str,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let network = spec.network.as_ref().context("a path has a network")?;
        if let Some(server) = network.servers().into_iter().nth(number) {
            let peer = Peer { token: token.map(str::to_owned), ..server };
            let via = if is_this_host(&peer) { NetPath::Loopback } else { network.via };
            return Ok(Self { laid: None, via, server: Server::Given, peer });
        }
        let laid = network::build(network, spec.guest.as_ref(), tag, undo_log)?;
        let (server, host) = match (remote_agent, &laid) {
            (Some(remote_agent), _) => {
                let host = remote_agent.address()?;
                (Server::There(Box::new(remote_agent)), host)
            }
            (None, Some(way)) => {
                let link = agent(way.server.namespace.as_deref(), stop)?;
                (Server::Here(link), way.server.address.to_string())
            }
            (None, None) => anyhow::bail!("there is no server"),
        };
        let mut way = Self { laid, via: network.via, server, peer: Peer::at(host, 0) };
        way.listen()?;
        Ok(way)
    }

    /// Has the server listen. What others can reach asks for a secret.
    fn listen(&mut self) -> anyhow::Result<()> {
        let (bind, token) = match &self.laid {
            Some(way) => (way.listen.to_string(), None),
            None => ("::".to_owned(), Some(format!("{:016x}", super::fresh_seed()?))),
        };
        let Some(link) = self.server.link() else { return Ok(()) };
        let port = link.serve(&bind, token.as_deref()).or_else(|error| match (&error, &self.laid) {
            // Without IPv6.
            (AgentError::Failed { .. }, None) => link.serve("0.0.0.0", token.as_deref()),
            _ => Err(error),
        });
        self.peer.port = port.map_err(interrupted)?;
        self.peer.token = token;
        Ok(())
    }

    /// Starts the server anew after a failure; on another machine before the next measurement. One that was there already is left
    /// alone.
    pub(super) fn restart(&mut self, stop: &Interrupt) -> anyhow::Result<()> {
        match &mut self.server {
            Server::Here(link) => {
                let namespace = self.laid.as_ref().and_then(|way| way.server.namespace.as_deref());
                *link = agent(namespace, stop)?;
            }
            Server::There(remote_agent) => {
                remote_agent.give_up();
                return Ok(());
            }
            Server::Given => return Ok(()),
        }
        self.listen()
    }

    /// Makes the link to another machine anew that was given up.
    pub(super) fn reach(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.server {
            Server::There(remote_agent) if remote_agent.is_given_up() => {
                remote_agent.reach(undo_log)?;
                self.listen()
            }
            _ => Ok(()),
        }
    }

    /// The client's agent, unless that is a guest or this host itself, where the run's agent is.
    pub(super) fn client_agent(&self, stop: &Interrupt) -> anyhow::Result<Option<AgentClient>> {
        let way = self.laid.as_ref().filter(|way| way.card.is_none());
        let namespace = way.and_then(|way| way.client.namespace.as_deref());
        namespace.map(|namespace| agent(Some(namespace), stop)).transpose()
    }

    /// The card of the guest that is the client.
    pub(super) fn card(&self) -> Option<&GuestNic> {
        self.laid.as_ref()?.card.as_ref()
    }

    /// The server's process, if it is an agent on this host.
    pub(super) fn server_process(&self) -> Option<u32> {
        match &self.server {
            Server::Here(link) => link.pid(),
            Server::There(_) | Server::Given => None,
        }
    }

    /// The interfaces of both ends; of loopback's ends, which are one place, once.
    pub(super) fn interfaces(&mut self, client: &mut AgentClient) -> anyhow::Result<Vec<Interface>> {
        let via = self.via;
        let mut all = placed(client, "client", via)?;
        if let (Some(link), true) = (self.server.link(), via != NetPath::Loopback) {
            all.extend(placed(link, "server", via)?);
        }
        Ok(all)
    }

    /// The other machine that the server is on, if ssh started it.
    pub(super) fn remote_agent(&mut self) -> Option<&mut RemoteAgent> {
        match &mut self.server {
            Server::There(remote_agent) => Some(remote_agent),
            Server::Here(_) | Server::Given => None,
        }
    }
}

/// Whether packets to a server leave this host over loopback, as far as its name tells: an address of this host's card does too.
fn is_this_host(peer: &Peer) -> bool {
    let found = (peer.host.as_str(), peer.port).to_socket_addrs();
    found.is_ok_and(|mut all| all.any(|address| address.ip().is_loopback()))
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
    // QEMU's own stack speaks to the server over loopback.
    let loopback = match via {
        NetPath::Loopback => true,
        NetPath::User | NetPath::Passt => place == "server",
        NetPath::Veth | NetPath::Bridge | NetPath::Remote | NetPath::Server => false,
    };
    let passed: Vec<Interface> =
        all.into_iter().filter(|interface| (interface.name == "lo") == loopback).collect();
    if via.is_given() && passed.len() != 1 {
        // Nothing tells by which of them the packets go.
        return Ok(Vec::new());
    }
    let placed = |interface: Interface| {
        let place = if place == "server" && via == NetPath::Bridge {
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
        NetPath::Loopback => (name == "lo").then_some("client"),
        NetPath::User | NetPath::Passt => (name == "lo").then_some("server"),
        // What leads to the guest lies between its card and the server.
        NetPath::Bridge if name.starts_with("tap") => Some("host"),
        NetPath::Bridge => (name != "lo").then_some("server"),
        NetPath::Veth | NetPath::Remote | NetPath::Server => (name != "lo").then_some("client"),
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
