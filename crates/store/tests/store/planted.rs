//! Tests that triggers, views and files planted by other users in or next to a store have no effect.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use iotax_store::{Store, StoreError};
use iotax_testkit::require;
use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::both::fill;
use iotax_testkit::runs;

/// A directory with a store of one run.
fn filled_store() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    fill(&mut Store::open(&path).expect("new"), &runs::bench());
    (dir, path)
}

fn beside(store: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", store.display()))
}

/// Builds a journal that rolls nothing back and may name a super-journal.
fn journal(store: &Path, names: Option<&Path>) -> Vec<u8> {
    let pages = u32::try_from(fs::metadata(store).expect("there").len() / 4096).expect("small");
    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let mut bytes = magic.to_vec();
    for number in [0_u32, 0, pages, 512, 4096] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.resize(512, 0);
    if let Some(name) = names {
        let name = name.to_str().expect("a text").as_bytes();
        let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
        bytes.extend(0x0004_0001_u32.to_be_bytes());
        bytes.extend(name);
        bytes.extend(u32::try_from(name.len()).expect("short").to_be_bytes());
        bytes.extend(sum.to_be_bytes());
        bytes.extend(magic);
    }
    bytes
}

/// Asserts that reads and writes fail with these words.
fn refused(path: &Path, words: &str) {
    let read = Store::open_to_read(path).and_then(|store| store.load(1)).expect_err("read").to_string();
    let write = Store::open(path).expect_err("written").to_string();
    for said in [&read, &write] {
        assert!(said.contains(words) && said.contains("left untouched") && said.contains("--db"), "{said}");
    }
}

#[test]
fn a_journal_deletes_no_file() {
    let (dir, path) = filled_store();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    fs::write(beside(&path, "-journal"), journal(&path, Some(&victim))).expect("planted");
    refused(&path, "super-journal");
    assert_eq!(fs::read_to_string(&victim).expect("still there"), "precious");
    // By a link to the store, too: SQLite goes by the name that it leads to.
    let link = dir.path().join("link.db");
    symlink(&path, &link).expect("linked");
    refused(&link, "super-journal");
    assert_eq!(fs::read_to_string(&victim).expect("still there"), "precious");
    // One that a store which is open already comes to meet.
    fs::remove_file(beside(&path, "-journal")).expect("removed");
    let store = Store::open_to_read(&path).expect("opened");
    fs::write(beside(&path, "-journal"), journal(&path, Some(&victim))).expect("planted");
    assert!(matches!(store.load(1), Err(StoreError::Planted { .. })));
    assert_eq!(fs::read_to_string(&victim).expect("still there"), "precious");
}

#[test]
fn a_write_that_was_cut_short_is_taken_back_by_who_reads() {
    let (dir, path) = filled_store();
    let before = Store::open_to_read(&path).and_then(|store| store.load(1)).expect("there");
    let other = dir.path().join("cut.db");
    let open = Store::open_to_read(&path).expect("opened");
    let writer = Connection::open(&path).expect("opened");
    writer
        .execute_batch(
            "PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE measurement SET content = zeroblob(200000)",
        )
        .expect("begun");
    fs::copy(&path, &other).expect("copied");
    fs::copy(beside(&path, "-journal"), beside(&other, "-journal")).expect("copied");
    drop(writer);
    assert_ne!(fs::read(&path).expect("read"), fs::read(&other).expect("read"), "half of it is in the file");
    assert!(Store::open_to_read(&other).and_then(|store| store.load(1)).expect("taken back") == before);
    assert!(!beside(&other, "-journal").exists());
    // A store that is open already.
    fs::write(beside(&path, "-journal"), journal(&path, None)).expect("written");
    assert!(open.load(1).expect("taken back") == before && !beside(&path, "-journal").exists());
}

