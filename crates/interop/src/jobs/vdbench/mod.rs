//! Converts vdbench parameter files: each run definition becomes one workload per combination of loop values.
//!
//! Workloads that vdbench runs concurrently become one workload with concurrent jobs. Storages on different files or devices are placed one
//! after another on the target.

mod curve;
mod files;
mod keywords;
mod lines;
mod run;
mod storage;
mod values;
mod work;

use self::lines::{Definition, VdbenchKey};
use super::{FileLine, Jobs, JobsError, LineErrors};
use iotax_model::words::nearest;

/// Maximum number of workloads from all run definitions of a file.
const MOST_IN_ALL: usize = 10_000;

/// Returns whether a text looks like a parameter file: a line starts a run definition, and no line starts a section or a table.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    !lines.clone().any(|line| line.starts_with('[')) && lines.any(|line| line.starts_with("rd="))
}

/// Parses a parameter file. `file` is its name in error messages.
///
/// # Errors
/// All errors of the file together, at most 100.
pub fn read(file: &str, text: &str) -> Result<Jobs, JobsError> {
    let mut trouble = LineErrors::default();
    let mut notes = Vec::new();
    let lines::Definitions { found, work: default } =
        lines::definitions(file, text, &mut notes, &mut trouble);
    let of = |kind: &'static str| found.iter().filter(move |definition| definition.kind == kind);
    let storages = storage::storages(of("sd"), &mut notes, &mut trouble);
    let work: Vec<_> = of("wd").map(|definition| work::work(definition, &storages, &mut trouble)).collect();
    let file_storages: Vec<_> =
        of("fsd").map(|definition| files::storage(definition, &mut notes, &mut trouble)).collect();
    let file_work: Vec<_> =
        of("fwd").map(|definition| files::work(definition, &file_storages, &mut trouble)).collect();
    let needs_default = of("rd").any(run::takes_default);
    let default = needs_default.then(|| work::work(&default, &storages, &mut trouble));
    let start = FileLine { file: file.into(), line: 1 };
    // A definition that was rejected is not reported as missing.
    if trouble.0.is_empty() {
        for (kind, what) in [("sd", "where"), ("wd", "what"), ("rd", "how long and how fast")] {
            let of_files = ["sd", "wd"].contains(&kind) && of("fwd").next().is_some();
            if of(kind).next().is_none() && !(kind == "wd" && needs_default) && !of_files {
                let why = format!("no line says {what}: {kind}=NAME,... is missing");
                trouble.add(&start, "the file".into(), why);
            }
        }
    }
    // The last value counts, but all are checked.
    let max_errors: Vec<u64> =
        of("data_errors").filter_map(|definition| max_errors(definition, &mut trouble)).collect();
    let bases = storage::lay_out(&storages, &mut notes);
    let setting = run::RunContext {
        storages: &storages,
        bases: &bases,
        work: &work,
        default: default.as_ref(),
        max_errors: max_errors.last().copied(),
    };
    let mut workloads = Vec::new();
    let mut jobs = 0;
    for definition in of("rd") {
        let new = if files::is_meant(definition) {
            let max_errors = setting.max_errors;
            files::workloads(definition, &file_work, &file_storages, max_errors, &mut notes, &mut trouble)
        } else {
            setting.workloads(definition, &mut notes, &mut trouble)
        };
        jobs += new.iter().map(|workload| workload.jobs().count()).sum::<usize>();
        if jobs > MOST_IN_ALL {
            let why = format!(
                "accepted: up to {MOST_IN_ALL} workloads, those at the same time counted one by one; split the file"
            );
            trouble.add(&definition.location, format!("rd={}", definition.name), why);
            break;
        }
        workloads.extend(new);
    }
    let curve = curve::curve(of("rd"), &mut notes, &mut trouble);
    let mut filenames: Vec<(FileLine, String)> = Vec::new();
    for (location, lun) in storages.iter().filter_map(|storage| storage.lun.clone()) {
        if !filenames.iter().any(|(_, known)| *known == lun) {
            filenames.push((location, lun));
        }
    }
    let own_files = !file_work.is_empty() || storages.iter().any(|storage| storage.lun.is_none());
    let directory = anchor(&file_storages, &mut trouble);
    trouble.into_result(Jobs { workloads, filenames, own_files, directory, seed: None, curve, notes })
}

/// Returns the directory (`anchor=`) of the file system storages; `None` without any. Different directories are reported as errors.
fn anchor(storages: &[files::FileStorage], trouble: &mut LineErrors) -> Option<String> {
    let mut anchors = storages.iter().filter_map(|storage| storage.anchor.as_ref());
    let (_, first) = anchors.next()?;
    for (location, other) in anchors.filter(|(_, other)| other != first) {
        let why =
            format!("{first:?} is another one before it; accepted: one anchor, as all is done on one target");
        trouble.add(location, format!("anchor={other}"), why);
    }
    Some(first.clone())
}

/// Returns the number of failed I/Os after which a measurement ends (`data_errors=`); `None`, with an error in `trouble`, if it is not a
/// whole number from 1 on.
fn max_errors(definition: &Definition, trouble: &mut LineErrors) -> Option<u64> {
    refuse_unknown(definition, &[], trouble);
    let number = definition.name.parse().ok().filter(|number| *number > 0);
    if number.is_none() {
        let why = "accepted: a number of failed I/Os from 1 on, such as data_errors=5; iotax runs no commands of others";
        trouble.add(&definition.location, format!("data_errors={}", definition.name), why.to_owned());
    }
    number
}

/// Parses the value of a key with `read`; `None` if the key is missing, or if its value is invalid, which adds an error to `trouble`.
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
            trouble.add(&key.location, key.quoted(), why);
            None
        }
    }
}

fn refuse_unknown(definition: &Definition, known: &[&str], trouble: &mut LineErrors) {
    for key in definition.keys.iter().filter(|key| !known.contains(&key.name.as_str())) {
        if trouble.is_full() {
            break;
        }
        let why = match key.name.as_str() {
            "host" => HOSTS.to_owned(),
            "fwd" | "fwdrate" | "operations" | "format" => FILES.to_owned(),
            "replay" => REPLAY.to_owned(),
            name => {
                let like = nearest(name, known.iter().copied());
                let hint = like.map(|like| format!(" (did you mean {like:?}?)")).unwrap_or_default();
                format!("accepted for {}: {}{hint}", definition.kind, known.join(", "))
            }
        };
        trouble.add(&key.location, key.quoted(), why);
    }
}

const HOSTS: &str = "hosts are targets here: leave it out and give --target ssh://user@host/path";
const FILES: &str = "it is for operations on files: accepted with fwd=NAME and without wd= and sd=";
const REPLAY: &str = "recorded I/O is not replayed; describe it with xfersize, rdpct and seekpct";

#[cfg(test)]
mod tests;
