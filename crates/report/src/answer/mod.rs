//! The answer of a run on one screen: a line for each layer, one table of all cells, and what is to be known before it is believed.

mod layers;
mod remarks;
mod speed;
mod table;
mod together;

use iotax_analysis::Judgement;
use iotax_analysis::store::Run;

pub(crate) use remarks::{grave, trust};
pub(crate) use table::{Cell, Change, Table};

/// What a run says in the first place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// That guests were emulated, if any was.
    pub(crate) emulated: Option<&'static str>,
    /// What each layer costs, in the order of the ladder.
    pub(crate) layers: Vec<String>,
    /// All cells; absent if nothing was measured.
    pub(crate) table: Option<Table>,
    /// What is not decided, and the gravest findings.
    pub(crate) remarks: Vec<String>,
}

/// What is said once of emulated guests.
const EMULATED: &str = "EMULATED guests (no KVM): their figures say nothing of a real machine.";

/// That guests of the run were emulated, if any was.
pub(crate) fn emulated(run: &Run) -> Option<&'static str> {
    run.targets.iter().any(|target| target.emulated).then_some(EMULATED)
}

impl Answer {
    /// Of a run of several targets.
    pub(crate) fn of(run: &Run, judgement: &Judgement) -> Self {
        Self {
            emulated: emulated(run),
            layers: layers::lines(run, judgement),
            table: table::of(run, judgement),
            remarks: remarks::lines(run, judgement),
        }
    }
}
