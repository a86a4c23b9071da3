use std::collections::HashSet;
use std::path::Path;

use iotax_doctor::{Rule, rules};

fn row(rule: &Rule) -> String {
    format!("| `{}` | {} | {}. {} | {} |", rule.id, rule.sureness.title(), rule.title, rule.why, rule.source)
}

#[test]
fn the_page_has_every_rule_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let wanted: Vec<String> = rules::all().map(row).collect();
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(found, wanted, "docs/doctor.md should have these rows:\n{}", wanted.join("\n"));
}

#[test]
fn every_rule_has_a_name_of_its_own_and_says_why() {
    let mut ids = HashSet::new();
    for rule in rules::all() {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        assert!(
            rule.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit()),
            "{}",
            rule.id
        );
        assert!(
            !rule.title.ends_with('.') && rule.why.ends_with('.') && !rule.source.is_empty(),
            "{}",
            rule.id
        );
    }
    assert!(ids.len() >= 45, "{}", ids.len());
}
