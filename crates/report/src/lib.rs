//! The outputs of iotax: sentences, terminal tables, Markdown, HTML, JSON, CSV.

mod amplification;
mod answer;
mod ask;
pub mod csv;
mod curve;
pub(crate) mod demands;
pub mod document;
mod durability;
mod fidelity;
pub(crate) mod figure;
mod grid;
pub mod html;
pub mod json;
mod limits;
pub mod mark;
pub mod markdown;
mod marks;
pub mod nearest;
mod neighbours;
mod network;
mod outcome;
mod phases;
mod plot;
mod remarks;
pub mod sentences;
mod steady_state;
mod sweep;
pub mod table;
pub mod tables;
pub mod terminal;
mod watch;

pub use figure::counted;
use iotax_model::Plan;
use iotax_model::Run;
pub use outcome::outcome;

/// Returns the run's plan as a file for `iotax run`, with the seed that the run used. A seed above TOML's largest integer (2^63 - 1) is
/// omitted. Fails if the plan has a value that TOML cannot express.
pub fn plan_toml(run: &Run) -> Result<String, toml::ser::Error> {
    let seed = Some(run.seed).filter(|seed| i64::try_from(*seed).is_ok());
    Plan { seed, ..run.plan.clone() }.to_toml()
}
