//! The undo log: changes to this machine that a run makes, and the means to undo them.
//!
//! Every change is synced to the log before it happens, so that `iotax clean` can undo it after a crash, SIGKILL or power failure. The log
//! is locked while its process runs, so that no other iotax undoes the changes. Next to it is a [`ProcessLock`], held by the processes that
//! the run starts: nothing is undone before they have exited.

mod clean;
mod commands;
mod effect;
mod fault;
mod file_id;
mod form;
mod parent;
mod partial;
mod record;
mod running;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::own_file;
use crate::program::{Program, ProgramError};
pub use clean::{Cleaned, Leftover, clean, clean_tag, leftovers, settings_in_force, unreadable};
pub use commands::EVENT_OF;
pub use effect::Effect;
use fault::InjectedFault;
pub use file_id::FileId;
use parent::{CreatedFile, ParentDirectory, ParentState};
use record::Record;
pub use running::{RunningRun, running};

/// A line of an undo log, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// An effect that is about to happen. For a file or directory, `within` identifies its parent directory.
    Record {
        id: u64,
        effect: Effect,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        within: Option<ParentDirectory>,
    },
    /// The effect with this number was undone or made permanent.
    Undone { id: u64 },
}

/// An error of reading or writing an undo log, or of creating a file or directory that it records.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {source}")]
pub struct UndoLogError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

const WRITE: &str = "cannot write the undo log";
const NOT_UNDERSTOOD: &str = "cannot understand the undo log";
const NOT_BELIEVED: &str = "no undo log is believed in";

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> UndoLogError + 'a {
    move |source| UndoLogError { what, path: path.to_owned(), source }
}

/// Number of an effect in its undo log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UndoEntry(u64);

/// An effect that has not been undone yet.
#[derive(Debug)]
struct PendingEffect {
    effect: Effect,
    /// Identity of the parent directory of a file or directory; `None` for other effects.
    within: Option<ParentDirectory>,
    /// The parent directory, kept open by the process that recorded the effect; `None` in other processes.
    directory: Option<File>,
    /// The file or directory itself, kept open if this process created it through the undo log; `None` otherwise.
    own: Option<File>,
    /// True if the log shows that the removal of the file or directory had begun.
    removing: bool,
}

impl PendingEffect {
    const fn new(effect: Effect, within: Option<ParentDirectory>, directory: Option<File>) -> Self {
        Self { effect, within, directory, own: None, removing: false }
    }

    /// Returns the file or directory of this effect, with the identity of its parent directory; `None` for other effects.
    fn made(&self) -> Option<(CreatedFile<'_>, &ParentDirectory)> {
        let Self { effect, own, removing, .. } = self;
        let made = CreatedFile { effect, path: effect.path()?, own: own.as_ref(), removing: *removing };
        Some((made, self.within.as_ref()?))
    }
}

impl CreatedFile<'_> {
    /// Opens the parent directory of the file; `None` if it is gone with its contents. With `goes_along`, the file is on a filesystem that
    /// iotax mounted and will remove as a whole: a parent directory that cannot be found then counts as gone.
    fn directory(
        &self,
        within: &ParentDirectory,
        held: Option<&File>,
        goes_along: bool,
    ) -> io::Result<Option<File>> {
        match within.find(self.path, held)? {
            ParentState::Directory(directory) => Ok(Some(directory)),
            ParentState::Gone => Ok(None),
            ParentState::Lost(_) if goes_along => Ok(None),
            ParentState::Lost(reason) => Err(io::Error::other(reason)),
        }
    }
}

/// Returns whether the effect's path is on a filesystem that one of the effects in `all` mounted.
fn goes_along(effect: &Effect, all: &BTreeMap<u64, PendingEffect>) -> bool {
    effect.path().is_some_and(|path| all.values().any(|other| other.effect.holds(path)))
}

/// Returns whether the effect's path is on the mount of a share whose server has ended, or of a ZFS pool whose disk failed. The content is
/// removed with the exported directory or with the pool, and every access through the mount would block.
fn is_on_lost_mount(effect: &Effect, all: &BTreeMap<u64, PendingEffect>) -> bool {
    effect.path().is_some_and(|path| {
        all.values().any(|other| {
            other.effect.holds(path) && matches!(&other.effect, Effect::Mount(mounted) if mounted.is_lost())
        })
    })
}

