//! Tests of the API: it returns the commands' documents, and its description is correct.

use iotax_analysis::compare::{Account, Question, Side, Which, compare, history};
use iotax_analysis::{Metric, judge};
use iotax_report::json;
use serde_json::Value;

use crate::fleets;
use crate::server::Server;

fn account(server: &Server, id: i64) -> Account {
    let run = server.store().load(id).expect("loaded");
    Account::of(&run, &judge(&run))
}

#[test]
fn documents_are_those_of_the_commands() {
    let server = Server::start();
    let run = server.store().load(1).expect("loaded");
    let document = server.get("/api/v1/runs/1").json();
    assert_eq!(document, json::document(&run, &judge(&run)));
    let schema: Value =
        serde_json::from_str(include_str!("../../../report/schema/iotax-1.schema.json")).expect("JSON");
    let found: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema")
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(found.is_empty(), "{found:?}");

    let (one, other) = (account(&server, 1), account(&server, 2));
    let (a, b) = (Side { account: &one, target: None }, Side { account: &other, target: None });
    let question =
        Question { baseline: Which::A, metrics: Metric::compared().collect(), margin: 0.02, gates: vec![] };
    let compared = compare(&a, &b, &question).expect("compared");
    assert_eq!(server.get("/api/v1/compare?runs=1,2").json(), json::comparison::document(&a, &b, &compared));

    let accounts = [one, other];
    let expected = json::history::document(&accounts, &history(&accounts, 0.02));
    assert_eq!(server.get("/api/v1/history?runs=1,2").json(), expected);
}

#[test]
fn runs_are_listed_by_pages() {
    let server = Server::start();
    let ids = |query: &str| -> Vec<i64> {
        let runs = server.get(&format!("/api/v1/runs?{query}")).json();
        runs["runs"].as_array().expect("runs").iter().filter_map(|run| run["id"].as_i64()).collect()
    };
    assert_eq!(ids(""), [4, 3, 2, 1]);
    assert_eq!(ids("limit=2"), [4, 3]);
    assert_eq!(ids("limit=2&before=3"), [2, 1]);
    assert_eq!(ids("before=9223372036854775807"), [4, 3, 2, 1]);
    assert_eq!(ids("state=failed"), Vec::<i64>::new());
    assert_eq!(server.get("/api/v1/machines").json()["machines"].as_array().map(Vec::len), Some(2));
}

#[test]
fn problems_name_what_is_accepted() {
    let server = Server::start();
    for (path, status, words) in [
        ("/runs?state=odd", 400, "accepted: running, complete, interrupted or failed"),
        ("/runs?limit=0", 400, "from 1 to 1000"),
        ("/runs/9", 404, "there is no run 9"),
        ("/runs/-1", 404, "there is no run -1"),
        ("/runs/x", 400, ""),
        ("/compare?runs=1", 400, "accepted: two"),
        ("/runs?limti=5", 400, "\"limti\" is no parameter of this; accepted: text, state, machine, tag"),
        ("/runs/1?x=1", 400, "accepted: no parameters"),
        ("/nothing", 404, ""),
    ] {
        let answer = server.get(&format!("/api/v1{path}"));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("application/problem+json")),
            "{path}"
        );
        let problem = answer.json();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{path}: {problem}");
    }
}

#[test]
fn notes_are_put_and_read() {
    let server = Server::start();
    let json = "Content-Type: application/json\r\n";
    let kept = server.send("PUT", "/api/v1/runs/2/notes", json, r#"{"tags":["b","a","a "],"text":"x"}"#);
    assert_eq!((kept.status, kept.json()["tags"].to_string()), (200, r#"["a","b"]"#.into()), "{}", kept.body);
    assert_eq!(server.get("/api/v1/runs/2/notes").json(), kept.json());
    for wrong in
        [r#"{"tags":["a\nb"]}"#, r#"{"tagz":[]}"#, "{", "[]", r#"[["a"],"x"]"#, r#"{"text":"\u0007"}"#]
    {
        let refused = server.send("PUT", "/api/v1/runs/2/notes", json, wrong);
        assert!(matches!(refused.status, 400 | 422), "{wrong}: {}", refused.status);
    }
    let no_json = server.send("PUT", "/api/v1/runs/2/notes", "Content-Type: text/plain\r\n", "{}");
    assert_eq!(no_json.status, 415, "a form of another site's page cannot send JSON");
    assert_eq!(server.get("/api/v1/runs/2/notes").json(), kept.json());
    assert_eq!(server.send("PUT", "/api/v1/runs/99/notes", json, "{}").status, 404);
}

#[test]
fn the_description_is_openapi_and_every_path_in_it_answers() {
    let server = Server::start();
    fleets::put(&mut server.store(), "f-1");
    let description = server.get("/api/v1/openapi.json").json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 12);
    for (path, described) in paths {
        let has_runs = described["parameters"].to_string().contains("\"runs\"");
        let history_path =
            path.replace("{id}", "1").replace("{fleet}", "f-1") + if has_runs { "?runs=1,2" } else { "" };
        let answer = server.get(&history_path);
        assert_eq!(answer.status, 200, "{history_path}: {}", answer.body);
        let schema = &described["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let whole = serde_json::json!({ "$ref": schema["$ref"], "components": description["components"] });
        let found: Vec<String> = jsonschema::validator_for(&whole)
            .expect("a schema")
            .iter_errors(&answer.json())
            .map(|e| e.to_string())
            .collect();
        assert!(found.is_empty(), "{history_path}: {found:?}");
    }
}
