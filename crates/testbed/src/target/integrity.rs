//! Adds checksums by dm-integrity to a block device.

use std::path::Path;

use iotax_model::target::{IntegrityMode, IntegritySpec};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::cryptsetup::INTEGRITYSETUP;
use crate::mapper::{self, Mapping};
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for IntegritySpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        mapper::check("integrity", INTEGRITYSETUP, "integrity", "dm_integrity")?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let device = &taken.area.path;
        // The superblock disappears with the device below, and needs no entry in the undo log.
        at.undo_log.run(INTEGRITYSETUP, format_arguments(self, device))?;
        let name = format!("iotax-{}-{}-integrity", at.builder.tag, at.name::<Self>());
        let mapping = Mapping::of_integrity(name);
        at.undo_log.record(Effect::Mapping(mapping.clone()))?;
        at.undo_log.run(INTEGRITYSETUP, open_arguments(self, device, &mapping.name))?;
        let ground = Ground::made(mapping.node())?;
        at.check_holds(&ground)?;
        Ok(ground)
    }
}

/// Returns the arguments for integritysetup(8) that format the device and write all its sectors once: a sector that
/// was never written has no checksum and cannot be read.
fn format_arguments(spec: &IntegritySpec, device: &Path) -> Vec<String> {
    let mut words = ["format", "--batch-mode"].map(str::to_owned).to_vec();
    words.extend(spec.sector_size.map(|bytes| format!("--sector-size={bytes}")));
    words.push(device.to_string_lossy().into_owned());
    words
}

fn open_arguments(spec: &IntegritySpec, device: &Path, name: &str) -> Vec<String> {
    let mode = match spec.mode {
        IntegrityMode::Journal => None,
        IntegrityMode::Bitmap => Some("--integrity-bitmap-mode"),
        IntegrityMode::Direct => Some("--integrity-no-journal"),
    };
    let device = device.to_string_lossy();
    ["open"].into_iter().chain(mode).chain([&*device, name]).map(str::to_owned).collect()
}
