//! Runs LVM's tools, configured to leave no traces.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{self, RecordedDisk};
use crate::lock::ProcessLock;
use crate::program::{Program, ProgramError};

/// The program that contains all of LVM's commands.
pub const LVM: Program = Program { name: "lvm", package: "lvm2" };

/// A row of a report: the values of the requested fields.
pub type ReportRow = BTreeMap<String, String>;

/// A physical volume that iotax created, identified by its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Physical {
    /// The device node when it was created; absolute, without symbolic links.
    pub device: PathBuf,
    /// The disk at that node.
    pub disk: Option<Box<RecordedDisk>>,
    /// The UUID in LVM's format, passed to pvcreate.
    pub uuid: String,
}

/// The volume group of a logical volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Group {
    /// A new group on this physical volume.
    Own(Box<Physical>),
    /// An existing group of the user, with this UUID.
    Users(String),
}

/// The devices that LVM may use.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// Only this device, overriding the configuration, so that the user's volumes cannot be touched.
    Device(&'a Path),
    /// All devices, overriding the configuration.
    Everything,
    /// The devices of the system's configuration, where the user's groups are.
    Configured,
}

impl Scope<'_> {
    /// The settings that override the system's LVM configuration.
    fn config(self) -> String {
        // No metadata copies in /etc/lvm, no daemon left behind, no hints that a short-lived group makes wrong, no check of a temporary
        // pool.
        let mut sections = vec![
            "backup{backup=0 archive=0} activation{monitoring=0}".to_owned(),
            "devices{hints=\"none\"} global{thin_check_executable=\"\"}".to_owned(),
        ];
        let accepted = match self {
            Self::Device(device) => Some(format!("\"a|^{}$|\", \"r|.*|\"", pattern(device))),
            Self::Everything => Some("\"a|.*|\"".to_owned()),
            Self::Configured => None,
        };
        sections.extend(accepted.map(|accepted| {
            format!("devices{{use_devicesfile=0 global_filter=[\"a|.*|\"] filter=[{accepted}]}}")
        }));
        if !Path::new("/run/udev/control").exists() {
            // There may be no udev to answer: LVM creates the nodes in /dev itself.
            sections
                .push("activation{udev_sync=0 udev_rules=0} devices{obtain_device_list_from_udev=0}".into());
        }
        sections.join(" ")
    }

    /// The arguments of a command that changes something. Run it with [`crate::undo::UndoLog::run`].
    pub fn command(self, command: &str, arguments: &[&str]) -> Vec<String> {
        let mut words = vec![command.to_owned(), "--config".to_owned(), self.config(), "--yes".to_owned()];
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        words
    }

    /// Runs a reporting command (`pvs`, `vgs`, `lvs`) for these fields of the objects that `selection` selects (lvmreport(7)). Sizes are in
    /// bytes.
    pub fn report(
        self,
        command: &str,
        fields: &str,
        selection: &str,
    ) -> Result<Vec<ReportRow>, ProgramError> {
        let config = self.config();
        let form = ["--reportformat", "json", "--units", "b", "--nosuffix"];
        let words = [command, "--config", &config].into_iter().chain(form);
        let said = LVM.run(words.chain(["--options", fields, "--select", selection]))?;
        rows(&said).ok_or_else(|| ProgramError::Failed {
            command: format!("lvm {command}"),
            reason: format!("expected a report in JSON and got {:?}", String::from_utf8_lossy(&said)),
        })
    }
}

/// An LVM filter pattern that matches this path.
fn pattern(path: &Path) -> String {
    let mut pattern = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_ascii_alphanumeric() || "/_-".contains(c) {
            pattern.push(c);
        } else {
            pattern.extend(['[', c, ']']);
        }
    }
    pattern
}

/// The rows of `{"report": [{"lv": [{"lv_name": "a"}, ...]}]}`.
fn rows(json: &[u8]) -> Option<Vec<ReportRow>> {
    let report: Value = serde_json::from_slice(json).ok()?;
    let (_, rows) = report.get("report")?.get(0)?.as_object()?.iter().next()?;
    serde_json::from_value(rows.clone()).ok()
}

/// A numeric field of a row.
pub fn number(row: &ReportRow, field: &str) -> Option<u64> {
    row.get(field)?.parse().ok()
}

impl Physical {
    /// Describes the physical volume `number` of a run, with a UUID derived from the run's random tag.
    #[must_use]
    pub fn new(device: PathBuf, tag: &str, number: usize) -> Self {
        let plain = format!("{:0>32}", format!("iotax{tag}n{number}"));
        let (mut uuid, mut rest) = (String::new(), plain.as_str());
        for length in [6, 4, 4, 4, 4, 4] {
            let (part, after) = rest.split_at(length);
            uuid.extend([part, "-"]);
            rest = after;
        }
        Self { disk: RecordedDisk::of(&device).map(Box::new), device, uuid: uuid + rest }
    }

