//! What the end-to-end tests share: a place of their own, the binary, and reasons to skip.
#![expect(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A home, a store, a directory to measure in, all on the disk of the checkout and gone at the end.
pub struct Lab {
    root: TempDir,
    /// For sockets, whose paths must be short.
    scratch: TempDir,
}

impl Lab {
    pub fn new() -> Self {
        // Not /tmp, which may be a tmpfs: what is measured here should be a disk.
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test");
        for dir in ["work", "home"] {
            std::fs::create_dir(root.path().join(dir)).expect("a directory");
        }
        Self { root, scratch: TempDir::new().expect("a directory for sockets") }
    }

    /// The directory to measure in.
    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The binary under test, which knows no other home than the lab.
    pub fn iotax(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iotax"));
        command.current_dir(self.root.path());
        command.env("HOME", self.path("home")).env("TMPDIR", self.scratch.path());
        for variable in ["XDG_DATA_HOME", "XDG_STATE_HOME", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs it to the end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    /// Runs it, expects success, and reads the JSON on stdout.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }

    /// A plan that measures in the lab: `WORK` stands for its directory.
    pub fn plan(&self, toml: &str) -> PathBuf {
        let path = self.path("plan.toml");
        std::fs::write(&path, toml.replace("WORK", &self.work().display().to_string())).expect("written");
        path
    }

    /// Asserts that nothing of a run is left: no file, no ledger, no guest.
    pub fn assert_nothing_left(&self) {
        let list = |dir: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(dir)
                .map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect())
                .unwrap_or_default()
        };
        assert_eq!(list(&self.work()), Vec::<PathBuf>::new(), "files left");
        assert_eq!(list(&self.path("home/.local/state/iotax/undo")), Vec::<PathBuf>::new(), "ledgers left");
        assert_eq!(list(self.scratch.path()), Vec::<PathBuf>::new(), "sockets left");
        assert_eq!(self.guests(), Vec::<String>::new(), "guests left");
    }

    /// Command lines of QEMU processes that use this lab's files.
    pub fn guests(&self) -> Vec<String> {
        let place = self.root.path().display().to_string();
        let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
        processes
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains("qemu-system") && line.contains(&place))
            .collect()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a program is on the path.
pub fn have(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Skips a test that needs a program which is missing, aloud; where CI promised to have it, that is a failure.
pub fn needs(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !have(program)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("IOTAX_REQUIRE_GUESTS").is_none(), "missing: {missing:?}; run scripts/setup");
    eprintln!("skipped: {missing:?} is not installed; run scripts/setup");
    false
}

/// What guests need.
pub const GUESTS: &[&str] = &["qemu-system-x86_64", "qemu-img"];
