//! Reads, changes and restores files in /sys and /proc/sys that hold one value each.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host_info::{boot_id, text};

/// Names of settings in the order of the undo log. Values are written and restored from the last to the first: changing the scheduler
/// resets the queue depth, and setting a dirty limit in bytes resets the one in percent. Files that are not listed (a scheduler's tunables)
/// precede all others.
pub(crate) const ORDER: [&str; 13] = [
    "nr_requests",
    "wbt_lat_usec",
    "scheduler",
    "read_ahead_kb",
    "nomerges",
    "rq_affinity",
    "max_sectors_kb",
    "dirty_ratio",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_background_bytes",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
];

/// A file in /sys or /proc/sys whose value a run changes, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFile {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// The value before the run, to be restored.
    pub was: String,
    /// The values that the run writes. If the file has any other value, someone else wrote it, and it is not restored, unless `follows` is
    /// true.
    pub values: Vec<String>,
    /// True if the kernel changes the value as a side effect when the run writes another file, such as the queue depth with the scheduler.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub follows: bool,
    /// Boot id when the value was read; `None` if it could not be read. After a reboot, the kernel has its defaults again.
    pub boot_id: Option<String>,
    /// Sequence number of the disk that the file belongs to: another disk may get the same name later. `None` if unknown, or for files of
    /// no disk.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diskseq: Option<String>,
}

/// Mount points of the kernel's filesystems, with the type that statfs(2) reports for them (`f_type`).
const KERNELS: [(&str, u64); 2] = [("/sys", 0x6265_6572), ("/proc", 0x9fa0)];

/// Returns the current value in a file's text: the word in brackets if there is one, otherwise the whole text.
fn active(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0));
    chosen.unwrap_or(text).trim()
}

/// Returns the words in a file, without brackets: the accepted values, if the file lists them.
pub(crate) fn offered(path: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(path)?;
    Ok(text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect())
}

/// Returns the current value of a file, see [`active`].
pub(crate) fn value(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| active(&text).to_owned())
}

/// Returns the sequence number of the disk that a file below /sys/class/block belongs to; `None` for other files, or if it is unknown.
fn diskseq(path: &Path) -> Option<String> {
    path.ancestors().skip(2).take(2).find_map(|directory| text(&directory.join("diskseq")))
}

impl KernelFile {
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let (path, was) = (PathBuf::new(), String::new());
        Self { path, was, values: Vec::new(), follows: false, boot_id: None, diskseq: None }
    }

    /// Reads a file's value, boot id and disk before the run changes it.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Ok(Self {
            was: value(path)?,
            values: Vec::new(),
            follows: false,
            boot_id: boot_id(),
            diskseq: diskseq(path),
            path: path.to_owned(),
        })
    }

    /// Fails if the current value differs from the recorded one.
    pub(crate) fn check_former(&self) -> io::Result<()> {
        let now = value(&self.path)?;
        if now == self.was {
            return Ok(());
        }
        let words =
            format!("it is {now} and was {} when the run was started; somebody else changed it", self.was);
        Err(io::Error::other(words))
    }

    /// Writes a value and reads it back. Fails if the kernel rejects the value or reports another one.
    pub(crate) fn set(&self, new: &str) -> io::Result<()> {
        let write = |file: &mut fs::File| file.write_all(format!("{new}\n").as_bytes());
        // The kernel's error names no reason; the value does.
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{new} was not taken: {error}"));
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.path)
            .and_then(|mut file| write(&mut file))
            .map_err(failed)?;
        let now = value(&self.path)?;
        if now == new {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{new} was not taken: it reads {now}; give a value that this device takes"
        )))
    }

    /// Returns the current value; `None` if the file is gone with its disk. Fails if /sys or /proc is not mounted.
    fn found(&self) -> io::Result<Option<String>> {
        check_mounted(&self.path)?;
        match value(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns the reason why the file may belong to another boot or disk than the recorded one; `None` if boot and disk are the recorded
    /// ones.
    fn doubt(&self) -> Option<String> {
        let (boot_id, diskseq) = (boot_id(), diskseq(&self.path));
        if self.boot_id.is_none() || boot_id.is_none() {
            return Some("it is not known whether the machine has restarted since".into());
        }
        if self.boot_id != boot_id {
            return Some("by its boot id the machine has restarted since".into());
        }
        (self.diskseq != diskseq).then(|| "another disk has been attached under this name since".into())
    }

    /// Writes the recorded value back. Fails without writing if someone else changed the value. If the file may belong to another boot or
    /// disk, never writes, and fails only if the current value may be the run's.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let Some(now) = self.found()?.filter(|now| *now != self.was) else { return Ok(()) };
        let may_be_ours = self.follows || self.values.contains(&now);
        match self.doubt() {
            Some(_) if !may_be_ours => Ok(()),
            Some(doubt) => Err(io::Error::other(format!(
                "it is {now}, which the run may have set, but {doubt}; left alone. If it is the run's: echo {} > {}; then forget it",
                self.was,
                self.path.display()
            ))),
            None if !may_be_ours => Err(io::Error::other(format!(
                "somebody else set it to {now}, so it is left alone; it was {}",
                self.was
            ))),
            None => self.set(&self.was),
        }
    }
}

