//! Shows the findings of `iotax doctor`, and the list of its rules.

use iotax_doctor::{Finding, Rule, Sureness, Violation};
use iotax_model::survey::{MachineSetup, Survey};
use iotax_model::units::human::listed;

use super::{Page, Part};
use crate::figure::listed_briefly;

/// Builds the page: the summary first, then each finding with its evidence, reason and remedy. Findings of the same rule are combined.
#[must_use]
pub fn doctor(subject: &str, survey: &Survey, findings: &[Finding]) -> Page {
    let mut parts = vec![Part::Sentence(format!("{subject}: {}", ended(&headline(survey, findings))))];
    for same in by_rule(findings) {
        let Rule { id, sureness, title, why, source, .. } = same[0].rule;
        let components: Vec<String> =
            same.iter().map(|finding| finding.violation.component.clone()).collect();
        parts.push(Part::Head(format!(
            "{}: {title} ({}, {id})",
            listed_briefly(&components),
            sureness.title()
        )));
        let mut lines =
            each(&same, |violation| format!("seen: {} ({})", violation.observed, violation.source));
        lines.push(format!("why: {why} [{source}]"));
        lines.extend(each(&same, |violation| format!("remedy: {}", violation.remedy)));
        parts.push(Part::Lines(lines));
    }
    parts.push(Part::Sentence(surveyed(survey)));
    if !survey.unread.is_empty() {
        let unread: Vec<&str> = survey.unread.iter().map(|reason| reason.trim_end_matches('.')).collect();
        parts.push(Part::Sentence(format!("Not known: {}", ended(&unread.join("; ")))));
    }
    Page { parts }
}

/// Groups findings by rule, in order of first appearance.
fn by_rule(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut rules: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        match rules.iter_mut().find(|same| same[0].rule.id == finding.rule.id) {
            Some(same) => same.push(finding),
            None => rules.push(vec![finding]),
        }
    }
    rules
}

/// Formats one line per finding; lines that differ only in the name of the device or file are combined.
fn each(findings: &[&Finding], line: impl Fn(&Violation) -> String) -> Vec<String> {
    let mut lines: Vec<(String, String, Vec<String>)> = Vec::new();
    for Finding { violation, .. } in findings {
        let text = line(violation);
        let pattern = text.replace(&violation.component, "\0");
        match lines.iter_mut().find(|(known, ..)| *known == pattern) {
            Some((_, _, others)) => others.push(violation.component.clone()),
            None => lines.push((pattern, text, Vec::new())),
        }
    }
    let said = lines.into_iter().map(|(pattern, text, others)| {
        // The text applies to all places of the group.
        let is_said = others.is_empty() || !pattern.contains('\0');
        if is_said { text } else { format!("{text}; likewise {}", listed_briefly(&others)) }
    });
    said.collect()
}

/// Adds a period unless the sentence already ends with a punctuation mark.
fn ended(sentence: &str) -> String {
    let is_ended = sentence.ends_with(['.', '?', '!']);
    format!("{sentence}{}", if is_ended { "" } else { "." })
}

/// Returns the summary: the number of findings by severity, and the reason if the subject could not be read.
fn headline(survey: &Survey, findings: &[Finding]) -> String {
    match &survey.subject_unread {
        Some(reason) if findings.is_empty() => format!("could not be read: {reason}"),
        Some(reason) => format!("{}; could not be read: {reason}", answer(findings)),
        None if findings.is_empty() && survey.images.iter().any(|image| image.unread.is_some()) => {
            "nothing found in what could be read".to_owned()
        }
        None => answer(findings),
    }
}

