//! Tests of a directory that is renamed or unmounted while a run has files in it: they are still removed, or reported.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::disk::{Disk, run, uses_of};
use crate::lab::{Lab, start_until, text};
use crate::ssh::start_plan;
use crate::sshd::Sshd;

fn plan_of(file: &Path) -> String {
    format!(
        "repeat = 1\n[[target]]\nname = 't'\npath = '{}'\n[[workload]]\nrw = 'randread'\nsize = '8m'\nruntime = '1s'\n\
         ramp_time = '0s'\n",
        file.display()
    )
}

/// Starts a run with a new file in a directory of the lab, and waits for its first measurement.
fn start(lab: &Lab, directory: &Path) -> Child {
    let plan = lab.plan(&plan_of(&directory.join("new")));
    start_until(lab.iotax().arg("run").arg(plan).arg("--yes"), "cell 1/")
}

/// A way to take a directory away and bring it back.
trait Removal {
    fn away(&self);
    fn back(&self);
    /// Returns the current path of its contents; may bring the directory back for that.
    fn contents_path(&self) -> PathBuf;
}

struct Renamed(PathBuf);

impl Renamed {
    fn other(&self) -> PathBuf {
        self.0.with_extension("renamed")
    }
}

impl Removal for Renamed {
    fn away(&self) {
        fs::rename(&self.0, self.other()).expect("renamed");
    }

    fn back(&self) {
        fs::rename(self.other(), &self.0).expect("renamed");
    }

    fn contents_path(&self) -> PathBuf {
        self.other()
    }
}

/// A filesystem of the user's.
struct Unmounted {
    disk: Disk,
    point: PathBuf,
}

impl Unmounted {
    fn new(lab: &Lab) -> Option<Self> {
        // A gigabyte always stays free.
        let disk = Disk::new(2 << 30)?;
        run("mkfs.ext4", &["-q".as_ref(), disk.node.as_path()]);
        let point = lab.path("mnt");
        fs::create_dir(&point).expect("made");
        let made = Self { disk, point };
        made.back();
        fs::remove_dir(made.point.join("lost+found")).expect("removed");
        Some(made)
    }
}

impl Removal for Unmounted {
    fn away(&self) {
        run("umount", &["-l".as_ref(), self.point.as_path()]);
    }

    fn back(&self) {
        run("mount", &[self.disk.node.as_path(), self.point.as_path()]);
    }

    fn contents_path(&self) -> PathBuf {
        self.back();
        self.point.clone()
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        // A process that inspects a new file may have it open for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
    }
}

fn list(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path()).collect()
}

/// Tests a run whose directory is away at its end.
fn removed_at_the_end(lab: &Lab, directory: &Path, removal: &dyn Removal) {
    let mut child = start(lab, directory);
    removal.away();
    child.wait().expect("ended");
    assert_eq!(list(&removal.contents_path()), Vec::<PathBuf>::new(), "a file is left");
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert!(text(&clean.stdout).contains("nothing was left behind"), "{}", text(&clean.stdout));
}

/// Tests a run that is killed while the directory is away.
fn reported_until_it_is_back(lab: &Lab, directory: &Path, removal: &dyn Removal) {
    let mut child = start(lab, directory);
    removal.away();
    child.kill().expect("killed");
    child.wait().expect("ended");
    let dry = lab.run(&["clean", "--dry-run"]);
    let hindered = "new, but not as things are: it cannot be found";
    assert!(text(&dry.stdout).contains(hindered), "{}", text(&dry.stdout));
    for _ in 0..2 {
        let clean = lab.run(&["clean"]);
        let said = text(&clean.stdout);
        assert_eq!(clean.status.code(), Some(4), "{said}");
        let expected = format!("not undone: file {}", directory.join("new").display());
        assert!(
            said.contains(&expected) && said.contains("no longer the directory that it was made in"),
            "{said}"
        );
        assert!(said.contains("inode ") && said.contains("--forget"), "{said}");
    }
    removal.back();
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert_eq!(list(directory), Vec::<PathBuf>::new(), "a file is left");
    lab.assert_nothing_left();
}

