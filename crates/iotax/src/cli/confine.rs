//! Plans of somebody else: what they may do here.

use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::plan::{Action, Design, Neighbour, WatchSpec};
use iotax_model::target::{
    DeviceSpec, FileSpec, FilterSpec, FuseSpec, GuestSpec, ImageSpec, LoopSpec, NbdSpec, NetworkSpec,
    PathSpec, PlannedLayer, Remote, TargetSpec, VirtioSpec,
};
use iotax_model::workload::Workload;

use super::{Failure, usage};

/// Refuses a plan that does more than to make files below some directories and to read what is there. The plan's paths are absolute.
///
/// Structs are taken apart in full, so that a new key of a plan does not compile until somebody has judged it.
pub(super) fn check(plan: &Plan, directories: &[PathBuf]) -> Result<(), Failure> {
    let resolved = |directory: &PathBuf| {
        let found = directory.canonicalize().ok().filter(|found| found.is_dir());
        found.ok_or_else(|| usage(format!("--confine {}: this is not a directory", directory.display())))
    };
    let area = Area(directories.iter().map(resolved).collect::<Result<_, _>>()?);
    area.plan(plan).map_err(|reason| {
        let flags: Vec<String> =
            directories.iter().map(|dir| format!("--confine {}", dir.display())).collect();
        usage(format!("{}: the plan goes beyond it: {reason}", flags.join(" ")))
    })
}

/// The directories that files may be made in, without links.
struct Area(Vec<PathBuf>);

impl Area {
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
        } = plan;
        match design {
            Design::FixedRounds | Design::UntilDecided(_) | Design::Curve(_) | Design::Ask(_) => {}
            Design::Watch(WatchSpec { events, require: _, late: _, control: _, together: _ }) => {
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
            // Of another machine alone.
            sudo: _,
            neighbour: _,
        } = target;
        let refuse = |reason: String| Err(format!("target {name:?}: {reason}"));
        if settings.as_ref().is_some_and(|settings| !settings.is_empty()) {
            return refuse("settings change the kernel's".into());
        }
        stack.layers().iter().try_for_each(|layer| self.layer(layer)).or_else(refuse)
    }

    fn layer(&self, layer: &PlannedLayer) -> Result<(), String> {
        match layer {
            PlannedLayer::Path(PathSpec(path)) => self.path(path),
            PlannedLayer::Lvm(_) => Err("lvm changes a volume group".into()),
            PlannedLayer::Filesystem(_) => Err("filesystem mounts one".into()),
            PlannedLayer::Overlay(_) => Err("overlay mounts one".into()),
            PlannedLayer::File(file) => self.file(file),
            // A device is only read: there is no permission to overwrite it.
            PlannedLayer::Device(DeviceSpec(_))
            | PlannedLayer::Filter(FilterSpec { kind: _, iops: _, rate: _, errors: _ })
            | PlannedLayer::Nbd(NbdSpec { server: _, cache: _, aio: _, delay: _ })
            | PlannedLayer::Fuse(FuseSpec { cache: _, aio: _ })
            | PlannedLayer::Virtio(VirtioSpec { cache: _, aio: _, queues: _, iothread: _ })
            | PlannedLayer::Loop(LoopSpec { direct_io: _ }) => Ok(()),
            // So is an image.
            PlannedLayer::Image(ImageSpec { path: _, overlay }) => {
                match overlay.as_ref().filter(|dir| !self.holds(Some(dir))) {
                    Some(dir) => {
                        Err(format!("image.overlay = {}: a file would be made there", dir.display()))
                    }
                    None => Ok(()),
                }
            }
            PlannedLayer::NbdExport(export) => Err(format!("{export} leads to a server")),
            PlannedLayer::Network(network) => network_is_local(network),
            PlannedLayer::Guest(guest) => Self::guest(guest),
        }
    }

    /// Existing files are only read.
    fn path(&self, path: &Path) -> Result<(), String> {
        if Remote::is_meant(path) {
            return Err("it is on another machine".into());
        }
        if !path.exists() && !self.holds(path.parent()) {
            return Err(format!("path = {}: a file would be made there", path.display()));
        }
        Ok(())
    }

    fn file(&self, file: &FileSpec) -> Result<(), String> {
        let FileSpec {
            dir,
            format: _,
            preallocation: _,
            cluster_size: _,
            extended_l2: _,
            lazy_refcounts: _,
            data_file: _,
            subformat: _,
            l2_cache_size: _,
            snapshot: _,
            backing_depth: _,
        } = file;
        match dir.as_ref().filter(|dir| !self.holds(Some(dir))) {
            Some(dir) => Err(format!("file.dir = {}: a file would be made there", dir.display())),
            None => Ok(()),
        }
    }

    fn guest(guest: &GuestSpec) -> Result<(), String> {
        let GuestSpec {
            kernel,
            bus: _,
            cache: _,
            aio: _,
            discard: _,
            vcpus: _,
            memory: _,
            iothread: _,
            queues: _,
            machine: _,
            filesystem: _,
            count: _,
        } = guest;
        match kernel {
            Some(kernel) => Err(format!("guest.kernel = {}: a program of its own", kernel.display())),
            None => Ok(()),
        }
    }

    /// `write_journal` is the one key of a workload that names a file.
    fn workload(&self, workload: &Workload) -> Result<(), String> {
        if workload.jobs().any(|job| job.invalidate_machine) {
            return Err("invalidate_machine drops everybody's caches".into());
        }
        for journal in workload.jobs().filter_map(|job| job.write_journal.as_ref()) {
            let path = std::path::absolute(journal).map_err(|error| format!("{journal}: {error}"))?;
            if !self.holds(path.parent()) {
                return Err(format!("write_journal = {journal}: a file would be made there"));
            }
        }
        Ok(())
    }

    /// Returns whether a directory is one of them or below one, wherever links on the way lead.
    fn holds(&self, directory: Option<&Path>) -> bool {
        let found = directory.and_then(|directory| directory.canonicalize().ok());
        found.is_some_and(|found| self.0.iter().any(|area| found.starts_with(area)))
    }
}

