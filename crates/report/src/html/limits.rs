//! Limits before a storage, with the rates that they were found by.

use iotax_model::Run;
use maud::{Markup, html};

use super::page::set;
use crate::document::limits;

/// The section; nothing for a run of other work.
pub(super) fn section(run: &Run) -> Markup {
    let page = limits::section(run);
    html! { @if !page.parts.is_empty() { section id="limits" { (set(&page)) } } }
}
