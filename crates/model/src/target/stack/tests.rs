use super::*;
use crate::target::TargetSpec;

#[test]
fn each_layer_says_if_it_caches_or_copies() {
    for (line, is_cached, amplifies) in [
        ("/srv > raw file > loop direct_io=true", false, false),
        ("/srv > raw file > loop direct_io=false", true, false),
        ("/srv > raw file > nbd server=nbdkit > virtio cache=none aio=io_uring", true, false),
        ("vg0 > thin LVM volume", false, true),
        ("vg0 > thick LVM volume > integrity", false, true),
        ("vg0 > thick LVM volume > dm-cache dir=/fast size=64m", false, true),
        ("/srv > raw file > nvme-tcp > cgroup riops=500", false, false),
        ("/srv > nfs share > raw file", true, false),
        ("/srv > raw file > quorum > virtio", false, true),
        ("vg0 > thick LVM volume > zvol", true, true),
        ("/srv > smb share > vhdx file > virtio", true, false),
        ("/srv > 9p > guest", true, false),
        ("/srv > virtiofs > guest", true, false),
        ("/srv > virtiofs allow_direct_io=true > guest", false, false),
    ] {
        let stack = Stack::parse(line).expect(line);
        assert_eq!((stack.is_cached(), stack.amplifies()), (is_cached, amplifies), "{line}");
    }
}