/// Refuses a network path that leaves this machine.
fn network_is_local(network: &NetworkSpec) -> Result<(), String> {
    let NetworkSpec { via, nic: _, queues: _, vhost: _, mtu: _, peer: _, bind: _, cport: _, auth: _ } =
        network;
    if via.is_given() {
        return Err(format!("network.via = \"{via}\" leads to another machine"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use iotax_model::workload::KEYS;
    use tempfile::TempDir;

    use super::*;

    /// The verdict on a plan with this target, workload and head that is confined to `directory`.
    fn said(directory: &Path, head: &str, target: &str, workload: &str) -> Option<String> {
        let text = format!("{head}\n[[target]]\nname = 't'\n{target}\n[[workload]]\n{workload}");
        let plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        check(&plan, &[directory.to_owned()]).err().map(|failure| format!("{:#}", failure.error))
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
            ("", &here, "rw = 'randread'\ninvalidate_machine = true", "everybody's caches"),
            ("", "path = '/etc/cron.d/new'", io, "path = /etc/cron.d/new: a file would be made there"),
            ("", &format!("path = '{at}/../new'"), io, "a file would be made there"),
            ("", &format!("path = '{at}/out/new'"), io, "a file would be made there"),
            ("", &format!("file = {{ dir = '{at}/out/tmp' }}"), io, "a file would be made there"),
            ("", "file = { dir = '/tmp' }", io, "file.dir = /tmp"),
            ("", "path = 'ssh://root@elsewhere/x'", io, "on another machine"),
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
        let places = KEYS.iter().filter(|key| ["FILE", "PATH", "DIR"].contains(&key.value));
        assert_eq!(places.map(|key| key.name).collect::<Vec<_>>(), ["write_journal"]);
    }
}
