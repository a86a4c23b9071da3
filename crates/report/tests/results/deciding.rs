//! Tests of the commands suggested to decide a comparison of two runs.

use iotax_analysis::Metric;
use iotax_report::sentences::compared::conclusions;

use crate::compare::{earlier, later, two};

/// Tests that a run with too few rounds is resumed, and that one with fixed looks is repeated.
#[test]
fn what_is_not_decided_ends_with_what_would_decide_it() {
    let noisy = two(&earlier(), &later(1.05, 0.08, 4));
    let needed = noisy.cells.iter().filter(|cell| cell.metric == Metric::LATENCY_MEAN);
    let needed = needed.filter_map(|cell| cell.ratio.needed_rounds).max().expect("undecided");
    let said = conclusions(&noisy);
    for run in [17, 18] {
        let command = format!(": iotax resume {run} --repeat {needed}");
        assert!(said.iter().any(|line| line.ends_with(&command)), "{command}: {said:?}");
    }
    let once = conclusions(&two(&earlier(), &later(1.5, 0.004, 1)));
    let commands: Vec<&String> = once.iter().filter(|line| line.contains(": iotax ")).collect();
    assert!(commands.len() == 1 && commands[0].ends_with("iotax resume 18 --repeat 2"), "{once:?}");
    let mut adding = later(1.05, 0.08, 4);
    adding.plan.design = iotax_model::plan::Design::UntilDecided(iotax_model::plan::UntilDecided::default());
    let said = conclusions(&two(&earlier(), &adding));
    assert!(said.iter().any(|line| line.contains(": iotax resume 18 --time ")), "{said:?}");
    let same = conclusions(&two(&earlier(), &later(1.001, 0.004, 5)));
    assert!(!same.iter().any(|line| line.contains("iotax resume")), "{same:?}");
}
