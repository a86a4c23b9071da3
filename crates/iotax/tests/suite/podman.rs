//! Tests of targets in containers of a real Podman.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Output};
use std::time::Duration;

use iotax_testkit::{program, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, assert_valid, spawn_until, text};
use crate::ssh::await_end;

/// Programs that Podman needs.
const PROGRAMS: &[&str] = &["podman", "crun", "busybox", "unshare", "mount", "tar", "sh"];
/// Programs that the agent needs in a container.
const TOOLS: &[&str] = &[
    "sh",
    "cat",
    "chmod",
    "cp",
    "df",
    "find",
    "head",
    "id",
    "kill",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "printf",
    "readlink",
    "rm",
    "rmdir",
    "sha256sum",
    "sleep",
    "stat",
    "test",
    "touch",
    "true",
    "uname",
    "wc",
];
const SHORT: &[&str] = &["--runtime", "300ms", "--ramp-time", "0s", "--size", "8m"];

/// A Podman with images, containers and state in the lab. Containers are stopped on drop.
struct Podman {
    lab: Lab,
}

impl Podman {
    /// Returns `None` and prints the reason if this machine has no Podman.
    fn new() -> Option<Self> {
        require!(programs PROGRAMS);
        // Rootless containers need features that this test does not require.
        require!(root);
        let lab = Lab::new();
        for dir in ["bin", "run", "var"] {
            fs::create_dir(lab.path(dir)).expect("made");
        }
        // Limits that need no right to raise them.
        let config = "[containers]\ncgroups = \"disabled\"\nnetns = \"none\"\n\
                      default_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]\n\
                      [engine]\nruntime = \"crun\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nlock_type = \"file\"\n";
        fs::write(lab.path("containers.conf"), config).expect("written");
        // crun does not support cgroup v1 and v2 at the same time.
        let script = format!(
            "#!/bin/sh\nexport CONTAINERS_CONF=LAB/containers.conf\nexec unshare --mount sh -c '\n\
             umount /sys/fs/cgroup/unified 2>/dev/null\nmount --bind LAB/run /run && mount --bind LAB/var /var/lib && \
             exec {} --storage-driver vfs \"$@\"' sh \"$@\"\n",
            program("podman").display()
        );
        let path = lab.path("bin/podman");
        let lab_dir = lab.path("").display().to_string();
        fs::write(&path, script.replace("LAB/", &lab_dir)).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        let podman = Self { lab };
        podman.import("tools", TOOLS);
        Some(podman)
    }

    /// Builds an image with these programs.
    fn import(&self, name: &str, tools: &[&str]) {
        let root = self.lab.path(name);
        for dir in ["bin", "data", "root", "tmp"] {
            fs::create_dir_all(root.join(dir)).expect("made");
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).expect("everybody's");
        fs::copy(program("busybox"), root.join("bin/busybox")).expect("copied");
        for tool in tools {
            symlink("busybox", root.join("bin").join(tool)).expect("linked");
        }
        let archive = self.lab.path(&format!("{name}.tar")).display().to_string();
        let made =
            Command::new("tar").args(["-C", &root.display().to_string(), "-cf", &archive, "."]).status();
        assert!(made.expect("tar starts").success());
        self.podman(&["import", &archive, name]);
    }

    fn podman(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.lab.path("bin/podman")).args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts an idle container.
    fn start(&self, name: &str, image: &str, more: &[&str]) {
        let run = ["run", "-d", "--name", name];
        self.podman(&[&run, more, &[image, "/bin/busybox", "sleep", "100000"]].concat());
    }

