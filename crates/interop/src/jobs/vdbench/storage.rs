//! Converts storage definitions (`sd=`), which give the area under test.

use std::collections::HashSet;

use super::super::{FileLine, LineErrors, MOST_JOBS};
use super::lines::{Definition, VdbenchKey};
use super::values::{number, one, size};
use super::{refuse_unknown, take};
use iotax_model::units::Bytes;
use iotax_model::workload::{DEFAULT_SIZE, SyncMode};

const KEYS: [&str; 9] =
    ["lun", "size", "threads", "openflags", "range", "offset", "align", "hitarea", "count"];
/// vdbench's default number of I/Os in flight.
const THREADS: u64 = 8;
const HITAREA: Bytes = Bytes(1 << 20);

/// A storage definition (`sd=`).
#[derive(Debug, Clone)]
pub(super) struct StorageDefinition {
    pub(super) name: String,
    pub(super) lun: Option<(FileLine, String)>,
    /// Start in the file or device, in bytes.
    offset: u64,
    /// Size in bytes from `offset` on; `None` for the rest of the file or device.
    whole: Option<Bytes>,
    /// Part of the storage that gets I/O; `None` for all of it.
    range: Option<SeekRange>,
    pub(super) threads: u64,
    pub(super) flags: OpenFlags,
    pub(super) align: Option<Bytes>,
    pub(super) hitarea: Bytes,
}

/// A part of a storage: start and end, in percent or in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekRange {
    Percent(u64, u64),
    Bytes(u64, u64),
}

/// Flags for opening files: direct I/O and synchronous writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenFlags {
    pub(super) direct: bool,
    pub(super) sync: SyncMode,
}

impl StorageDefinition {
    /// Returns start and length in bytes of the area that gets I/O, within the file or device. The workload's `range` replaces the
    /// storage's. A length of `None` means up to the end. Fails if the range ends beyond the size, or is in percent without a size.
    pub(super) fn area(&self, range: Option<SeekRange>) -> Result<(u64, Option<Bytes>), String> {
        let (from, to) = match (range.or(self.range), self.whole) {
            (None, whole) => return Ok((self.offset, whole)),
            (Some(SeekRange::Bytes(_, to)), Some(Bytes(whole))) if to > whole => {
                return Err(format!("it ends beyond sd={}, whose size is {}", self.name, Bytes(whole)));
            }
            (Some(SeekRange::Bytes(from, to)), _) => (from, to),
            (Some(SeekRange::Percent(..)), None) => {
                return Err(format!("percent of what? sd={} has no size; {RANGE}", self.name));
            }
            (Some(SeekRange::Percent(from, to)), Some(Bytes(whole))) => {
                // Aligned to sectors.
                let at = |percent: u64| {
                    (u128::from(whole) * u128::from(percent) / 100).try_into().unwrap_or(whole) / 512 * 512
                };
                (at(from), at(to))
            }
        };
        Ok((self.offset.saturating_add(from), Some(Bytes(to - from))))
    }

    /// Returns the end in the file or device, in bytes; `None` if the parameter file does not give it.
    fn end(&self) -> Option<u64> {
        let ranged = match self.range {
            Some(SeekRange::Bytes(_, to)) => Some(Bytes(to)),
            _ => None,
        };
        self.whole.or(ranged).map(|length| self.offset.saturating_add(length.0))
    }

    fn lun(&self) -> Option<&str> {
        self.lun.as_ref().map(|(_, lun)| lun.as_str())
    }
}

