//! Tests of verified writes and their journal, from the command line.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::lab::{Lab, assert_valid, text};

fn utf8(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

#[test]
fn what_was_written_and_kept_can_be_verified_later_and_damage_fails() {
    let lab = Lab::new();
    let target = lab.work().join("kept.dat");
    let bench = |rw: &str| {
        let keep = (rw == "randrw").then_some("--keep");
        let arguments = ["bench", utf8(&target), "--rw", rw, "--verify", "xxh3", "--bs", "8k", "--json", "-"];
        let times = ["--runtime", "300ms", "--ramp-time", "100ms", "--iodepth", "8", "--numjobs", "2"];
        let size = (rw == "randrw").then_some("--size=4m");
        lab.iotax().args(arguments).args(times).args(keep).args(size).output().expect("iotax starts")
    };
    let written = bench("randrw");
    assert!(written.status.success(), "{}", text(&written.stderr));
    let json: serde_json::Value = serde_json::from_slice(&written.stdout).expect("JSON");
    assert_valid(&json);
    let findings = &json["measurements"][0]["verify"];
    assert!(findings["checked"].as_u64() >= Some(512) && findings.get("faults").is_none(), "{findings}");
    assert!(text(&written.stderr).contains("held what was written there"), "{}", text(&written.stderr));
    // The whole area was filled with blocks that can be verified too.
    let read = bench("read");
    assert_eq!(read.status.code(), Some(0), "{}", text(&read.stderr));

    let file = File::options().read(true).write(true).open(&target).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 777_777).expect("read");
    file.write_all_at(&[!byte[0]], 777_777).expect("damaged");
    drop(file);
    let found = bench("read");
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    let json: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_valid(&json);
    let fault = &json["measurements"][0]["verify"]["faults"][0];
    assert_eq!(
        (fault["kind"].as_str(), fault["last_offset"].as_u64()),
        (Some("corrupt"), Some(778_240 - 8192))
    );
    assert!(text(&found.stderr).contains("corrupt, at byte 770048"), "{}", text(&found.stderr));
}

