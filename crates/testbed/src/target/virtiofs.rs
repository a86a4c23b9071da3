//! Creates directories that virtiofsd serves to a guest. The daemon starts with the guest.

use iotax_model::target::{Layer, LayerKind, VirtiofsSpec};

use super::ExportedImage;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::shared_directory;
use crate::build_error::BuildError;
use crate::guest::virtiofsd;
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for VirtiofsSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        virtiofsd::possible()?;
        shared_directory::check(self.dir.as_deref(), at, needs)
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        // The directory is in the command line of the daemon, which the guest starts, again if it is booted again.
        let marker = format!("iotax-{}-{}-virtiofs", at.builder.tag, at.name::<Self>());
        let file = shared_directory::build(&marker, self.dir.as_deref(), below, at)?;
        at.undo_log.record(Effect::Daemon { marker })?;
        Ok(Ground::Raw(file))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let pool = self.thread_pool_size.map(|size| format!(" thread_pool_size={size}"));
        let detail = format!(
            "cache={} allow_direct_io={} xattr={}{}",
            self.cache,
            self.allow_direct_io,
            self.xattr,
            pool.unwrap_or_default()
        );
        vec![Layer::new(LayerKind::Export, "virtiofs", detail)]
    }
}
