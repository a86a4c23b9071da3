//! Tests of devices that must not be written: loop devices on this machine, and recorded trees for features that this kernel lacks.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::Bytes;
use iotax_testbed::device::{DeviceClaim, Permission, claim, usage};
use iotax_testbed::refusal::Refusal;
use iotax_testbed::target::preflight;
use iotax_testkit::tree;

const HELD: &str = include_str!("trees/held.tree");

#[test]
fn what_the_kernel_uses_is_refused_and_named() {
    let root = tree::build(HELD);
    for (number, words) in [
        ("8:0", &["running system", "a2"][..]),
        ("8:2", &["running system", "a2"]),
        ("253:0", &["running system", "dm-0"]),
        ("8:16", &["b1 is mounted on /srv/my images", "umount"]),
        ("8:17", &["b1 is mounted"]),
        ("8:32", &["c is in use as swap", "swapoff /dev/c"]),
        ("8:48", &["d1 is held by md127", "lsblk"]),
        ("8:64", &["e belongs to the btrfs filesystem 5a0c1d4e"]),
        ("8:80", &["f is mounted on /logged"]),
        ("8:96", &["g is below loop3", "losetup --detach /dev/loop3"]),
        ("8:112", &["read-only", "--setrw"]),
        ("9:9", &["no device 9:9 any more"]),
    ] {
        let reason = usage::check(root.path(), number).expect_err(number);
        assert!(words.iter().all(|word| reason.contains(word)), "{number}: {reason}");
    }
    // A partition next to others in use, and an unused disk.
    for number in ["8:1", "8:18", "8:128"] {
        assert_eq!(usage::check(root.path(), number), Ok(()), "{number}");
    }
    // A volume on a disk other than the root's.
    tree::write(root.path(), "proc/self/mountinfo", "1 0 8:128 / / rw - ext4 /dev/i rw");
    let reason = usage::check(root.path(), "8:0").expect_err("held");
    assert!(reason.contains("a2 is held by dm-0 (vg0-root)"), "{reason}");
    fs::remove_file(root.path().join("proc/self/mountinfo")).expect("removed");
    let reason = usage::check(root.path(), "8:128").expect_err("not known");
    assert!(reason.contains("mount table cannot be read"), "{reason}");
}

/// A loop device over a file; removed when dropped.
struct Loop {
    node: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Loop {
    /// Returns `None`, with a message, if this machine has no loop devices.
    fn new(arguments: &[&str]) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
        file.as_file().set_len(32 << 20).expect("sized");
        Self::over(file, arguments)
    }

    fn over(file: tempfile::NamedTempFile, arguments: &[&str]) -> Option<Self> {
        iotax_testkit::require!(program "losetup", "wipefs");
        let attached =
            Command::new("losetup").args(["--find", "--show"]).args(arguments).arg(file.path()).output();
        match attached {
            Ok(output) if output.status.success() => {
                let node = String::from_utf8(output.stdout).expect("a path").trim().into();
                Some(Self { node, file })
            }
            failed => iotax_testkit::skip!("no loop device: {failed:?}"),
        }
    }

    fn permission(&self) -> Permission {
        Permission::new([self.node.clone()], false)
    }

    fn claim(&self) -> Result<DeviceClaim, Refusal> {
        claim(&self.node, &self.permission())
    }

