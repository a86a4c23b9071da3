//! Tests of fleets on the site and in the API.

use iotax_analysis::fleet::fleet;
use iotax_model::record::{FleetMember, FleetMode};
use iotax_report::json;
use iotax_store::Store;
use serde_json::Value;

use crate::server::{HOSTILE, Server, put_member};
use iotax_testkit::runs::{HOST, Truth, run};

/// Stores the runs of six members; the last has a hostile name and a slow disk. Returns the runs.
pub(crate) fn put(store: &mut Store, id: &str) -> Vec<i64> {
    let names = ["db1", "db2", "db3", "db4", "db5", HOSTILE];
    let member = |(number, name): (u32, &str)| {
        let slowdown = if number == 5 { 1.5 } else { 1.0 + 0.001 * f64::from(number) };
        let mut run = run(&[("disk.img", Truth { slowdown, ..HOST })], &["randread-4k-qd32"], 5, false);
        run.plan.name = "all our database hosts".into();
        run.environment.hostname = Some(name.into());
        let member = FleetMember {
            fleet: id.into(),
            member: name.into(),
            mode: FleetMode::Each,
            link: format!("ssh://{name}"),
        };
        put_member(store, &run, Some(&member))
    };
    (0..).zip(names).map(member).collect()
}

#[test]
fn a_fleet_is_shown_with_its_members_runs() {
    let server = Server::start();
    assert!(server.get("/fleets").body.contains("No fleet is stored yet"));
    let ids = put(&mut server.store(), "f-1");
    let list = server.get("/fleets").body;
    assert!(list.contains("href=\"/fleets/f-1\"") && list.contains("all our database hosts"), "{list}");
    let page = server.get("/fleets/f-1").body;
    assert!(page.contains("One host is unlike the others") && !page.contains("<script>alert"), "{page}");
    for id in ids {
        assert!(page.contains(&format!("href=\"/runs/{id}\"")), "{id}: {page}");
    }
    assert!(server.get("/runs/5").body.contains("href=\"/fleets/f-1\""));
    let unknown = server.get("/fleets/f-2");
    assert!(
        unknown.status == 404 && unknown.body.contains("there is no fleet &quot;f-2&quot;"),
        "{}",
        unknown.body
    );
}

#[test]
fn the_api_has_the_documents_of_fleets() {
    let server = Server::start();
    let ids = put(&mut server.store(), "f/1?x");
    put(&mut server.store(), "f-2");
    let list = server.get("/api/v1/fleets").json();
    let names: Vec<&str> = list["fleets"]
        .as_array()
        .expect("fleets")
        .iter()
        .filter_map(|fleet| fleet["fleet"].as_str())
        .collect();
    assert_eq!(names, ["f-2", "f/1?x"], "the newest first");
    assert_eq!(list["fleets"][0]["states"]["complete"], 6, "{list}");

    let document = server.get("/api/v1/fleets/f%2F1%3Fx").json();
    let runs: Vec<_> = ids.iter().map(|id| server.store().load(*id).expect("loaded")).collect();
    // Hidden characters are escaped on the way out.
    let expected = json::fleet::document(&fleet(&runs).expect("a fleet")).to_string();
    let expected: Value = serde_json::from_str(&iotax_model::visible::json(&expected)).expect("JSON");
    assert_eq!(document, expected);
    let schema = include_str!("../../../report/schema/iotax-fleet-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(server.get("/api/v1/fleets/nothing").status, 404);
}
