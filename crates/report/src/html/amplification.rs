//! Shows I/O amplification: what each layer merged, split, amplified, or answered from a cache.

use iotax_model::units::human;
use maud::{Markup, html};

use super::colour;
use crate::amplification::{DIRECTIONS, counted, remarkable, transactions};
use crate::figure::or_unknown;
use iotax_analysis::amplification::{Level, Passed};
use iotax_analysis::{IoAmplification, Judgement};
use iotax_model::Run;

/// Builds the section of a workload: layers' own counts and notable layers in sentences, and the counts of every layer; empty if no layer
/// below the program was counted.
pub(super) fn section(run: &Run, judgement: &Judgement, workload: &str) -> Markup {
    let flows: Vec<_> = judgement.on(workload, |cell| cell.amplification.as_ref()).collect();
    html! {
        @for line in counted(run, workload) { p.note { (line) "." } }
        @for line in transactions(run, judgement, workload) { p.note { (line) "." } }
        @if !flows.is_empty() {
            @for (target, flow) in &flows {
                @let lines = remarkable(flow);
                @if !lines.is_empty() { p.note { b { (target) } ", passed on: " (lines.join("; ")) "." } }
            }
            details {
                summary { "What each layer passed on" }
                div.wide tabindex="0" role="region" aria-label="What each layer passed on" {
                    table.steps { (head()) @for (target, flow) in &flows { (rows(run, target, flow)) } }
                }
            }
        }
    }
}

fn head() -> Markup {
    html! {
        thead {
            tr {
                th { "layer, from the program down" } th.left { "direction" } th { "I/Os" } th { "mean size" } th { "mean wait" }
                th { "I/Os for one" br; "of the layer above" } th { "bytes for one" br; "of the layer above" }
            }
        }
    }
}

fn rows(run: &Run, target: &str, flow: &IoAmplification) -> Markup {
    // A direction without I/O has no rows.
    let used = DIRECTIONS.into_iter().filter(|(_, of)| flow.levels.iter().any(|level| of(level).ios > 0));
    html! {
        tbody {
            tr { th.left colspan="7" scope="rowgroup" { span class=(colour(run, target)) { span.swatch {} } (target) } }
            @for (direction, of) in used {
                @for level in &flow.levels { (row(level, direction, of(level))) }
            }
        }
    }
}

fn row(level: &Level, direction: &str, passed: &Passed) -> Markup {
    let ratio = |value: f64| format!("{value:.3}");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the mean of sizes that fit")]
    let size = |bytes: f64| human::bytes(bytes.round() as u64);
    html! {
        tr {
            td { (level.name) }
            td.left { (direction) }
            td { (human::count(passed.ios as f64)) }
            td { (or_unknown(passed.mean_size(), size)) }
            td { (or_unknown(passed.wait_ns, human::time)) }
            td { (or_unknown(passed.ios_ratio, ratio)) }
            td { (or_unknown(passed.bytes_ratio, ratio)) }
        }
    }
}
