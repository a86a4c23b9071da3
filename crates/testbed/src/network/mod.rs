//! Builds the ways between two ends that a network's measurements take.
//!
//! All that is made lies in network namespaces of the run, and QEMU and the agents run in them: the host's own network is not
//! touched, and nothing there can be in the way. Addresses can be the same for every run for that reason.

mod namespace;
mod preflight;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use iotax_model::target::{GuestSpec, NetPath, NetworkSpec, Nic};

use crate::build_error::BuildError;
use crate::guest::nic::{Backend, Card, HOST_OF_USER};
use crate::netns::Namespace;
use crate::undo::UndoLog;
pub use preflight::check;

/// By which the kernel moves packets between a tap device and a guest.
const VHOST: &str = "/dev/vhost-net";
/// The far end of what is made here.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// The near end.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
/// Length of their network's prefix.
const PREFIX: u8 = 30;
/// The address that it would give a guest that asked for one.
const GUEST_OF_USER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Length of their network's prefix.
const PREFIX_OF_USER: u8 = 24;
const VETH: &str = "veth0";
const BRIDGE: &str = "br0";
const TAP: &str = "tap0";

/// One end of a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The network namespace that its agent runs in, or QEMU, of a guest; absent: this process's.
    pub namespace: Option<String>,
    /// By which the other end reaches it.
    pub address: IpAddr,
}

/// A way between two ends, ready to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Where the client is.
    pub near: Side,
    /// Where the server is.
    pub far: Side,
    /// What the server listens on there; a network stack between the ends may have changed the address.
    pub listen: IpAddr,
    /// The card of the guest that is its near end; absent where that is no guest.
    pub card: Option<Card>,
}

