//! Mounts filesystems in memory (tmpfs).

use std::ffi::CString;
use std::fs;
use std::path::Path;

use iotax_model::target::{LayerInterface, TmpfsSpec};
use iotax_model::units::{Bytes, human};
use rustix::mount::{MountFlags, mount};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, refuse_direct};
use super::sizes::size_on;
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::host_info::memory_available;
use crate::refusal::Refusal;
use crate::undo::Effect;

/// Extra bytes in a tmpfs for directories and partly used pages.
const SPARE: u64 = 1 << 20;

impl Build for TmpfsSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment("tmpfs: only root may mount it; run iotax as root"));
        }
        let work = at.plan.work_on(at.target);
        check_created(at.plan, &work)?;
        if at.target.stack.offers() == LayerInterface::RawFile {
            refuse_direct("tmpfs", &work)?;
        }
        let space = at.plan.space();
        let needed = size_on(at.above, space).0.saturating_add(space.files.0);
        // Half of what is free stays free, as for a tmpfs of mount(8) that names no size.
        match memory_available(Path::new("/")) {
            Some(Bytes(free)) if needed > free / 2 => Err(Refusal::environment(format!(
                "tmpfs: {} would take more than half of the {} of memory that are available; use a smaller --size",
                human::bytes(needed),
                human::bytes(free)
            ))),
            _ => Ok(()),
        }
    }

    fn build(&self, _: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let source = format!("iotax-{}-{}-tmpfs", at.builder.tag, at.name::<Self>());
        // The mount table shows paths without symbolic links.
        let scratch = std::env::temp_dir();
        let point = fs::canonicalize(&scratch).map_err(BuildError::file(&scratch))?.join(&source);
        at.undo_log.make_directory(&point)?;
        at.undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: source.clone() }))?;
        let size = at.size().0 + at.builder.space.files.0 + SPARE;
        let options = CString::new(format!("size={size},mode=700")).unwrap_or_default();
        // A system call instead of mount(8): after a kill, no other process goes on to mount.
        mount(source.as_str(), &point, "tmpfs", MountFlags::empty(), &*options)
            .map_err(|errno| Refusal::environment(format!("tmpfs: {}", std::io::Error::from(errno))))?;
        Ok(Ground::Directory(point))
    }
}
