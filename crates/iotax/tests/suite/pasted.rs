//! Tests that each command suggested by iotax works when pasted into a shell.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use crate::lab::{Lab, text};

/// A name that must be quoted in a shell.
const STORE: &str = "my runs.db";

/// Two equal targets and a margin that is never met.
const PLAN: &str = "repeat = 3\nmargin = \"0.01%\"\n[until_decided]\nmax_rounds = 5\n\
    [defaults]\nsize = \"4m\"\nruntime = \"100ms\"\nramp_time = \"0s\"\n\
    [[target]]\nname = \"one\"\nfile = { dir = \"WORK\" }\n[[target]]\nname = \"two\"\nfile = { dir = \"WORK\" }\n\
    [[workload]]\nrw = \"randread\"\n";

/// Returns the commands in a text, which end at the end of a line or a parenthesis.
fn commands(said: &str) -> BTreeSet<String> {
    let starts = |line: &str| {
        let found = line.match_indices("iotax ").map(|(at, _)| at);
        let found =
            found.filter(|at| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || "-/".contains(c)));
        found.map(|at| line[at..].trim().trim_end_matches([')', '`']).to_owned()).collect::<Vec<_>>()
    };
    let known = ["resume", "report", "list", "compare", "clean", "export"];
    let all = said.lines().flat_map(starts);
    all.filter(|line| line.split(' ').nth(1).is_some_and(|word| known.contains(&word))).collect()
}

/// Runs a line in a shell with iotax in PATH and `yes` on the terminal. Interrupts long measurements.
fn paste(lab: &Lab, line: &str) -> Output {
    let like = lab.iotax();
    let mut shell = Command::new("sh");
    let yes = if line.contains(" resume ") { " --yes" } else { "" };
    let line = format!("exec timeout -s INT 3 {line}{yes}");
    shell.args(["-c", &line]).current_dir(like.get_current_dir().expect("set"));
    for (key, value) in like.get_envs().filter_map(|(key, value)| Some((key, value?))) {
        shell.env(key, value);
    }
    shell.env_remove("IOTAX_DB");
    shell.env("PATH", format!("{}:{}", lab.path("bin").display(), std::env::var("PATH").expect("PATH")));
    shell.output().expect("a shell")
}

#[test]
fn every_suggested_command_works_when_pasted() {
    let lab = Lab::new();
    fs::create_dir(lab.path("bin")).expect("made");
    symlink(env!("CARGO_BIN_EXE_iotax"), lab.path("bin/iotax")).expect("linked");
    let plan = lab.plan(PLAN).display().to_string();
    let file = lab.work().join("x.dat").display().to_string();
    let mut said = String::new();
    for arguments in [
        &["run", &plan, "--yes"][..],
        &["bench", &file, "--size", "4m", "--runtime", "200ms", "--ramp-time", "0"],
        &["report", "1"],
        &["report", "1", "--detail"],
        &["report", "2"],
        &["resume", "1", "--yes"],
        &["resume", "1", "--repeat", "9", "--yes"],
        &["resume", "2", "--yes"],
        &["list", "--tag", "nope"],
    ] {
        let output = lab.iotax().args(arguments).args(["--db", STORE]).env("COLUMNS", "80").output();
        let output = output.expect("iotax starts");
        said += &(text(&output.stdout) + &text(&output.stderr));
    }
    let commands = commands(&said);
    for expected in
        ["iotax resume 1 --", "iotax report 1 --detail", "iotax report 2", "iotax resume 2 --repeat"]
    {
        assert!(commands.iter().any(|line| line.starts_with(expected)), "{expected}: {commands:?} in {said}");
    }
    for line in &commands {
        let output = paste(&lab, line);
        let code = output.status.code();
        // 124: it was measuring when its time was over.
        let works = matches!(code, Some(0 | 124 | 130));
        assert!(works, "{line}: {code:?}: {}", text(&output.stderr));
    }
}
