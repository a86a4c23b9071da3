//! A fictional layer that a test adds to iotax: an overlay with a counter.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use iotax_model::target::BottleSpec;
use rustix::mount::{MountFlags, mount};

use super::counters::Counters;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_directory};
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for BottleSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        check_created(at.plan, &at.plan.work_on(at.target))?;
        check_directory(&self.dir)?;
        if self.dir.join("corkscrew").exists() {
            return Err(Refusal::environment("bottle: there is a corkscrew here"));
        }
        needs.beside(&self.dir, at.plan);
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(Some(&self.dir), below)?;
        let directory = fs::canonicalize(&directory).map_err(BuildError::file(&directory))?;
        let root = directory.join(at.name::<Self>()).with_added_extension("bottle");
        at.undo_log.make_tree(&root)?;
        for part in ["lower", "upper", "work"] {
            fs::create_dir(root.join(part)).map_err(BuildError::file(&root))?;
        }
        let source = format!("iotax-{}-{}-bottle", at.builder.tag, at.name::<Self>());
        let scratch = std::env::temp_dir();
        let point = fs::canonicalize(&scratch).map_err(BuildError::file(&scratch))?.join(&source);
        at.undo_log.make_directory(&point)?;
        at.undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: source.clone() }))?;
        let path = root.display();
        let options = format!("lowerdir={path}/lower,upperdir={path}/upper,workdir={path}/work");
        let options = CString::new(options).unwrap_or_default();
        mount(source.as_str(), &point, "overlay", MountFlags::empty(), &*options)
            .map_err(|errno| Refusal::environment(format!("bottle: {}", io::Error::from(errno))))?;
        at.counters.push(Arc::new(Readings::default()));
        Ok(Ground::Directory(point))
    }
}

/// Counts the reads of its file.
#[derive(Debug, Default)]
struct Readings(AtomicU64);

impl Counters for Readings {
    fn layer(&self) -> &'static str {
        "bottle"
    }

    fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        Ok([("readings".to_owned(), self.0.fetch_add(1, Ordering::Relaxed))].into())
    }
}
