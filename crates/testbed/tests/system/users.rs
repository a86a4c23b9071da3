//! Tests of users of a device that hold it through nodes outside of /dev.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iotax_testbed::device::{Permission, claim};
use tempfile::{TempDir, TempPath};

/// Number of loop devices created. Each gets its own length: one that lost its name is identified by length, and tests run concurrently.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A loop device's node; detached when dropped.
struct Attached(PathBuf);

impl Deref for Attached {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        undo("losetup", &["--detach".as_ref(), &self.0]);
    }
}

/// A mounted filesystem; unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(node: &Path, point: &'a Path) -> Self {
        run("mkfs.ext4", &["-q".as_ref(), node]);
        run("mount", &[node, point]);
        Self(point)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        undo("umount", &[self.0]);
    }
}

/// An unused loop device over a file of about 16 MiB, of unique length; both are removed when dropped.
struct Loop {
    node: Attached,
    file: TempPath,
}

impl Loop {
    /// Returns `None`, with a message, if this machine has no loop devices.
    fn new() -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("file");
        let length = (16 << 20) + 4096 * NUMBER.fetch_add(1, Ordering::Relaxed);
        file.as_file().set_len(length).expect("sized");
        let file = file.into_temp_path();
        Some(Self { node: attach(&[], &file)?, file })
    }

    fn name(&self) -> &str {
        self.node.file_name().and_then(|name| name.to_str()).expect("a name")
    }

    /// Creates another node for it, outside /dev.
    fn second_node(&self, dir: &TempDir, name: &str) -> PathBuf {
        let (node, number) = (dir.path().join(name), fs::metadata(&*self.node).expect("there").rdev());
        let [major, minor] =
            [rustix::fs::major(number), rustix::fs::minor(number)].map(|part| part.to_string());
        run("mknod", &[node.as_path(), "b".as_ref(), major.as_ref(), minor.as_ref()]);
        node
    }

    /// Asserts that it is rejected, with these words and the device's name.
    fn refused(&self, words: &[&str]) {
        let permission = Permission::new([self.node.to_path_buf()], false);
        let said = claim(&self.node, &permission).expect_err(words[0]).to_string();
        assert!(said.starts_with(&self.node.display().to_string()), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    }

    /// Asserts that it can be claimed, once processes that scan new devices have closed it.
    fn free(&self) {
        self.free_after(|| {});
    }

    /// Same for a device that had a filesystem. A copy of the mount in another test's namespace may still write to it, so it is wiped until
    /// it stays blank, including data that wipefs(8) leaves.
    fn free_once_wiped(&self) {
        let wipe = ["--force".as_ref(), "--quiet".as_ref(), "--all".as_ref(), &*self.node];
        self.free_after(|| {
            run("wipefs", &wipe);
            fs::write(&*self.node, vec![0; 1 << 20]).expect("blank");
        });
    }

    fn free_after(&self, prepare: impl Fn()) {
        let permission = Permission::new([self.node.to_path_buf()], false);
        let deadline = Instant::now() + Duration::from_secs(10);
        prepare();
        while let Err(refusal) = claim(&self.node, &permission) {
            assert!(Instant::now() < deadline, "{refusal}");
            std::thread::sleep(Duration::from_millis(50));
            prepare();
        }
    }
}

fn attach(options: &[&str], below: &Path) -> Option<Attached> {
    iotax_testkit::require!(program "losetup", "mkfs.ext4", "wipefs");
    let attached = Command::new("losetup").args(["--find", "--show"]).args(options).arg(below).output();
    match attached {
        Ok(output) if output.status.success() => {
            Some(Attached(String::from_utf8(output.stdout).expect("a path").trim().into()))
        }
        failed => iotax_testkit::skip!("no loop device: {failed:?}"),
    }
}

