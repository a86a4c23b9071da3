//! Random stacks of all layers that there are, each printed and read again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::target::*;
use crate::units::{Bytes, Nanos};

fn path() -> impl Strategy<Value = PathBuf> {
    "/[a-z \"\\\\>=.0-9]{1,12}".prop_map(PathBuf::from)
}

prop_compose! {
    fn file()(
        format in prop::sample::select(vec![Format::Raw, Format::Qcow2]),
        preallocation in prop::sample::select(vec![Preallocation::Off, Preallocation::Falloc]),
        lazy_refcounts: bool,
        encrypt in prop::option::of(Just(Encryption::Luks)),
        cluster in 9_u32..22,
        snapshot in prop::option::of(prop::sample::select(vec![Snapshot::External, Snapshot::Internal])),
        count in prop::option::of(1_u32..64),
    ) -> FileSpec {
        let file = FileSpec { format, preallocation, ..FileSpec::default() };
        if format == Format::Raw {
            return file;
        }
        FileSpec {
            lazy_refcounts,
            encrypt,
            cluster_size: Some(Bytes(1 << cluster)),
            snapshot,
            backing_depth: count.filter(|_| snapshot == Some(Snapshot::External)),
            internal_snapshots: count.filter(|_| snapshot == Some(Snapshot::Internal)),
            ..file
        }
    }
}

prop_compose! {
    fn guest()(
        bus in prop::sample::select(vec![Bus::VirtioBlk, Bus::VirtioScsi, Bus::Nvme]),
        cache in prop::sample::select(vec![CacheMode::None, CacheMode::Writeback]),
        vcpus in 1_u32..8,
        count in 1_u32..4,
        kernel in prop::option::of(path()),
        filesystem in prop::option::of(prop::sample::select(vec![GuestFs::Ext4, GuestFs::Xfs])),
    ) -> GuestSpec {
        GuestSpec { bus, cache, vcpus, filesystem, count, kernel, ..GuestSpec::default() }
    }
}

prop_compose! {
    fn filesystem()(
        kind in prop::sample::select(vec![FsType::Ext4, FsType::Xfs, FsType::Btrfs]),
        mount_options in prop::option::of("[a-z,=]{1,9}|true|17|"),
    ) -> FilesystemSpec {
        FilesystemSpec { mount_options, ..FilesystemSpec::new(kind) }
    }
}

prop_compose! {
    fn filter()(
        kind in prop::sample::select(vec![FilterType::Throttle, FilterType::Compress, FilterType::CopyOnRead, FilterType::Blkdebug, FilterType::Quorum]),
        iops in 1_u32..1000,
        rate in prop::option::of((1_u64..1 << 30).prop_map(Bytes)),
        burst in prop::option::of((1_u32..100, prop::option::of(1_u32..60))),
    ) -> FilterSpec {
        let is_throttle = kind == FilterType::Throttle;
        let errors = (kind == FilterType::Blkdebug).then_some(iops);
        let burst = burst.filter(|_| is_throttle);
        FilterSpec {
            kind,
            iops: is_throttle.then_some(iops),
            iops_max: burst.map(|(more, _)| iops + more),
            iops_max_length: burst.and_then(|(_, length)| length),
            rate: rate.filter(|_| is_throttle),
            errors,
        }
    }
}

prop_compose! {
    fn luks()(
        cipher in prop::option::of("[a-z0-9]{1,4}-[a-z(),:]{1,6}|17|true"),
        key_size in prop::option::of((8_u32..512).prop_map(|bytes| bytes * 8)),
        sector_size in prop::option::of((9_u32..13).prop_map(|bits| 1 << bits)),
        no_read_workqueue: bool,
        allow_discards: bool,
    ) -> LuksSpec {
        LuksSpec { cipher, key_size, sector_size, no_read_workqueue, no_write_workqueue: false, allow_discards }
    }
}

prop_compose! {
    fn array()(
        level in prop::sample::select(vec![RaidLevel::Raid0, RaidLevel::Raid1, RaidLevel::Raid5, RaidLevel::Raid10]),
        raid_devices in 3_u32..9,
        chunk in prop::option::of((12_u32..26).prop_map(|bits| Bytes(1 << bits))),
        bitmap in prop::sample::select(vec![RaidBitmap::Off, RaidBitmap::Internal]),
    ) -> MdSpec {
        let (is_striped, is_redundant) = (level != RaidLevel::Raid1, level != RaidLevel::Raid0);
        let bitmap = if is_redundant { bitmap } else { RaidBitmap::Off };
        MdSpec { dir: None, level, raid_devices, chunk: chunk.filter(|_| is_striped), bitmap }
    }
}

