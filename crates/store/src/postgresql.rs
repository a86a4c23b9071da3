//! A store in the schema `iotax` of a PostgreSQL database.
//!
//! A claim on a run is a row that names a database session, and an advisory lock that this session holds. The session that holds the claim
//! also writes the run. A process that loses its connection thus loses its claim, and renews it before it writes again. The lock alone
//! would not be enough, because everyone who can connect can take it.

mod connect;
mod pgpass;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::postgres::error::SqlState;
use ::postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use ::postgres::{Client, Error, Row, Statement};

use self::connect::Connector;
use crate::database::{Columns, Database, Purpose, Value};
use crate::error::{Fault, StoreError};
use crate::schema::{self, Step};
use crate::{Claim, Location, not_ours};
use iotax_model::threads;

/// Key of the advisory lock under which tables are created or migrated: "iotx".
const SCHEMA_LOCK: i64 = i32::from_be_bytes(*b"iotx") as i64;
/// SQL condition that a row of `claim` is valid: the session that it names holds the advisory lock.
const IS_HELD: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
                       AND pg_locks.pid = claim.pid AND (classid::bigint << 32) | objid::bigint = claim.key)";
/// Maximum time to wait for a server that does not answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum time to wait for the server if the store is open only for reading.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of cached prepared statements. Apart from filters, iotax uses fewer.
const MOST_STATEMENTS: usize = 200;

/// Statements that begin each session. They turn on `synchronous_commit` if it is off by default, because acknowledged measurements could
/// otherwise be lost.
const SETTINGS: &str = "
SET search_path = iotax;
SET client_min_messages = warning;
SET lock_timeout = '60s';
SET idle_in_transaction_session_timeout = '5min';
SET tcp_keepalives_idle = 30;
SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
";

/// A connection to a PostgreSQL store.
#[derive(Debug)]
pub(crate) struct Postgres {
    location: Location,
    connector: Connector,
    is_read_only: bool,
    session: Arc<Mutex<Session>>,
    /// Time at which the loss of the connection was noticed; `None` while the server answers.
    away: Option<Instant>,
}

struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
    /// Key of the advisory lock of each run that this process has claimed.
    claimed: BTreeMap<i64, i64>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("claimed", &self.claimed).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens an existing store for reading only.
    pub(crate) fn to_read(url: &str) -> Result<Self, StoreError> {
        let mut store = Self::connect(url, true)?;
        match store.version().map_err(|fault| store.public_error(None, fault))? {
            None => Err(StoreError::Absent { location: store.location }),
            Some(found) => store.known(found, schema::version()),
        }
    }

    /// Opens a store for writing; creates the store if the database has none.
    pub(crate) fn to_write(url: &str) -> Result<Self, StoreError> {
        Self::to_write_by(url, schema::STEPS)
    }

    /// Opens a store as [`Self::to_write`] does, with the schema that the migrations `steps` create.
    pub(crate) fn to_write_by(url: &str, steps: &'static [Step]) -> Result<Self, StoreError> {
        let newest = schema::newest(steps);
        let mut store = Self::connect(url, false)?;
        let made = store.version().and_then(|found| match found {
            Some(found) if found == newest || !schema::is_known(found, newest) => Ok(found),
            _ => store.make(steps),
        });
        let found = made.map_err(|fault| store.public_error(None, fault))?;
        store.known(found, newest)
    }

    fn connect(url: &str, is_read_only: bool) -> Result<Self, StoreError> {
        let location: Location = url.into();
        let connector = Connector::new(url).map_err(|reason| StoreError::Value {
            location: location.clone(),
            what: "the URL",
            reason,
        })?;
        let session = Session::begin(&connector, is_read_only)
            .map_err(|error| public_error(&location, None, fault(error)))?;
        Ok(Self { location, connector, is_read_only, session: Arc::new(Mutex::new(session)), away: None })
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        // After a panic in the middle of a request, keep the session: the next request to the server shows what is wrong.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(self, found: i64, known: i64) -> Result<Self, StoreError> {
        if found == known {
            Ok(self)
        } else {
            Err(StoreError::Version { location: self.location, found, known })
        }
    }

    /// Returns the schema version; `None` if there is no store. Fails if the database has a schema `iotax` that is not a store.
    fn version(&mut self) -> Result<Option<i64>, Fault> {
        let sql = "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'iotax'), \
                   (SELECT count(*) FROM pg_tables WHERE schemaname = 'iotax' AND tablename = 'schema_version')";
        let mut row = self.query(sql, &[])?.pop().ok_or(Fault::Unknown)?;
        match (row.int()?, row.int()?) {
            (0, _) => Ok(None),
            (_, 0) => Err(Fault::Store(StoreError::Foreign { location: self.location.clone() })),
            _ => {
                let mut row = self.query("SELECT version FROM schema_version", &[])?;
                row.pop().map(|mut row| row.int()).transpose()
            }
        }
    }

    /// Creates the tables, or migrates older ones. Returns the schema version after that.
    fn make(&mut self, steps: &'static [Step]) -> Result<i64, Fault> {
        self.begin(Purpose::Write)?;
        let done = self.make_within(steps);
        match done {
            Ok(version) => self.commit().map(|()| version),
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    fn make_within(&mut self, steps: &'static [Step]) -> Result<i64, Fault> {
        self.query("SELECT 1::bigint FROM (SELECT pg_advisory_xact_lock($1)) locked", &[SCHEMA_LOCK.into()])?;
        // Another process may have created or migrated them first.
        let found = self.version()?;
        if found.is_none() {
            self.batch("CREATE SCHEMA iotax")?;
        }
        for step in schema::steps(found.unwrap_or(0), steps) {
            self.batch(&schema::of_postgres(step))?;
            self.execute("UPDATE schema_version SET version = $1", &[step.to.into()])?;
        }
        Ok(self.version()?.unwrap_or(0))
    }

    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.session().client.batch_execute(sql).map_err(fault)
    }
}

