//! Network paths between a client and a server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, GuestSpec, LayerInterface, LayerType, Part, PlannedLayer, Segments,
    keys,
};
use crate::net::{PORT, Peer};
use crate::target::{Machine, Remote};
use crate::words::words;

words! {
    /// The path between client and server.
    NetPath, "via" {
        /// The kernel's loopback interface.
        Loopback = "loopback",
        /// A veth pair between two network namespaces.
        Veth = "veth",
        /// A guest's NIC, a tap device and a bridge on this host.
        Bridge = "bridge",
        /// A guest's NIC and QEMU's user-mode network stack (slirp).
        User = "user",
        /// A guest's NIC and passt(1), a user-mode network stack outside of QEMU.
        Passt = "passt",
        /// Another machine, given by `peer`, on which iotax starts the server over ssh.
        Remote = "remote",
        /// A server that is already running, given by `peer`: `iotax net serve` or `iperf3 -s`.
        Server = "server",
    }
}

impl NetPath {
    /// Returns whether the packets pass through a user-space network stack, which terminates connections and opens new ones.
    #[must_use]
    pub const fn is_in_user_mode(self) -> bool {
        matches!(self, Self::User | Self::Passt)
    }

    /// Returns whether the server is the one that `peer` names, on another machine or already running.
    #[must_use]
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Remote | Self::Server)
    }

    /// Returns whether the client is a guest.
    #[must_use]
    pub const fn needs_guest(self) -> bool {
        matches!(self, Self::Bridge | Self::User | Self::Passt)
    }
}

words! {
    /// The model of the guest's network card, under QEMU's names.
    Nic, "nic" {
        /// virtio-net.
        VirtioNet = "virtio-net",
        /// Intel's 82540EM of 2002.
        E1000 = "e1000",
        /// Intel's 82574L of 2008.
        E1000e = "e1000e",
    }
}

/// A network path between two ends, measured instead of storage. For veth, bridge, user and passt, iotax builds it for the run in separate
/// network namespaces and does not change the host's network; loopback, remote and server use the host's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// loopback, veth, bridge, user, passt, remote or server
    pub via: NetPath,
    /// The network card that the guest sees
    #[serde(default = "virtio_net")]
    pub nic: Nic,
    /// Queue pairs of the guest's network card [default: as many as the guest has CPUs, for virtio-net on a bridge; else 1]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues: Option<u32>,
    /// virtio-net on a bridge: true if the host's kernel moves the guest's packets instead of QEMU [default: true if available]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vhost: Option<bool>,
    /// Largest packet in bytes, on a veth pair or a bridge [default: the kernel's default]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u32>,
    /// The other end: with via = "remote" `ssh://[user@]host[:port]`, where iotax starts an agent over ssh; with via = "server"
    /// `host[:port]`, or several separated by commas, which are measured at the same time
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// With via = "server": local address that the client binds to [default: the kernel's choice]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bind: Option<String>,
    /// With via = "server": first local port that the client uses [default: the kernel's choice]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cport: Option<u16>,
    /// With via = "server": file whose first line is the token that the server requires, or `$IOTAX_TOKEN` to take the token from the
    /// environment [default: no token]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub auth: Option<String>,
}

/// A network path whose settings have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkStack<'a> {
    /// Settings of the path, as in the plan.
    pub spec: &'a NetworkSpec,
    /// Client and server of the path, as derived from the settings.
    pub ends: NetworkEnds<'a>,
}

/// The location of client and server of a network path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkEnds<'a> {
    /// Client and server on this machine.
    Local(LocalPath<'a>),
    /// The client is on this machine, and the server on another machine, where iotax starts it over ssh.
    Remote(Remote),
    /// Servers that are already running, measured at the same time.
    Servers(Vec<Peer>),
}

