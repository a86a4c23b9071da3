//! Document `iotax-doctor/1`: findings, and the facts that they are based on. Its JSON Schema is `crates/report/schema/iotax-doctor-1.schema.json`.

use iotax_doctor::{Finding, Subject, Sureness};
use iotax_model::survey::Survey;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json;
use crate::mark::Mark;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-doctor/1";

/// Identifies a file as an `iotax-doctor/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// The findings of `iotax doctor` and the facts that they are based on. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Dangers and costs of a setup")]
pub(super) struct DoctorDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The path, guest or machine that was examined.
    subject: &'a str,
    /// The findings, the most certain first.
    findings: Vec<FindingEntry<'a>>,
    survey: &'a Survey,
}

#[derive(Serialize, JsonSchema)]
struct FindingEntry<'a> {
    /// Id of the violated rule, as in docs/doctor.md.
    rule: &'a str,
    subject: Subject,
    sureness: Sureness,
    /// The finding in a few words.
    title: &'a str,
    /// Name of the affected object, such as a device, mount point, image, guest or interface.
    component: &'a str,
    /// The value that violates the rule.
    observed: &'a str,
    /// The file or command that shows the value.
    evidence: &'a str,
    /// The reason why the finding matters.
    why: &'a str,
    /// A command that solves the problem, or the next step.
    remedy: &'a str,
    /// The publication that the rule is based on.
    source: &'a str,
}

/// Builds the document: the findings, the most certain first, then all facts, each with its source.
#[must_use]
pub fn document(subject: &str, survey: &Survey, findings: &[Finding]) -> Value {
    json(&DoctorDocument {
        schema: SCHEMA,
        subject,
        findings: findings.iter().map(finding).collect(),
        survey,
    })
}

fn finding(finding: &Finding) -> FindingEntry<'_> {
    let rule = finding.rule;
    let violation = &finding.violation;
    FindingEntry {
        rule: rule.id,
        subject: rule.subject,
        sureness: rule.sureness,
        title: rule.title,
        component: &violation.component,
        observed: &violation.observed,
        evidence: &violation.source,
        why: rule.why,
        remedy: &violation.remedy,
        source: rule.source,
    }
}