/// Creates or migrates a store, and computes the trend figures that it lacks. Grants access to existing PostgreSQL roles: `readers` may
/// read, `writers` may also store runs. Fails if roles are given for a SQLite file, which has no roles.
pub fn init(location: &Location, readers: &[String], writers: &[String]) -> Result<(), StoreError> {
    crate::Store::open(location)?.add_figures()?;
    if readers.is_empty() && writers.is_empty() {
        return Ok(());
    }
    let Location::Postgres(url) = location else {
        let reason = "a file has no roles; who may read and write it is said by its mode and owner".into();
        return Err(StoreError::Value { location: location.clone(), what: "roles", reason });
    };
    let to_read = readers.iter().chain(writers).map(|role| {
        let role = quoted(role);
        format!(
            "GRANT USAGE ON SCHEMA iotax TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA iotax TO {role};"
        )
    });
    let to_write = writers.iter().map(|role| {
        let role = quoted(role);
        format!(
            "GRANT INSERT, UPDATE ON store, run, run_figures, note, live, claim TO {role}; \
             GRANT INSERT ON measurement, tag TO {role}; GRANT DELETE ON run_figures, tag, live TO {role};"
        )
    });
    let grants: Vec<String> = to_read.chain(to_write).collect();
    let mut store = Postgres::connect(url, false)?;
    store
        .batch(&format!("BEGIN; {} COMMIT;", grants.join(" ")))
        .map_err(|fault| store.public_error(None, fault))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Session {
    fn begin(connector: &Connector, is_read_only: bool) -> Result<Self, Error> {
        let mut client = connector.connect()?;
        client.batch_execute(SETTINGS)?;
        if is_read_only {
            client.batch_execute("SET default_transaction_read_only = on")?;
        }
        Ok(Self { client, statements: HashMap::new(), claimed: BTreeMap::new() })
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        if self.statements.len() >= MOST_STATEMENTS {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Claims a run that no process has claimed, or that this process claimed with the key `before` in a lost session. Returns true if this
    /// session now has the claim, and false if another process has it.
    fn hold(&mut self, run: i64, before: Option<i64>) -> Result<bool, Error> {
        let key: i64 = self.client.query_one("SELECT (random() * 9e18)::bigint", &[])?.get(0);
        self.client.query("SELECT pg_advisory_lock($1)", &[&key])?;
        let row = "INSERT INTO claim (run, pid, key) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING";
        self.client.execute(row, &[&run])?;
        let take = format!(
            "UPDATE claim SET pid = pg_backend_pid(), key = $2 WHERE run = $1 AND (key = $3 OR NOT {IS_HELD})"
        );
        let is_held = self.client.execute(&take, &[&run, &key, &before.unwrap_or(-1)])? == 1;
        if is_held {
            self.claimed.insert(run, key);
        } else {
            self.release(key)?;
        }
        Ok(is_held)
    }

    fn release(&mut self, key: i64) -> Result<(), Error> {
        self.client.query("SELECT pg_advisory_unlock($1)", &[&key]).map(|_| ())
    }
}

/// A claim on a run. Dropping it releases its lock, unless the session, and with it the lock, is already gone.
struct Held {
    run: i64,
    session: Arc<Mutex<Session>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = session.claimed.remove(&self.run) {
            let _ = session.release(key);
        }
    }
}

impl Database for Postgres {
    fn location(&self) -> &Location {
        &self.location
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let mut session = self.session();
        let statement = session.statement(sql).map_err(fault)?;
        session.client.execute(&statement, &parameters(values)).map_err(fault)
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Columns>, Fault> {
        let mut session = self.session();
        let statement = session.statement(sql).map_err(fault)?;
        let rows = session.client.query(&statement, &parameters(values)).map_err(fault)?;
        rows.iter().map(columns).collect()
    }

    fn begin(&mut self, purpose: Purpose) -> Result<(), Fault> {
        self.batch(match purpose {
            Purpose::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Purpose::Write => "BEGIN",
        })
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.batch("COMMIT")
    }

    fn roll_back(&mut self) {
        // If the connection is lost, the server itself rolls back.
        let _ = self.batch("ROLLBACK");
    }

    fn to_change(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn reconnect(&mut self, lost: Fault) -> Result<(), Fault> {
        if !matches!(lost, Fault::Lost(_)) {
            return Err(lost);
        }
        let patience = if self.is_read_only { READ_PATIENCE } else { PATIENCE };
        let away = *self.away.get_or_insert_with(Instant::now);
        let mut pause = Duration::from_millis(50);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            threads::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(2));
            let renewed = Session::begin(&self.connector, self.is_read_only).and_then(|mut renewed| {
                // The server may not have noticed yet that the former session is gone.
                for (run, key) in &session.claimed {
                    if !renewed.hold(*run, Some(*key))? {
                        return Ok(Err(*run));
                    }
                }
                Ok(Ok(renewed))
            });
            let lost = match renewed {
                Ok(Ok(renewed)) => {
                    *session = renewed;
                    self.away = None;
                    return Ok(());
                }
                Ok(Err(run)) => format!("run {run} is claimed by another process since"),
                Err(error) => match fault(error) {
                    Fault::Lost(reason) => reason,
                    other => return Err(other),
                },
            };
            // After the time limit, each later request makes one more attempt to reconnect.
            if away.elapsed() >= patience {
                return Err(Fault::Lost(format!("{lost}; it was tried for {} s", away.elapsed().as_secs())));
            }
        }
    }

    fn other_writer(&mut self, run: i64) -> Result<Option<String>, Fault> {
        let sql =
            "SELECT writer FROM run WHERE id = $1 AND writer <> current_user AND row_security_active('run')";
        self.query(sql, &[run.into()])?.pop().map(|mut row| row.text()).transpose()
    }

    fn claim(&mut self, run: i64) -> Result<Claim, Fault> {
        if let Some(fault) = not_ours(self, run)? {
            return Err(fault);
        }
        let mut session = self.session();
        if session.claimed.contains_key(&run) || !session.hold(run, None).map_err(fault)? {
            return Err(Fault::Store(StoreError::Claimed { run }));
        }
        drop(session);
        Ok(Claim::new(Held { run, session: Arc::clone(&self.session) }))
    }

    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault> {
        if runs.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rows = self.query(&format!("SELECT run FROM claim WHERE {IS_HELD}"), &[])?;
        let held = rows.into_iter().map(|mut row| row.int()).collect::<Result<BTreeSet<_>, _>>()?;
        Ok(runs.iter().copied().filter(|run| held.contains(run)).collect())
    }

    fn put_live(&mut self, run: i64, state: &str) -> Result<(), Fault> {
        let sql = "INSERT INTO live (run, state) VALUES ($1, $2) ON CONFLICT (run) DO UPDATE SET state = excluded.state";
        self.execute(sql, &[run.into(), state.replace("\\u0000", "").into()]).map(|_| ())
    }

    fn live(&mut self, run: i64) -> Result<Option<String>, Fault> {
        let found = self.query("SELECT state FROM live WHERE run = $1", &[run.into()])?.pop();
        found.map(|mut row| row.text()).transpose()
    }

    fn end_live(&mut self, run: i64) {
        // If this fails, the progress stays but is not shown, because no process claims the run.
        let _ = self.execute("DELETE FROM live WHERE run = $1", &[run.into()]);
    }

    fn public_error(&self, run: Option<i64>, fault: Fault) -> StoreError {
        public_error(&self.location, run, fault)
    }
}

fn public_error(location: &Location, run: Option<i64>, fault: Fault) -> StoreError {
    let location = location.clone();
    match fault {
        Fault::Postgres(error) => {
            let reason = words(&error);
            match error.code() {
                Some(&SqlState::INSUFFICIENT_PRIVILEGE | &SqlState::READ_ONLY_SQL_TRANSACTION) => {
                    StoreError::Unwritable { location, reason }
                }
                Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
                    StoreError::Damaged { location, run, table: "structure", reason }
                }
                _ => StoreError::Sql { location, reason },
            }
        }
        other => other.into_public(location, run),
    }
}

/// Converts an error: a connection that was lost or could not be opened to [`Fault::Lost`], all others to [`Fault::Postgres`].
fn fault(error: Error) -> Fault {
    // 08: connection exception; 57P: shutdown, crash, not yet started; 53300: too many connections.
    let is_lost = match error.code().map(SqlState::code) {
        Some(code) => code.starts_with("08") || code.starts_with("57P") || code == "53300",
        None => error.is_closed() || sources(&error).any(<dyn std::error::Error>::is::<std::io::Error>),
    };
    if is_lost { Fault::Lost(words(&error)) } else { Fault::Postgres(error) }
}

fn sources(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| (*error).source())
}

/// Returns the server's message; without one, the texts of the error and its causes.
fn words(error: &Error) -> String {
    if let Some(db_error) = error.as_db_error() {
        let rest = [db_error.detail(), db_error.hint()];
        let all = [db_error.message()].into_iter().chain(rest.into_iter().flatten());
        return all.collect::<Vec<_>>().join("; ");
    }
    let beneath = sources(error).map(ToString::to_string);
    [error.to_string()].into_iter().chain(beneath).collect::<Vec<_>>().join(": ")
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) => value.to_sql_checked(ty, out),
            Self::Text(value) => value.to_sql_checked(ty, out),
            Self::Bytes(value) => value.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn columns(row: &Row) -> Result<Columns, Fault> {
    let read = |index: usize| -> Result<Value, Error> {
        Ok(match *row.columns()[index].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.into(),
            Type::BYTEA => row.try_get::<_, Option<&[u8]>>(index)?.into(),
            _ => row.try_get::<_, Option<&str>>(index)?.into(),
        })
    };
    let values = (0..row.len()).map(read).collect::<Result<Vec<_>, _>>();
    Ok(Columns::new(values.map_err(fault)?))
}
