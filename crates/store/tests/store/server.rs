//! What a store of PostgreSQL alone can be: without rights, without a server, behind TLS.

use std::thread;
use std::time::Duration;

use iotax_model::RunState;
use iotax_store::{Location, Store, StoreError, init};
use iotax_testkit::postgres::{Options, PROGRAM, Server};
use iotax_testkit::require;

use crate::both::fill;
use crate::place::Place;
use crate::synthetic;

#[test]
fn a_reader_reads_and_a_writer_writes() {
    require!(file PROGRAM);
    let server = Server::start();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE ROLE looker LOGIN; CREATE ROLE \"We\"\"ird\" LOGIN; CREATE ROLE stranger LOGIN");
    let place: Location = url.as_str().into();
    let absent = Store::open_to_read(&place).expect_err("nothing there").to_string();
    assert!(absent.contains("iotax store init postgres://"), "{absent}");
    let as_user = |user: &str| server.url(user, name);
    let refused = Store::open(as_user("stranger").as_str()).expect_err("may not").to_string();
    assert!(refused.contains("cannot be written") && refused.contains("permission denied"), "{refused}");
    for _ in 0..2 {
        init(&place, &["looker".into()], &["We\"ird".into()]).expect("made");
    }
    let refused = init(&place, &["nobody".into()], &[]).expect_err("unknown").to_string();
    assert!(refused.contains("role \"nobody\" does not exist"), "{refused}");
    let mut writer = Store::open(as_user("We%22ird").as_str()).expect("may write");
    let id = fill(&mut writer, &synthetic::bench());
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

#[test]
fn a_schema_of_somebody_else_is_left_untouched() {
    require!(file PROGRAM);
    let server = Server::start();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE SCHEMA iotax; CREATE TABLE iotax.run (a int)");
    assert!(matches!(Store::open(url.as_str()), Err(StoreError::Foreign { .. })));
    assert_eq!(server.sql(name, "SELECT count(*) FROM pg_tables WHERE schemaname = 'iotax'"), "1");
}

/// The server crashes under a run, and comes back: the run goes on, still claimed, and nothing that was stored is gone.
#[test]
fn a_run_outlasts_a_crash_of_the_server() {
    require!(file PROGRAM);
    let mut server = Server::with(&Options::default());
    let place: Location = server.database().as_str().into();
    let mut run = synthetic::ladder(false);
    run.state = RunState::Running;
    let rest = run.measurements.split_off(3);
    let mut store = Store::open(&place).expect("made");
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
    let other = Store::open(&place).expect("opened");
    assert_eq!(other.load(id).expect("there").measurements.len(), 6);
    assert_eq!(other.load(id).expect("there").state, RunState::Running, "the claim is held again");
    assert!(matches!(other.claim(id), Err(StoreError::Claimed { .. })));
    drop(claim);
    assert_eq!(other.load(id).expect("there").state, RunState::Interrupted);
    server.stop();
    let refused = Store::open(&place).expect_err("no server").to_string();
    assert!(refused.contains("does not answer") && refused.contains("see that the server runs"), "{refused}");
}

#[test]
fn no_password_is_shown() {
    for (url, shown) in [
        ("postgres://me:se:c/r@et@host:1/d", "postgres://me@host:1/d"),
        ("postgresql://me@host/d?password=secret&sslmode=require", "postgresql://me@host/d?sslmode=require"),
        ("postgres://host/d?sslmode=disable", "postgres://host/d?sslmode=disable"),
    ] {
        let place = Location::from(url);
        assert_eq!((place.to_string(), format!("{place:?}")), (shown.to_owned(), format!("{shown:?}")));
    }
    let bad = Store::open("postgres://me:secret@host:port/d").expect_err("no port");
    let said = format!("{bad} {bad:?}");
    assert!(!said.contains("secret") && said.contains("accepted: postgres://"), "{said}");
    let bad = Store::open("postgres://me:secret@host/d?sslmode=maybe").expect_err("no mode").to_string();
    assert!(!bad.contains("secret") && bad.contains("verify-full"), "{bad}");
}

/// Passwords and TLS as a server for a team has them.
#[test]
fn a_server_is_known_by_its_certificate() {
    require!(file PROGRAM);
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let certificate = parameters.self_signed(&key).expect("a certificate").pem();
    let server = Server::with(&Options {
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
    let place = Place::postgres();
    let server = place.server.as_ref().expect("started");
    let url = place.location.to_string();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(name, "CREATE TABLE run (a int); INSERT INTO run VALUES (1)");
    fill(&mut place.open(), &synthetic::bench());
    assert_eq!(server.sql(name, "SELECT count(*) FROM run"), "1");
    // By the socket of this machine, as a local administrator comes.
    let socket = format!(
        "postgres://iotax@/{name}?host={}&port={}",
        server.socket_directory().display(),
        server.port()
    );
    assert_eq!(Store::open_to_read(socket.as_str()).expect("there").latest().expect("one"), Some(1));
}