#[test]
fn a_line_names_every_layer_from_the_bottom_up_and_is_read_again() {
    for (keys, line) in [
        ("path = '/dev/sdb'", "/dev/sdb"),
        ("image = '/srv/a.vmdk'\nvirtio = {}", "image /srv/a.vmdk > virtio cache=none aio=io_uring"),
        (
            "file = { dir = '/srv' }\nvirtio = { queue_size = 128, queues = 2 }",
            "/srv > raw file > virtio cache=none aio=io_uring queues=2 queue_size=128",
        ),
        (
            "image = { path = '/srv/a b', overlay = '/tmp/x' }\nvirtio = {}",
            "image \"/srv/a b\" overlay=/tmp/x > virtio cache=none aio=io_uring",
        ),
        (
            "nbd_export = 'nbd://box:9/vm'\nfilter = { type = 'blkdebug', errors = 7 }\nvirtio = {}",
            "nbd://box:9/vm > blkdebug errors=7 > virtio cache=none aio=io_uring",
        ),
        (
            "file = { dir = '/srv' }\nnbd = { server = 'nbdkit', rate = '10m', error_rate = 0.01 }\nvirtio = {}",
            "/srv > raw file > nbd server=nbdkit rate=10m error_rate=1% > virtio cache=none aio=io_uring",
        ),
        (
            "nbd_export = 'nbd+unix:///?socket=/run/n'\nfuse = {}",
            "\"nbd+unix:///?socket=/run/n\" > fuse cache=none aio=io_uring",
        ),
        ("path = 'ssh://me@box:22/srv/x'", "ssh://me@box:22/srv/x"),
        ("path = 'podman://web/srv/x'", "podman://web/srv/x"),
        ("device = '/dev/sdb'", "device /dev/sdb"),
        ("file = { dir = '/srv' }", "/srv > raw file"),
        (
            "file = { dir = '/srv/a b' }\nloop = { direct_io = false }",
            "\"/srv/a b\" > raw file > loop direct_io=false",
        ),
        (
            "file = { dir = '/srv', format = 'qcow2', snapshot = 'external', backing_depth = 3, cluster_size = '1m' }\nguest = {}",
            "/srv > qcow2 file + 3 external snapshots cluster_size=1m > virtio-blk cache=none aio=io_uring > guest",
        ),
        (
            "file = { dir = '/srv', format = 'qcow2', snapshot = 'internal', internal_snapshots = 3, encrypt = 'luks' }\nvirtio = {}",
            "/srv > qcow2 file + 3 internal snapshots encrypt=luks > virtio cache=none aio=io_uring",
        ),
        (
            "lvm = { vg = 'vg0', kind = 'thin', snapshot = true }\n\
             filesystem = { type = 'btrfs', mount_options = 'noatime,compress=zstd', nodatacow = true }\nfile = {}\nloop = {}\n\
             guest = { count = 3, filesystem = 'ext4', bus = 'nvme', vcpus = 2, queues = 4 }",
            "vg0 > thin LVM volume + snapshot > btrfs mount_options=\"noatime,compress=zstd\" nodatacow=true > raw file > \
             loop direct_io=true > nvme cache=none aio=io_uring queues=4 > 3 guests vcpus=2 > ext4",
        ),
        ("device = '/dev/sdb'\nlvm = {}\nluks = {}", "device /dev/sdb > thick LVM volume > luks"),
        (
            "lvm = { vg = 'vg0' }\nintegrity = { mode = 'bitmap', sector_size = 4096 }\nluks = {}",
            "vg0 > thick LVM volume > integrity mode=bitmap sector_size=4096 > luks",
        ),
        (
            "md = { dir = '/srv', level = 'raid5', raid_devices = 3, chunk = '64k', bitmap = 'internal' }\n\
             luks = { cipher = 'aes-xts-plain64', sector_size = 4096, no_read_workqueue = true }\n\
             filesystem = { type = 'xfs' }\nfile = {}",
            "/srv > raid5 raid_devices=3 chunk=64k bitmap=internal > \
             luks cipher=aes-xts-plain64 sector_size=4096 no_read_workqueue=true > xfs > raw file",
        ),
        (
            "device = '/dev/sdb'\nlvm = {}\ncache = { dir = '/fast', size = '64m', mode = 'writeback' }\nluks = {}",
            "device /dev/sdb > thick LVM volume > dm-cache dir=/fast size=64m mode=writeback > luks",
        ),
        (
            "lvm = { vg = 'vg0' }\ncache = { type = 'dm-writecache', dir = '/a b', size = '1g', block_size = '1k' }\ncgroup = { wbps = '1m' }",
            "vg0 > thick LVM volume > dm-writecache dir=\"/a b\" size=1GiB block_size=1k > cgroup wbps=1m",
        ),
        (
            "file = { dir = '/srv' }\nnvme_tcp = {}\nguest = { vcpus = 2 }\ncgroup = { riops = 500, wiops = 7 }",
            "/srv > raw file > nvme-tcp > virtio-blk cache=none aio=io_uring > guest vcpus=2 > cgroup riops=500 wiops=7",
        ),
        (
            "share = { dir = '/srv', nconnect = 4, sync = false }\nfile = {}",
            "/srv > nfs share nconnect=4 sync=false > raw file",
        ),
        (
            "share = { dir = '/srv', protocol = 'smb', max_channels = 4, seal = true }\nfile = { format = 'vhdx' }\nvirtio = {}",
            "/srv > smb share max_channels=4 seal=true > vhdx file > virtio cache=none aio=io_uring",
        ),
        (
            "overlay = { dir = '/srv' }\nshare = { protocol = 'smb' }\nfile = {}",
            "/srv > overlay > smb share > raw file",
        ),
        (
            "device = '/dev/sdb'\nfilesystem = { type = 'xfs' }\nshare = {}\nfile = { format = 'qcow2' }\nvirtio = {}",
            "device /dev/sdb > xfs > nfs share > qcow2 file > virtio cache=none aio=io_uring",
        ),
        (
            "device = '/dev/sdb'\nlvm = {}\nzfs = { kind = 'zvol', volblocksize = '16k', compression = 'lz4', primarycache = 'metadata' }\nguest = {}",
            "device /dev/sdb > thick LVM volume > zvol volblocksize=16k compression=lz4 primarycache=metadata > \
             virtio-blk cache=none aio=io_uring > guest",
        ),
        (
            "lvm = { vg = 'vg0' }\nzfs = { kind = 'dataset', recordsize = '16k', sync = 'disabled' }\nfile = { format = 'qcow2' }\nvirtio = {}",
            "vg0 > thick LVM volume > zfs dataset recordsize=16k sync=disabled > qcow2 file > virtio cache=none aio=io_uring",
        ),
        (
            "9p = { dir = '/srv', security_model = 'none', msize = '512k', cache = 'loose' }\nguest = { vcpus = 2 }",
            "/srv > 9p security_model=none msize=512k cache=loose > guest vcpus=2",
        ),
        (
            "device = '/dev/sdb'\nfilesystem = { type = 'xfs' }\nvirtiofs = { cache = 'always', thread_pool_size = 4 }\nguest = {}",
            "device /dev/sdb > xfs > virtiofs cache=always thread_pool_size=4 > guest",
        ),
        (
            "virtiofs = { dir = '/srv', allow_direct_io = true, xattr = true }\nguest = { count = 2 }\ncgroup = { riops = 5 }",
            "/srv > virtiofs allow_direct_io=true xattr=true > 2 guests > cgroup riops=5",
        ),
        ("network = { via = 'loopback' }", "loopback"),
        ("network = { via = 'veth', mtu = 9000 }", "veth pair mtu=9000"),
        (
            "network = { via = 'bridge', queues = 2, vhost = true }\nguest = { vcpus = 2 }",
            "bridge > tap > virtio-net queues=2 vhost=true > guest vcpus=2",
        ),
        ("network = { via = 'server', peer = 'a,b:9', cport = 7 }", "to a,b:9 cport=7"),
    ] {
        let target: TargetSpec = toml::from_str(&format!("name = 't'\n{keys}")).expect(keys);
        assert_eq!(target.check(), Ok(()), "{keys}");
        assert_eq!(target.stack.line(), line);
        assert_eq!(Stack::parse(line).as_ref(), Ok(&target.stack), "{line}");
    }
}

