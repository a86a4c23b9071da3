//! Renders a run as one HTML file: no network requests, light and dark mode, printable. Without scripts only the charts are missing.

mod amplification;
mod answer;
mod ask;
mod bars;
mod chart;
mod clock;
mod crash;
mod curve;
mod demands;
mod durability;
mod grid;
mod guests;
mod heat;
mod history;
mod latency;
mod latency_breakdown;
mod layers;
mod limits;
mod network;
mod page;
mod script;
mod steady_state;
mod suite;
mod surface;
mod taxes;
mod timeline;
mod trend;
mod verdict;
mod watch;
mod workload;

use iotax_model::plan::Design;
use iotax_model::record::TargetRecord;
use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::visible;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use chart::{Cell, ChartId};
pub use crash::crash;
pub use trend::trend;

use super::figure::counted;
use super::marks::{LOST, is_emulated, is_lost};
use super::remarks::{checks, engine, notes, remarks};
use super::sentences::margin;
use super::{plan_toml, sentences};
use crate::mark::Mark;
use iotax_analysis::Judgement;
use iotax_analysis::curve::Curves;
use iotax_analysis::grade::Grade;
use iotax_analysis::suite::SuiteTest;
use iotax_analysis::time::utc;
use iotax_model::Run;

pub use history::history;
pub use page::set;
pub use script::SCRIPTS;

/// Style sheet of every page.
pub const STYLE: &str = include_str!("style.css");

/// Number of target colours in the style sheet; colours repeat if there are more targets.
const COLOURS: usize = 10;

/// Mark of pages that iotax wrote: the first bytes of the file. A page that merely quotes a report starts differently.
pub const MARK: Mark = Mark::start(
    "HTML",
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"iotax\">",
);

/// Renders the report of a run as a complete HTML file.
#[must_use]
pub fn render(run: &Run, judgement: &Judgement) -> String {
    file(&format!("{} - iotax run {}", visible::line(&run.plan.name), run.id), &main(run, judgement))
}

/// Renders a complete HTML file with this title and this `main` element.
fn file(title: &str, main: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="generator" content="iotax";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // The page loads nothing, so the policy forbids it: a browser does not even ask for an icon.
                meta http-equiv="Content-Security-Policy" content=(script::policy());
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "To the report" }
                (main)
                (script::scripts())
            }
        }
    };
    page.into_string()
}

/// Renders the report as a `main` element, for a page that includes [`STYLE`] and [`SCRIPTS`].
#[must_use]
pub fn main(run: &Run, judgement: &Judgement) -> Markup {
    shown(&report(run, judgement))
}

/// Renders the section on the cost of each layer, for a page that includes [`STYLE`] and [`SCRIPTS`]; empty if nothing was compared.
#[must_use]
pub fn layers(run: &Run, judgement: &Judgement) -> Markup {
    shown(&layers::section(run, judgement))
}

/// Escapes hidden characters in the page; they can only come from names and texts that iotax did not write.
fn shown(markup: &Markup) -> Markup {
    PreEscaped(visible::text(&markup.0).into_owned())
}

fn report(run: &Run, judgement: &Judgement) -> Markup {
    let tests = iotax_analysis::suite::tests(run);
    let curves = iotax_analysis::curve::curves(run);
    let grids = iotax_analysis::curve::grids(&curves);
    let each = tests.is_empty() && curves.is_empty() && !run.plan.searches();
    let is_of_methods = iotax_analysis::durability::is_of_methods(run);
    let plain = curves.is_empty() && run.plan.compares_targets();
    html! {
        main id="main" tabindex="-1" {
            (head(run))
            (contents(run, judgement, &tests, &curves))
            (demands::section(run, judgement))
            (durability::section(run, judgement))
            (limits::section(run))
            @if plain && !is_of_methods { (answer::section(run, judgement, &tests)) }
            (ask::sections(run))
            (watch::sections(run))
            (grid::sections(run, &grids))
            (curve::sections(run, judgement, &curves))
            @if each && !is_of_methods { (layers::section(run, judgement)) }
            @if plain { (meaning(run, judgement)) }
            @if each {
                @if !is_of_methods { (taxes::section(run, judgement)) }
                @for workload in &run.plan.workloads {
                    (workload::section(run, judgement, workload))
                }
            } @else {
                (suite::sections(run, judgement, &tests))
            }
            (suite::indexes(run))
            (remark_list(run, judgement))
            (targets(run))
            (timing(judgement))
            @if !run.source.is_imported() { (environment(run)) }
            @if !run.source.is_imported() { (reproduce(run)) }
        }
    }
}

