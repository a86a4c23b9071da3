//! The guest's network card in QEMU's options, and its backend on the host.

use std::net::Ipv4Addr;
use std::path::Path;

use iotax_model::guest_abi;
use iotax_model::target::{GuestSpec, MachineType, Nic};
use serde_json::{Value, json};

use super::disk::transport;
use super::escape::escaped;

/// The host's address as seen from QEMU's user-mode network stack; QEMU forwards it to the host's loopback interface (QEMU's documentation,
/// invocation, `-netdev user`).
pub(crate) const HOST_OF_USER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// File name of passt's socket in the run directory.
pub(super) const PASST_SOCKET: &str = "passt.sock";
/// QEMU's id of the network backend.
const BACKEND: &str = "net0";
/// Interrupt vectors of a virtio network card in addition to those of its queues: for configuration changes and the control queue.
const OTHER_VECTORS: u32 = 2;

/// A guest's network card and its backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicBackend {
    /// Model of the card that the guest sees.
    pub nic: Nic,
    /// The host side of the card, such as a tap device.
    pub backend: Backend,
    /// Number of pairs of receive and transmit queues.
    pub queues: u32,
    /// IPv4 address and prefix length that PID 1 in the guest sets on the card.
    pub address: (Ipv4Addr, u8),
    /// MTU in bytes; `None` for the driver's default.
    pub mtu: Option<u32>,
    /// The network namespace that QEMU runs in; `None` for this process's.
    pub namespace: Option<String>,
}

/// The host side of a guest's network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A tap device that exists already.
    Tap {
        /// The tap device's name.
        interface: String,
        /// True to use vhost-net, which moves packets in the host's kernel instead of QEMU.
        vhost: bool,
    },
    /// QEMU's built-in user-mode network stack (slirp).
    User,
    /// passt(1), a separate process.
    Passt,
}

impl NicBackend {
    /// Builds QEMU's arguments for the card and its backend.
    pub(super) fn arguments(&self, spec: &GuestSpec, run_dir: &Path) -> [String; 4] {
        let device = device(spec, self.nic, self.queues).to_string();
        ["-netdev".into(), self.backend(run_dir), "-device".into(), device]
    }

    /// Returns the value of `-netdev` in key=value syntax, because QEMU before 7.2 accepts no JSON for it.
    fn backend(&self, run_dir: &Path) -> String {
        match &self.backend {
            Backend::Tap { interface, vhost } => {
                let vhost = if *vhost { "on" } else { "off" };
                let queues = if self.queues > 1 { format!(",queues={}", self.queues) } else { String::new() };
                // The device exists already and needs no script.
                format!("tap,id={BACKEND},ifname={interface},script=no,downscript=no,vhost={vhost}{queues}")
            }
            Backend::User => format!("user,id={BACKEND}"),
            Backend::Passt => {
                let socket = escaped(&run_dir.join(PASST_SOCKET).to_string_lossy());
                format!("stream,id={BACKEND},addr.type=unix,addr.path={socket}")
            }
        }
    }

    /// Returns the kernel parameter with address, prefix length and MTU, which PID 1 in the guest applies.
    pub(super) fn parameter(&self) -> String {
        let (address, prefix) = self.address;
        let mtu = self.mtu.map(|mtu| format!(",{mtu}")).unwrap_or_default();
        format!("{}{address}/{prefix}{mtu}", guest_abi::NET_PARAMETER)
    }
}

/// Returns the network card as a QEMU device.
pub(super) fn device(spec: &GuestSpec, nic: Nic, queues: u32) -> Value {
    let machine = spec.machine_type();
    let driver = match nic {
        Nic::VirtioNet => format!("virtio-net-{}", transport(machine)),
        Nic::E1000 | Nic::E1000e => nic.word().to_owned(),
    };
    let mut device = json!({ "driver": driver, "netdev": BACKEND });
    let pci = machine != MachineType::Microvm;
    if pci {
        // No guest boots from the card, and its boot ROM is in a separate package.
        device["romfile"] = json!("");
    }
    if queues > 1 {
        device["mq"] = json!(true);
        if pci {
            device["vectors"] = json!(2 * queues + OTHER_VECTORS);
        }
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(card: &NicBackend, spec: &GuestSpec) -> String {
        let arguments = card.arguments(spec, Path::new("/run/iotax,1"));
        format!("{} {}\n{} {}", arguments[0], arguments[1], arguments[2], arguments[3])
    }

    fn card(nic: Nic, backend: Backend, queues: u32) -> NicBackend {
        let address = (Ipv4Addr::new(10, 91, 0, 2), 30);
        NicBackend { nic, backend, queues, address, mtu: None, namespace: None }
    }

    #[test]
    fn cards_and_what_is_behind_them() {
        let tap = |vhost| Backend::Tap { interface: "tap0".into(), vhost };
        let spec = GuestSpec::default();
        insta::assert_snapshot!(lines(&card(Nic::VirtioNet, tap(true), 4), &spec), @r#"
        -netdev tap,id=net0,ifname=tap0,script=no,downscript=no,vhost=on,queues=4
        -device {"driver":"virtio-net-pci","mq":true,"netdev":"net0","romfile":"","vectors":10}
        "#);
        let microvm = GuestSpec { machine: Some(MachineType::Microvm), ..GuestSpec::default() };
        insta::assert_snapshot!(lines(&card(Nic::VirtioNet, tap(false), 2), &microvm), @r#"
        -netdev tap,id=net0,ifname=tap0,script=no,downscript=no,vhost=off,queues=2
        -device {"driver":"virtio-net-device","mq":true,"netdev":"net0"}
        "#);
        insta::assert_snapshot!(lines(&card(Nic::E1000, Backend::User, 1), &spec), @r#"
        -netdev user,id=net0
        -device {"driver":"e1000","netdev":"net0","romfile":""}
        "#);
        insta::assert_snapshot!(lines(&card(Nic::E1000e, Backend::Passt, 1), &spec), @r#"
        -netdev stream,id=net0,addr.type=unix,addr.path=/run/iotax,,1/passt.sock
        -device {"driver":"e1000e","netdev":"net0","romfile":""}
        "#);
    }

    #[test]
    fn the_guest_is_told_its_address_and_its_largest_packet() {
        let plain = card(Nic::E1000, Backend::User, 1);
        assert_eq!(plain.parameter(), "iotax.net=10.91.0.2/30");
        let large = NicBackend { mtu: Some(9000), ..plain };
        assert_eq!(large.parameter(), "iotax.net=10.91.0.2/30,9000");
    }
}
