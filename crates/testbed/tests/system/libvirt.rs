use std::process::Command;

use iotax_model::TargetSpec;
use iotax_model::target::{
    Aio, Bus, CacheMode, Discard, Encryption, FileSpec, Format, GuestSpec, MachineType, Snapshot, Stack,
};
use iotax_model::units::Bytes;
use iotax_testbed::libvirt::{Domain, alternatives, read};

const MANAGER: &str = include_str!("libvirt/virt-manager.xml");
const INSTALL: &str = include_str!("libvirt/virt-install.xml");
const PROXMOX: &str = include_str!("libvirt/proxmox-like.xml");
const NOVA: &str = include_str!("libvirt/nova.xml");
const NOVA_RBD: &str = include_str!("libvirt/nova-rbd.xml");
const CLOUD: &str = include_str!("libvirt/cloud-image.xml");
const WINDOWS: &str = include_str!("libvirt/windows.xml");

fn first(xml: &str) -> Domain {
    read(xml, None).expect("a domain")
}

/// The settings in short form: bus, cache, aio, discard, threads, queues, CPUs, memory, machine, format.
fn settings(domain: &Domain) -> String {
    let GuestSpec { bus, cache, aio, discard, vcpus, memory, queues, .. } = &domain.guest;
    let (iothread, machine) = (domain.guest.iothreads(), domain.guest.machine_type());
    let queues = queues.map_or("-".into(), |queues| queues.to_string());
    let format = domain.file.format;
    format!("{bus} {cache} {aio} {discard} {iothread} {queues} {vcpus} {memory} {machine} {format}")
}

#[test]
fn every_setting_is_taken_from_where_it_stands() {
    for (xml, name, disk, expected) in [
        (MANAGER, "debian12", "vda", "virtio-blk writeback threads unmap 0 - 2 1GiB q35 qcow2"),
        (INSTALL, "db01", "vda", "virtio-blk none native ignore 1 4 8 1GiB q35 raw"),
        (PROXMOX, "vm-101", "sda", "virtio-scsi none io_uring unmap 1 2 2 1GiB pc raw"),
        (NOVA, "instance-0000002a", "vda", "virtio-blk none threads ignore 0 - 2 1GiB pc qcow2"),
        (NOVA_RBD, "instance-0000002b", "vda", "virtio-blk writeback threads unmap 0 - 1 1GiB q35 raw"),
        (CLOUD, "cloud test (1)", "hda", "ide writeback threads ignore 0 - 1 1GiB pc qcow2"),
        (WINDOWS, "win11", "sda", "sata writethrough threads ignore 0 - 4 1GiB q35 qcow2"),
    ] {
        let domain = first(xml);
        assert_eq!((domain.name.as_str(), domain.disk.as_str()), (name, disk));
        assert_eq!(settings(&domain), expected, "{name}");
    }
    let second = read(INSTALL, Some("vdb")).expect("a second disk");
    assert_eq!(settings(&second), "virtio-blk directsync io_uring ignore 0 - 8 1GiB q35 raw");
    assert_eq!(second.source, Some("/srv/vm/db01-log.img".into()));
}

#[test]
fn what_is_left_out_or_not_done_likewise_is_said() {
    let second = read(INSTALL, Some("vdb")).expect("a second disk");
    for (domain, said) in [
        (first(MANAGER), "left to QEMU by the domain: cache (writeback), io (threads)"),
        (first(MANAGER), "machine pc-q35-8.2 is q35 of the QEMU here"),
        (first(MANAGER), "preallocation = metadata"),
        (first(INSTALL), "1.00 GiB of memory instead of 16.0 GiB"),
        (first(INSTALL), "<driver packed=\"on\"> is not reproduced"),
        (first(INSTALL), "rotation_rate=\"1\" is not reproduced"),
        (first(INSTALL), "<cputune> is not reproduced"),
        (first(INSTALL), "<memoryBacking> is not reproduced"),
        (second.clone(), "<iotune> total_iops_sec=500 is not reproduced"),
        (second, "<blockio> is not reproduced"),
        (first(PROXMOX), "the disk is the device /dev/pve/vm-101-disk-0"),
        (first(PROXMOX), "detect_zeroes=\"unmap\" is not reproduced"),
        (first(NOVA), "images below the disk's own: 1"),
        (first(NOVA_RBD), "the disk is of type network (rbd)"),
        (first(CLOUD), "<transient> is not reproduced"),
        (first(CLOUD), "--accel tcg"),
        (first(WINDOWS), "<driver copy_on_read=\"on\"> is not reproduced"),
        (first(WINDOWS), "<metadata_cache> of <driver> is not reproduced"),
        (first(WINDOWS), "the cipher aes-cbc of 128 bits is AES-256 in XTS mode here"),
        (first(WINDOWS), "<commandline> is not reproduced"),
    ] {
        assert!(domain.notes.iter().any(|note| note.contains(said)), "{said}: {:#?}", domain.notes);
    }
    let notes = first(PROXMOX).notes.join("\n");
    assert!(!notes.contains("error_policy") && !notes.contains("serial"), "{notes}");
}