/// Returns the CSS class of a target's colour, which is the same throughout the file.
fn colour(run: &Run, target: &str) -> String {
    let index = run.plan.targets.iter().position(|t| t.name == target).unwrap_or_default();
    format!("t{}", index % COLOURS)
}

/// Lists the targets in the first column of `rows` with their colours, in the plan's order.
fn colours(run: &Run, rows: &[Vec<Cell>]) -> Vec<(String, String)> {
    let has = |name: &str| rows.iter().any(|row| row.first() == Some(&Cell::from(name)));
    let targets = run.plan.targets.iter().filter(|target| has(&target.name));
    targets.map(|target| (target.name.clone(), colour(run, &target.name))).collect()
}

/// Returns the run and workload that identify a workload's charts.
fn chart_id<'a>(run: &Run, workload: &'a str) -> ChartId<'a> {
    let number = run.plan.workloads.iter().position(|w| w.name == workload).unwrap_or_default();
    ChartId { run: run.id, workload, number: number + 1 }
}

/// Formats the number of rounds: for a run that adds rounds until a condition is met, the rounds so far and the maximum; for a search only
/// the rounds so far.
fn rounds(run: &Run) -> String {
    let all = counted(run.plan.most_rounds(), "round");
    let there = run.measurements.iter().map(|m| m.round).max().unwrap_or_default();
    match &run.plan.design {
        Design::Ask(_) => counted(there, "round"),
        Design::UntilDecided(_) | Design::UntilSteady(_) => format!("{there} of at most {all}"),
        Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => all,
    }
}

fn head(run: &Run) -> Markup {
    html! {
        header {
            h1 { (run.plan.name) }
            p.about {
                "iotax run " (run.id) " \u{b7} " (utc(run.started_at_ms)) " \u{b7} " (run.state) " \u{b7} "
                (rounds(run))
                @if !run.source.is_imported() { " \u{b7} seed " (run.seed) }
            }
            @if let Some(unfinished) = sentences::unfinished(run) { p.about { strong { (unfinished) } } }
            @if let Some(source) = run.source.imported() {
                p.about { (source) ": its own figures, which iotax has not measured or checked" }
                @if let Some(about_time) = source.about_time() { p.about { (about_time) } }
            }
            ul.legend {
                @for target in &run.plan.targets {
                    li class=(colour(run, &target.name)) {
                        span.swatch {} (target.name)
                        @if target.name == run.plan.baseline && run.plan.targets.len() > 1 { span.tag { "baseline" } }
                        @if is_emulated(run, &target.name) { span.tag { "emulated" } }
                        @if is_lost(run, &target.name) { span.tag { (LOST) } }
                    }
                }
            }
        }
    }
}

