//! Grades: how far a measurement can be trusted.

use std::collections::HashMap;

use iotax_model::record::Measurement;
use iotax_model::{CellKey, MeasurementKey, Warning, WarningKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::Finding;
use iotax_model::Run;

/// The result of all checks on one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The measurement was made by another tool, so that nothing could be checked.
    Unchecked,
    /// The measurement has no warnings.
    Clean,
    /// The measurement has warnings, but the figures can be used.
    Remarks,
    /// The measurement does not show what the plan asks for: no verdict may rest on it.
    Unusable,
}

impl Grade {
    /// All grades.
    pub const ALL: [Self; 4] = [Self::Unchecked, Self::Clean, Self::Remarks, Self::Unusable];

    /// Returns the grade's word in reports and documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Clean => "clean",
            Self::Remarks => "remarks",
            Self::Unusable => "unusable",
        }
    }
}

/// Returns the grade of each measurement, in the run's order: the worst of the findings and of the warnings in `others` that apply to it. A
/// finding or warning applies to all measurements with the target, workload and round that it names. Warnings about missing measurements
/// count only if they name a round. All measurements of an import are unchecked.
pub(super) fn grades(run: &Run, findings: &[Finding], others: &[Warning]) -> Vec<Grade> {
    if run.source.is_imported() {
        return vec![Grade::Unchecked; run.measurements.len()];
    }
    let mut said: HashMap<_, Grade> = HashMap::new();
    // Missing measurements do not affect the others.
    let counts = |w: &Warning| w.kind != WarningKind::Incomplete || w.round.is_some();
    let found = findings
        .iter()
        .map(|finding| (&finding.warning, if finding.unusable { Grade::Unusable } else { Grade::Remarks }));
    let others = others.iter().map(|warning| (warning, Grade::Remarks));
    for (w, grade) in found.chain(others).filter(|(w, _)| counts(w)) {
        let about = (w.target.as_deref(), w.workload.as_deref(), w.round);
        let known = said.entry(about).or_insert(grade);
        *known = grade.max(*known);
    }
    // A warning applies to every measurement that matches the target, workload and round that it names.
    let grade = |m: &Measurement| {
        let mut worst = Grade::Clean;
        for target in [None, Some(m.target.as_str())] {
            for workload in [None, Some(m.workload.as_str())] {
                for round in [None, Some(m.round)] {
                    worst = worst.max(said.get(&(target, workload, round)).copied().unwrap_or(Grade::Clean));
                }
            }
        }
        worst
    };
    run.measurements.iter().map(grade).collect()
}

/// Returns whether a finding makes a measurement unusable. A finding applies to every measurement that matches the target, workload and
/// round that it names.
pub(super) fn is_unusable(m: &Measurement, findings: &[Finding]) -> bool {
    let is = |named: Option<&String>, name: &str| named.is_none_or(|named| named == name);
    findings.iter().filter(|finding| finding.unusable).map(|finding| &finding.warning).any(|w| {
        is(w.target.as_ref(), &m.target)
            && is(w.workload.as_ref(), &m.workload)
            && w.round.is_none_or(|round| round == m.round)
    })
}

/// Collects the reason why each unusable measurement cannot support a verdict. Usable measurements are left out.
pub(super) fn withheld(findings: &[Finding]) -> HashMap<MeasurementKey<'_>, String> {
    let mut reasons = HashMap::new();
    for Finding { warning, .. } in findings.iter().filter(|finding| finding.unusable) {
        let Some(key @ MeasurementKey { cell: CellKey { target, .. }, round }) = warning.measurement() else {
            continue;
        };
        let Warning { kind, evidence, .. } = warning;
        reasons.entry(key).or_insert_with(|| format!("{target}, round {round}: {kind}: {evidence}"));
    }
    reasons
}
