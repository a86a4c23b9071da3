//! Common parts of end-to-end tests: a separate directory and the binary.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home, a store and a work directory, on the disk of the checkout; removed on drop.
pub(crate) struct Lab {
    root: TempDir,
    /// Directory for sockets, whose paths must be short.
    scratch: TempDir,
}

/// An unprivileged user with a home next to a lab, which contains the binary.
pub(crate) struct OtherUser {
    home: TempDir,
}

impl OtherUser {
    /// Creates the user; requires root.
    pub(crate) fn beside(lab: &Lab) -> Self {
        let home = TempDir::new_in(lab.path("").parent().expect("a directory")).expect("a home");
        std::fs::copy(lab.iotax().get_program(), home.path().join("iotax")).expect("copied");
        std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).expect("root may");
        Self { home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The tested binary, started by the user.
    pub(crate) fn iotax(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(self.path("iotax"));
        command.current_dir(self.home.path()).env("HOME", self.home.path());
        for variable in ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env_remove(variable);
        }
        command
    }
}

impl Lab {
    /// A lab for tests in modules called `alone`, which `.config/nextest.toml` runs without other tests. Raises the priority of this thread
    /// and its child processes where permitted.
    pub(crate) fn alone() -> Self {
        let _ = rustix::process::setpriority_process(None, -19);
        Self::new()
    }

    pub(crate) fn new() -> Self {
        // Not /tmp, which may be a tmpfs: tests should measure a disk.
        Self::at(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// A lab in memory, if there is room. For volatile directories: a disk that discards each extent takes seconds to remove a file with
    /// thousands of them.
    pub(crate) fn in_memory() -> Self {
        /// Free bytes required: two files of 64 MiB.
        const ROOM: u64 = 256 << 20;
        let shared = Path::new("/dev/shm");
        let has_room = rustix::fs::statvfs(shared).is_ok_and(|found| found.f_bavail * found.f_frsize > ROOM);
        if has_room { Self::at(shared) } else { Self::new() }
    }

    fn at(parent: &Path) -> Self {
        let root = TempDir::new_in(parent).expect("a directory for the test");
        for dir in ["work", "home"] {
            std::fs::create_dir(root.path().join(dir)).expect("a directory");
        }
        Self { root, scratch: TempDir::new().expect("a directory for sockets") }
    }

    /// The work directory.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The directory for sockets and mounts of the tested binary.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The tested binary, with the lab as its home.
    pub(crate) fn iotax(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iotax"));
        command.current_dir(self.root.path());
        command.env("HOME", self.path("home")).env("TMPDIR", self.scratch.path());
        for variable in ["IOTAX_DB", "XDG_DATA_HOME", "XDG_STATE_HOME", "NO_COLOR", "COLUMNS", "TERM"] {
            command.env_remove(variable);
        }
        command
    }

    /// Kills a run. Asserts that `iotax clean` undoes what it announced, and that nothing is left.
    pub(crate) fn kill_and_clean(&self, mut child: Child, moment: &str) {
        child.kill().expect("killed");
        child.wait().expect("it ended");
        let dry = self.run(&["clean", "--dry-run"]);
        let of = |said: &str, word: &str| -> Vec<String> {
            said.lines().filter_map(|line| Some(line.strip_prefix(word)?.to_owned())).collect()
        };
        let left = of(&text(&dry.stdout), "would undo: ");
        let clean = self.run(&["clean"]);
        assert!(clean.status.success(), "{moment}: {}{}", text(&clean.stdout), text(&clean.stderr));
        assert_eq!(of(&text(&clean.stdout), "undone: "), left);
        self.assert_nothing_left();
    }

    /// The tested binary, with a script that replaces a program in PATH.
    pub(crate) fn iotax_with(&self, program: &str, script: &str) -> Command {
        let bin = self.path("bin");
        std::fs::create_dir(&bin).expect("made");
        std::fs::write(bin.join(program), script).expect("written");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bin.join(program), executable).expect("executable");
        let mut command = self.iotax();
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH")));
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    /// Runs the binary and parses the JSON on stdout; panics if it fails.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }

    /// Writes a plan; `WORK` stands for the lab's work directory.
    pub(crate) fn plan(&self, toml: &str) -> PathBuf {
        let path = self.path("plan.toml");
        std::fs::write(&path, toml.replace("WORK", &self.work().display().to_string())).expect("written");
        path
    }

    /// A plan of short measurements with a target `host`, a file in the lab; `keys` come first, `rest` follows.
    pub(crate) fn short_plan(&self, keys: &str, size: &str, rest: &str) -> PathBuf {
        self.plan(&format!(
            "{keys}\n[defaults]\nsize = \"{size}\"\nruntime = \"300ms\"\nramp_time = \"0s\"\n\
             [[target]]\nname = \"host\"\nfile = {{ dir = \"WORK\" }}\n{rest}"
        ))
    }

    /// Asserts that a run left no file, undo log or guest.
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

    /// Returns the command lines of QEMU processes that use this lab's files.
    pub(crate) fn guests(&self) -> Vec<String> {
        self.processes("qemu-")
    }

    /// Returns the command lines of the processes that serve its volatile directories.
    pub(crate) fn volatile(&self) -> Vec<String> {
        self.processes("iotax-volatile")
    }

    /// Returns the command lines that contain this word and this lab's path.
    pub(crate) fn processes(&self, word: &str) -> Vec<String> {
        let parent = self.root.path().display().to_string();
        processes(word).into_iter().filter(|line| line.contains(&parent)).collect()
    }
}

/// Returns the command lines that contain this word.
pub(crate) fn processes(word: &str) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(word))
        .collect()
}

/// Starts a command and reads its stderr until `is_time` returns true. Returns the text so far and an iterator over the following lines.
pub(crate) fn spawn_until(
    command: &mut Command,
    is_time: impl Fn(&str) -> bool,
) -> (Child, String, Lines<BufReader<ChildStderr>>) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut said = String::new();
    while !is_time(&said) {
        let Some(Ok(line)) = lines.next() else { panic!("{command:?} ended too early: {said}") };
        said += &(line + "\n");
    }
    (child, said, lines)
}

/// Starts a command and waits until its stderr contains `moment`.
pub(crate) fn start_until(command: &mut Command, moment: &str) -> Child {
    let (child, _, rest) = spawn_until(command, |said| said.contains(moment));
    // The rest must be read, or the command would block or die of a closed pipe.
    std::thread::spawn(move || rest.for_each(drop));
    child
}

/// Asserts that a document conforms to the published schema.
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

/// Wraps a command in a mount namespace set up by a shell script; `$0` is `dir` in the script.
pub(crate) fn with_mounts(command: &Command, mount: &str, dir: &Path) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", &format!("{mount} && exec \"$@\"")]).arg(dir);
    inside.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    inside.current_dir(command.get_current_dir().expect("set"));
    inside
}
