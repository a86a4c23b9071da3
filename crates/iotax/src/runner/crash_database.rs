//! Cuts the power of a directory while a database in it commits.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;
use iotax_model::crash::{ImageCondition, LostBlocks, PowerCut, SqliteMode, VolatileCut};
use iotax_model::threads;
use iotax_testbed::interrupt::POLL;
use iotax_testbed::target::{Built, Survivor};
use iotax_testbed::undo::UndoLog;

use super::Interrupted;
use super::crash::{PowerCuts, moment};
use super::own_program;
use crate::database;

/// The database beside the target's file.
const NAME: &str = "database";

/// The view of a client until the power of its database went.
struct Acknowledged {
    rows: u64,
    seconds: f64,
    volatile: VolatileCut,
}

impl PowerCuts<'_> {
    /// Builds a target, cuts its power while a database in its directory commits, and removes it again.
    pub(crate) fn cut_database(
        &mut self,
        target: usize,
        mode: SqliteMode,
        number: u32,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<PowerCut> {
        let (_, seed, built) = self.build(target, number, undo_log)?;
        let (client, survivor) = self.while_committing(built, mode, seed, undo_log)?;
        let cut = match database::check(&survivor.directory.join(NAME), client.rows) {
            Ok(check) => {
                let flushed = if mode.promises_commits() { check.rows } else { LostBlocks::default() };
                let lost = check.first_lost.map(|first| client.rows + 1 - first);
                PowerCut {
                    image: match check.errors {
                        0 => ImageCondition::Sound,
                        errors => ImageCondition::Damaged(errors),
                    },
                    flushed,
                    acknowledged: check.rows,
                    // The client commits evenly.
                    lost_seconds: lost.map(|lost| client.seconds * lost as f64 / client.rows.max(1) as f64),
                    ..PowerCut::default()
                }
            }
            Err(error) => PowerCut { unusable: Some(error.to_string()), ..PowerCut::default() },
        };
        PowerCuts::remove(survivor, undo_log)?;
        Ok(PowerCut {
            seconds: Some(client.seconds),
            writes: client.rows,
            flushed_writes: if mode.promises_commits() { client.rows } else { 0 },
            volatile: Some(client.volatile),
            ..cut
        })
    }

    /// Has a client commit until the power goes.
    fn while_committing(
        &self,
        mut built: Built,
        mode: SqliteMode,
        seed: u64,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<(Acknowledged, Survivor)> {
        let mut volatile = built.volatile.take().context("no layer of it is volatile")?;
        let path = built.path.with_file_name(NAME);
        drop(built);
        let mut command = Command::new(own_program());
        command.arg("commits").arg(&path);
        command.args(["--journal-mode", mode.journal_mode.word(), "--synchronous", mode.synchronous.word()]);
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
        drop(client);
        let rows = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let acknowledged = Acknowledged { rows, seconds, volatile: account? };
        Ok((acknowledged, volatile.remove(undo_log)?))
    }
}

/// The client, which is killed with its power.
struct Client(Child);

impl Client {
    /// The error of a client that ended before the cut.
    fn failed(&mut self) -> anyhow::Error {
        let _ = self.0.kill();
        let mut reason = String::new();
        // What it does not say is not known.
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