prop_compose! {
    fn cache()(
        dir in path(),
        kind in prop::sample::select(vec![CacheType::DmCache, CacheType::DmWritecache]),
        mode in prop::option::of(prop::sample::select(vec![DmCacheMode::Writethrough, DmCacheMode::Writeback])),
        size in (20_u32..40).prop_map(|bits| Bytes(1 << bits)),
    ) -> CacheSpec {
        let mode = mode.filter(|_| kind == CacheType::DmCache);
        CacheSpec { dir: Some(dir), size, kind, mode, block_size: None }
    }
}

prop_compose! {
    fn cgroup()(riops in 1_u32..1000, wbps in prop::option::of((1_u64..1 << 40).prop_map(Bytes))) -> CgroupSpec {
        CgroupSpec { riops: Some(riops), wbps, ..CgroupSpec::default() }
    }
}

fn nbd() -> impl Strategy<Value = NbdSpec> {
    let server = prop::sample::select(vec![NbdServer::StorageDaemon, NbdServer::QemuNbd, NbdServer::Nbdkit]);
    let delay = prop::option::of((1_u64..1000).prop_map(Nanos::from_millis));
    let rate = prop::option::of((1_u64..1 << 40).prop_map(Bytes));
    let errors = (1_u32..=1_000_000).prop_map(|millionths| f64::from(millionths) / 1e6);
    let errors = prop::option::of(errors.prop_map(|share| ErrorRate::try_from(share).expect("a share")));
    let client = prop::sample::select(vec![NbdClient::Qemu, NbdClient::Kernel]);
    (server, client, delay, rate, errors).prop_map(|(server, client, delay, rate, error_rate)| {
        let usual = NbdSpec { server, client, ..NbdSpec::default() };
        match server {
            NbdServer::Nbdkit => NbdSpec { delay, rate, error_rate, ..usual },
            _ => usual,
        }
    })
}

prop_compose! {
    fn network()(
        via in prop::sample::select(vec![
            NetPath::Loopback,
            NetPath::Veth,
            NetPath::Bridge,
            NetPath::User,
            NetPath::Passt,
            NetPath::Remote,
            NetPath::Server,
        ]),
        nic in prop::sample::select(vec![Nic::VirtioNet, Nic::E1000, Nic::E1000e]),
        queues in prop::option::of(1_u32..17),
        vhost: Option<bool>,
        mtu in prop::option::of(576_u32..65536),
        peer in "[a-z0-9.]{1,9}(:[1-9][0-9]{1,3})?",
        bind in prop::option::of("127[.]0[.]0[.][1-9]"),
        cport in prop::option::of(1_u16..),
    ) -> NetworkSpec {
        let is_virtio_bridge = via == NetPath::Bridge && nic == Nic::VirtioNet;
        let is_server = via == NetPath::Server;
        NetworkSpec {
            nic: if via.needs_guest() { nic } else { Nic::VirtioNet },
            queues: queues.filter(|_| is_virtio_bridge),
            vhost: vhost.filter(|_| is_virtio_bridge),
            mtu: mtu.filter(|_| matches!(via, NetPath::Veth | NetPath::Bridge)),
            peer: match via {
                NetPath::Remote => Some(format!("ssh://me@{peer}")),
                NetPath::Server => Some(peer),
                _ => None,
            },
            bind: bind.filter(|_| is_server),
            cport: cport.filter(|_| is_server),
            ..NetworkSpec::new(via)
        }
    }
}

prop_compose! {
    fn zfs()(
        kind in prop::sample::select(vec![ZfsKind::Zvol, ZfsKind::Dataset]),
        block in prop::option::of((12_u32..18).prop_map(|bits| Bytes(1 << bits))),
        compression in prop::sample::select(vec![ZfsCompression::Off, ZfsCompression::Lz4, ZfsCompression::Zstd]),
        sync in prop::sample::select(vec![ZfsSync::Standard, ZfsSync::Always, ZfsSync::Disabled]),
        primarycache in prop::sample::select(vec![ZfsPrimaryCache::All, ZfsPrimaryCache::Metadata, ZfsPrimaryCache::Off]),
    ) -> ZfsSpec {
        let is_zvol = kind == ZfsKind::Zvol;
        ZfsSpec {
            volblocksize: block.filter(|_| is_zvol),
            recordsize: block.filter(|_| !is_zvol),
            compression,
            sync,
            primarycache,
            ..ZfsSpec::new(kind)
        }
    }
}

