//! Adds filters in QEMU's block layer, such as throttling, to the image that a storage daemon exports.

use iotax_model::target::{
    FilterSpec, FilterType, Format, Layer, LayerKind, LayerSpec, PlannedLayer, Preallocation, Snapshot,
};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::{ExportedImage, file, raw};
use crate::build_error::BuildError;
use crate::refusal::Refusal;

impl Build for FilterSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        let file = at.target.file();
        let is_fine = match self.kind {
            FilterType::Throttle | FilterType::Blkdebug => true,
            // QEMU does not encrypt compressed clusters.
            FilterType::Compress => {
                file.is_some_and(|file| file.format == Format::Qcow2 && file.encrypt.is_none())
            }
            FilterType::CopyOnRead => file.is_some_and(|file| file.snapshot == Some(Snapshot::External)),
            FilterType::Quorum => {
                let is_pair = |pair: &&[PlannedLayer]| FilterSpec::of(&pair[1]) == Some(self);
                let below = at.target.stack.layers().windows(2).find(is_pair);
                below.is_some_and(|pair| matches!(pair[0], PlannedLayer::File(_)))
            }
        };
        if let Some(file) = file.filter(|_| self.kind == FilterType::Quorum) {
            file::reserve(file, at, needs);
        }
        if is_fine {
            return Ok(());
        }
        let needed = match self.kind {
            FilterType::Compress => "an image that can hold compressed clusters: qcow2 file without encrypt",
            FilterType::Quorum => "a raw file right below it, for a second one next to it: raw file > quorum",
            _ => "something below the image to copy from: qcow2 file + external snapshot",
        };
        Err(Refusal::input(format!("{} needs {needed}", self.kind)))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let mut ground = below.node()?;
        ground.node.filters.push(self.clone());
        if let Some(path) = ground.node.mirror() {
            let preallocation = at.target.file().map_or(Preallocation::Off, |file| file.preallocation);
            match &at.builder.survivor {
                None => raw::build(&path, at.size(), preallocation, at.undo_log)?,
                Some(_) => raw::open(path, at.size(), at.undo_log)?,
            };
        }
        Ok(Ground::Node(Box::new(ground)))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        vec![Layer::new(LayerKind::Export, format!("{} filter", self.kind), "")]
    }
}