/// Renders the table of contents.
fn contents(run: &Run, judgement: &Judgement, tests: &[SuiteTest<'_>], curves: &[Curves<'_>]) -> Markup {
    let measured = |name: &str| judgement.cells.iter().any(|cell| cell.workload == name);
    let is_of_methods = iotax_analysis::durability::is_of_methods(run);
    html! {
        nav aria-label="Contents" {
            @if run.plan.ask().is_some() { a href="#a1" { "The highest rate" } }
            @if is_of_methods { a href="#durability" { "Durable writes" } }
            @if !iotax_analysis::limits::limits(run).is_empty() { a href="#limits" { "Limits" } }
            @if run.plan.watch().is_some() { a href="#v1" { "What it cost" } }
            @if !iotax_analysis::curve::grids(curves).is_empty() { a href="#g1" { "Reads against writes" } }
            @for (number, curves) in (1..).zip(curves) { a href=(format!("#c{number}")) { (curves.work.name) } }
            @if tests.is_empty() && curves.is_empty() && !run.plan.searches() {
                @if !judgement.comparisons.is_empty() && !is_of_methods { a href="#layers" { "Layers" } }
                @if !judgement.cells.is_empty() && !is_of_methods { a href="#taxes" { "The figures" } }
                @for workload in run.plan.workloads.iter().filter(|workload| measured(&workload.name)) {
                    a href=(format!("#w{}", chart_id(run, &workload.name).number)) { (workload.name) }
                }
            }
            @for (number, test) in tests.iter().enumerate() { a href=(format!("#w{}", number + 1)) { (test.name) } }
            a href="#remarks" { "Remarks" }
            @if !run.source.is_imported() { a href="#environment" { "Environment" } }
            @if !run.source.is_imported() { a href="#reproduce" { "How to reproduce" } }
        }
    }
}

fn meaning(run: &Run, judgement: &Judgement) -> Markup {
    let sentences = sentences::meaning(run, judgement);
    html! {
        @if run.measurements.is_empty() {
            section.means {
                h2 { "Nothing was measured" }
                ul { @for sentence in &sentences { li { (sentence) } } }
            }
        } @else if !sentences.is_empty() {
            section.means {
                h2 { "What it means" }
                ul { @for sentence in &sentences { li { (sentence) } } }
            }
        }
    }
}

fn remark_list(run: &Run, judgement: &Judgement) -> Markup {
    let (found, noted, suite) = (remarks(run, &judgement.warnings), notes(run), run.plan.known_suite());
    html! {
        section.remarks id="remarks" {
            h2 { "Remarks" }
            ul {
                @for remark in &found {
                    li {
                        b { (remark.kind.word().replace('_', " ")) }
                        @if !remark.scope.is_empty() { ", " (remark.scope) }
                        ": " (remark.evidence) ". " span.note { "Remedy: " (remark.remedy) "." }
                    }
                }
                @for note in &noted { li { (note) } }
                @for remark in suite.iter().flat_map(|suite| suite.remarks_on_all()) { li { (remark) "." } }
                @if let Some(trust) = trust(judgement) { li { (trust) } }
                @if let Some(source) = run.source.imported() {
                    @for line in &source.not_understood { li { "not understood: " (line) } }
                }
                @if !run.source.is_imported() && found.is_empty() && noted.is_empty() && !run.measurements.is_empty() {
                    li { "Clean: the checks of " (listed(&checks(run).map(str::to_owned))) " found nothing." }
                }
                @if let Some(engine) = engine(run) { li { (engine) } }
            }
        }
    }
}

/// Formats the number of measurements that are clean, have remarks, or are unusable; `None` if none has remarks or is unusable.
fn trust(judgement: &Judgement) -> Option<String> {
    let of = |grade: Grade| judgement.grades.iter().filter(|found| **found == grade).count() as u64;
    let (clean, remarks, unusable) = (of(Grade::Clean), of(Grade::Remarks), of(Grade::Unusable));
    let all = counted(judgement.grades.len() as u64, "measurement");
    (remarks + unusable > 0).then(|| {
        format!("Of {all} {clean} are clean, {remarks} are to be read with the remarks, {unusable} cannot be used.")
    })
}

fn targets(run: &Run) -> Markup {
    html! {
        @if !run.targets.is_empty() {
            section {
                h2 { "Targets" small { "layers from the bottom up" } }
                @for record in &run.targets { (target(run, record)) }
            }
        }
    }
}

