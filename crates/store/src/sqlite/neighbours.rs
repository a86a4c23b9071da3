//! Checks the files next to a store before SQLite opens it. SQLite applies a journal no matter who wrote it. A journal can name a
//! super-journal, and thereby make SQLite delete any file (<https://www.sqlite.org/fileformat.html#the_rollback_journal>).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;

/// Magic bytes at the start of a journal; also at the end of a journal that names a super-journal.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Maximum time to wait until another user's write ends; it may be slow on a disk under test.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Returns an error if there is a write-ahead log, or a journal that is not a regular file or has several hard links. As root, SQLite gives
/// a journal the owner of the store; if the journal's name is a hard link to another file, that file would get this owner.
///
/// Waits up to 5 s until another user's write ends; after that, that user's journal is an error too.
pub(super) fn refuse_foreign(store: &Path) -> Result<(), String> {
    let store = resolved(store)?;
    let log = beside(&store, "-wal");
    if fs::symlink_metadata(&log).is_ok() {
        return Err(format!(
            "{} is a write-ahead log, which iotax never makes; if the store is yours: sqlite3 {} 'PRAGMA journal_mode = delete'",
            log.display(),
            store.display()
        ));
    }
    let (journal, until) = (beside(&store, "-journal"), Instant::now() + PATIENCE);
    let shown = journal.display();
    loop {
        let found = match fs::symlink_metadata(&journal) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| format!("{shown}: {error}"))?,
        };
        if !found.is_file() || found.nlink() > 1 {
            return Err(format!("{shown} is not a file of its own; remove it"));
        }
        if found.uid() == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!(
                "its journal {shown} belongs to another user (uid {}), who puts the store right by iotax list",
                found.uid()
            ));
        }
        threads::sleep(PAUSE);
    }
}

/// Returns an error if other users could make SQLite modify the store. They could if they can write to a directory on
/// its path, or if a journal is not from iotax.
pub(super) fn refuse_planted(store: &Path) -> Result<(), String> {
    let named = std::path::absolute(store).map_err(|error| error.to_string())?;
    let resolved = resolved(store)?;
    for path in [&named, &resolved] {
        refuse_shared_directories(path)?;
    }
    refuse_foreign(&resolved)?;
    refuse_super_journal(&beside(&resolved, "-journal"))
}

/// Returns an error if other users could create files or replace directories on the path.
fn refuse_shared_directories(path: &Path) -> Result<(), String> {
    let owner = |path: &Path| fs::metadata(path).map(|found| found.uid());
    let trusted = [owner(Path::new("/")).ok(), Some(rustix::process::geteuid().as_raw())];
    for (depth, directory) in path.ancestors().skip(1).enumerate() {
        let shown = directory.display();
        let found = fs::metadata(directory).map_err(|error| format!("{shown}: {error}"))?;
        if !trusted.contains(&Some(found.uid())) {
            return Err(format!(
                "{shown} belongs to another user (uid {}), who could put a journal there that SQLite obeys; keep it in a directory of \
                 your own",
                found.uid()
            ));
        }
        // In a sticky directory, others cannot replace entries, but they can add some.
        let is_kept = depth > 0 && found.mode() & 0o1000 != 0;
        // A group with its owner's number contains only that user, unless an access control list (acl(5)) adds members.
        let is_private = || found.gid() == found.uid() && !has_access_list(directory);
        let writers = match found.mode() {
            mode if mode & 0o002 != 0 => Some("everybody"),
            mode if mode & 0o020 != 0 && !is_private() => Some("a group"),
            _ => None,
        };
        if let Some(writers) = writers.filter(|_| !is_kept) {
            return Err(format!(
                "{writers} can write into {shown}, and put a journal there that SQLite obeys; keep it in a directory of your own"
            ));
        }
    }
    Ok(())
}

fn has_access_list(path: &Path) -> bool {
    rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok()
}

fn refuse_super_journal(journal: &Path) -> Result<(), String> {
    let shown = journal.display();
    match names_another(journal) {
        Ok(false) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(true) => Err(format!(
            "{shown} names another file that is deleted with it (a super-journal), which iotax never writes: somebody made it; remove it"
        )),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Returns whether a journal ends with the name of a super-journal. Unlike SQLite, does not check the name's checksum; a journal with a
/// wrong checksum is therefore rejected as well.
fn names_another(journal: &Path) -> io::Result<bool> {
    let mut file = File::open(journal)?;
    if file.metadata()?.len() < 16 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-16))?;
    let mut end = [0; 16];
    file.read_exact(&mut end)?;
    Ok(end[8..] == MAGIC && end[..4] != [0; 4])
}

/// Returns the path of the store after resolving symbolic links, from which SQLite derives the names of its journals.
fn resolved(store: &Path) -> Result<PathBuf, String> {
    let fail = |error: io::Error| format!("{}: {error}", store.display());
    match store.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(store).is_err() => {
            let directory = store.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new(".")).canonicalize().map_err(fail)?;
            Ok(directory.join(store.file_name().unwrap_or_default()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{} is a link that leads nowhere", store.display()))
        }
        found => found.map_err(fail),
    }
}

pub(super) fn beside(store: &Path, end: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(end);
    name.into()
}