#[test]
fn an_encrypted_disk_is_encrypted_here_too() {
    assert_eq!(first(WINDOWS).file.encrypt, Some(Encryption::Luks));
    let raw = WINDOWS.replace("type='qcow2'", "type='raw'");
    assert_eq!(first(&raw).file.format, Format::Luks);
    let vdi = first(&WINDOWS.replace("type='qcow2'", "type='vdi'"));
    assert_eq!((vdi.file.format, vdi.file.encrypt), (Format::Vdi, None));
    let old = first(&WINDOWS.replace("format='luks'", "format='qcow'"));
    assert_eq!((old.file.format, old.file.encrypt), (Format::Qcow2, None));
    for (domain, said) in [
        (vdi, "<encryption> is not reproduced in an image of format vdi"),
        (old, "<encryption> cipher= is not reproduced"),
    ] {
        assert!(domain.notes.iter().any(|note| note.contains(said)), "{said}: {:#?}", domain.notes);
    }
}

#[test]
fn the_images_header_says_what_the_domain_does_not() {
    iotax_testkit::require!(program "qemu-img");
    let qemu_img = |arguments: &[&str]| Command::new("qemu-img").args(arguments).output();
    let temp = tempfile::tempdir().expect("a directory");
    let path = |name: &str| temp.path().join(name).display().to_string();
    let create = |arguments: &[&str]| {
        let output = qemu_img(&[&["create", "-q", "-f", "qcow2"], arguments].concat()).expect("runs");
        assert!(output.status.success(), "{output:?}");
    };
    create(&["-o", "cluster_size=1M,lazy_refcounts=on,extended_l2=on", &path("base"), "16M"]);
    let xml = |name: &str| MANAGER.replace("/var/lib/libvirt/images/debian12.qcow2", &path(name));
    let file = first(&xml("base")).file;
    assert_eq!(
        (file.cluster_size, file.lazy_refcounts, file.extended_l2),
        (Some(Bytes(1 << 20)), true, true)
    );
    assert_eq!(file.snapshot, None);
    create(&["-b", &path("base"), "-F", "qcow2", &path("middle")]);
    create(&["-b", &path("middle"), "-F", "qcow2", &path("top")]);
    let file = first(&xml("top")).file;
    assert_eq!(
        (file.cluster_size, file.snapshot, file.backing_depth),
        (None, Some(Snapshot::External), Some(2))
    );
    std::fs::write(path("top"), "no image").expect("written");
    assert!(first(&xml("top")).notes.iter().any(|note| note.contains("header is not known")));
}

