//! Durable writes by method, with the account of their flushes.

use iotax_analysis::Judgement;
use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::durability;

/// The section; empty for other runs.
pub(super) fn section(run: &Run, judgement: &Judgement) -> Markup {
    let page = durability::section(run, judgement);
    html! { @if !page.parts.is_empty() { section id="durability" { (set(&page)) } } }
}
