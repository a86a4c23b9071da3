//! Limits a plan from another person to certain directories of this machine.

use std::fmt;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::plan::{Action, Design, Neighbour, WatchSpec};
use iotax_model::target::{Area, TargetSpec};
use iotax_model::workload::Workload;

use super::{Failure, usage};

/// The directories, with links resolved, in which files may be created.
#[derive(Debug)]
pub(super) struct Directories(Vec<PathBuf>);

impl Directories {
    /// Resolves the directories of `--confine`; `None` without the flag. Fails for a path that is not a directory.
    pub(super) fn of(directories: &[PathBuf]) -> Result<Option<Self>, Failure> {
        let resolved = |directory: &PathBuf| {
            let found = directory.canonicalize().ok().filter(|found| found.is_dir());
            found.ok_or_else(|| usage(format!("--confine {}: this is not a directory", directory.display())))
        };
        let resolved = directories.iter().map(resolved).collect::<Result<Vec<_>, _>>()?;
        Ok((!resolved.is_empty()).then_some(Self(resolved)))
    }

    /// Refuses a plan that does anything but create and read files in the directories. The plan's paths must be absolute. Structs are
    /// destructured in full, so that a new key of a plan does not compile until it is considered here.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), Failure> {
        self.plan(plan).map_err(|reason| usage(format!("{self}: the plan goes beyond it: {reason}")))
    }

    /// Resolves the links in the path of a file to read. Refuses a file outside of the directories. Does not read the file.
    pub(super) fn readable(&self, file: &Path) -> Result<PathBuf, String> {
        let found =
            file.canonicalize().ok().filter(|found| self.0.iter().any(|area| found.starts_with(area)));
        found.ok_or_else(|| format!("{self}: there is no such file in it, and a file elsewhere is not read"))
    }

    fn plan(&self, plan: &Plan) -> Result<(), String> {
        let Plan {
            design,
            targets,
            workloads,
            neighbours,
            name: _,
            suite: _,
            repeat: _,
            margin: _,
            baseline: _,
            control: _,
            seed: _,
            require: _,
        } = plan;
        match design {
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::UntilSteady(_)
            | Design::Curve(_)
            | Design::Ask(_) => {}
            Design::Watch(WatchSpec {
                events,
                require: _,
                late: _,
                control: _,
                copy_iops: _,
                together: _,
            }) => {
                let command = events.iter().find(|event| matches!(event.action, Action::Command(_)));
                if let Some(event) = command {
                    return Err(format!("event {:?} runs a command", event.name));
                }
            }
        }
        targets.iter().try_for_each(|target| self.target(target))?;
        workloads.iter().try_for_each(|workload| self.workload(workload))?;
        neighbours.iter().try_for_each(|Neighbour { target, workload }| {
            self.target(target).and_then(|()| self.workload(workload))
        })
    }

    fn target(&self, target: &TargetSpec) -> Result<(), String> {
        let TargetSpec {
            name,
            stack,
            settings,
            // These concern only other machines.
            sudo: _,
            neighbour: _,
        } = target;
        let refuse = |reason: String| Err(format!("target {name:?}: {reason}"));
        if settings.as_ref().is_some_and(|settings| !settings.is_empty()) {
            return refuse("settings change the kernel's".into());
        }
        stack.layers().iter().try_for_each(|layer| layer.kind().confine(self)).or_else(refuse)
    }

    /// Refuses traces outside of the directories, before they are read.
    pub(super) fn check_traces(&self, plan: &Plan) -> Result<(), Failure> {
        let traces = plan.workloads.iter().filter_map(|workload| workload.read_iolog.as_ref());
        for trace in traces {
            self.readable(Path::new(trace))
                .map_err(|reason| usage(format!("read_iolog = {trace}: {reason}")))?;
        }
        Ok(())
    }

    /// Refuses a workload that drops the machine's caches or writes a journal outside of the directories.
    fn workload(&self, workload: &Workload) -> Result<(), String> {
        if workload.jobs().any(|job| job.invalidate_machine) {
            return Err("invalidate_machine drops the caches of all processes".into());
        }
        for journal in workload.jobs().filter_map(|job| job.write_journal.as_ref()) {
            let path = std::path::absolute(journal).map_err(|error| format!("{journal}: {error}"))?;
            if !self.holds(path.parent()) {
                return Err(format!("write_journal = {journal}: a file would be made there"));
            }
        }
        Ok(())
    }
}

/// Formats the directories as `--confine` flags.
impl fmt::Display for Directories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<String> = self.0.iter().map(|dir| format!("--confine {}", dir.display())).collect();
        f.write_str(&flags.join(" "))
    }
}

