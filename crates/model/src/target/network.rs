//! Paths that packets take between two ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Remote;
use crate::words::words;

words! {
    /// The way between near and far end.
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
        /// Another machine, where `peer` says.
        Remote = "remote",
    }
}

impl NetPath {
    /// Whether a program carries its packets, which ends their connections and begins them anew.
    #[must_use]
    pub const fn is_in_user_mode(self) -> bool {
        matches!(self, Self::User | Self::Passt)
    }

    /// Whether its near end is a guest.
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

/// A way between two ends, which is measured instead of storage. What it needs is made for the run in network namespaces of its
/// own: the host's network is not touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// loopback, veth, bridge, user, passt or remote
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
    /// The far end of a remote path: `ssh://[user@]host[:port]`, where an agent is started
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
}

const fn virtio_net() -> Nic {
    Nic::VirtioNet
}

impl NetworkSpec {
    /// A way with all else left to its default.
    #[must_use]
    pub const fn new(via: NetPath) -> Self {
        Self { via, nic: Nic::VirtioNet, queues: None, vhost: None, mtu: None, peer: None }
    }

    /// The far end's machine, if it is another one. Must have passed the check of its target.
    #[must_use]
    pub fn far(&self) -> Option<Remote> {
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
                "network.via = \"{via}\" has no guest at its near end; accepted with one: bridge, user, passt"
            ));
        }
        match (&self.peer, via) {
            (None, NetPath::Remote) => {
                return Err("network.via = \"remote\" needs peer = \"ssh://[user@]host[:port]\"".into());
            }
            (Some(peer), NetPath::Remote) if self.far().is_none() => {
                return Err(format!("network.peer = {peer:?}: accepted: ssh://[user@]host[:port]"));
            }
            (Some(peer), _) if via != NetPath::Remote => {
                return Err(format!("network.peer = {peer:?}: it is for via = \"remote\""));
            }
            _ => {}
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
        if let (Some(mtu), NetPath::Loopback | NetPath::User | NetPath::Passt | NetPath::Remote) =
            (self.mtu, via)
        {
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
            (remote.check(false), remote.far().map(|far| far.destination)),
            (Ok(()), Some("me@box".into()))
        );
        for (bad, guest, words) in [
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
