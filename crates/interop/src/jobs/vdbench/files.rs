//! Converts `fsd=` and `fwd=`, which describe operations on files, to file tests.

use super::super::{FileLine, LineErrors};
use super::lines::Definition;
use super::storage::{OpenFlags, flags, threads};
use super::values::{list, names, number, one, size};
use super::work::percent;
use super::{refuse_unknown, run, take};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{Rw, Test, Workload, WorkloadKeys};

const OF_STORAGE: [&str; 8] =
    ["anchor", "depth", "width", "files", "sizes", "openflags", "shared", "distribution"];
const OF_WORK: [&str; 8] =
    ["fsd", "operation", "fileio", "fileselect", "xfersizes", "threads", "rdpct", "openflags"];
const OF_RUN: [&str; 9] =
    ["fwd", "fwdrate", "format", "operations", "elapsed", "interval", "pause", "forthreads", "forxfersize"];
/// vdbench's default transfer size for files.
const TRANSFER: Bytes = Bytes(128 << 10);
/// Maximum number of directories or files of a storage; more suggest a typo.
const MOST: u64 = 1_000_000;
/// Number of passes that is never reached, because the elapsed time ends the test first.
const ENDLESS: u64 = 1_000_000;

/// A file system definition (`fsd=`).
#[derive(Debug, Clone)]
pub(super) struct FileStorage {
    name: String,
    pub(super) anchor: Option<(FileLine, String)>,
    /// Number of directories that contain files.
    directories: u64,
    files: u64,
    size: Option<Bytes>,
    flags: Option<OpenFlags>,
}

/// A file system workload definition (`fwd=`).
#[derive(Debug, Clone)]
pub(super) struct FileWork {
    name: String,
    storage: Option<usize>,
    operation: String,
    has_random_io: bool,
    picks_randomly: bool,
    transfer: Bytes,
    threads: u64,
    reads: Option<u8>,
    flags: Option<OpenFlags>,
}

