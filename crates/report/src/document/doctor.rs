//! The findings of a doctor, and its rules.

use iotax_doctor::{Finding, Rule, Sureness};
use iotax_model::survey::Survey;
use iotax_model::units::human::listed;

use super::{Page, Part};

/// The answer first, then each finding with its evidence, reason and remedy.
#[must_use]
pub fn doctor(subject: &str, survey: &Survey, findings: &[Finding]) -> Page {
    let mut parts = vec![Part::Sentence(format!("{subject}: {}.", answer(findings)))];
    for finding in findings {
        let Rule { id, sureness, title, why, source, .. } = finding.rule;
        let sighting = &finding.sighting;
        parts.push(Part::Head(format!("{}: {title} ({}, {id})", sighting.place, sureness.title())));
        parts.push(Part::Lines(vec![
            format!("seen: {} ({})", sighting.seen, sighting.source),
            format!("why: {why} [{source}]"),
            format!("remedy: {}", sighting.remedy),
        ]));
    }
    parts.push(Part::Sentence(looked_at(survey)));
    if !survey.unread.is_empty() {
        parts.push(Part::Sentence(format!("Not known: {}.", survey.unread.join("; "))));
    }
    Page { parts }
}

/// Such as `2 known faults, 1 cost, 3 depend`.
fn answer(findings: &[Finding]) -> String {
    let counts = Sureness::ALL.map(|sureness| {
        let count = findings.iter().filter(|finding| finding.rule.sureness == sureness).count();
        let words = match (sureness, count) {
            (_, 0) => return None,
            (Sureness::Fault, 1) => "known fault",
            (Sureness::Fault, _) => "known faults",
            (Sureness::Cost, 1) => "cost",
            (Sureness::Cost, _) => "costs",
            (Sureness::Depends, 1) => "depends",
            (Sureness::Depends, _) => "depend",
        };
        Some(format!("{count} {words}"))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") }
}

/// What was surveyed, so that nothing found is not taken for nothing looked at.
fn looked_at(survey: &Survey) -> String {
    let numbers = [
        (survey.disks.len(), "block device"),
        (survey.filesystems.len(), "filesystem"),
        (survey.images.len(), "image"),
        (survey.guests.len(), "guest"),
        (survey.interfaces.len(), "network interface"),
    ];
    let known = numbers.iter().filter(|(count, _)| *count > 0);
    let mut words: Vec<String> =
        known.map(|(count, what)| format!("{count} {what}{}", if *count == 1 { "" } else { "s" })).collect();
    words.push("the machine".to_owned());
    format!("Looked at: {}.", listed(&words))
}

/// Every rule in a line.
#[must_use]
pub fn rules() -> Page {
    let line = |rule: &Rule| {
        format!("{} ({}, {}): {}", rule.id, rule.subject.word(), rule.sureness.title(), rule.title)
    };
    Page { parts: vec![Part::Lines(iotax_doctor::rules::all().map(line).collect())] }
}
