//! A real sshd in a separate network namespace that accepts the lab's key.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use iotax_testkit::{program, require};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Lab, start_until, text};

/// Port, unused in the new namespace.
pub(crate) const PORT: u16 = 2222;

/// Programs that sshd needs.
const PROGRAMS: &[&str] = &["ssh", "sshd", "ssh-keygen", "ip", "unshare", "nsenter", "mount", "sh"];

/// A running sshd; killed with its sessions on drop.
pub(crate) struct Sshd {
    pub(crate) lab: Lab,
    child: Child,
}

impl Sshd {
    /// Starts sshd. Returns `None` and prints the reason if this machine has none or cannot create a namespace. `setup` is a shell command
    /// that runs first, in a mount namespace of the remote side; `LAB` stands for the lab's directory.
    pub(crate) fn start(setup: &str) -> Option<Self> {
        require!(programs PROGRAMS);
        // Namespaces are its own to make.
        require!(root);
        let lab = Lab::new();
        let lab_dir = lab.path("").display().to_string();
        for dir in ["cache", "tmp"] {
            fs::create_dir(lab.path(dir)).expect("made");
        }
        make_client(&lab, PORT);
        let config = format!(
            "Port {PORT}\nListenAddress 127.0.0.1\nAuthorizedKeysFile LAB/ssh/authorized\nSetEnv XDG_CACHE_HOME=LAB/cache \
             TMPDIR=LAB/tmp\n{}",
            sshd_config("LAB/ssh/host")
        );
        fs::write(lab.path("ssh/sshd_config"), config.replace("LAB/", &lab_dir)).expect("written");
        let start = format!(
            "ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && {} && exec {} -D -e -f LAB/ssh/sshd_config",
            if setup.is_empty() { ":" } else { setup },
            // It insists on being started by its full path.
            program("sshd").display(),
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", &start.replace("LAB/", &lab_dir)]).stdin(Stdio::null());
        let child = start_until(&mut command, "Server listening");
        let sshd = Self { lab, child };
        sshd.let_in("");
        Some(sshd)
    }

    /// Authorizes the lab's key, with options of authorized_keys(5).
    pub(crate) fn let_in(&self, options: &str) {
        let key = fs::read_to_string(self.lab.path("ssh/user.pub")).expect("made");
        fs::write(self.lab.path("ssh/authorized"), format!("{options} {key}")).expect("written");
    }

    /// The tested binary, on the remote side of the namespace's loopback.
    pub(crate) fn iotax(&self) -> Command {
        let plain = client(&self.lab);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.child.id())).arg(plain.get_program());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.lab.path(""));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    /// Returns the URL of a path in the lab.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ssh://root@127.0.0.1:{PORT}{}", self.lab.path(path).display())
    }

    /// Runs a shell command on the remote side, as root.
    pub(crate) fn sh(&self, line: &str) {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.child.id().to_string(), "sh", "-c", line]);
        let output = command.output().expect("nsenter starts");
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    }

    /// Kills its sessions and their processes.
    pub(crate) fn kill_sessions(&self) {
        // Children of an ended process are reparented, so all processes are collected before any is killed. All are stopped first, so that
        // none notices the end of another.
        let found = descendants(self.child.id());
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in &found {
                let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Kills only the sessions, as when a connection is lost, not their processes.
    pub(crate) fn cut_connections(&self) {
        for pid in children(self.child.id()) {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Asserts that nothing is left on either side.
    pub(crate) fn assert_nothing_left(&self) {
        self.lab.assert_nothing_left();
        for dir in ["cache", "tmp"] {
            let left: Vec<PathBuf> = fs::read_dir(self.lab.path(dir))
                .expect("there")
                .map(|entry| entry.expect("read").path())
                .collect();
            assert_eq!(left, Vec::<PathBuf>::new(), "left on the other side");
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill_sessions();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The configuration of every sshd here: it admits by key only.
pub(crate) fn sshd_config(host_key: &str) -> String {
    format!("HostKey {host_key}\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n")
}

/// Creates a host key and a user key in the lab's directory `ssh`, and an ssh configured for these keys only.
pub(crate) fn make_client(lab: &Lab, port: u16) {
    let lab_dir = lab.path("").display().to_string();
    fs::create_dir(lab.path("ssh")).expect("made");
    ["host", "user"].iter().for_each(|key| make_key(&lab.path("ssh").join(key)));
    let write = |name: &str, content: &str| {
        fs::write(lab.path("ssh").join(name), content.replace("LAB/", &lab_dir)).expect("written");
    };
    write(
        "config",
        "Host *\nIdentityFile LAB/ssh/user\nIdentitiesOnly yes\nGlobalKnownHostsFile none\n\
         UserKnownHostsFile LAB/ssh/known\n",
    );
    let host_key = fs::read_to_string(lab.path("ssh/host.pub")).expect("made");
    write("known", &format!("[127.0.0.1]:{port} {host_key}"));
    // ssh finds its configuration by the user's entry in passwd and ignores HOME.
    write(
        "ssh",
        &format!("#!/bin/sh\nexec {} -F LAB/ssh/config $SSH_OPTIONS \"$@\"\n", program("ssh").display()),
    );
    fs::set_permissions(lab.path("ssh/ssh"), fs::Permissions::from_mode(0o755)).expect("a program");
}

/// The tested binary, with this ssh in PATH.
pub(crate) fn client(lab: &Lab) -> Command {
    let mut command = lab.iotax();
    let path = std::env::var("PATH").expect("a path");
    command.env("PATH", format!("{}:{path}", lab.path("ssh").display()));
    command
}

/// Creates a key without a passphrase.
fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).output();
    let made = made.expect("ssh-keygen starts");
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// Returns the running child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let Ok(mut file) = fs::File::open(format!("/proc/{pid}/stat")) else { return false };
        let mut stat = String::new();
        let _ = file.read_to_string(&mut stat);
        // The name in parentheses may contain anything; the parent is the second field after it.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
        fields.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(parent)
    })
    .collect()
}

/// Returns all descendants of a process, parents first.
fn descendants(parent: u32) -> Vec<u32> {
    let mut found = children(parent);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}
