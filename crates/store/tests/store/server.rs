//! Tests of a store in PostgreSQL: missing privileges, no server, TLS.

use std::thread;
use std::time::Duration;

use iotax_model::RunState;
use iotax_store::{Location, Store, StoreError, init};
use iotax_testkit::postgres::{PROGRAM, PostgresOptions, PostgresServer};
use iotax_testkit::require;

use crate::both::fill;
use crate::test_store::TestStore;
use iotax_testkit::runs;

#[test]
fn a_reader_reads_and_a_writer_writes() {
    require!(file PROGRAM);
    let server = PostgresServer::start();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE ROLE looker LOGIN; CREATE ROLE \"We\"\"ird\" LOGIN; CREATE ROLE stranger LOGIN");
    let at: Location = url.as_str().into();
    let absent = Store::open_to_read(&at).expect_err("nothing there").to_string();
    assert!(absent.contains("iotax store init postgres://"), "{absent}");
    let as_user = |user: &str| server.url(user, name);
    let refused = Store::open(as_user("stranger").as_str()).expect_err("may not").to_string();
    assert!(refused.contains("cannot be written") && refused.contains("permission denied"), "{refused}");
    for _ in 0..2 {
        init(&at, &["looker".into()], &["We\"ird".into()]).expect("made");
    }
    let refused = init(&at, &["nobody".into()], &[]).expect_err("unknown").to_string();
    assert!(refused.contains("role \"nobody\" does not exist"), "{refused}");
    let mut writer = Store::open(as_user("We%22ird").as_str()).expect("may write");
    let id = fill(&mut writer, &runs::bench());
    writer.change_notes(id, |notes| notes.tags.push("t".into())).expect("may note");
    writer.change_notes(id, |notes| notes.tags.clear()).expect("may note");
    let _claim = writer.claim(id).expect("may claim");
    writer.put_live(id, &serde_json::json!(1)).expect("may show");
    let mut reader = Store::open_to_read(as_user("looker").as_str()).expect("may read");
    assert_eq!(reader.load(id).expect("there").measurements.len(), 1);
    assert_eq!(reader.live(id).expect("asked"), Some(serde_json::json!(1)));
    assert!(matches!(reader.set_state(id, RunState::Failed), Err(StoreError::Unwritable { .. })));
    assert!(matches!(Store::open(as_user("looker").as_str()), Err(StoreError::Unwritable { .. })));
    for sql in [
        "DELETE FROM iotax.run",
        "UPDATE iotax.store SET last_run = 0",
        "INSERT INTO iotax.tag VALUES (1, 'x')",
    ] {
        let done = std::process::Command::new("/usr/lib/postgresql/15/bin/psql")
            .args([as_user("looker").as_str(), "-X", "-c", sql])
            .output()
            .expect("psql starts");
        assert!(String::from_utf8_lossy(&done.stderr).contains("permission denied"), "{sql}: {done:?}");
    }
}