/// Fails if /sys or /proc is not the kernel's filesystem: a missing file would then not prove that a device is gone.
pub(crate) fn check_mounted(path: &Path) -> io::Result<()> {
    for (point, kind) in KERNELS {
        if path.starts_with(point)
            && u64::try_from(rustix::fs::statfs(point)?.f_type).is_ok_and(|found| found != kind)
        {
            let words =
                format!("{point} is not mounted here, so it cannot be looked at; clean again where it is");
            return Err(io::Error::other(words));
        }
    }
    Ok(())
}

/// Returns whether iotax may change this file below `root`: a queue setting of a block device, a scheduler's tunable, or a dirty-page
/// limit.
pub(crate) fn is_setting(root: &Path, path: &Path) -> bool {
    let words = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default().split('/');
    let (memory, queue): (Vec<&str>, Vec<&str>) = ORDER.iter().partition(|name| name.starts_with("dirty_"));
    match words.collect::<Vec<&str>>().as_slice() {
        ["proc", "sys", "vm", name] => memory.contains(name),
        ["sys", "class", "block", _, "queue", name] => queue.contains(name),
        ["sys", "class", "block", _, "queue", "iosched", _] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("block/sda/queue/scheduler");
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        fs::write(&path, text).expect("written");
        fs::write(dir.path().join("block/sda/diskseq"), "4\n").expect("written");
        (dir, path)
    }

    #[test]
    fn the_active_value_is_read() {
        for (text, is) in [
            ("none [mq-deadline] kyber \n", "mq-deadline"),
            ("[none] mq-deadline\n", "none"),
            ("128\n", "128"),
            ("none\n", "none"),
            ("\n", ""),
        ] {
            assert_eq!(active(text), is);
        }
        let (_dir, path) = file("none [mq-deadline] kyber \n");
        assert_eq!(offered(&path).expect("read"), ["none", "mq-deadline", "kyber"]);
    }

    #[test]
    fn a_value_is_put_back_unless_somebody_else_changed_it() {
        let (_dir, path) = file("128\n");
        let known = KernelFile { values: vec!["64".into()], ..KernelFile::read(&path).expect("read") };
        known.set("64").expect("set");
        known.restore().expect("restored");
        assert_eq!(fs::read_to_string(&path).expect("read"), "128\n");
        fs::write(&path, "32\n").expect("written");
        let error = known.restore().expect_err("somebody else's").to_string();
        assert!(error.contains("set it to 32") && error.contains("it was 128"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "32\n");
        KernelFile { follows: true, ..known }.restore().expect("restored");
        assert_eq!(fs::read_to_string(&path).expect("read"), "128\n");
    }

    #[test]
    fn what_may_be_another_disks_is_left_alone_and_told() {
        let (dir, path) = file("64\n");
        let known = KernelFile {
            was: "128".into(),
            values: vec!["64".into()],
            ..KernelFile::read(&path).expect("read")
        };
        let of_another_boot = KernelFile { boot_id: Some("before".into()), ..known.clone() };
        let of_no_boot = KernelFile { boot_id: None, ..known.clone() };
        let refusal = |known: &KernelFile| known.restore().expect_err("not known").to_string();
        assert!(refusal(&of_another_boot).contains("has restarted since"), "{}", refusal(&of_another_boot));
        assert!(refusal(&of_no_boot).contains("it is not known whether"), "{}", refusal(&of_no_boot));
        fs::write(dir.path().join("block/sda/diskseq"), "5\n").expect("written");
        let again = refusal(&known);
        assert!(again.contains("another disk") && again.contains("echo 128 > "), "{again}");
        assert_eq!(value(&path).expect("read"), "64");
        // A value that the run never sets is another disk's, or the default after a restart.
        fs::write(&path, "256\n").expect("written");
        [&of_another_boot, &known].iter().for_each(|known| known.restore().expect("nothing to do"));
        assert_eq!(value(&path).expect("read"), "256");
        fs::remove_file(&path).expect("removed");
        known.restore().expect("nothing to do");
    }
}
