//! Runs the same tests on both kinds of store: a file, and a database on a PostgreSQL server started for the test.

use iotax_store::{Location, Store, StoreError};
use iotax_testkit::postgres::PostgresServer;
use tempfile::TempDir;

/// An empty location for a store.
pub(crate) struct TestStore {
    _directory: Option<TempDir>,
    pub(crate) server: Option<PostgresServer>,
    pub(crate) location: Location,
}

impl TestStore {
    pub(crate) fn file() -> Self {
        let directory = TempDir::new().expect("temporary directory");
        let location = directory.path().join("iotax.db").as_path().into();
        Self { _directory: Some(directory), server: None, location }
    }

    /// Creates a database; the test must require PostgreSQL first.
    pub(crate) fn postgres() -> Self {
        let server = PostgresServer::start();
        let location = server.database().as_str().into();
        Self { _directory: None, server: Some(server), location }
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(&self.location).expect("opened")
    }

    pub(crate) fn try_read(&self) -> Result<Store, StoreError> {
        Store::open_to_read(&self.location)
    }

    /// Executes SQL directly on the database.
    pub(crate) fn sql(&self, sql: &str) {
        if let Some(server) = &self.server {
            let url = self.location.to_string();
            let name = url.rsplit('/').next().expect("a name");
            server.sql(name, &format!("SET search_path = iotax; {sql}"));
        } else {
            let connection =
                rusqlite::Connection::open(self.location.file().expect("a file")).expect("opens");
            connection.execute_batch(sql).expect("carried out");
        }
    }
}

/// Defines a test for each function on each kind of store.
macro_rules! both {
    ($($test:ident),+ $(,)?) => {
        mod file {
            $(#[test]
            fn $test() {
                super::$test(&crate::test_store::TestStore::file());
            })+
        }
        mod postgres {
            $(#[test]
            fn $test() {
                iotax_testkit::require!(file iotax_testkit::postgres::PROGRAM);
                super::$test(&crate::test_store::TestStore::postgres());
            })+
        }
    };
}
pub(crate) use both;
