//! Tests of guests, defined by libvirt's XML and by QEMU's command line.

use std::path::Path;

use iotax_doctor::{Sureness, examine};
use iotax_model::survey::Survey;
use iotax_testbed::{libvirt, survey};
use iotax_testkit::tree;

/// XML files of libvirt domains, shared with the testbed's tests.
fn domain(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/tests/system/libvirt").join(name);
    std::fs::read_to_string(path).expect("a domain")
}

fn survey_of(xml: &str) -> Survey {
    let root = tree::build("sys/devices/system/cpu/online = 0-63");
    survey::guest(root.path(), libvirt::setup(xml, "virsh dumpxml web1").expect("a domain"))
}

fn ids(survey: &Survey) -> Vec<&'static str> {
    let mut ids: Vec<&str> = examine(survey).iter().map(|finding| finding.rule.id).collect();
    ids.dedup();
    ids
}

#[test]
fn domains_as_tools_define_them_have_no_fault() {
    for name in [
        "virt-install.xml",
        "virt-manager.xml",
        "nova.xml",
        "nova-rbd.xml",
        "cloud-image.xml",
        "proxmox-like.xml",
        "windows.xml",
    ] {
        let survey = survey_of(&domain(name));
        let found = examine(&survey);
        let faults: Vec<_> =
            found.iter().filter(|finding| finding.rule.sureness == Sureness::Fault).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
        assert!(!survey.guests[0].disks.is_empty(), "{name}");
        println!("{name}: {:?}", ids(&survey));
    }
}

/// A domain with one disk and one card.
fn of(disk: &str, nic: &str) -> String {
    format!(
        "<domain type='kvm'><name>web1</name><vcpu>4</vcpu><cpu mode='host-passthrough'/><devices>{disk}\
         <controller type='scsi' index='0' model='virtio-scsi'><driver queues='4' iothread='1'/></controller>{nic}</devices></domain>"
    )
}

#[test]
fn faults_of_a_domain_are_found_by_its_xml() {
    const GOOD_NIC: &str = "<interface type='bridge'><source bridge='br0'/><model type='virtio'/><driver name='vhost' queues='4'/></interface>";
    let disk = |driver: &str, more: &str, bus: &str| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' {driver}/><source file='/srv/a'/><target dev='vda' bus='{bus}'/>{more}</disk>"
        )
    };
    let good = "type='qcow2' cache='none' io='native' discard='unmap' iothread='1' queues='4'";
    let cases: &[(String, &[&str])] = &[
        (of(&disk(good, "", "virtio"), GOOD_NIC), &[]),
        (of(&disk("type='qcow2' cache='none' io='native' discard='unmap'", "", "scsi"), GOOD_NIC), &[]),
        (
            of(&disk(&good.replace("none", "unsafe").replace("native", "threads"), "", "virtio"), GOOD_NIC),
            &["cache-unsafe"],
        ),
        // Nothing is lost that would have lasted.
        (
            of(
                &disk(&good.replace("none", "unsafe").replace("native", "threads"), "<transient/>", "virtio"),
                GOOD_NIC,
            ),
            &[],
        ),
        (of(&disk(&good.replace("none", "directsync"), "", "virtio"), GOOD_NIC), &["cache-writethrough"]),
        (of(&disk(&good.replace("none", "writeback"), "", "virtio"), GOOD_NIC), &["native-aio-buffered"]),
        (of(&disk(&good.replace("native", "threads"), "", "virtio"), GOOD_NIC), &["threads-for-direct-io"]),
        (of(&disk(&good.replace("unmap", "ignore"), "", "virtio"), GOOD_NIC), &["guest-discards-dropped"]),
        (of(&disk(&good.replace("iothread='1'", ""), "", "virtio"), GOOD_NIC), &["no-iothread"]),
        (of(&disk(&good.replace("queues='4'", "queues='1'"), "", "virtio"), GOOD_NIC), &["disk-one-queue"]),
        (
            of(&disk(&format!("{good} error_policy='ignore'"), "", "virtio"), GOOD_NIC),
            &["write-errors-ignored"],
        ),
        (of(&disk(good, "<shareable/>", "virtio"), GOOD_NIC), &["image-shared"]),
        (
            of(&disk(good, "<iotune><total_iops_sec>100</total_iops_sec></iotune>", "virtio"), GOOD_NIC),
            &["guest-throttled"],
        ),
        (of(&disk("type='raw'", "", "sata"), GOOD_NIC), &["disk-emulated"]),
        (
            of(&disk(good, "", "virtio"), "<interface type='user'><model type='e1000'/></interface>"),
            &["nic-emulated", "nic-user-mode"],
        ),
        (of(&disk(good, "", "virtio"), &GOOD_NIC.replace("vhost", "qemu")), &["nic-without-vhost"]),
        (of(&disk(good, "", "virtio"), GOOD_NIC).replace("kvm'", "qemu'"), &["guest-emulated"]),
        (
            of(&disk(good, "", "virtio"), GOOD_NIC).replace("<vcpu>4", "<vcpu>128"),
            &["guest-cpus-beyond-host"],
        ),
    ];
    for (xml, expected) in cases {
        assert_eq!(ids(&survey_of(xml)), *expected, "{xml}");
    }
}

