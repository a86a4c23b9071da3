//! Shows which demands each target meets.

use iotax_analysis::Judgement;
use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::demands;

/// Builds the section on demands; empty for a plan without demands.
pub(super) fn section(run: &Run, judgement: &Judgement) -> Markup {
    let page = demands::section(run, judgement);
    html! { @if !page.parts.is_empty() { section id="demands" { (set(&page)) } } }
}
