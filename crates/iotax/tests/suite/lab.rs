//! What the end-to-end tests share: a place of their own and the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;
use tempfile::TempDir;

/// The machine: shared by tests that only need it to work, taken alone by those that compare speeds.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held for as long as the test runs")]
enum Machine {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// A home, a store, a directory to measure in, all on the disk of the checkout and gone at the end.
pub(crate) struct Lab {
    _machine: Machine,
    root: TempDir,
    /// For sockets, whose paths must be short.
    scratch: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::on(Machine::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A lab while no other test runs. What this thread starts comes before whatever else the machine does, where that is
    /// permitted.
    pub(crate) fn alone() -> Self {
        let _ = rustix::process::setpriority_process(None, -19);
        Self::on(Machine::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn on(machine: Machine) -> Self {
        // Not /tmp, which may be a tmpfs: what is measured here should be a disk.
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test");
        for dir in ["work", "home"] {
            std::fs::create_dir(root.path().join(dir)).expect("a directory");
        }
        Self { _machine: machine, root, scratch: TempDir::new().expect("a directory for sockets") }
    }

    /// The directory to measure in.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Where the binary under test has its sockets and mounts.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The binary under test, which knows no other home than the lab.
    pub(crate) fn iotax(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iotax"));
        command.current_dir(self.root.path());
        command.env("HOME", self.path("home")).env("TMPDIR", self.scratch.path());
        for variable in ["XDG_DATA_HOME", "XDG_STATE_HOME", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs it to the end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    /// Runs it, expects success, and reads the JSON on stdout.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }

    /// A plan that measures in the lab: `WORK` stands for its directory.
    pub(crate) fn plan(&self, toml: &str) -> PathBuf {
        let path = self.path("plan.toml");
        std::fs::write(&path, toml.replace("WORK", &self.work().display().to_string())).expect("written");
        path
    }

    /// Asserts that nothing of a run is left: no file, no undo log, no guest.
    pub(crate) fn assert_nothing_left(&self) {
        let list = |dir: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(dir)
                .map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect())
                .unwrap_or_default()
        };
        assert_eq!(list(&self.work()), Vec::<PathBuf>::new(), "files left");
        assert_eq!(list(&self.path("home/.local/state/iotax/undo")), Vec::<PathBuf>::new(), "undo logs left");
        assert_eq!(list(self.scratch.path()), Vec::<PathBuf>::new(), "sockets left");
        assert_eq!(self.guests(), Vec::<String>::new(), "guests left");
    }

    /// Command lines of QEMU processes that use this lab's files.
    pub(crate) fn guests(&self) -> Vec<String> {
        let place = self.root.path().display().to_string();
        let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
        processes
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains("qemu-system") && line.contains(&place))
            .collect()
    }
}

/// Asserts that a document is what the published schema says.
pub(crate) fn assert_valid(document: &Value) {
    let schema = include_str!("../../../report/schema/iotax-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