/// A network path within this machine; iotax builds all but the loopback interface for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalPath<'a> {
    /// The kernel's loopback interface.
    Loopback,
    /// A veth pair between two network namespaces.
    Veth,
    /// A guest's NIC, connected to a bridge on the host by a tap device.
    Bridge(&'a GuestSpec),
    /// A guest's NIC, connected by QEMU's user-mode network stack (slirp).
    User(&'a GuestSpec),
    /// A guest's NIC, connected by passt(1), a user-mode network stack outside of QEMU.
    Passt(&'a GuestSpec),
}

impl<'a> NetworkEnds<'a> {
    /// Returns the guest in which the client runs; `None` if the client runs on the host.
    #[must_use]
    pub const fn guest(&self) -> Option<&'a GuestSpec> {
        match self {
            Self::Local(LocalPath::Bridge(guest) | LocalPath::User(guest) | LocalPath::Passt(guest)) => {
                Some(guest)
            }
            Self::Local(LocalPath::Loopback | LocalPath::Veth) | Self::Remote(_) | Self::Servers(_) => None,
        }
    }
}

const fn virtio_net() -> Nic {
    Nic::VirtioNet
}

impl NetworkSpec {
    /// Creates the settings of a network path of this kind, with defaults for the other keys.
    #[must_use]
    pub const fn new(via: NetPath) -> Self {
        Self {
            via,
            nic: Nic::VirtioNet,
            queues: None,
            vhost: None,
            mtu: None,
            peer: None,
            bind: None,
            cport: None,
            auth: None,
        }
    }

    /// Checks the settings and derives the client and server. `guest` is the guest of the target, if it has one.
    ///
    /// # Errors
    /// The settings are not valid or contradict each other; the message gives the reason.
    pub(in crate::target) fn stack<'a>(
        &'a self,
        guest: Option<&'a GuestSpec>,
    ) -> Result<NetworkStack<'a>, String> {
        let ends = self.ends(guest)?;
        self.check_server_keys()?;
        self.check_card()?;
        self.check_mtu()?;
        Ok(NetworkStack { spec: self, ends })
    }

    fn ends<'a>(&'a self, guest: Option<&'a GuestSpec>) -> Result<NetworkEnds<'a>, String> {
        let via = self.via;
        let local = match (via, guest) {
            (NetPath::Bridge, Some(guest)) => LocalPath::Bridge(guest),
            (NetPath::User, Some(guest)) => LocalPath::User(guest),
            (NetPath::Passt, Some(guest)) => LocalPath::Passt(guest),
            (NetPath::Bridge | NetPath::User | NetPath::Passt, None) => {
                return Err(format!("network.via = \"{via}\" begins in a guest; add guest = {{}}"));
            }
            (_, Some(_)) => {
                return Err(format!(
                    "network.via = \"{via}\" has no guest; accepted with one: bridge, user, passt"
                ));
            }
            (NetPath::Loopback, None) => LocalPath::Loopback,
            (NetPath::Veth, None) => LocalPath::Veth,
            (NetPath::Remote, None) => return self.server_machine().map(NetworkEnds::Remote),
            (NetPath::Server, None) => return self.servers().map(NetworkEnds::Servers),
        };
        match &self.peer {
            Some(peer) => Err(format!("network.peer = {peer:?}: it is for via = \"remote\" and \"server\"")),
            None => Ok(NetworkEnds::Local(local)),
        }
    }

    /// Returns the machine given by `peer`, on which iotax starts the server over ssh.
    ///
    /// # Errors
    /// `peer` is missing or not the URL of a machine reached by ssh.
    fn server_machine(&self) -> Result<Remote, String> {
        let Some(peer) = &self.peer else {
            return Err("network.via = \"remote\" needs peer = \"ssh://[user@]host[:port]\"".into());
        };
        match peer.parse() {
            // The path is a placeholder: no file on that machine is measured.
            Ok(machine @ Machine::Ssh { .. }) => Ok(Remote { machine, path: "/".into() }),
            _ => Err(format!("network.peer = {peer:?}: accepted: ssh://[user@]host[:port]")),
        }
    }

    /// Returns the addresses of servers that are already running, as given by `peer`.
    ///
    /// # Errors
    /// `peer` is missing, or one of its addresses is not valid.
    fn servers(&self) -> Result<Vec<Peer>, String> {
        let Some(peers) = &self.peer else {
            return Err("network.via = \"server\" needs peer = \"host[:port]\"".into());
        };
        let server = |name: &str| {
            let peer = Peer::parse(name.trim(), PORT).map_err(|why| format!("network.peer: {why}"))?;
            Ok(Peer { bind: self.bind.clone(), cport: self.cport, ..peer })
        };
        peers.split(',').map(server).collect()
    }

    fn check_server_keys(&self) -> Result<(), String> {
        let keys =
            [("bind", self.bind.is_some()), ("cport", self.cport.is_some()), ("auth", self.auth.is_some())];
        match keys.iter().find(|(_, given)| *given) {
            Some((key, _)) if self.via != NetPath::Server => {
                Err(format!("network.{key}: it is for via = \"server\""))
            }
            _ => Ok(()),
        }
    }

    fn check_card(&self) -> Result<(), String> {
        let is_virtio_bridge = self.via == NetPath::Bridge && self.nic == Nic::VirtioNet;
        if let Some(queues) = self.queues {
            if queues == 0 || queues > 16 {
                return Err(format!("network.queues = {queues}: accepted: 1 to 16"));
            }
            if queues > 1 && !is_virtio_bridge {
                return Err(format!("network.queues = {queues}: only virtio-net on a bridge has several"));
            }
        }
        if self.vhost == Some(true) && !is_virtio_bridge {
            return Err("network.vhost = true: only for virtio-net on a bridge".into());
        }
        Ok(())
    }

    fn check_mtu(&self) -> Result<(), String> {
        let Some(mtu) = self.mtu else { return Ok(()) };
        let via = self.via;
        if !matches!(via, NetPath::Veth | NetPath::Bridge) {
            return Err(format!(
                "network.mtu = {mtu}: not every part of via = \"{via}\" takes it; accepted for veth and bridge"
            ));
        }
        if !(576..=65535).contains(&mtu) {
            return Err(format!("network.mtu = {mtu}: accepted: 576 to 65535"));
        }
        Ok(())
    }
}

