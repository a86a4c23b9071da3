//! Builds network paths and starts their servers.

use std::net::ToSocketAddrs;
use std::time::Duration;

use anyhow::Context;
use iotax_model::net::Peer;
use iotax_model::record::Interface;
use iotax_model::target::{NetPath, NetworkEnds, NetworkStack};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::guest::nic::NicBackend;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::network::{self, BuiltNetwork};
use iotax_testbed::undo::UndoLog;

use super::remote_agent::RemoteAgent;
use super::{RunContext, fresh_seed, fresh_tag, interrupted, own_program};

/// Time limit for an agent's first answer. An agent in a namespace is started through another program.
const AGENT_START: Duration = Duration::from_secs(20);

/// A network path and its server.
pub(super) struct NetworkPath {
    pub(super) via: NetPath,
    server: Server,
    /// The server's address and port.
    pub(super) peer: Peer,
}

enum Server {
    /// An agent on this host, at the end of a path that was built for the run.
    Local { network: Box<BuiltNetwork>, agent: AgentClient },
    /// An agent on another machine.
    Remote(Box<RemoteAgent>),
    /// A server that the plan names and that was already running.
    Given,
}

impl Server {
    fn agent(&mut self) -> Option<&mut AgentClient> {
        match self {
            Self::Local { agent, .. } => Some(agent),
            Self::Remote(remote_agent) => Some(remote_agent.client()),
            Self::Given => None,
        }
    }
}

impl NetworkPath {
    /// Builds the path and starts its server. If the plan names running servers instead, `number` is the index of one of them, and `token`
    /// authenticates to it.
    pub(super) fn build(
        stack: &NetworkStack<'_>,
        number: usize,
        token: Option<&str>,
        remote_agent: Option<RemoteAgent>,
        context: &mut RunContext<'_>,
    ) -> anyhow::Result<Self> {
        let via = stack.spec.via;
        let (server, host) = match &stack.ends {
            NetworkEnds::Servers(servers) => {
                let server = servers.get(number).context("there is no such server")?;
                let peer = Peer { token: token.map(str::to_owned), ..server.clone() };
                let via = if is_this_host(&peer) { NetPath::Loopback } else { via };
                return Ok(Self { via, server: Server::Given, peer });
            }
            NetworkEnds::Remote(_) => {
                let remote_agent = remote_agent.context("there is no agent at the server")?;
                let host = remote_agent.address()?;
                (Server::Remote(Box::new(remote_agent)), host)
            }
            NetworkEnds::Local(path) => {
                // Interfaces on this host need names that are unique per path.
                let network = network::build(stack.spec, *path, &fresh_tag()?, context.undo_log)?;
                let agent = agent(network.server.namespace.as_deref(), context.stop)?;
                let host = network.server.address.to_string();
                (Server::Local { network: Box::new(network), agent }, host)
            }
        };
        let mut path = Self { via, server, peer: Peer::at(host, 0) };
        path.listen()?;
        Ok(path)
    }

    /// Makes the server listen, unless it was already running. On another machine, clients need a token.
    fn listen(&mut self) -> anyhow::Result<()> {
        let (port, token) = match &mut self.server {
            Server::Given => return Ok(()),
            Server::Local { network, agent } => (agent.serve(&network.listen.to_string(), None), None),
            Server::Remote(remote_agent) => {
                let token = format!("{:016x}", fresh_seed()?);
                let agent = remote_agent.client();
                let port = agent.serve("::", Some(&token)).or_else(|error| match error {
                    // A machine without IPv6.
                    AgentError::Failed { .. } => agent.serve("0.0.0.0", Some(&token)),
                    other => Err(other),
                });
                (port, Some(token))
            }
        };
        self.peer.port = port.map_err(interrupted)?;
        self.peer.token = token;
        Ok(())
    }

    /// Replaces the server after a failure. A server on another machine is replaced only before the next measurement; a server that the
    /// plan names is left alone.
    pub(super) fn restart(&mut self, stop: &Interrupt) -> anyhow::Result<()> {
        match &mut self.server {
            Server::Local { network, agent: server } => {
                *server = agent(network.server.namespace.as_deref(), stop)?;
                self.listen()
            }
            Server::Remote(remote_agent) => {
                remote_agent.give_up();
                Ok(())
            }
            Server::Given => Ok(()),
        }
    }

    /// Reconnects to the server's machine if the connection was given up.
    pub(super) fn reconnect(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match &mut self.server {
            Server::Remote(remote_agent) if remote_agent.is_given_up() => {
                remote_agent.reconnect(undo_log)?;
                self.listen()
            }
            _ => Ok(()),
        }
    }

