//! The scripts in every shell that is here, and what people read when they fail.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use super::*;

/// Plays the agent: answers what it is sent.
const PROGRAM: &str = "#!/bin/sh
case $1 in
agent) mkdir -p $XDG_STATE_HOME/iotax/undo; echo serving; cat ;;
esac
";
const TAG: &str = "iotax-0123456789abcdef";

/// A machine to enter: a home, programs that come before the system's.
struct Machine {
    temp: tempfile::TempDir,
    shell: Vec<String>,
}

impl Machine {
    /// One for each shell that is installed.
    fn all() -> Vec<Self> {
        let shells = ["dash", "bash", "busybox sh"].map(|shell| shell.split(' ').map(str::to_owned));
        let machines = shells.into_iter().map(Iterator::collect::<Vec<_>>).filter_map(|shell| {
            let works = Command::new(&shell[0]).args(&shell[1..]).args(["-c", ":"]).status();
            works.is_ok_and(|status| status.success()).then(|| {
                let temp = tempfile::tempdir().expect("temp dir");
                for dir in ["cache", "bin"] {
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
        use std::os::unix::fs::PermissionsExt;
        let path = self.temp.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    /// Enters with a conversation: whether the program was wanted, what came after it, and whether all went well.
    fn enter(&self, leave: &str, sudo: &str) -> (bool, String, bool) {
        let path = std::env::var("PATH").expect("a path");
        let mut child = Command::new(&self.shell[0])
            .args(&self.shell[1..])
            .env("XDG_CACHE_HOME", self.temp.path().join("cache"))
            .env("PATH", format!("{}:{path}", self.temp.path().join("bin").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let mut stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let sha256 = sha256(PROGRAM.as_bytes());
        let call = format!("enter {TAG} {sha256} {} '{leave}' '{sudo}'\n", PROGRAM.len());
        stdin.write_all(format!("{ENTER}{call}").as_bytes()).expect("written");
        let (mut line, before) = (String::new(), self.cache());
        stdout.read_line(&mut line).expect("a line");
        if line.trim() == format!("{TAG} here") {
            assert_eq!(self.cache(), before, "made before it was on record");
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

    /// What is in its cache.
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
        assert_eq!(machine.cache(), Vec::<String>::new(), "{:?}", machine.shell);
    }
}

#[test]
fn what_was_left_is_not_copied_again_unless_it_is_damaged() {
    for machine in Machine::all() {
        let served = "serving\na frame".to_owned();
        for wanted in [true, false] {
            assert_eq!(machine.enter("yes", ""), (wanted, served.clone(), true), "{:?}", machine.shell);
            assert_eq!(machine.cache().len(), 2, "{:?}", machine.cache());
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
        assert_eq!(machine.cache(), Vec::<String>::new());
    }
}

#[test]
fn another_machine_than_the_programs_is_refused() {
    // busybox's shell takes its own uname whatever stands before it in PATH.
    for machine in Machine::all().iter().filter(|machine| machine.shell[0] != "busybox") {
        machine.program("uname", "echo Linux aarch64");
        let (wanted, heard, fine) = machine.enter("", "");
        assert_eq!((wanted, fine), (false, false));
        assert_eq!(heard.trim(), format!("{TAG} refused machine Linux aarch64"));
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let host = Host { destination: "me@host".into(), port: Some(2222), sudo: false };
    for (line, words) in [
        ("refused machine Linux aarch64", "it is \"Linux aarch64\""),
        ("refused sudo sudo: a password is required", "a password is required; let this user run sudo"),
        ("refused place /tmp: Permission denied;", "/tmp: Permission denied; make room"),
        ("refused copy head: No space left on device", "could not be copied: head: No space"),
    ] {
        let error = refused(&host, line).to_string();
        assert!(error.starts_with("me@host:2222: ") && error.contains(words), "{error}");
    }
    let said = "me@host: Permission denied (publickey).".to_owned();
    let error = RemoteError::Ssh { host, said }.to_string();
    assert!(error.contains("(publickey).; give ssh a key"), "{error}");
}