/// Parses the storage definitions of a file.
pub(super) fn storages<'a>(
    definitions: impl Iterator<Item = &'a Definition>,
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> Vec<StorageDefinition> {
    let mut all: Vec<StorageDefinition> = Vec::new();
    let mut defined = Vec::new();
    let mut names = HashSet::new();
    for definition in definitions {
        for storage in counted(definition, storage(definition, trouble), trouble) {
            if !names.insert(storage.name.clone()) {
                let why = format!("with count= another storage is named {:?} already", storage.name);
                trouble.add(&definition.location, format!("sd={}", definition.name), why);
            }
            all.push(storage);
            defined.push(definition);
        }
        if all.len() > MOST_JOBS {
            let why = format!("accepted: up to {MOST_JOBS} storages; split the file");
            trouble.add(&definition.location, format!("sd={}", definition.name), why);
            break;
        }
    }
    give_sizes(&mut all, notes);
    for (storage, definition) in all.iter().zip(defined) {
        if let (Err(why), Some(key)) = (storage.area(None), definition.key("range")) {
            trouble.add(&key.location, key.quoted(), why);
        }
    }
    all
}

/// Sets missing sizes if there are several files, which could otherwise not be placed one after another. A size reaches to the end of the same file
/// if another storage gives that end; otherwise it is the default size.
fn give_sizes(storages: &mut [StorageDefinition], notes: &mut Vec<String>) {
    if distinct(storages) < 2 {
        return;
    }
    let mut without = Vec::new();
    for index in 0..storages.len() {
        let storage = &storages[index];
        if storage.end().is_some() {
            continue;
        }
        let same = storages.iter().filter(|other| other.lun.is_some() && other.lun() == storage.lun());
        let end = same.filter_map(StorageDefinition::end).max().filter(|end| *end > storage.offset);
        if end.is_none() {
            without.push(storage.name.clone());
        }
        let whole = end.map_or(DEFAULT_SIZE, |end| Bytes(end - storage.offset));
        storages[index].whole = Some(whole);
    }
    if !without.is_empty() {
        notes.push(format!(
            "sd={}: no size= is given, so {DEFAULT_SIZE} of the target is used for each",
            without.join(", ")
        ));
    }
}

/// Returns the number of distinct files or devices.
fn distinct(storages: &[StorageDefinition]) -> usize {
    let luns: HashSet<&str> = storages.iter().filter_map(StorageDefinition::lun).collect();
    luns.len() + storages.iter().filter(|storage| storage.lun.is_none()).count()
}

/// Places the storages' files one after another. Returns the start of each storage's file on the target.
pub(super) fn lay_out(storages: &[StorageDefinition], notes: &mut Vec<String>) -> Vec<u64> {
    let mut starts: Vec<(Option<&str>, u64)> = Vec::new();
    let mut end = 0_u64;
    let mut bases = Vec::new();
    for storage in storages {
        let lun = storage.lun();
        if let Some((_, base)) = starts.iter().find(|(known, _)| *known == lun && lun.is_some()) {
            bases.push(*base);
            continue;
        }
        starts.push((lun, end));
        bases.push(end);
        let same = storages.iter().filter(|other| lun.is_some() && other.lun() == lun);
        let length = same.chain([storage]).filter_map(StorageDefinition::end).max();
        end = end.saturating_add(length.unwrap_or(0));
    }
    if starts.len() > 1 {
        notes.push(format!("{} storages are laid out one behind the other on the target", starts.len()));
    }
    bases
}

fn storage(definition: &Definition, trouble: &mut LineErrors) -> StorageDefinition {
    refuse_unknown(definition, &KEYS, trouble);
    StorageDefinition {
        name: definition.name.clone(),
        lun: take(definition, "lun", trouble, |key| Ok((key.location.clone(), one(key)?.to_owned()))),
        offset: take(definition, "offset", trouble, |key| size(one(key)?)).unwrap_or(Bytes(0)).0,
        whole: take(definition, "size", trouble, |key| size(one(key)?)),
        range: take(definition, "range", trouble, range),
        threads: take(definition, "threads", trouble, |key| threads(one(key)?)).unwrap_or(THREADS),
        flags: take(definition, "openflags", trouble, flags)
            .unwrap_or(OpenFlags { direct: false, sync: SyncMode::None }),
        align: take(definition, "align", trouble, |key| size(one(key)?)),
        hitarea: take(definition, "hitarea", trouble, |key| size(one(key)?)).unwrap_or(HITAREA),
    }
}

