//! Shows rate limits in front of a storage target, with the measured rates that reveal them.

use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::limits;

/// Builds the section on rate limits; empty for runs of another suite.
pub(super) fn section(run: &Run) -> Markup {
    let page = limits::section(run);
    html! { @if !page.parts.is_empty() { section id="limits" { (set(&page)) } } }
}