    fn iotax(&self) -> Command {
        let mut command = self.lab.iotax();
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", self.lab.path("bin").display()));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    /// Returns the files in the container that an agent may have created.
    fn found(&self, name: &str) -> String {
        self.podman(&["exec", name, "find", "/data", "/tmp", "/dev/shm", "/root", "-mindepth", "1"])
    }

    fn assert_nothing_left(&self, name: &str) {
        self.lab.assert_nothing_left();
        assert_eq!(self.found(name), "", "left in the container");
    }

    /// Starts a plan with a target in the container, and waits for its first measurement.
    fn start_plan(&self) -> Child {
        let plan = self.lab.plan(
            "repeat = 2\nseed = 3\n[[target]]\nname = 'there'\npath = 'podman://web/data/there'\n[[workload]]\n\
             name = 'w'\nrw = 'randread'\nsize = '8m'\nruntime = '2s'\nramp_time = '0s'\n",
        );
        let is_time = |said: &str| said.contains("cell 1/");
        let (child, _, rest) = spawn_until(self.iotax().arg("run").arg(plan).arg("--yes"), is_time);
        std::thread::spawn(move || rest.for_each(drop));
        std::thread::sleep(Duration::from_millis(500));
        child
    }

    /// Kills a run and its processes in the container.
    fn kill_both(&self, mut child: Child) {
        // The runner must not see its agent end.
        kill_process(Pid::from_child(&child), Signal::STOP).expect("stopped");
        self.podman(&["exec", "web", "sh", "-c", "kill -9 -1"]);
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ =
            Command::new(self.lab.path("bin/podman")).args(["rm", "--all", "--force", "--time=0"]).output();
    }
}

#[test]
fn a_file_in_a_container_is_measured_and_nothing_is_left() {
    let Some(podman) = Podman::new() else { return };
    podman.start("web", "tools", &[]);
    let new = podman
        .run(&[&["bench", "podman://web/data/new", "--rw", "randwrite", "--json", "-"], SHORT].concat());
    assert!(new.status.success(), "{}", text(&new.stderr));
    podman.assert_nothing_left("web");
    let run: Value = serde_json::from_slice(&new.stdout).expect("JSON");
    assert_valid(&run);
    let layers = run["targets"][0]["layers"].as_array().expect("layers");
    let container = layers.last().expect("one");
    assert_eq!((&container["kind"], &container["name"]), (&"container".into(), &"web".into()), "{layers:?}");
    let detail = container["detail"].as_str().expect("text");
    assert!(detail.contains("by podman; kernel, CPUs and page cache are its host's, round trip"), "{detail}");

    podman.podman(&["exec", "web", "sh", "-c", "head -c 1048576 /bin/busybox >/data/existing"]);
    let read =
        podman.run(&["bench", "podman://web/data/existing", "--runtime", "300ms", "--ramp-time", "0s"]);
    assert!(read.status.success(), "{}", text(&read.stderr));
    let refused = podman.run(&["bench", "podman://web/data/existing", "--rw", "write", "--runtime", "300ms"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(podman.found("web"), "/data/existing\n");

    let survey = podman.run(&["doctor", "podman://web/data/existing", "--json"]);
    assert!(survey.status.success(), "{}", text(&survey.stderr));
    assert_eq!(podman.found("web"), "/data/existing\n");
}

#[test]
fn killed_on_one_side_or_both_it_can_be_cleaned() {
    let Some(podman) = Podman::new() else { return };
    podman.start("web", "tools", &[]);
    // The agent notices the end of its stream and removes its files.
    let mut child = podman.start_plan();
    child.kill().expect("killed");
    child.wait().expect("ended");
    await_end(|| podman.found("web").is_empty());
    let clean = podman.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stderr));
    podman.assert_nothing_left("web");

    let child = podman.start_plan();
    podman.kill_both(child);
    let found = podman.found("web");
    assert!(found.contains("/data/there\n") && found.contains("/tmp/iotax-"), "{found}");
    let dry = podman.run(&["clean", "--dry-run"]);
    assert!(text(&dry.stdout).contains("on podman://web for /data/there"), "{}", text(&dry.stdout));
    let clean = podman.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stderr));
    podman.assert_nothing_left("web");
}

#[test]
fn of_a_container_that_stopped_or_is_gone_it_is_said_what_may_be_left() {
    let Some(podman) = Podman::new() else { return };
    podman.start("web", "tools", &[]);
    let mut child = podman.start_plan();
    podman.podman(&["kill", "web"]);
    assert_eq!(child.wait().expect("ended").code(), Some(3));
    let refused = podman.run(&["clean"]);
    let said = text(&refused.stdout) + &text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("podman://web") && said.contains("start the container first"), "{said}");
    podman.podman(&["start", "web"]);
    let clean = podman.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stderr));
    podman.assert_nothing_left("web");

    let child = podman.start_plan();
    podman.kill_both(child);
    podman.podman(&["rm", "--force", "--time=0", "web"]);
    podman.start("web", "tools", &[]);
    let refused = podman.run(&["clean"]);
    let said = text(&refused.stdout) + &text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(
        said.contains("in a container that was started anew since: what the agent made may be left"),
        "{said}"
    );
    let forgotten = podman.run(&["clean", "--forget"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    podman.assert_nothing_left("web");
}

#[test]
fn a_container_that_cannot_be_measured_in_is_refused_with_the_remedy() {
    let Some(podman) = Podman::new() else { return };
    podman.import("bare", &[]);
    podman.start("web", "tools", &[]);
    podman.start("bare", "bare", &[]);
    podman.start("fixed", "tools", &["--read-only", "--read-only-tmpfs=false"]);
    podman.podman(&["create", "--name", "idle", "tools", "/bin/busybox", "sleep", "1"]);
    for (target, words) in [
        ("podman://none/data/new", "check the container's name"),
        ("podman://idle/data/new", "start the container first"),
        ("podman://bare/data/new", "iotax needs a POSIX shell (sh) in the container"),
        ("podman://fixed/data/new", "create the container with a writable /tmp"),
        ("podman://65534@web/data/new", "cannot create files there"),
        ("podman://web/missing/new", "/missing"),
        ("podman://web", "no path; accepted: podman://[user@]container/path"),
        ("podman://-v/x", "accepted: podman://[user@]container/path"),
    ] {
        let refused = podman.run(&[&["bench", target], SHORT].concat());
        let said = text(&refused.stderr);
        assert!(matches!(refused.status.code(), Some(2 | 4)), "{target}: {:?}: {said}", refused.status);
        assert!(said.contains(words), "{target}: {said}");
        podman.assert_nothing_left("web");
    }
}