#[test]
fn a_command_line_with_drive_is_read() {
    let line = "proc/77/cmdline = qemu-system-x86_64\\x00-M\\x00q35,accel=kvm\\x00-smp\\x002\\x00-drive\\x00file=/srv/a,,b.img,if=virtio,format=raw,cache=unsafe,aio=threads,discard=unmap,iops=100\\x00-drive\\x00file=/srv/c.img,if=none,id=c,format=raw,cache=none,aio=native\\x00-device\\x00virtio-scsi-pci,id=scsi0,iothread=io0\\x00-device\\x00scsi-hd,drive=c,bus=scsi0.0\\x00-nic\\x00user,model=virtio-net-pci\n\
                proc/78/cmdline = vim\\x00qemu-system-x86_64";
    let root = tree::build(line);
    let survey = survey::machine(root.path());
    assert_eq!(survey.guests.len(), 1);
    let guest = &survey.guests[0];
    assert_eq!(
        (guest.name.as_str(), guest.emulated.as_ref().map(|fact| fact.value)),
        ("QEMU 77", Some(false))
    );
    let disks: Vec<_> = guest
        .disks
        .iter()
        .map(|disk| {
            let word = |fact: &Option<iotax_model::survey::Fact<String>>| {
                fact.as_ref().map_or("", |fact| fact.value.as_str()).to_owned()
            };
            [&disk.path, &disk.bus, &disk.cache, &disk.aio, &disk.throttle].map(word)
        })
        .collect();
    assert_eq!(
        disks,
        [
            ["/srv/c.img", "virtio-scsi", "none", "native", ""],
            ["/srv/a,b.img", "virtio-blk", "unsafe", "threads", "iops=100"]
        ]
    );
    assert_eq!(ids(&survey), ["cache-unsafe", "nic-user-mode", "guest-throttled"]);
}

#[test]
fn flushes_may_be_ignored_where_nothing_lasts() {
    for (more, expected) in [
        ("", &["cache-unsafe"][..]),
        (",readonly=on", &[]),
        (",snapshot=on", &[]),
        (",snapshot=off", &["cache-unsafe"]),
    ] {
        let root = tree::build(&format!(
            "proc/77/cmdline = qemu-system-x86_64\\x00-M\\x00q35,accel=kvm\\x00-drive\\x00file=/srv/a.img,if=virtio,format=raw,cache=unsafe{more}"
        ));
        assert_eq!(ids(&survey::machine(root.path())), expected, "{more}");
    }
}

