//! The directory of the host that a guest mounts, in QEMU's options.

use std::path::{Path, PathBuf};

use iotax_model::guest_abi::{SHARE_PARAMETER, SHARE_TAG};
use iotax_model::target::{DirectoryProtocol, GuestSpec, NinePSpec, TargetSpec, VirtiofsSpec};
use serde_json::{Value, json};

use super::disk::transport;
use super::escape::escaped;

/// File name of virtiofsd's socket in the run directory.
pub(super) const VIRTIOFSD_SOCKET: &str = "fsd.sock";
/// QEMU's id of the directory, or of the connection to virtiofsd.
const SHARED: &str = "shared0";
/// QEMU's id of the memory that virtiofsd maps.
const MEMORY: &str = "memory0";

/// A directory of the host that a guest mounts.
#[derive(Debug, Clone)]
pub struct GuestDirectory {
    /// Path of the directory on the host.
    pub path: PathBuf,
    /// The server of the directory with its settings.
    pub server: DirectoryServer,
}

/// The server of a directory for a guest.
#[derive(Debug, Clone)]
pub enum DirectoryServer {
    /// QEMU itself.
    NineP(NinePSpec),
    /// A virtiofsd process of the guest's own.
    Virtiofsd(VirtiofsSpec),
}

impl GuestDirectory {
    /// Returns the directory `path` with the settings of a target; `None` if the target's guest mounts no directory.
    #[must_use]
    pub fn of(target: &TargetSpec, path: &Path) -> Option<Self> {
        let server = match target.shared_directory()? {
            DirectoryProtocol::NineP => DirectoryServer::NineP(target.stack.find::<NinePSpec>()?.clone()),
            DirectoryProtocol::Virtiofs => {
                DirectoryServer::Virtiofsd(target.stack.find::<VirtiofsSpec>()?.clone())
            }
        };
        Some(Self { path: path.to_owned(), server })
    }

    const fn protocol(&self) -> DirectoryProtocol {
        match self.server {
            DirectoryServer::NineP(_) => DirectoryProtocol::NineP,
            DirectoryServer::Virtiofsd(_) => DirectoryProtocol::Virtiofs,
        }
    }

    /// Returns the options to add to QEMU's `-machine`; usually empty.
    pub(super) fn machine_options(&self) -> String {
        match self.server {
            DirectoryServer::NineP(_) => String::new(),
            DirectoryServer::Virtiofsd(_) => format!(",memory-backend={MEMORY}"),
        }
    }

    /// Builds QEMU's arguments for the directory.
    pub(super) fn arguments(&self, spec: &GuestSpec, run_dir: &Path) -> Vec<String> {
        let mut arguments = match &self.server {
            DirectoryServer::NineP(nine_p) => {
                let path = escaped(&self.path.to_string_lossy());
                let model = nine_p.security_model;
                vec!["-fsdev".into(), format!("local,id={SHARED},path={path},security_model={model}")]
            }
            DirectoryServer::Virtiofsd(_) => {
                let socket = escaped(&run_dir.join(VIRTIOFSD_SOCKET).to_string_lossy());
                let size = spec.memory.0 >> 10;
                // The daemon reads and writes the guest's memory itself.
                let memory = format!("memory-backend-memfd,id={MEMORY},size={size}K,share=on");
                let socket = format!("socket,id={SHARED},path={socket}");
                vec!["-object".into(), memory, "-chardev".into(), socket]
            }
        };
        arguments.extend(["-device".into(), device(spec, self.protocol()).to_string()]);
        arguments
    }

    /// Returns the kernel parameter with which PID 1 in the guest mounts the directory.
    pub(super) fn parameter(&self) -> String {
        let options = match &self.server {
            DirectoryServer::NineP(nine_p) => nine_p.mount_options(),
            DirectoryServer::Virtiofsd(_) => String::new(),
        };
        format!("{SHARE_PARAMETER}{}:{options}", self.protocol().word())
    }
}

/// Returns the device through which a guest mounts a directory.
pub(super) fn device(spec: &GuestSpec, protocol: DirectoryProtocol) -> Value {
    let transport = transport(spec.machine_type());
    match protocol {
        DirectoryProtocol::NineP => {
            json!({ "driver": format!("virtio-9p-{transport}"), "fsdev": SHARED, "mount_tag": SHARE_TAG })
        }
        DirectoryProtocol::Virtiofs => {
            json!({ "driver": format!("vhost-user-fs-{transport}"), "chardev": SHARED, "tag": SHARE_TAG })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::target::Stack;

    fn lines(stack: &str, spec: &GuestSpec) -> String {
        let target = TargetSpec::new("t", Stack::parse(stack).expect(stack));
        let directory = GuestDirectory::of(&target, Path::new("/srv/a,b/t.shared")).expect(stack);
        let arguments = directory.arguments(spec, Path::new("/run/iotax,1"));
        let pairs = arguments.chunks(2).map(|pair| pair.join(" "));
        let machine = format!("machine{}", directory.machine_options());
        pairs.chain([machine, directory.parameter()]).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_directory_by_either_protocol() {
        let spec = GuestSpec::default();
        insta::assert_snapshot!(lines("/srv > 9p security_model=none msize=512k > guest", &spec), @r#"
        -fsdev local,id=shared0,path=/srv/a,,b/t.shared,security_model=none
        -device {"driver":"virtio-9p-pci","fsdev":"shared0","mount_tag":"iotax"}
        machine
        iotax.share=9p:trans=virtio,version=9p2000.L,cache=none,msize=524288
        "#);
        let microvm = GuestSpec { machine: Some(iotax_model::target::MachineType::Microvm), ..spec };
        insta::assert_snapshot!(lines("/srv > virtiofs > guest", &microvm), @r#"
        -object memory-backend-memfd,id=memory0,size=524288K,share=on
        -chardev socket,id=shared0,path=/run/iotax,,1/fsd.sock
        -device {"chardev":"shared0","driver":"vhost-user-fs-device","tag":"iotax"}
        machine,memory-backend=memory0
        iotax.share=virtiofs:
        "#);
        let disk = TargetSpec::new("t", Stack::parse("/srv > raw file > virtio-blk > guest").expect("valid"));
        assert!(GuestDirectory::of(&disk, Path::new("/srv")).is_none());
    }
}
