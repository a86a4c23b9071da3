//! Files of /sys and /proc/sys that hold one value each: read, changed, and put back.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host_info::{boot_id, text};

/// A file of the kernel whose value a run changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFile {
    /// Absolute path.
    pub path: PathBuf,
    /// The value that was found.
    pub was: String,
    /// The values that the run writes. Any other value is somebody else's and is left alone.
    pub values: Vec<String>,
    /// True if the kernel changes it along with another file that the run writes, to a value that is not known beforehand.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub follows: bool,
    /// The boot in which it was read. A restart forgets such values.
    pub boot_id: Option<String>,
    /// The disk whose file it is: another one may get the name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub diskseq: Option<String>,
}

/// The value in a file's text: the word in brackets of a list of choices, otherwise all of it.
fn active(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0));
    chosen.unwrap_or(text).trim()
}

/// The values that a file offers, if it lists them.
pub(crate) fn offered(path: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(path)?;
    Ok(text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect())
}

/// The value of a file.
pub(crate) fn value(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| active(&text).to_owned())
}

/// The sequence number of the disk that a file of /sys belongs to.
fn diskseq(path: &Path) -> Option<String> {
    path.ancestors().skip(2).take(2).find_map(|directory| text(&directory.join("diskseq")))
}

impl KernelFile {
    /// Reads a file that is to be changed.
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

    /// Fails if the value is no longer the one that was read.
    pub(crate) fn check_former(&self) -> io::Result<()> {
        let now = value(&self.path)?;
        if now == self.was {
            return Ok(());
        }
        let words =
            format!("it is {now} and was {} when the run was begun; somebody else changed it", self.was);
        Err(io::Error::other(words))
    }

    /// Writes a value and reads it back.
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

    /// Returns whether the file is certainly the one that was read: not after a restart, nor on another disk of that name.
    fn is_the_same(&self) -> bool {
        self.boot_id.is_some() && self.boot_id == boot_id() && self.diskseq == diskseq(&self.path)
    }

    /// Puts the former value back. A value that neither was there nor is the run's stays, and is an error, as is one of the run's where it
    /// is not known whose it is now: a loop device keeps its settings when another file is attached to it.
    pub(crate) fn restore(&self) -> io::Result<()> {
        if !self.path.exists() {
            return self.check_gone();
        }
        let now = value(&self.path)?;
        if now == self.was {
            return Ok(());
        }
        let is_ours = self.values.contains(&now);
        if !self.is_the_same() {
            return if is_ours { Err(self.not_known(&now)) } else { Ok(()) };
        }
        if !self.follows && !is_ours {
            return Err(self.foreign(&now));
        }
        self.set(&self.was)
    }

    /// Fails if the file is missing only because it cannot be looked for.
    fn check_gone(&self) -> io::Result<()> {
        let is_listing = |place: &&Path| place.ends_with("class/block") || place.ends_with("sys/vm");
        match self.path.ancestors().find(is_listing) {
            Some(listing) if !listing.exists() => Err(io::Error::other(format!(
                "{} is not there, so what it reads is not known; mount it and clean again",
                listing.display()
            ))),
            _ => Ok(()),
        }
    }

    fn not_known(&self, now: &str) -> io::Error {
        io::Error::other(format!(
            "it reads {now}, as the run set it, but this may be another disk or another start of the machine; if it is still the run's: echo \
             {} > {}",
            self.was,
            self.path.display()
        ))
    }

    /// The error for a value that somebody else set.
    pub(crate) fn foreign(&self, now: &str) -> io::Error {
        io::Error::other(format!("somebody else set it to {now}, so it is left alone; it was {}", self.was))
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
    fn what_is_not_known_to_be_put_back_is_not_called_so() {
        let (dir, path) = file("64\n");
        let known = KernelFile {
            was: "128".into(),
            values: vec!["64".into()],
            ..KernelFile::read(&path).expect("read")
        };
        let of_another_boot = KernelFile { boot_id: Some("before".into()), ..known.clone() };
        let said = |file: &KernelFile| file.restore().expect_err("not known").to_string();
        assert!(said(&of_another_boot).contains("echo 128 > "), "{}", said(&of_another_boot));
        assert!(said(&KernelFile { boot_id: None, ..known.clone() }).contains("it reads 64"));
        // As when another file is attached to a loop device.
        fs::write(dir.path().join("block/sda/diskseq"), "5\n").expect("written");
        assert!(said(&known).contains("another disk"), "{}", said(&known));
        assert_eq!(value(&path).expect("read"), "64");
        fs::write(&path, "32\n").expect("written");
        known.restore().expect("it is not the run's");
        fs::remove_file(&path).expect("removed");
        known.restore().expect("the disk is gone");
        let without_sys =
            KernelFile { path: dir.path().join("sys/class/block/sda/queue/scheduler"), ..known };
        assert!(said(&without_sys).contains("mount it"), "{}", said(&without_sys));
    }
}
