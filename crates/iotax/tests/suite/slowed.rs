//! Runs programs in a control group that limits their IOPS.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

use crate::lab::Lab;

/// A control group; removed on drop, after its processes have ended.
pub(crate) struct Slowed {
    group: PathBuf,
}

impl Slowed {
    /// Creates a group, distinguished by `number`, that limits reads and writes of the disk with `file`. The error names a missing feature
    /// of this machine.
    pub(crate) fn new(file: &Path, iops: u64, number: usize) -> Result<Self, String> {
        let disk = disk_of(file)?;
        let (parent, settings) = controller(&disk, iops)?;
        let group = parent.join(format!("iotax-test-{}-{number}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let slowed = Self { group };
        for (name, value) in settings {
            let path = slowed.group.join(name);
            fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(slowed)
    }

    /// A command that enters the group and executes `program` with all arguments.
    pub(crate) fn program(&self, lab: &Lab, name: &str, program: &Path) -> PathBuf {
        let (path, procs) = (lab.path(name), self.group.join("cgroup.procs"));
        let script =
            format!("#!/bin/sh\necho $$ >'{}'\nexec '{}' \"$@\"\n", procs.display(), program.display());
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        // The kernel knows a process that has ended for a moment longer.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = fs::remove_dir(&self.group) {
            if Instant::now() > deadline {
                eprintln!("{} is left over: {error}", self.group.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the device number of the whole disk, because limits do not apply to partitions.
fn disk_of(file: &Path) -> Result<String, String> {
    let device = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.st_dev();
    let number = format!("{}:{}", major(device), minor(device));
    let lacks = |error| format!("{} is on no block device, {number}: {error}", file.display());
    let mut block = fs::canonicalize(Path::new("/sys/dev/block").join(&number)).map_err(lacks)?;
    if block.join("partition").exists() {
        block.pop();
    }
    fs::read_to_string(block.join("dev")).map(|number| number.trim().to_owned()).map_err(lacks)
}

/// Files of a group, and the text to write to each.
type Settings = Vec<(&'static str, String)>;

/// Returns the directory for groups and the settings to write, for cgroup v1 or v2.
fn controller(disk: &str, iops: u64) -> Result<(PathBuf, Settings), String> {
    let first = Path::new("/sys/fs/cgroup/blkio");
    if first.join("cgroup.procs").exists() {
        let limit = format!("{disk} {iops}");
        let names = ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];
        return Ok((first.to_owned(), names.map(|name| (name, limit.clone())).to_vec()));
    }
    let second = Path::new("/sys/fs/cgroup");
    let enabled = fs::read_to_string(second.join("cgroup.subtree_control")).unwrap_or_default();
    if enabled.split_whitespace().any(|word| word == "io") {
        return Ok((second.to_owned(), vec![("io.max", format!("{disk} riops={iops} wiops={iops}"))]));
    }
    Err("no control group can limit a disk: neither blkio nor io is there".into())
}