    /// Starts the client's agent in its network namespace; `None` if the client is a guest or needs no namespace.
    pub(super) fn client_agent(&self, stop: &Interrupt) -> anyhow::Result<Option<AgentClient>> {
        let namespace = match &self.server {
            Server::Local { network, .. } if network.nic.is_none() => network.client.namespace.as_deref(),
            Server::Local { .. } | Server::Remote(_) | Server::Given => None,
        };
        namespace.map(|namespace| agent(Some(namespace), stop)).transpose()
    }

    /// Returns the network backend for the guest that is the client; `None` if the client is not a guest.
    pub(super) fn nic(&self) -> Option<&NicBackend> {
        match &self.server {
            Server::Local { network, .. } => network.nic.as_ref(),
            Server::Remote(_) | Server::Given => None,
        }
    }

    /// Returns the server's process id; `None` unless the server is an agent on this host.
    pub(super) fn server_process(&self) -> Option<u32> {
        match &self.server {
            Server::Local { agent, .. } => agent.pid(),
            Server::Remote(_) | Server::Given => None,
        }
    }

    /// Returns the network interfaces at the client's end, and those at the server's end if an agent runs there. On loopback both ends are
    /// the same, and are listed once.
    pub(super) fn interfaces(&mut self, client: &mut AgentClient) -> anyhow::Result<Vec<Interface>> {
        let via = self.via;
        let mut all = path_interfaces(client, "client", via)?;
        if let (Some(agent), true) = (self.server.agent(), via != NetPath::Loopback) {
            all.extend(path_interfaces(agent, "server", via)?);
        }
        Ok(all)
    }

    /// Returns the agent on the server's machine, if that agent was started over ssh; `None` otherwise.
    pub(super) fn remote_agent(&mut self) -> Option<&mut RemoteAgent> {
        match &mut self.server {
            Server::Remote(remote_agent) => Some(remote_agent),
            Server::Local { .. } | Server::Given => None,
        }
    }
}

/// Returns whether the server's name resolves to a loopback address. Other addresses of this host are not recognized.
fn is_this_host(peer: &Peer) -> bool {
    let found = (peer.host.as_str(), peer.port).to_socket_addrs();
    found.is_ok_and(|mut all| all.any(|address| address.ip().is_loopback()))
}

/// Starts an agent on this host in a network namespace; `None` means the namespace of this process.
fn agent(namespace: Option<&str>, stop: &Interrupt) -> anyhow::Result<AgentClient> {
    let mut agent = AgentClient::spawn_in(namespace, own_program(), stop)?;
    agent.hello(AGENT_START).map_err(interrupted)?;
    Ok(agent)
}

/// Returns the interfaces that packets may pass at the end `position`, which is `client` or `server`. On a path that iotax did not build,
/// returns them only if there is exactly one.
fn path_interfaces(agent: &mut AgentClient, position: &str, via: NetPath) -> anyhow::Result<Vec<Interface>> {
    let all = agent.interfaces().map_err(interrupted)?;
    // QEMU's user-mode stack reaches the server over loopback.
    let loopback = match via {
        NetPath::Loopback => true,
        NetPath::User | NetPath::Passt => position == "server",
        NetPath::Veth | NetPath::Bridge | NetPath::Remote | NetPath::Server => false,
    };
    let passed: Vec<Interface> =
        all.into_iter().filter(|interface| (interface.name == "lo") == loopback).collect();
    if via.is_given() && passed.len() != 1 {
        // The packets may pass any of these interfaces.
        return Ok(Vec::new());
    }
    let with_position = |interface: Interface| {
        let position = if position == "server" && via == NetPath::Bridge {
            watched_at(via, &interface.name).unwrap_or(position)
        } else {
            position
        };
        Interface { position: position.to_owned(), ..interface }
    };
    Ok(passed.into_iter().map(with_position).collect())
}

/// Returns the part of the path that an interface on this host belongs to: `client`, `server`, or `host` for a tap device. `None` if the
/// packets do not pass it.
pub(super) fn watched_at(via: NetPath, name: &str) -> Option<&'static str> {
    match via {
        NetPath::Loopback => (name == "lo").then_some("client"),
        NetPath::User | NetPath::Passt => (name == "lo").then_some("server"),
        // The tap device is between the guest's card and the server.
        NetPath::Bridge if name.starts_with("tap") => Some("host"),
        NetPath::Bridge => (name != "lo").then_some("server"),
        NetPath::Veth | NetPath::Remote | NetPath::Server => (name != "lo").then_some("client"),
    }
}
