use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_testkit::require;
use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

use crate::{ids, run, text};

/// A loop device; detached when it is dropped.
struct Loop(PathBuf);

impl Loop {
    /// Attaches a new sparse file. `None` if this machine has no loop devices.
    fn attach(dir: &Path, name: &str, size: &str, options: &[&str]) -> Option<Self> {
        let file = dir.join(name);
        run("truncate", &["-s", size, text(&file)]);
        let arguments = [&["--find", "--show"], options, &[text(&file)]].concat();
        let output =
            Command::new(iotax_testkit::program("losetup")).args(&arguments).output().expect("it starts");
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            iotax_testkit::skip!("losetup: {why}");
        }
        Some(Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
    }

    fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).expect("a name")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Partitions that were asked for would outlast the device.
        let _ = Command::new("partx").arg("--delete").arg(&self.0).stderr(Stdio::null()).status();
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A mounted filesystem; unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(device: &Path, point: PathBuf, options: &str) -> Self {
        std::fs::create_dir_all(&point).expect("a directory");
        run("mount", &["-o", options, text(device), text(&point)]);
        Self(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn temp_dir() -> TempDir {
    // Not /tmp, which may be a tmpfs.
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

#[test]
fn a_partition_that_begins_at_sector_63_is_found() {
    require!(root);
    require!(program "losetup", "truncate", "sfdisk", "partx", "sh");
    let dir = temp_dir();
    let file = dir.path().join("disk");
    run("truncate", &["-s", "16M", text(&file)]);
    let script = format!("echo 'start=63, size=8192' | sfdisk --quiet --no-reread {}", text(&file));
    run("sh", &["-c", &script]);
    let Some(device) = Loop::attach(dir.path(), "disk", "16M", &["--direct-io=on"]) else {
        return;
    };
    // Not every kernel reads partition tables by itself.
    run("partx", &["--update", text(&device.0)]);
    let partition = PathBuf::from(format!("{}p1", text(&device.0)));
    assert_eq!(ids(&partition, device.name()), ["partition-misaligned"]);
    assert_eq!(ids(&device.0, device.name()), ["partition-misaligned"], "what is on a device belongs to it");
}

#[test]
fn blocks_of_512_on_blocks_of_4096_and_a_cached_loop_are_found() {
    require!(root);
    require!(program "losetup", "truncate", "mkfs.ext4", "mount", "umount");
    let dir = temp_dir();
    let Some(below) = Loop::attach(dir.path(), "below", "64M", &["--sector-size", "4096", "--direct-io=on"])
    else {
        return;
    };
    run("mkfs.ext4", &["-q", text(&below.0)]);
    let mounted = Mounted::mount(&below.0, dir.path().join("mnt"), "relatime");
    let Some(above) = Loop::attach(&mounted.0, "above", "16M", &[]) else { return };
    assert_eq!(ids(&above.0, above.name()), ["blocks-smaller-than-below", "loop-through-cache"]);
    assert_eq!(ids(&above.0, below.name()), Vec::<&str>::new());
    drop(above);
}

#[test]
fn mount_options_that_cost_or_endanger_are_found() {
    require!(root);
    require!(program "losetup", "truncate", "mkfs.ext4", "mount", "umount");
    let dir = temp_dir();
    let cases: [(&str, &[&str]); 6] = [
        ("relatime", &[]),
        ("nobarrier", &["barriers-off"]),
        ("sync", &["mounted-sync"]),
        ("data=journal", &["journal-has-data"]),
        ("data=writeback,commit=300", &["data-writeback", "commit-rare"]),
        ("strictatime", &["access-times"]),
    ];
    for (number, (options, expected)) in cases.into_iter().enumerate() {
        // A disk for each: a mount namespace that begins meanwhile keeps a filesystem mounted, with its options.
        let disk = format!("disk{number}");
        let Some(device) = Loop::attach(dir.path(), &disk, "64M", &["--direct-io=on"]) else { return };
        run("mkfs.ext4", &["-q", text(&device.0)]);
        let mounted = Mounted::mount(&device.0, dir.path().join("mnt"), options);
        assert_eq!(ids(&mounted.0, text(&mounted.0)), expected, "{options}");
    }
}

#[test]
fn a_full_filesystem_and_an_image_that_does_not_fit_are_found() {
    require!(root);
    require!(program "losetup", "truncate", "mkfs.ext4", "mount", "umount", "fallocate", "stat");
    let dir = temp_dir();
    let Some(device) = Loop::attach(dir.path(), "disk", "64M", &["--direct-io=on"]) else { return };
    run("mkfs.ext4", &["-q", "-m", "0", "-N", "16", text(&device.0)]);
    let mounted = Mounted::mount(&device.0, dir.path().join("mnt"), "relatime");
    let (image, filler) = (mounted.0.join("image"), mounted.0.join("filler"));
    run("truncate", &["-s", "1G", text(&image)]);
    assert_eq!(ids(&image, text(&mounted.0)), ["image-larger-than-space"]);
    let free = run("stat", &["-f", "-c", "%a", text(&mounted.0)]).parse::<u64>().expect("blocks");
    let block = run("stat", &["-f", "-c", "%S", text(&mounted.0)]).parse::<u64>().expect("bytes");
    run("fallocate", &["-l", &(free * block - (1 << 20)).to_string(), text(&filler)]);
    assert_eq!(ids(&filler, text(&mounted.0)), ["filesystem-nearly-full"]);
}

#[test]
fn an_image_in_a_thousand_pieces_is_found() {
    require!(root);
    require!(program "losetup", "truncate", "mkfs.ext4", "mount", "umount", "stat", "filefrag");
    let dir = temp_dir();
    let Some(device) = Loop::attach(dir.path(), "disk", "64M", &["--direct-io=on"]) else { return };
    run("mkfs.ext4", &["-q", "-m", "0", "-b", "4096", text(&device.0)]);
    let mounted = Mounted::mount(&device.0, dir.path().join("mnt"), "relatime");
    // All that is left of a full filesystem is every other block.
    let filler = File::create(mounted.0.join("filler")).expect("a file");
    let free = run("stat", &["-f", "-c", "%a", text(&mounted.0)]).parse::<u64>().expect("blocks");
    fallocate(&filler, FallocateFlags::empty(), 0, free * 4096).expect("allocated");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for number in 0..1400 {
        fallocate(&filler, hole, number * 8192, 4096).expect("punched");
    }
    filler.sync_all().expect("synced");
    let path = mounted.0.join("pieces");
    fallocate(File::create(&path).expect("a file"), FallocateFlags::empty(), 0, 1200 * 4096)
        .expect("allocated");
    assert_eq!(ids(&path, "pieces"), ["image-fragmented"]);
}
