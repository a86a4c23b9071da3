//! Creates the directories that guests mount by 9p or virtiofs.

use std::fs;
use std::path::Path;

use iotax_model::guest_abi::MEASURED_FILE;
use iotax_model::target::Preallocation;

use super::ground::Ground;
use super::layer::{Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_direct, check_directory, check_exchange};
use super::raw::{self, RawFile};
use super::sizes::size_on;
use crate::build_error::BuildError;
use crate::refusal::Refusal;

/// Rejects a directory `dir` in which no directory for a guest can be created, and adds the space that it needs.
pub(super) fn check(dir: Option<&Path>, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
    let work = at.plan.work_on(at.target);
    check_created(at.plan, &work)?;
    let Some(dir) = dir else { return Ok(()) };
    check_directory(dir)?;
    check_direct(dir, &work)?;
    check_exchange(dir)?;
    needs.beside(dir, at.plan);
    let guests = at.target.guest().map_or(1, |guest| u64::from(guest.count));
    *needs.space.entry(dir.to_owned()).or_default() += guests * size_on(at.above, at.plan.space()).0;
    Ok(())
}

/// Creates the directory that a guest mounts, and the file to measure in it, whose path on the host is that of the storage. `name` is the
/// directory's. Whatever the guest creates in it is removed with it.
pub(super) fn build(
    name: &str,
    dir: Option<&Path>,
    below: Ground,
    at: &mut LayerSite<'_>,
) -> Result<RawFile, BuildError> {
    let directory = at.directory(dir, below)?;
    let directory = fs::canonicalize(&directory).map_err(BuildError::file(&directory))?;
    let shared = directory.join(name);
    at.undo_log.make_tree(&shared)?;
    raw::build(&shared.join(MEASURED_FILE), at.size(), Preallocation::Off, at.undo_log)
}
