//! The undo log: what was done to this machine and how to undo it.
//!
//! Every effect is written to a file and fsynced before it is carried out, so that whatever ends the process (a crash,
//! SIGKILL, a power cut) the next `iotax clean` can undo it. An undo log file is locked as long as its process lives:
//! another iotax never undoes the work of one that still runs. Beside it is a [`ProcessLock`], which the processes hold that it
//! starts: nothing is undone before they have ended too.

mod clean;
mod effect;
mod fault;
mod file_id;
mod place;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::program::{Program, ProgramError};
pub use clean::{Cleaned, Leftover, clean, leftovers};
pub use effect::Effect;
use fault::Fault;
pub use file_id::FileId;
use place::{Found, Made, Within};

/// A line of an undo log file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// About to be carried out, of a file or directory: in this one.
    Will {
        id: u64,
        effect: Effect,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        within: Option<Within>,
    },
    /// Undone again.
    Undone { id: u64 },
}

/// An undo log that cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {source}")]
pub struct UndoLogError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

const WRITE: &str = "cannot write the undo log";

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> UndoLogError + 'a {
    move |source| UndoLogError { what, path: path.to_owned(), source }
}

/// An effect in an undo log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u64);

/// An effect that is not undone yet.
#[derive(Debug)]
struct Standing {
    effect: Effect,
    /// The directory that a file or directory was made in.
    within: Option<Within>,
    /// That directory, as long as the process that made it lives.
    directory: Option<File>,
    /// What was made, likewise, where it was made by the undo log.
    own: Option<File>,
    /// It is on record that its removal was begun.
    removing: bool,
}

impl Standing {
    const fn new(effect: Effect, within: Option<Within>, directory: Option<File>) -> Self {
        Self { effect, within, directory, own: None, removing: false }
    }

    /// A file or directory, with what its directory is known by.
    fn made(&self) -> Option<(Made<'_>, &Within)> {
        let Self { effect, own, removing, .. } = self;
        let made = Made { effect, path: effect.path()?, own: own.as_ref(), removing: *removing };
        Some((made, self.within.as_ref()?))
    }
}

impl Made<'_> {
    /// The directory that it was made in; absent: it is gone with all that was in it. `goes_along`: it is on a filesystem of our
    /// own, which is undone as a whole.
    fn directory(&self, within: &Within, held: Option<&File>, goes_along: bool) -> io::Result<Option<File>> {
        match within.find(self.path, held)? {
            Found::Directory(directory) => Ok(Some(directory)),
            Found::Gone => Ok(None),
            Found::Lost(_) if goes_along => Ok(None),
            Found::Lost(reason) => Err(io::Error::other(reason)),
        }
    }
}

/// Whether one of these mounted the filesystem that an effect is on.
fn goes_along(effect: &Effect, all: &BTreeMap<u64, Standing>) -> bool {
    effect.path().is_some_and(|path| all.values().any(|other| other.effect.holds(path)))
}

/// Something that could not be undone.
#[derive(Debug)]
pub struct NotUndone {
    /// What.
    pub effect: Effect,
    /// Why.
    pub reason: String,
}

/// The undo log of this process. Replaying it is its owner's duty; only a panic does it on the way out.
#[derive(Debug)]
pub struct UndoLog {
    path: PathBuf,
    file: File,
    lock: ProcessLock,
    /// Bytes of whole lines in it.
    length: u64,
    /// Of what a last line that has no end yet says that it is undone: its removal was begun.
    begun: Option<u64>,
    standing: BTreeMap<u64, Standing>,
    next: u64,
    fault: Fault,
}

