//! Makes settings persistent with udev rules and sysctl files.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_analysis::tune::Tuning;
use iotax_model::Plan;
use iotax_model::exit::Exit;
use iotax_model::target::{SettingScope, TargetSpec};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::settings::{self, KernelSettings};

use super::super::confirm::asked;
use super::super::replace::Draft;
use super::super::say::{note, print_line};
use super::super::{Failure, OrExit};

/// The first line of a file that iotax wrote.
const MARK: &str = "# Written by iotax tune";

/// A udev rule or sysctl file that makes settings persistent.
#[derive(Debug, PartialEq, Eq)]
struct LastingFile {
    path: PathBuf,
    /// The text that identifies each setting in a line, and the line to write for it.
    lines: Vec<(String, String)>,
}

/// Returns the files that make a target's kernel settings persistent.
fn files(root: &Path, target: &TargetSpec) -> Vec<LastingFile> {
    let mut files: Vec<LastingFile> = Vec::new();
    let mut add =
        |path: PathBuf, key: String, line: String| match files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.lines.push((key, line)),
            None => files.push(LastingFile { path, lines: vec![(key, line)] }),
        };
    for (setting, value) in target.setting_values() {
        if setting.scope() == SettingScope::Memory {
            let key = format!("vm.{setting}");
            let line = format!("{key} = {value}");
            add(root.join("etc/sysctl.d/99-iotax.conf"), key, line);
        }
        for device in settings::devices(root, target, setting) {
            let key = format!("ATTR{{queue/{setting}}}");
            let line = format!(
                "ACTION==\"add|change\", SUBSYSTEM==\"block\", {}, {key}=\"{value}\"",
                matching(root, &device)
            );
            add(root.join(format!("etc/udev/rules.d/99-iotax-{device}.rules")), key, line);
        }
    }
    files
}

/// Returns the part of a udev rule that matches a device: its device-mapper name or serial number if udev knows one, otherwise its kernel
/// name, which may change at the next boot.
fn matching(root: &Path, device: &str) -> String {
    let number =
        fs::read_to_string(root.join("sys/class/block").join(device).join("dev")).unwrap_or_default();
    let database = root.join("run/udev/data").join(format!("b{}", number.trim()));
    let known = fs::read_to_string(database).unwrap_or_default();
    let property = |name: &str| {
        let value = known.lines().find_map(|line| line.strip_prefix(&format!("E:{name}=")))?;
        // Quotes cannot be escaped in a rule's value.
        (!value.contains(['"', '*', '?', '['])).then(|| format!("ENV{{{name}}}==\"{value}\""))
    };
    let found = property("DM_NAME").or_else(|| property("ID_SERIAL"));
    let partition = if found.is_some() { ", ENV{DEVTYPE}==\"disk\"" } else { "" };
    found.map_or_else(|| format!("KERNEL==\"{device}\""), |found| format!("{found}{partition}"))
}

impl LastingFile {
    /// Returns the file's new text: the lines to write, after the lines that iotax wrote earlier for other settings. Drops the text of
    /// other authors, which [`Self::write`] backs up.
    fn text(&self, origin: &str, old: Option<&str>) -> String {
        let is_kept = |line: &&str| {
            !line.trim().is_empty()
                && !line.starts_with('#')
                && !self.lines.iter().any(|(key, _)| line.contains(key.as_str()))
        };
        let kept = old
            .filter(|old| old.starts_with(MARK))
            .map(|old| old.lines().filter(is_kept).collect::<Vec<&str>>());
        let lines = self.lines.iter().map(|(_, line)| line.as_str());
        let all: Vec<&str> =
            [MARK].into_iter().chain([origin]).chain(kept.unwrap_or_default()).chain(lines).collect();
        all.join("\n") + "\n"
    }

    /// Writes the file after backing up the existing one, whose text is `old`. Returns the backup's path; `None` without an existing file.
    fn write(&self, text: &str, old: Option<&str>) -> io::Result<Option<PathBuf>> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(dir)?;
        let backup = old.map(|old| self.back_up(old)).transpose()?;
        let mut draft = Draft::new(dir)?;
        draft.fill(text.as_bytes())?;
        if old.is_some() {
            draft.take_after(&fs::File::open(&self.path)?)?;
        }
        draft.publish(&self.path, old.is_some())?;
        Ok(backup)
    }

    /// Copies the old text to an unused backup name, whose ending udev and sysctl ignore. Returns the backup's path.
    fn back_up(&self, old: &str) -> io::Result<PathBuf> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        for number in 1.. {
            let name = self.path.with_added_extension(format!("bak{number}"));
            let mut draft = Draft::new(dir)?;
            draft.fill(old.as_bytes())?;
            match draft.publish(&name, false) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                published => return published.map(|()| name),
            }
        }
        Err(io::Error::other("no free name for a backup"))
    }

    /// Returns the file's current text; `None` if there is no file.
    fn old(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }
}

