//! Queue attributes of the block device under a file, from sysfs.

use std::fs::File;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// Reads a numeric queue attribute, such as `io_poll`, of a block device or of the device under a file's filesystem. `None` if unknown, as on a
/// filesystem with several devices or without any.
pub(crate) fn attribute(file: &File, name: &str) -> Option<u64> {
    let metadata = file.metadata().ok()?;
    let device = if metadata.file_type().is_block_device() { metadata.st_rdev() } else { metadata.st_dev() };
    read(Path::new("/sys"), device, name)
}

fn read(sys: &Path, device: u64, name: &str) -> Option<u64> {
    let dir = sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
    // A partition has no queue directory; its disk has one.
    let text = [dir.join("queue"), dir.join("../queue")]
        .iter()
        .find_map(|queue| std::fs::read_to_string(queue.join(name)).ok())?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_has_the_queue_of_its_disk_and_what_is_not_there_is_not_known() {
        let sys = tempfile::tempdir().expect("directory");
        let path = |name: &str| sys.path().join(name);
        for dir in ["dev/block", "devices/vda/queue", "devices/vda/vda1"] {
            std::fs::create_dir_all(path(dir)).expect("directory");
        }
        std::fs::write(path("devices/vda/queue/io_poll"), "1\n").expect("written");
        std::fs::write(path("devices/vda/queue/scheduler"), "[none]\n").expect("written");
        symlink("../../devices/vda", path("dev/block/254:0")).expect("linked");
        symlink("../../devices/vda/vda1", path("dev/block/254:1")).expect("linked");
        let read = |minor, name| read(sys.path(), makedev(254, minor), name);
        assert_eq!((read(0, "io_poll"), read(1, "io_poll")), (Some(1), Some(1)));
        assert_eq!((read(0, "scheduler"), read(0, "none"), read(2, "io_poll")), (None, None, None));
    }
}
