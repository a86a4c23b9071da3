//! Paths that packets take between two ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Remote;
use crate::net::{PORT, Peer};
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
        /// A guest's NIC and QEMU's own network stack in user mode (slirp).
        User = "user",
        /// A guest's NIC and passt(1), a network stack in user mode beside QEMU.
        Passt = "passt",
        /// Another machine, where `peer` says and ssh starts the server.
        Remote = "remote",
        /// A server that runs already, where `peer` says: `iotax net serve` or `iperf3 -s`.
        Server = "server",
    }
}

impl NetPath {
    /// Whether a program carries its packets, which ends their connections and begins them anew.
    #[must_use]
    pub const fn is_in_user_mode(self) -> bool {
        matches!(self, Self::User | Self::Passt)
    }

    /// Whether it leads to another machine, over interfaces that were not made for the run.
    #[must_use]
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Remote | Self::Server)
    }

    /// Whether its client is a guest.
    #[must_use]
    pub const fn needs_guest(self) -> bool {
        matches!(self, Self::Bridge | Self::User | Self::Passt)
    }
}

words! {
    /// The network card that a guest sees, as QEMU names them.
    Nic, "nic" {
        /// virtio-net.
        VirtioNet = "virtio-net",
        /// Intel's 82540EM of 2002.
        E1000 = "e1000",
        /// Intel's 82574L of 2008.
        E1000e = "e1000e",
    }
}

/// A path between two ends, which is measured instead of storage. What it needs is made for the run in network namespaces of its
/// own: the host's network is not touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// loopback, veth, bridge, user, passt, remote or server
    pub via: NetPath,
    /// The guest's card
    #[serde(default = "virtio_net")]
    pub nic: Nic,
    /// Pairs of queues of the guest's card [default: as many as the guest has CPUs, for virtio-net on a bridge; else 1]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues: Option<u32>,
    /// Whether the host's kernel moves the guest's packets instead of QEMU [default: where it can]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vhost: Option<bool>,
    /// Largest packet in bytes, on a veth pair or a bridge [default: the kernel's own]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u32>,
    /// The other end. Of a remote path `ssh://[user@]host[:port]`, where ssh starts an agent; of a server `host[:port]`, or several
    /// with commas between, which are measured at the same time
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// The client's address towards a server
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bind: Option<String>,
    /// The client's first port towards a server
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cport: Option<u16>,
    /// The file whose first line is the token that a server asks for, or `$IOTAX_TOKEN` for that of the environment
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub auth: Option<String>,
}

const fn virtio_net() -> Nic {
    Nic::VirtioNet
}

impl NetworkSpec {
    /// A way with all else left to its default.
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

    /// The servers that run already, none for any other path. Must have passed the check of its target.
    #[must_use]
    pub fn servers(&self) -> Vec<Peer> {
        self.read_servers().unwrap_or_default()
    }

    fn read_servers(&self) -> Result<Vec<Peer>, String> {
        let names = self.peer.iter().filter(|_| self.via == NetPath::Server).flat_map(|peer| peer.split(','));
        let server = |name: &str| {
            let peer = Peer::parse(name.trim(), PORT)?;
            Ok(Peer { bind: self.bind.clone(), cport: self.cport, ..peer })
        };
        names.map(server).collect()
    }

    /// The other machine on which ssh starts the server. Must have passed the check of its target.
    #[must_use]
    pub fn server_machine(&self) -> Option<Remote> {
        if self.via != NetPath::Remote {
            return None;
        }
        // A path is what a remote place has else; an agent needs none.
        Remote::parse(&format!("{}/-", self.peer.as_ref()?.trim_end_matches('/'))).ok()
    }

    /// Refuses what cannot be made; `in_guest` is whether there is one.
    pub(super) fn check(&self, in_guest: bool) -> Result<(), String> {
        let via = self.via;
        if via.needs_guest() && !in_guest {
            return Err(format!("network.via = \"{via}\" begins in a guest; add guest = {{}}"));
        }
        if in_guest && !via.needs_guest() {
            return Err(format!(
                "network.via = \"{via}\" has no guest; accepted with one: bridge, user, passt"
            ));
        }
        match (&self.peer, via) {
            (None, NetPath::Remote) => {
                return Err("network.via = \"remote\" needs peer = \"ssh://[user@]host[:port]\"".into());
            }
            (Some(peer), NetPath::Remote) if self.server_machine().is_none() => {
                return Err(format!("network.peer = {peer:?}: accepted: ssh://[user@]host[:port]"));
            }
            (None, NetPath::Server) => {
                return Err("network.via = \"server\" needs peer = \"host[:port]\"".into());
            }
            (Some(peer), _) if !via.is_given() => {
                return Err(format!("network.peer = {peer:?}: it is for via = \"remote\" and \"server\""));
            }
            _ => {}
        }
        self.read_servers().map_err(|why| format!("network.peer: {why}"))?;
        let of_server =
            [("bind", self.bind.is_some()), ("cport", self.cport.is_some()), ("auth", self.auth.is_some())];
        if let (Some((key, _)), true) = (of_server.iter().find(|(_, given)| *given), via != NetPath::Server) {
            return Err(format!("network.{key}: it is for via = \"server\""));
        }
        if let Some(queues) = self.queues {
            if queues == 0 || queues > 16 {
                return Err(format!("network.queues = {queues}: accepted: 1 to 16"));
            }
            if queues > 1 && !(via == NetPath::Bridge && self.nic == Nic::VirtioNet) {
                return Err(format!("network.queues = {queues}: only virtio-net on a bridge has several"));
            }
        }
        if self.vhost == Some(true) && !(via == NetPath::Bridge && self.nic == Nic::VirtioNet) {
            return Err("network.vhost = true: only for virtio-net on a bridge".into());
        }
        if let (Some(mtu), false) = (self.mtu, matches!(via, NetPath::Veth | NetPath::Bridge)) {
            return Err(format!(
                "network.mtu = {mtu}: not every part of via = \"{via}\" takes it; accepted for veth and bridge"
            ));
        }
        match self.mtu {
            Some(mtu) if !(576..=65535).contains(&mtu) => {
                Err(format!("network.mtu = {mtu}: accepted: 576 to 65535"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_paths_are_refused_with_the_reason() {
        let path = NetworkSpec::new;
        for (good, guest) in [(path(NetPath::Veth), false), (path(NetPath::Bridge), true)] {
            assert_eq!(good.check(guest), Ok(()));
        }
        let remote = NetworkSpec { peer: Some("ssh://me@box:22".into()), ..path(NetPath::Remote) };
        assert_eq!(
            (remote.check(false), remote.server_machine().map(|machine| machine.destination)),
            (Ok(()), Some("me@box".into()))
        );
        let servers =
            NetworkSpec { peer: Some("box, [::1]:99".into()), cport: Some(7), ..path(NetPath::Server) };
        assert_eq!(servers.check(false), Ok(()));
        let found = servers.servers().into_iter().map(|peer| (peer.host, peer.port, peer.cport));
        assert_eq!(found.collect::<Vec<_>>(), [("box".into(), PORT, Some(7)), ("::1".into(), 99, Some(7))]);
        for (bad, guest, words) in [
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
            let refusal = bad.check(guest).expect_err(words);
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
