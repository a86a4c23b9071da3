//! Tests the scripts in every installed shell, and their error messages.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::*;

/// A fake agent that echoes its input.
const PROGRAM: &str = r#"#!/bin/sh
case $1 in
agent) mkdir -p "$XDG_STATE_HOME/iotax/undo"; [ -n "$HOME" ] && echo serving; cat ;;
clean) : >../cleaned ;;
esac
"#;
const TAG: &str = "iotax-0123456789abcdef";

fn host(url: &str, sudo: bool) -> RemoteHost {
    RemoteHost { machine: url.parse().expect(url), sudo }
}

/// A simulated machine: a home directory, and programs that precede the system's.
struct Machine {
    temp: tempfile::TempDir,
    shell: Vec<String>,
}

impl Machine {
    /// Creates one machine per installed shell.
    fn all() -> Vec<Self> {
        let shells = ["dash", "bash", "busybox sh"].map(|shell| shell.split(' ').map(str::to_owned));
        let machines = shells.into_iter().map(Iterator::collect::<Vec<_>>).filter_map(|shell| {
            let works = Command::new(&shell[0]).args(&shell[1..]).args(["-c", ":"]).status();
            works.is_ok_and(|status| status.success()).then(|| {
                let temp = tempfile::tempdir().expect("temp dir");
                for dir in ["cache", "bin", "tmp"] {
                    fs::create_dir(temp.path().join(dir)).expect("made");
                }
                Self { temp, shell }
            })
        });
        let machines: Vec<Self> = machines.collect();
        assert!(!machines.is_empty(), "no shell");
        machines
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.temp.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    /// Starts a shell with this script on its stdin.
    fn start(&self, script: &str) -> (Child, ChildStdin, BufReader<ChildStdout>) {
        let path = std::env::var("PATH").expect("a path");
        let mut child = Command::new(&self.shell[0])
            .args(&self.shell[1..])
            .env_remove("HOME")
            .env("XDG_CACHE_HOME", self.temp.path().join("cache"))
            .env("TMPDIR", self.temp.path().join("tmp"))
            .env("PATH", format!("{}:{path}", self.temp.path().join("bin").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdin.write_all(script.as_bytes()).expect("written");
        (child, stdin, stdout)
    }

    /// Runs the script until the directory exists and is not yet recorded.
    fn make_directory(&self, leave: &str, sudo: &str) -> (Child, ChildStdin, BufReader<ChildStdout>, String) {
        let sha256 = sha256(PROGRAM.as_bytes());
        let call =
            format!("enter {TAG} {} {sha256} {} '{leave}' '{sudo}' agent ''\n", mark(TAG), PROGRAM.len());
        let before = self.cache();
        let (child, mut stdin, mut stdout) = self.start(&format!("{ENTER}{call}"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        if line.trim() == format!("{TAG} here") {
            assert_eq!(self.cache(), before, "made before it was on record");
            line.clear();
            stdin.write_all(b"go\n").expect("written");
            stdout.read_line(&mut line).expect("a line");
        }
        (child, stdin, stdout, line)
    }

    /// Parses a line that reports the directory, which must be empty except for the test of executability.
    fn parse_directory(line: &str) -> Option<RemoteDirectory> {
        RemoteDirectory::parse(line.trim_end().strip_prefix(&format!("{TAG} place "))?)
    }

    /// Runs the whole protocol. Returns whether the program was requested, the output after it, and success.
    fn enter(&self, leave: &str, sudo: &str) -> (bool, String, bool) {
        let (mut child, mut stdin, mut stdout, mut line) = self.make_directory(leave, sudo);
        if let Some(directory) = Self::parse_directory(&line) {
            assert_eq!(fs::read_dir(&directory.path).expect("there").count(), 0, "before it was on record");
            assert_eq!(fs::metadata(&directory.path).expect("there").mode() & 0o777, 0o700);
            line.clear();
            stdin.write_all(b"go\n").expect("written");
            stdout.read_line(&mut line).expect("a line");
        }
        let wanted = line.trim() == format!("{TAG} want");
        if wanted {
            line.clear();
            stdin.write_all(PROGRAM.as_bytes()).expect("written");
            stdout.read_line(&mut line).expect("a line");
        }
        if line.trim() == format!("{TAG} agent") {
            line.clear();
            stdin.write_all(b"a frame").expect("written");
        }
        drop(stdin);
        stdout.read_to_string(&mut line).expect("text");
        (wanted, line, child.wait().expect("ended").success())
    }

    /// Removes an agent's directory. Returns success and the output.
    fn leave(&self, directory: Option<&RemoteDirectory>) -> (bool, String) {
        let host = self::host("ssh://me@host", false);
        let sha256 = sha256(PROGRAM.as_bytes());
        let agent = RecordedAgent {
            host,
            tag: TAG.into(),
            sha256,
            target: "/x".into(),
            domain: None,
            directory: directory.cloned(),
        };
        let (child, stdin, _stdout) = self.start(&format!("{LEAVE}{}", leaving(&agent)));
        drop(stdin);
        let output = child.wait_with_output().expect("ended");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Returns an agent that was killed with its shell, leaving effects to undo.
    fn abandoned(&self) -> RemoteDirectory {
        let (mut child, mut stdin, mut stdout, mut line) = self.make_directory("", "");
        let directory = Self::parse_directory(&line).expect("a directory");
        for (answer, expected) in [("go\n", "want"), (PROGRAM, "agent")] {
            stdin.write_all(answer.as_bytes()).expect("written");
            line.clear();
            stdout.read_line(&mut line).expect("a line");
            assert_eq!(line.trim(), format!("{TAG} {expected}"), "{:?}", self.shell);
        }
        line.clear();
        stdout.read_line(&mut line).expect("the agent's");
        child.kill().expect("killed");
        child.wait().expect("ended");
        directory
    }

    /// Returns the names of all files and directories in the machine's cache.
    fn cache(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.temp.path().join("cache")];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).expect("a directory").flatten() {
                found.push(entry.file_name().to_string_lossy().into_owned());
                if entry.path().is_dir() {
                    open.push(entry.path());
                }
            }
        }
        found
    }
}

#[test]
fn the_program_comes_over_the_stream_and_goes_with_it() {
    for machine in Machine::all() {
        let heard = machine.enter("", "");
        assert_eq!(heard, (true, "serving\na frame".to_owned(), true), "{:?}", machine.shell);
        assert_eq!(machine.cache(), ["cleaned"], "{:?}", machine.shell);
    }
}

#[test]
fn what_was_left_is_not_copied_again_unless_it_is_damaged() {
    for machine in Machine::all() {
        let served = "serving\na frame".to_owned();
        for wanted in [true, false] {
            assert_eq!(machine.enter("yes", ""), (wanted, served.clone(), true), "{:?}", machine.shell);
            assert_eq!(machine.cache().len(), 3, "{:?}", machine.cache());
        }
        let kept = machine.temp.path().join("cache/iotax");
        let kept = fs::read_dir(kept).expect("there").flatten().next().expect("one").path();
        fs::write(&kept, "damaged").expect("written");
        assert_eq!(machine.enter("", ""), (true, served, true));
        assert_eq!(fs::read_to_string(&kept).expect("there"), "damaged", "nobody asked to leave another");
    }
}

#[test]
fn sudo_runs_the_agent_if_it_asks_nothing() {
    for machine in Machine::all() {
        machine.program("sudo", "shift\nprintf 'as root: '\nexec \"$@\"");
        let (_, heard, fine) = machine.enter("", "sudo -n");
        assert!(fine && heard.contains("as root: serving"), "{heard}");
        machine.program("sudo", "echo sudo: a password is required >&2\nexit 1");
        let (_, heard, fine) = machine.enter("", "sudo -n");
        assert!(!fine, "{heard}");
        assert_eq!(heard.trim(), format!("{TAG} refused sudo sudo: a password is required"));
        assert_eq!(machine.cache(), ["cleaned"]);
    }
}

#[test]
fn what_dies_before_its_place_is_on_record_leaves_none() {
    for machine in Machine::all() {
        // The shell notices that nobody answers.
        let (mut child, stdin, _stdout, line) = machine.make_directory("", "");
        assert_eq!(machine.cache().len(), 1, "{line}");
        drop(stdin);
        child.wait().expect("ended");
        assert_eq!(machine.cache(), Vec::<String>::new(), "{:?}", machine.shell);
        // The shell dies too. A directory with such a name that others created is not accepted.
        let (mut child, _stdin, _stdout, _) = machine.make_directory("", "");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let mine = machine.temp.path().join("mine");
        fs::create_dir(&mine).expect("made");
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o700)).expect("private");
        fs::write(mine.join("try"), "the user's").expect("written");
        let link = machine.temp.path().join(format!("tmp/iotax-{}-x", mark(TAG)));
        symlink(&mine, &link).expect("linked");
        assert_eq!(machine.leave(None), (true, String::new()), "{:?}", machine.shell);
        assert_eq!(machine.cache(), Vec::<String>::new(), "{:?}", machine.shell);
        assert!(link.is_symlink() && mine.join("try").exists(), "{:?}", machine.shell);
    }
}

#[test]
fn only_in_the_very_place_that_was_made_is_anything_executed() {
    for machine in Machine::all() {
        let directory = machine.abandoned();
        let (path, aside) = (Path::new(&directory.path), machine.temp.path().join("cache/aside"));
        let refused = |words: &str| {
            let (fine, said) = machine.leave(Some(&directory));
            assert!(
                !fine && said.contains(&directory.path) && said.contains(words),
                "{:?}: {said}",
                machine.shell
            );
            assert!(!machine.cache().contains(&"cleaned".to_owned()), "{:?}: {words}", machine.shell);
        };
        // Writable for others, and owned by another user if root runs this.
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("open to all");
        refused("others may write to it");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("private");
        let root = fs::metadata(path).expect("there").uid() == 0;
        if root {
            std::os::unix::fs::chown(path, Some(65534), None).expect("given away");
            refused("not the directory");
            std::os::unix::fs::chown(path, Some(0), None).expect("taken back");
        }
        // The directory was renamed, and a link or another directory has its name.
        fs::rename(path, &aside).expect("renamed");
        refused("it is called aside there now");
        symlink(&aside, path).expect("linked");
        refused("not the directory");
        fs::remove_file(path).expect("removed");
        fs::create_dir(path).expect("made");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("private");
        fs::copy(aside.join("iotax"), path.join("iotax")).expect("copied");
        refused("not the directory");
        fs::remove_dir_all(path).expect("removed");
        fs::rename(&aside, path).expect("renamed");
        // The agent's program was replaced.
        let program = fs::read(path.join("iotax")).expect("there");
        fs::write(path.join("iotax"), "#!/bin/sh\ntouch ../cleaned\n").expect("written");
        refused("not the one that was sent");
        fs::write(path.join("iotax"), program).expect("written");
        // The parent directory is gone.
        let cache = machine.temp.path().join("cache");
        fs::rename(&cache, machine.temp.path().join("moved")).expect("renamed");
        fs::create_dir(&cache).expect("made");
        refused("nor is the directory that it was made in");
        fs::remove_dir(&cache).expect("removed");
        fs::rename(machine.temp.path().join("moved"), &cache).expect("renamed");

        assert_eq!(machine.leave(Some(&directory)), (true, String::new()), "{:?}", machine.shell);
        assert_eq!(machine.cache(), ["cleaned"], "{:?}", machine.shell);
        assert_eq!(machine.leave(Some(&directory)), (true, String::new()), "nothing is left");
        // No record of what the agent created remains on the machine.
        let (fine, said) =
            machine.leave(Some(&RemoteDirectory { boot: "an-earlier-one".into(), ..directory }));
        assert!(!fine && said.contains("what the agent made may be left"), "{said}");
    }
}

#[test]
fn a_place_is_one_word_of_the_script() {
    let host = self::host("ssh://me@host", true);
    let directory = RemoteDirectory::parse("7 2 - /tmp/it's $(here) x");
    let agent = RecordedAgent {
        host,
        tag: TAG.into(),
        sha256: "ab".into(),
        target: "/x".into(),
        domain: None,
        directory,
    };
    let expected = format!("leave {} 'ab' 'sudo -n' 7 2 '-' '/tmp/it'\\''s $(here) x'\n", mark(TAG));
    assert_eq!(leaving(&agent), expected);
    for bad in ["", "7 2 -", "7 2 - relative", "x 2 - /tmp/x", "-7 2 - /tmp/x"] {
        assert_eq!(RemoteDirectory::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn another_machine_than_the_programs_is_refused() {
    // busybox's shell runs its own uname regardless of PATH.
    for machine in Machine::all().iter().filter(|machine| machine.shell[0] != "busybox") {
        machine.program("uname", "echo Linux aarch64");
        let (wanted, heard, fine) = machine.enter("", "");
        assert_eq!((wanted, fine), (false, false));
        assert_eq!(heard.trim(), format!("{TAG} refused machine Linux aarch64"));
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let host = self::host("ssh://me@host:2222", false);
    for (line, words) in [
        ("refused machine Linux aarch64", "it is \"Linux aarch64\""),
        ("refused sudo sudo: a password is required", "a password is required; let this user run sudo"),
        ("refused place /tmp: Permission denied;", "/tmp: Permission denied; make room"),
        ("refused copy head: No space left on device", "could not be copied: head: No space"),
    ] {
        let error = refused(&host, line).to_string();
        assert!(error.starts_with("ssh://me@host:2222: ") && error.contains(words), "{error}");
    }
    let said = "me@host: Permission denied (publickey).".to_owned();
    let error = RemoteError::Unreachable { host, said }.to_string();
    assert!(error.contains("(publickey).; give ssh a key"), "{error}");
}
