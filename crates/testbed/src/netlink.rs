//! Netlink: queries and configures network interfaces without external programs (netlink(7), rtnetlink(7)).
//!
//! A guest has neither ip(8) nor ethtool(8), only this binary. Implements only the needed parts of the route and generic families.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send,
    socket_with,
};

/// Size of struct nlmsghdr in bytes.
const HEADER: usize = 16;
/// Size of struct nlattr in bytes.
const ATTRIBUTE: usize = 4;
/// Alignment of messages and attributes in bytes.
const ALIGNMENT: usize = 4;
/// Type flag of an attribute that contains attributes.
const NESTED: u16 = 0x8000;
/// Mask that removes the flags from an attribute's type.
const TYPE: u16 = 0x3fff;
/// Size of the receive buffer in bytes, larger than any datagram of the kernel.
const LARGEST: usize = 64 << 10;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;

/// Multicast group of the kernel's uevents; group 2 has those that udev has processed.
const UEVENTS: u32 = 1;
/// Multicast group of interface changes: `RTMGRP_LINK`.
const LINKS: u32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
/// Interface flag: up and with a carrier.
const IFF_RUNNING: u32 = 0x40;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
/// Size of struct ifinfomsg in bytes.
const LINK: usize = 16;

const GENL_ID_CTRL: u16 = 0x10;
/// Size of struct genlmsghdr in bytes.
const GENERIC: usize = 4;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// A netlink socket for the network namespace of the thread that opened it.
struct Netlink(OwnedFd);

impl Netlink {
    fn open(family: Option<Protocol>) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(AddressFamily::NETLINK, kind, flags, family)?))
    }

    fn send(&self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(HEADER + payload.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        // Sequence number and sender stay zero: the socket serves only this request.
        message.extend([0; 8]);
        message.extend(payload);
        send(&self.0, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Sends a request and returns the payloads of all answers up to the kernel's acknowledgement. Fails with the kernel's error code.
    fn ask(&self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.send(kind, flags | NLM_F_ACK, payload)?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; LARGEST];
        loop {
            let (_, length) = recv(&self.0, buffer.as_mut_slice(), RecvFlags::empty())?;
            for (kind, payload) in messages(&buffer[..length.min(LARGEST)]) {
                if kind != NLMSG_ERROR {
                    answers.push(payload.to_vec());
                    continue;
                }
                let code = payload.first_chunk().copied().map_or(0, i32::from_ne_bytes);
                return if code == 0 {
                    Ok(answers)
                } else {
                    Err(Errno::from_raw_os_error(code.saturating_neg()).into())
                };
            }
        }
    }
}

/// A socket that receives multicast messages from the kernel.
#[derive(Debug)]
pub(crate) struct Multicast(OwnedFd);

impl Multicast {
    fn join(family: Option<Protocol>, groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Subscribes to the kernel's uevents.
    pub(crate) fn uevents() -> io::Result<Self> {
        Self::join(Some(netlink::KOBJECT_UEVENT), UEVENTS)
    }

    /// Subscribes to changes of this namespace's interfaces. The kernel first describes each current interface.
    pub(crate) fn links() -> io::Result<Self> {
        let socket = Netlink(Self::join(None, LINKS)?.0);
        socket.send(RTM_GETLINK, NLM_F_DUMP, &[0; LINK])?;
        Ok(Self(socket.0))
    }

    /// Returns the datagrams since the last call. Waits at most `patience` for one. After a buffer overflow, some are missing.
    pub(crate) fn next(&self, patience: Duration) -> Vec<Vec<u8>> {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if !poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0) {
            return Vec::new();
        }
        let (mut datagrams, mut buffer) = (Vec::new(), vec![0; LARGEST]);
        loop {
            match recv(&self.0, buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((_, length)) => datagrams.push(buffer[..length.min(LARGEST)].to_vec()),
                Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return datagrams,
            }
        }
    }
}

/// State of a network interface, as reported by a netlink message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkNews {
    pub(crate) index: [u8; 4],
    pub(crate) name: String,
    /// True if the interface is up and has a carrier; `None` if it was removed.
    pub(crate) is_up: Option<bool>,
}