/// Generates random settings of the layer with this key in a plan.
fn layer(key: &str) -> BoxedStrategy<PlannedLayer> {
    fn boxed<L: Into<PlannedLayer> + std::fmt::Debug + 'static>(
        settings: impl Strategy<Value = L> + 'static,
    ) -> BoxedStrategy<PlannedLayer> {
        settings.prop_map(Into::into).boxed()
    }
    let dir = || prop::option::of(path());
    let cache = || prop::sample::select(vec![CacheMode::None, CacheMode::Writeback]);
    let millis = || prop::option::of((1_u64..1000).prop_map(Nanos::from_millis));
    match key {
        "path" => boxed(path().prop_map(PathSpec)),
        "image" => {
            let format = prop::option::of(prop::sample::select(vec![Format::Raw, Format::Vmdk]));
            boxed((path(), format, dir()).prop_map(|(path, format, overlay)| ImageSpec {
                path,
                format,
                overlay,
            }))
        }
        "nbd_export" => {
            let unix = path().prop_map(NbdAddress::Unix);
            let tcp = ("[a-z.:]{1,9}", 1_u16..).prop_map(|(host, port)| NbdAddress::Tcp(host, port));
            let all = (prop_oneof![unix, tcp], "[a-z/ =%]{0,9}");
            boxed(all.prop_map(|(server, export)| NbdExportSpec { server, export }))
        }
        "network" => boxed(network()),
        "device" => boxed(path().prop_map(DeviceSpec)),
        "lvm" => {
            let kind = prop::sample::select(vec![LvKind::Thick, LvKind::Thin]);
            let all = (prop::option::of("vg[a-z0-9]{1,8}"), kind, any::<bool>());
            boxed(all.prop_map(|(vg, kind, snapshot)| LvmSpec { vg, kind, snapshot }))
        }
        "md" => boxed((dir(), array()).prop_map(|(dir, array)| MdSpec { dir, ..array })),
        "delay" => boxed((millis(), millis(), millis()).prop_map(|(read, write, flush)| DelaySpec {
            read,
            write,
            flush,
        })),
        "integrity" => boxed(Just(IntegritySpec::default())),
        "cache" => boxed((dir(), self::cache()).prop_map(|(dir, cache)| CacheSpec { dir, ..cache })),
        "luks" => boxed(luks()),
        "zfs" => boxed(zfs()),
        "tmpfs" => boxed(Just(TmpfsSpec {})),
        "filesystem" => boxed(filesystem()),
        "volatile" => boxed((dir(), any::<u32>(), any::<bool>()).prop_map(|(dir, seed, tear)| {
            let drop_flush = Some(seed).filter(|seed| *seed > 0);
            VolatileSpec { dir, seed: seed.into(), tear, drop_flush, ..VolatileSpec::default() }
        })),
        "overlay" => boxed((dir(), any::<bool>()).prop_map(|(dir, volatile)| OverlaySpec { dir, volatile })),
        "share" => boxed((dir(), any::<bool>(), 1_u8..17, any::<bool>()).prop_map(
            |(dir, is_nfs, connections, flag)| {
                let usual = ShareSpec { dir, ..ShareSpec::default() };
                if is_nfs {
                    return ShareSpec { nconnect: connections, sync: flag, ..usual };
                }
                ShareSpec { protocol: ShareProtocol::Smb, max_channels: connections, seal: flag, ..usual }
            },
        )),
        "file" => boxed((dir(), file()).prop_map(|(dir, file)| FileSpec { dir, ..file })),
        "filter" => boxed(filter()),
        "nbd" => boxed(nbd()),
        "iscsi" => boxed(Just(IscsiSpec {})),
        "nfs" => boxed(Just(NfsSpec {})),
        "rbd" => {
            let media = prop::sample::select(vec![OsdMedia::Ssd, OsdMedia::Hdd]);
            boxed((12_u32..26, media, any::<bool>()).prop_map(|(bits, media, buffered_read)| RbdSpec {
                object_size: Bytes(1 << bits),
                media,
                buffered_read,
            }))
        }
        "fuse" => boxed(cache().prop_map(|cache| FuseSpec { cache, ..FuseSpec::default() })),
        "virtio" => {
            let size = prop::option::of((2_u32..11).prop_map(|bits| 1 << bits));
            let all = (cache(), prop::option::of(2_u16..64), size, prop::option::of(any::<bool>()));
            boxed(all.prop_map(|(cache, queues, queue_size, iothread)| VirtioSpec {
                cache,
                queues,
                queue_size,
                iothread,
                ..VirtioSpec::default()
            }))
        }
        "9p" => {
            let model = prop::sample::select(vec![SecurityModel::MappedXattr, SecurityModel::None]);
            let cache = prop::sample::select(vec![NinePCache::None, NinePCache::Loose]);
            let msize = prop::option::of((12_u32..31).prop_map(|bits| Bytes(1 << bits)));
            boxed((dir(), model, msize, cache).prop_map(|(dir, security_model, msize, cache)| NinePSpec {
                dir,
                security_model,
                msize,
                cache,
            }))
        }
        "virtiofs" => {
            let cache =
                prop::sample::select(vec![VirtiofsCache::Auto, VirtiofsCache::Always, VirtiofsCache::Never]);
            let all = (dir(), cache, any::<bool>(), any::<bool>(), prop::option::of(0_u32..64));
            boxed(all.prop_map(|(dir, cache, allow_direct_io, xattr, thread_pool_size)| VirtiofsSpec {
                dir,
                cache,
                allow_direct_io,
                xattr,
                thread_pool_size,
            }))
        }
        "loop" => boxed(any::<bool>().prop_map(|direct_io| LoopSpec { direct_io })),
        "nvme_tcp" => boxed(Just(NvmeTcpSpec {})),
        "guest" => {
            let without_disk = (1_u32..8).prop_map(|vcpus| GuestSpec { vcpus, ..GuestSpec::default() });
            boxed(prop_oneof![guest(), without_disk])
        }
        "xen" => {
            let domain_type = prop::sample::select(vec![DomainType::Pv, DomainType::Pvh]);
            let backend = prop::sample::select(vec![XenBackend::Phy, XenBackend::Qdisk]);
            boxed((domain_type, backend, 1_u32..8).prop_map(|(domain_type, backend, vcpus)| XenSpec {
                backend,
                vcpus,
                ..XenSpec::new(domain_type)
            }))
        }
        "cgroup" => boxed(cgroup()),
        other => panic!("{other}: no stack is generated with this layer; add its settings here"),
    }
}