/// Executes SQL as a role. Returns the server's answer.
fn as_role(url: &str, sql: &str) -> String {
    let done = std::process::Command::new("/usr/lib/postgresql/15/bin/psql")
        .args([url, "-X", "-A", "-t", "-c", "SET search_path = iotax", "-c", sql])
        .output()
        .expect("psql starts");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// A store with two writers and a reader, and a run of the first writer.
struct Team {
    server: PostgresServer,
    name: String,
    id: i64,
}

impl Team {
    fn new() -> Self {
        let server = PostgresServer::start();
        let url = server.database();
        let name = url.rsplit('/').next().expect("a name").to_owned();
        server.sql(&name, "CREATE ROLE alice LOGIN; CREATE ROLE mallory LOGIN; CREATE ROLE looker LOGIN");
        init(&url.as_str().into(), &["looker".into()], &["alice".into(), "mallory".into()]).expect("made");
        let id = fill(&mut Store::open(server.url("alice", &name).as_str()).expect("opened"), &runs::bench());
        Self { server, name, id }
    }

    fn url(&self, role: &str) -> String {
        self.server.url(role, &self.name)
    }

    fn store(&self, role: &str) -> Store {
        Store::open(self.url(role).as_str()).expect("may write")
    }
}

#[test]
fn a_writer_changes_nothing_of_another_ones_run() {
    require!(file PROGRAM);
    let team = Team::new();
    let mallory = team.url("mallory");
    for (sql, said) in [
        ("UPDATE run SET content = 'x', seal = 0 WHERE id = 1", "UPDATE 0"),
        ("UPDATE run SET writer = 'mallory'", "UPDATE 0"),
        ("DELETE FROM run", "permission denied"),
        ("UPDATE measurement SET seal = 0", "permission denied"),
        ("DELETE FROM measurement", "permission denied"),
        ("TRUNCATE run_figures", "permission denied"),
        (
            "INSERT INTO measurement SELECT run, target, workload, round + 1, figures, latency, content, seal FROM measurement",
            "row-level security",
        ),
        ("UPDATE run_figures SET content = 'x'", "UPDATE 0"),
        ("DELETE FROM run_figures", "DELETE 0"),
        ("INSERT INTO live VALUES (1, 'x')", "row-level security"),
        ("INSERT INTO claim VALUES (1, 1, 1)", "row-level security"),
        ("UPDATE store SET last_run = 4611686018427387904", "goes up by one"),
        (
            "INSERT INTO run SELECT 99, 'u', name, state, started_at_ms, machine, fleet, member, fleet_mode, fleet_link, measured, planned, targets, words, summary_seal, content, seal, 'mallory' FROM run",
            "row-level security",
        ),
        (
            "INSERT INTO run SELECT 2, 'u', name, state, started_at_ms, machine, fleet, member, fleet_mode, fleet_link, measured, planned, targets, words, summary_seal, content, seal, 'alice' FROM run",
            "row-level security",
        ),
        ("ALTER TABLE run DISABLE ROW LEVEL SECURITY", "must be owner"),
        ("SELECT 1 FROM run FOR UPDATE", ""),
    ] {
        let answer = as_role(&mallory, sql);
        assert!(answer.contains(said), "{sql}: {answer}");
    }
    // Nor through iotax, which names the owner.
    let mut store = team.store("mallory");
    let measurement = runs::bench().measurements.remove(0);
    let of_another = |done: Result<(), StoreError>| {
        let said = done.expect_err("not hers").to_string();
        assert!(said.contains("run 1") && said.contains("was stored by alice"), "{said}");
    };
    of_another(store.set_state(team.id, RunState::Failed));
    of_another(store.put_measurement(team.id, &measurement));
    of_another(store.claim(team.id).map(drop));
    // She stores runs of her own, and notes on all.
    let hers = fill(&mut store, &runs::bench());
    store.change_notes(team.id, |notes| notes.tags.push("seen".into())).expect("may note");
    let _claim = store.claim(hers).expect("may claim");
    // A copy of a stored run is recognised, whoever stored it; a longer one is rejected.
    let dir = tempfile::TempDir::new().expect("directory");
    let mut local = Store::open(&dir.path().join("local.db")).expect("new");
    store.copy_run(team.id, &mut local).expect("pulled");
    assert_eq!(local.copy_run(1, &mut store).expect("again"), iotax_store::Copied::Same { run: team.id });
    local.set_repeat(1, 2).expect("kept");
    of_another(local.copy_run(1, &mut store).map(|_| ()));
    let mut alice = team.store("alice");
    assert_eq!(alice.notes(team.id).expect("read").tags, ["seen"]);
    alice.change_notes(team.id, |notes| notes.tags.clear()).expect("may note");
    assert_eq!(alice.load(team.id).expect("whole").measurements.len(), 1);
}

/// A copy of the only measurement, as round 2, with other values for some columns.
fn forged(run: &str, figures: &str, latency: &str, content: &str) -> String {
    format!(
        "INSERT INTO measurement SELECT {run}, target, workload, round + 1, {figures}, {latency}, {content}, seal \
         FROM measurement WHERE run = 1"
    )
}

#[test]
fn tables_of_a_session_make_nobody_elses_run_its_own() {
    require!(file PROGRAM);
    let team = Team::new();
    let mallory = team.url("mallory");
    let temporary =
        "CREATE TEMP TABLE run (id BIGINT, writer TEXT); INSERT INTO pg_temp.run VALUES (1, 'mallory')";
    let measurement =
        forged("1", "figures", "latency", "content").replace("measurement", "iotax.measurement");
    for (sql, said) in [
        (measurement.as_str(), "row-level security"),
        ("INSERT INTO iotax.live VALUES (1, 'x')", "row-level security"),
        ("INSERT INTO iotax.claim VALUES (1, 1, 1)", "row-level security"),
        ("UPDATE iotax.run_figures SET content = 'x'", "UPDATE 0"),
        ("DELETE FROM iotax.run_figures", "DELETE 0"),
        (
            "INSERT INTO pg_temp.run VALUES (4611686018427387903, ''); UPDATE iotax.store SET last_run = 4611686018427387904",
            "goes up by one",
        ),
        ("SELECT iotax.is_own(1)", "\nf\n"),
    ] {
        for path in ["iotax", "pg_temp, iotax", "public, pg_temp, iotax"] {
            let answer = as_role(&mallory, &format!("SET search_path = {path}; {temporary}; {sql}"));
            assert!(answer.contains(said), "{path}: {sql}: {answer}");
        }
    }
    for sql in [
        "CREATE FUNCTION iotax.is_own(of INT) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OR REPLACE FUNCTION iotax.is_own(of BIGINT) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE TABLE iotax.mine (a INT)",
        "ALTER FUNCTION iotax.is_own(BIGINT) SET search_path = pg_temp",
        "SET SESSION AUTHORIZATION alice",
        "SET ROLE alice",
        "ALTER TABLE iotax.run OWNER TO mallory",
        "CREATE POLICY mine ON iotax.run USING (true)",
        "CREATE TRIGGER mine BEFORE INSERT ON iotax.run FOR EACH ROW EXECUTE FUNCTION iotax.goes_on()",
        "CREATE RULE mine AS ON INSERT TO iotax.run DO INSTEAD NOTHING",
    ] {
        let answer = as_role(&mallory, sql);
        assert!(answer.contains("permission denied") || answer.contains("must be owner"), "{sql}: {answer}");
    }
    let alice = team.store("alice");
    assert_eq!(alice.load(team.id).expect("whole").measurements.len(), 1);
}

#[test]
fn rows_that_a_hostile_writer_forges_are_refused_or_named() {
    require!(file PROGRAM);
    let team = Team::new();
    let mut hers = team.store("mallory");
    let own = fill(&mut hers, &runs::bench());
    assert_eq!(own, 2);
    let mallory = team.url("mallory");
    let with = |figures: &str, latency: &str| forged("2", figures, latency, "content");
    let latency = |text: &str| with("figures", &format!("'{text}'"));
    for (sql, said) in [
        (with("'{\"iops\": \"x\"}'", "latency"), "figures_are_numbers"),
        (with("'{\"iops\": [1]}'", "latency"), "figures_are_numbers"),
        (with("'{\"iops\": 1e400}'", "latency"), "figures_are_numbers"),
        (with("'[]'", "latency"), "figures_are_numbers"),
        (with("'x'", "latency"), "invalid input syntax for type json"),
        (with("1", "latency"), "figures_are_numbers"),
        (latency("[]"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": 5}}"), "latency_is_whole"),
        (latency("{\"a\": {}, \"read\": {\"buckets\": {}}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[\"x\", 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[1.0, 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[1e-1, 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[-1, 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[4352, 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"buckets\": [[1, 9223372036854775808]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"min_ns\": \"x\", \"buckets\": [[1, 1]]}}"), "latency_is_whole"),
        (latency("{\"read\": {\"max_ns\": 1e30, \"buckets\": [[4351, 1]]}}"), "latency_is_whole"),
        ("UPDATE run SET id = 3 WHERE id = 2".to_owned(), "number, UUID and writer of a run stay"),
        ("UPDATE run SET uuid = 'u' WHERE id = 2".to_owned(), "number, UUID and writer of a run stay"),
        ("UPDATE run SET writer = 'alice' WHERE id = 2".to_owned(), "number, UUID and writer of a run stay"),
        ("INSERT INTO note VALUES (1, repeat('x', 5000000), '', 0, 0)".to_owned(), "is_short"),
        ("INSERT INTO tag VALUES (1, repeat('x', 5000))".to_owned(), "is_short"),
        ("INSERT INTO note VALUES (1, '', '', 'now', 0)".to_owned(), "invalid input syntax for type bigint"),
    ] {
        let answer = as_role(&mallory, &sql);
        assert!(answer.contains(said), "{sql}: {answer}");
    }
    // What a row may have, and no seal fits: it is named, and what others stored is read as before.
    for sql in [
        forged("2", "'{}'", "'{}'", "'\\x00'"),
        "INSERT INTO note VALUES (1, 'forged', 'forged', 9223372036854775807, 0)".to_owned(),
        "UPDATE run SET name = 'forged', content = 'x' WHERE id = 2".to_owned(),
    ] {
        let answer = as_role(&mallory, &sql);
        assert!(answer.contains("INSERT 0 1") || answer.contains("UPDATE 1"), "{sql}: {answer}");
    }
    let mut alice = team.store("alice");
    assert_eq!(alice.load(team.id).expect("whole").measurements.len(), 1);
    let listed = alice.runs().expect("listed");
    let damaged: Vec<i64> = listed
        .iter()
        .filter(|(_, line)| line.as_ref().map_or(true, |line| line.damage.is_some()))
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(damaged, [1, 2], "the first by its note");
    assert!(alice.load(own).is_err());
    for view in ["figure", "bucket"] {
        let answer = as_role(&team.url("looker"), &format!("SELECT count(*) > 0 FROM {view}"));
        assert!(answer.contains("t\n") && !answer.contains("ERROR"), "{view}: {answer}");
    }
    // A note that is no more readable gives way to the next.
    assert!(alice.notes(team.id).is_err());
    alice.change_notes(team.id, |notes| notes.text = "mine".into()).expect("may note");
    assert_eq!(alice.notes(team.id).expect("read").text, "mine");
}

#[test]
fn a_lock_of_who_only_reads_keeps_nobody_from_a_run() {
    require!(file PROGRAM);
    let team = Team::new();
    let alice = team.store("alice");
    let claim = alice.claim(team.id).expect("free");
    assert!(matches!(team.store("alice").claim(team.id), Err(StoreError::Claimed { .. })));
    drop(claim);
    // Somebody who may read takes every lock that there was, and the one that the row names.
    let url = team.url("looker");
    let sql = "SELECT pg_advisory_lock(key), pg_advisory_lock(1769239672, run::int) FROM claim; SELECT pg_sleep(30)";
    let mut holder = std::process::Command::new("/usr/lib/postgresql/15/bin/psql")
        .args([url.as_str(), "-X", "-c", "SET search_path = iotax", "-c", sql])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("psql starts");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    while team.server.sql(&team.name, locks) != "2" {
        thread::sleep(Duration::from_millis(20));
    }
    let claim = alice.claim(team.id).expect("no lock of a reader is a claim");
    assert!(matches!(team.store("alice").claim(team.id), Err(StoreError::Claimed { .. })));
    drop(claim);
    holder.kill().expect("running");
    holder.wait().expect("ended");
}

#[test]
fn how_long_a_server_was_tried_for_is_said() {
    require!(file PROGRAM);
    let mut server = PostgresServer::start();
    let at: Location = server.database().as_str().into();
    let id = fill(&mut Store::open(&at).expect("made"), &runs::bench());
    let store = Store::open_to_read(&at).expect("opened");
    server.stop();
    for least in [5, 5] {
        let said = store.load(id).expect_err("no server").to_string();
        let seconds = said.split("it was tried for ").nth(1).and_then(|rest| rest.split(' ').next());
        assert!(
            seconds.and_then(|text| text.parse::<u64>().ok()).is_some_and(|found| found >= least),
            "{said}"
        );
    }
}

#[test]
fn a_schema_of_somebody_else_is_left_untouched() {
    require!(file PROGRAM);
    let server = PostgresServer::start();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE SCHEMA iotax; CREATE TABLE iotax.run (a int)");
    assert!(matches!(Store::open(url.as_str()), Err(StoreError::Foreign { .. })));
    assert_eq!(server.sql(name, "SELECT count(*) FROM pg_tables WHERE schemaname = 'iotax'"), "1");
}

/// Tests a crash and restart of the server during a run: the run continues with its claim, and all stored data is kept.
#[test]
fn a_run_outlasts_a_crash_of_the_server() {
    require!(file PROGRAM);
    let mut server = PostgresServer::with(&PostgresOptions::default());
    let at: Location = server.database().as_str().into();
    let mut run = runs::ladder(false);
    run.state = RunState::Running;
    let rest = run.measurements.split_off(3);
    let mut store = Store::open(&at).expect("made");
    let id = fill(&mut store, &run);
    let claim = store.claim(id).expect("free");
    for m in &rest[..3] {
        server.crash();
        let again = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            server.start_again();
            server
        });
        store.put_measurement(id, m).expect("stored after the server came back");
        server = again.join().expect("started");
    }
    let other = Store::open(&at).expect("opened");
    assert_eq!(other.load(id).expect("there").measurements.len(), 6);
    assert_eq!(other.load(id).expect("there").state, RunState::Running, "the claim is held again");
    assert!(matches!(other.claim(id), Err(StoreError::Claimed { .. })));
    drop(claim);
    assert_eq!(other.load(id).expect("there").state, RunState::Interrupted);
    server.stop();
    let refused = Store::open(&at).expect_err("no server").to_string();
    assert!(refused.contains("does not answer") && refused.contains("see that the server runs"), "{refused}");
}