/// Extracts the interface states from the messages of a datagram.
pub(crate) fn link_news(datagram: &[u8]) -> impl Iterator<Item = LinkNews> {
    messages(datagram).filter_map(|(kind, payload)| {
        let is_known = matches!(kind, RTM_NEWLINK | RTM_DELLINK);
        // Struct ifinfomsg: family, type, index, flags. A bridge's ports are also described as such, in its family.
        if !is_known || payload.first() != Some(&AF_UNSPEC) {
            return None;
        }
        let flags = u32::from_ne_bytes(*payload.get(8..)?.first_chunk()?);
        Some(LinkNews {
            index: *payload.get(4..)?.first_chunk()?,
            name: text(find(payload.get(LINK..)?, IFLA_IFNAME)?),
            is_up: (kind == RTM_NEWLINK).then_some(flags & IFF_RUNNING != 0),
        })
    })
}

/// Splits a datagram into messages; returns type and payload of each.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*datagram.first_chunk()?)).ok()?;
        let kind = u16::from_ne_bytes(*datagram.get(4..)?.first_chunk()?);
        let payload = datagram.get(HEADER..length)?;
        datagram = datagram.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// Splits a payload into attributes; returns type and value of each. Stops at a truncated attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & TYPE;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute of type `wanted`; `None` if there is none.
fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// Encodes an attribute. The value must be shorter than 64 KiB.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// Encodes a string with a zero byte at its end.
fn name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Decodes a string, without the zero byte at its end.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value)).into_owned()
}

/// Queries the description of an interface: struct ifinfomsg followed by attributes.
fn link(kernel: &Netlink, interface: &str) -> io::Result<Vec<u8>> {
    let request = [vec![0; LINK], attribute(IFLA_IFNAME, &name(interface))].concat();
    let answers = kernel.ask(RTM_GETLINK, 0, &request)?;
    answers.into_iter().next().ok_or_else(|| io::Error::other("the kernel did not describe the interface"))
}

/// Returns the type of a software interface, such as `veth`, `bridge` or `tun`; `None` for a hardware device and for loopback.
pub(crate) fn kind(interface: &str) -> io::Result<Option<String>> {
    let link = link(&Netlink::open(None)?, interface)?;
    let about = link.get(LINK..).and_then(|about| find(about, IFLA_LINKINFO));
    Ok(about.and_then(|about| find(about, IFLA_INFO_KIND)).map(text))
}

/// Brings an interface up, after setting its address with prefix length and its MTU, if given.
pub(crate) fn set_up(interface: &str, address: Option<(Ipv4Addr, u8)>, mtu: Option<u32>) -> io::Result<()> {
    let kernel = Netlink::open(None)?;
    let link = link(&kernel, interface)?;
    let index = link.get(4..8).unwrap_or_default();
    if let Some((address, prefix)) = address {
        // Struct ifaddrmsg: family, prefix, flags, scope, index.
        let about = [&[AF_INET, prefix, 0, 0], index].concat();
        let octets = address.octets();
        let request = [about, attribute(IFA_LOCAL, &octets), attribute(IFA_ADDRESS, &octets)].concat();
        kernel.ask(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &request)?;
    }
    // Struct ifinfomsg: family, type, index, flags, and the mask of flags to change.
    let mut request = [&[0; 4], index, &IFF_UP.to_ne_bytes(), &IFF_UP.to_ne_bytes()].concat();
    if let Some(mtu) = mtu {
        request.extend(attribute(IFLA_MTU, &mtu.to_ne_bytes()));
    }
    kernel.ask(RTM_NEWLINK, 0, &request).map(drop)
}