#[test]
fn a_file_that_holds_nothing_to_verify_is_not_taken_for_a_broken_disk() {
    let lab = Lab::new();
    let bench = |name: &str| {
        let target = lab.work().join(name);
        let times = ["--runtime", "100ms", "--ramp-time", "0s"];
        lab.iotax().args(["bench", utf8(&target), "--rw", "read", "--verify", "xxh3"]).args(times).output()
    };
    let missing = bench("typo.dat").expect("iotax starts");
    let said = text(&missing.stderr);
    assert!(missing.status.code() == Some(2) && said.contains("typo.dat: it is not there"), "{said}");
    assert!(!lab.work().join("typo.dat").exists(), "nothing is made");
    std::fs::write(lab.work().join("mine.dat"), vec![b'x'; 1 << 20]).expect("written");
    let foreign = bench("mine.dat").expect("iotax starts");
    let said = text(&foreign.stdout) + &text(&foreign.stderr);
    assert_eq!(foreign.status.code(), Some(3), "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("hold nothing of that; leave verify out, or write the area"), "{said}");
    assert!(!said.contains("corrupt") && !said.contains("do not trust"), "{said}");
}

/// Returns the lines printed by `iotax verify`, and its exit code.
fn verify(lab: &Lab, target: &Path, journal: &Path) -> (Option<i32>, String) {
    let output = lab.run(&["verify", utf8(target), "--journal", utf8(journal)]);
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

/// Writes to a target until the journal has some thousand records, and kills the run.
fn killed_while_writing(lab: &Lab, target: &Path, journal: &Path) {
    let mut bench = lab
        .iotax()
        .args(["bench", utf8(target), "--rw", "randwrite", "--verify", "crc32c", "--size", "4m", "--keep"])
        .args(["--runtime", "60s", "--iodepth", "4", "--write-journal", utf8(journal)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("iotax starts");
    let length = || fs::metadata(journal).map_or(0, |metadata| metadata.len());
    let patience = Instant::now() + Duration::from_secs(30);
    while length() < 200_000 {
        assert!(Instant::now() < patience, "nothing was acknowledged");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The agent ends with it.
    bench.kill().expect("killed");
    bench.wait().expect("ended");
    let mut last = 0;
    while length() != last {
        last = length();
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Overwrites the block of a recorded write, as if the storage had lost it. The record contains the byte offset at byte 16.
fn lose(target: &Path, record: &[u8]) {
    let offset = u64::from_le_bytes(record[16..24].try_into().expect("8 bytes"));
    let file = File::options().write(true).open(target).expect("opened");
    file.write_all_at(&[0; 4096], offset).expect("lost");
}

#[test]
fn a_flipped_bit_of_the_journal_hides_no_lost_write() {
    let lab = Lab::new();
    let (target, journal, flipped) = (lab.work().join("kept.dat"), lab.path("journal"), lab.path("flipped"));
    killed_while_writing(&lab, &target, &journal);
    let mut whole = fs::read(&journal).expect("read");
    whole.truncate(whole.len() / 40 * 40);
    // By turns a sound target and one that lost the last writes.
    let lossy = lab.work().join("lossy.dat");
    fs::copy(&target, &lossy).expect("copied");
    for record in whole.rchunks(40).filter(|record| record.starts_with(b"iojW")).take(20) {
        lose(&lossy, record);
    }
    let step = whole.len() * 8 / 40;
    for number in 0..40 {
        let bit = (number * step + (number * 7919) % step).min((whole.len() - 40) * 8 - 1);
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&flipped, bytes).expect("written");
        let (target, expected) = if number % 2 == 0 { (&lossy, 1) } else { (&target, 3) };
        let (code, said) = verify(&lab, target, &flipped);
        assert_eq!(code, Some(expected), "bit {bit} of {}: {said}", whole.len() * 8);
        assert!(said.contains("the journal is damaged in 1 place, at its byte "), "bit {bit}: {said}");
        assert!(said.contains("blocks hold their last acknowledged write"), "bit {bit}: {said}");
    }
    // Damage to the last record looks like an unfinished write, which is reported too.
    for bit in ((whole.len() - 40) * 8..whole.len() * 8).step_by(19) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&flipped, bytes).expect("written");
        let (code, said) = verify(&lab, &lossy, &flipped);
        assert!(code == Some(1) && said.contains("the last 40 bytes of the journal"), "bit {bit}: {said}");
    }
    lab.run(&["clean"]);
}

#[test]
fn a_journal_that_was_closed_is_known_to_be_whole() {
    let lab = Lab::new();
    let (target, journal) = (lab.work().join("kept.dat"), lab.path("journal"));
    let written = lab.run(&[
        "bench",
        utf8(&target),
        "--rw",
        "randwrite",
        "--verify",
        "xxh3",
        "--size",
        "4m",
        "--keep",
        "--runtime",
        "300ms",
        "--fsync",
        "16",
        "--write-journal",
        utf8(&journal),
    ]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let (code, said) = verify(&lab, &target, &journal);
    assert!(code == Some(0) && !said.contains("journal"), "{said}");
    let whole = fs::read(&journal).expect("read");
    // Without its end it may be one of a machine that stopped, and with other bytes in its place it is not.
    fs::write(&journal, &whole[..whole.len() - 80]).expect("cut");
    let (code, said) = verify(&lab, &target, &journal);
    assert!(code == Some(0) && said.contains("the journal was not closed"), "{said}");
    for end in [whole.len() - 70, whole.len() - 30] {
        let mut bytes = whole.clone();
        bytes[end] ^= 0x10;
        fs::write(&journal, bytes).expect("damaged");
        let (code, said) = verify(&lab, &target, &journal);
        assert!(code == Some(3) && said.contains("the journal is damaged in 1 place"), "{said}");
    }
}

#[test]
fn after_a_kill_the_journal_tells_what_was_acknowledged_and_lost() {
    let lab = Lab::new();
    let (target, journal) = (lab.work().join("kept.dat"), lab.path("journal"));
    killed_while_writing(&lab, &target, &journal);
    let length = || fs::metadata(&journal).expect("there").len();
    let last = length();

    let (code, said) = verify(&lab, &target, &journal);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("writes were acknowledged, 0 of them durable"), "{said}");
    assert!(said.contains("blocks hold their last acknowledged write"), "{said}");
    assert!(said.contains("the journal was not closed"), "{said}");

    // A journal that ends within a record is used as far as it goes.
    let cut = lab.path("cut");
    fs::write(&cut, &fs::read(&journal).expect("read")[..100_010]).expect("written");
    let (code, said) = verify(&lab, &target, &cut);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the last 10 bytes of the journal"), "{said}");

    File::options()
        .write(true)
        .open(&target)
        .expect("opened")
        .write_all_at(&[0; 8192], 40_960)
        .expect("lost");
    let (code, said) = verify(&lab, &target, &journal);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 x lost_write, at bytes 40960 and 45056"), "{said}");

    let again = ["bench", utf8(&lab.work().join("new.dat")), "--rw", "randwrite", "--verify", "crc32c"]
        .map(str::to_owned);
    let refused = lab
        .iotax()
        .args(again)
        .args(["--size", "4m", "--runtime", "200ms", "--write-journal", utf8(&journal)])
        .output()
        .expect("iotax starts");
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("exists"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(length(), last, "what exists is not written over");
    lab.run(&["clean"]);
}

#[test]
fn what_is_no_journal_is_refused_with_its_name() {
    let lab = Lab::new();
    let (target, other) = (lab.work().join("target"), lab.path("other"));
    for path in [&target, &other] {
        fs::write(path, [7; 4096]).expect("written");
    }
    for (target, journal, words) in [
        (&target, &other, "it is no journal"),
        (&lab.work().join("absent"), &other, "absent"),
        (&target, &lab.work().join("nowhere"), "nowhere"),
    ] {
        let (code, said) = verify(&lab, target, journal);
        assert!(code == Some(2) && said.contains(words), "{code:?} {said}");
    }
    let file = lab.work().join("x");
    for (flags, words) in [
        (["--write-journal", "j"], ["write_journal = j", "add verify"]),
        (["--buffer-pattern", "abc"], ["\"abc\" is not a pattern", "0xdeadbeef"]),
        (["--dedupe-percentage", "101"], ["--dedupe-percentage", "0 to 100"]),
        (["--verify", "md5"], ["md5", "crc32c, xxh3"]),
    ] {
        let refused = lab.run(&["bench", utf8(&file), "--rw", "write", flags[0], flags[1]]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn a_journal_whose_storage_is_full_is_incomplete_and_both_commands_say_so_first() {
    let lab = Lab::new();
    let (target, journal) = (lab.work().join("kept.dat"), lab.path("journal"));
    // No file grows beyond 2 MiB: room for some 50,000 records.
    let arguments = format!(
        "bench {} --rw randwrite --verify xxh3 --size 1m --keep --ramp-time 0s --runtime 60s --io-size 400m --iodepth 16 --write-journal {}",
        utf8(&target),
        utf8(&journal)
    );
    let iotax = lab.iotax();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("ulimit -f 4096; exec \"$0\" {arguments}")]).arg(iotax.get_program());
    for (name, value) in iotax.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().expect("a shell");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}{}", text(&output.stderr));
    let first = said.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
    assert!(first.starts_with("INCOMPLETE: ") && said.contains("acknowledged writes on record"), "{said}");
    assert!(said.contains("File too large"), "{said}");

    let (code, said) = verify(&lab, &target, &journal);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.starts_with("INCOMPLETE: the journal has ") && said.contains(" of 10"), "{said}");
}

#[test]
fn a_journal_without_a_record_verifies_nothing() {
    let lab = Lab::new();
    let (target, journal, empty) = (lab.work().join("kept.dat"), lab.path("journal"), lab.path("empty"));
    killed_while_writing(&lab, &target, &journal);
    fs::write(&empty, &fs::read(&journal).expect("read")[..40]).expect("written");
    let (code, said) = verify(&lab, &target, &empty);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.starts_with("INCOMPLETE: no write is on record, so nothing was verified"), "{said}");
    lab.run(&["clean"]);
}
