//! The condition of `--fail-if` in a search for the highest rate: `rate < 20000`.

use std::str::FromStr;

use iotax_analysis::ask::{Possible, answers};
use iotax_model::Run;
use iotax_model::exit::Exit;
use iotax_model::number;
use iotax_model::units::human;

use super::say::say;

/// The rate in I/Os per second below which a target fails `--fail-if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateGate {
    iops: u64,
}

impl FromStr for RateGate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ["rate", "iops"].into_iter().find_map(|name| text.trim().strip_prefix(name));
        let limit = named.and_then(|rest| rest.trim_start().strip_prefix('<'));
        let iops = limit.and_then(|limit| number::whole(limit, &(1..=u64::MAX)).ok());
        iops.map(|iops| Self { iops }).ok_or_else(|| {
            format!("{text:?} is not a gate; accepted: rate < N in I/Os a second, such as \"rate < 20k\"")
        })
    }
}

impl RateGate {
    /// Prints the outcome for each target. Returns `Gate` if a target fails, else `Unjudged` if one is undecided or nothing was measured,
    /// else `Fine`.
    pub(super) fn judge(self, run: &Run) -> Exit {
        let (mut exit, asked) = (Exit::Fine, human::count(self.iops as f64));
        let answers = answers(run);
        for answer in answers.iter().flat_map(|answers| &answers.targets) {
            let possible = answer.allows(self.iops as f64);
            let (word, code) = match possible {
                Possible::Yes => ("passed", Exit::Fine),
                Possible::No => ("FAILED", Exit::Gate),
                Possible::Undecided => ("undecided", Exit::Unjudged),
            };
            say!("gate rate < {asked}: {word}: {}", answer.target);
            exit = match (exit, code) {
                (Exit::Gate, _) | (_, Exit::Gate) => Exit::Gate,
                (Exit::Unjudged, _) | (_, Exit::Unjudged) => Exit::Unjudged,
                _ => Exit::Fine,
            };
        }
        // Without answers, no requested workload was measured.
        if answers.is_empty() { Exit::Unjudged } else { exit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_a_rate_in_whole_numbers() {
        assert_eq!("rate < 20000".parse(), Ok(RateGate { iops: 20_000 }));
        assert_eq!(" rate<5 ".parse(), Ok(RateGate { iops: 5 }));
        assert_eq!("iops < 1.27k".parse(), Ok(RateGate { iops: 1270 }));
        for text in ["", "rate", "rate > 5", "rate < 0", "rate < 1z", "p99 < 5", "rate < -1"] {
            let error = text.parse::<RateGate>().expect_err(text);
            assert!(error.contains(&format!("{text:?}")) && error.contains("accepted: rate < N"), "{error}");
        }
    }
}
