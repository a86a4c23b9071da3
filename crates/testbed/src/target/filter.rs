//! Adds filters in QEMU's block layer, such as throttling, to the image that a storage daemon exports.

use iotax_model::target::{FilterSpec, FilterType, Format, Layer, LayerKind, Snapshot};

use super::ExportedImage;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use crate::build_error::BuildError;
use crate::refusal::Refusal;

impl Build for FilterSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        let file = at.target.file();
        let is_fine = match self.kind {
            FilterType::Throttle | FilterType::Blkdebug => true,
            // QEMU does not encrypt compressed clusters.
            FilterType::Compress => {
                file.is_some_and(|file| file.format == Format::Qcow2 && file.encrypt.is_none())
            }
            FilterType::CopyOnRead => file.is_some_and(|file| file.snapshot == Some(Snapshot::External)),
        };
        if is_fine {
            return Ok(());
        }
        let needed = match self.kind {
            FilterType::Compress => "an image that can hold compressed clusters: qcow2 file without encrypt",
            _ => "something beneath the image to copy from: qcow2 file + external snapshot",
        };
        Err(Refusal::input(format!("{} needs {needed}", self.kind)))
    }

    fn build(&self, below: Ground, _: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let mut ground = below.node()?;
        ground.node.filters.push(self.clone());
        Ok(Ground::Node(Box::new(ground)))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        vec![Layer::new(LayerKind::Export, format!("{} filter", self.kind), "")]
    }
}
