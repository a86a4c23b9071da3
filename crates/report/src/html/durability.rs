//! Shows durable writes by method, with the number of flushes at each layer.

use iotax_analysis::Judgement;
use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::durability;

/// Builds the section on durable writes; empty if the run tested none.
pub(super) fn section(run: &Run, judgement: &Judgement) -> Markup {
    let page = durability::section(run, judgement);
    html! { @if !page.parts.is_empty() { section id="durability" { (set(&page)) } } }
}