#[test]
fn a_directory_that_is_renamed() {
    let lab = Lab::new();
    let directory = lab.path("dir");
    fs::create_dir(&directory).expect("made");
    let removal = Renamed(directory.clone());
    removed_at_the_end(&lab, &directory, &removal);
    removal.back();
    reported_until_it_is_back(&lab, &directory, &removal);
}

#[test]
fn a_file_that_is_moved_to_another_directory_after_a_kill() {
    let lab = Lab::new();
    let directory = lab.path("dir");
    fs::create_dir(&directory).expect("made");
    let mut child = start(&lab, &directory);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let (new, mine) = (directory.join("new"), lab.path("mine"));
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&new).expect("there"));
    fs::rename(&new, &mine).expect("renamed");
    for _ in 0..2 {
        let clean = lab.run(&["clean"]);
        let said = text(&clean.stdout);
        assert_eq!(clean.status.code(), Some(4), "{said}");
        let expected = format!("not undone: file {}: it is not there any more", new.display());
        assert!(said.contains(&expected) && said.contains(&format!("-xdev -inum {inode}\n")), "{said}");
    }
    fs::remove_file(&mine).expect("removed");
    let forgotten = lab.run(&["clean", "--forget"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stdout));
    lab.assert_nothing_left();
}

#[test]
fn a_filesystem_that_is_lazily_unmounted() {
    let lab = Lab::new();
    let Some(removal) = Unmounted::new(&lab) else { return };
    let directory = removal.point.clone();
    removed_at_the_end(&lab, &directory, &removal);
    reported_until_it_is_back(&lab, &directory, &removal);
}

