//! A PostgreSQL cluster: its client, and its check after a cut.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use iotax_model::postgresql::USER;
use iotax_model::threads;
use postgres::error::SqlState;
use postgres::{Client, Config, Error, NoTls};

use super::{DatabaseCheck, RowCheck};

/// Maximum time for a server to recover a cluster, whose log holds some seconds of work.
const RECOVERY: Duration = Duration::from_mins(5);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Commits rows until it is killed. `sockets` is the directory of the server's socket.
pub(crate) fn commit_rows(sockets: &Path, said: &mut impl Write) -> anyhow::Result<()> {
    let mut client = connect(sockets)?;
    client.batch_execute(
        "CREATE TABLE item (number BIGINT PRIMARY KEY, content BYTEA NOT NULL); CREATE EXTENSION amcheck",
    )?;
    // Fail now if this version lacks the check.
    client.query_one(HEAP, &[])?;
    // Make the table durable: only the rows are tested.
    client.batch_execute("CHECKPOINT")?;
    let insert = client.prepare("INSERT INTO item VALUES ($1, $2)")?;
    super::commit_rows(said, |number, content| {
        client.execute(&insert, &[&number.cast_signed(), &content])?;
        Ok(())
    })
}

/// Query for the number of errors that amcheck finds in the table.
const HEAP: &str = "SELECT count(*) FROM verify_heapam('item')";
/// Query that fails if the index is damaged or lacks a row.
const INDEX: &str = "SELECT bt_index_check('item_pkey', true)";

/// Compares a recovered cluster with the rows from 1 to `acknowledged`.
pub(crate) fn check(sockets: &Path, acknowledged: u64) -> Result<DatabaseCheck, Error> {
    let mut client = connect(sockets)?;
    let mut rows = RowCheck::new(acknowledged);
    let select = "SELECT number, content FROM item WHERE number <= $1 ORDER BY number";
    for row in client.query(select, &[&acknowledged.cast_signed()])? {
        rows.add(row.try_get::<_, i64>(0)?.cast_unsigned(), row.try_get(1)?);
    }
    let heap: i64 = client.query_one(HEAP, &[])?.try_get(0)?;
    let index = u64::from(client.query_one(INDEX, &[]).is_err());
    Ok(DatabaseCheck { errors: heap.cast_unsigned() + index, rows: rows.finish() })
}

/// Connects once the server has recovered and accepts clients. Waits for at most 5 minutes.
fn connect(sockets: &Path) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host_path(sockets).user(USER).dbname("postgres");
    let deadline = Instant::now() + RECOVERY;
    loop {
        match config.connect(NoTls) {
            Err(error)
                if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) && Instant::now() < deadline =>
            {
                threads::sleep(ASK_AGAIN);
            }
            connected => return connected,
        }
    }
}
