//! The design of a run: what is measured, and when the run stops.

use serde::{Deserialize, Serialize};

use super::{AskSpec, CurveSpec, Plan, PlanError, UntilDecided, UntilSteady, WatchSpec};

/// The design of a run, which determines what is measured and when the run stops.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// A fixed number of rounds.
    #[default]
    FixedRounds,
    /// Rounds are added until every comparison is decided.
    UntilDecided(UntilDecided),
    /// Rounds are added until every target is in a steady state on every workload. Only the last five rounds are compared.
    UntilSteady(UntilSteady),
    /// Every workload is measured at many rates.
    Curve(CurveSpec),
    /// A search for the highest rate that meets conditions chooses the rates.
    Ask(AskSpec),
    /// Triggers events during each measurement.
    Watch(WatchSpec),
}

impl Design {
    /// The design given by the tables of a plan file.
    ///
    /// # Errors
    /// The file has tables of two designs.
    pub(super) fn of_tables(
        until: Option<UntilDecided>,
        steady: Option<UntilSteady>,
        curve: Option<CurveSpec>,
        ask: Option<AskSpec>,
        watch: Option<WatchSpec>,
    ) -> Result<Self, PlanError> {
        let all = [
            ("until_decided", until.map(Self::UntilDecided)),
            ("until_steady", steady.map(Self::UntilSteady)),
            ("curve", curve.map(Self::Curve)),
            ("ask", ask.map(Self::Ask)),
            ("watch", watch.map(Self::Watch)),
        ];
        let mut given = all.into_iter().filter_map(|(table, design)| Some((table, design?)));
        match (given.next(), given.next()) {
            (Some((first, _)), Some((second, _))) => Err(PlanError::Content(format!(
                "{second}: the plan has [{first}] too; a run has one design: leave out one of the two"
            ))),
            (only, _) => Ok(only.map(|(_, design)| design).unwrap_or_default()),
        }
    }
}

/// Accessors for the settings of designs; each is `None` for other designs. Code that must handle all designs matches on [`Plan::design`].
impl Plan {
    /// The limits of a run that adds rounds until every comparison is decided.
    #[must_use]
    pub const fn until_decided(&self) -> Option<&UntilDecided> {
        match &self.design {
            Design::UntilDecided(until) => Some(until),
            Design::FixedRounds
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Ask(_)
            | Design::Watch(_) => None,
        }
    }

    /// The settings of a plan that measures latency curves.
    #[must_use]
    pub const fn curve(&self) -> Option<&CurveSpec> {
        match &self.design {
            Design::Curve(curve) => Some(curve),
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Ask(_)
            | Design::Watch(_) => None,
        }
    }

    /// The settings of a plan that searches for the highest rate.
    #[must_use]
    pub const fn ask(&self) -> Option<&AskSpec> {
        match &self.design {
            Design::Ask(ask) => Some(ask),
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Watch(_) => None,
        }
    }

    /// Returns whether the main result compares targets. A search results in a rate, a watch in the cost of an event.
    #[must_use]
    pub const fn compares_targets(&self) -> bool {
        match &self.design {
            Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Curve(_) => true,
            Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// Returns whether the number of rounds depends on the results so far.
    #[must_use]
    pub const fn adds_rounds(&self) -> bool {
        match &self.design {
            Design::UntilDecided(_) | Design::UntilSteady(_) => true,
            Design::FixedRounds | Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// Returns whether targets are compared by rounds, so that more rounds give narrower intervals.
    #[must_use]
    pub const fn goes_by_rounds(&self) -> bool {
        match &self.design {
            Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) => true,
            Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// The settings of a plan that triggers events during measurements.
    #[must_use]
    pub const fn watch(&self) -> Option<&WatchSpec> {
        match &self.design {
            Design::Watch(watch) => Some(watch),
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Ask(_) => None,
        }
    }
}