/// Shows the files that make a recommendation persistent. With `apply`, asks (unless `yes`), writes them and applies the settings now.
pub(super) fn offer(target: &TargetSpec, tuning: &Tuning, apply: bool, yes: bool) -> Result<Exit, Failure> {
    let (root, origin) = (Path::new("/"), origin(tuning));
    let files = files(root, target);
    for file in &files {
        let old = file.old().with_context(|| file.path.display().to_string()).or_exit(Exit::Environment)?;
        note!("\n{}:", file.path.display());
        note!("{}", file.text(&origin, old.as_deref()).trim_end());
    }
    if let Some(lines) = of_guest(target, tuning) {
        note!("\nIn the domain's XML (virsh edit), which iotax does not write:\n{lines}");
    }
    if files.is_empty() {
        return Ok(Exit::Fine);
    }
    if !apply {
        note!(
            "\nNothing was changed. To write these files and apply the settings now: the same command with --apply"
        );
        return Ok(Exit::Fine);
    }
    if !yes && !asked("Write and apply? [Y/n] ", &Interrupt::default()) {
        note!("Nothing was changed.");
        return Ok(Exit::Fine);
    }
    for file in &files {
        let context = || format!("cannot write {}", file.path.display());
        let old = file.old().with_context(context).or_exit(Exit::Environment)?;
        let backup = file.write(&file.text(&origin, old.as_deref()), old.as_deref());
        let backup = backup.with_context(context).or_exit(Exit::Environment)?;
        let kept =
            backup.map(|path| format!("; what was there is in {}", path.display())).unwrap_or_default();
        print_line!("Written: {}{kept}", file.path.display());
    }
    apply_now(root, target).or_exit(Exit::Environment)?;
    print_line!("Applied now as well.");
    Ok(Exit::Fine)
}

fn origin(tuning: &Tuning) -> String {
    let run = tuning.confirmation.as_ref().map_or(0, |(run, _)| *run);
    format!("# Confirmed by run {run}: iotax report {run}")
}

/// Applies the kernel settings now, without an undo entry, so that they stay.
fn apply_now(root: &Path, target: &TargetSpec) -> anyhow::Result<()> {
    let plan = Plan::new("apply".into(), vec![target.clone()], Vec::new());
    Ok(KernelSettings::find(root, &plan)?.apply_for_good(0)?)
}

/// Formats the chosen guest settings as elements of libvirt's XML; `None` without a guest, or if no guest setting was chosen.
fn of_guest(target: &TargetSpec, tuning: &Tuning) -> Option<String> {
    let guest = target.guest()?;
    let chosen = |key: &str| tuning.candidates().find(|one| one.key == key).map(|one| one.value.as_str());
    let threads = chosen("iothread").filter(|value| *value != "0");
    let attributes = [
        ("cache", chosen("cache")),
        ("io", chosen("aio")),
        ("queues", chosen("queues")),
        ("iothread", threads),
    ];
    let driver: String =
        attributes.iter().filter_map(|(name, value)| Some(format!(" {name}='{}'", (*value)?))).collect();
    let bus = chosen("bus").map(|_| format!("<target dev='...' bus='{}'/>", guest.bus));
    let driver = (!driver.is_empty()).then(|| format!("<driver name='qemu' ...{driver}/>"));
    let lines: Vec<String> = driver.into_iter().chain(bus).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path) -> LastingFile {
        let line = |value: &str| ("vm.dirty_ratio".to_owned(), format!("vm.dirty_ratio = {value}"));
        LastingFile { path: dir.join("etc/sysctl.d/99-iotax.conf"), lines: vec![line("5")] }
    }

    #[test]
    fn a_file_is_written_with_a_backup_and_keeps_other_settings() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file(dir.path());
        assert_eq!(file.old().expect("read"), None);
        let first = file.text("# run 3", None);
        assert_eq!(first, format!("{MARK}\n# run 3\nvm.dirty_ratio = 5\n"));
        assert_eq!(file.write(&first, None).expect("written"), None);

        let others = format!("{MARK}\n# run 2\nvm.dirty_ratio = 9\nvm.dirty_background_ratio = 2\n");
        fs::write(&file.path, &others).expect("written");
        let second = file.text("# run 4", Some(&others));
        assert_eq!(second, format!("{MARK}\n# run 4\nvm.dirty_background_ratio = 2\nvm.dirty_ratio = 5\n"));
        let backup = file.write(&second, Some(&others)).expect("written").expect("a backup");
        assert_eq!(fs::read_to_string(&backup).expect("read"), others);
        assert_eq!(fs::read_to_string(&file.path).expect("read"), second);
        assert_ne!(file.back_up("x").expect("kept"), backup);

        // A file by another author is replaced as a whole; the backup keeps it.
        let foreign = "vm.swappiness = 1\n";
        assert!(!file.text("# run 5", Some(foreign)).contains("swappiness"));
    }

    #[test]
    fn a_rule_finds_a_disk_by_what_udev_knows() {
        let root = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, text).expect("written");
        };
        put("sys/class/block/sda/dev", "8:0\n");
        assert_eq!(matching(root.path(), "sda"), "KERNEL==\"sda\"");
        put("run/udev/data/b8:0", "S:disk/by-id/x\nE:ID_SERIAL=3600a0b8\nE:ID_BUS=scsi\n");
        assert_eq!(matching(root.path(), "sda"), "ENV{ID_SERIAL}==\"3600a0b8\", ENV{DEVTYPE}==\"disk\"");
        put("run/udev/data/b8:0", "E:ID_SERIAL=a\"b\n");
        assert_eq!(matching(root.path(), "sda"), "KERNEL==\"sda\"");
    }
}