fn target(run: &Run, record: &TargetRecord) -> Markup {
    let facts: Vec<String> = [
        record.guest_kernel.as_ref().map(|kernel| format!("guest kernel {kernel}")),
        record.guest_clocksource.as_ref().map(|clock| format!("clocksource {clock}")),
        record.boot_ns.map(|ns| format!("agent answered {} after start", human::time(ns as f64))),
    ]
    .into_iter()
    .flatten()
    .collect();
    html! {
        h3 class=(colour(run, &record.name)) {
            span.swatch {} (record.name)
            @if record.emulated { span.tag { "emulated" } }
            @if record.lost.is_some() { span.tag { (LOST) } }
        }
        @if let Some(reason) = &record.lost { p { (reason) } }
        ol.layers {
            @for layer in &record.layers {
                li { (layer.name) small { (layer.kind) @if !layer.detail.is_empty() { " \u{b7} " (layer.detail) } } }
            }
        }
        @if !facts.is_empty() { p.note { (facts.join(" \u{b7} ")) } }
        (network::interfaces(record))
        @if let Some(command) = &record.command_line {
            details { summary { "Command line" } pre { (command) } }
        }
    }
}

fn timing(judgement: &Judgement) -> Markup {
    html! {
        @if let Some(timing) = &judgement.timing {
            section {
                h2 { "Time" small { (format!("{:.1}% outside the measured windows", timing.outside * 100.0)) } }
                div.wide tabindex="0" {
                    table.narrow {
                        thead { tr { th { "phase" } th { "time" } th { "share" } } }
                        tbody {
                            @for (phase, share) in &timing.phases {
                                tr {
                                    td { (phase.name) }
                                    td { (human::duration(phase.duration_ns as f64 / 1e9)) }
                                    td { (format!("{:.1}%", share * 100.0)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the section on the machine of a run, for a page that includes [`STYLE`] and [`SCRIPTS`].
#[must_use]
pub fn environment(run: &Run) -> Markup {
    let e = &run.environment;
    let text = |value: &Option<String>| value.clone();
    let facts: [(&str, Option<String>); 12] = [
        ("CPU", text(&e.cpu_model)),
        ("CPUs online", e.cpus.map(|n| n.to_string())),
        ("Memory", e.memory_bytes.map(human::bytes)),
        ("Kernel", text(&e.kernel)),
        ("Distribution", text(&e.os)),
        ("Frequency governor", text(&e.governor)),
        ("Clocksource", text(&e.clocksource)),
        ("Hypervisor below", text(&e.hypervisor)),
        ("QEMU", text(&e.qemu)),
        ("Guests run by", text(&e.accel)),
        ("because", text(&e.accel_reason)),
        ("iotax", text(&e.tool)),
    ];
    html! {
        section id="environment" {
            h2 { "Environment" }
            dl {
                @for (name, value) in &facts {
                    @if let Some(value) = value { dt { (name) } dd { (value) } }
                }
            }
            @if !e.mitigations.is_empty() {
                details {
                    summary { "CPU vulnerabilities" }
                    dl { @for (name, state) in &e.mitigations { dt { (name) } dd { (state) } } }
                }
            }
        }
    }
}

fn reproduce(run: &Run) -> Markup {
    html! {
        section id="reproduce" {
            h2 { "How to reproduce" }
            p { "Save the plan as " code { "plan.toml" } " and run " code { "iotax run plan.toml" }
                ": the seed in it fixes the order of the cells and the payload." }
            @match plan_toml(run) {
                Ok(plan) => details { summary { "The plan" } pre { (plan) } },
                Err(error) => p.note { "The plan cannot be written as TOML: " (error) },
            }
            p.note {
                "Targets are compared within rounds by log ratios; intervals are Student's t, with variances \
                 that the comparisons by a metric share, at a level that Holm's procedure sets for their family"
                @if run.plan.until_decided().is_some() { ", of what all looks together may err" }
                "; " (margin(run)) " counts as the same. A tax is the ratio applied to what the baseline gave in this run. \
                 Error bars of taxes show those intervals, those of percentiles the plain 95% over the rounds. Tables \
                 give geometric means over the rounds, percentiles all rounds together; one with fewer than ten values beyond it \
                 is left out."
            }
        }
    }
}
