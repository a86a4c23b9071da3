//! Builds the network paths for measurements.
//!
//! Everything is in network namespaces of the run, and so are QEMU and the agents: the host's network is not touched, and cannot interfere.
//! Every run can therefore use the same addresses.

mod namespace;
mod preflight;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use iotax_model::target::{GuestSpec, NetPath, NetworkSpec, Nic};

use crate::build_error::BuildError;
use crate::guest::nic::{Backend, GuestNic, HOST_OF_USER};
use crate::netns::Namespace;
use crate::undo::UndoLog;
pub use preflight::check;

/// The kernel's device for moving packets between a tap device and a guest.
const VHOST: &str = "/dev/vhost-net";
/// Address of the server side.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// Address of the client side.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
/// Their prefix length.
const PREFIX: u8 = 30;
/// The address that the user-mode stack would assign by DHCP.
const GUEST_OF_USER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Its prefix length.
const PREFIX_OF_USER: u8 = 24;
const VETH: &str = "veth0";
const BRIDGE: &str = "br0";
const TAP: &str = "tap0";

/// One end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkEnd {
    /// The network namespace of its agent or, for a guest, of QEMU; `None` for this process's.
    pub namespace: Option<String>,
    /// The address at which the other end reaches it.
    pub address: IpAddr,
}

/// A network path, ready to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltNetwork {
    /// The client side.
    pub client: NetworkEnd,
    /// The server side.
    pub server: NetworkEnd,
    /// The address that the server listens on; a network stack on the path may translate addresses.
    pub listen: IpAddr,
    /// The network card of the client's guest; `None` without a guest.
    pub card: Option<GuestNic>,
}

/// Builds a path. `guest` is the client's guest, if any. `tag` must be unique; it is part of all names. The spec must have passed the
/// plan's check and [`check`].
///
/// Returns `None` for a path to another machine, which exists already.
pub fn build(
    spec: &NetworkSpec,
    guest: Option<&GuestSpec>,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<Option<BuiltNetwork>, BuildError> {
    Ok(match spec.via {
        NetPath::Loopback => {
            let side = || NetworkEnd { namespace: None, address: Ipv4Addr::LOCALHOST.into() };
            Some(BuiltNetwork {
                client: side(),
                server: side(),
                listen: Ipv4Addr::LOCALHOST.into(),
                card: None,
            })
        }
        NetPath::Veth => Some(veth(spec, tag, undo_log)?),
        NetPath::Bridge => Some(bridge(spec, guest, tag, undo_log)?),
        NetPath::User => Some(user(spec, Backend::User, tag, undo_log)?),
        NetPath::Passt => Some(user(spec, Backend::Passt, tag, undo_log)?),
        NetPath::Remote | NetPath::Server => None,
    })
}

/// Two namespaces, joined by a pair of interfaces.
fn veth(spec: &NetworkSpec, tag: &str, undo_log: &mut UndoLog) -> Result<BuiltNetwork, BuildError> {
    let client = Namespace::make(format!("iotax-{tag}-client"), undo_log)?;
    let server = Namespace::make(format!("iotax-{tag}-server"), undo_log)?;
    let words = ["link", "add", VETH, "type", "veth", "peer", "name", VETH, "netns", &server.name];
    client.add(undo_log, VETH, "veth", &words)?;
    for (namespace, address) in [(&client, CLIENT), (&server, SERVER)] {
        up(namespace, VETH, Some(address), spec, undo_log)?;
    }
    let side = |namespace: Namespace, address: Ipv4Addr| NetworkEnd {
        namespace: Some(namespace.name),
        address: address.into(),
    };
    Ok(BuiltNetwork {
        client: side(client, CLIENT),
        server: side(server, SERVER),
        listen: SERVER.into(),
        card: None,
    })
}

/// A namespace with a bridge, which has the server's address, and a tap device on it for the guest.
fn bridge(
    spec: &NetworkSpec,
    guest: Option<&GuestSpec>,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<BuiltNetwork, BuildError> {
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
    up(&namespace, BRIDGE, Some(SERVER), spec, undo_log)?;
    let able = spec.nic == Nic::VirtioNet && Path::new(VHOST).exists();
    let card = GuestNic {
        nic: spec.nic,
        backend: Backend::Tap { interface: TAP.to_owned(), vhost: spec.vhost.unwrap_or(able) },
        queues,
        address: (CLIENT, PREFIX),
        mtu: spec.mtu,
        namespace: Some(namespace.name.clone()),
    };
    let side =
        |address: Ipv4Addr| NetworkEnd { namespace: Some(namespace.name.clone()), address: address.into() };
    Ok(BuiltNetwork { client: side(CLIENT), server: side(SERVER), listen: SERVER.into(), card: Some(card) })
}

/// A namespace with only a loopback interface, which a user-mode network stack connects the guest to.
fn user(
    spec: &NetworkSpec,
    backend: Backend,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<BuiltNetwork, BuildError> {
    let namespace = Namespace::make(format!("iotax-{tag}"), undo_log)?;
    let card = GuestNic {
        nic: spec.nic,
        backend,
        queues: 1,
        address: (GUEST_OF_USER, PREFIX_OF_USER),
        mtu: spec.mtu,
        namespace: Some(namespace.name.clone()),
    };
    let side =
        |address: Ipv4Addr| NetworkEnd { namespace: Some(namespace.name.clone()), address: address.into() };
    Ok(BuiltNetwork {
        client: side(GUEST_OF_USER),
        server: side(HOST_OF_USER),
        listen: Ipv4Addr::LOCALHOST.into(),
        card: Some(card),
    })
}

/// The number of queue pairs of a guest's card: one per CPU where several are supported.
fn queues(spec: &NetworkSpec, guest: Option<&GuestSpec>) -> u32 {
    /// The maximum that [`NetworkSpec`] accepts.
    const MOST: u32 = 16;
    spec.queues.unwrap_or(match (spec.nic, guest) {
        (Nic::VirtioNet, Some(guest)) => guest.vcpus.min(MOST),
        _ => 1,
    })
}

/// Configures an interface and brings it up.
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
        assert_eq!(loopback.client, loopback.server);
        assert_eq!((loopback.server.namespace, loopback.listen.is_loopback()), (None, true));
        let remote = NetworkSpec { peer: Some("ssh://box".into()), ..NetworkSpec::new(NetPath::Remote) };
        assert_eq!(build(&remote, None, "t", &mut undo_log).expect("nothing to do"), None);
        assert!(undo_log.undo_all().0.is_empty());
    }
}
