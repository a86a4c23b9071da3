//! The highest rate that keeps conditions.

use maud::{Markup, html};

use crate::ask::{heading, sentences};
use iotax_analysis::ask::answers;
use iotax_analysis::store::Run;

/// A section for each work that was asked about; nothing for a run that asks nothing.
pub(super) fn sections(run: &Run) -> Markup {
    let Some(ask) = &run.plan.ask else { return html! {} };
    html! {
        @for (number, answers) in (1..).zip(answers(run)) {
            section id=(format!("a{number}")) {
                h2 { (heading(ask, &answers)) }
                ul { @for sentence in sentences(run, ask, &answers) { li { (sentence) } } }
            }
        }
    }
}
