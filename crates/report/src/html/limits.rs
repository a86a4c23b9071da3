//! Rate limits in front of a storage target, with the measured rates they follow from.

use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::limits;

/// The section on rate limits; empty for a run of another kind.
pub(super) fn section(run: &Run) -> Markup {
    let page = limits::section(run);
    html! { @if !page.parts.is_empty() { section id="limits" { (set(&page)) } } }
}
