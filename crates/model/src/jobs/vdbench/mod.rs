//! vdbench's parameter files: each run definition, for each value of its loops, becomes a workload.
//!
//! What vdbench runs at the same time, several workload definitions or one on several storages, is one workload with the others
//! beside it. Storages that name different files or devices are laid out one behind the other on the target.

mod lines;
mod run;
mod storage;
mod values;
mod work;

use self::lines::{Definition, Key};
use super::{Jobs, JobsError, Place, Trouble};
use crate::words::nearest;

/// How many workloads one file may come to.
const MOST_IN_ALL: usize = 10_000;

/// Whether a text is meant as a parameter file: a line of it begins a run definition, and none a section or a table.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    !lines.clone().any(|line| line.starts_with('[')) && lines.any(|line| line.starts_with("rd="))
}

/// Reads a parameter file. `file` is what errors call it.
///
/// # Errors
/// Everything that cannot be taken, at once.
pub fn read(file: &str, text: &str) -> Result<Jobs, JobsError> {
    let mut trouble = Trouble::default();
    let definitions = lines::definitions(file, text, &mut trouble);
    let of = |kind: &'static str| definitions.iter().filter(move |definition| definition.kind == kind);
    let storages: Vec<_> = of("sd").map(|definition| storage::storage(definition, &mut trouble)).collect();
    let work: Vec<_> = of("wd").map(|definition| work::work(definition, &storages, &mut trouble)).collect();
    let start = Place { file: file.into(), line: 1 };
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
    let setting = run::Setting { storages: &storages, bases: &bases, work: &work };
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
    let mut filenames: Vec<(Place, String)> = Vec::new();
    for (place, lun) in storages.iter().filter_map(|storage| storage.lun.clone()) {
        if !filenames.iter().any(|(_, known)| *known == lun) {
            filenames.push((place, lun));
        }
    }
    let own_files = storages.iter().any(|storage| storage.lun.is_none());
    trouble.into_result(Jobs { workloads, filenames, own_files, directory: None, seed: None, notes })
}

/// A key's value; what is wrong with it is noted.
fn take<T>(
    definition: &Definition,
    name: &str,
    trouble: &mut Trouble,
    read: impl FnOnce(&Key) -> Result<T, String>,
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

fn refuse_unknown(definition: &Definition, known: &[&str], trouble: &mut Trouble) {
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
