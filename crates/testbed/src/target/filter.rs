//! Block filters, which the daemon above them opens.

use iotax_model::target::FilterSpec;

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use crate::build_error::BuildError;
use crate::refusal::Refusal;

impl Build for FilterSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        Ok(())
    }

    fn build(&self, below: Ground, _: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let mut ground = below.node()?;
        ground.node.filters.push(self.clone());
        Ok(Ground::Node(Box::new(ground)))
    }
}
