//! Renders verdicts and intervals.

use maud::{Markup, html};

use crate::figure::counted;
use crate::sentences::margin;
use iotax_analysis::Comparison;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;

/// Renders a verdict. A withheld verdict gets its reason, the verdict `same` the margin, an undecided one the number of further rounds that would
/// decide it.
pub(super) fn verdict(run: &Run, c: &Comparison) -> Markup {
    let more = c.ratio.needed_rounds.map(|needed| needed.saturating_sub(c.rounds));
    html! {
        b class=(c.ratio.verdict.word()) { (c.ratio.word()) }
        @if let Some(reason) = &c.ratio.withheld { span.range { " (" (reason) ")" } }
        @match (c.ratio.verdict, more) {
            (Verdict::Same, _) => span.range { " (" (margin(run)) ")" },
            (Verdict::Undecided, Some(more)) => span.range { " (about " (counted(more, "more round")) ")" },
            _ => {},
        }
    }
}

/// Puts the interval of a figure into an element with a separate style.
pub(super) fn with_interval(words: &str) -> Markup {
    html! {
        @match words.split_once(" [") {
            Some((estimate, range)) => { (estimate) " " span.range { "[" (range) } },
            None => (words),
        }
    }
}
