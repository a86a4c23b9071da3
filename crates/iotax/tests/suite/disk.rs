//! Loop devices as disks for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iotax_testkit::{require, skip};
use tempfile::{NamedTempFile, TempPath};

use crate::lab::text;

/// A loop device on a temporary file that no other process has open; both are removed on drop.
pub(crate) struct Disk {
    pub(crate) node: PathBuf,
    file: TempPath,
}

impl Disk {
    /// Creates a loop device on a sparse file of `bytes`; skips the test if this machine has none.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        require!(program "losetup", "blockdev", "wipefs");
        let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
        file.as_file().set_len(bytes).expect("sized");
        let file = file.into_temp_path();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match attached {
            Ok(output) if output.status.success() => {
                Some(Self { node: text(&output.stdout).trim().into(), file })
            }
            failed => skip!("no loop device: {failed:?}"),
        }
    }

    /// Truncates the file to `bytes`; reads beyond fail from then on.
    pub(crate) fn cut(&self, bytes: u64) {
        let file = fs::OpenOptions::new().write(true).open(&self.file).expect("there");
        file.set_len(bytes).expect("cut");
    }

    /// Path of its device node.
    pub(crate) fn name(&self) -> &str {
        self.node.to_str().expect("UTF-8")
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        run("blockdev", &["--flushbufs".as_ref(), self.node.as_path()]);
        fs::read(&self.file).expect("readable")
    }

    /// Returns the signatures that wipefs(8) finds.
    pub(crate) fn signatures(&self) -> String {
        text(&run("wipefs", &["--no-act".as_ref(), self.node.as_path()])).trim().to_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.node).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} on {} is left over", self.node.display(), self.file.display());
        }
    }
}

/// Runs a command and returns its stdout; panics if it fails.
pub(crate) fn run(program: &str, arguments: &[&Path]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    output.stdout
}

/// Returns the lines of the mount table and the files of loop devices that contain a directory's path.
pub(crate) fn uses_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let devices = fs::read_dir("/sys/block").expect("block devices").flatten();
    let looped =
        devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    mounts.lines().map(str::to_owned).chain(looped).filter(|line| line.contains(&dir)).collect()
}