    /// The node of the device with this UUID; `None` if the original device no longer carries it.
    fn locate(&self) -> io::Result<Option<PathBuf>> {
        let selection = format!("pv_uuid={}", self.uuid);
        let found = |scope: Scope<'_>| -> io::Result<Option<PathBuf>> {
            let rows = scope.report("pvs", "pv_name", &selection).map_err(io::Error::other)?;
            Ok(rows.first().and_then(|row| row.get("pv_name")).map(PathBuf::from))
        };
        if self.device.exists()
            && let Some(device) = found(Scope::Device(&self.device))?
        {
            return Ok(Some(device));
        }
        // After a reboot the device may have another name.
        match found(Scope::Everything)? {
            None if !self.disk.as_ref().is_some_and(|disk| disk.is_at(&self.device)) => {
                Err(io::Error::other(format!(
                    "no device here holds the physical volume {}, and {} is not known to be the one that it was made on;                      plug that in again",
                    self.uuid,
                    self.device.display()
                )))
            }
            found => Ok(found),
        }
    }

    /// Removes the label from the device.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        let Some(device) = self.locate()? else { return Ok(()) };
        change(Scope::Device(&device), "pvremove", &device.to_string_lossy(), lock)?;
        device::blank(&device)
    }

    /// Removes a volume group from the physical volume, if the group exists and has no volumes left.
    pub(crate) fn remove_group(&self, name: &str, lock: &ProcessLock) -> io::Result<()> {
        let Some(device) = self.locate()? else { return Ok(()) };
        let scope = Scope::Device(&device);
        let selection = format!("vg_name={name}");
        let Some(row) = one(scope, "vgs", "lv_count", &selection)? else { return Ok(()) };
        if number(&row, "lv_count") != Some(0) {
            return Err(io::Error::other("there are volumes in it that iotax did not make; left alone"));
        }
        change(scope, "vgremove", name, lock)
    }
}

impl Group {
    /// Removes a logical volume, if it exists.
    pub(crate) fn remove_volume(&self, group: &str, name: &str, lock: &ProcessLock) -> io::Result<()> {
        match self {
            Self::Own(physical) => match physical.locate()? {
                Some(device) => remove_volume(Scope::Device(&device), group, name, lock),
                None => Ok(()),
            },
            Self::Users(uuid) => {
                let selection = format!("vg_uuid={uuid}");
                // The user may have renamed the group.
                let row = one(Scope::Configured, "vgs", "vg_name", &selection)?;
                let now = row.and_then(|row| row.get("vg_name").cloned());
                let now =
                    now.ok_or_else(|| io::Error::other(format!("volume group {group} is not there")))?;
                remove_volume(Scope::Configured, &now, name, lock)
            }
        }
    }
}

fn remove_volume(scope: Scope<'_>, group: &str, name: &str, lock: &ProcessLock) -> io::Result<()> {
    match one(scope, "lvs", "lv_name", &format!("vg_name={group} && lv_name={name}"))? {
        Some(_) => change(scope, "lvremove", &format!("{group}/{name}"), lock),
        None => Ok(()),
    }
}

fn one(scope: Scope<'_>, command: &str, field: &str, selection: &str) -> io::Result<Option<ReportRow>> {
    let rows = scope.report(command, field, selection).map_err(io::Error::other)?;
    Ok(rows.into_iter().next())
}

fn change(scope: Scope<'_>, command: &str, what: &str, lock: &ProcessLock) -> io::Result<()> {
    lock.run(LVM, scope.command(command, &[what])).map(drop).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let json = br#" { "report": [ { "pvseg": [
            {"pv_name":"/dev/vdb", "pe_start":"1048576"}, {"pv_name":"/dev/vdc", "pe_start":""} ] } ] } "#;
        let rows = rows(json).expect("a report");
        assert_eq!(
            (rows.len(), number(&rows[0], "pe_start"), number(&rows[1], "pe_start")),
            (2, Some(1 << 20), None)
        );
        assert_eq!(super::rows(b"WARNING"), None);
    }

    #[test]
    fn only_the_device_itself_passes_the_filter() {
        let config = Scope::Device(Path::new("/dev/disk/by-id/a.b+c")).config();
        assert!(config.contains("filter=[\"a|^/dev/disk/by-id/a[.]b[+]c$|\", \"r|.*|\"]"), "{config}");
        assert!(!Scope::Configured.config().contains("filter"));
    }

    #[test]
    fn a_uuid_has_lvms_form_and_the_runs_tag() {
        let physical = Physical::new("/dev/x".into(), "1a2b3c4d", 7);
        assert_eq!(physical.uuid, "000000-0000-0000-000i-otax-1a2b-3c4dn7");
    }
}