impl LayerType for NetworkSpec {
    fn key(&self) -> &'static str {
        "network"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        if self.via.needs_guest() { LayerInterface::GuestNetwork } else { LayerInterface::Found }
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn wants_filesystem(&self) -> Option<&'static str> {
        Some("it is a network; give a path, file, device or lvm")
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { via, nic: _, queues: _, vhost: _, mtu: _, peer: _, bind: _, cport: _, auth: _ } = self;
        if via.is_given() {
            return Err(format!("network.via = \"{via}\" leads to another machine"));
        }
        Ok(())
    }

    /// Returns no parts: client, server and links of networks are compared by other code.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let path = match self.via {
            NetPath::Loopback => "loopback".to_owned(),
            NetPath::Veth => "veth pair".to_owned(),
            NetPath::Bridge => "bridge".to_owned(),
            NetPath::User => "user network (slirp)".to_owned(),
            NetPath::Passt => "passt".to_owned(),
            NetPath::Remote | NetPath::Server => {
                format!("to {}", super::word(self.peer.as_deref().unwrap_or_default()))
            }
        };
        let of_path = keys(self, None, &["via", "peer", "nic", "queues", "vhost"]);
        let mut segments = vec![format!("{path}{of_path}")];
        if self.via == NetPath::Bridge {
            segments.push("tap".into());
        }
        if self.via.needs_guest() {
            let of_card = keys(self, None, &["via", "peer", "nic", "mtu", "bind", "cport", "auth"]);
            segments.push(format!("{}{of_card}", self.nic));
        }
        segments
    }
}

