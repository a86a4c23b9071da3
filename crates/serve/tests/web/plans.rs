//! Tests of runs started from a browser.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use iotax_serve::Launch;
use iotax_testkit::require;
use tempfile::TempDir;

use crate::server::Server;

/// A fake iotax that records its arguments and counts the signals to stop.
const PROGRAM: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
printf '%s\n' "$@" "$IOTAX_DB" > arguments
cat > plan
trap 'echo asked >> asked' INT
echo "measuring" >&2
until [ -e asked ]; do sleep 0.05; done
sleep 1
echo "undone" >&2
"#;

/// Waits until a page shows some words, and returns it.
fn page_with(server: &Server, words: &str) -> String {
    let start = Instant::now();
    loop {
        let page = server.get("/plans").body;
        if page.contains(words) {
            return page;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "no {words:?}: {page}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_run_is_begun_and_stopped_once() {
    require!(program "bash");
    let dir = TempDir::new().expect("a directory");
    let program = dir.path().join("program");
    std::fs::write(&program, PROGRAM).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let plans = dir.path().join("plans");
    std::fs::create_dir(&plans).expect("a directory");
    std::fs::write(plans.join("mine.toml"), "name = \"mine\"\n").expect("written");
    std::os::unix::fs::symlink("/etc/passwd", plans.join("link.toml")).expect("linked");
    let server = Server::with(|config| {
        config.launch = Some(Launch { program, directories: vec!["/srv".into()], plans: Some(plans) });
    });

    let token = server.form_token("/plans");
    let begin = |what: &str| server.post("/plans/begin", "", &format!("form_token={token}&{what}"));
    for (wrong, status) in [
        ("run=99", 404),
        ("file=link.toml", 404),
        ("file=../program", 404),
        ("", 400),
        ("run=1&file=mine.toml", 400),
    ] {
        assert_eq!(begin(wrong).status, status, "{wrong}");
    }
    assert_eq!(server.post("/plans/begin", "", "form_token=&run=1").status, 403);
    assert!(!dir.path().join("arguments").exists(), "nothing was started");

    assert_eq!(begin("run=1").status, 303);
    let page = page_with(&server, "measuring");
    assert!(page.contains("still running") && page.contains("Stop it"), "{page}");
    assert_eq!(begin("file=mine.toml").status, 409, "two at once would measure each other");
    for _ in 0..2 {
        assert_eq!(server.post("/plans/cancel", "", &format!("form_token={token}")).status, 303);
    }
    let page = page_with(&server, "Ended: ");
    assert!(page.contains("undone"), "{page}");
    assert_eq!(read(dir.path(), "asked"), "asked\n", "a second time would cut it off");
    let db = server.path("runs.db").display().to_string();
    assert_eq!(read(dir.path(), "arguments"), format!("run\n/dev/stdin\n--yes\n--confine\n/srv\n{db}\n"));
    let plan = read(dir.path(), "plan");
    assert!(plan.contains("vm-qcow2-snapshot") && !plan.contains("seed ="), "{plan}");
}
