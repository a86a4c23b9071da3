//! The one-screen answer of a run: a line per layer, one table of all cells, and the most serious remarks.

mod layers;
mod ranking;
mod remarks;
mod speed;
mod table;
mod together;

use iotax_analysis::Judgement;
use iotax_model::Run;

use ranking::Ranking;
pub(crate) use remarks::{MORE, grave, trust};
pub(crate) use table::{Cell, Change, Table};

/// The one-screen answer of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// A warning if any guest's CPU was emulated; else `None`.
    pub(crate) emulated: Option<&'static str>,
    /// One line per layer with its cost, in the order of the ladder; ranked formats cheapest first.
    pub(crate) layers: Vec<String>,
    /// Figures of all cells (target and workload); `None` if nothing was measured.
    pub(crate) table: Option<Table>,
    /// The most serious remarks (warnings, failed measurements, undecided comparisons), then the command that shows everything.
    pub(crate) remarks: Vec<String>,
}

const EMULATED: &str = "EMULATED guests (no KVM): their figures say nothing about a real machine.";

/// Returns a warning if any guest's CPU was emulated; else `None`.
pub(crate) fn emulated(run: &Run) -> Option<&'static str> {
    run.targets.iter().any(|target| target.emulated).then_some(EMULATED)
}

impl Answer {
    /// Builds the answer from a run and its judgement, for any number of targets.
    pub(crate) fn of(run: &Run, judgement: &Judgement) -> Self {
        let ranking = Ranking::of(run, judgement);
        Self {
            emulated: emulated(run),
            layers: layers::lines(run, judgement, &ranking),
            table: table::of(run, judgement, &ranking),
            remarks: remarks::lines(run, judgement),
        }
    }
}