#[test]
fn the_header_of_a_raw_disk_is_not_followed() {
    let root = tree::build(
        "sys/devices/system/cpu/online = 0-63\nproc/self/mountinfo = 1 0 0:5 / / rw - ext4 none rw\nsrv/b = data",
    );
    tree::add(root.path(), &crate::qcow2::line("srv/a base=/srv/b"));
    let inspect = |format: &str| {
        let xml = of(
            &format!(
                "<disk type='file' device='disk'><driver name='qemu' type='{format}' discard='unmap' iothread='1'/><source file='/srv/a'/><target dev='vda' bus='virtio'/></disk>"
            ),
            "",
        );
        survey::guest(root.path(), libvirt::setup(&xml, "virsh dumpxml web1").expect("a domain"))
    };
    let (raw, declared) = (inspect("raw"), inspect("qcow2"));
    assert_eq!((raw.images[0].format.is_none(), raw.images[0].qcow2.is_none()), (true, true));
    assert!(!ids(&raw).iter().any(|id| id.starts_with("image-")), "{:?}", ids(&raw));
    assert!(ids(&declared).contains(&"image-raw-base-probed"), "{:?}", ids(&declared));
    // The same by the command line of a guest that runs, which names its disk by a link.
    tree::add(
        root.path(),
        "proc/77/cmdline = qemu-system-x86_64\\x00-drive\\x00file=/srv/link,if=virtio,format=raw",
    );
    tree::add(root.path(), "srv/link -> a");
    let running = survey::path(root.path(), Path::new("/srv/a")).expect("a path");
    assert_eq!((running.guests.len(), running.images[0].qcow2.is_none()), (1, true));
}

#[test]
fn a_guest_is_known_by_every_way_to_name_its_file() {
    let cases = [
        "-drive\\x00file=a,,b=c.img,if=virtio,format=raw",
        "-drive\\x00file=file:/srv/a,,b=c.img,if=virtio,format=raw",
        "-drive\\x00driver=raw,file.driver=file,file.filename=a,,b=c.img,if=virtio",
        "-hda\\x00a,b=c.img",
        "-blockdev\\x00raw,node-name=n,file.driver=file,file.filename=a,,b=c.img\\x00-device\\x00virtio-blk,drive=n",
        "-blockdev\\x00driver=file,filename=/srv/a,,b=c.img,node-name=s\\x00-blockdev\\x00driver=raw,file=s,node-name=n\\x00-device\\x00virtio-blk,drive=n",
        r#"-blockdev\x00{"driver":"throttle","node-name":"n","throttle-group":"g","file":{"driver":"raw","file":{"driver":"file","filename":"a,b=c.img"}}}\x00-device\x00virtio-blk,drive=n"#,
        r#"-blockdev\x00{"driver":"throttle","node-name":"t","throttle-group":"g","file":{"driver":"raw","node-name":"n","file":{"driver":"file","filename":"a,b=c.img"}}}\x00-device\x00virtio-blk,drive=n"#,
    ];
    for case in cases {
        let root = tree::build(
            "proc/self/mountinfo = 1 0 0:5 / / rw - ext4 none rw\nproc/77/cwd -> /srv\nsrv/a,b=c.img = data",
        );
        tree::add(root.path(), &format!("proc/77/cmdline = qemu-system-x86_64\\x00{case}"));
        let survey = survey::path(root.path(), Path::new("/srv/a,b=c.img")).expect("a path");
        assert_eq!(survey.guests.len(), 1, "{case}");
    }
}

/// A running guest, by its command line and open files; no files for a process that this user may not inspect.
fn running(line: &str, open: &[&str]) -> Survey {
    let root = tree::build(&format!("proc/77/cmdline = {}", line.replace(' ', "\\x00")));
    for (number, file) in open.iter().enumerate() {
        tree::add(root.path(), &format!("proc/77/fd/{number} -> {file}"));
    }
    survey::machine(root.path())
}

