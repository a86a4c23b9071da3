use std::os::unix::fs::MetadataExt;
use std::path::Path;

use iotax_model::target::LayerKind::{Device, Dm, File, Filesystem, Loop, Md, Partition, Zvol};
use iotax_model::target::{Layer, LayerKind};
use iotax_testbed::stack::{LayerStack, cached_in, of_path};
use iotax_testkit::tree;

const VIRTIO: &str = include_str!("trees/virtio.tree");
const STORAGE: &str = include_str!("trees/storage.tree");
const ZFS: &str = include_str!("trees/zfs.tree");

fn read(recorded: &str, path: &str) -> LayerStack {
    let root = tree::build(recorded);
    of_path(root.path(), Path::new(path)).expect("a path of the tree")
}

fn layers(stack: &LayerStack) -> Vec<(LayerKind, &str)> {
    stack.layers.iter().map(|layer| (layer.kind, layer.name.as_str())).collect()
}

fn detail(stack: &LayerStack, kind: LayerKind) -> &str {
    &stack.layers.iter().find(|layer| layer.kind == kind).expect("such a layer").detail
}

#[test]
fn a_virtio_disk_with_ext4_is_read_exactly() {
    let stack = read(VIRTIO, "/srv/images/a.img");
    let disk = "virtio disk, 256 GiB, rotational, scheduler mq-deadline, blocks of 512 bytes logical, 4096 physical, \
                cache write back";
    assert_eq!(
        stack.layers,
        [
            Layer::new(Device, "vda", disk),
            Layer::new(Filesystem, "ext4", "/, rw,relatime,discard"),
            Layer::new(File, "a.img", "/srv/images/a.img, 5.00 B"),
        ]
    );
    assert_eq!(stack.disks, ["vda"]);
}

#[test]
fn a_directory_is_no_layer_of_its_own() {
    assert_eq!(layers(&read(VIRTIO, "/srv/images")), [(Device, "vda"), (Filesystem, "ext4")]);
}

#[test]
fn a_partition_stands_on_its_disk() {
    let stack = read(STORAGE, "/home/me/a.img");
    assert_eq!(
        layers(&stack),
        [(Device, "nvme0n1"), (Partition, "nvme0n1p2"), (Filesystem, "xfs"), (File, "a.img")]
    );
    assert_eq!(stack.disks, ["nvme0n1", "nvme0n1p2"]);
    assert_eq!(stack.physical, ["nvme0n1"]);
    assert_eq!(
        detail(&stack, Device),
        "Samsung SSD 980 PRO 1TB, 932 GiB, not rotational, scheduler none, blocks of 512 bytes logical, \
         512 physical, cache write through"
    );
    assert_eq!(detail(&stack, Partition), "20.0 GiB, begins at 1.00 MiB");
}

#[test]
fn a_logical_volume_stands_on_its_partition() {
    let stack = read(STORAGE, "/lv/a.img");
    assert_eq!(
        layers(&stack),
        [(Device, "sda"), (Partition, "sda1"), (Dm, "vg0/images"), (Filesystem, "ext4"), (File, "a.img")]
    );
    assert_eq!(stack.disks, ["sda", "sda1", "dm-0"]);
    assert_eq!(detail(&stack, Dm), "dm-0, LVM, 512 MiB");
}

#[test]
fn encryption_stands_on_a_volume() {
    let stack = read(STORAGE, "/secret");
    assert_eq!(stack.disks, ["sda", "sda1", "dm-0", "dm-2"]);
    assert_eq!(stack.physical, ["sda"]);
    assert_eq!(stack.layers[3], Layer::new(Dm, "luks", "dm-2, dm-crypt"));
}

#[test]
fn every_parent_of_a_volume_and_of_a_mirror_is_listed() {
    let members = [(Device, "sda"), (Partition, "sda1"), (Device, "sdb"), (Partition, "sdb1")];
    let wide = read(STORAGE, "/wide");
    assert_eq!(layers(&wide)[..4], members);
    assert_eq!(wide.disks, ["sda", "sda1", "sdb", "sdb1", "dm-1"]);

    let mirror = read(STORAGE, "/mirror");
    assert_eq!(layers(&mirror)[..4], members);
    assert_eq!(mirror.disks, ["sda", "sda1", "sdb", "sdb1", "md0"]);
    assert_eq!(
        (&wide.physical, &mirror.physical),
        (&vec!["sda".to_owned(), "sdb".to_owned()], &wide.physical)
    );
    assert_eq!(detail(&mirror, Md), "raid1, 3 members, 1 of them missing, 1022 MiB, state clean");
}

