//! Cuts the power of a directory while a database in it commits.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;
use iotax_model::crash::{DatabaseMode, ImageCondition, LostBlocks, PostgresqlMode, PowerCut, VolatileCut};
use iotax_model::threads;
use iotax_testbed::interrupt::POLL;
use iotax_testbed::postgresql::{PostgresqlCluster, Programs};
use iotax_testbed::target::{Built, Survivor};
use iotax_testbed::undo::UndoLog;

use super::Interrupted;
use super::crash::{PowerCuts, moment};
use super::own_program;
use crate::causes::with_causes;
use crate::database::{self, DatabaseCheck};

/// Name of the database directory, next to the target's file.
const NAME: &str = "database";

/// Rows acknowledged to a client before the power was cut, with the seconds until the cut and the volatile layer's counts.
struct Acknowledged {
    rows: u64,
    seconds: f64,
    volatile: VolatileCut,
}

impl PowerCuts<'_> {
    /// Builds a target, cuts its power while a database in its directory commits, checks the database and removes the target.
    pub(crate) fn cut_database(
        &mut self,
        target: usize,
        mode: DatabaseMode,
        number: u32,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<PowerCut> {
        let (_, seed, built) = self.build(target, number, undo_log)?;
        let (client, survivor) = self.while_committing(built, mode, seed, undo_log)?;
        let checked = self.check_database(&survivor.directory.join(NAME), mode, client.rows, undo_log)?;
        let cut = match checked {
            Ok(DatabaseCheck { errors, rows }) => {
                let flushed = if mode.promises_commits() { rows.lost } else { LostBlocks::default() };
                let lost = rows.first_lost.map(|first| client.rows + 1 - first);
                PowerCut {
                    image: match errors {
                        0 => ImageCondition::Sound,
                        errors => ImageCondition::Damaged(errors),
                    },
                    flushed: Some(flushed),
                    acknowledged: Some(rows.lost),
                    // The client commits evenly.
                    lost_seconds: lost.map(|lost| client.seconds * lost as f64 / client.rows.max(1) as f64),
                    ..PowerCut::default()
                }
            }
            Err(reason) => {
                let all = LostBlocks { checked: client.rows, stale: client.rows, ..LostBlocks::default() };
                PowerCut {
                    unusable: Some(reason),
                    flushed: Some(if mode.promises_commits() { all } else { LostBlocks::default() }),
                    acknowledged: Some(all),
                    lost_seconds: Some(client.seconds),
                    ..PowerCut::default()
                }
            }
        };
        PowerCuts::remove(survivor, undo_log)?;
        Ok(PowerCut {
            seconds: Some(client.seconds),
            writes: Some(client.rows),
            flushed_writes: Some(if mode.promises_commits() { client.rows } else { 0 }),
            reordered: Some(0),
            volatile: Some(client.volatile),
            ..cut
        })
    }

    /// Runs a client that commits rows until the power is cut. Returns the acknowledged rows and the storage that is left.
    fn while_committing(
        &self,
        mut built: Built,
        mode: DatabaseMode,
        seed: u64,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<(Acknowledged, Survivor)> {
        let mut volatile = built.volatile.take().context("no layer of it is volatile")?;
        let path = built.path.with_file_name(NAME);
        drop(built);
        let mut command = Command::new(own_program());
        command.arg("commits");
        let server = match mode {
            DatabaseMode::Sqlite(mode) => {
                command.arg("sqlite").arg(&path);
                command.args(["--journal-mode", mode.journal_mode.word()]);
                command.args(["--synchronous", mode.synchronous.word()]);
                None
            }
            DatabaseMode::Postgresql(mode) => {
                let programs = Programs::find()?;
                programs.make_cluster(&path, undo_log)?;
                let mut server = self.server(&programs, &path, undo_log)?;
                server.start(&[PostgresqlMode::setting(mode)], undo_log).map_err(anyhow::Error::msg)?;
                command.arg("postgresql").arg(server.sockets());
                Some(server)
            }
        };
        command.stdin(undo_log.lock().stdio()?).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = Client(command.spawn()?);
        drop(command);
        let mut said = BufReader::new(client.0.stdout.take().context("its stdout is a pipe")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        if line.trim() != database::BEGINS {
            return Err(client.failed());
        }
        let listener = threads::spawn("commits", move || database::acknowledged(&mut said))?;
        let (began, moment) = (Instant::now(), moment(seed));
        while began.elapsed() < moment && !listener.is_finished() && !self.stop.load(Ordering::Relaxed) {
            threads::sleep(POLL.min(moment.saturating_sub(began.elapsed())));
        }
        if listener.is_finished() {
            return Err(client.failed());
        }
        let seconds = began.elapsed().as_secs_f64();
        let account = volatile.cut();
        drop((client, server));
        let rows = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let acknowledged = Acknowledged { rows, seconds, volatile: account? };
        Ok((acknowledged, volatile.remove(undo_log)?))
    }

    /// Opens the database after a cut, which makes it recover, and compares it with the acknowledged rows. The inner error is the reason
    /// why it is unusable.
    fn check_database(
        &self,
        path: &Path,
        mode: DatabaseMode,
        rows: u64,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<Result<DatabaseCheck, String>> {
        match mode {
            DatabaseMode::Sqlite(_) => {
                Ok(database::sqlite::check(path, rows).map_err(|error| error.to_string()))
            }
            DatabaseMode::Postgresql(_) => {
                let mut server = self.server(&Programs::find()?, path, undo_log)?;
                // The check's result does not depend on how the server syncs, so its settings are the defaults.
                let checked = server.start(&[], undo_log).and_then(|()| {
                    let checked = database::postgresql::check(server.sockets(), rows);
                    checked.map_err(|error| server.reason().unwrap_or_else(|| with_causes(&error.into())))
                });
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Interrupted.into());
                }
                Ok(checked)
            }
        }
    }

    fn server(
        &self,
        programs: &Programs,
        cluster: &Path,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<PostgresqlCluster> {
        Ok(programs.server(cluster, &format!("iotax-{}-postgresql", self.tag), undo_log)?)
    }
}

/// The client process, killed when dropped.
struct Client(Child);

impl Client {
    /// Kills a client that failed before the cut. Returns the error with the client's stderr.
    fn failed(&mut self) -> anyhow::Error {
        let _ = self.0.kill();
        let mut reason = String::new();
        // If stderr cannot be read, the reason stays empty.
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut reason);
        }
        anyhow::anyhow!("the database failed before the cut: {}", reason.trim())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