impl FromLine for NetworkSpec {
    const FORMS: &[&str] = &["loopback", "veth pair", "bridge", "passt", "to HOST"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let words: Vec<&str> = segments.next_words()?.iter().map(String::as_str).collect();
        let (via, peer) = match words[..] {
            ["loopback"] => (NetPath::Loopback, None),
            ["veth", "pair"] => (NetPath::Veth, None),
            ["bridge"] => (NetPath::Bridge, None),
            ["user", "network", "(slirp)"] => (NetPath::User, None),
            ["passt"] => (NetPath::Passt, None),
            ["to", peer] if peer.starts_with("ssh://") => (NetPath::Remote, Some(peer.to_owned())),
            ["to", peer] => (NetPath::Server, Some(peer.to_owned())),
            _ => return None,
        };
        let mut path = segments.take();
        if via == NetPath::Bridge && segments.next_words().is_some_and(|words| words == ["tap"]) {
            segments.take();
        }
        let mut pairs = vec![("via", via.word().into())];
        pairs.extend(peer.map(|peer| ("peer", peer.into())));
        if via.needs_guest()
            && let Some([nic]) = segments.next_words()
            && let Ok(nic) = nic.parse::<Nic>()
        {
            pairs.push(("nic", nic.word().into()));
            path.keys.extend(segments.take().keys);
        }
        Some(path.spec(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_paths_are_refused_with_the_reason() {
        let path = NetworkSpec::new;
        let machine = GuestSpec::default();
        let guest = |in_guest: bool| in_guest.then_some(&machine);
        for (good, in_guest) in [(path(NetPath::Veth), false), (path(NetPath::Bridge), true)] {
            assert_eq!(good.stack(guest(in_guest)).map(drop), Ok(()));
        }
        let remote = NetworkSpec { peer: Some("ssh://me@box:22".into()), ..path(NetPath::Remote) };
        let machine = Machine::Ssh { destination: "me@box".into(), port: Some(22) };
        let there = Remote { machine, path: "/".into() };
        assert_eq!(remote.stack(None).map(|stack| stack.ends), Ok(NetworkEnds::Remote(there)));
        let servers =
            NetworkSpec { peer: Some("box, [::1]:99".into()), cport: Some(7), ..path(NetPath::Server) };
        let Ok(NetworkStack { ends: NetworkEnds::Servers(found), .. }) = servers.stack(None) else {
            panic!("{:?}", servers.stack(None))
        };
        let found = found.into_iter().map(|peer| (peer.host, peer.port, peer.cport));
        assert_eq!(found.collect::<Vec<_>>(), [("box".into(), PORT, Some(7)), ("::1".into(), 99, Some(7))]);
        for (bad, in_guest, words) in [
            (path(NetPath::Server), false, "needs peer = \"host[:port]\""),
            (NetworkSpec { peer: Some("box,:9".into()), ..path(NetPath::Server) }, false, "accepted: HOST"),
            (
                NetworkSpec { bind: Some("::1".into()), ..path(NetPath::Veth) },
                false,
                "network.bind: it is for via",
            ),
            (path(NetPath::Bridge), false, "begins in a guest"),
            (path(NetPath::Loopback), true, "no guest"),
            (path(NetPath::Remote), false, "needs peer"),
            (NetworkSpec { peer: Some("box".into()), ..path(NetPath::Remote) }, false, "accepted: ssh://"),
            (
                NetworkSpec { peer: Some("docker://c".into()), ..path(NetPath::Remote) },
                false,
                "accepted: ssh://",
            ),
            (NetworkSpec { peer: Some("ssh://box".into()), ..path(NetPath::Veth) }, false, "it is for via"),
            (
                NetworkSpec { queues: Some(4), nic: Nic::E1000, ..path(NetPath::Bridge) },
                true,
                "only virtio-net",
            ),
            (NetworkSpec { vhost: Some(true), ..path(NetPath::User) }, true, "only for virtio-net"),
            (NetworkSpec { mtu: Some(9), ..path(NetPath::Veth) }, false, "576 to 65535"),
            (NetworkSpec { mtu: Some(9000), ..path(NetPath::User) }, true, "accepted for veth and bridge"),
        ] {
            let refusal = bad.stack(guest(in_guest)).expect_err(words);
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