#[test]
fn no_password_is_shown() {
    for (url, shown) in [
        ("postgres://me:se:c/r@et@host:1/d", "postgres://me@host:1/d"),
        ("postgresql://me@host/d?password=secret&sslmode=require", "postgresql://me@host/d?sslmode=require"),
        ("postgres://host/d?sslmode=disable", "postgres://host/d?sslmode=disable"),
    ] {
        let at = Location::from(url);
        assert_eq!((at.to_string(), format!("{at:?}")), (shown.to_owned(), format!("{shown:?}")));
    }
    let bad = Store::open("postgres://me:secret@host:port/d").expect_err("no port");
    let said = format!("{bad} {bad:?}");
    assert!(!said.contains("secret") && said.contains("accepted: postgres://"), "{said}");
    let bad = Store::open("postgres://me:secret@host/d?sslmode=maybe").expect_err("no mode").to_string();
    assert!(!bad.contains("secret") && bad.contains("verify-full"), "{bad}");
}

/// Tests passwords and TLS, as on a server for a team.
#[test]
fn a_server_is_known_by_its_certificate() {
    require!(file PROGRAM);
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let certificate = parameters.self_signed(&key).expect("a certificate").pem();
    let server = PostgresServer::with(&PostgresOptions {
        settings: &[("fsync", "off"), ("ssl", "on")],
        access: "hostssl all keyed 127.0.0.1/32 scram-sha-256\nhost all keyed 127.0.0.1/32 reject",
        files: &[("server.crt", certificate.as_bytes()), ("server.key", key.serialize_pem().as_bytes())],
    });
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(
        name,
        &format!("CREATE ROLE keyed LOGIN PASSWORD 'se:cret'; GRANT CREATE ON DATABASE {name} TO keyed"),
    );
    let directory = tempfile::TempDir::new().expect("directory");
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, &certificate).expect("written");
    let port = server.port();
    let at = |password: &str, host: &str, rest: &str| {
        Store::open(format!("postgres://keyed{password}@{host}:{port}/{name}?{rest}").as_str())
    };
    let roots = format!("sslmode=verify-full&sslrootcert={}", roots.display());
    at(":se%3Acret", "localhost", &roots).expect("known");
    at(":se%3Acret", "127.0.0.1", "sslmode=require").expect("encrypted");
    at(":se%3Acret", "127.0.0.1", "").expect("encrypted where the server offers it");
    let refused = |opened: Result<Store, StoreError>| opened.expect_err("refused").to_string();
    let wrong_name = refused(at(":se%3Acret", "127.0.0.1", &roots));
    assert!(wrong_name.contains("certificate"), "{wrong_name}");
    let unknown = refused(at(":se%3Acret", "localhost", "sslmode=verify-full"));
    assert!(unknown.contains("certificate"), "{unknown}");
    let plain = refused(at(":se%3Acret", "127.0.0.1", "sslmode=disable"));
    assert!(plain.contains("rejects connection"), "{plain}");
    let wrong = refused(at(":secret", "127.0.0.1", ""));
    assert!(wrong.contains("password authentication failed") && !wrong.contains("cret@"), "{wrong}");
    let none = refused(at("", "127.0.0.1", ""));
    assert!(none.contains("password"), "{none}");
}

#[test]
fn a_store_in_a_place_that_others_use_too() {
    require!(file PROGRAM);
    let at = TestStore::postgres();
    let server = at.server.as_ref().expect("started");
    let url = at.location.to_string();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE TABLE run (a int); INSERT INTO run VALUES (1)");
    fill(&mut at.open(), &runs::bench());
    assert_eq!(server.sql(name, "SELECT count(*) FROM run"), "1");
    // Over the local socket, as an administrator connects.
    let socket = format!(
        "postgres://iotax@/{name}?host={}&port={}",
        server.socket_directory().display(),
        server.port()
    );
    assert_eq!(Store::open_to_read(socket.as_str()).expect("there").latest().expect("one"), Some(1));
}
