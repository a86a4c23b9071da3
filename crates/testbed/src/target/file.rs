//! Builds targets on new files: raw files or images.

use iotax_model::target::{FileSpec, Format, Layer, PlannedLayer, Preallocation, RequiredSpace};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_direct, check_directory, check_exchange};
use super::sizes::size_on;
use super::{ExportedImage, image, raw};
use crate::build_error::BuildError;
use crate::refusal::Refusal;

impl Build for FileSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        let work = at.plan.work_on(at.target);
        check_created(at.plan, &work)?;
        let Some(dir) = &self.dir else { return Ok(()) };
        check_directory(dir)?;
        if at.above.is_empty() {
            check_direct(dir, &work)?;
        }
        if self.format != Format::Raw || !at.above.is_empty() {
            check_exchange(dir)?;
        }
        if !at.target.is_in_guest() && at.target.filesystem().is_none() {
            needs.beside(dir, at.plan);
        }
        reserve(self, at, needs);
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(self.dir.as_deref(), below)?;
        let (stem, size) = (directory.join(at.name::<Self>()), at.size());
        Ok(match self.format {
            Format::Raw => {
                let path = stem.with_added_extension("raw");
                Ground::Raw(match &at.builder.survivor {
                    None => raw::build(&path, size, self.preallocation, at.undo_log)?,
                    Some(_) => raw::open(path, size, at.undo_log)?,
                })
            }
            format => {
                let path = stem.with_added_extension(format.word());
                let is_new = at.builder.survivor.is_none();
                Ground::Built(Box::new(image::build(&path, size, self, is_new, at.undo_log)?))
            }
        })
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        // Without an export, /sys shows the file, and a guest's disk shows its image.
        exported.map(|_| self.image_layers()).unwrap_or_default()
    }
}

/// Adds the space that a file, or another of its kind next to it, will need in the directory that the plan names.
pub(super) fn reserve(file: &FileSpec, at: &Check<'_>, needs: &mut Needs) {
    let Some(dir) = &file.dir else { return };
    let size = size_on(at.above, allocated(file, at));
    let guests = at.target.guest().map_or(1, |guest| u64::from(guest.count));
    *needs.space.entry(dir.clone()).or_default() += guests * file.on_disk(size).0;
}

/// Returns the space that a file will need: its full size if it is preallocated or carries a filesystem, otherwise only the part that the
/// workloads use.
fn allocated(file: &FileSpec, at: &Check<'_>) -> RequiredSpace {
    let has_filesystem =
        at.above.iter().any(|layer| matches!(layer, PlannedLayer::Filesystem(_) | PlannedLayer::Zfs(_)));
    match file.preallocation {
        Preallocation::Off | Preallocation::Metadata if !has_filesystem => {
            RequiredSpace { area: at.plan.touched(), ..at.plan.space() }
        }
        _ => at.plan.space(),
    }
}