#[test]
fn broken_domains_are_refused_where_they_are_broken() {
    for (from, to, said) in [
        ("<devices>", "<devices", "line 18, column 5: this is not XML: invalid name token"),
        (
            "<domain type='kvm' id='3'>",
            "<domain>",
            "line 1, column 1: <domain type=\"\">: accepted: kvm, qemu",
        ),
        ("type='kvm'", "type='xen'", "line 1, column 1: <domain type=\"xen\">"),
        (">2</vcpu>", ">two</vcpu>", "line 11, column 3: <vcpu> \"two\": accepted: a number of CPUs"),
        (">2</vcpu>", ">0</vcpu>", "<vcpu> \"0\""),
        (
            "<memory unit='KiB'>",
            "<memory unit='pages'>",
            "line 9, column 3: <memory unit=\"pages\"> \"2097152\": accepted",
        ),
        (">2097152</memory>", ">99999999999999999999</memory>", "line 9, column 3"),
        ("arch='x86_64'", "arch='aarch64'", "line 13, column 5: arch=\"aarch64\": accepted: x86_64"),
        ("machine='pc-q35-8.2'", "machine='s390-ccw'", "machine=\"s390-ccw\": accepted: q35"),
        (
            "discard='unmap'",
            "cache='writebak'",
            "line 26, column 7: <driver cache=\"writebak\">: \"writebak\" is not a known cache",
        ),
        ("discard='unmap'", "io='posix'", "<driver io=\"posix\">"),
        (
            "type='qcow2'",
            "type='qed'",
            "line 25, column 5: \"qed\" is not a known format; accepted: raw, qcow2, vmdk",
        ),
        ("bus='virtio'/>", "bus='usb'/>", "line 29, column 7: bus=\"usb\": accepted: virtio, scsi"),
        (
            "bus='virtio'/>",
            "bus='scsi'/>",
            "a scsi disk on controller model \"(none)\": accepted: virtio-scsi",
        ),
        ("device='disk'", "device='lun'", "no <disk device='disk'>"),
        ("<target dev='vda' bus='virtio'/>", "", "line 25, column 5: a <disk> without a <target>"),
        ("discard='unmap'", "queues='many'", "queues=\"many\": accepted: a number"),
    ] {
        assert!(MANAGER.contains(from), "{from}");
        let error = read(&MANAGER.replace(from, to), None).expect_err(to).to_string();
        assert!(error.contains(said), "{to}: {error}");
    }
    for (xml, said) in [
        ("", "line 1, column 1: this is not XML"),
        ("<network><name>default</name></network>", "<network>: accepted: <domain>"),
        ("<domain type='kvm'><name>a</name></domain>", "no <devices>"),
    ] {
        let error = read(xml, None).expect_err(xml).to_string();
        assert!(error.contains(said), "{xml}: {error}");
    }
    let error = read(INSTALL, Some("sda")).expect_err("no such disk").to_string();
    assert!(error.contains("no disk \"sda\"; accepted: vda, vdb"), "{error}");
}

#[test]
fn alternatives_differ_in_one_setting_and_can_be_built() {
    let like = |xml: &str| {
        let domain = first(xml);
        let file = FileSpec { dir: Some("/srv".into()), ..domain.file };
        TargetSpec::new("like", Stack::from(file).with(domain.guest))
    };
    let names =
        |xml| alternatives(&like(xml)).into_iter().map(|target| target.name).collect::<Vec<_>>().join(" ");
    assert_eq!(names(MANAGER), "cache-none aio-io_uring cache-none-aio-native iothread format-raw");
    assert_eq!(names(INSTALL), "aio-io_uring no-iothread");
    assert_eq!(names(PROXMOX), "aio-native bus-virtio-blk no-iothread");
    assert_eq!(names(WINDOWS), "cache-none aio-io_uring cache-none-aio-native bus-virtio-blk format-luks");
    for other in &alternatives(&like(WINDOWS)) {
        let guest = |target: &TargetSpec| target.guest().cloned().expect("a guest");
        let (own, other_guest) = (guest(&like(WINDOWS)), guest(other));
        match other.name.as_str() {
            "cache-none" => assert_eq!(other_guest, GuestSpec { cache: CacheMode::None, ..own }),
            "aio-io_uring" => assert_eq!(other_guest, GuestSpec { aio: Aio::IoUring, ..own }),
            "bus-virtio-blk" => assert_eq!(other_guest, GuestSpec { bus: Bus::VirtioBlk, ..own }),
            "format-luks" => assert_eq!(other.file().map(|file| file.format), Some(Format::Luks)),
            _ => assert_eq!((other_guest.cache, other_guest.aio), (CacheMode::None, Aio::Native)),
        }
    }
    // Alternatives keep all other settings of the domain.
    assert!(alternatives(&like(MANAGER)).iter().all(|other| {
        other
            .guest()
            .is_some_and(|guest| guest.discard == Discard::Unmap && guest.machine == Some(MachineType::Q35))
    }));
}