    /// Asserts that it can be claimed, once other processes that search for a free loop device have closed it.
    fn comes_free(&self, permission: &Permission) -> DeviceClaim {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match claim(&self.node, permission) {
                Ok(claim) => return claim,
                Err(refusal) => assert!(Instant::now() < deadline, "{refusal}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asserts that it is rejected, with these words and the device's name.
    fn refused(&self, words: &[&str]) {
        let refusal = self.claim().expect_err(words[0]);
        let text = refusal.to_string();
        assert!(text.starts_with(&self.node.display().to_string()), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(refusal.exit, Exit::Environment, "{text}");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.node).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} on {} is left over", self.node.display(), self.file.path().display());
        }
    }
}

/// Runs a command and asserts success.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_free_device_is_claimed_under_every_name_and_against_everybody() {
    let Some(device) = Loop::new(&[]) else { return };
    let held = device.comes_free(&device.permission());
    assert_eq!((&held.block.path, held.block.size), (&device.node, Bytes(32 << 20)));
    device.refused(&["O_EXCL", "lsblk"]);
    let exclusive = || {
        let mut options = File::options();
        options.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
        options.open(&device.node)
    };
    assert!(exclusive().is_err(), "a mount would be refused");
    drop(held);
    // A child forked by another test may hold inherited descriptors until it executes its program.
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = exclusive() {
        assert!(Instant::now() < deadline, "not free again: {error}");
    }

    let temp = tempfile::tempdir().expect("temp dir");
    let link = temp.path().join("by-id");
    symlink(&device.node, &link).expect("linked");
    let held = claim(&link, &device.permission()).expect("the same device");
    assert_eq!(held.block.path, device.node);
    drop(held);
    let linked = Permission::new([link], false);
    claim(&device.node, &linked).expect("the same device");
}

#[test]
fn a_device_that_is_mounted_swaps_or_is_beneath_another_is_refused() {
    iotax_testkit::require!(program "mkfs.ext4", "mount", "umount", "mkswap", "swapon", "swapoff");
    let Some(device) = Loop::new(&[]) else { return };
    let temp = tempfile::tempdir().expect("temp dir");
    let point = temp.path().canonicalize().expect("there");
    run("mkfs.ext4", &["-q", text(&device.node)]);
    run("mount", &[text(&device.node), text(&point)]);
    device.refused(&["is mounted on", text(&point), "umount"]);
    run("umount", &[text(&point)]);

    run("mkswap", &["-q", text(&device.node)]);
    let swaps = Command::new("swapon").arg(&device.node).status().is_ok_and(|status| status.success());
    if swaps {
        device.refused(&["in use as swap", "swapoff"]);
        run("swapoff", &[text(&device.node)]);
    } else {
        iotax_testkit::skipped::<()>("this kernel does not swap on loop devices");
    }

    run("wipefs", &["--force", "--quiet", "--all", text(&device.node)]);
    let output = Command::new("losetup").args(["--find", "--show"]).arg(&device.node).output();
    let above = String::from_utf8(output.expect("losetup").stdout).expect("a path");
    device.refused(&["is below", above.trim().trim_start_matches("/dev/"), "losetup --detach"]);
    run("losetup", &["--detach", above.trim()]);
    // wipefs takes the signatures away, and leaves the rest of the filesystem.
    device.comes_free(&Permission::new([device.node.clone()], true));
}

/// Partitions added to the kernel; removed when dropped.
struct Partitions(PathBuf);

