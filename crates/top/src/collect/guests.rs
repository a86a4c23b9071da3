//! Finds guests among QEMU's processes, and their names and disks from command lines and open files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use iotax_testbed::stack;
use serde_json::Value;

use crate::raw::{Process, QemuGuest, QemuGuestDisk};

/// The guests of a machine, kept between readings so that command lines are not parsed each time.
#[derive(Debug)]
pub(super) struct Guests {
    root: PathBuf,
    known: HashMap<u32, QemuGuest>,
}

impl Guests {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: HashMap::new() }
    }

    /// Returns the guests among the processes. With `again`, the command lines of known guests are read again.
    pub(super) fn read(&mut self, processes: &[Process], again: bool) -> Vec<QemuGuest> {
        let mut known = std::mem::take(&mut self.known);
        for process in processes.iter().filter(|process| is_qemu(&process.name)) {
            let guest = match known.remove(&process.pid) {
                Some(guest) if !again => Some(guest),
                _ => self.describe(process.pid),
            };
            self.known.extend(guest.map(|guest| (process.pid, guest)));
        }
        let mut guests: Vec<QemuGuest> = self.known.values().cloned().collect();
        guests.sort_by(|one, other| (&one.name, one.pid).cmp(&(&other.name, other.pid)));
        guests
    }

    /// Describes the guest of a QEMU process; `None` if its command line cannot be read because the process has ended.
    fn describe(&self, pid: u32) -> Option<QemuGuest> {
        let process = self.root.join("proc").join(pid.to_string());
        let bytes = fs::read(process.join("cmdline")).ok()?;
        let words: Vec<String> =
            bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let command = Command::of(&words);
        let disks = command.disks.iter().map(|path| {
            let path = Self::opened(&process, path, &command.descriptors);
            let stack = stack::of_path(&self.root, &path).unwrap_or_default();
            QemuGuestDisk { path: path.display().to_string(), device: stack.disks.last().cloned() }
        });
        let name = command.name.clone().unwrap_or_else(|| format!("pid {pid}"));
        Some(QemuGuest { pid, name, disks: disks.collect(), qemu: None })
    }

    /// Resolves a file name on QEMU's command line: a passed file descriptor, or a path relative to QEMU's working directory.
    fn opened(process: &Path, name: &str, descriptors: &HashMap<String, String>) -> PathBuf {
        let by_set = || {
            let descriptor = descriptors.get(name.strip_prefix("/dev/fdset/")?)?;
            fs::read_link(process.join("fd").join(descriptor)).ok()
        };
        let relative = || {
            let directory = fs::read_link(process.join("cwd")).ok()?;
            (!name.starts_with('/')).then(|| directory.join(name))
        };
        by_set().or_else(relative).unwrap_or_else(|| PathBuf::from(name))
    }
}

/// Returns whether a process name is QEMU's: `qemu-system-x86` (the kernel cuts at 15 bytes), `qemu-kvm`, or `kvm` on Proxmox.
fn is_qemu(name: &str) -> bool {
    name.starts_with("qemu-system") || matches!(name, "qemu-kvm" | "kvm")
}

/// Settings read from a QEMU command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Command {
    name: Option<String>,
    /// Files and devices of disks, each once.
    disks: Vec<String>,
    /// File descriptors passed with `-add-fd`, keyed by the number of their fd set.
    descriptors: HashMap<String, String>,
}

impl Command {
    fn of(words: &[String]) -> Self {
        let mut command = Self::default();
        for pair in words.windows(2) {
            let value = pair[1].as_str();
            match pair[0].trim_start_matches('-') {
                "name" => {
                    command.name = parts(value)
                        .into_iter()
                        .find_map(|(key, name)| matches!(key.as_str(), "" | "guest").then_some(name));
                }
                "drive" | "blockdev" => {
                    file_of(value).into_iter().for_each(|file| command.add_disk(file));
                }
                "hda" | "hdb" | "hdc" | "hdd" => command.add_disk(value.to_owned()),
                "add-fd" => {
                    let of = |wanted: &str| parts(value).into_iter().find(|(key, _)| key == wanted);
                    if let (Some((_, set)), Some((_, descriptor))) = (of("set"), of("fd")) {
                        command.descriptors.insert(set, descriptor);
                    }
                }
                _ => {}
            }
        }
        command
    }

    fn add_disk(&mut self, file: String) {
        if !self.disks.contains(&file) {
            self.disks.push(file);
        }
    }
}

/// Returns the file in the value of a -drive or -blockdev option; `None` if the value has none.
fn file_of(value: &str) -> Option<String> {
    if value.starts_with('{') {
        return filename(&serde_json::from_str(value).ok()?);
    }
    let parts = parts(value);
    let keys = ["file", "filename", "file.filename"];
    keys.iter().find_map(|wanted| {
        let (_, file) = parts.iter().find(|(key, _)| key == wanted)?;
        // Beside `driver` or `node-name`, `file` names another block node instead of a file.
        let is_node = *wanted == "file" && parts.iter().any(|(key, _)| key == "driver" || key == "node-name");
        (!is_node).then(|| file.clone())
    })
}

/// Returns the first `filename` in a JSON object or in the objects within it; `None` if there is none.
pub(super) fn filename(value: &Value) -> Option<String> {
    let object = value.as_object()?;
    let own = object.get("filename").and_then(Value::as_str).map(str::to_owned);
    own.or_else(|| object.values().find_map(filename))
}

/// Splits an option value such as `a,key=value` into keys and values; `,,` stands for a comma in a value. A part without `=` has an empty
/// key.
fn parts(value: &str) -> Vec<(String, String)> {
    const COMMA: &str = "\0";
    let escaped = value.replace(",,", COMMA);
    let pairs = escaped.split(',').map(|part| part.split_once('=').unwrap_or(("", part)));
    pairs.map(|(key, value)| (key.to_owned(), value.replace(COMMA, ","))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_and_disks_are_those_of_the_command_line() {
        for (line, name, disks) in [
            ("kvm -name web1 -drive file=/srv/a,,b.img,format=raw", "web1", vec!["/srv/a,b.img"]),
            (
                "qemu -name guest=db,debug-threads=on -blockdev {\"driver\":\"file\",\"filename\":\"/srv/db.qcow2\",\"node-name\":\"n1\"} \
                 -blockdev {\"node-name\":\"n2\",\"driver\":\"qcow2\",\"file\":\"n1\"}",
                "db",
                vec!["/srv/db.qcow2"],
            ),
            ("qemu -name a -hda /dev/vg/a -hdb /srv/b", "a", vec!["/dev/vg/a", "/srv/b"]),
            (
                "qemu -name a -blockdev driver=file,filename=/srv/a,node-name=f -blockdev driver=raw,file=f,node-name=d",
                "a",
                vec!["/srv/a"],
            ),
        ] {
            let found = command(line);
            assert_eq!(
                (found.name.as_deref(), found.disks),
                (Some(name), disks.into_iter().map(str::to_owned).collect())
            );
        }
        let passed = command("qemu -add-fd set=3,fd=21 -drive file=/dev/fdset/3");
        assert_eq!((passed.name, passed.descriptors["3"].as_str()), (None, "21"));
    }
}