#[test]
fn what_is_no_line_is_refused_with_what_is_accepted() {
    for (line, words) in [
        ("", "a layer is expected at the end"),
        ("/srv >", "a layer is expected at the end"),
        ("> raw file", "nothing stands before a"),
        ("/srv > rawfile", "\"rawfile\" is no layer (did you mean raw file?); accepted: image PATH"),
        ("vm-qcow2", "\"vm-qcow2\" is no layer"),
        (
            "/srv > raw file, scheduler=none",
            "settings and neighbours, which follow a comma in reports, have keys",
        ),
        ("/srv > qcow2 file > guest", " or > virtio-blk > guest"),
        (
            "/srv > device /dev/sdb",
            "\"/srv\" > device /dev/sdb: accepted: device /dev/sdb, which stands at the bottom",
        ),
        ("vg > device /dev/sdb > ext4 > raw file", "accepted: device /dev/sdb, which stands at the bottom"),
        ("/srv > image /x.vmdk > virtio", "accepted: image /x.vmdk, which stands at the bottom"),
        ("/srv > tmpfs > raw file", "accepted: tmpfs, which stands at the bottom"),
        ("/srv > bridge", "accepted: bridge, which stands at the bottom"),
        ("/srv > nbd://host/disk > virtio", "accepted: nbd://host/disk, which stands at the bottom"),
        ("/srv > /srv2 > raw file", "\"/srv2\" is no layer"),
        ("/dev/sdb > ext4 > raw file", "accepted: device /dev/sdb > ext4"),
        (
            "/srv > virtio",
            "accepted: device /srv > virtio or image /srv > virtio or /srv > raw file > virtio",
        ),
        ("/srv > iscsi", "accepted: /srv > raw file > iscsi"),
        (
            "/srv > raw file > rbd objectsize=1m",
            "rbd: `objectsize` is not a key here; did you mean `object_size`?",
        ),
        ("/srv > dm-cache size=1m", "accepted: device /srv > dm-cache or /srv > raw file > loop > dm-cache"),
        ("/srv > raw file > nvme-tcp port=1", "nvme-tcp: `port` is not a key here"),
        ("/srv > nfs share version=3 > raw file", "nfs share: `version` is not a key here"),
        ("/srv > nfs share protocol=smb > raw file", "nfs share: protocol= is given by the other words"),
        ("/srv > afp share > raw file", "\"afp share\" is no layer"),
        ("/srv > nfs > raw file", "accepted: /srv > raw file > nfs"),
        ("/srv > raw file > cgroup iops=1", "cgroup: `iops` is not a key here; did you mean"),
        ("/srv > luks", "accepted: device /srv > luks or /srv > raw file > loop > luks"),
        ("/srv > zvol", "accepted: device /srv > zvol or /srv > raw file > loop > zvol"),
        ("/srv > raw file > loop > zvol kind=dataset", "zvol: kind= is given by the other words"),
        ("/srv > raw file > loop > zfs volume", "\"zfs volume\" is no layer"),
        ("/srv>raw file>virtio", "a > between two layers has a blank on either side"),
        ("/srv > raw file > virtio cashe=none", "virtio: `cashe` is not a key here; did you mean `cache`?"),
        ("/srv > raw file size=1m", "raw file: `size` is not a key here; "),
        ("/srv > raw file format=qcow2", "format= is given by the other words"),
        ("/srv > raw file > virtio-blk", "a guest's disk is followed by its guest: ... > virtio-blk > guest"),
        (
            "/srv > 9p > virtio-blk > guest",
            "a guest's directory or network is followed by its guest: ... > 9p",
        ),
        ("/srv > 9p mode=none > guest", "9p: `mode` is not a key here"),
        ("/srv > 9p cache=mmap > guest", "accepted: none, loose"),
        ("/srv > virtiofs cache=none > guest", "accepted: auto, always, never"),
        (
            "/srv > raw file > loop direct_io=maybe",
            "string \"maybe\" does not belong here; accepted: true or false",
        ),
        ("/srv > \"raw file", "a quote is not closed"),
        ("/srv > raw file cache=none cache=none", "cache= follows the name of its layer, once"),
    ] {
        let refusal = Stack::parse(line).expect_err(words);
        assert!(refusal.contains(words), "{line}: {refusal}");
    }
}

#[test]
fn an_i_o_backend_that_qemu_would_not_use_for_extents_is_refused() {
    for (above, refused) in [
        ("virtio cache=none aio=io_uring", true),
        ("virtio cache=none aio=threads", false),
        ("throttle iops=5 > fuse cache=none aio=native", true),
        ("nbd server=qemu-nbd cache=none aio=io_uring > virtio cache=none aio=threads", true),
        ("nbd cache=none aio=threads > virtio cache=none aio=io_uring", false),
        ("fuse cache=none aio=threads > virtio-blk cache=none aio=io_uring > guest", false),
        ("fuse cache=none aio=io_uring > loop > xfs > raw file > virtio cache=none aio=threads", true),
    ] {
        let line = format!("/srv > vmdk file subformat=monolithicFlat > {above}");
        let stack = Stack::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let answer = stack.check();
        let is_refused = answer.as_ref().is_err_and(|text| text.contains("use aio = \"threads\""));
        assert_eq!((is_refused, answer.is_err()), (refused, refused), "{line}: {answer:?}");
    }
}