#[test]
fn what_another_user_left_beside_a_store_is_not_obeyed() {
    require!(root);
    let (_dir, path) = filled_store();
    fs::write(beside(&path, "-journal"), journal(&path, None)).expect("written");
    chown(beside(&path, "-journal"), Some(12345), None).expect("given away");
    refused(&path, "belongs to another user (uid 12345)");
    assert!(beside(&path, "-journal").exists());
    fs::remove_file(beside(&path, "-journal")).expect("removed");
    // A store in another user's directory can be read and is never written.
    let directory = path.parent().expect("has one");
    chown(directory, Some(12345), None).expect("given away");
    Store::open_to_read(&path).and_then(|store| store.load(1)).expect("read");
    let said = Store::open(&path).expect_err("written").to_string();
    assert!(said.contains("belongs to another user (uid 12345)"), "{said}");
    let inner = directory.join("inner");
    fs::create_dir(&inner).expect("made");
    let said = Store::open(&inner.join("new.db")).expect_err("written").to_string();
    assert!(said.contains("belongs to another user (uid 12345)"), "{said}");
}

#[test]
fn a_directory_that_everybody_writes_into_keeps_no_store() {
    let (dir, path) = filled_store();
    for mode in [0o777, 0o1777] {
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).expect("opened to all");
        let said = Store::open(&path).expect_err("written").to_string();
        assert!(said.contains("everybody can write into") && said.contains("--db"), "{said}");
        Store::open_to_read(&path).and_then(|store| store.load(1)).expect("read");
    }
    // A private group has its owner's number.
    if rustix::process::geteuid().is_root() {
        for (group, is_kept) in [(Some(0), true), (Some(12345), false)] {
            chown(dir.path(), None, group).expect("given to a group");
            fs::set_permissions(dir.path(), Permissions::from_mode(0o2775)).expect("opened to it");
            let opened = Store::open(&path).map(drop).map_err(|error| error.to_string());
            let said = opened.as_ref().err().cloned().unwrap_or_default();
            assert!(
                opened.is_ok() == is_kept && (is_kept || said.contains("a group can write into")),
                "{said}"
            );
        }
    }
    let (dangling, leads) = (dir.path().join("dangling.db"), dir.path().join("nowhere"));
    symlink(&leads, &dangling).expect("linked");
    assert!(Store::open(&dangling).is_err() && !leads.exists());
}

#[test]
fn what_iotax_never_makes_is_refused() {
    let (dir, path) = filled_store();
    fs::write(beside(&path, "-wal"), "").expect("written");
    refused(&path, "is a write-ahead log");
    fs::remove_file(beside(&path, "-wal")).expect("removed");
    let fifo = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("made");
    fifo(&beside(&path, "-journal"));
    refused(&path, "is not a file of its own");
    let named = dir.path().join("fifo");
    fifo(&named);
    assert!(matches!(Store::open_to_read(&named), Err(StoreError::Open { .. })), "and nothing waits for it");
}

#[test]
fn sql_of_somebody_else_is_not_run() {
    for sql in [
        "CREATE TRIGGER more AFTER INSERT ON run BEGIN DELETE FROM run; END",
        "DROP VIEW figure; CREATE VIEW figure AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "ALTER TABLE tag RENAME TO other; CREATE VIEW tag AS SELECT run, tag FROM other",
        "CREATE INDEX more ON run (name)",
    ] {
        let (_dir, path) = filled_store();
        Connection::open(&path).and_then(|store| store.execute_batch(sql)).expect(sql);
        for opened in [Store::open_to_read(&path), Store::open(&path)] {
            let said = opened.expect_err(sql).to_string();
            assert!(said.contains("its tables are not those of version"), "{said}");
        }
    }
}

#[test]
fn a_counter_out_of_all_bounds_is_survived() {
    let (_dir, path) = filled_store();
    let sql = format!(
        "INSERT INTO run SELECT {}, uuid || 'x', name, state, started_at_ms, machine, fleet, member, fleet_mode, fleet_link, measured, planned, targets, words, summary_seal, content, seal FROM run; UPDATE store SET seal = 0",
        i64::MAX
    );
    Connection::open(&path).and_then(|store| store.execute_batch(&sql)).expect("changed");
    let listed = Store::open_to_read(&path).and_then(|store| store.runs()).expect("listed");
    assert_eq!((listed.len(), listed.iter().filter(|(_, run)| run.is_ok()).count()), (1002, 1));
    let mut store = Store::open(&path).expect("opened");
    let plan = runs::bench().plan;
    let new = iotax_store::NewRun { plan: &plan, seed: 1, started_at_ms: 1, fleet: None };
    let said = store.create_run(&new).expect_err("no number").to_string();
    assert!(said.contains("no number is left"), "{said}");
}