/// An effect that could not be undone.
#[derive(Debug)]
pub struct NotUndone {
    /// The effect that remains on the machine.
    pub effect: Effect,
    /// Reason why it could not be undone, for the user.
    pub reason: String,
}

/// The undo log of a run. Its owner must call [`Self::undo_all`]; dropping the log undoes the effects only during a panic.
#[derive(Debug)]
pub struct UndoLog {
    path: PathBuf,
    file: File,
    lock: ProcessLock,
    /// Length of the log in bytes, without an incomplete last line.
    length: u64,
    /// Number of the effect whose removal has begun, in which case the log ends with an incomplete line; `None` if no removal has begun.
    begun: Option<u64>,
    pending: BTreeMap<u64, PendingEffect>,
    next: u64,
    fault: InjectedFault,
}

impl UndoLog {
    /// Creates an undo log in a directory, which is created if it is missing. `tag` becomes the file name. Fails in a directory that
    /// another user may change, because the log would not be trusted later.
    pub fn create(dir: &Path, tag: &str) -> Result<Self, UndoLogError> {
        let fault = InjectedFault::from_environment().map_err(failed("cannot begin an undo log in", dir))?;
        let dir = &own_directory(dir)?;
        let (new, path) = (dir.join(format!("{tag}.{NEW}")), dir.join(format!("{tag}.{NAMED}")));
        let file = begin(&new).map_err(failed("cannot make the undo log", &new))?;
        let take = || {
            let lock = ProcessLock::take(&path.with_extension(LOCK))?;
            rename_without_replacing(&new, &path)?;
            File::open(dir)?.sync_all()?;
            lock.ok_or_else(|| io::Error::other("another process holds its lock"))
        };
        let lock = take().map_err(failed("cannot make the undo log", &path))?;
        Ok(Self { path, file, lock, length: 0, begun: None, pending: BTreeMap::new(), next: 0, fault })
    }

    /// Takes over the undo log of a dead process, after ending the processes that it started. `None` if the process is still running.
    fn adopt(path: &Path, patience: Patience) -> Result<Option<Self>, UndoLogError> {
        let fault = InjectedFault::from_environment().map_err(failed("cannot take over", path))?;
        let Some(file) = abandoned(path, patience)? else { return Ok(None) };
        let Record { pending, next, length, begun } = Record::read(&file, path)?;
        if begun.is_none() {
            // Cuts off an incomplete line, so that the next one starts on a new line.
            file.set_len(length).map_err(failed("cannot write", path))?;
        }
        let effects: Vec<&Effect> = pending.values().map(|pending| &pending.effect).collect();
        let lock = effect::end_processes(&effects, &path.with_extension(LOCK))
            .map_err(failed("cannot take over the undo log", path))?;
        Ok(Some(Self { path: path.to_owned(), file, lock, length, begun, pending, next, fault }))
    }

