//! Images of the user's, which are only read.

use std::path::Path;

use iotax_model::target::{Format, ImageSpec};

use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, NodeBase};
use super::preflight::check_found;
use crate::build_error::BuildError;
use crate::guest::image::{self, FoundImage};
use crate::refusal::Refusal;

impl Build for ImageSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        // As the daemon does: who writes it has a lock on it.
        let found = look(&self.0, false)?;
        check_found(&self.0.display().to_string(), Some(found.size), at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, _: Ground, _: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let FoundImage { format, size, data_file, .. } = look(&self.0, true)?;
        let path = std::fs::canonicalize(&self.0).map_err(BuildError::file(&self.0))?;
        let base = NodeBase::Image { path, format, part: None, read_only: true, data_file };
        let node = BlockNode { base, filters: Vec::new() };
        Ok(Ground::Node(Box::new(NodeGround { node, size: Some(size), claim: None, identity: None })))
    }
}

/// An image that can be measured; the error says why one cannot.
fn look(path: &Path, shared: bool) -> Result<FoundImage, Refusal> {
    let shown = path.display();
    let is_here = |path: &Path| path.is_absolute() && path.is_file();
    if !path.is_file() {
        let why = if path.exists() { "is no regular file" } else { "does not exist" };
        return Err(Refusal::input(format!("image {shown}: {why}; give the file of a disk image")));
    }
    let found = image::look(path, shared).map_err(|error| {
        let said = error.to_string();
        if said.contains("lock") {
            return Refusal::environment(format!(
                "image {shown}: a program has it open to write it, such as the QEMU of a guest that runs; measure it when that has ended"
            ));
        }
        Refusal::input(said)
    })?;
    if found.format == Format::Raw {
        return Err(Refusal::input(format!(
            "image {shown}: QEMU knows no format by its content; a raw image is measured by its path alone: {shown}"
        )));
    }
    if let Some(beyond) = found.others.iter().find(|name| !is_here(Path::new(name))) {
        return Err(Refusal::input(format!(
            "image {shown}: it reads {beyond:?} too, which is no file of this machine, and is not opened"
        )));
    }
    Ok(found)
}

/// The files that an image reads besides its own.
#[must_use]
pub fn others(path: &Path) -> Vec<String> {
    look(path, true).map(|found| found.others).unwrap_or_default()
}

/// The format of a file that is an image; `None` for raw bytes, and where qemu-img cannot tell.
#[must_use]
pub fn format(path: &Path) -> Option<Format> {
    let found = path.is_file().then(|| image::look(path, true).ok()).flatten()?;
    (found.format != Format::Raw).then_some(found.format)
}
