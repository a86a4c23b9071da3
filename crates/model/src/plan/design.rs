//! The design of a run: the order and number of measurements, and when the run stops.

use serde::{Deserialize, Serialize};

use super::{AskSpec, CurveSpec, Plan, PlanError, UntilDecided, UntilSteady, WatchSpec};

/// The design of a run: the order and number of measurements, and when the run stops.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// A number of rounds that is set in advance.
    #[default]
    FixedRounds,
    /// Rounds are added until every comparison between targets is decided or a limit is reached.
    UntilDecided(UntilDecided),
    /// Rounds are added until every target is in a steady state on every workload, or a limit is reached. Results come from the last five
    /// rounds only.
    UntilSteady(UntilSteady),
    /// Every workload is measured at many rates, for a curve of latency against load.
    Curve(CurveSpec),
    /// The run searches for the highest rate that meets conditions on latency.
    Ask(AskSpec),
    /// Events, such as a failover, are triggered during each measurement to measure their effect on the load.
    Watch(WatchSpec),
}

impl Design {
    /// Chooses the design from the tables that a plan file contains; [`Self::FixedRounds`] if there is no such table.
    ///
    /// # Errors
    /// The file contains the tables of two designs.
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

/// Accessors for the settings of a design, which return `None` if the plan has another one; and properties of designs. Code that must
/// handle every design matches on [`Plan::design`].
impl Plan {
    /// Returns the limits of a run that adds rounds until every comparison is decided; `None` for other designs.
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

    /// Returns the limits of a run that adds rounds until a steady state; `None` for other designs.
    #[must_use]
    pub const fn until_steady(&self) -> Option<&UntilSteady> {
        match &self.design {
            Design::UntilSteady(until) => Some(until),
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::Curve(_)
            | Design::Ask(_)
            | Design::Watch(_) => None,
        }
    }

    /// Returns the settings of a plan that measures latency against load; `None` for other designs.
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

    /// Returns the settings of a plan that searches for the highest rate; `None` for other designs.
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

    /// Returns whether the main result compares targets. The result of a search is a rate, that of a watch the effect of events.
    #[must_use]
    pub const fn compares_targets(&self) -> bool {
        match &self.design {
            Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Curve(_) => true,
            Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// Returns whether the run searches: it chooses what to measure as it goes, so that no measurement can be missing.
    #[must_use]
    pub const fn searches(&self) -> bool {
        match &self.design {
            Design::Ask(_) => true,
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Watch(_) => false,
        }
    }

    /// Returns whether the run overloads its targets on purpose.
    #[must_use]
    pub const fn overloads(&self) -> bool {
        match &self.design {
            Design::Curve(_) | Design::Ask(_) => true,
            Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Watch(_) => {
                false
            }
        }
    }

    /// Returns whether the run disturbs its load on purpose, so that failed I/Os, hangs and changed rates are results.
    #[must_use]
    pub const fn disturbs(&self) -> bool {
        match &self.design {
            Design::Watch(_) => true,
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Ask(_) => false,
        }
    }

    /// Returns whether rounds are added depending on the results so far.
    #[must_use]
    pub const fn adds_rounds(&self) -> bool {
        match &self.design {
            Design::UntilDecided(_) | Design::UntilSteady(_) => true,
            Design::FixedRounds | Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// Returns whether devices are purged and filled twice, and wholly, before the first round.
    #[must_use]
    pub const fn preconditions(&self) -> bool {
        match &self.design {
            Design::UntilSteady(_) => true,
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::Curve(_)
            | Design::Ask(_)
            | Design::Watch(_) => false,
        }
    }

    /// Returns whether comparisons use one value per round, so that confidence intervals narrow with more rounds.
    #[must_use]
    pub const fn goes_by_rounds(&self) -> bool {
        match &self.design {
            Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) => true,
            Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => false,
        }
    }

    /// Returns the settings of a plan that triggers events during measurements; `None` for other designs.
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