pub(super) fn storage(
    definition: &Definition,
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> FileStorage {
    refuse_unknown(definition, &OF_STORAGE, trouble);
    let mut count = |name: &str| {
        take(definition, name, trouble, |key| match number(one(key)?, MOST)? {
            0 => Err(format!("accepted: 1 to {MOST}")),
            count => Ok(count),
        })
    };
    let (depth, width, files) = (count("depth"), count("width"), count("files"));
    let level = |depth: u64| width.unwrap_or(1).checked_pow(u32::try_from(depth).unwrap_or(u32::MAX));
    let everywhere = take(definition, "distribution", trouble, |key| match one(key)? {
        "bottom" => Ok(false),
        "all" => Ok(true),
        _ => Err("accepted: bottom or all".to_owned()),
    });
    let depth = depth.unwrap_or(1);
    let directories = if everywhere == Some(true) {
        (1..=depth.min(MOST)).try_fold(0_u64, |sum, depth| sum.checked_add(level(depth)?))
    } else {
        level(depth)
    };
    let all = directories.and_then(|directories| directories.checked_mul(files.unwrap_or(1)));
    let all = all.filter(|all| *all <= MOST).unwrap_or_else(|| {
        let why = format!("width, depth and files make more than {MOST} files; accepted: up to that many");
        trouble.add(&definition.location, format!("fsd={}", definition.name), why);
        1
    });
    if depth > 1 {
        notes.push(format!("fsd={}: its directories are side by side, not {depth} deep", definition.name));
    }
    FileStorage {
        name: definition.name.clone(),
        anchor: take(definition, "anchor", trouble, |key| Ok((key.location.clone(), one(key)?.to_owned()))),
        directories: directories.unwrap_or(1),
        files: all,
        size: take(definition, "sizes", trouble, |key| match key.values.as_slice() {
            [one] => size(one),
            _ => Err("files of a storage are of one size here: accepted: sizes=64k".to_owned()),
        }),
        flags: take(definition, "openflags", trouble, flags),
    }
}

pub(super) fn work(definition: &Definition, storages: &[FileStorage], trouble: &mut LineErrors) -> FileWork {
    refuse_unknown(definition, &OF_WORK, trouble);
    let known: Vec<&str> = storages.iter().map(|storage| storage.name.as_str()).collect();
    let named = take(definition, "fsd", trouble, |key| match names(&key.values, &known)?.as_slice() {
        [one] => Ok(known.iter().position(|name| name == one)),
        _ => Err("files are in one place here: accepted: one fsd".to_owned()),
    });
    let storage = named.unwrap_or_else(|| (storages.len() == 1).then_some(0));
    if storage.is_none() && definition.key("fsd").is_none() {
        let why = format!("it needs one fsd=NAME; there are: {}", known.join(", "));
        trouble.add(&definition.location, format!("fwd={}", definition.name), why);
    }
    let mut order = |name: &str| {
        take(definition, name, trouble, |key| match one(key)?.to_lowercase().as_str() {
            "random" | "rand" => Ok(true),
            "sequential" | "seq" => Ok(false),
            other => Err(format!("{other:?} is not known here; accepted: random or sequential")),
        })
    };
    let (has_random_io, picks_randomly) = (order("fileio"), order("fileselect"));
    FileWork {
        name: definition.name.clone(),
        storage,
        operation: take(definition, "operation", trouble, |key| one(key).map(str::to_lowercase))
            .unwrap_or_else(|| "read".to_owned()),
        has_random_io: has_random_io.unwrap_or(false),
        picks_randomly: picks_randomly.unwrap_or(true),
        transfer: take(definition, "xfersizes", trouble, |key| size(one(key)?)).unwrap_or(TRANSFER),
        threads: take(definition, "threads", trouble, |key| threads(one(key)?)).unwrap_or(1),
        reads: take(definition, "rdpct", trouble, |key| percent(one(key)?)),
        flags: take(definition, "openflags", trouble, flags),
    }
}

/// Returns whether a run definition uses file system workloads.
pub(super) fn is_meant(run: &Definition) -> bool {
    run.key("fwd").is_some()
}

/// Returns the workloads of a run definition, one per combination of loop values.
pub(super) fn workloads(
    run: &Definition,
    work: &[FileWork],
    storages: &[FileStorage],
    max_errors: Option<u64>,
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> Vec<Workload> {
    refuse_unknown(run, &OF_RUN, trouble);
    run::note_unneeded(run, notes);
    let elapsed = run::elapsed(run, trouble);
    take(run, "fwdrate", trouble, |key| match one(key)? {
        max if max.eq_ignore_ascii_case("max") => Ok(()),
        _ => Err("operations on files have no rate here; accepted: fwdrate=max".to_owned()),
    });
    let known: Vec<&str> = work.iter().map(|work| work.name.as_str()).collect();
    let named = take(run, "fwd", trouble, |key| match names(&key.values, &known)?.as_slice() {
        [one] => Ok(known.iter().position(|name| name == one)),
        several => Err(format!(
            "{} workloads on files at the same time are not measured here; accepted: one fwd for each rd",
            several.len()
        )),
    });
    let Some(base) = named.flatten().map(|index| &work[index]) else { return Vec::new() };
    let Some(storage) = base.storage.map(|index| &storages[index]) else { return Vec::new() };
    let all = |name: &str| run.key(name).map_or(Ok(Vec::new()), |key| list(&key.values));
    let mut passes = vec![(String::new(), base.clone())];
    for (key, set) in [
        (
            "operations",
            (|work, text| {
                work.operation = text.to_lowercase();
                Ok(())
            }) as Setter,
        ),
        ("forxfersize", |work, text| size(text).map(|bytes| work.transfer = bytes)),
        ("forthreads", |work, text| threads(text).map(|count| work.threads = count)),
    ] {
        let next = all(key).and_then(|values| looped(&passes, &values, set));
        match next {
            Ok(next) => passes = next,
            Err(why) => trouble.add(&run.location, format!("{key} of rd={}", run.name), why),
        }
    }
    let each = passes.into_iter().filter_map(|(suffix, work)| {
        let built = keys(&work, storage, elapsed).and_then(|keys| {
            let keys = WorkloadKeys { name: Some(format!("{}{suffix}", run.name)), max_errors, ..keys };
            let workload = keys.complete(&WorkloadKeys::default());
            workload.check().map_err(|error| error.to_string()).map(|()| workload)
        });
        built.map_err(|why| trouble.add(&run.location, format!("rd={}", run.name), why)).ok()
    });
    each.collect()
}

type Setter = fn(&mut FileWork, &str) -> Result<(), String>;

/// Adds one loop: combines each combination so far with each value of the loop. A combination is a name suffix and a workload.
fn looped(
    passes: &[(String, FileWork)],
    values: &[String],
    set: Setter,
) -> Result<Vec<(String, FileWork)>, String> {
    if values.is_empty() {
        return Ok(passes.to_vec());
    }
    let with = |(suffix, work): &(String, FileWork), value: &String| {
        let mut work = work.clone();
        set(&mut work, value)?;
        let suffix = if values.len() > 1 { format!("{suffix}-{value}") } else { suffix.clone() };
        Ok((suffix, work))
    };
    passes.iter().flat_map(|pass| values.iter().map(move |value| with(pass, value))).collect()
}

/// Returns the workload keys for a file system workload.
fn keys(work: &FileWork, storage: &FileStorage, elapsed: Nanos) -> Result<WorkloadKeys, String> {
    let test = match work.operation.as_str() {
        "create" => Test::Create,
        "open" => Test::Open,
        "getattr" => Test::Stat,
        "delete" => Test::Delete,
        "read" | "write" => return area(work, storage, elapsed),
        other => return Err(format!("operation={other}: {}", nearest(other))),
    };
    let files = storage.files.div_ceil(work.threads);
    let flags = work.flags.or(storage.flags);
    let mut keys = WorkloadKeys {
        test: Some(test),
        rw: Some(if work.picks_randomly { Rw::RandRead } else { Rw::Read }),
        nrfiles: Some(files),
        nrdirs: Some(storage.directories.div_ceil(work.threads).min(files)),
        numjobs: u32::try_from(work.threads).ok(),
        loops: matches!(test, Test::Open | Test::Stat).then_some(ENDLESS),
        bs: (test == Test::Create).then_some(work.transfer),
        runtime: Some(elapsed),
        ramp_time: Some(Nanos(0)),
        direct: Some(flags.is_some_and(|flags| flags.direct)),
        invalidate: Some(false),
        ..WorkloadKeys::default()
    };
    if let Some(size) = storage.size {
        keys.set("filesize", &size.to_string())?;
    }
    Ok(keys)
}

/// Converts random I/O over many files to random I/O over one area of their total size.
fn area(work: &FileWork, storage: &FileStorage, elapsed: Nanos) -> Result<WorkloadKeys, String> {
    if !work.has_random_io || !work.picks_randomly {
        return Err(format!(
            "operation={} of one file after the other is not measured here; accepted: fileio=random with fileselect=random, or \
             for one large file an sd= with seekpct=0",
            work.operation
        ));
    }
    let size = storage.size.and_then(|size| size.0.checked_mul(storage.files));
    let size = size.ok_or_else(|| format!("fsd={} needs sizes=, such as sizes=64k", storage.name))?;
    let flags = work.flags.or(storage.flags);
    Ok(WorkloadKeys {
        rw: Some(match (work.reads, work.operation.as_str()) {
            (Some(1..100), _) => Rw::RandRw,
            (Some(100), _) | (None, "read") => Rw::RandRead,
            _ => Rw::RandWrite,
        }),
        rwmixread: work.reads.filter(|reads| (1..100).contains(reads)),
        bs: Some(work.transfer),
        size: Some(Bytes(size)),
        iodepth: u32::try_from(work.threads).ok(),
        direct: Some(flags.is_some_and(|flags| flags.direct)),
        sync: flags.map(|flags| flags.sync),
        norandommap: Some(true),
        runtime: Some(elapsed),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    })
}

/// Suggests the closest substitute for an operation that is not supported; without one, lists the supported operations.
fn nearest(operation: &str) -> &'static str {
    match operation {
        "mkdir" | "rmdir" => {
            "directories alone are not made or removed; nearest is iotax suite archive, which unpacks and removes trees"
        }
        "copy" => "nearest is iotax suite filecopy, which copies one large file",
        "move" => "nearest is test = \"rename\" in a plan, which renames files within their directory",
        "close" => "nearest is operation=open, which also closes",
        "access" | "setattr" => "nearest is operation=getattr",
        _ => "accepted: create, open, getattr, delete, read, write",
    }
}
