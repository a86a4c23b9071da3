//! Runs LVM's commands, configured to leave no traces on the machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::{self, RecordedDisk};
use crate::lock::ProcessLock;
use crate::mapper;
use crate::program::{Program, ProgramError};

/// The program that contains all of LVM's commands.
pub const LVM: Program = Program { name: "lvm", package: "lvm2" };

/// A row of an LVM report: field names and values.
pub type ReportRow = BTreeMap<String, String>;

/// A physical volume that iotax created, as recorded in the undo log; identified by its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Physical {
    /// Path of the device node when iotax created the volume.
    pub device: PathBuf,
    /// The disk that had that device node when iotax created the volume; `None` if it could not be identified.
    pub disk: Option<Box<RecordedDisk>>,
    /// UUID in LVM's format, which iotax passed to pvcreate.
    pub uuid: String,
    /// True if the device is one that iotax made and its data goes with it: a volume that is not found there is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub transient: bool,
}

/// The volume group in which iotax created a logical volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Group {
    /// A new group that iotax created, with its only physical volume.
    Own(Box<Physical>),
    /// An existing group of the user, identified by its UUID.
    Users(String),
}

/// The devices that an LVM command may access.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// Only this device, whatever the system's configuration says, so that the user's volumes cannot be touched.
    Device(&'a Path),
    /// All devices, whatever the system's configuration says.
    Everything,
    /// The devices that the system's configuration allows, where the user's groups are.
    Configured,
}

impl Scope<'_> {
    /// Returns the LVM settings for --config, which override the system's configuration.
    fn config(self) -> String {
        // No metadata copies in /etc/lvm, no daemon left behind, no hints that a short-lived group makes wrong, no check of a temporary
        // pool.
        let mut sections = vec![
            "backup{backup=0 archive=0} activation{monitoring=0}".to_owned(),
            "devices{hints=\"none\"} global{thin_check_executable=\"\"}".to_owned(),
        ];
        // A device of iotax's own may be a logical volume, which LVM ignores by default.
        let accepted = match self {
            Self::Device(device) => Some(format!("\"a|^{}$|\", \"r|.*|\"", pattern(device))),
            Self::Everything => Some("\"a|.*|\"".to_owned()),
            Self::Configured => None,
        };
        sections.extend(accepted.map(|accepted| {
            format!("devices{{use_devicesfile=0 scan_lvs=1 global_filter=[\"a|.*|\"] filter=[{accepted}]}}")
        }));
        if !Path::new("/run/udev/control").exists() {
            // There may be no udev to answer: LVM creates the nodes in /dev itself.
            sections
                .push("activation{udev_sync=0 udev_rules=0} devices{obtain_device_list_from_udev=0}".into());
        }
        sections.join(" ")
    }

    /// Returns the arguments of an LVM command that changes something. Run it with [`crate::undo::UndoLog::run`], so that it holds the
    /// run's lock.
    pub fn command(self, command: &str, arguments: &[&str]) -> Vec<String> {
        let mut words = vec![command.to_owned(), "--config".to_owned(), self.config(), "--yes".to_owned()];
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        words
    }

    /// Runs `pvs`, `vgs` or `lvs` and returns the fields `fields` of the objects that match `selection` (lvmreport(7)). Sizes are in bytes.
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

/// Returns the devices that a volume group is on; empty if they cannot be read.
pub fn devices_of(group: &str) -> Vec<PathBuf> {
    let rows = Scope::Configured.report("pvs", "pv_name", &format!("vg_name={group}")).unwrap_or_default();
    rows.iter().filter_map(|row| row.get("pv_name")).map(PathBuf::from).collect()
}

/// Returns a pattern for LVM's device filter that matches only this path.
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

/// Parses a report such as `{"report": [{"lv": [{"lv_name": "a"}, ...]}]}`.
fn rows(json: &[u8]) -> Option<Vec<ReportRow>> {
    let report: Value = serde_json::from_slice(json).ok()?;
    let (_, rows) = report.get("report")?.get(0)?.as_object()?.iter().next()?;
    serde_json::from_value(rows.clone()).ok()
}

/// Returns a numeric field of a row; `None` if the field is missing or not a number.
pub fn number(row: &ReportRow, field: &str) -> Option<u64> {
    row.get(field)?.parse().ok()
}

impl Physical {
    /// Describes physical volume `number` of a run before it is created, with a UUID derived from the run's random tag.
    #[must_use]
    pub fn new(device: PathBuf, transient: bool, tag: &str, number: usize) -> Self {
        let plain = format!("{:0>32}", format!("iotax{tag}n{number}"));
        let (mut uuid, mut rest) = (String::new(), plain.as_str());
        for length in [6, 4, 4, 4, 4, 4] {
            let (part, after) = rest.split_at(length);
            uuid.extend([part, "-"]);
            rest = after;
        }
        Self { disk: RecordedDisk::of(&device).map(Box::new), device, uuid: uuid + rest, transient }
    }

    /// Returns the path of the device that carries the UUID, which may differ from the recorded one after a reboot.
    /// `None` if the original disk no longer carries it, or if the device that iotax made is gone. Fails if the disk cannot be found.
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
        if self.transient {
            // A loop device that is gone may have stood for a disk, which carries the UUID then.
            return found(Scope::Everything);
        }
        // After a reboot the device may have another name.
        match found(Scope::Everything)? {
            None if !self.disk.as_ref().is_some_and(|disk| disk.is_at(&self.device)) => {
                Err(io::Error::other(format!(
                    "no device here holds the physical volume {}, and {} is not known to be the one that it was made on; plug that in again",
                    self.uuid,
                    self.device.display()
                )))
            }
            found => Ok(found),
        }
    }

    /// Removes LVM's label from the device and zeroes the ends of the device; does nothing if the disk no longer carries the UUID. Fails if
    /// the disk cannot be found.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        let Some(device) = self.locate()? else { return Ok(()) };
        change(Scope::Device(&device), "pvremove", &device.to_string_lossy(), lock)?;
        device::blank(&device)
    }

    /// Removes a volume group on this physical volume; does nothing if the group or the physical volume is missing. Fails if the group
    /// still has logical volumes, or if the disk cannot be found. Volumes of a group that is gone are removed from the kernel.
    pub(crate) fn remove_group(&self, name: &str, lock: &ProcessLock) -> io::Result<()> {
        let Some(device) = self.locate()? else { return mapper::remove_volumes(name, lock) };
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
    /// Removes a logical volume; does nothing if it is missing. Fails if the user's group, or the disk of a group that iotax created,
    /// cannot be found.
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
    fn what_was_on_a_device_that_went_with_its_run_is_gone() {
        let physical = Physical::new("/dev/none".into(), true, "1a2b3c4d", 0);
        assert_eq!(physical.locate().expect("no disk is looked for"), None);
    }

    #[test]
    fn a_uuid_has_lvms_form_and_the_runs_tag() {
        let physical = Physical::new("/dev/x".into(), false, "1a2b3c4d", 7);
        assert_eq!(physical.uuid, "000000-0000-0000-000i-otax-1a2b-3c4dn7");
    }
}
