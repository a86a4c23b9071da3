//! Mounts overlay filesystems.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iotax_model::target::OverlaySpec;
use rustix::mount::{MountFlags, mount};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_directory};
use super::sizes::size_on;
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for OverlaySpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment("overlay: only root may mount it; run iotax as root"));
        }
        check_created(at.plan, &at.plan.work_on(at.target))?;
        let Some(dir) = &self.dir else { return Ok(()) };
        check_directory(dir)?;
        needs.beside(dir, at.plan);
        *needs.space.entry(dir.clone()).or_default() += size_on(at.above, at.plan.space()).0;
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(self.dir.as_deref(), below)?;
        // The mount table shows paths without symbolic links.
        let directory = fs::canonicalize(&directory).map_err(BuildError::file(&directory))?;
        let name = at.name::<Self>();
        let root = directory.join(&name).with_added_extension("overlay");
        at.undo_log.make_tree(&root)?;
        for part in ["lower", "upper", "work"] {
            fs::create_dir(root.join(part)).map_err(BuildError::file(&root))?;
        }
        let source = format!("iotax-{}-{name}-overlay", at.builder.tag);
        let scratch = std::env::temp_dir();
        let point = fs::canonicalize(&scratch).map_err(BuildError::file(&scratch))?.join(&source);
        at.undo_log.make_directory(&point)?;
        at.undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: source.clone() }))?;
        // A system call instead of mount(8): after a kill, no other process goes on to mount.
        mount(source.as_str(), &point, "overlay", MountFlags::empty(), &*options(&root, self.volatile))
            .map_err(|errno| {
                Refusal::environment(format!(
                    "overlay on {}: {}; its filesystem must have extended attributes and be no overlay itself",
                    directory.display(),
                    std::io::Error::from(errno)
                ))
            })?;
        Ok(Ground::Directory(point))
    }
}

/// Returns the mount options for an overlay over the directories `lower`, `upper` and `work` below `root`. Colons,
/// commas and backslashes in paths are escaped with a backslash.
fn options(root: &Path, volatile: bool) -> CString {
    let escaped = |part: &str| {
        let path = root.join(part).into_os_string();
        let escape = |byte: &u8| if b"\\:,".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] };
        path.as_bytes().iter().flat_map(escape).collect::<Vec<u8>>()
    };
    let mut text = Vec::new();
    for part in ["lower", "upper", "work"] {
        text.extend([part.as_bytes(), b"dir=", &escaped(part), b","].concat());
    }
    text.pop();
    if volatile {
        text.extend(b",volatile");
    }
    // Paths have no zero byte.
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_an_option_is_escaped() {
        let told = options(Path::new("/a,b:c\\d"), true);
        let root = r"/a\,b\:c\\d";
        let expected = format!("lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work,volatile");
        assert_eq!(told.to_str().expect("text"), expected);
    }
}
