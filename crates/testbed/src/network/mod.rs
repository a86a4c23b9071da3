//! Builds the network paths between client and server of a measurement.
//!
//! Except for loopback, all interfaces are in network namespaces of the run, and so are QEMU and the agents. The host's network is not
//! changed and cannot interfere, and every run can use the same addresses.

mod namespace;
mod preflight;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use iotax_model::target::{GuestSpec, LocalPath, NetworkSpec, Nic};

use crate::build_error::BuildError;
use crate::guest::nic::{Backend, HOST_OF_USER, NicBackend};
use crate::netns::Namespace;
use crate::undo::UndoLog;
pub use preflight::check;

/// The kernel's vhost-net device, which moves packets between a tap device and a guest without QEMU.
const VHOST: &str = "/dev/vhost-net";
/// Address of the server's end of a veth or bridge path.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// Address of the client's end of a veth or bridge path.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
/// Prefix length of the addresses `SERVER` and `CLIENT`.
const PREFIX: u8 = 30;
/// Address of the guest on a user-mode network stack, the one that DHCP would assign.
const GUEST_OF_USER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Prefix length of `GUEST_OF_USER`.
const PREFIX_OF_USER: u8 = 24;
const VETH: &str = "veth0";
const BRIDGE: &str = "br0";
const TAP: &str = "tap0";

/// The client's or the server's end of a network path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkEnd {
    /// The network namespace of this end's agent or, for a guest, of its QEMU; `None` for this process's.
    pub namespace: Option<String>,
    /// The address by which the other end reaches this one.
    pub address: IpAddr,
}

/// A network path between client and server, ready to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltNetwork {
    /// The end of the path at which the client runs.
    pub client: NetworkEnd,
    /// The end of the path at which the server runs.
    pub server: NetworkEnd,
    /// The address that the server listens on. It differs from the server's address if a user-mode network stack translates addresses.
    pub listen: IpAddr,
    /// The network card of the guest in which the client runs; `None` without a guest.
    pub nic: Option<NicBackend>,
}

/// Builds a network path. `spec` must have passed [`check`]. `tag` must be unique on this machine; the names of the network namespaces
/// contain it.
pub fn build(
    spec: &NetworkSpec,
    path: LocalPath<'_>,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<BuiltNetwork, BuildError> {
    match path {
        LocalPath::Loopback => {
            let side = || NetworkEnd { namespace: None, address: Ipv4Addr::LOCALHOST.into() };
            let listen = Ipv4Addr::LOCALHOST.into();
            Ok(BuiltNetwork { client: side(), server: side(), listen, nic: None })
        }
        LocalPath::Veth => veth(spec, tag, undo_log),
        LocalPath::Bridge(guest) => bridge(spec, guest, tag, undo_log),
        LocalPath::User(_) => user(spec, Backend::User, tag, undo_log),
        LocalPath::Passt(_) => user(spec, Backend::Passt, tag, undo_log),
    }
}

/// Builds a client and a server namespace, joined by a veth pair.
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
        nic: None,
    })
}

/// Builds a namespace with a bridge that has the server's address, and a tap device on the bridge for the guest.
fn bridge(
    spec: &NetworkSpec,
    guest: &GuestSpec,
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
    let has_vhost = spec.nic == Nic::VirtioNet && Path::new(VHOST).exists();
    let nic = NicBackend {
        nic: spec.nic,
        backend: Backend::Tap { interface: TAP.to_owned(), vhost: spec.vhost.unwrap_or(has_vhost) },
        queues,
        address: (CLIENT, PREFIX),
        mtu: spec.mtu,
        namespace: Some(namespace.name.clone()),
    };
    let side =
        |address: Ipv4Addr| NetworkEnd { namespace: Some(namespace.name.clone()), address: address.into() };
    Ok(BuiltNetwork { client: side(CLIENT), server: side(SERVER), listen: SERVER.into(), nic: Some(nic) })
}

/// Builds a namespace with only a loopback interface, in which a user-mode network stack serves the guest.
fn user(
    spec: &NetworkSpec,
    backend: Backend,
    tag: &str,
    undo_log: &mut UndoLog,
) -> Result<BuiltNetwork, BuildError> {
    let namespace = Namespace::make(format!("iotax-{tag}"), undo_log)?;
    let nic = NicBackend {
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
        nic: Some(nic),
    })
}

/// Returns the number of queue pairs of a guest's network card: as given, else one per CPU (at most 16) for virtio and one for other cards.
fn queues(spec: &NetworkSpec, guest: &GuestSpec) -> u32 {
    /// The maximum that [`NetworkSpec`] accepts.
    const MOST: u32 = 16;
    spec.queues.unwrap_or(match spec.nic {
        Nic::VirtioNet => guest.vcpus.min(MOST),
        Nic::E1000 | Nic::E1000e => 1,
    })
}

/// Sets an interface's MTU and address, if given, and brings it up.
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
    use iotax_model::target::NetPath;

    #[test]
    fn a_card_has_a_pair_of_queues_for_each_cpu_where_it_can() {
        let guest = |vcpus| GuestSpec { vcpus, ..GuestSpec::default() };
        let bridge = NetworkSpec::new(NetPath::Bridge);
        assert_eq!(queues(&bridge, &guest(4)), 4);
        assert_eq!(queues(&bridge, &guest(64)), 16);
        assert_eq!(queues(&NetworkSpec { queues: Some(2), ..bridge.clone() }, &guest(4)), 2);
        assert_eq!(queues(&NetworkSpec { nic: Nic::E1000, ..bridge }, &guest(4)), 1);
    }

    #[test]
    fn loopback_needs_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut undo_log = UndoLog::create(dir.path(), "t").expect("an undo log");
        let loopback = NetworkSpec::new(NetPath::Loopback);
        let loopback = build(&loopback, LocalPath::Loopback, "t", &mut undo_log).expect("built");
        assert_eq!(loopback.client, loopback.server);
        assert_eq!((loopback.server.namespace, loopback.listen.is_loopback()), (None, true));
        assert!(undo_log.undo_all().0.is_empty());
    }
}