/// Covers kills before the fill and during a measurement.
#[test]
fn a_run_is_not_resumed_where_its_filesystem_is_not_mounted() {
    for kill_early in [true, false] {
        let lab = Lab::new();
        let Some(removal) = Unmounted::new(&lab) else { return };
        if kill_early {
            lab.plan(&plan_of(&removal.point.join("new")));
            let mut command = lab.iotax();
            command.args(["run", "plan.toml", "--yes"]).env("IOTAX_FAULT", "kill-after@1");
            assert_eq!(command.output().expect("iotax starts").status.code(), None);
        } else {
            let mut child = start(&lab, &removal.point);
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
        assert!(lab.run(&["clean"]).status.success());
        removal.away();
        let refused = lab.run(&["resume", "1", "--yes"]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        let was = format!("{} was on ext4 ({}, rw", removal.point.display(), removal.point.display());
        let remedy = "mount what was there and resume again, or begin a new run";
        assert!(
            [&was, &format!("on {}", loop_name(&removal.disk)), remedy]
                .iter()
                .all(|word| said.contains(*word)),
            "{said}"
        );
        assert_eq!(list(&removal.point), Vec::<PathBuf>::new(), "it wrote below the mount point");
        removal.back();
        let resumed = lab.run(&["resume", "1", "--yes"]);
        assert!(resumed.status.success(), "{}", text(&resumed.stderr));
        assert_eq!(list(&removal.point), Vec::<PathBuf>::new(), "a file is left");
    }
}

fn loop_name(disk: &Disk) -> &str {
    disk.name().trim_start_matches("/dev/")
}

#[test]
fn a_directory_with_a_mount_of_iotaxs_own_that_is_renamed() {
    let lab = Lab::new();
    let Some(disk) = Disk::new(64 << 20) else { return };
    let (scratch, renamed) = (lab.path("scratch"), lab.path("renamed"));
    fs::create_dir(&scratch).expect("made");
    lab.plan(&format!(
        "repeat = 1\n[[target]]\nname = 't'\ndevice = '{}'\nfilesystem = {{ type = 'ext4' }}\nfile = {{}}\n\
         [[workload]]\nrw = 'randread'\nsize = '4m'\nruntime = '100ms'\n",
        disk.name()
    ));
    let mut command = lab.iotax();
    command.args(["run", "plan.toml", "--yes", "--overwrite", disk.name()]).env("TMPDIR", &scratch);
    // Everything it creates exists.
    let killed = command.env("IOTAX_FAULT", "kill-after@7").output().expect("iotax starts");
    assert_eq!(killed.status.code(), None, "{}", text(&killed.stderr));
    assert_eq!(uses_of(&scratch).len(), 1);
    fs::rename(&scratch, &renamed).expect("renamed");
    let clean = lab.run(&["clean"]);
    let said = text(&clean.stdout);
    assert_eq!(uses_of(&lab.path("")), Vec::<String>::new(), "{said}");
    assert_eq!(disk.signatures(), "", "{said}");
    assert_eq!(clean.status.code(), Some(4), "{said}");
    assert!(said.contains("not undone: directory ") && said.contains("undone: mount on "), "{said}");
    fs::rename(&renamed, &scratch).expect("renamed");
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert_eq!(list(&scratch), Vec::<PathBuf>::new());
    lab.assert_nothing_left();
}

#[test]
fn a_directory_that_is_renamed_on_another_machine() {
    let Some(sshd) = Sshd::start("") else { return };
    let (work, renamed) = (sshd.lab.work(), sshd.lab.path("renamed"));
    let mut child = start_plan(&sshd);
    sshd.kill_sessions();
    child.kill().expect("killed");
    child.wait().expect("ended");
    fs::rename(&work, &renamed).expect("renamed");
    let clean = sshd.run(&["clean"]);
    let said = text(&clean.stdout);
    assert_eq!(clean.status.code(), Some(4), "{said}");
    for file in ["here", "there"] {
        let expected = format!("not undone: file {}", work.join(file).display());
        assert!(said.contains(&expected), "{expected:?} is not in: {said}");
    }
    assert!(renamed.join("here").exists() && renamed.join("there").exists());
    fs::rename(&renamed, &work).expect("renamed");
    let clean = sshd.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    sshd.assert_nothing_left();
}

#[test]
fn the_end_of_a_run_tells_what_it_could_not_undo() {
    let lab = Lab::new();
    let directory = lab.path("dir");
    fs::create_dir(&directory).expect("made");
    let mut child = start(&lab, &directory);
    // It is on record, and it is no longer the run's to remove.
    fs::rename(directory.join("new"), lab.path("mine")).expect("renamed");
    let deadline = Instant::now() + Duration::from_mins(1);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(status.code(), Some(3 | 4)), "{status}");
    let left = lab.run(&["clean", "--dry-run"]);
    let said = text(&left.stdout);
    assert!(said.contains("would undo: file ") && said.contains("nothing was done: "), "{said}");
    // It is gone from the only directory that is known to have held it.
    assert!(lab.path("mine").exists());
    fs::rename(lab.path("mine"), directory.join("new")).expect("renamed");
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    assert_eq!(list(&directory), Vec::<PathBuf>::new());
    lab.assert_nothing_left();
}

#[test]
fn a_file_of_the_users_that_is_gone_is_not_replaced_when_its_run_is_resumed() {
    let lab = Lab::new();
    let file = lab.work().join("data");
    fs::write(&file, vec![7; 16 << 20]).expect("written");
    let plan = lab.plan(&plan_of(&file).replace("'1s'", "'100ms'"));
    let first = lab.run(&["run", plan.to_str().expect("text"), "--yes"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let kept = lab.path("kept");
    fs::rename(&file, &kept).expect("renamed");
    let refused = lab.run(&["resume", "1", "--repeat", "2", "--yes"]);
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.contains("is gone; put it back")), (Some(4), true), "{said}");
    assert!(!file.exists(), "nothing was made in its place");
    fs::rename(&kept, &file).expect("renamed");
    let more = lab.run(&["resume", "1", "--repeat", "2", "--yes"]);
    assert!(more.status.success(), "{}", text(&more.stderr));
}
