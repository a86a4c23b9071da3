//! Checks that this machine can build a network path, before anything is changed.

use std::path::Path;

use iotax_model::target::{NetPath, NetworkSpec};
use rustix::thread::CapabilitySet;

use super::VHOST;
use crate::guest::modules::{self, ModulesError};
use crate::netns::{IP, PASST};
use crate::program::ProgramError;
use crate::refusal::Refusal;

/// The device with which tap devices are created.
const TUN: &str = "/dev/net/tun";

/// Rejects a network path that cannot be built on this machine. The error names the reason and the remedy.
pub fn check(spec: &NetworkSpec) -> Result<(), Refusal> {
    let missing = |error: ProgramError| Refusal::environment(error.to_string());
    let via = spec.via;
    if via == NetPath::Loopback || via.is_given() {
        return Ok(());
    }
    let is_permitted = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN));
    if !is_permitted {
        return Err(Refusal::environment(format!(
            "via = \"{via}\" needs network namespaces, which this user may not make: CAP_NET_ADMIN and CAP_SYS_ADMIN are \
             missing; run it with sudo, or use via = \"loopback\""
        )));
    }
    IP.find().map_err(missing)?;
    match via {
        NetPath::Veth => check_kernel("veth", via)?,
        NetPath::Bridge => {
            check_kernel("bridge", via)?;
            check_device(TUN, via, "modprobe tun")?;
            if spec.vhost == Some(true) {
                check_device(VHOST, via, "modprobe vhost_net, or leave vhost out")?;
            }
        }
        NetPath::Passt => PASST.find().map_err(missing)?,
        NetPath::User | NetPath::Loopback | NetPath::Remote | NetPath::Server => {}
    }
    Ok(())
}

fn check_device(device: &str, via: NetPath, remedy: &str) -> Result<(), Refusal> {
    match Path::new(device).try_exists() {
        Ok(true) => Ok(()),
        _ => {
            Err(Refusal::environment(format!("via = \"{via}\" needs {device}, which is not there: {remedy}")))
        }
    }
}

/// Rejects an interface type whose module the kernel lacks. If that is unknown, the type is accepted: it may be built in.
fn check_kernel(kind: &str, via: NetPath) -> Result<(), Refusal> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    known_to_lack(&Path::new("/lib/modules").join(&*release), kind).map_or(Ok(()), |dir| {
        Err(Refusal::environment(format!(
            "via = \"{via}\" needs interfaces of the kind {kind}, which this kernel does not have: {dir} has no such module. \
             Install the rest of its modules, or boot another kernel"
        )))
    })
}

/// Returns the path of the module directory, if the module is neither in it nor listed there as built in; `None`
/// otherwise, or if the directory cannot be read.
fn known_to_lack(dir: &Path, module: &str) -> Option<String> {
    match modules::check(dir, &[module]) {
        Err(ModulesError::Missing { dir, .. }) => Some(dir.display().to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_nothing_is_never_refused() {
        check(&NetworkSpec::new(NetPath::Loopback)).expect("nothing is made");
    }

    #[test]
    fn a_missing_device_is_named_with_what_helps() {
        let refusal = check_device("/dev/iotax-none", NetPath::Bridge, "modprobe tun").expect_err("absent");
        let text = refusal.to_string();
        assert!(text.contains("/dev/iotax-none") && text.contains("modprobe tun"), "{text}");
        check_device("/dev/null", NetPath::Bridge, "").expect("there");
    }

    #[test]
    fn a_kernel_lacks_what_its_lists_do_not_have() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(known_to_lack(dir.path(), "veth"), None, "nothing is known");
        std::fs::write(dir.path().join("modules.dep"), "kernel/drivers/net/veth.ko.xz:\n").expect("written");
        std::fs::write(dir.path().join("modules.builtin"), "kernel/net/bridge/bridge.ko\n").expect("written");
        assert_eq!((known_to_lack(dir.path(), "veth"), known_to_lack(dir.path(), "bridge")), (None, None));
        assert!(known_to_lack(dir.path(), "tun").is_some());
    }
}