impl Drop for Partitions {
    fn drop(&mut self) {
        let _ = Command::new("partx").arg("--delete").arg(&self.0).status();
    }
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused() {
    iotax_testkit::require!(program "sfdisk", "partx", "mkfs.ext4", "mount", "umount");
    let table = tempfile::NamedTempFile::new().expect("file");
    fs::write(table.path(), "label: dos\nsize=16MiB\n").expect("written");
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
    file.as_file().set_len(32 << 20).expect("sized");
    let script = File::open(table.path()).expect("opened");
    let made = Command::new("sfdisk").arg("--quiet").arg(file.path()).stdin(script).status();
    assert!(made.expect("sfdisk").success());
    let Some(disk) = Loop::over(file, &[]) else { return };
    // Otherwise the kernel keeps the partitions for the next loop device of this number.
    let _partitions = Partitions(disk.node.clone());
    // Not every kernel scans for partitions by itself.
    run("partx", &["--update", text(&disk.node)]);
    disk.refused(&["it carries dos at 0x1fe", "--overwrite-signature"]);
    let partition = PathBuf::from(format!("{}p1", disk.node.display()));
    run("mkfs.ext4", &["-q", text(&partition)]);
    let temp = tempfile::tempdir().expect("temp dir");
    let point = temp.path().canonicalize().expect("there");
    run("mount", &[text(&partition), text(&point)]);
    let name = partition.file_name().and_then(|name| name.to_str()).expect("a name");
    disk.refused(&[&format!("{name} is mounted on"), text(&point)]);
    let permission = Permission::new([partition.clone()], true);
    let refusal = claim(&partition, &permission).expect_err("mounted");
    assert!(refusal.to_string().contains("is mounted on"), "{refusal}");
    run("umount", &[text(&point)]);
    claim(&partition, &permission).expect("free, and what it carries may go");
}

#[test]
fn a_signature_is_quoted_and_kept_unless_it_may_go() {
    iotax_testkit::require!(program "mkfs.ext4");
    let Some(device) = Loop::new(&[]) else { return };
    run("mkfs.ext4", &["-q", "-L", "mine", text(&device.node)]);
    let before = fs::read(device.file.path()).expect("read");
    device.refused(&["it carries ext4 \"mine\" at 0x438", "--overwrite-signature", "wipefs --all"]);
    device.comes_free(&Permission::new([device.node.clone()], true));
    assert!(fs::read(device.file.path()).expect("read") == before, "looking changes nothing");
}

#[test]
fn what_no_signature_tells_of_is_not_taken_for_nothing() {
    let Some(device) = Loop::new(&[]) else { return };
    // A tar archive begins with a file's name, and its magic number is not recognised here.
    std::os::unix::fs::FileExt::write_all_at(device.file.as_file(), b"backup/home", 0).expect("written");
    device.file.as_file().sync_all().expect("synced");
    device.refused(&["no signature that is known, but is not empty: byte 0", "--overwrite-signature"]);
    device.comes_free(&Permission::new([device.node.clone()], true));
}

#[test]
fn a_device_that_somebody_writes_or_that_cannot_be_written_is_refused() {
    let Some(device) = Loop::new(&[]) else { return };
    let script = "exec 3<>\"$0\"; echo; read line";
    let mut writer = Command::new("sh")
        .args(["-c", script, text(&device.node)])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = [0];
    std::io::Read::read_exact(&mut writer.stdout.take().expect("piped"), &mut line).expect("it is open");
    device.refused(&[&format!("sh (process {}) has it open for writing", writer.id())]);
    drop(writer.stdin.take());
    writer.wait().expect("ended");
    device.comes_free(&device.permission());
    let Some(read_only) = Loop::new(&["--read-only"]) else { return };
    read_only.refused(&["it is read-only", "--setrw"]);
}

#[test]
fn a_device_without_content_and_nodes_without_a_device_are_refused() {
    let Some(mut device) = Loop::new(&[]) else { return };
    let other = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
    let empty = Loop::over(other, &[]);
    if let Some(empty) = empty {
        empty.refused(&["it holds nothing"]);
    }
    // A node without a device: an unused number.
    let temp = tempfile::tempdir().expect("temp dir");
    let node = temp.path().join("gone");
    let major = rustix::fs::major(fs::metadata(&device.node).expect("there").rdev());
    run("mknod", &[text(&node), "b", &major.to_string(), "1048000"]);
    let kept = std::mem::replace(&mut device.node, node);
    device.refused(&["no device", "any more", "lsblk"]);
    device.node = kept;
    for (path, words) in [
        ("/dev/iotax-none", "no such device"),
        ("/dev/null", "not a block device"),
        (text(temp.path()), "not a block device"),
    ] {
        let refusal = claim(Path::new(path), &device.permission()).expect_err(words);
        assert!(refusal.to_string().contains(words) && refusal.to_string().contains(path), "{refusal}");
        assert_eq!(refusal.exit, Exit::Usage);
    }
}

#[test]
fn the_disk_beneath_the_running_system_is_refused_first() {
    let stack = iotax_testbed::stack::of_path(Path::new("/"), Path::new("/")).expect("readable");
    let Some(disk) = stack.disks.first() else {
        iotax_testkit::skip!("no block device is known below / here");
    };
    let node = Path::new("/dev").join(disk);
    if !node.exists() {
        iotax_testkit::skip!("{} is not there", node.display());
    }
    // A claim opens nothing for writing, whatever the permission.
    let refusal = claim(&node, &Permission::new([node.clone()], true)).expect_err("refused");
    assert!(refusal.to_string().contains("the running system is on it"), "{refusal}");
}

#[test]
fn a_permission_is_for_the_disk_that_stood_there_and_not_for_the_next() {
    let Some(device) = Loop::new(&[]) else { return };
    let permission = device.permission();
    drop(device.comes_free(&permission));
    // The same node and number, with another disk. No other test may take the number, and a fork of one holds the device for a moment.
    run("losetup", &["--detach", text(&device.node)]);
    let other = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
    other.as_file().set_len(32 << 20).expect("sized");
    let attach = || Command::new("losetup").arg(&device.node).arg(other.path()).output().expect("losetup");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let attached = attach();
        if attached.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&attached.stderr));
        std::thread::sleep(Duration::from_millis(50));
    }
    let refusal = claim(&device.node, &permission).expect_err("refused").to_string();
    assert!(refusal.contains("another device has taken its place"), "{refusal}");
    device.comes_free(&device.permission());
}