impl Area for Directories {
    fn holds(&self, directory: Option<&Path>) -> bool {
        let found = directory.and_then(|directory| directory.canonicalize().ok());
        found.is_some_and(|found| self.0.iter().any(|area| found.starts_with(area)))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use iotax_model::workload::KEYS;
    use tempfile::TempDir;

    use super::*;

    /// Returns the error for a plan with this target, workload and head that is confined to `directory`; `None` if it is accepted.
    fn said(directory: &Path, head: &str, target: &str, workload: &str) -> Option<String> {
        let text = format!("{head}\n[[target]]\nname = 't'\n{target}\n[[workload]]\n{workload}");
        let plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let area = Directories::of(&[directory.to_owned()]).expect("a directory").expect("one");
        area.check(&plan).err().map(|failure| format!("{:#}", failure.error))
    }

    #[test]
    fn somebody_elses_plan_makes_files_in_one_place_and_does_nothing_else() {
        let dir = TempDir::new().expect("temporary directory");
        let inside = dir.path().join("inside");
        std::fs::create_dir(&inside).expect("made");
        symlink("/", inside.join("out")).expect("linked");
        let (io, at) = ("rw = 'randread'", inside.display());
        for target in [
            format!("path = '{at}/new.img'"),
            format!("path = '{}'", std::env::current_exe().expect("this test").display()),
            format!("file = {{ dir = '{at}', format = 'qcow2' }}\nguest = {{ }}"),
            format!("file = {{ dir = '{at}' }}\nloop = {{ }}"),
            "device = '/dev/sdz'".to_owned(),
        ] {
            assert_eq!(said(&inside, "", &target, io), None, "{target}");
        }
        let journal = format!("rw = 'randwrite'\nverify = 'crc32c'\nwrite_journal = '{at}/j'");
        let here = format!("path = '{at}/new.img'");
        assert_eq!(said(&inside, "repeat = 1", &here, &journal), None);
        let command = "[watch]\nevents = [{ name = 'x', command = 'id > /tmp/x' }]";
        let watched = "rw = 'randread'\nrate_iops = 10\nblackout = '100ms'\nruntime = '30s'";
        for (head, target, workload, words) in [
            (command, here.as_str(), watched, "event \"x\" runs a command"),
            ("", &here, "rw = 'randread'\ninvalidate_machine = true", "caches of all processes"),
            ("", "path = '/etc/cron.d/new'", io, "path = /etc/cron.d/new: a file would be made there"),
            ("", &format!("path = '{at}/../new'"), io, "a file would be made there"),
            ("", &format!("path = '{at}/out/new'"), io, "a file would be made there"),
            ("", &format!("file = {{ dir = '{at}/out/tmp' }}"), io, "a file would be made there"),
            ("", "file = { dir = '/tmp' }", io, "file.dir = /tmp"),
            ("", "path = 'ssh://root@elsewhere/x'", io, "on another machine"),
            ("", "path = 'docker://web/x'", io, "in a container"),
            ("", "nbd_export = 'nbd://elsewhere/x'\nvirtio = {}", io, "nbd://elsewhere/x leads to a server"),
            (
                "",
                "image = { path = '/x.qcow2', overlay = '/tmp' }\nvirtio = {}",
                io,
                "image.overlay = /tmp: a file would be made there",
            ),
            ("", "lvm = { vg = 'vg0' }", io, "lvm changes a volume group"),
            ("", &format!("{here}\nsettings = {{ dirty_ratio = 1 }}"), io, "settings change the kernel's"),
            (
                "",
                &format!("file = {{ dir = '{at}' }}\nguest = {{ kernel = '/tmp/vmlinuz' }}"),
                io,
                "guest.kernel = /tmp/vmlinuz",
            ),
            (
                "",
                "network = { via = 'server', peer = 'elsewhere' }",
                "net = { test = 'tcp' }",
                "another machine",
            ),
            (
                "",
                "network = { via = 'remote', peer = 'ssh://elsewhere' }",
                "net = { test = 'tcp' }",
                "another machine",
            ),
            (
                "repeat = 1",
                &here,
                "rw = 'randwrite'\nverify = 'crc32c'\nwrite_journal = '/etc/cron.d/j'",
                "write_journal = /etc/cron.d/j",
            ),
        ] {
            let said = said(&inside, head, target, workload).unwrap_or_default();
            assert!(said.contains(words) && said.contains("--confine"), "{target}: {said}");
        }
    }

    #[test]
    fn no_other_key_of_a_workload_names_a_file() {
        let path_keys = KEYS.iter().filter(|key| ["FILE", "PATH", "DIR"].contains(&key.value));
        assert_eq!(path_keys.map(|key| key.name).collect::<Vec<_>>(), ["write_journal", "read_iolog"]);
    }
}
