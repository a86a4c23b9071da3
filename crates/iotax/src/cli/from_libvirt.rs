//! `iotax ladder --like`: models a ladder on a libvirt domain's disk.

use std::path::Path;

use anyhow::Context;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::target::{Bus, Discard, FileSpec, GuestSpec, Stack, VirtioSpec};
use iotax_testbed::libvirt::{self, Domain};

use super::args::target_name;
use super::{Failure, OrExit, input};

/// The targets of a ladder, with notes on them.
pub(super) struct LadderTargets {
    /// The targets, the baseline first. With `--like`, these are a file on the host's filesystem, the disk as the domain defines it, and
    /// alternatives to it.
    pub(super) targets: Vec<TargetSpec>,
    /// Notes for the user: filesystems that guests get; with `--like` also the domain's disk, and each way in which the targets differ from it.
    pub(super) notes: Vec<String>,
}

/// Returns targets modelled on a domain's disk. Reads the domain's XML from a file, or from libvirt by name, UUID or number.
pub(super) fn targets(domain: &str, disk: Option<&str>, dir: &Path) -> Result<LadderTargets, Failure> {
    let xml = if Path::new(domain).is_file() {
        input::text(Path::new(domain), input::DOMAIN)?
    } else {
        libvirt::dumpxml(domain)
            .with_context(|| format!("{domain:?} is no file, and libvirt cannot be asked"))
            .or_exit(Exit::Environment)?
    };
    let domain = libvirt::read(&xml, disk)
        .with_context(|| format!("{domain} is not a domain that can be measured likewise"))
        .or_exit(Exit::Usage)?;
    Ok(rungs(domain, dir))
}

/// Replaces each guest with QEMU's storage daemon and the same disk settings, and drops targets that then duplicate an earlier one. Adds
/// notes on settings of the disk that need a guest.
pub(super) fn without_guests(ladder: LadderTargets) -> LadderTargets {
    let mut targets: Vec<TargetSpec> = Vec::new();
    let mut notes = ladder.notes;
    for mut target in ladder.targets {
        if let Some(guest) = target.guest() {
            for words in of_guests_alone(guest) {
                if !notes.contains(&words) {
                    notes.push(words);
                }
            }
            let iothread = (guest.iothreads() == 0).then_some(false);
            let disk = VirtioSpec { cache: guest.cache, aio: guest.aio, iothread, ..VirtioSpec::default() };
            target.stack = target.stack.without::<GuestSpec>().with(disk);
        }
        if targets.iter().all(|other| other.stack != target.stack) {
            targets.push(target);
        }
    }
    LadderTargets { targets, notes }
}

/// Returns a sentence for each setting of a guest's disk that a virtio device without a guest lacks.
fn of_guests_alone(guest: &GuestSpec) -> Vec<String> {
    let bus = (guest.bus != Bus::VirtioBlk)
        .then(|| format!("bus={}: without a guest virtio-blk takes its place", guest.bus));
    let queues = guest.queues.map(|queues| {
        format!("queues={queues}: without a guest each worker of the load has a queue instead")
    });
    let discard = (guest.discard != Discard::Unmap)
        .then(|| format!("discard={}: without a guest discards are passed on", guest.discard));
    [bus, queues, discard].into_iter().flatten().collect()
}

fn rungs(domain: Domain, dir: &Path) -> LadderTargets {
    let Domain { name, disk, source, guest, file, mut notes } = domain;
    let source = source.map(|path| format!(" ({})", path.display())).unwrap_or_default();
    notes.insert(0, format!("like {disk}{source} of {name}, with a new image"));
    let image = FileSpec { dir: Some(dir.to_owned()), ..file };
    let like = TargetSpec::new(target_name(&format!("like-{name}")), Stack::from(image).with(guest));
    let host = TargetSpec::new("host-file", FileSpec::in_dir(dir));
    let others = libvirt::alternatives(&like);
    LadderTargets { targets: [host, like].into_iter().chain(others).collect(), notes }
}
