//! Detects other runs of iotax that use the same disks at the same time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::human;
use iotax_model::{Warning, WarningKind};
use iotax_testbed::stack;
use iotax_testbed::target::preflight::Needs;
use iotax_testbed::undo::{self, RunningRun, UndoLog};

use super::disk_marks::{self, DiskMark, Holder};
use super::output::StoreArgs;
use super::{Failure, OrExit};

/// Minimum time between two checks for other runs.
const EVERY: Duration = Duration::from_millis(250);

/// Other runs that were seen on this run's disks.
pub(super) struct ConcurrentRuns {
    undo_dir: PathBuf,
    /// This run as other runs see it; its number is 0 until it is announced.
    own: RunningRun,
    begun: Instant,
    checked: Option<Instant>,
    met: Vec<MetRun>,
    /// Locks in sysfs that mark this run's disks as in use, for runs of other users.
    marks: Vec<DiskMark>,
}

/// Another run on one of this run's disks, with the times when it was first and last seen.
struct MetRun {
    /// The other run's number, or its process and user if it is another user's.
    name: String,
    disk: String,
    first: Instant,
    last: Instant,
}

impl ConcurrentRuns {
    /// Prepares to detect other runs on the disks that hold this plan's targets or will hold them.
    pub(super) fn beside(
        undo_dir: PathBuf,
        plan: &Plan,
        needs: &Needs,
        store: &StoreArgs,
    ) -> Result<Self, Failure> {
        let given = plan.everything().flat_map(|target| target.path().into_iter().chain(target.device()));
        let mut disks = Vec::new();
        for given_path in needs.space.keys().map(PathBuf::as_path).chain(given) {
            // A path that cannot be read here is on no disk of this machine.
            for disk in stack::of_path(Path::new("/"), given_path).unwrap_or_default().disks {
                if !disks.contains(&disk) {
                    disks.push(disk);
                }
            }
        }
        let own = RunningRun { run: 0, store: store.location()?.to_string(), disks };
        let marks = own.disks.iter().filter_map(|disk| DiskMark::of(disk)).collect();
        Ok(Self { undo_dir, own, begun: Instant::now(), checked: None, met: Vec::new(), marks })
    }

    /// Marks this run's disks as in use, so that other runs notice this run.
    pub(super) fn announce(&mut self, run: i64, undo_log: &UndoLog) -> Result<(), Failure> {
        self.own.run = run;
        self.begun = Instant::now();
        self.marks.iter().for_each(DiskMark::show);
        undo_log.announce(&self.own).or_exit(Exit::Environment)
    }

    /// Returns a message for each run that appeared since the last check; empty if that check was less than 250 ms ago.
    pub(super) fn news(&mut self) -> Vec<String> {
        let now = Instant::now();
        if self.checked.is_some_and(|checked| now - checked < EVERY) {
            return Vec::new();
        }
        self.checked = Some(now);
        let mut lines = Vec::new();
        for (name, disk) in self.others() {
            if let Some(met) = self.met.iter_mut().find(|met| met.name == name) {
                met.last = now;
                continue;
            }
            lines.push(format!(
                "{name} measures on {disk} too: the figures of both are those of a shared disk"
            ));
            self.met.push(MetRun { name, disk, first: now, last: now });
        }
        lines
    }

    /// Returns the name of each run that now shares a disk with this run, along with the name of that disk.
    fn others(&self) -> Vec<(String, String)> {
        let own = undo::running(&self.undo_dir).into_iter().filter(|run| *run != self.own);
        let own = own.filter_map(|run| Some((called(&self.own, &run), shared(&self.own, &run)?.to_owned())));
        let locks = disk_marks::locks();
        let of_others = self.marks.iter().flat_map(|mark| {
            let name = |Holder { pid, user }: Holder| format!("process {pid} of user {user} (iotax)");
            mark.holders(&locks).into_iter().map(move |holder| (name(holder), mark.disk.clone()))
        });
        own.chain(of_others).collect()
    }

    /// Returns a warning for the report about each other run that was seen.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let all = human::duration(self.begun.elapsed().as_secs_f64());
        let warning = |met: &MetRun| Warning {
            kind: WarningKind::OtherLoad,
            target: None,
            workload: None,
            round: None,
            evidence: format!(
                "{} measured on {} too, for {} of the {all} of this run",
                met.name,
                met.disk,
                human::duration((met.last - met.first.max(self.begun).min(met.last)).as_secs_f64())
            ),
            remedy: "measure one after the other".into(),
        };
        self.met.iter().map(warning).collect()
    }
}

/// Returns the first of this run's disks that the other run uses too; `None` if there is none.
fn shared<'a>(own: &'a RunningRun, other: &RunningRun) -> Option<&'a str> {
    own.disks.iter().find(|disk| other.disks.contains(disk)).map(String::as_str)
}

/// Names another run: `run 7`, or `run 7 of /srv/other.db` if it uses another store.
fn called(own: &RunningRun, other: &RunningRun) -> String {
    let store = if other.store == own.store { String::new() } else { format!(" of {}", other.store) };
    format!("run {}{store}", other.run)
}
