//! What people read: sentences, terminal tables, one HTML file.

mod beside;
mod course;
pub mod document;
pub(crate) mod figure;
pub mod html;
pub mod markdown;
mod marks;
mod network;
mod passed;
mod remarks;
pub mod sentences;
pub mod terminal;

use iotax_model::Plan;

use crate::store::Run;

/// The run's plan as a file that `iotax run` reads, with the seed that the run used. A seed beyond TOML's integers
/// (2^63 - 1) is left out.
pub fn plan_toml(run: &Run) -> Result<String, toml::ser::Error> {
    let seed = Some(run.seed).filter(|seed| i64::try_from(*seed).is_ok());
    Plan { seed, ..run.plan.clone() }.to_toml()
}
