//! Reads the counters of guests' disks in QEMU's block layer over QMP. Nothing in the guest is changed.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_testbed::guest::qmp::{Qmp, QmpError};
use iotax_testbed::interrupt::Interrupt;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};

use crate::raw::{QemuDisk, QemuGuest};

/// Time limit for QEMU to answer; a monitor that exceeds it is dropped.
const DEADLINE: Duration = Duration::from_millis(500);

/// QMP connections to the monitors of guests.
#[derive(Debug)]
pub(super) struct QemuMonitors {
    monitors: Vec<Monitor>,
    /// Sockets that could not be connected or failed later, each with the reason.
    lost: Vec<String>,
}

#[derive(Debug)]
struct Monitor {
    socket: PathBuf,
    /// PID of the QEMU process that owns the socket.
    pid: u32,
    qmp: Qmp,
}

impl QemuMonitors {
    pub(super) fn connect(sockets: &[PathBuf], stop: &Interrupt) -> Self {
        let mut all = Self { monitors: Vec::new(), lost: Vec::new() };
        for socket in sockets {
            match Monitor::connect(socket, stop) {
                Ok(monitor) => all.monitors.push(monitor),
                Err(reason) => all.lost.push(format!("{}: {reason}", socket.display())),
            }
        }
        all
    }

    /// Stores QEMU's counters in the guests, matched by PID; adds failed sockets to `remarks`.
    pub(super) fn read(&mut self, guests: &mut [QemuGuest], remarks: &mut Vec<String>) {
        for mut monitor in std::mem::take(&mut self.monitors) {
            match monitor.disks() {
                Ok(disks) => {
                    if let Some(guest) = guests.iter_mut().find(|guest| guest.pid == monitor.pid) {
                        guest.qemu = Some(disks);
                    }
                    self.monitors.push(monitor);
                }
                Err(error) => self.lost.push(format!("{}: {error}", monitor.socket.display())),
            }
        }
        remarks.extend(self.lost.iter().cloned());
    }
}

impl Monitor {
    fn connect(socket: &Path, stop: &Interrupt) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
        let pid = socket_peercred(&stream).map_err(|error| error.to_string())?.pid;
        let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
        let qmp = Qmp::start(stream, DEADLINE, pid, stop).map_err(|error| match error {
            QmpError::Deadline { .. } => "another program is connected to this monitor".to_owned(),
            error => error.to_string(),
        })?;
        Ok(Self { socket: socket.to_owned(), pid, qmp })
    }

    fn disks(&mut self) -> Result<Vec<QemuDisk>, QmpError> {
        let stats = self.qmp.execute("query-blockstats", &json!({}))?;
        let nodes = self.qmp.execute("query-block", &json!({}))?;
        Ok(disks(&stats, &nodes))
    }
}

/// Returns the disks in the answers to query-blockstats and query-block. Leaves out drives without a medium, and disks without complete
/// counters.
fn disks(stats: &Value, nodes: &Value) -> Vec<QemuDisk> {
    let word = |entry: &Value, key: &str| {
        let text = entry.get(key).and_then(Value::as_str).unwrap_or_default();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let same = |one: &Value, other: &Value| {
        ["qdev", "device"].iter().any(|key| word(one, key).is_some() && word(one, key) == word(other, key))
    };
    let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
    let entries = stats.as_array().into_iter().flatten();
    let disk = |entry: &Value| {
        let node = nodes.iter().find(|node| same(node, entry));
        let inserted = node.and_then(|node| node.get("inserted"));
        if node.is_some() && inserted.is_none() {
            return None;
        }
        let count = |key: &str| entry.get("stats")?.get(key)?.as_u64();
        let name =
            word(entry, "qdev").or_else(|| word(entry, "device")).or_else(|| word(entry, "node-name"))?;
        Some(QemuDisk {
            name: name.trim_start_matches("/machine/peripheral/").to_owned(),
            path: inserted.and_then(file),
            reads: count("rd_operations")?,
            writes: count("wr_operations")?,
            read_bytes: count("rd_bytes")?,
            write_bytes: count("wr_bytes")?,
            read_ns: count("rd_total_time_ns")?,
            write_ns: count("wr_total_time_ns")?,
        })
    };
    entries.filter_map(disk).collect()
}

/// Returns the file of an inserted medium; `None` if QEMU names none. QEMU names some files as `json:{...}`.
fn file(inserted: &Value) -> Option<String> {
    let image = inserted.get("image").and_then(|image| image.get("filename")).and_then(Value::as_str);
    let file = image.or_else(|| inserted.get("file").and_then(Value::as_str))?;
    match file.strip_prefix("json:") {
        Some(text) => {
            let tree: Value = serde_json::from_str(text).ok()?;
            super::guests::filename(&tree)
        }
        None => Some(file.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_its_counters_and_its_file() {
        let stats = json!([
            { "qdev": "/machine/peripheral/disk0/virtio-backend", "device": "", "node-name": "n",
              "stats": { "rd_operations": 3, "wr_operations": 2, "rd_bytes": 4096, "wr_bytes": 8192,
                         "rd_total_time_ns": 300, "wr_total_time_ns": 500 } },
            { "device": "cd0", "stats": { "rd_operations": 0, "wr_operations": 0, "rd_bytes": 0, "wr_bytes": 0,
                         "rd_total_time_ns": 0, "wr_total_time_ns": 0 } },
        ]);
        let nodes = json!([
            { "device": "", "qdev": "/machine/peripheral/disk0/virtio-backend",
              "inserted": { "image": { "filename": "json:{\"driver\":\"qcow2\",\"file\":{\"filename\":\"/srv/a\"}}" } } },
            { "device": "cd0", "removable": true },
        ]);
        let found = disks(&stats, &nodes);
        let [disk] = &found[..] else { panic!("a drive without a medium is none: {found:?}") };
        assert_eq!((disk.name.as_str(), disk.path.as_deref()), ("disk0/virtio-backend", Some("/srv/a")));
        assert_eq!((disk.reads, disk.read_ns, disk.write_bytes), (3, 300, 8192));
    }
}
