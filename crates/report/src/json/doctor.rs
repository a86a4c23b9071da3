//! The document `iotax-doctor/1`, whose JSON Schema is `crates/report/schema/iotax-doctor-1.schema.json`: findings, and the facts that they
//! rest on.

use iotax_doctor::Finding;
use iotax_model::survey::Survey;
use serde_json::Value;

use super::{any, object};
use crate::mark::Mark;

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-doctor/1";

/// Marks a file as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Findings, the surest first, then all facts, each with its source. What is unknown has no key.
#[must_use]
pub fn document(subject: &str, survey: &Survey, findings: &[Finding]) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("subject", Some(subject.into())),
        ("findings", Some(findings.iter().map(finding).collect())),
        ("survey", any(survey)),
    ])
}

fn finding(finding: &Finding) -> Value {
    let rule = finding.rule;
    let violation = &finding.violation;
    let text = |text: &str| Some(Value::from(text));
    object([
        ("rule", text(rule.id)),
        ("subject", text(rule.subject.word())),
        ("sureness", text(rule.sureness.word())),
        ("title", text(rule.title)),
        ("place", text(&violation.place)),
        ("seen", text(&violation.seen)),
        ("evidence", text(&violation.source)),
        ("why", text(rule.why)),
        ("remedy", text(&violation.remedy)),
        ("source", text(rule.source)),
    ])
}