    fn append(&mut self, line: &Line) -> Result<(), UndoLogError> {
        let mut text =
            serde_json::to_vec(line).map_err(io::Error::from).map_err(failed(WRITE, &self.path))?;
        text.push(b'\n');
        // A line that was begun lacks only its end.
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
                // Removes a line that a full disk cut short. If that fails, the next write fails too.
                let _ = self.file.set_len(self.length);
                return Err(failed(WRITE, &self.path)(error));
            }
        }
        self.fault.after();
        Ok(())
    }

    /// Records that a removal begins: writes the line `Undone` without its newline. If the file is missing later, the line shows that iotax
    /// removed it.
    fn begin_removal(&mut self, id: u64) {
        if self.begun == Some(id) {
            return;
        }
        self.retract();
        let Ok(text) = serde_json::to_vec(&Line::Undone { id }) else { return };
        self.begun = Some(id);
        if self.file.write_all(&text).and_then(|()| self.file.sync_data()).is_err() {
            // On a full disk, remove it anyway.
            self.retract();
        }
    }

    /// Removes an incomplete last line from the log.
    fn retract(&mut self) {
        if self.begun.take().is_some() {
            let _ = self.file.set_len(self.length);
        }
    }

    /// Writes an effect to the log and syncs it. Apply the effect only after this has returned `Ok`.
    pub fn record(&mut self, effect: Effect) -> Result<UndoEntry, UndoLogError> {
        let id = self.next;
        self.next += 1;
        let parent_of = |path: &Path| {
            ParentDirectory::of(path).map_err(failed("cannot inspect the parent directory of", path))
        };
        let (within, directory) = effect.path().map(parent_of).transpose()?.unzip();
        self.append(&Line::Record { id, effect: effect.clone(), within: within.clone() })?;
        self.pending.insert(id, PendingEffect::new(effect, within, directory));
        Ok(UndoEntry(id))
    }

    /// Returns the lock to pass to processes of this run. Until they have exited, no other iotax undoes anything of this run.
    #[must_use]
    pub const fn lock(&self) -> &ProcessLock {
        &self.lock
    }

    /// Runs a system tool that applies a recorded effect. The tool holds the run's lock, so that nothing is undone while it runs.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        program: Program,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, ProgramError> {
        self.lock.run(program, arguments)
    }

    /// Returns the path for a Unix socket through which other processes reach this one. It is removed together with the log.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.with_extension(SOCKET)
    }

    /// Sets the interrupt flag that ends tools which apply effects. Tools that undo effects are not interrupted.
    pub fn set_interrupt(&mut self, stop: &Interrupt) {
        self.lock.set_interrupt(stop);
    }

    /// Undoes one effect now. If that fails, the effect stays in the log.
    pub fn undo(&mut self, entry: UndoEntry) -> Result<(), NotUndone> {
        let Some(pending) = self.pending.remove(&entry.0) else { return Ok(()) };
        if let Err(error) = self.carry_back(entry.0, &pending) {
            self.retract();
            let failure = NotUndone { effect: pending.effect.clone(), reason: error.to_string() };
            self.pending.insert(entry.0, pending);
            return Err(failure);
        }
        // On a full disk this cannot be recorded. The next reader of the log checks again and finds nothing to undo.
        let _ = self.append(&Line::Undone { id: entry.0 });
        Ok(())
    }

    /// Undoes an effect. Fails if the object may still exist afterwards, unless the object will be removed together with its filesystem.
    fn carry_back(&mut self, id: u64, pending: &PendingEffect) -> io::Result<()> {
        let Some((made, within)) = pending.made() else {
            return effect::undo(&pending.effect, &self.lock.without_interrupt());
        };
        if is_on_lost_mount(&pending.effect, &self.pending) {
            return Ok(());
        }
        let goes_along = goes_along(&pending.effect, &self.pending);
        let removed = match made.directory(within, pending.directory.as_ref(), goes_along) {
            Ok(Some(directory)) => made.remove(&directory, || self.begin_removal(id)),
            other => other.map(drop),
        };
        match removed {
            // The process behind a FUSE mount or an SMB share has ended or hangs, or its power was cut, or a disk was
            // lost and its filesystem accepts no writes. The mount is removed next.
            Err(error) if goes_along && is_lost(&error) => Ok(()),
            other => other,
        }
    }

    /// Makes an effect permanent: it will not be undone.
    pub fn commit(&mut self, entry: UndoEntry) -> Result<(), UndoLogError> {
        self.append(&Line::Undone { id: entry.0 })?;
        self.pending.remove(&entry.0);
        Ok(())
    }

    /// Undoes all effects in reverse order. Returns the undone effects and those that could not be undone. Removes the log if all were
    /// undone.
    pub fn undo_all(&mut self) -> (Vec<Effect>, Vec<NotUndone>) {
        let (mut undone, mut failures) = (Vec::new(), Vec::new());
        let mut pending: Vec<(u64, Effect)> =
            self.pending.iter().rev().map(|(id, pending)| (*id, pending.effect.clone())).collect();
        // The entry with a begun line comes first: writing any other line drops the begun one, and with it the proof that the removal had begun.
        pending.sort_by_key(|(id, _)| self.begun != Some(*id));
        for (id, effect) in pending {
            match self.undo(UndoEntry(id)) {
                Ok(()) => undone.push(effect),
                Err(failure) => failures.push(failure),
            }
            // A failed entry must not keep its filesystem busy.
            if let Some(pending) = self.pending.get_mut(&id) {
                (pending.directory, pending.own) = (None, None);
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

    /// Removes the log and the files next to it; the log itself last, because `clean` looks for it.
    fn remove(&self) -> io::Result<()> {
        for path in [
            &self.socket(),
            &self.path.with_extension(running::RUNNING),
            &self.path.with_extension(LOCK),
            &self.path,
        ] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Records the identity of a file that a tool has created, so that another file at its path will not be removed. Returns the new entry;
    /// the same entry if the file does not exist or its identity is already recorded.
    pub fn identify(&mut self, entry: UndoEntry) -> Result<UndoEntry, UndoLogError> {
        let pending = self.pending.get(&entry.0).map(|pending| &pending.effect);
        let Some(Effect::File { path, identity: None }) = pending else { return Ok(entry) };
        let path = path.clone();
        // If the tool created nothing, there is no identity to record.
        let Ok(made) = fs::symlink_metadata(&path) else { return Ok(entry) };
        let known = self.record(Effect::File { path, identity: Some(FileId::of(&made)) })?;
        self.commit(entry)?;
        Ok(known)
    }

    /// Creates a directory, recorded in the log; undoing removes it only if it is empty.
    pub fn make_directory(&mut self, path: &Path) -> Result<UndoEntry, UndoLogError> {
        self.make(path, 0o777, |path, identity| Effect::Directory { path, identity: Some(identity) })
    }

    /// Creates a directory with mode 0700, recorded in the log; undoing removes it with its contents.
    pub fn make_tree(&mut self, path: &Path) -> Result<UndoEntry, UndoLogError> {
        self.make(path, 0o700, |path, identity| Effect::Tree { path, identity })
    }

    /// Creates a directory where nothing exists. It gets its final name only after its identity has been recorded.
    fn make(
        &mut self,
        path: &Path,
        mode: u32,
        effect: impl FnOnce(PathBuf, FileId) -> Effect,
    ) -> Result<UndoEntry, UndoLogError> {
        let trouble = || failed("cannot make the directory", path);
        let own = self.scratch(path);
        let scratch = self.record(Effect::Directory { path: own.clone(), identity: None })?;
        let made = fs::DirBuilder::new().mode(mode).create(&own);
        self.disown(scratch, &made)?;
        made.map_err(trouble())?;
        let directory = parent::open(&own).map_err(trouble())?;
        let identity = FileId::of(&directory.metadata().map_err(trouble())?);
        let entry = self.record(effect(path.to_owned(), identity))?;
        self.hold(entry, directory);
        let named = rename_without_replacing(&own, path);
        self.disown(entry, &named)?;
        let cleared = self.undo(scratch);
        named.map_err(trouble())?;
        cleared.map_err(|failure| trouble()(io::Error::other(failure.reason)))?;
        Ok(entry)
    }

    /// Keeps a created file or directory open, so that it is found even if it is renamed.
    fn hold(&mut self, entry: UndoEntry, own: File) {
        if let Some(pending) = self.pending.get_mut(&entry.0) {
            pending.own = Some(own);
        }
    }

    /// Returns a temporary name next to a path, unique to this log. It is short, so that it is valid even if the name has the maximum
    /// length.
    fn scratch(&self, path: &Path) -> PathBuf {
        let tag = self.path.file_stem().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{SCRATCH}{tag}-{}", self.next))
    }

    /// Removes an entry from the log if creating its object failed because the path exists.
    fn disown<T>(&mut self, entry: UndoEntry, made: &io::Result<T>) -> Result<(), UndoLogError> {
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.commit(entry),
            _ => Ok(()),
        }
    }

    /// Creates an empty file with mode 0600 at a path that the user chose, and opens it for writing. Fails if the path exists.
    ///
    /// The file is created under a temporary name, and renamed after its inode has been recorded: a user's file at that path is neither
    /// replaced now nor removed later.
    pub fn make_file(&mut self, path: &Path) -> Result<(UndoEntry, File), UndoLogError> {
        let own = self.scratch(path);
        let scratch = self.record(Effect::File { path: own.clone(), identity: None })?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own);
        self.disown(scratch, &made)?;
        let file = made.map_err(failed("cannot make the file", path))?;
        let made = file.metadata().map_err(failed("cannot make the file", path))?;
        let identity = FileId::of(&made);
        let entry = self.record(Effect::File { path: path.to_owned(), identity: Some(identity) })?;
        let named = rename_without_replacing(&own, path).map_err(failed("cannot make the file", path))?;
        let held = match named {
            Named::Renamed => Some(file),
            // NFS keeps a removed name of an open file under another one until it is closed.
            Named::Linked => {
                drop(file);
                None
            }
        };
        self.undo(scratch)
            .map_err(|failure| failed("cannot make the file", path)(io::Error::other(failure.reason)))?;
        let again = || {
            let file = OpenOptions::new().write(true).open(path)?;
            let is_same = identity.is(FileId::of(&file.metadata()?));
            is_same.then_some(file).ok_or_else(|| io::Error::other("it was replaced meanwhile"))
        };
        let file = held.map_or_else(again, Ok).map_err(failed("cannot make the file", path))?;
        self.hold(entry, file.try_clone().map_err(failed("cannot make the file", path))?);
        Ok((entry, file))
    }
}

fn is_lost(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::IO | Errno::ROFS | Errno::HOSTDOWN))
}

