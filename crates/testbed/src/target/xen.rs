//! Checks the storage below a Xen domain. The runner starts the domain.

use std::path::Path;

use iotax_model::target::{FileSpec, LayerInterface, LayerSpec, XenBackend, XenSpec};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::refusal::Refusal;
use crate::xen::{self, xl_format};

impl Build for XenSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        let below = at.target.stack.layers().iter().rev().skip(1 + at.above.len()).collect::<Vec<_>>();
        let below = below.first().map(|layer| layer.kind().offers());
        if self.backend == XenBackend::Phy && below != Some(LayerInterface::Block) {
            return Err(Refusal::input(
                "xen: backend = \"phy\" takes a block device; put loop = {} between, or use backend = \"qdisk\"",
            ));
        }
        if let Some(file) = at.target.stack.layers().iter().rev().find_map(FileSpec::of) {
            xl_format(file.format)?;
            if file.snapshot.is_some() {
                return Err(Refusal::input("xen: snapshot: iotax takes none under a domain; leave it out"));
            }
        }
        if let Some(workload) = at.plan.work_on(at.target).iter().find(|workload| workload.needs_directory())
        {
            return Err(Refusal::input(format!(
                "xen: a disk without a filesystem is measured, and {:?} makes files; use a target of the host",
                workload.name
            )));
        }
        xen::check(Path::new("/"), self)?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, _: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        Ok(below)
    }
}