/// Returns whether a layer can be built on a stack, whatever follows.
fn fits_on(layer: &PlannedLayer, stack: &Stack) -> bool {
    let (kind, below) = (layer.kind(), stack.layers());
    let is_on_network = below.last().is_some_and(|below| NetworkSpec::of(below).is_some());
    // The line of a guest on a network has no place for settings of a disk.
    let has_line =
        GuestSpec::of(layer).is_none_or(|guest| !is_on_network || guest.check_without_disk("").is_ok());
    fit(layer, below.last()).and_then(|()| kind.check()).and_then(|()| kind.check_on(below)).is_ok()
        && has_line
}

/// Generates random stacks in which every layer fits on the ones below, of all layers that there are.
fn stacks() -> impl Strategy<Value = Stack> {
    let any_layer = prop::strategy::Union::new(PlannedLayer::keys().into_iter().map(layer));
    // Most of what is drawn fits nowhere; what is on top ends a stack.
    prop::collection::vec(any_layer, 40..120).prop_map(|drawn| {
        drawn.into_iter().fold(Stack::default(), |stack, layer| {
            if fits_on(&layer, &stack) { stack.with(layer) } else { stack }
        })
    })
}

#[test]
fn every_layer_is_in_some_generated_stack() {
    let mut runner = TestRunner::deterministic();
    let mut missing: BTreeSet<&str> = PlannedLayer::keys().into_iter().collect();
    let mut tallest = 0;
    let stacks = stacks();
    for _ in 0..250 {
        let stack = stacks.new_tree(&mut runner).expect("a stack").current();
        tallest = tallest.max(stack.layers().len());
        for layer in stack.layers() {
            missing.remove(layer.kind().key());
        }
    }
    assert_eq!(missing, BTreeSet::new());
    assert!(tallest > 12, "{tallest}");
}

proptest! {
    #[test]
    fn every_stack_is_read_again_from_its_line_and_from_its_table(stack in stacks()) {
        let line = stack.line();
        let read = Stack::parse(&line);
        prop_assert_eq!(read.as_ref(), Ok(&stack), "{}", line);
        let target = TargetSpec::new("t", stack);
        let table = toml::to_string(&target).expect("a table");
        let read = toml::from_str::<TargetSpec>(&table);
        prop_assert_eq!(read.as_ref(), Ok(&target), "{}", table);
    }

    #[test]
    fn no_line_panics(line in "[a-z>=\" .,/+0-9]{0,40}|(/x|device|raw|file|loop|guest|>|ext4|\\+|a=1| ){0,9}") {
        if let Ok(stack) = Stack::parse(&line) {
            prop_assert_eq!(Stack::parse(&stack.line()), Ok(stack));
        }
    }
}