impl UndoLog {
    /// Starts an undo log in a directory, which is made if it is missing. `tag` names the file.
    pub fn create(dir: &Path, tag: &str) -> Result<Self, UndoLogError> {
        let fault = Fault::from_environment().map_err(failed("cannot begin an undo log in", dir))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed("cannot make the directory", dir))?;
        let (new, path) = (dir.join(format!("{tag}.{NEW}")), dir.join(format!("{tag}.{NAMED}")));
        let file = begin(&new).map_err(failed("cannot make the undo log", &new))?;
        let take = || {
            let lock = ProcessLock::take(&path.with_extension(LOCK))?;
            rename_without_replacing(&new, &path)?;
            File::open(dir)?.sync_all()?;
            lock.ok_or_else(|| io::Error::other("another process holds its lock"))
        };
        let lock = take().map_err(failed("cannot make the undo log", &path))?;
        Ok(Self { path, file, lock, length: 0, begun: None, standing: BTreeMap::new(), next: 0, fault })
    }

    /// Takes over the undo log of a process that is gone, when all that it started is gone too; `None` if it still lives.
    fn adopt(path: &Path) -> Result<Option<Self>, UndoLogError> {
        let fault = Fault::from_environment().map_err(failed("cannot take over", path))?;
        let Some(file) = abandoned(path)? else { return Ok(None) };
        let Record { standing, next, length, begun } = Record::read(path)?;
        if begun.is_none() {
            // What follows was cut short: what is written next begins a line.
            file.set_len(length).map_err(failed("cannot write", path))?;
        }
        let effects: Vec<&Effect> = standing.values().map(|standing| &standing.effect).collect();
        let lock = effect::end_processes(&effects, &path.with_extension(LOCK))
            .map_err(failed("cannot take over the undo log", path))?;
        Ok(Some(Self { path: path.to_owned(), file, lock, length, begun, standing, next, fault }))
    }

    fn append(&mut self, line: &Line) -> Result<(), UndoLogError> {
        let mut text =
            serde_json::to_vec(line).map_err(io::Error::from).map_err(failed(WRITE, &self.path))?;
        text.push(b'\n');
        // Of a line that was begun only the end is missing.
        let is_begun = matches!(line, Line::Undone { id } if self.begun == Some(*id));
        let rest = if is_begun { &text[text.len() - 1..] } else { &text[..] };
        if !is_begun {
            self.retract();
        }
        self.begun = None;
        let full = self.fault.before();
        let write = |file: &mut File| {
            if full {
                file.write_all(&rest[..rest.len() / 2])?;
                return Err(Errno::NOSPC.into());
            }
            file.write_all(rest)?;
            file.sync_data()
        };
        match write(&mut self.file) {
            Ok(()) => self.length += text.len() as u64,
            Err(error) => {
                // A line that was cut short by a full disk must not run into the next. If it cannot be taken away, the next
                // one will not be written either.
                let _ = self.file.set_len(self.length);
                return Err(failed(WRITE, &self.path)(error));
            }
        }
        self.fault.after();
        Ok(())
    }

    /// Writes down that a removal begins: the line that says that it is over, without its end. If it is not there afterwards
    /// nobody but us removed it.
    fn begin_removal(&mut self, id: u64) {
        if self.begun == Some(id) {
            return;
        }
        self.retract();
        let Ok(text) = serde_json::to_vec(&Line::Undone { id }) else { return };
        self.begun = Some(id);
        if self.file.write_all(&text).and_then(|()| self.file.sync_data()).is_err() {
            // On a full disk it is removed all the same.
            self.retract();
        }
    }

    /// Takes away a line that was only begun.
    fn retract(&mut self) {
        if self.begun.take().is_some() {
            let _ = self.file.set_len(self.length);
        }
    }

    /// Writes down an effect, durably. Carry it out only if this returned `Ok`.
    pub fn will(&mut self, effect: Effect) -> Result<Entry, UndoLogError> {
        let id = self.next;
        self.next += 1;
        let place = |path: &Path| {
            Within::of(path).map_err(failed("cannot look at the directory that is to hold", path))
        };
        let (within, directory) = effect.path().map(place).transpose()?.unzip();
        self.append(&Line::Will { id, effect: effect.clone(), within: within.clone() })?;
        self.standing.insert(id, Standing::new(effect, within, directory));
        Ok(Entry(id))
    }

    /// For processes of this run: nothing is undone by another before they have ended.
    #[must_use]
    pub const fn lock(&self) -> &ProcessLock {
        &self.lock
    }

    /// Runs a tool for an effect that is on record. It holds the run's lock: nobody undoes what is still being done.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        program: Program,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, ProgramError> {
        self.lock.run(program, arguments)
    }

    /// From now on tools that carry effects out are ended when the user interrupts. Undoing goes on.
    pub fn heed(&mut self, stop: &Interrupt) {
        self.lock.heed(stop);
    }

    /// Undoes one effect now. It stays in the undo log if that fails.
    pub fn undo(&mut self, entry: Entry) -> Result<(), NotUndone> {
        let Some(standing) = self.standing.remove(&entry.0) else { return Ok(()) };
        if let Err(error) = self.carry_back(entry.0, &standing) {
            self.retract();
            let failure = NotUndone { effect: standing.effect.clone(), reason: error.to_string() };
            self.standing.insert(entry.0, standing);
            return Err(failure);
        }
        // On a full disk it cannot be written down that it is undone. Whoever reads the undo log then looks once more and
        // finds nothing of ours.
        let _ = self.append(&Line::Undone { id: entry.0 });
        Ok(())
    }

    /// Undoes an effect, and fails if it cannot be known to be gone.
    fn carry_back(&mut self, id: u64, standing: &Standing) -> io::Result<()> {
        let Some((made, within)) = standing.made() else {
            return effect::undo(&standing.effect, &self.lock.heedless());
        };
        let goes_along = goes_along(&standing.effect, &self.standing);
        let Some(directory) = made.directory(within, standing.directory.as_ref(), goes_along)? else {
            return Ok(());
        };
        made.remove(&directory, || self.begin_removal(id))
    }

    /// Takes an effect off the record without undoing it: it stays for good.
    pub fn forget(&mut self, entry: Entry) -> Result<(), UndoLogError> {
        self.append(&Line::Undone { id: entry.0 })?;
        self.standing.remove(&entry.0);
        Ok(())
    }

    /// Undoes everything, last first, and says what could not be undone. With nothing left the file goes too.
    pub fn undo_all(&mut self) -> (Vec<Effect>, Vec<NotUndone>) {
        let (mut undone, mut failures) = (Vec::new(), Vec::new());
        let standing = self.standing.iter().rev().map(|(id, standing)| (*id, standing.effect.clone()));
        for (id, effect) in standing.collect::<Vec<_>>() {
            match self.undo(Entry(id)) {
                Ok(()) => undone.push(effect),
                Err(failure) => failures.push(failure),
            }
            // What was not undone must not keep the filesystem that it is on in use.
            if let Some(standing) = self.standing.get_mut(&id) {
                (standing.directory, standing.own) = (None, None);
            }
        }
        if failures.is_empty()
            && let Err(error) = self.remove()
        {
            let effect = Effect::File { path: self.path.clone(), identity: None };
            failures.push(NotUndone { effect, reason: error.to_string() });
        }
        (undone, failures)
    }

    /// Removes the undo log's files, of which the one that `clean` looks for goes last.
    fn remove(&self) -> io::Result<()> {
        for path in [&self.path.with_extension(LOCK), &self.path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a directory, on record.
    pub fn make_directory(&mut self, path: &Path) -> Result<Entry, UndoLogError> {
        self.make(path, 0o777, |path, identity| Effect::Directory { path, identity: Some(identity) })
    }

    /// Makes a directory that only this user can enter and that goes with all that will be in it, on record.
    pub fn make_tree(&mut self, path: &Path) -> Result<Entry, UndoLogError> {
        self.make(path, 0o700, |path, identity| Effect::Tree { path, identity })
    }

    /// Makes a directory where nothing stands. As for files it is made under another name first: it must be known by more than
    /// its name.
    fn make(
        &mut self,
        path: &Path,
        mode: u32,
        effect: impl FnOnce(PathBuf, FileId) -> Effect,
    ) -> Result<Entry, UndoLogError> {
        let trouble = || failed("cannot make the directory", path);
        let own = self.scratch(path);
        let scratch = self.will(Effect::Directory { path: own.clone(), identity: None })?;
        let made = fs::DirBuilder::new().mode(mode).create(&own);
        self.disown(scratch, &made)?;
        made.map_err(trouble())?;
        let directory = place::open(&own).map_err(trouble())?;
        let identity = FileId::of(&directory.metadata().map_err(trouble())?);
        let entry = self.will(effect(path.to_owned(), identity))?;
        self.hold(entry, directory);
        let named = rename_without_replacing(&own, path);
        self.disown(entry, &named)?;
        let cleared = self.undo(scratch);
        named.map_err(trouble())?;
        cleared.map_err(|failure| trouble()(io::Error::other(failure.reason)))?;
        Ok(entry)
    }

    /// Keeps what was made open: as long as it is, it is known where it is.
    fn hold(&mut self, entry: Entry, own: File) {
        if let Some(standing) = self.standing.get_mut(&entry.0) {
            standing.own = Some(own);
        }
    }

    /// A name of this undo log's own beside a path.
    fn scratch(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tag = self.path.file_stem().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{SCRATCH}{tag}-{name}"))
    }

    /// Takes off the record what could not be made because something stood there already: that is not ours.
    fn disown<T>(&mut self, entry: Entry, made: &io::Result<T>) -> Result<(), UndoLogError> {
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.forget(entry),
            _ => Ok(()),
        }
    }

    /// Makes an empty file whose name the user chose, on record, and opens it for writing.
    ///
    /// It is made under a name of our own and then renamed, so that the undo log knows its inode before the name is
    /// taken: a file of the user's that comes to stand there is neither replaced now nor removed later.
    pub fn make_file(&mut self, path: &Path) -> Result<(Entry, File), UndoLogError> {
        let own = self.scratch(path);
        let scratch = self.will(Effect::File { path: own.clone(), identity: None })?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own);
        self.disown(scratch, &made)?;
        let file = made.map_err(failed("cannot make the file", path))?;
        let made = file.metadata().map_err(failed("cannot make the file", path))?;
        let entry = self.will(Effect::File { path: path.to_owned(), identity: Some(FileId::of(&made)) })?;
        rename_without_replacing(&own, path).map_err(failed("cannot make the file", path))?;
        self.hold(entry, file.try_clone().map_err(failed("cannot make the file", path))?);
        self.undo(scratch)
            .map_err(|failure| failed("cannot make the file", path)(io::Error::other(failure.reason)))?;
        Ok((entry, file))
    }
}