fn run(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// As `run`, without a second panic in a failed test.
fn undo(program: &str, arguments: &[&Path]) {
    let done = Command::new(program).args(arguments).status().is_ok_and(|status| status.success());
    assert!(done || std::thread::panicking(), "{program} {arguments:?} failed: it is left over");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A shell that runs a command, reports its end, and waits until stdin is closed.
struct Shell(Child);

impl Shell {
    fn new(program: &[&str], line: &str) -> Self {
        let line = format!("{line} && echo && read line");
        Self::start(Command::new(program[0]).args(&program[1..]).args(["-c", &line]))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut said = [0];
        child.stdout.take().expect("piped").read_exact(&mut said).expect("it has begun");
        Self(child)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("ended");
    }
}

#[test]
fn a_writer_through_a_node_outside_dev_is_found() {
    let Some(device) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let node = device.second_node(&dir, "elsewhere");
    let writer = Shell::new(&["sh"], &format!("exec 3<>{}", text(&node)));
    // Also when nothing has that name any more.
    for _ in 0..2 {
        device.refused(&[&format!("sh (process {}) has it open for writing", writer.id())]);
        let _ = fs::remove_file(&node);
    }
    drop(writer);
    device.free();
}

/// A process whose second thread runs this Python code while the first waits or has ended.
fn threads(lines: &str, first_ends: bool) -> Shell {
    let lines = lines.replace('\n', "\n    ");
    let end = if first_ends { "libc.pthread_exit(None)" } else { "thread.join()" };
    let script = format!(
        "import ctypes, os, threading\nlibc = ctypes.CDLL(None)\ndef work():\n    {lines}\n    os.write(1, b'x')\n    \
         os.read(0, 1)\nthread = threading.Thread(target=work)\nthread.start()\n{end}\n"
    );
    let shell = Shell::start(Command::new("python3").args(["-c", &script]));
    let has_ended =
        || fs::read_to_string(format!("/proc/{}/stat", shell.id())).expect("there").contains(") Z ");
    let deadline = Instant::now() + Duration::from_secs(10);
    while first_ends && !has_ended() {
        assert!(Instant::now() < deadline, "its first thread does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    shell
}

const UNSHARE_FILES: &str = "assert libc.unshare(0x400) == 0";

#[test]
fn what_only_a_second_thread_has_open_is_found() {
    iotax_testkit::require!(program "python3");
    let Some(device) = Loop::new() else { return };
    let open = |path: &Path| format!("os.open({:?}, os.O_RDWR)", text(path));
    for (lines, first_ends) in [("pass", true), (UNSHARE_FILES, false)] {
        for (path, what) in [(&*device.node, "it"), (&*device.file, "the file below it")] {
            let writer = threads(&format!("{lines}\n{}", open(path)), first_ends);
            device.refused(&[&format!("(process {}) has {what} open", writer.id())]);
        }
    }
    device.free();
}

#[test]
fn a_mount_that_only_a_second_thread_sees_is_found() {
    iotax_testkit::require!(program "python3");
    let Some(device) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let point = dir.path().canonicalize().expect("there");
    run("mkfs.ext4", &["-q".as_ref(), &*device.node]);
    let mount = format!(
        "assert libc.unshare(0x20000) == 0\nassert libc.mount(None, b'/', None, 0x44000, None) == 0\n\
         assert libc.mount(b{:?}, b{:?}, b'ext4', 0, None) == 0",
        text(&device.node),
        text(&point)
    );
    let other = threads(&mount, false);
    device.refused(&[
        &format!("is mounted on {}", text(&point)),
        &format!("in the mount namespace of python3 (process {})", other.id()),
    ]);
}

#[test]
fn what_has_the_file_beneath_a_device_open_is_found() {
    let Some(device) = Loop::new() else { return };
    let writer = Shell::new(&["sh"], &format!("exec 3<>{}", text(&device.file)));
    device.refused(&[&format!("sh (process {}) has the file below it open", writer.id())]);
    drop(writer);
    let reader = Shell::new(&["sh"], &format!("exec 3<{}", text(&device.file)));
    device.free();
    drop(reader);
}

#[test]
fn a_loop_device_through_a_node_outside_dev_is_found() {
    let Some(device) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let node = device.second_node(&dir, "elsewhere");
    let Some(above) = attach(&[], &node) else { return };
    let name = above.file_name().and_then(|name| name.to_str()).expect("a name");
    let point = tempfile::tempdir().expect("temp dir");
    let mounted = Mounted::new(&above, point.path());
    device.refused(&[&format!("is below {name}"), &format!("losetup --detach {}", text(&above))]);
    // Its name is gone; its length identifies it.
    fs::remove_file(&node).expect("removed");
    device.refused(&[name, "whose name is gone", "is mounted on", "losetup --detach"]);
    drop((mounted, above));
    device.free_once_wiped();
}

#[test]
fn a_second_loop_device_over_the_same_bytes_of_a_file_is_found() {
    let Some(device) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let (linked, point) = (device.file.with_extension("linked"), dir.path());
    fs::hard_link(&device.file, &linked).expect("linked");
    let Some(other) = attach(&[], &linked) else { return };
    fs::remove_file(&linked).expect("removed");
    let name = other.file_name().and_then(|name| name.to_str()).expect("a name");
    let mounted = Mounted::new(&other, point);
    device.refused(&[
        &format!("{name} stands on the same file"),
        &format!("losetup --detach {}", text(&other)),
    ]);
    drop((mounted, other));
    device.free_once_wiped();
}

#[test]
fn loop_devices_over_two_parts_of_a_file_do_not_share() {
    let Some(whole) = Loop::new() else { return };
    let Some(first) = attach(&["--sizelimit", "8M"], &whole.file) else { return };
    let Some(second) = attach(&["--offset", "8M"], &whole.file) else { return };
    let refusal = |node: &Path| {
        let refused = claim(node, &Permission::new([node.to_path_buf()], false)).err();
        refused.map(|refusal| refusal.to_string()).unwrap_or_default()
    };
    let name = whole.name().to_owned();
    assert!(refusal(&first).contains(&format!("{name} stands on the same file")), "{}", refusal(&first));
    drop(whole);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !(refusal(&first) + &refusal(&second)).is_empty() {
        assert!(Instant::now() < deadline, "{} {}", refusal(&first), refusal(&second));
    }
}

#[test]
fn what_uses_the_device_beneath_a_loop_device_is_found() {
    let Some(below) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let Some(node) = attach(&[], &below.node) else { return };
    let refused = |words: &[&str]| {
        let refused =
            claim(&node, &Permission::new([node.to_path_buf()], true)).expect_err(words[0]).to_string();
        assert!(words.iter().all(|word| refused.contains(word)), "{words:?}: {refused}");
    };
    let mounted = Mounted::new(&below.node, dir.path());
    refused(&[&format!("it stands on {}", below.name()), "is mounted on"]);
    drop(mounted);
    run("mkswap", &["-q".as_ref(), &below.node]);
    let elsewhere = below.second_node(&dir, "swap");
    let swaps = Command::new("swapon").arg(&elsewhere).status().is_ok_and(|status| status.success());
    if swaps {
        refused(&[&format!("it stands on {}", below.name()), "in use as swap"]);
        below.refused(&["in use as swap", &format!("swapoff {}", text(&elsewhere))]);
        run("swapoff", &[&elsewhere]);
    } else {
        iotax_testkit::skipped::<()>("this kernel does not swap on loop devices");
    }
    let writer = Shell::new(&["sh"], &format!("exec 3<>{}", text(&elsewhere)));
    refused(&[&format!("sh (process {})", writer.id())]);
    drop(writer);
}

#[test]
fn a_mount_in_another_mount_namespace_is_found() {
    let Some(device) = Loop::new() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let point = dir.path().canonicalize().expect("there");
    run("mkfs.ext4", &["-q".as_ref(), &*device.node]);
    let mount = format!("mount {} {}", text(&device.node), text(&point));
    let other = Shell::new(&["unshare", "--mount", "--propagation", "private", "sh"], &mount);
    device.refused(&[
        &format!("is mounted on {}", text(&point)),
        &format!("in the mount namespace of sh (process {})", other.id()),
    ]);
    drop(other);
}

#[test]
fn the_header_of_a_disk_image_is_a_signature() {
    let Some(device) = Loop::new() else { return };
    let mut file = File::options().write(true).open(&*device.node).expect("opened");
    let mut put = |place: SeekFrom, bytes: &[u8]| {
        let at = file.seek(place).expect("there");
        file.write_all(bytes).and_then(|()| file.sync_all()).expect("written");
        at
    };
    for (name, place, bytes) in [
        ("qcow2", SeekFrom::Start(0), &b"QFI\xfb"[..]),
        ("QED", SeekFrom::Start(0), b"QED\0"),
        ("VMDK", SeekFrom::Start(0), b"KDMV"),
        ("VMDK", SeekFrom::Start(0), b"COWD"),
        ("VMDK", SeekFrom::Start(0), b"# Disk DescriptorFile"),
        ("VHDX", SeekFrom::Start(0), b"vhdxfile"),
        ("VHD", SeekFrom::Start(0), b"conectix"),
        ("VHD", SeekFrom::End(-512), b"conectix"),
        ("VDI", SeekFrom::Start(0x40), b"\x7f\x10\xda\xbe"),
        ("Parallels", SeekFrom::Start(0), b"WithoutFreeSpace"),
        ("Parallels", SeekFrom::Start(0), b"WithouFreSpacExt"),
        ("DMG", SeekFrom::End(-512), b"koly"),
        ("LUKS", SeekFrom::Start(0), b"LUKS\xba\xbe\0\x01"),
    ] {
        let at = put(place, bytes);
        let said = claim(&device.node, &Permission::new([device.node.to_path_buf()], false));
        let said = said.expect_err(name).to_string();
        let found = format!("it carries {name} at {at:#x}");
        assert!(said.contains(&found) || (name == "LUKS" && said.contains("crypto_LUKS at")), "{said}");
        assert!(said.contains("--overwrite-signature"), "{said}");
        put(place, &vec![0; bytes.len()]);
    }
    drop(file);
    device.free();
}

#[test]
fn real_images_on_a_device_are_signatures() {
    iotax_testkit::require!(program "qemu-img");
    let Some(device) = Loop::new() else { return };
    for format in ["qcow2", "qcow", "qed", "vmdk", "vhdx", "vpc", "vdi", "parallels"] {
        let dir = tempfile::tempdir().expect("temp dir");
        let image = dir.path().join("image");
        run(
            "qemu-img",
            &["create".as_ref(), "-q".as_ref(), "-f".as_ref(), format.as_ref(), &image, "8M".as_ref()],
        );
        run(
            "dd",
            &[
                format!("if={}", text(&image)).as_ref(),
                format!("of={}", text(&device.node)).as_ref(),
                "conv=fsync".as_ref(),
            ],
        );
        device.refused(&["it carries", "--overwrite-signature"]);
        // Forced: forks of other tests hold the claim, which is exclusive, for a moment.
        run("blkdiscard", &["--force".as_ref(), "--zeroout".as_ref(), &*device.node]);
    }
    device.free();
}

#[test]
fn a_name_means_the_device_that_it_led_to_when_it_was_allowed() {
    let (Some(ours), Some(theirs)) = (Loop::new(), Loop::new()) else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let link = dir.path().join("link");
    symlink(&*ours.node, &link).expect("linked");
    let permission = Permission::new([link.clone()], true);
    ours.free();
    fs::remove_file(&link).expect("removed");
    symlink(&*theirs.node, &link).expect("linked");
    let held = claim(&link, &permission).expect("the device that was named");
    assert_eq!(*held.block.path, *ours.node);
    // A node outside /dev counts like any other.
    let elsewhere = theirs.second_node(&dir, "elsewhere");
    let held = claim(&elsewhere, &Permission::new([elsewhere.clone()], true)).expect("the device itself");
    assert_eq!(*held.block.path, *theirs.node);
}

/// An overlay filesystem in a directory of its own; unmounted when dropped.
struct Overlay(TempDir);

impl Overlay {
    /// Returns `None`, with a message, if this machine mounts none. `lower` is a file that the lower layer has.
    fn new(lower: Option<(&str, u64)>) -> Option<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
        ["lower", "upper", "work", "merged"]
            .iter()
            .for_each(|name| fs::create_dir(dir.path().join(name)).expect("made"));
        if let Some((name, length)) = lower {
            let file = File::create(dir.path().join("lower").join(name)).expect("made");
            file.set_len(length).expect("sized");
        }
        let place = text(dir.path());
        let layers = format!("lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work");
        let mount = ["-t", "overlay", "iotax-test", "-o", &layers, &format!("{place}/merged")];
        match Command::new("mount").args(mount).output() {
            Ok(output) if output.status.success() => Some(Self(dir)),
            failed => iotax_testkit::skip!("no overlay filesystem: {failed:?}"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        undo("umount", &[&self.path("merged")]);
    }
}

#[test]
fn the_file_beneath_a_device_is_found_under_the_name_that_an_overlay_gives_it() {
    iotax_testkit::require!(root);
    let length = (16 << 20) + 4096 * NUMBER.fetch_add(1, Ordering::Relaxed);
    // Created in the overlay, and copied up from the lower layer, which keeps its inode number.
    for lower in [None, Some(("g", length))] {
        let Some(overlay) = Overlay::new(lower) else { return };
        let merged = File::options().write(true).create(true).truncate(false).open(overlay.path("merged/g"));
        merged.and_then(|file| file.set_len(length).and_then(|()| file.sync_all())).expect("sized");
        for (ours, theirs) in [("upper/g", "merged/g"), ("merged/g", "upper/g")] {
            let Some(node) = attach(&[], &overlay.path(ours)) else { return };
            let refused = || {
                let said = claim(&node, &Permission::new([node.to_path_buf()], true)).expect_err(theirs);
                said.to_string()
            };
            let writer = Shell::new(&["sh"], &format!("exec 3<>{}", text(&overlay.path(theirs))));
            let said = refused();
            assert!(said.contains(&format!("sh (process {}) has the file below it", writer.id())), "{said}");
            drop(writer);
            let Some(other) = attach(&[], &overlay.path(theirs)) else { return };
            let dir = tempfile::tempdir().expect("temp dir");
            let mounted = Mounted::new(&other, dir.path());
            let name = other.file_name().and_then(|name| name.to_str()).expect("a name");
            let said = refused();
            assert!(
                said.contains(&format!("{name} stands on the same file")) && said.contains(theirs),
                "{said}"
            );
            drop((mounted, other));
        }
    }
}