/// Counts the findings by severity, those of the same rule as one: `2 known faults, 1 cost, 3 findings that depend on your workload`;
/// `nothing found` if there are none.
fn answer(findings: &[Finding]) -> String {
    let rules = by_rule(findings);
    let counts = Sureness::ALL.map(|sureness| {
        let count = rules.iter().filter(|same| same[0].rule.sureness == sureness).count();
        let words = match (sureness, count) {
            (_, 0) => return None,
            (Sureness::Fault, 1) => "known fault",
            (Sureness::Fault, _) => "known faults",
            (Sureness::Cost, 1) => "cost",
            (Sureness::Cost, _) => "costs",
            (Sureness::Depends, 1) => "finding that depends on your workload",
            (Sureness::Depends, _) => "findings that depend on your workload",
        };
        Some(format!("{count} {words}"))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") }
}

/// Lists the numbers of examined objects, so that "nothing found" is not read as "nothing examined".
fn surveyed(survey: &Survey) -> String {
    let numbers = [
        (survey.disks.len(), "block device"),
        (survey.filesystems.len(), "filesystem"),
        (survey.images.iter().filter(|image| image.unread.is_none()).count(), "image"),
        (survey.guests.len(), "guest"),
        (survey.interfaces.len(), "network interface"),
    ];
    let known = numbers.iter().filter(|(count, _)| *count > 0);
    let mut words: Vec<String> =
        known.map(|(count, what)| format!("{count} {what}{}", if *count == 1 { "" } else { "s" })).collect();
    if survey.machine != MachineSetup::default() {
        words.push("the machine".to_owned());
    }
    format!("Looked at: {}.", listed(&words))
}

/// Builds the page of all rules, one per line.
#[must_use]
pub fn rules() -> Page {
    let line = |rule: &Rule| {
        format!("{} ({}, {}): {}", rule.id, rule.subject.word(), rule.sureness.title(), rule.title)
    };
    Page { parts: vec![Part::Lines(iotax_doctor::rules::all().map(line).collect())] }
}

#[cfg(test)]
mod tests {
    use iotax_model::survey::{Fact, GuestSetup, Image};

    use super::*;

    #[test]
    fn what_could_not_be_read_is_not_without_findings() {
        let unread = |reason: &str| Survey { subject_unread: Some(reason.to_owned()), ..Survey::default() };
        assert_eq!(headline(&unread("it is cut off"), &[]), "could not be read: it is cut off");
        let image = Image { unread: Some("no answer".to_owned()), ..Image::default() };
        let survey = Survey { images: vec![image], ..Survey::default() };
        assert_eq!(headline(&survey, &[]), "nothing found in what could be read");
        let machine =
            MachineSetup { aio: Some(Fact::new(0, "/proc/sys/fs/aio-nr")), ..MachineSetup::default() };
        assert_eq!(surveyed(&Survey { machine, ..survey }), "Looked at: the machine.");
        let guest = Survey { guests: vec![GuestSetup::default()], ..Survey::default() };
        assert_eq!(surveyed(&guest), "Looked at: 1 guest.");
        assert_eq!(headline(&Survey::default(), &[]), "nothing found");
    }

    #[test]
    fn one_finding_on_several_devices_is_said_once() {
        let rule = iotax_doctor::rules::all().next().expect("a rule");
        let of = |component: &str, observed: &str, remedy: &str| Finding {
            rule,
            violation: Violation {
                component: component.into(),
                observed: observed.into(),
                source: format!("/sys/block/{component}/x"),
                remedy: remedy.into(),
            },
        };
        let findings = [
            of("sda", "one", "echo 1 > /sys/block/sda/x"),
            of("sdb", "one", "echo 1 > /sys/block/sdb/x"),
            of("sdc", "two", "replace it"),
            of("sdd", "two", "replace it"),
        ];
        let page = doctor("this machine", &Survey::default(), &findings);
        let [Part::Sentence(first), Part::Head(head), Part::Lines(lines), ..] = page.parts.as_slice() else {
            panic!("{page:?}")
        };
        assert!(first.starts_with("this machine: 1 "), "{first}");
        assert!(head.starts_with("sda, sdb, sdc and sdd: "), "{head}");
        let lines: Vec<&str> =
            lines.iter().map(String::as_str).filter(|line| !line.starts_with("why")).collect();
        assert_eq!(
            lines,
            [
                "seen: one (/sys/block/sda/x); likewise sdb",
                "seen: two (/sys/block/sdc/x); likewise sdd",
                "remedy: echo 1 > /sys/block/sda/x; likewise sdb",
                "remedy: replace it",
            ]
        );
    }

    #[test]
    fn a_sentence_ends_once() {
        assert_eq!(ended("is /proc mounted here?"), "is /proc mounted here?");
        assert_eq!(ended("nothing found"), "nothing found.");
    }
}
