//! Tests of a shared store from the command line: creation, runs, notes, copies.

use iotax_testkit::postgres::{PROGRAM, PostgresServer};
use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, text};

#[test]
fn runs_are_kept_on_a_server_and_copied_between_stores() {
    require!(file PROGRAM);
    let (lab, server) = (Lab::new(), PostgresServer::start());
    let url = server.database();
    let shown = url.replace("iotax@", "iotax:no-secret@");
    let said = |arguments: &[&str], code: i32| {
        let output = lab.run(arguments);
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {all}");
        assert!(!all.contains("no-secret"), "{arguments:?}: {all}");
        all
    };
    let missing = said(&["list", "--db", &shown], 4);
    assert!(
        missing.contains("holds no iotax store yet; make one: iotax store init postgres://iotax@127"),
        "{missing}"
    );
    assert!(said(&["store", "init", &shown], 0).contains("is ready"));
    let file = lab.work().join("x.dat").display().to_string();
    let bench = ["bench", &file, "--size", "1m", "--runtime", "100ms", "--ramp-time", "0s", "--rw", "read"];
    said(&[&bench[..], &["--db", &shown]].concat(), 0);
    said(&["note", "1", "--tag", "nightly", "--tag", "old", "new\u{1b} firmware", "--db", &shown], 0);
    let note = said(&["note", "1", "--untag", "old", "--db", &shown], 0);
    assert!(
        note.contains("tags: nightly\n") && note.contains("firmware") && !note.contains('\u{1b}'),
        "{note}"
    );
    assert!(said(&["note", "7", "text", "--db", &shown], 2).contains("holds only run 1"));
    let db = lab.path("own.db").display().to_string();
    assert!(
        said(&["pull", "--tag", "nightly", "--from", &shown, "--db", &db], 0)
            .contains("copied as run 1, 1 measurements")
    );
    assert!(said(&["pull", "--all", "--from", &shown, "--db", &db], 0).contains("nothing to add"));
    said(&[&bench[..], &["--db", &db]].concat(), 0);
    assert!(said(&["push", "1", "2", "--to", &shown, "--db", &db], 0).contains("run 2: copied as run 2"));
    assert!(said(&["push", "3", "--to", &shown, "--db", &db], 2).contains("no run 3"));
    assert!(said(&["push", "--all", "--to", &db, "--db", &db], 2).contains("copied to another store"));
    let json = |store: &str, run: &str| lab.json(&["report", run, "--json", "--db", store]);
    assert_eq!(json(&db, "1"), json(&url, "1"), "the report is the same");
    let lists = [&url, &db].map(|store| lab.json(&["list", "--json", "--db", store]));
    assert_eq!(lists[0], lists[1]);
    let ids = |list: &Value| {
        list.as_array().expect("a list").iter().map(|run| run["id"].as_i64()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&lists[0]), [Some(1), Some(2)]);
    assert_eq!(lists[0][0]["tags"], serde_json::json!(["nightly"]));
    let found = lab.json(&["list", "FIRMware", "--json", "--db", &url]);
    assert_eq!(ids(&found), [Some(1)]);
    assert_eq!(ids(&lab.json(&["list", "--limit", "1", "--json", "--db", &url])), [Some(2)]);
    assert!(said(&["list", "--check", "--db", &shown], 0).contains("+nightly"));
    drop(server);
    assert!(said(&["list", "--db", &shown], 4).contains("does not answer"));
}
