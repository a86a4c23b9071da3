//! Reads the properties of network interfaces, and configures interfaces in a guest.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use iotax_model::record::Interface;

use crate::host_info::text;
use crate::netlink;

const LOOPBACK: &str = "lo";

/// Lists the interfaces in this process's network namespace, sorted by name. The caller sets `position`. Reads /sys below `root`; offloads
/// and software interface types are only known if `root` is `/`.
///
/// # Errors
/// The interfaces cannot be listed.
pub fn interfaces(root: &Path) -> io::Result<Vec<Interface>> {
    let dir = root.join("sys/class/net");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir)? {
        let entry = entry?;
        // Some drivers have other files there, such as bonding_masters.
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let live = root == Path::new("/");
    Ok(names
        .into_iter()
        .map(|name| {
            let properties = properties(&dir.join(&name), &name);
            if !live {
                return properties;
            }
            let driver = properties.driver.or_else(|| netlink::kind(&name).ok().flatten());
            Interface { driver, offloads: netlink::offloads(&name).ok(), ..properties }
        })
        .collect())
}

/// Reads an interface's properties from its directory in /sys.
fn properties(dir: &Path, name: &str) -> Interface {
    let number = |file: &str| text(&dir.join(file))?.parse::<u64>().ok();
    let device = dir.join("device");
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    // Software links report a speed that they do not keep: veth and tun 10 Gbit/s.
    let megabits = if device.exists() { number("speed") } else { None };
    Interface {
        name: name.to_owned(),
        position: String::new(),
        driver,
        mtu: number("mtu").and_then(|mtu| mtu.try_into().ok()),
        speed: megabits.filter(|megabits| *megabits > 0).map(|megabits| megabits * 1_000_000),
        queues: queues(&dir.join("queues")),
        offloads: None,
    }
}

/// Returns the numbers of receive and of transmit queues of an interface, given its directory `queues` in /sys; `None` if it cannot be
/// read.
fn queues(dir: &Path) -> Option<(u32, u32)> {
    let mut queues = (0, 0);
    for entry in fs::read_dir(dir).ok()?.flatten() {
        match entry.file_name().to_string_lossy().split('-').next() {
            Some("rx") => queues.0 += 1,
            Some("tx") => queues.1 += 1,
            _ => {}
        }
    }
    Some(queues)
}

/// Returns the name of a guest's network card: the first interface that has a hardware device; `None` without one. `root` is `/` outside of
/// tests.
#[must_use]
pub fn card(root: &Path) -> Option<String> {
    let is_device = |name: &String| root.join("sys/class/net").join(name).join("device").exists();
    interfaces(root).ok()?.into_iter().map(|interface| interface.name).find(is_device)
}

/// Brings the loopback interface up.
///
/// # Errors
/// The kernel rejects the change.
pub fn set_up_loopback() -> io::Result<()> {
    netlink::set_up(LOOPBACK, None, None)
}

/// Sets an interface's address, prefix length and optionally its MTU, and brings it up.
///
/// # Errors
/// The interface does not exist, or the kernel rejects a value, such as an MTU above the driver's limit.
pub fn set_up(name: &str, address: (Ipv4Addr, u8), mtu: Option<u32>) -> io::Result<()> {
    netlink::set_up(name, Some(address), mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_what_its_files_tell() {
        let root = tempfile::tempdir().expect("a directory");
        let net = root.path().join("sys/class/net");
        let put = |path: &str, content: &str| {
            let path = net.join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, content).expect("written");
        };
        for queue in ["rx-0", "rx-1", "tx-0"] {
            put(&format!("eth0/queues/{queue}/x"), "");
        }
        put("eth0/mtu", "9000\n");
        put("eth0/speed", "1000\n");
        put("eth0/device/vendor", "0x8086\n");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/e1000", net.join("eth0/device/driver"))
            .expect("linked");
        put("eth1/speed", "-1\n");
        put("eth1/device/vendor", "0x1af4\n");
        put("veth/speed", "10000\n");
        put("veth/mtu", "1500\n");
        put("bonding_masters", "bond0\n");

        let found = interfaces(root.path()).expect("listed");
        let of = |name: &str| found.iter().find(|interface| interface.name == name).expect(name).clone();
        assert_eq!(
            found.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>(),
            ["eth0", "eth1", "veth"]
        );
        assert_eq!(
            of("eth0"),
            Interface {
                name: "eth0".into(),
                driver: Some("e1000".into()),
                mtu: Some(9000),
                speed: Some(1_000_000_000),
                queues: Some((2, 1)),
                ..Interface::default()
            }
        );
        assert_eq!((of("eth1").speed, of("eth1").queues), (None, None), "unknown, not zero");
        assert_eq!((of("veth").speed, of("veth").mtu), (None, Some(1500)), "a speed that nothing keeps to");
        assert_eq!(card(root.path()).as_deref(), Some("eth0"));
        assert!(interfaces(&root.path().join("none")).is_err());
    }

    #[test]
    fn this_machine_has_a_loopback_interface() {
        let found = interfaces(Path::new("/")).expect("listed");
        let lo = found.iter().find(|interface| interface.name == "lo").expect("every namespace has one");
        assert!(lo.mtu.is_some_and(|mtu| mtu >= 1500) && lo.driver.is_none(), "{lo:?}");
    }
}