#[test]
fn an_accelerator_is_known_by_its_open_files() {
    type Case = (&'static str, &'static [&'static str], Option<(bool, &'static str)>);
    const KVM: &[&str] = &["/dev/null", "anon_inode:kvm-vm"];
    const TCG: &[&str] = &["/dev/null", "anon_inode:[eventfd]"];
    const HIDDEN: &[&str] = &[];
    let command_line = "/proc/77/cmdline";
    let cases: &[Case] = &[
        // Neither Proxmox nor RHEL needs to name KVM: QEMU tries it first if its name ends so.
        ("/usr/libexec/qemu-kvm -name rhelvm -m 64 -cpu host -smp 1", KVM, Some((false, "/proc/77/fd"))),
        ("/usr/libexec/qemu-kvm -name rhelvm -m 64 -smp 1", HIDDEN, None),
        ("/usr/libexec/qemu-kvm -name rhelvm -m 64 -cpu host -smp 1", TCG, Some((false, command_line))),
        ("/usr/bin/kvm -id 100 -name vm100,debug-threads=on", KVM, Some((false, "/proc/77/fd"))),
        ("/usr/bin/kvm -id 100", TCG, Some((true, "/proc/77/fd"))),
        ("qemu-system-x86_64 -M q35,accel=kvm:tcg", TCG, Some((true, "/proc/77/fd"))),
        ("qemu-system-x86_64 -M q35,accel=kvm:tcg", HIDDEN, None),
        ("qemu-system-x86_64 -accel kvm -accel tcg", HIDDEN, None),
        ("qemu-system-x86_64 -accel kvm", HIDDEN, Some((false, command_line))),
        ("qemu-system-x86_64 -enable-kvm", HIDDEN, Some((false, command_line))),
        ("qemu-system-x86_64 -xen-domid 3", HIDDEN, Some((false, command_line))),
        ("qemu-system-x86_64 -m 64", HIDDEN, Some((true, command_line))),
        ("qemu-system-x86_64 -m 64", KVM, Some((false, "/proc/77/fd"))),
        ("qemu-system-x86_64 -accel tcg,thread=multi", TCG, Some((true, command_line))),
    ];
    for (line, open, expected) in cases {
        let survey = running(line, open);
        let emulated = survey.guests[0].emulated.as_ref().map(|fact| (fact.value, fact.source.as_str()));
        assert_eq!(emulated, *expected, "{line} with {open:?}");
        let is_found = ids(&survey).contains(&"guest-emulated");
        assert_eq!(is_found, expected.is_some_and(|(emulated, _)| emulated), "{line} with {open:?}");
    }
}

#[test]
fn a_disk_behind_a_protocol_has_no_aio() {
    let drives = [
        ("rbd", "file=rbd:vms/disk1:id=admin:conf=/etc/ceph/ceph.conf,if=none,id=d,format=raw,cache=none"),
        ("nbd", "file=nbd:unix:/run/nbd.sock,if=none,id=d,format=raw,cache=none"),
        ("iscsi", "file=iscsi://192.0.2.1/iqn.2026-01.org.example:a/1,if=none,id=d,format=raw,cache=none"),
        ("nfs", "file=nfs://192.0.2.1/srv/a.img,if=none,id=d,format=raw,cache=none"),
        ("gluster+tcp", "file=gluster+tcp://192.0.2.1/vol/a.img,if=none,id=d,format=raw,cache=none"),
        ("https", "file=https://example.org/a.img,if=none,id=d,format=raw,cache=none,readonly=on"),
        ("nbd", "file.driver=nbd,file.host=192.0.2.1,file.port=10809,driver=raw,if=none,id=d,cache=none"),
        (
            "rbd",
            r#"file=json:{"driver":"raw",,"file":{"driver":"rbd",,"pool":"vms",,"image":"disk1"}},if=none,id=d,cache=none"#,
        ),
    ];
    let inspect = |drive: &str| {
        running(&format!("qemu-system-x86_64 -accel kvm {drive} -device virtio-blk-pci,drive=d"), &[])
    };
    let of = |survey: &Survey| {
        let disk = &survey.guests[0].disks[0];
        (
            disk.path.as_ref().map(|path| path.value.clone()),
            disk.protocol.as_ref().map(|word| word.value.clone()),
        )
    };
    for (protocol, drive) in drives {
        let survey = inspect(&format!("-drive {drive}"));
        assert_eq!(of(&survey), (None, Some(protocol.to_owned())), "{drive}");
        assert_eq!(ids(&survey), [""; 0], "{drive}");
        // Settings that QEMU ignores do not matter either.
        assert_eq!(ids(&inspect(&format!("-drive {drive},aio=io_uring"))), [""; 0], "{drive}");
    }
    let nodes = r#"-blockdev {"driver":"rbd","pool":"vms","image":"disk1","node-name":"s","cache":{"direct":true}} -blockdev {"driver":"raw","file":"s","node-name":"d","cache":{"direct":true}}"#;
    let survey = inspect(nodes);
    assert_eq!(of(&survey), (None, Some("rbd".to_owned())));
    assert_eq!(ids(&survey), [""; 0]);
    let local = inspect(
        r#"-drive file=json:{"driver":"raw",,"file":{"driver":"file",,"filename":"/srv/a.img"}},if=none,id=d,cache=none"#,
    );
    assert_eq!(of(&local), (Some("/srv/a.img".to_owned()), None));
    assert_eq!(ids(&local), ["threads-for-direct-io"]);
}