/// Builds a way. `guest` is the near end's if it has one, `tag` stands in the names of what is made and must be this way's alone.
/// The description must have passed the plan's check and [`check`].
///
/// A way to another machine is there already: it has none of this, and none is returned.
pub fn build(
    spec: &NetworkSpec,
    guest: Option<&GuestSpec>,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<Option<Way>, BuildError> {
    Ok(match spec.via {
        NetPath::Loopback => {
            let side = || Side { namespace: None, address: Ipv4Addr::LOCALHOST.into() };
            Some(Way { near: side(), far: side(), listen: Ipv4Addr::LOCALHOST.into(), card: None })
        }
        NetPath::Veth => Some(veth(spec, tag, undo_log)?),
        NetPath::Bridge => Some(bridge(spec, guest, tag, undo_log)?),
        NetPath::User => Some(user(spec, Backend::User, tag, undo_log)?),
        NetPath::Passt => Some(user(spec, Backend::Passt, tag, undo_log)?),
        NetPath::Remote => None,
    })
}

/// Two namespaces and a pair of interfaces, one in each.
fn veth(spec: &NetworkSpec, tag: &str, undo_log: &mut UndoLog) -> Result<Way, BuildError> {
    let near = Namespace::make(format!("iotax-{tag}-near"), undo_log)?;
    let far = Namespace::make(format!("iotax-{tag}-far"), undo_log)?;
    let words = ["link", "add", VETH, "type", "veth", "peer", "name", VETH, "netns", &far.name];
    near.add(undo_log, VETH, "veth", &words)?;
    for (namespace, address) in [(&near, NEAR), (&far, FAR)] {
        up(namespace, VETH, Some(address), spec, undo_log)?;
    }
    let side = |namespace: Namespace, address: Ipv4Addr| Side {
        namespace: Some(namespace.name),
        address: address.into(),
    };
    Ok(Way { near: side(near, NEAR), far: side(far, FAR), listen: FAR.into(), card: None })
}

/// A namespace with a bridge, which has the far end's address, and a tap device on it for the guest.
fn bridge(
    spec: &NetworkSpec,
    guest: Option<&GuestSpec>,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<Way, BuildError> {
    let namespace = Namespace::make(format!("iotax-{tag}"), undo_log)?;
    let queues = queues(spec, guest);
    namespace.add(undo_log, BRIDGE, "bridge", &["link", "add", BRIDGE, "type", "bridge"])?;
    let mut tap = vec!["tuntap", "add", "dev", TAP, "mode", "tap", "vnet_hdr"];
    if queues > 1 {
        tap.push("multi_queue");
    }
    namespace.add(undo_log, TAP, "tap", &tap)?;
    namespace.ip(undo_log, &["link", "set", TAP, "master", BRIDGE])?;
    up(&namespace, TAP, None, spec, undo_log)?;
    up(&namespace, BRIDGE, Some(FAR), spec, undo_log)?;
    let able = spec.nic == Nic::VirtioNet && Path::new(VHOST).exists();
    let card = Card {
        nic: spec.nic,
        backend: Backend::Tap { interface: TAP.to_owned(), vhost: spec.vhost.unwrap_or(able) },
        queues,
        address: (NEAR, PREFIX),
        mtu: spec.mtu,
        namespace: Some(namespace.name.clone()),
    };
    let side = |address: Ipv4Addr| Side { namespace: Some(namespace.name.clone()), address: address.into() };
    Ok(Way { near: side(NEAR), far: side(FAR), listen: FAR.into(), card: Some(card) })
}

/// A namespace with nothing but its loopback interface, to which a network stack in user mode leads the guest.
fn user(spec: &NetworkSpec, backend: Backend, tag: &str, undo_log: &mut UndoLog) -> Result<Way, BuildError> {
    let namespace = Namespace::make(format!("iotax-{tag}"), undo_log)?;
    let card = Card {
        nic: spec.nic,
        backend,
        queues: 1,
        address: (GUEST_OF_USER, PREFIX_OF_USER),
        mtu: spec.mtu,
        namespace: Some(namespace.name.clone()),
    };
    let side = |address: Ipv4Addr| Side { namespace: Some(namespace.name.clone()), address: address.into() };
    Ok(Way {
        near: side(GUEST_OF_USER),
        far: side(HOST_OF_USER),
        listen: Ipv4Addr::LOCALHOST.into(),
        card: Some(card),
    })
}

/// Pairs of queues of a guest's card: one for each CPU where it can have several.
fn queues(spec: &NetworkSpec, guest: Option<&GuestSpec>) -> u32 {
    /// What [`NetworkSpec`] accepts.
    const MOST: u32 = 16;
    spec.queues.unwrap_or(match (spec.nic, guest) {
        (Nic::VirtioNet, Some(guest)) => guest.vcpus.min(MOST),
        _ => 1,
    })
}

/// Gives an interface what it is to have and brings it up.
fn up(
    namespace: &Namespace,
    interface: &str,
    address: Option<Ipv4Addr>,
    spec: &NetworkSpec,
    undo_log: &UndoLog,
) -> Result<(), BuildError> {
    if let Some(mtu) = spec.mtu {
        namespace.ip(undo_log, &["link", "set", interface, "mtu", &mtu.to_string()])?;
    }
    if let Some(address) = address {
        namespace.ip(undo_log, &["address", "add", &format!("{address}/{PREFIX}"), "dev", interface])?;
    }
    namespace.ip(undo_log, &["link", "set", interface, "up"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_a_pair_of_queues_for_each_cpu_where_it_can() {
        let guest = |vcpus| GuestSpec { vcpus, ..GuestSpec::default() };
        let bridge = NetworkSpec::new(NetPath::Bridge);
        assert_eq!(queues(&bridge, Some(&guest(4))), 4);
        assert_eq!(queues(&bridge, Some(&guest(64))), 16);
        assert_eq!(queues(&NetworkSpec { queues: Some(2), ..bridge.clone() }, Some(&guest(4))), 2);
        assert_eq!(queues(&NetworkSpec { nic: Nic::E1000, ..bridge }, Some(&guest(4))), 1);
    }

    #[test]
    fn loopback_and_another_machine_need_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut undo_log = UndoLog::create(dir.path(), "t").expect("an undo log");
        let loopback = build(&NetworkSpec::new(NetPath::Loopback), None, "t", &mut undo_log).expect("built");
        let loopback = loopback.expect("a way");
        assert_eq!(loopback.near, loopback.far);
        assert_eq!((loopback.far.namespace, loopback.listen.is_loopback()), (None, true));
        let remote = NetworkSpec { peer: Some("ssh://box".into()), ..NetworkSpec::new(NetPath::Remote) };
        assert_eq!(build(&remote, None, "t", &mut undo_log).expect("nothing to do"), None);
        assert!(undo_log.undo_all().0.is_empty());
    }
}
