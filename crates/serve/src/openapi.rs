//! The description of the API in OpenAPI 3.1. The router is built from the same list of paths, so that no route is undocumented.

use iotax_analysis::Metric;
use serde_json::{Map, Value, json};

/// A path of the API and its description.
pub(crate) struct ApiPath {
    pub(crate) path: &'static str,
    summary: &'static str,
    /// The parameters that the query may have.
    query: &'static [Parameter],
    /// Name of the schema of the response.
    answer: &'static str,
    /// Description of the PUT method; `None` if the path has only GET.
    put: Option<&'static str>,
}

/// A parameter of a query, and its description.
struct Parameter {
    name: &'static str,
    about: &'static str,
    kind: ParameterKind,
    is_required: bool,
}

enum ParameterKind {
    Text,
    State,
    /// A list of runs, separated by commas.
    Runs,
    Baseline,
    Margin,
    /// A list of metrics, separated by commas.
    Metrics,
    Number(u64, u64),
}

const fn optional(name: &'static str, about: &'static str, kind: ParameterKind) -> Parameter {
    Parameter { name, about, kind, is_required: false }
}

const RUN: Parameter = Parameter {
    name: "runs",
    about: "Runs with commas between them: RUN, or RUN:TARGET for one target of it",
    kind: ParameterKind::Runs,
    is_required: true,
};
const MARGIN: Parameter =
    optional("margin", "Differences below it are the same, such as 2%", ParameterKind::Margin);

/// All paths of the API.
pub(crate) static PATHS: [ApiPath; 12] = [
    ApiPath { path: "/openapi.json", summary: "This description", query: &[], answer: "Object", put: None },
    ApiPath {
        path: "/runs",
        summary: "Runs, the newest first",
        query: &[
            optional(
                "text",
                "Words of the name, a target, a workload, the machine, a tag or the note",
                ParameterKind::Text,
            ),
            optional("state", "Their state", ParameterKind::State),
            optional("machine", "The name of their machine", ParameterKind::Text),
            optional("tag", "A tag that they have", ParameterKind::Text),
            optional("fleet", "The id of their fleet", ParameterKind::Text),
            optional("before", "Only runs before this one", ParameterKind::Number(1, i64::MAX as u64)),
            optional("limit", "The most runs, 100 if it is not given", ParameterKind::Number(1, 1000)),
        ],
        answer: "Runs",
        put: None,
    },
    ApiPath {
        path: "/runs/{id}",
        summary: "A run with its judgement, as iotax report --json prints it (iotax/1)",
        query: &[],
        answer: "Object",
        put: None,
    },
    ApiPath {
        path: "/runs/{id}/summary",
        summary: "A run's line in the list",
        query: &[],
        answer: "Run",
        put: None,
    },
    ApiPath {
        path: "/runs/{id}/notes",
        summary: "What people say of a run",
        query: &[],
        answer: "Notes",
        put: Some("Replace what people say of a run"),
    },
    ApiPath {
        path: "/runs/{id}/live",
        summary: "The state of a run, and where it is if it is measuring",
        query: &[],
        answer: "Live",
        put: None,
    },
    ApiPath {
        path: "/compare",
        summary: "Two runs, or two targets of one, as iotax compare --json prints them (iotax-compare/1)",
        query: &[
            RUN,
            optional("baseline", "The side that the other is compared with", ParameterKind::Baseline),
            MARGIN,
        ],
        answer: "Object",
        put: None,
    },
    ApiPath {
        path: "/history",
        summary: "Several runs side by side, as iotax report --json prints them (iotax-history/1)",
        query: &[RUN, MARGIN],
        answer: "Object",
        put: None,
    },
    ApiPath {
        path: "/trends",
        summary: "The changes over the runs of a plan, as iotax trend --json prints them (iotax-trend/1)",
        query: &[
            optional(
                "plan",
                "The name of the runs; otherwise the newest that was run twice on a machine",
                ParameterKind::Text,
            ),
            optional("machine", "Their machine, otherwise that of the newest", ParameterKind::Text),
            optional("tag", "A tag that they have", ParameterKind::Text),
            optional(
                "last",
                "The newest runs that are followed, 100 if it is not given",
                ParameterKind::Number(1, 1000),
            ),
            optional("target", "This target alone", ParameterKind::Text),
            optional("workload", "This workload alone", ParameterKind::Text),
            optional("metric", "Metrics with commas between them", ParameterKind::Metrics),
            optional("control", "The target whose changes are the machine's own", ParameterKind::Text),
            optional(
                "since",
                "Only changes that may have come with this run or later count",
                ParameterKind::Number(1, i64::MAX as u64),
            ),
        ],
        answer: "Object",
        put: None,
    },
    ApiPath {
        path: "/fleets",
        summary: "The fleets of the newest runs",
        query: &[],
        answer: "Fleets",
        put: None,
    },
    ApiPath {
        path: "/fleets/{fleet}",
        summary: "A fleet's result, as iotax fleet report --json prints it (iotax-fleet/1)",
        query: &[],
        answer: "Object",
        put: None,
    },
    ApiPath {
        path: "/machines",
        summary: "The machines of the newest runs",
        query: &[],
        answer: "Machines",
        put: None,
    },
];