/// Prefix of temporary file names.
const SCRATCH: &str = ".iotax-";

fn is_scratch(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(SCRATCH)
}

/// The way in which a file or directory got its name.
enum Named {
    Renamed,
    /// The file now has both names, because it was hard linked instead of renamed.
    Linked,
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<Named> {
    use rustix::fs::{CWD, RenameFlags};
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some filesystems (NFS, older FUSE) need other calls. A directory cannot be hard linked; renaming over it works only if it is an
        // empty directory.
        Err(Errno::INVAL | Errno::NOSYS) if from.is_dir() => fs::rename(from, to).map(|()| Named::Renamed),
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to).map(|()| Named::Linked),
        other => other.map(|()| Named::Renamed).map_err(Into::into),
    }
}

impl Drop for UndoLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.undo_all();
        }
    }
}

/// File name extension of an undo log that is still being created. The next ones are for a complete log, and for the process lock next to
/// it.
const NEW: &str = "new";
const NAMED: &str = "jsonl";
const LOCK: &str = "lock";
/// File name extension of the socket next to a log, see [`UndoLog::socket`].
pub const SOCKET: &str = "socket";

/// Deadline for all waits for locks in one call of `clean`, 1 s after its start. A killed process, or a child that it has just forked, may
/// hold its lock until it has exited.
#[derive(Debug, Clone, Copy)]
struct Patience(Instant);

