//! Surveys mounted filesystems.

use std::fs;

use iotax_model::survey::{Fact, Filesystem, Known, Space};

use super::reader::Reader;
use crate::program::Program;
use crate::stack::mount::Mount;

const STAT: Program = Program { name: "stat", package: "coreutils" };

/// Describes the filesystems whose mount source is in /dev, by the first mount of each. Others are left out: querying a lost server of a
/// network filesystem takes long.
pub(super) fn on_disks(reader: &Reader<'_>, mounts: &[Mount]) -> Vec<Filesystem> {
    let mut known: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for mount in mounts {
        let is_on_disk = mount.source.starts_with("/dev/");
        if is_on_disk && !known.contains(&mount.number.as_str()) {
            known.push(&mount.number);
            found.push(filesystem(reader, mount));
        }
    }
    found
}

pub(super) fn filesystem(reader: &Reader<'_>, mount: &Mount) -> Filesystem {
    let point = mount.point.to_string_lossy().into_owned();
    let device = device(reader, mount);
    let options = mount.options.split(',').map(str::to_owned).collect();
    let (errors, missing_devices) = match (mount.kind.as_str(), &device) {
        ("ext2" | "ext3" | "ext4", Some(device)) => {
            (reader.number(&format!("/sys/fs/ext4/{device}/errors_count")), None)
        }
        ("btrfs", Some(device)) => btrfs(reader, device),
        _ => (None, None),
    };
    Filesystem {
        kind: mount.kind.clone(),
        device,
        options: Fact::new(options, "/proc/self/mountinfo"),
        space: space(reader, &point),
        errors,
        missing_devices,
        point,
    }
}

/// Returns the kernel name of a mount's block device; for btrfs, of the device that was mounted. `None` if there is none.
fn device(reader: &Reader<'_>, mount: &Mount) -> Option<String> {
    let number = fs::canonicalize(reader.full_path("sys/dev/block").join(&mount.number)).ok();
    let source = || fs::canonicalize(reader.full_path(&mount.source)).ok();
    let node = number.or_else(|| mount.source.starts_with("/dev/").then(source).flatten())?;
    Some(node.file_name()?.to_string_lossy().replace('!', "/"))
}

/// Reads free and total space with stat(1) in a separate process, because a server that hangs would block this one.
fn space(reader: &Reader<'_>, point: &str) -> Known<Space> {
    let output = reader.command(STAT, &["-f", "-c", "%S %b %a %c %d", point])?;
    output.read(|text| {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [block, blocks, available, inodes, free_inodes] = numbers[..] else { return None };
        Some(Space {
            total_bytes: block.checked_mul(blocks)?,
            available_bytes: block.checked_mul(available)?,
            inodes,
            free_inodes,
        })
    })
}

/// Returns two values of the btrfs filesystem on this device: the largest error count of any member, and the number of missing members.
/// `None` if /sys does not report it.
fn btrfs(reader: &Reader<'_>, device: &str) -> (Known<u64>, Known<u64>) {
    let all = reader.names("/sys/fs/btrfs").into_iter().map(|id| format!("/sys/fs/btrfs/{id}"));
    let own = all.into_iter().find(|id| reader.full_path(&format!("{id}/devices/{device}")).exists());
    let Some(info) = own.map(|own| format!("{own}/devinfo")) else { return (None, None) };
    let members = reader.names(&info);
    let errors = members.iter().filter_map(|member| {
        let counts = reader.text(&format!("{info}/{member}/error_stats"))?;
        let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        Some(Fact::new(counts.value.lines().filter_map(number).sum(), counts.source.clone()))
    });
    let missing =
        members.iter().filter_map(|member| reader.number::<u64>(&format!("{info}/{member}/missing")));
    let missing: Vec<Fact<u64>> = missing.collect();
    let count = missing.iter().map(|fact| fact.value).sum();
    // The source is one that shows a missing member, if there is any.
    let shows = missing.into_iter().max_by_key(|fact| fact.value);
    (errors.max_by_key(|fact| fact.value), shows.map(|fact| Fact { value: count, ..fact }))
}
