use std::path::Path;
use std::process::{Child, Command, Stdio};

use iotax_testbed::survey;
use iotax_testkit::require;
use tempfile::TempDir;

use crate::{ids, run, text};

fn create(dir: &Path, name: &str, arguments: &[&str], size: &str) -> String {
    let path = text(&dir.join(name)).to_owned();
    run("qemu-img", &[&["create", "-q", "-f", "qcow2"], arguments, &[path.as_str(), size]].concat());
    path
}

#[test]
fn images_are_known_by_their_headers() {
    require!(program "qemu-img", "stat");
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let at = dir.path();
    let base = create(at, "base", &[], "64M");
    create(at, "small", &["-o", "cluster_size=4k"], "64M");
    create(at, "old", &["-o", "compat=0.10"], "64M");
    create(at, "large", &[], "600G");
    create(at, "overlay", &["-o", "cluster_size=2M", "-b", &base, "-F", "qcow2"], "64M");
    create(at, "extended", &["-o", "cluster_size=2M,extended_l2=on", "-b", &base, "-F", "qcow2"], "64M");
    let snapshots = create(at, "snapshots", &[], "64M");
    run("qemu-img", &["snapshot", "-c", "one", &snapshots]);
    run("qemu-img", &["create", "-q", "-f", "vmdk", text(&at.join("foreign")), "64M"]);
    let mut below = base;
    for number in 1..=4 {
        below = create(at, &format!("chain{number}"), &["-b", &below, "-F", "qcow2"], "64M");
    }
    // A backing file without its format, as older tools left it: the header's extension is made an unknown one.
    let probed = create(at, "probed", &["-b", &below, "-F", "qcow2"], "64M");
    let mut bytes = std::fs::read(&probed).expect("the image");
    let mark = [0xe2, 0x79, 0x2a, 0xca];
    let at_mark = bytes.windows(4).position(|window| window == mark).expect("the extension");
    bytes[at_mark] = 0x12;
    std::fs::write(&probed, bytes).expect("written");

    let cases: [(&str, &[&str]); 10] = [
        ("base", &[]),
        ("extended", &[]),
        ("small", &["image-small-clusters"]),
        ("old", &["image-old-version"]),
        ("overlay", &["overlay-copies-clusters"]),
        ("snapshots", &["image-internal-snapshots"]),
        ("foreign", &["image-foreign-format"]),
        ("chain3", &[]),
        ("chain4", &["image-chain-long"]),
        ("large", &["image-tables-beyond-cache"]),
    ];
    for (name, expected) in cases {
        let path = at.join(name);
        // Findings about this machine's disk are not tested here.
        let found: Vec<&str> =
            ids(&path, text(at)).into_iter().filter(|id| *id != "image-larger-than-space").collect();
        assert_eq!(found, expected, "{name}");
    }
    let found = ids(Path::new(&probed), text(at));
    assert_eq!(found, ["image-format-probed", "image-chain-long"]);
}

/// A QEMU process whose guest does not run; killed on drop.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_guest_is_known_by_its_command_line() {
    require!(program "qemu-system-x86_64", "qemu-img", "truncate");
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let paths: Vec<String> = ["unsafe", "through", "threads", "good"]
        .map(|name| {
            let path = text(&dir.path().join(name)).to_owned();
            run("truncate", &["-s", "1M", &path]);
            path
        })
        .to_vec();
    let drive = |index: usize, options: &str| format!("file={},format=raw,{options}", paths[index]);
    let good = format!(
        r#"{{"driver":"raw","node-name":"n","discard":"unmap","cache":{{"direct":false,"no-flush":false}},"file":{{"driver":"file","filename":"{}","cache":{{"direct":false}}}}}}"#,
        paths[3]
    );
    let child = Command::new(iotax_testkit::program("qemu-system-x86_64"))
        .args(["-S", "-nodefaults", "-display", "none", "-machine", "pc,accel=tcg", "-name", "iotax-test"])
        .args(["-drive", &drive(0, "if=virtio,cache=unsafe")])
        .args(["-drive", &drive(1, "if=ide,cache=writethrough")])
        .args(["-drive", &drive(2, "if=none,id=d,cache=none,aio=threads,discard=ignore")])
        .args(["-device", "virtio-blk-pci,drive=d,werror=ignore,num-queues=1"])
        .args(["-blockdev", &good, "-device", r#"{"driver":"virtio-blk-pci","drive":"n","id":"last"}"#])
        .stdin(Stdio::null())
        .spawn()
        .expect("QEMU starts");
    let mut qemu = Qemu(child);
    // Until it is executed, the process has this test's own command line.
    let line = format!("/proc/{}/cmdline", qemu.0.id());
    while !std::fs::read_to_string(&line).is_ok_and(|line| line.contains("iotax-test\0")) {
        assert!(qemu.0.try_wait().expect("a child").is_none(), "QEMU ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let cases: [&[&str]; 4] = [
        &["cache-unsafe", "guest-emulated"],
        &["guest-emulated", "cache-writethrough", "disk-emulated"],
        &["write-errors-ignored", "guest-emulated", "threads-for-direct-io", "guest-discards-dropped"],
        &["guest-emulated"],
    ];
    for (path, expected) in paths.iter().zip(cases) {
        assert_eq!(ids(Path::new(path), "iotax-test"), expected, "{path}");
    }
}

#[test]
fn an_image_that_cannot_be_read_is_not_taken_for_a_good_one() {
    require!(program "qemu-img", "mkfifo");
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let at = dir.path();
    let base = create(at, "base", &[], "64M");
    let on_missing = create(at, "on_missing", &["-b", &base, "-F", "qcow2"], "64M");
    let low = create(at, "low", &[], "64M");
    let high = create(at, "high", &["-b", &low, "-F", "qcow2"], "64M");
    run("qemu-img", &["rebase", "-u", "-b", &high, "-F", "qcow2", &low]);
    std::fs::remove_file(&base).expect("removed");
    let on_fifo = create(at, "on_fifo", &["-u", "-b", "pipe", "-F", "raw"], "64M");
    run("mkfifo", &[text(&at.join("pipe"))]);
    let remote = create(at, "remote", &["-u", "-b", "nbd://127.0.0.1:1/x", "-F", "raw"], "64M");
    let cut = create(at, "cut", &[], "64M");
    std::fs::File::options().write(true).open(&cut).expect("the image").set_len(80).expect("cut off");
    std::fs::write(at.join("garbage.qcow2"), "garbage").expect("written");
    let garbage = text(&at.join("garbage.qcow2")).to_owned();

    assert_eq!(ids(Path::new(&on_missing), text(at)), ["image-backing-missing"]);
    assert_eq!(ids(Path::new(&high), text(at)), ["image-backing-loop"]);
    let survey = |path: &str| survey::path(Path::new("/"), Path::new(path)).expect("a path");
    for (path, reason) in
        [(&on_fifo, "neither a regular file"), (&cut, "table ends at byte"), (&garbage, "no such header")]
    {
        let unread = survey(path).subject_unread.unwrap_or_default();
        assert!(unread.contains(reason), "{path}: {unread}");
    }
    let survey = survey(&remote);
    assert_eq!(survey.subject_unread, None);
    assert!(survey.unread.iter().any(|reason| reason.contains("nbd://127.0.0.1:1/x")), "{:?}", survey.unread);
}