impl Patience {
    fn begin() -> Self {
        Self(Instant::now() + Duration::from_secs(1))
    }
}

/// Creates the directory of undo logs if it is missing, and checks that no other user can change it. Returns its path without symbolic
/// links.
fn own_directory(dir: &Path) -> Result<PathBuf, UndoLogError> {
    // Check before anything is created below.
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    own_file::check_ancestors(there).map_err(failed(NOT_BELIEVED, dir))?;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir).map_err(failed("cannot make the directory", dir))?;
    own_file::directory(dir).map_err(failed(NOT_BELIEVED, dir))
}

/// Creates and locks an undo log under a temporary name. A log with such a name records no effects yet, so `clean` removes it.
fn begin(new: &Path) -> io::Result<File> {
    loop {
        let file = own_file::open(OpenOptions::new().create(true).append(true).mode(0o600), new)?;
        file.lock()?;
        // `clean` may have removed the file as that of a killed process, before this process locked it.
        if new.try_exists()? {
            return Ok(file);
        }
    }
}

/// Opens an undo log for reading and appending.
fn open(path: &Path) -> Result<File, UndoLogError> {
    own_file::open(OpenOptions::new().read(true).append(true), path)
        .map_err(failed("cannot open the undo log", path))
}

/// Opens and locks an undo log; `None` if its process is still running and holds the lock.
fn abandoned(path: &Path, patience: Patience) -> Result<Option<File>, UndoLogError> {
    let file = open(path)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if Instant::now() > patience.0 => return Ok(None),
            Err(TryLockError::WouldBlock) => threads::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(failed("cannot lock", path)(error)),
        }
    }
}

/// Returns the root below which /sys and /proc are.
#[cfg(not(test))]
fn root() -> PathBuf {
    "/".into()
}

#[cfg(test)]
use killed::root;

#[cfg(test)]
mod killed;
#[cfg(test)]
mod moved;
#[cfg(test)]
mod tests;
