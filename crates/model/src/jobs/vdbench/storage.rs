//! `sd=`: the area under test.

use super::super::{FileLine, LineErrors};
use super::lines::{Definition, VdbenchKey};
use super::values::{number, one, size};
use super::{refuse_unknown, take};
use crate::units::Bytes;
use crate::workload::SyncMode;

const KEYS: [&str; 8] = ["lun", "size", "threads", "openflags", "range", "offset", "align", "hitarea"];
/// vdbench's default.
const THREADS: u64 = 8;
const HITAREA: Bytes = Bytes(1 << 20);

/// A storage definition.
#[derive(Debug, Clone)]
pub(super) struct StorageDefinition {
    pub(super) name: String,
    pub(super) place: FileLine,
    pub(super) lun: Option<(FileLine, String)>,
    /// Offset of its area in the file or device.
    pub(super) offset: u64,
    /// `None` for all of it.
    pub(super) size: Option<Bytes>,
    /// End of the area in the file or device, without `range`.
    pub(super) whole: Option<u64>,
    pub(super) threads: u64,
    pub(super) direct: bool,
    pub(super) sync: SyncMode,
    pub(super) align: Option<Bytes>,
    pub(super) hitarea: Bytes,
}

pub(super) fn storage(definition: &Definition, trouble: &mut LineErrors) -> StorageDefinition {
    refuse_unknown(definition, &KEYS, trouble);
    let whole = take(definition, "size", trouble, |key| size(one(key)?));
    let mut offset = take(definition, "offset", trouble, |key| size(one(key)?)).unwrap_or(Bytes(0)).0;
    let reach = whole.map(|whole| whole.0.saturating_add(offset));
    let mut area = whole;
    if let Some((from, to)) = take(definition, "range", trouble, |key| range(key, whole)) {
        offset = offset.saturating_add(from);
        area = Some(Bytes(to - from));
    }
    let (direct, sync) = take(definition, "openflags", trouble, flags).unwrap_or((false, SyncMode::None));
    StorageDefinition {
        name: definition.name.clone(),
        place: definition.place.clone(),
        lun: take(definition, "lun", trouble, |key| Ok((key.place.clone(), one(key)?.to_owned()))),
        offset,
        size: area,
        whole: reach,
        threads: take(definition, "threads", trouble, |key| threads(one(key)?)).unwrap_or(THREADS),
        direct,
        sync,
        align: take(definition, "align", trouble, |key| size(one(key)?)),
        hitarea: take(definition, "hitarea", trouble, |key| size(one(key)?)).unwrap_or(HITAREA),
    }
}

/// Parses the number of I/Os in flight.
pub(super) fn threads(text: &str) -> Result<u64, String> {
    match number(text, 4096)? {
        0 => Err("accepted: 1 and more".to_owned()),
        threads => Ok(threads),
    }
}

/// Parses the bounds of a range: percent of the size up to 100, otherwise bytes.
fn range(key: &VdbenchKey, whole: Option<Bytes>) -> Result<(u64, u64), String> {
    const ACCEPTED: &str =
        "accepted: (from,to) in percent of a size that is given, or in bytes such as (1g,3g)";
    let [from, to] = key.values.as_slice() else { return Err(ACCEPTED.to_owned()) };
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>(), whole) {
        (Ok(from @ 0..=100), Ok(to @ 0..=100), Some(Bytes(whole))) => {
            // Aligned to sectors.
            let at = |percent: u64| {
                (u128::from(whole) * u128::from(percent) / 100).try_into().unwrap_or(whole) / 512 * 512
            };
            (at(from), at(to))
        }
        (Ok(0..=100), Ok(0..=100), None) => return Err(format!("percent of what? {ACCEPTED}")),
        _ => (size(from)?.0, size(to)?.0),
    };
    if from < to { Ok((from, to)) } else { Err(ACCEPTED.to_owned()) }
}

fn flags(key: &VdbenchKey) -> Result<(bool, SyncMode), String> {
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
    Ok((direct, sync))
}