/// Expands a definition with `count=(FIRST,NUMBER)` to numbered storages.
fn counted(
    definition: &Definition,
    storage: StorageDefinition,
    trouble: &mut LineErrors,
) -> Vec<StorageDefinition> {
    let numbered = take(definition, "count", trouble, |key| {
        let [first, number_of] = key.values.as_slice() else {
            return Err("accepted: (first,number) such as count=(1,8)".to_owned());
        };
        let (first, number_of) = (number(first, u32::MAX.into())?, number(number_of, MOST_JOBS as u64)?);
        if number_of == 0 {
            return Err("accepted: (first,number) with a number of 1 and more".to_owned());
        }
        let one = |index: u64| -> Result<StorageDefinition, String> {
            let lun = match &storage.lun {
                Some((location, lun)) => Some((location.clone(), with_number(lun, index)?)),
                None => None,
            };
            Ok(StorageDefinition { name: with_number(&storage.name, index)?, lun, ..storage.clone() })
        };
        (first..first + number_of).map(one).collect::<Result<Vec<_>, _>>()
    });
    numbered.unwrap_or_else(|| vec![storage])
}

/// Inserts a number into a name in place of `%d`, `%04d` or `*`; appends it if the name has none of them.
fn with_number(name: &str, number: u64) -> Result<String, String> {
    let Some((before, rest)) = name.split_once('%') else {
        return Ok(match name.split_once('*') {
            Some((before, behind)) => format!("{before}{number}{behind}"),
            None => format!("{name}{number}"),
        });
    };
    let mask = rest.split_once('d').filter(|(width, behind)| {
        (width.is_empty() || (width.starts_with('0') && width.parse::<u8>().is_ok())) && !behind.contains('%')
    });
    let (width, behind) =
        mask.ok_or_else(|| format!("{name:?} cannot be numbered; accepted: a mask such as %d or %04d"))?;
    let width = width.parse::<usize>().unwrap_or(0);
    Ok(format!("{before}{number:0width$}{behind}"))
}

/// Parses the number of I/Os in flight, at most 4096.
pub(super) fn threads(text: &str) -> Result<u64, String> {
    match number(text, 4096)? {
        0 => Err("accepted: 1 and more".to_owned()),
        threads => Ok(threads),
    }
}

const RANGE: &str = "accepted: (from,to) in percent of a size that is given, or in bytes such as (1g,3g)";

/// Parses a range: bounds up to 100 are percent, larger ones are bytes.
pub(super) fn range(key: &VdbenchKey) -> Result<SeekRange, String> {
    let [from, to] = key.values.as_slice() else { return Err(RANGE.to_owned()) };
    let range = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from @ 0..=100), Ok(to @ 0..=100)) => SeekRange::Percent(from, to),
        (Ok(0..=100), Ok(101..=200)) => {
            return Err(format!("an area does not go on at the start of its file; {RANGE}"));
        }
        (Ok(1..=100), _) => return Err(RANGE.to_owned()),
        _ => SeekRange::Bytes(size(from)?.0, size(to)?.0),
    };
    match range {
        SeekRange::Percent(from, to) | SeekRange::Bytes(from, to) if from < to => Ok(range),
        _ => Err(RANGE.to_owned()),
    }
}

pub(super) fn flags(key: &VdbenchKey) -> Result<OpenFlags, String> {
    let (mut direct, mut sync) = (false, SyncMode::None);
    for flag in &key.values {
        match flag.to_lowercase().as_str() {
            "o_direct" | "directio" => direct = true,
            "o_sync" => sync = SyncMode::Sync,
            "o_dsync" => sync = SyncMode::DSync,
            _ => {
                return Err(format!(
                    "{flag:?} is not known here; accepted: o_direct, directio, o_sync, o_dsync"
                ));
            }
        }
    }
    Ok(OpenFlags { direct, sync })
}