#[test]
fn what_two_layers_share_comes_once_and_no_circle_is_followed() {
    let stack = read(STORAGE, "/shared");
    assert_eq!(stack.disks, ["sda", "sda1", "sda2", "dm-3"]);
    assert_eq!(detail(&stack, Dm), "dm-3, device-mapper");
}

#[test]
fn a_disk_has_the_name_that_diskstats_gives_it() {
    assert_eq!(read(STORAGE, "/array").disks, ["cciss/c0d0"]);
}

#[test]
fn a_loop_device_stands_on_its_file() {
    let stack = read(STORAGE, "/looped/a");
    assert_eq!(
        layers(&stack),
        [
            (Device, "sda"),
            (Partition, "sda1"),
            (Dm, "vg0/images"),
            (Filesystem, "ext4"),
            (File, "a.img"),
            (Loop, "loop0"),
            (Filesystem, "ext4"),
            (File, "a"),
        ]
    );
    assert_eq!(stack.disks, ["sda", "sda1", "dm-0", "loop0"]);
    assert_eq!(detail(&stack, Loop), "of /lv/a.img, 8.00 MiB, direct I/O, begins at byte 4096");
}

#[test]
fn io_can_be_cached_in_the_file_and_in_that_of_a_loop_device_below_it() {
    let root = tree::build(STORAGE);
    let cached = |path: &str| {
        let found = cached_in(root.path(), path.into());
        let names =
            found.iter().map(|place| place.file_name().expect("a name").to_string_lossy().into_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(cached("/looped/a"), ["a", "a.img"]);
    // Neither the volume nor the disk, whose caches hold the metadata of other files.
    assert_eq!(cached("/home/me/a.img"), ["a.img"]);
    assert_eq!(cached("/nowhere"), ["nowhere"]);
}

#[test]
fn a_loop_device_whose_file_is_gone_says_so() {
    let stack = read(&STORAGE.replace("= /lv/a.img", "= /lv/a.img (deleted)"), "/looped");
    assert_eq!(stack.disks, ["loop0"]);
    assert!(detail(&stack, Loop).contains("cannot be reached"), "{stack:?}");
}

#[test]
fn btrfs_stands_on_all_its_disks() {
    let stack = read(STORAGE, "/pool");
    assert_eq!(layers(&stack), [(Device, "sdc"), (Device, "sdd"), (Filesystem, "btrfs")]);
    assert_eq!(stack.disks, ["sdc", "sdd"]);
    assert_eq!(detail(&stack, Filesystem), "/pool, rw,subvolid=5");
    assert_eq!(stack.layers[0].detail, "2.00 GiB, rotational");
}

#[test]
fn a_filesystem_that_names_its_disks_as_its_source_stands_on_them() {
    assert_eq!(read(STORAGE, "/other").disks, ["sdc", "sda", "sda1", "dm-0"]);
}

#[test]
fn a_filesystem_without_a_block_device_says_so() {
    for (path, kind, source) in [
        ("/tmp/a", "tmpfs", "\"tmpfs\""),
        ("/net", "nfs4", "\"filer:/export/vm\""),
        ("/merged", "overlay", "\"overlay\""),
    ] {
        let stack = read(STORAGE, path);
        assert_eq!(layers(&stack)[0], (Filesystem, kind));
        assert!(stack.disks.is_empty());
        let detail = detail(&stack, Filesystem);
        assert!(detail.contains("no block device") && detail.ends_with(source), "{detail}");
    }
}

#[test]
fn a_path_that_leads_nowhere_is_refused_with_its_name() {
    let root = tree::build(VIRTIO);
    let error = of_path(root.path(), Path::new("/srv/missing")).expect_err("not there").to_string();
    assert!(error.contains("/srv/missing") && error.contains("name an existing"), "{error}");

    std::fs::remove_file(root.path().join("proc/self/mountinfo")).expect("removed");
    let error = of_path(root.path(), Path::new("/srv")).expect_err("no mounts").to_string();
    assert!(error.contains("/srv") && error.contains("mountinfo") && error.contains("/proc"), "{error}");

    let error = of_path(Path::new("/"), Path::new("/dev/null")).expect_err("a character device").to_string();
    assert!(error.contains("/dev/null is neither"), "{error}");
}

#[test]
fn the_live_system_tells_what_a_new_file_stands_on() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let stack = of_path(Path::new("/"), file.path()).expect("readable");
    let number = file.as_file().metadata().expect("open").dev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    println!("{number}: {stack:#?}");

    let name = file.path().file_name().and_then(|name| name.to_str()).expect("plain");
    assert_eq!(layers(&stack).last(), Some(&(File, name)));
    assert_eq!(stack.layers.iter().filter(|layer| layer.kind == Filesystem).count(), 1);
    match std::fs::canonicalize(Path::new("/sys/dev/block").join(&number)) {
        // The topmost disk is the one that stat(2) reports.
        Ok(device) => {
            assert_eq!(
                stack.disks.last().map(String::as_str),
                device.file_name().and_then(|name| name.to_str())
            );
        }
        Err(error) => iotax_testkit::skip!("{number} of the temporary directory is not in /sys ({error})"),
    }
}

#[test]
fn a_live_block_device_is_its_own_top() {
    // A loop device attached by another test is on a file, and thus on another disk. Use one only if there is no other device, and then the
    // last one, because the first free one is attached next.
    let is_loop = |name: &String| name.starts_with("loop");
    let mut disks: Vec<String> = std::fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| std::fs::metadata(Path::new("/dev").join(name)).is_ok())
        .filter(|name| !Path::new("/sys/class/block").join(name).join("loop/backing_file").exists())
        .collect();
    disks.sort_by_key(|name| (!is_loop(name), name.clone()));
    let Some(disk) = disks.pop() else {
        iotax_testkit::skip!("no block device of /sys/class/block has its name in /dev here");
    };
    let stack = of_path(Path::new("/"), &Path::new("/dev").join(&disk)).expect("readable");
    assert_eq!(stack.disks.last(), Some(&disk), "{stack:?}");
    assert!(stack.layers.iter().all(|layer| layer.kind != File), "{stack:?}");
}