#[test]
fn disks_of_every_type_are_read_or_listed() {
    let disk = |kind: &str, source: &str| {
        let disk = format!(
            "<disk type='{kind}' device='disk'><driver name='qemu' type='raw' cache='none' discard='unmap' iothread='1'/>{source}\
             <target dev='vda' bus='virtio'/></disk>"
        );
        libvirt::setup(&of(&disk, ""), "web1.xml").expect("a domain")
    };
    let network = |protocol: &str| {
        format!(
            "<source protocol='{protocol}' name='vms/disk1'><host name='192.0.2.1' port='6789'/></source>"
        )
    };
    for protocol in ["rbd", "nbd", "iscsi", "nfs", "gluster", "https", "ssh"] {
        let survey = survey::definition(disk("network", &network(protocol)));
        let read = survey.guests[0].disks[0].protocol.as_ref().map(|fact| fact.value.as_str());
        assert_eq!((read, ids(&survey), survey.unread.len()), (Some(protocol), vec![], 0));
    }
    let volume = survey::definition(disk("volume", "<source pool='vms' volume='disk1'/>"));
    assert_eq!(ids(&volume), [""; 0]);
    assert_eq!(
        volume.unread,
        ["web1 vda is the volume vms/disk1, and only its host's libvirt knows where that is"]
    );
    let nothing = survey::definition(disk("network", ""));
    assert_eq!(nothing.unread, ["the definition does not say where web1 vda is"]);
    let local = survey::definition(disk("block", "<source dev='/dev/vg0/web1'/>"));
    assert_eq!((ids(&local), local.unread), (vec!["threads-for-direct-io"], vec![]));
}

#[test]
fn a_definition_is_judged_without_the_machine_that_reads_it() {
    let xml = of("", "").replace("<vcpu>4", "<vcpu>100000");
    let guest = libvirt::setup(&xml, "web1.xml").expect("a domain");
    assert_eq!(ids(&survey::definition(guest.clone())), [""; 0]);
    // On its own host it is.
    let root = tree::build("sys/devices/system/cpu/online = 0-63");
    assert_eq!(ids(&survey::guest(root.path(), guest)), ["guest-cpus-beyond-host"]);
}

#[test]
fn models_of_real_network_cards_are_known() {
    let found = |model: &str| {
        let nic =
            format!("<interface type='bridge'><source bridge='br0'/><model type='{model}'/></interface>");
        let defined = survey::definition(libvirt::setup(&of("", &nic), "web1.xml").expect("a domain"));
        let line = format!("qemu-system-x86_64 -accel kvm -netdev tap,id=n -device {model},netdev=n");
        [ids(&defined), ids(&running(&line, &[]))]
    };
    for model in
        ["e1000", "e1000-82545em", "e1000e", "igb", "rtl8139", "ne2k_isa", "pcnet", "i82559er", "vmxnet3"]
    {
        assert_eq!(found(model), [["nic-emulated"]; 2], "{model}");
    }
    for model in ["virtio", "virtio-net-pci", "virtio-transitional"] {
        assert_eq!(found(model), [[""; 0]; 2], "{model}");
    }
}
