//! Creates directories that QEMU serves to its guest over 9p.

use iotax_model::target::{Layer, LayerKind, NinePSpec};

use super::ExportedImage;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::shared_directory;
use crate::build_error::BuildError;
use crate::refusal::Refusal;

impl Build for NinePSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        shared_directory::check(self.dir.as_deref(), at, needs)
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let name = format!("iotax-{}-{}-9p", at.builder.tag, at.name::<Self>());
        shared_directory::build(&name, self.dir.as_deref(), below, at).map(Ground::Raw)
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let msize = self.msize.map(|size| format!(" msize={size}")).unwrap_or_default();
        let detail = format!("security_model={} cache={}{msize}", self.security_model, self.cache);
        vec![Layer::new(LayerKind::Export, "9p", detail)]
    }
}