#[test]
fn a_dataset_and_a_zvol_stand_on_the_disks_of_their_pool() {
    let disks = [(Device, "sda"), (Partition, "sda3"), (Device, "sdb"), (Partition, "sdb3")];
    let log = [(Device, "nvme0n1"), (Partition, "nvme0n1p1")];
    let dataset = read(ZFS, "/rpool/data/a.raw");
    assert_eq!(layers(&dataset)[..4], disks);
    assert_eq!(layers(&dataset)[4..6], log);
    assert_eq!(layers(&dataset)[6..], [(Filesystem, "zfs"), (File, "a.raw")]);
    assert_eq!(
        detail(&dataset, Filesystem),
        "/rpool/data, rw,relatime,xattr,posixacl, recordsize=128K, compression=on, sync=standard, primarycache=all"
    );
    let on_volume = read(ZFS, "/vm");
    assert_eq!(layers(&on_volume)[..4], disks);
    assert_eq!(layers(&on_volume)[6..], [(Zvol, "rpool/data/vm-100-disk-0"), (Filesystem, "ext4")]);
    assert_eq!(on_volume.disks.last().map(String::as_str), Some("zd0"));
    assert_eq!(detail(&on_volume, Zvol), "zd0, 32.0 MiB, volblocksize=16K, compression=off, sync=standard");
    assert!(dataset.is_on_zfs() && on_volume.is_on_zfs() && !read(ZFS, "/").is_on_zfs());
    // Without zpool(8) and zfs(8) the disks are not known.
    let root = tree::build(ZFS);
    std::fs::remove_dir_all(root.path().join("commands")).expect("removed");
    let unknown = of_path(root.path(), Path::new("/rpool/data")).expect("a path of the tree");
    assert_eq!(layers(&unknown), [(Filesystem, "zfs")]);
    assert!(detail(&unknown, Filesystem).ends_with("its source is \"rpool/data\""));
}
