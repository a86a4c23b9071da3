//! Shows power-cut tests: the table, and a chart of speed against safety.

use iotax_analysis::crash::CrashVerdict;
use iotax_model::crash::CrashDocument;
use iotax_model::visible;
use maud::{Markup, PreEscaped, html};

use super::chart::{Axis, Cell, Chart, ChartId, Plot, Unit};
use super::page::set;
use crate::document;
use crate::figure::counted;

/// Legend name and CSS class of stacks that kept their guarantees and were not damaged. [`HARMED`] is for stacks that were damaged although
/// no guarantee was broken, [`LOST`] for those that broke a guarantee, [`UNDECIDED`] for those whose cuts tested none.
const KEPT: (&str, &str) = ("kept", "good");
const HARMED: (&str, &str) = ("damaged", "open");
const LOST: (&str, &str) = ("lost", "bad");
const UNDECIDED: (&str, &str) = ("undecided", "open");

/// Renders the results of `iotax crash` as one HTML file.
#[must_use]
pub fn crash(document: &CrashDocument) -> String {
    let verdicts: Vec<CrashVerdict<'_>> = document.targets.iter().map(CrashVerdict::of).collect();
    let here = ChartId { run: 0, workload: "crash", number: 1 };
    let markup = html! {
        main id="main" tabindex="-1" {
            header {
                h1 { "Loss of data when the power goes" }
                p.about {
                    "iotax " (document.tool)
                    @if let Some(seed) = document.seed { " \u{b7} seed " (seed) }
                }
            }
            section { (chart(&verdicts).figure(here)) }
            section { (set(&document::crash(document))) }
        }
    };
    let main: Markup = PreEscaped(visible::text(&markup.0).into_owned());
    super::file("Loss of data when the power goes - iotax crash", &main)
}

/// Builds a scatter plot of speed against safety, with one point per stack.
fn chart(verdicts: &[CrashVerdict<'_>]) -> Chart {
    let is_of_database = verdicts.iter().any(|one| one.database.is_some());
    let row = |one: &CrashVerdict<'_>| {
        let (kind, _) = match (one.breaks_promise(), one.cuts_with_harm) {
            (true, _) => LOST,
            (false, 0) if one.is_undecided() => UNDECIDED,
            (false, 0) => KEPT,
            (false, _) => HARMED,
        };
        // No loss in cuts that could show none is no safety.
        let share = (kind != UNDECIDED.0).then(|| one.cuts_with_harm as f64 / one.cuts.max(1) as f64 * 100.0);
        vec![Cell::from(one.name), one.writes_per_second.into(), share.into(), kind.into()]
    };
    let (unit, loss) = if is_of_database {
        ("commits", "cuts that broke a promise")
    } else {
        ("writes", "cuts that lost flushed writes")
    };
    let axis = |label: String, unit: Unit, log: bool, at_least: f64| Axis { label, unit, log, at_least };
    let broken = verdicts.iter().filter(|one| one.breaks_promise()).count();
    let without_speed = match verdicts.iter().filter(|one| one.writes_per_second.is_none()).count() {
        0 => String::new(),
        count => format!(
            " {count} could not be read after any cut: of these no speed is known, and they have no point."
        ),
    };
    Chart {
        key: "safety".into(),
        title: document::CRASH_HEAD.into(),
        note: "right is fast, low is safe".into(),
        message: format!(
            "{broken} of {} have {loss}.{without_speed}",
            counted(verdicts.len() as u64, "stack")
        ),
        columns: ["target", &format!("{unit}_per_s"), "cuts_with_harm_percent", "flushed"]
            .map(Into::into)
            .into(),
        rows: verdicts.iter().map(row).collect(),
        colours: [KEPT, HARMED, LOST, UNDECIDED]
            .map(|(kind, colour)| (kind.to_owned(), colour.to_owned()))
            .into(),
        plot: Plot::Points {
            name: 0,
            series: 3,
            x: 1,
            across: axis(format!("{unit} per second"), Unit::Count, true, 0.0),
            y: 2,
            up: axis("cuts with loss or damage".into(), Unit::Percent, false, 100.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use iotax_model::crash::{
        CRASH_FORMAT, CrashedTarget, DatabaseMode, LostBlocks, PostgresqlMode, PowerCut,
    };

    use super::*;

    #[test]
    fn each_stack_is_a_point_and_a_row() {
        let cut = |writes, stale| PowerCut {
            seconds: Some(2.0),
            writes: Some(writes),
            flushed: Some(LostBlocks { checked: 9, stale, ..LostBlocks::default() }),
            acknowledged: Some(LostBlocks { checked: 9, stale: stale + 3, ..LostBlocks::default() }),
            reordered: Some(0),
            ..PowerCut::default()
        };
        let unread = PowerCut { unusable: Some("no such image".into()), ..PowerCut::default() };
        let target = |name: &str, cuts: Vec<PowerCut>| CrashedTarget {
            name: name.into(),
            stack: format!("/srv > volatile > {name}"),
            database: None,
            cuts,
        };
        let page = crash(&CrashDocument {
            format: CRASH_FORMAT.into(),
            tool: "1".into(),
            seed: Some(3),
            writes_per_flush: Some(16),
            planned_cuts: None,
            targets: vec![
                target("none", vec![cut(2000, 0), cut(4000, 0)]),
                target("<i>unsafe", vec![cut(9000, 5), cut(9000, 0)]),
                target("unread", vec![unread.clone(), cut(9000, 0)]),
                target(
                    "unflushed",
                    vec![PowerCut {
                        flushed: Some(LostBlocks::default()),
                        lost_seconds: Some(2.0),
                        ..cut(9000, 0)
                    }],
                ),
                target("never read", vec![unread]),
                CrashedTarget {
                    database: DatabaseMode::Postgresql(PostgresqlMode::Unsynced).into(),
                    ..target("unsynced", vec![PowerCut { unusable: Some("gone".into()), ..cut(9000, 0) }])
                },
            ],
        });
        assert!(page.contains("<td>none</td><td>1500</td><td>0</td><td>kept</td>"), "{page}");
        assert!(page.contains("<td>&lt;i&gt;unsafe</td><td>4500</td><td>50</td><td>lost</td>"));
        let damaged = "<td>unsynced</td><td>4500</td><td>100</td><td>damaged</td>";
        assert!(page.contains(damaged), "it promised nothing, and is not safe: {page}");
        let row = |name: &str| {
            let from = page.rfind(&format!(">{name}</t")).expect("a row");
            page[from..].split("</tr>").next().unwrap_or_default().to_owned()
        };
        assert!(page.contains("<td>unflushed</td><td>4500</td><td></td><td>undecided</td>"), "{page}");
        assert!(row("unflushed").contains(">unknown<"), "{}", row("unflushed"));
        let words = "unflushed: 4.50k writes/s; undecided: nothing was flushed before a cut; up to 2.00 s of writes lost.";
        assert!(page.contains(words), "{page}");
        assert!(row("unread").contains(">3 in 1 of 2<"), "{}", row("unread"));
        assert!(!row("never read").contains(">0"), "what was not read is not known: {}", row("never read"));
        assert!(page.contains("1 could not be read after any cut: of these no speed is known"), "{page}");
        assert!(page.contains("1 of 2 cuts") && page.contains("seed 3") && !page.contains("<i>"));
    }
}
