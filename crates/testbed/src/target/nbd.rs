//! Images served by NBD.

use iotax_model::target::{Discard, Format, Layer, LayerKind, NbdServer, NbdSpec};

use super::export::{self, Export, ExportType, ExportedImage};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, NodeBase};
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for NbdSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        let server = export::server_program(self.server);
        server.find().map_err(|error| Refusal::environment(error.to_string()))?;
        export::check_snapshot(at, "nbd")?;
        if self.server == NbdServer::QemuNbd
            && at.target.file().is_some_and(|file| file.format == Format::Luks)
        {
            return Err(Refusal::input(
                "nbd: server = \"qemu-nbd\" is not given the key of a LUKS image; use server = \"qemu-storage-daemon\"",
            ));
        }
        if export::is_renewed(at.target) {
            return Err(Refusal::input(
                "nbd: the client does not follow to a new overlay before each measurement; leave snapshot or overlay out",
            ));
        }
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}-nbd", at.builder.tag, at.name::<Self>());
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        let socket = at.socket::<Self>(&below.node, "nbd")?;
        for path in [socket.clone(), export::monitor_path(&socket)] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let way = ExportType::Nbd { socket: socket.clone(), server: self.server, delay: self.delay };
        let file = at.target.file().cloned().unwrap_or_default();
        let (size, claim, identity) = (below.size, below.claim, below.identity);
        let export = Export { marker: marker.clone(), drive, file, way, node: below.node };
        export.start_for(at)?;
        let node = BlockNode::on(NodeBase::Nbd { socket, export: marker });
        Ok(Ground::Node(Box::new(NodeGround { node, size, claim, identity })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let detail = format!("{}, cache={} aio={}", self.server, self.cache, self.aio);
        vec![Layer::new(LayerKind::Export, "NBD export", detail)]
    }
}