#[test]
fn a_plan_says_before_anything_is_touched_what_a_device_is_not_for() {
    let Some(device) = Loop::new(&[]) else { return };
    let Some(other) = Loop::new(&[]) else { return };
    let node = device.node.display();
    let named = device.permission();
    let none = Permission::default();
    let both = Permission::new([device.node.clone(), other.node.clone()], false);
    let ext4 = "filesystem = { type = 'ext4' }\nfile = {}";
    let device_key = format!("device = '{node}'");
    for (target, workload, permission, words) in [
        (device_key.clone(), "rw = 'write'", &none, format!("--overwrite {node}")),
        (format!("{device_key}\n{ext4}"), "size = '16m'", &none, format!("--overwrite {node}")),
        (
            format!("{device_key}\nguest = {{ filesystem = 'ext4' }}"),
            "rw = 'read'\nsize = '4m'",
            &none,
            format!("--overwrite {node}"),
        ),
        (
            format!("{device_key}\nguest = {{ filesystem = 'ext4' }}"),
            "size = '16m'",
            &named,
            "less than the 145 MiB that \"t\" needs".to_owned(),
        ),
        (format!("path = '{node}'"), "rw = 'write'", &none, format!("iotax bench {node} --overwrite {node}")),
        (device_key.clone(), "rw = 'read'", &both, "no target is on that device".to_owned()),
        (device_key.clone(), "size = '33m'", &named, "more than its length of 32.0 MiB".to_owned()),
        (device_key.clone(), "bs = '64m'", &named, "less than one block".to_owned()),
        (format!("{device_key}\n{ext4}"), "size = '32m'", &named, "give a smaller size".to_owned()),
        (
            format!("{device_key}\n[[target]]\nname = 'u'\n{device_key}\n{ext4}"),
            "size = '4m'",
            &named,
            "targets \"t\" and \"u\" are on the same device".to_owned(),
        ),
    ] {
        let toml = format!("[[target]]\nname = 't'\n{target}\n[[workload]]\n{workload}");
        let plan = Plan::from_toml(&toml).expect("a plan");
        let refusal = preflight::check(&plan, permission).expect_err(&words);
        assert!(refusal.to_string().contains(&words), "{toml}: {refusal}");
        assert_eq!(refusal.exit, Exit::Usage, "{refusal}");
    }
    let plan = |workload: &str| {
        Plan::from_toml(&format!("[[target]]\nname = 't'\n{device_key}\n[[workload]]\n{workload}"))
    };
    preflight::check(&plan("rw = 'write'").expect("a plan"), &named).expect("named twice");
    preflight::check(&plan("rw = 'read'").expect("a plan"), &none).expect("only read");
}
