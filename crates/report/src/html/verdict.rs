//! A verdict as people read it.

use maud::{Markup, html};

use crate::figure::counted;
use crate::sentences::margin;
use iotax_analysis::Comparison;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::store::Run;

/// The word, and why there is none or what would decide.
pub(super) fn verdict(run: &Run, c: &Comparison) -> Markup {
    let more = c.needed_rounds.map(|needed| needed.saturating_sub(c.rounds));
    html! {
        b class=(c.verdict.word()) { (c.word()) }
        @if let Some(reason) = &c.withheld { span.range { " (" (reason) ")" } }
        @match (c.verdict, more) {
            (Verdict::Same, _) => span.range { " (" (margin(run)) ")" },
            (Verdict::Undecided, Some(more)) => span.range { " (about " (counted(more, "more round")) ")" },
            _ => {},
        }
    }
}
