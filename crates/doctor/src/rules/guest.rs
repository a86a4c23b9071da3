//! Rules on the disks and network cards in guest definitions.

use iotax_model::survey::{Fact, GuestDisk, GuestSetup};

use crate::rule::{Rule, Subject, Sureness, Violation, guest_disks, guest_nics, violation};

/// Number of virtual CPUs from which a guest's disk with a single queue or without an I/O thread is reported.
const MANY_CPUS: u64 = 4;

fn device_of(guest: &GuestSetup, name: &str) -> String {
    format!("{} {name}", guest.name)
}

fn is(fact: Option<&Fact<String>>, words: &[&str]) -> bool {
    fact.is_some_and(|fact| words.contains(&fact.value.as_str()))
}

/// Returns a violation if the value of a disk's setting is one of `words`; `None` otherwise, or if the value is unknown.
fn setting(
    guest: &GuestSetup,
    disk: &GuestDisk,
    key: &str,
    fact: Option<&Fact<String>>,
    words: &[&str],
    remedy: &str,
) -> Option<Violation> {
    let fact = fact.filter(|fact| words.contains(&fact.value.as_str()))?;
    violation(device_of(guest, &disk.name), format!("{key}={}", fact.value), fact, remedy)
}

fn is_virtio(disk: &GuestDisk) -> bool {
    disk.bus.as_ref().is_some_and(|bus| bus.value.starts_with("virtio"))
}

/// Returns QEMU's I/O backend (`aio`) of a local file or device; `None` if unknown, or for a disk behind a network protocol.
fn aio(disk: &GuestDisk) -> Option<&Fact<String>> {
    disk.aio.as_ref().filter(|_| disk.protocol.is_none())
}

/// Name prefixes of the network card models that the hypervisor emulates instead of offering virtio, as named by QEMU, libvirt and VMware.
/// A revision may follow.
const REAL_NICS: [&str; 16] = [
    "e1000", "82540", "82543", "82545", "igb", "i825", "i828", "rtl8139", "ne2k", "pcnet", "Am79C", "vmxnet",
    "tulip", "vlance", "lance", "usb-net",
];

