//! Converts vdbench parameter files: each run definition becomes one workload per combination of its loop values.
//!
//! Work that vdbench runs concurrently becomes one workload with concurrent jobs. Storages that name different files or devices are laid
//! out one after the other on the target.

mod lines;
mod run;
mod storage;
mod values;
mod work;

use self::lines::{Definition, VdbenchKey};
use super::{FileLine, Jobs, JobsError, LineErrors};
use crate::words::nearest;

/// Maximum number of workloads from one file.
const MOST_IN_ALL: usize = 10_000;

/// Returns whether a text looks like a parameter file: a line starts a run definition, and none a section or a table.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    !lines.clone().any(|line| line.starts_with('[')) && lines.any(|line| line.starts_with("rd="))
}

/// Parses a parameter file. `file` is its name in errors.
///
/// # Errors
/// All errors of the file at once.
pub fn read(file: &str, text: &str) -> Result<Jobs, JobsError> {
    let mut trouble = LineErrors::default();
    let definitions = lines::definitions(file, text, &mut trouble);
    let of = |kind: &'static str| definitions.iter().filter(move |definition| definition.kind == kind);
    let storages: Vec<_> = of("sd").map(|definition| storage::storage(definition, &mut trouble)).collect();
    let work: Vec<_> = of("wd").map(|definition| work::work(definition, &storages, &mut trouble)).collect();
    let start = FileLine { file: file.into(), line: 1 };
    for (kind, what) in [("sd", "where"), ("wd", "what"), ("rd", "how long and how fast")] {
        if of(kind).next().is_none() {
            trouble.add(
                &start,
                "the file".into(),
                format!("no line says {what}: {kind}=NAME,... is missing"),
            );
        }
    }
    let mut notes = Vec::new();
    let bases = run::lay_out(&storages, &mut notes, &mut trouble);
    let setting = run::RunContext { storages: &storages, bases: &bases, work: &work };
    let mut workloads = Vec::new();
    let mut jobs = 0;
    for definition in of("rd") {
        let new = setting.workloads(definition, &mut notes, &mut trouble);
        jobs += new.iter().map(|workload| workload.jobs().count()).sum::<usize>();
        if jobs > MOST_IN_ALL {
            let why = format!(
                "accepted: up to {MOST_IN_ALL} workloads, those at the same time counted one by one; split the file"
            );
            trouble.add(&definition.place, format!("rd={}", definition.name), why);
            break;
        }
        workloads.extend(new);
    }
    let mut filenames: Vec<(FileLine, String)> = Vec::new();
    for (place, lun) in storages.iter().filter_map(|storage| storage.lun.clone()) {
        if !filenames.iter().any(|(_, known)| *known == lun) {
            filenames.push((place, lun));
        }
    }
    let own_files = storages.iter().any(|storage| storage.lun.is_none());
    trouble.into_result(Jobs { workloads, filenames, own_files, directory: None, seed: None, notes })
}

/// Parses the value of a key; records an error if it is invalid.
fn take<T>(
    definition: &Definition,
    name: &str,
    trouble: &mut LineErrors,
    read: impl FnOnce(&VdbenchKey) -> Result<T, String>,
) -> Option<T> {
    let key = definition.key(name)?;
    match read(key) {
        Ok(value) => Some(value),
        Err(why) => {
            trouble.add(&key.place, key.quoted(), why);
            None
        }
    }
}

fn refuse_unknown(definition: &Definition, known: &[&str], trouble: &mut LineErrors) {
    for key in definition.keys.iter().filter(|key| !known.contains(&key.name.as_str())) {
        if trouble.is_full() {
            break;
        }
        let like = nearest(&key.name, known.iter().copied());
        let hint = like.map(|like| format!(" (did you mean {like:?}?)")).unwrap_or_default();
        let accepted = known.join(", ");
        trouble.add(&key.place, key.quoted(), format!("accepted for {}: {accepted}{hint}", definition.kind));
    }
}

#[cfg(test)]
mod tests;
