//! `iotax ladder --like`: the rungs that a libvirt domain's disk suggests.

use std::path::Path;

use anyhow::Context;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::target::FileSpec;
use iotax_testbed::libvirt::{self, Domain};

use super::{Failure, OrExit, input};

/// What is measured in place of the usual rungs.
pub(super) struct Like {
    /// The host's file system, the disk as the domain has it, and what might be done otherwise.
    pub(super) targets: Vec<TargetSpec>,
    /// Which disk it is, and what is not as it is there.
    pub(super) notes: Vec<String>,
}

/// Reads a domain: a file of libvirt's XML, or by the name, UUID or number that libvirt knows it by.
pub(super) fn like(domain: &str, disk: Option<&str>, dir: &Path) -> Result<Like, Failure> {
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

fn rungs(domain: Domain, dir: &Path) -> Like {
    let Domain { name, disk, source, guest, file, mut notes } = domain;
    let source = source.map(|path| format!(" ({})", path.display())).unwrap_or_default();
    notes.insert(0, format!("like {disk}{source} of {name}, with a new image"));
    let here = |file| Some(FileSpec { dir: Some(dir.to_owned()), ..file });
    let like = TargetSpec {
        name: legal(&format!("like-{name}")),
        file: here(file),
        guest: Some(guest),
        ..TargetSpec::default()
    };
    let host =
        TargetSpec { name: "host-file".into(), file: here(FileSpec::default()), ..TargetSpec::default() };
    let others = libvirt::alternatives(&like);
    Like { targets: [host, like].into_iter().chain(others).collect(), notes }
}

/// A target's name of any text.
fn legal(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(40)
        .collect()
}
