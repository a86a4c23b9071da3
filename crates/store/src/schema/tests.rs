//! Tests of a migration to a hypothetical next version.

use iotax_testkit::{postgres, require};

use super::*;
use crate::database::{Database, Purpose, insist};
use crate::postgresql::Postgres;
use crate::sqlite::Sqlite;
use crate::{Location, Store, StoreError, counter};

const NEXT: &[Step] = &[
    Step { to: OLDEST, both: TABLES, sqlite: SQLITE, postgres: POSTGRES },
    Step { to: 7, both: "ALTER TABLE run ADD COLUMN weather TEXT;", sqlite: "", postgres: "" },
];

/// A step that fails in the middle.
const BROKEN: &[Step] = &[
    Step { to: OLDEST, both: TABLES, sqlite: SQLITE, postgres: POSTGRES },
    Step {
        to: 7,
        both: "CREATE TABLE half (a {int}); ALTER TABLE no_such ADD COLUMN b TEXT;",
        sqlite: "",
        postgres: "",
    },
];

type Open = fn(&Location, &'static [Step]) -> Result<Box<dyn Database>, StoreError>;

fn file(location: &Location, steps: &'static [Step]) -> Result<Box<dyn Database>, StoreError> {
    Ok(Box::new(Sqlite::to_write_by(location.file().expect("a file"), steps)?))
}

fn server(location: &Location, steps: &'static [Step]) -> Result<Box<dyn Database>, StoreError> {
    let Location::Postgres(url) = location else { panic!("{location}: no URL") };
    Ok(Box::new(Postgres::to_write_by(url, steps)?))
}

fn a_store_takes_the_step_to_the_next_version(location: &Location, open: Open) {
    drop(Store::open(location).expect("made"));
    // A step that fails leaves the store as it was.
    assert!(open(location, BROKEN).is_err());
    let mut store = Store::open(location).expect("still of this version").database.into_inner();
    let half =
        insist(store.as_mut(), Purpose::Read, &mut |database| database.query("SELECT a FROM half", &[]));
    assert!(half.is_err(), "half a step was taken");
    drop(store);
    for _ in 0..2 {
        let mut store = open(location, NEXT).expect("brought up to date");
        let work = &mut |database: &mut dyn Database| {
            counter::next(database)?;
            database.query("SELECT weather FROM run", &[])
        };
        assert!(insist(store.as_mut(), Purpose::Write, work).expect("the new column").is_empty());
    }
    for refused in [Store::open(location), Store::open_to_read(location)] {
        let error = refused.expect_err("newer than this");
        assert!(matches!(error, StoreError::Version { found: 7, known: 6, .. }), "{error}");
    }
}

#[test]
fn a_file_takes_the_step_to_the_next_version() {
    let directory = tempfile::TempDir::new().expect("directory");
    let location = directory.path().join("s.db").as_path().into();
    a_store_takes_the_step_to_the_next_version(&location, file);
}

#[test]
fn a_database_takes_the_step_to_the_next_version() {
    require!(file postgres::PROGRAM);
    let started = postgres::PostgresServer::start();
    a_store_takes_the_step_to_the_next_version(&started.database().as_str().into(), server);
}
