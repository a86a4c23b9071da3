//! Identities of a run's cells and measurements.

use crate::record::Measurement;
use crate::{Run, Warning};

/// Identity of a cell: a workload on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The workload's name.
    pub workload: &'a str,
}

/// Identity of a measurement: a cell and a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasurementKey<'a> {
    /// The workload on a target.
    pub cell: CellKey<'a>,
    /// The round, from 1.
    pub round: u32,
}

impl Measurement {
    /// Returns the cell that was measured.
    #[must_use]
    pub fn cell(&self) -> CellKey<'_> {
        CellKey { target: &self.target, workload: &self.workload }
    }

    /// Returns the cell and the round of the measurement.
    #[must_use]
    pub fn key(&self) -> MeasurementKey<'_> {
        MeasurementKey { cell: self.cell(), round: self.round }
    }
}

impl Warning {
    /// Returns the measurement that the warning names; `None` if it does not name a target, a workload and a round.
    #[must_use]
    pub fn measurement(&self) -> Option<MeasurementKey<'_>> {
        let cell = CellKey { target: self.target.as_deref()?, workload: self.workload.as_deref()? };
        Some(MeasurementKey { cell, round: self.round? })
    }
}

impl Run {
    /// Returns the measurements of a cell in the order of execution.
    pub fn of_cell(&self, cell: CellKey<'_>) -> impl Iterator<Item = &Measurement> + Clone {
        self.measurements.iter().filter(move |m| m.cell() == cell)
    }
}