/// Returns the names of an interface's enabled offloads, as ethtool(8) lists them (kernel documentation, networking/ethtool-netlink). Needs
/// Linux
/// 5.7.
pub(crate) fn offloads(interface: &str) -> io::Result<Vec<String>> {
    let kernel = Netlink::open(Some(netlink::GENERIC))?;
    // Struct genlmsghdr: command, version, reserved.
    let about = |command: u8| vec![command, 1, 0, 0];
    let wanted = attribute(CTRL_ATTR_FAMILY_NAME, &name("ethtool"));
    let families = kernel.ask(GENL_ID_CTRL, 0, &[about(CTRL_CMD_GETFAMILY), wanted].concat())?;
    let family = families.first().and_then(|answer| find(answer.get(GENERIC..)?, CTRL_ATTR_FAMILY_ID));
    let family = family.and_then(|id| id.first_chunk().copied()).map(u16::from_ne_bytes);
    let family = family.ok_or_else(|| io::Error::other("the kernel has no ethtool over netlink"))?;
    let device = attribute(ETHTOOL_A_HEADER_DEV_NAME, &name(interface));
    let header = attribute(ETHTOOL_A_FEATURES_HEADER | NESTED, &device);
    let answers = kernel.ask(family, 0, &[about(ETHTOOL_MSG_FEATURES_GET), header].concat())?;
    let active = answers.first().and_then(|answer| find(answer.get(GENERIC..)?, ETHTOOL_A_FEATURES_ACTIVE));
    active.map(set_bits).ok_or_else(|| io::Error::other("the kernel did not report offloads"))
}

/// Returns the names of the bits in an ethtool bit set. The set of active offloads lists only enabled bits.
fn set_bits(set: &[u8]) -> Vec<String> {
    let bits = attributes(find(set, ETHTOOL_A_BITSET_BITS).unwrap_or_default());
    let bits = bits.filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BIT);
    bits.filter_map(|(_, bit)| find(bit, ETHTOOL_A_BITSET_BIT_NAME)).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_put_together_is_found_again() {
        let bit = |bit: &str| {
            let name = attribute(ETHTOOL_A_BITSET_BIT_NAME, &name(bit));
            attribute(ETHTOOL_A_BITSET_BIT | NESTED, &[attribute(1, &[7, 0, 0, 0]), name].concat())
        };
        let bits = [bit("tx-checksum-ipv4"), bit("rx-gro")].concat();
        let set = [attribute(1, &[]), attribute(ETHTOOL_A_BITSET_BITS | NESTED, &bits)].concat();
        assert_eq!(set_bits(&set), ["tx-checksum-ipv4", "rx-gro"]);
        assert_eq!(set_bits(&[]), [""; 0]);
    }

    #[test]
    fn the_kernel_tells_of_the_loopback_interface() {
        assert_eq!(kind("lo").expect("known"), None);
        let error = kind("iotax-none").expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        match offloads("lo") {
            Ok(offloads) => assert!(offloads.iter().any(|name| name == "loopback"), "{offloads:?}"),
            Err(reason) => iotax_testkit::skip!("{reason}"),
        }
    }

    #[test]
    fn a_message_tells_whether_a_link_is_up() {
        // Recorded of a veth: length, type, flags, sequence, sender; family, type, index, flags, mask; name.
        let message = |kind: u16, flags: u32| {
            let about = [&[0, 0, 1, 0, 9, 0, 0, 0][..], &flags.to_ne_bytes(), &[0; 4]].concat();
            let payload = [about, attribute(IFLA_IFNAME, &name("eth1"))].concat();
            let length = u32::try_from(HEADER + payload.len()).expect("short");
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &payload].concat()
        };
        let news = |is_up| LinkNews { index: [9, 0, 0, 0], name: "eth1".into(), is_up };
        // Up, broadcast, running, multicast, with carrier; then without; then removed.
        let all = [message(16, 0x1_1043), message(16, 0x1003), message(17, 0x1002)].concat();
        let found: Vec<LinkNews> = link_news(&all).collect();
        assert_eq!(found, [news(Some(true)), news(Some(false)), news(None)]);
        assert_eq!(link_news(&message(20, 0x1_1043)).count(), 0, "an address");
        assert_eq!(link_news(&all[..HEADER + 12]).count(), 0, "truncated");
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
            prop_assert!(attributes(&bytes).count() <= bytes.len());
            prop_assert!(link_news(&bytes).count() <= bytes.len());
            prop_assert!(set_bits(&bytes).len() <= bytes.len());
        }
    }
}
