//! Exports a device or raw file over NVMe/TCP with the kernel's target, and connects to it with this machine's own initiator.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use iotax_model::target::NvmeTcpSpec;

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::host_info::new_uuid;
use crate::nvme_tcp::{self, FABRICS, NQN, NvmeConnection, NvmeTarget, TARGET, free_port};
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for NvmeTcpSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment("nvme_tcp: only root may make its target; run iotax as root"));
        }
        for (path, remedy) in [
            (TARGET, "modprobe nvmet-tcp, and mount -t configfs configfs /sys/kernel/config"),
            (FABRICS, "modprobe nvme-tcp"),
        ] {
            if !Path::new(path).exists() {
                return Err(Refusal::environment(format!(
                    "nvme_tcp: there is no {path}: {remedy}, or leave out targets with nvme_tcp"
                )));
            }
        }
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let stored = match below {
            Ground::Raw(file) => file.path,
            block => block.block()?.take(at.builder.permission.signature)?.area.path,
        };
        let in_target = |error| BuildError::file(Path::new(TARGET))(error);
        let name = || new_uuid().map(|uuid| format!("{NQN}{uuid}")).map_err(in_target);
        let port = free_port().ok_or_else(|| {
            Refusal::environment(format!("nvme_tcp: {TARGET} has every number of a port; remove one"))
        })?;
        // The kernel does not accept port 0 to choose a free port.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let target = NvmeTarget { nqn: name()?, host: name()?, port, address: free.map_err(in_target)? };
        at.undo_log.record(Effect::NvmeTarget(target.clone()))?;
        target.serve(&stored).map_err(|(path, error)| BuildError::file(&path)(error))?;
        let connection = NvmeConnection { nqn: target.nqn.clone() };
        at.undo_log.record(Effect::NvmeConnection(connection))?;
        let in_fabrics = |error| BuildError::file(Path::new(FABRICS))(error);
        nvme_tcp::connect(&target).map_err(in_fabrics)?;
        let ground = Ground::made(nvme_tcp::node(target.uuid()).map_err(in_fabrics)?)?;
        at.check_holds(&ground)?;
        Ok(ground)
    }
}
