//! Builds targets on exports of existing NBD servers.

use std::time::Duration;

use iotax_model::target::{Layer, LayerKind, NbdExportSpec};
use iotax_model::units::Bytes;
use serde_json::{Value, json};

use super::ExportedImage;
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{self, BlockNode, ClientNode, NodeBase};
use super::preflight::{check_found, check_length, check_nothing_beside};
use crate::build_error::BuildError;
use crate::device::Permission;
use crate::guest::image;
use crate::program::Program;
use crate::refusal::Refusal;

const QEMU_IO: Program = Program { name: "qemu-io", package: "qemu-utils" };
/// Maximum time for reading the first and last MiB of an export.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes at each end of an export that must be zero before it is overwritten, as for a device.
const END: u64 = 1 << 20;

impl Build for NbdExportSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        let (shown, work) = (self.to_string(), at.plan.work_on(at.target));
        let size = length(self)?;
        if at.permission.allows_export(self) {
            check_nothing_beside(&shown, &work)?;
            check_length(&shown, size, &work)?;
            check_writable(self)?;
            needs.notes.push(format!(
                "{}: what is written to {shown} stays on it: an export has no identity by which iotax could know it again to blank it",
                at.target.name
            ));
            return check_empty(self, size, at.permission);
        }
        let refusal = check_found(&shown, Some(size), at.plan, &work);
        refusal.map_err(|refusal| match work.iter().find(|workload| workload.modifies()) {
            Some(workload) => Refusal::input(format!(
                "{shown}: an export is only read as it is, and {:?} changes it ({}); to have it overwritten, name it twice: \
                 --overwrite {shown:?}",
                workload.name,
                workload.doing()
            )),
            None => refusal,
        })
    }

    fn build(&self, _: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let (size, permission) = (length(self)?, &at.builder.permission);
        let read_only = !permission.allows_export(self);
        if !read_only {
            check_empty(self, size, permission)?;
        }
        let node = node::client(&self.server, &self.export);
        let client = ClientNode { node, secret: None, directory: None, namespace: None, read_only };
        let node = BlockNode::on(NodeBase::Client(Box::new(client)));
        Ok(Ground::Node(Box::new(NodeGround { node, size: Some(size), claim: None, identity: None })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        vec![Layer::new(LayerKind::Export, "NBD server", self.to_string())]
    }
}

/// Returns the export as a QEMU block node.
fn node_of(spec: &NbdExportSpec) -> Value {
    json!({ "driver": "raw", "file": node::client(&spec.server, &spec.export) })
}

/// Returns the length of the export in bytes.
fn length(spec: &NbdExportSpec) -> Result<Bytes, Refusal> {
    let length = image::length_of_export(&node_of(spec), &spec.to_string());
    length.map_err(|error| Refusal::environment(error.to_string()))
}

/// Rejects an export that its server does not allow to be written. Writes nothing.
fn check_writable(spec: &NbdExportSpec) -> Result<(), Refusal> {
    let opened = QEMU_IO.query(["-c", "length", &format!("json:{}", node_of(spec))], PATIENCE);
    let refuse = |error| {
        Refusal::environment(format!(
            "{spec}: it cannot be opened to be written; its server may offer it read-only: {error}"
        ))
    };
    opened.map(drop).map_err(refuse)
}

/// Rejects an export with non-zero bytes at its ends, unless signatures may be overwritten.
fn check_empty(spec: &NbdExportSpec, size: Bytes, permission: &Permission) -> Result<(), Refusal> {
    if permission.signature {
        return Ok(());
    }
    let end = size.0.min(END);
    let reads = [0, size.0 - end].map(|offset| format!("read -P 0 {offset} {end}"));
    let node = format!("json:{}", node_of(spec));
    let said = QEMU_IO
        .query(["-r", "-c", &reads[0], "-c", &reads[1], &node], PATIENCE)
        .map_err(|error| Refusal::environment(error.to_string()))?;
    let said = String::from_utf8_lossy(&said);
    if said.contains("failed") {
        return Err(Refusal::environment(format!(
            "{spec}: it is not empty: the first or the last MiB has other bytes than zeros, as what an earlier run wrote, which is not blanked; if they may go, add --overwrite-signature"
        )));
    }
    Ok(())
}