/// Cache modes in which QEMU bypasses the host's page cache.
const DIRECT: [&str; 2] = ["none", "directsync"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cache-unsafe",
        subject: Subject::Guest,
        sureness: Sureness::Fault,
        title: "A guest's flushes are ignored",
        why: "cache=unsafe keeps writes in the host's memory whatever the guest asks: a crash of the host can destroy its filesystem.",
        source: "qemu(1), -drive cache=unsafe",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let remedy = "cache='none' or 'writeback' in the definition (-drive cache=none of QEMU)";
                setting(guest, disk, "cache", disk.cache.as_ref(), &["unsafe"], remedy)
                    .filter(|_| disk.nothing_lasts.is_none())
            })
        },
    },
    Rule {
        id: "write-errors-ignored",
        subject: Subject::Guest,
        sureness: Sureness::Fault,
        title: "A guest does not learn of failed writes",
        why: "QEMU reports a write that failed as done.",
        source: "qemu(1), -drive werror=ignore; libvirt domain XML, error_policy",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                setting(
                    guest,
                    disk,
                    "werror",
                    disk.write_error.as_ref(),
                    &["ignore"],
                    "error_policy='stop' (werror=stop)",
                )
            })
        },
    },
    Rule {
        id: "native-aio-buffered",
        subject: Subject::Guest,
        sureness: Sureness::Fault,
        title: "Native AIO without direct I/O",
        why: "QEMU refuses it: native AIO needs cache=none or directsync.",
        source: "qemu(1), -drive aio=native",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                // cache=unsafe does not say whether direct I/O is used.
                let buffered =
                    |cache: &&Fact<String>| ["writeback", "writethrough"].contains(&cache.value.as_str());
                let cache = disk.cache.as_ref().filter(buffered)?;
                let aio = aio(disk).filter(|aio| aio.value == "native")?;
                let value = format!("aio=native with cache={}", cache.value);
                violation(device_of(guest, &disk.name), value, aio, "cache='none' io='native'")
            })
        },
    },
    Rule {
        id: "image-shared",
        subject: Subject::Guest,
        sureness: Sureness::Fault,
        title: "A qcow2 image is shared for writing",
        why: "Each QEMU changes the tables without the other's knowledge: the image is destroyed. Only raw disks can be shared.",
        source: "libvirt domain XML, shareable; QEMU: docs/system/images.rst",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let shared = disk.shared.as_ref().filter(|shared| shared.value)?;
                let is_qcow2 = is(disk.format.as_ref(), &["qcow2"]);
                is_qcow2.then(|| {
                    violation(
                        device_of(guest, &disk.name),
                        "shareable qcow2",
                        shared,
                        "a raw image or a volume for the cluster's filesystem",
                    )
                })?
            })
        },
    },
    Rule {
        id: "io-uring-forbidden",
        subject: Subject::Guest,
        sureness: Sureness::Fault,
        title: "A guest wants io_uring, and the host forbids it",
        why: "QEMU cannot open the disk with aio=io_uring, and the guest does not start.",
        source: "Linux: Documentation/admin-guide/sysctl/kernel.rst, io_uring_disabled",
        check: |survey| {
            let forbidden = survey.machine.io_uring_disabled.as_ref().filter(|state| state.value == 2);
            guest_disks(survey, |guest, disk| {
                let state = forbidden.filter(|_| is(aio(disk), &["io_uring"]))?;
                violation(
                    device_of(guest, &disk.name),
                    "aio=io_uring with io_uring_disabled 2",
                    state,
                    "sysctl kernel.io_uring_disabled=0, or aio=native",
                )
            })
        },
    },
    Rule {
        id: "guest-emulated",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest's CPU is emulated",
        why: "Without KVM everything that the guest computes, its I/O path included, takes many times as long.",
        source: "QEMU: docs/system/introduction.rst, Virtualisation accelerators",
        check: |survey| {
            let of = |guest: &GuestSetup| {
                let emulated = guest.emulated.as_ref().filter(|emulated| emulated.value)?;
                violation(&guest.name, "TCG", emulated, "<domain type='kvm'>, or -accel kvm; ls -l /dev/kvm")
            };
            survey.guests.iter().filter_map(of).collect()
        },
    },
    Rule {
        id: "guest-cpus-beyond-host",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest has more CPUs than the host",
        why: "They wait for each other: a CPU that holds a lock may not be running.",
        source: "Linux: Documentation/virt/paravirt_ops.rst and Documentation/virt/kvm/x86/cpuid.rst, KVM_FEATURE_PV_UNHALT",
        check: |survey| {
            let of = |guest: &GuestSetup| {
                let host = u64::from(survey.machine.environment.cpus?);
                let vcpus = guest.vcpus.as_ref().filter(|vcpus| vcpus.value > host)?;
                violation(
                    &guest.name,
                    format!("{} CPUs on a host with {host}", vcpus.value),
                    vcpus,
                    format!("virsh setvcpus --config {} {host}", guest.name),
                )
            };
            survey.guests.iter().filter_map(of).collect()
        },
    },
    Rule {
        id: "guest-cpu-model",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "A guest has QEMU's smallest CPU model",
        why: "It lacks the instructions for encryption, checksums and copies that the host has; it can move between any two hosts in turn.",
        source: "QEMU: docs/system/cpu-models-x86.rst.inc",
        check: |survey| {
            let of = |guest: &GuestSetup| {
                let model = guest.cpu_model.as_ref();
                let model = model
                    .filter(|model| ["qemu64", "kvm64", "qemu32", "kvm32"].contains(&model.value.as_str()))?;
                violation(&guest.name, model.value.clone(), model, "<cpu mode='host-model'/>, or -cpu host")
            };
            survey.guests.iter().filter_map(of).collect()
        },
    },
    Rule {
        id: "cache-writethrough",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "Each write of a guest is flushed",
        why: "writethrough and directsync sync after every write, also where the guest does not ask for it.",
        source: "qemu(1), -drive cache=writethrough",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                setting(
                    guest,
                    disk,
                    "cache",
                    disk.cache.as_ref(),
                    &["writethrough", "directsync"],
                    "cache='none': the guest's own flushes keep its data safe",
                )
            })
        },
    },
    Rule {
        id: "disk-emulated",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest's disk is emulated hardware",
        why: "IDE, SATA and SCSI controllers take several exits per I/O where virtio takes one or none.",
        source: "libvirt domain XML, target bus; Virtio 1.1, section 5.2",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                setting(
                    guest,
                    disk,
                    "bus",
                    disk.bus.as_ref(),
                    &["ide", "sata", "scsi", "usb", "fdc"],
                    "bus='virtio', once the guest has its driver",
                )
            })
        },
    },
    Rule {
        id: "guest-blocks-smaller-than-disk",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest sees smaller blocks than the host's disk has",
        why: "With direct I/O QEMU must read, change and write a block for each smaller write.",
        source: "QEMU: qemu(1), logical_block_size; libvirt domain XML, blockio",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let cache = disk.cache.as_ref().filter(|cache| DIRECT.contains(&cache.value.as_str()))?;
                let path = &disk.path.as_ref()?.value;
                let device = path.strip_prefix("/dev/").map(str::to_owned);
                let device = device.or_else(|| survey.filesystem_of(path)?.device.clone())?;
                let block = survey
                    .bottoms(&device)
                    .iter()
                    .filter_map(|disk| disk.logical_block_bytes.as_ref())
                    .map(|block| block.value)
                    .max()?;
                let own = disk.logical_block_bytes.as_ref().map_or(512, |block| block.value);
                let value = format!("blocks of {own} on a disk of {block}, cache={}", cache.value);
                (own < block).then(|| {
                    violation(
                        device_of(guest, &disk.name),
                        value,
                        cache,
                        format!("<blockio logical_block_size='{block}'/> for a new disk"),
                    )
                })?
            })
        },
    },
    Rule {
        id: "threads-for-direct-io",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "Threads do a guest's direct I/O",
        why: "native or io_uring submit without a thread for each I/O; threads can be better on a filesystem that blocks.",
        source: "qemu(1), -drive aio",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                // Only where the disk is known to be a local file or device.
                disk.path.as_ref()?;
                let cache = disk.cache.as_ref().filter(|cache| DIRECT.contains(&cache.value.as_str()))?;
                let is_threads = disk.aio.as_ref().is_none_or(|aio| aio.value == "threads");
                let value = format!("cache={} with aio=threads", cache.value);
                let fact = disk.aio.as_ref().unwrap_or(cache);
                is_threads.then(|| {
                    violation(
                        device_of(guest, &disk.name),
                        value,
                        fact,
                        "measure it: iotax tune vm-raw:DIR --try aio",
                    )
                })?
            })
        },
    },
    Rule {
        id: "no-iothread",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "QEMU's main loop does the I/O of a virtio disk",
        why: "It shares one thread with all other devices of the guest; an I/O thread has its own.",
        source: "libvirt domain XML, iothread; QEMU: docs/devel/multiple-iothreads.rst",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let threads =
                    disk.iothreads.as_ref().filter(|threads| threads.value == 0 && is_virtio(disk))?;
                guest.vcpus.as_ref().filter(|vcpus| vcpus.value >= MANY_CPUS)?;
                violation(
                    device_of(guest, &disk.name),
                    "no iothread",
                    threads,
                    "measure it: iotax tune vm-raw:DIR --try iothread",
                )
            })
        },
    },
    Rule {
        id: "disk-one-queue",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "A guest's disk is defined with one queue",
        why: "All its CPUs share one lock and one interrupt; without the setting QEMU makes one for each CPU.",
        source: "QEMU 5.2 ChangeLog, num-queues; libvirt domain XML, queues",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let queues = disk.queues.as_ref().filter(|queues| queues.value == 1 && is_virtio(disk))?;
                let vcpus = guest.vcpus.as_ref().filter(|vcpus| vcpus.value >= MANY_CPUS)?.value;
                violation(
                    device_of(guest, &disk.name),
                    format!("queues=1 for {vcpus} CPUs"),
                    queues,
                    "remove queues='1'",
                )
            })
        },
    },
    Rule {
        id: "guest-discards-dropped",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "A guest's discards are dropped",
        why: "A sparse image never shrinks, and the SSD below does not learn what is free. Some images are meant to stay allocated.",
        source: "qemu(1), -drive discard; libvirt domain XML, discard",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                setting(guest, disk, "discard", disk.discard.as_ref(), &["ignore"], "discard='unmap'")
            })
        },
    },
    Rule {
        id: "guest-throttled",
        subject: Subject::Guest,
        sureness: Sureness::Depends,
        title: "QEMU limits a guest's disk",
        why: "The guest gets no more than this, whatever the disk can do.",
        source: "QEMU: docs/throttle.txt; libvirt domain XML, iotune",
        check: |survey| {
            guest_disks(survey, |guest, disk| {
                let limits = disk.throttle.as_ref()?;
                violation(
                    device_of(guest, &disk.name),
                    limits.value.clone(),
                    limits,
                    format!("virsh blkdeviotune {} {}", guest.name, disk.name),
                )
            })
        },
    },
    Rule {
        id: "nic-emulated",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest's network card is emulated hardware",
        why: "Each packet takes several exits; virtio takes one for many.",
        source: "QEMU: docs/system/devices/net.rst",
        check: |survey| {
            guest_nics(survey, |guest, nic| {
                let model = nic.model.as_ref();
                let model =
                    model.filter(|model| REAL_NICS.iter().any(|name| model.value.starts_with(name)))?;
                violation(
                    device_of(guest, &nic.name),
                    model.value.clone(),
                    model,
                    "<model type='virtio'/>, once the guest has its driver",
                )
            })
        },
    },
    Rule {
        id: "nic-without-vhost",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "QEMU itself moves a guest's packets",
        why: "Each packet wakes QEMU's main loop and is copied there; vhost does it in the kernel.",
        source: "QEMU: qemu(1), -netdev tap,vhost; libvirt domain XML, driver name='vhost'",
        check: |survey| {
            guest_nics(survey, |guest, nic| {
                let vhost = nic.vhost.as_ref().filter(|vhost| !vhost.value)?;
                let fits = is(nic.model.as_ref(), &["virtio"]) && is(nic.backend.as_ref(), &["tap"]);
                fits.then(|| {
                    violation(
                        device_of(guest, &nic.name),
                        "vhost off",
                        vhost,
                        "modprobe vhost_net; <driver name='vhost'/> or vhost=on",
                    )
                })?
            })
        },
    },
    Rule {
        id: "nic-user-mode",
        subject: Subject::Guest,
        sureness: Sureness::Cost,
        title: "A guest's network is QEMU's user mode",
        why: "A TCP stack within QEMU ends every connection and opens another one on the host.",
        source: "QEMU: docs/system/devices/net.rst, Using the user mode network stack",
        check: |survey| {
            guest_nics(survey, |guest, nic| {
                let backend = nic.backend.as_ref().filter(|backend| backend.value == "user")?;
                violation(
                    device_of(guest, &nic.name),
                    "user mode",
                    backend,
                    "a bridge with tap, or passt; iotax net ladder shows the difference",
                )
            })
        },
    },
];