/// How names begin that are given only for as long as it takes to put something on record.
const SCRATCH: &str = ".iotax-";

fn is_scratch(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(SCRATCH)
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some filesystems (NFS, older FUSE) only know other ways to the same end. A directory has no second name; what it is
        // renamed to can only be replaced if it is an empty directory.
        Err(Errno::INVAL | Errno::NOSYS) if from.is_dir() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to),
        other => other.map_err(Into::into),
    }
}

impl Drop for UndoLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.undo_all();
        }
    }
}

/// How an undo log's name ends before it is locked, and then; and that of the lock beside it.
const NEW: &str = "new";
const NAMED: &str = "jsonl";
const LOCK: &str = "lock";

/// How long a process that was killed may still hold its undo log: on its way out, or in a child that is only just forked.
const ON_ITS_WAY_OUT: Duration = Duration::from_secs(1);

/// Makes an undo log's file and locks it, under a name that nobody adopts.
fn begin(new: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(new)?;
        file.lock()?;
        // `clean` may have taken it for one that a killed process left, and this one locked it after that.
        if new.try_exists()? {
            return Ok(file);
        }
    }
}

/// The undo log file of a process that is gone, locked; `None` if it still lives.
fn abandoned(path: &Path) -> Result<Option<File>, UndoLogError> {
    let file = OpenOptions::new().read(true).append(true).open(path).map_err(failed("cannot open", path))?;
    let deadline = Instant::now() + ON_ITS_WAY_OUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Ok(None),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(failed("cannot lock", path)(error)),
        }
    }
}

/// What an undo log file says.
struct Record {
    standing: BTreeMap<u64, Standing>,
    next: u64,
    /// Bytes of whole lines.
    length: u64,
    /// Of what a last line without an end says that it is undone.
    begun: Option<u64>,
}

impl Record {
    /// What follows the last line's end was cut short by a crash before it was synced, so its effect was not yet carried out.
    /// Any other line that cannot be read may hide an effect: better leave all than forget one.
    fn read(path: &Path) -> Result<Self, UndoLogError> {
        let text = fs::read(path).map_err(failed("cannot read", path))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut record = Self { standing: BTreeMap::new(), next: 0, length: whole as u64, begun: None };
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Will { id, effect, within }) => {
                    record.next = record.next.max(id + 1);
                    record.standing.insert(id, Standing::new(effect, within, None));
                }
                Ok(Line::Undone { id }) => {
                    record.standing.remove(&id);
                }
                Err(error) => return Err(failed("cannot understand the undo log", path)(error.into())),
            }
        }
        if let Ok(Line::Undone { id }) = serde_json::from_slice(&text[whole..])
            && let Some(standing) = record.standing.get_mut(&id)
        {
            (standing.removing, record.begun) = (true, Some(id));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod moved;
#[cfg(test)]
mod tests;