/// Returns the OpenAPI document.
pub(crate) fn document() -> Value {
    let paths: Map<String, Value> =
        PATHS.iter().map(|path| (format!("/api/v1{}", path.path), path.described())).collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "iotax", "version": env!("CARGO_PKG_VERSION"), "description": "The runs of a store." },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "token": [] }],
    })
}

impl ApiPath {
    /// Returns the names of the query parameters.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.query.iter().map(|parameter| parameter.name)
    }

    fn described(&self) -> Value {
        let query = self.query.iter().map(Parameter::described);
        let parameters: Vec<Value> = self.of_the_path().into_iter().chain(query).collect();
        let mut described = json!({
            "parameters": parameters,
            "get": { "summary": self.summary, "operationId": self.operation("get"), "responses": self.responses() },
        });
        if let Some(summary) = self.put {
            let sent = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Notes" } } });
            described["put"] = json!({
                "summary": summary,
                "operationId": self.operation("put"),
                "requestBody": { "required": true, "content": sent },
                "responses": self.responses(),
            });
        }
        described
    }

    /// Returns the description of the parameter in the path; `None` if the path has none.
    fn of_the_path(&self) -> Option<Value> {
        let (name, about, schema) = if self.path.contains("{id}") {
            ("id", "The run's number", json!({ "type": "integer", "format": "int64" }))
        } else if self.path.contains("{fleet}") {
            ("fleet", "The fleet's id", json!({ "type": "string", "minLength": 1, "maxLength": 1000 }))
        } else {
            return None;
        };
        Some(json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema }))
    }

    fn operation(&self, method: &str) -> String {
        let words = self.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.fold(method.to_owned(), |name, word| format!("{name}_{word}"))
    }

    fn responses(&self) -> Value {
        let answer = json!({ "$ref": format!("#/components/schemas/{}", self.answer) });
        let problem =
            json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
        json!({
            "200": { "description": self.summary, "content": { "application/json": { "schema": answer } } },
            "default": { "description": "Description of the error", "content": problem },
        })
    }
}

impl Parameter {
    fn described(&self) -> Value {
        let schema = match self.kind {
            ParameterKind::Text => json!({ "type": "string", "maxLength": 1000 }),
            ParameterKind::State => json!({ "enum": ["running", "complete", "interrupted", "failed"] }),
            ParameterKind::Runs => {
                json!({ "type": "string", "pattern": "^[0-9]+(:[^,]+)?(,[0-9]+(:[^,]+)?)*$" })
            }
            ParameterKind::Baseline => json!({ "enum": ["A", "B"] }),
            ParameterKind::Margin => json!({ "type": "string", "pattern": "^[1-4]?[0-9](\\.[0-9]{1,2})?%$" }),
            ParameterKind::Metrics => {
                let words: Vec<&str> = Metric::compared().map(Metric::word).collect();
                let word = format!("({})", words.join("|"));
                json!({ "type": "string", "pattern": format!("^{word}(,{word})*$") })
            }
            ParameterKind::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
        };
        json!({ "name": self.name, "in": "query", "required": self.is_required, "description": self.about, "schema": schema })
    }
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let count = json!({ "type": "integer", "minimum": 0 });
    json!({
        "Object": { "type": "object" },
        "Run": {
            "type": "object",
            "required": ["id", "name", "state", "started_at", "targets", "measured", "planned", "tags"],
            "properties": {
                "id": { "type": "integer", "minimum": 1 }, "name": text, "started_at": text, "targets": texts,
                "state": { "enum": ["running", "complete", "interrupted", "failed"] },
                "measured": count, "planned": count, "tags": texts, "machine": text, "fleet": text, "member": text,
            },
        },
        "Runs": {
            "type": "object",
            "required": ["runs"],
            "properties": { "runs": { "type": "array", "items": { "$ref": "#/components/schemas/Run" } } },
        },
        "Notes": {
            "type": "object",
            "properties": {
                "tags": { "type": "array", "maxItems": 32, "items": { "type": "string", "maxLength": 100 } },
                "text": { "type": "string", "maxLength": 65536 },
            },
            "additionalProperties": false,
        },
        "Live": {
            "type": "object",
            "required": ["run", "state", "measured", "planned"],
            "properties": { "run": count, "state": text, "measured": count, "planned": count, "now": { "type": "object" } },
        },
        "Fleets": {
            "type": "object",
            "required": ["fleets"],
            "properties": {
                "fleets": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["fleet", "name", "mode", "started_at", "members", "states"],
                        "properties": {
                            "fleet": text, "name": text, "mode": { "enum": ["each", "shared"] }, "started_at": text,
                            "members": count, "states": { "type": "object", "additionalProperties": count },
                        },
                    },
                },
            },
        },
        "Machines": {
            "type": "object",
            "required": ["machines"],
            "properties": {
                "machines": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "runs", "last_run", "last_started_at"],
                        "properties": { "name": text, "runs": count, "last_run": count, "last_started_at": text },
                    },
                },
            },
        },
        "Problem": {
            "type": "object",
            "required": ["title", "status", "detail"],
            "properties": { "title": text, "status": { "type": "integer" }, "detail": text },
        },
    })
}
