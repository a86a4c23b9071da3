//! Converts workload definitions (`wd=`) to workload keys.

use super::super::LineErrors;
use super::lines::{Definition, VdbenchKey};
use super::storage::{OpenFlags, SeekRange, StorageDefinition, flags, range};
use super::values::{Share, names, number, one, share, size};
use super::{refuse_unknown, take};
use iotax_model::units::Bytes;
use iotax_model::workload::{Distribution, Rw, Stride, WorkloadKeys, Zone};

const KEYS: [&str; 13] = [
    "sd",
    "xfersize",
    "rdpct",
    "seekpct",
    "skew",
    "iorate",
    "rhpct",
    "whpct",
    "hotband",
    "stride",
    "threads",
    "range",
    "openflags",
];

/// Sizes of the I/Os of a workload: one size, a mix, or a range.
#[derive(Debug, Clone)]
pub(super) enum TransferSizes {
    One(Bytes),
    Split(String),
    Range(String),
}

/// Order of the offsets: random for a percentage of the I/Os, or sequential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekPattern {
    /// Percentage of random I/Os.
    Random(u8),
    /// Sequential, in a single pass over the area.
    ToTheEnd,
}

/// A workload definition (`wd=`).
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) name: String,
    /// Indices of the storage definitions that get the workload's I/O.
    pub(super) storages: Vec<usize>,
    pub(super) lengths: TransferSizes,
    /// Percentage of reads.
    pub(super) reads: u8,
    pub(super) seeks: SeekPattern,
    /// Share of the run's rate (`skew`), if given.
    pub(super) skew: Option<Share>,
    /// Rate in I/Os per second (`iorate`), if given.
    pub(super) rate: Option<u64>,
    /// Percentage of reads and of writes that go to the hit area.
    pub(super) hits: u8,
    pub(super) stride: Option<Stride>,
    pub(super) threads: Option<u64>,
    /// Range that replaces the storages' ranges; `None` to keep theirs.
    pub(super) range: Option<SeekRange>,
    /// Open flags that replace the storages' flags; `None` to keep theirs.
    pub(super) flags: Option<OpenFlags>,
}

pub(super) fn work(
    definition: &Definition,
    storages: &[StorageDefinition],
    trouble: &mut LineErrors,
) -> Work {
    refuse_unknown(definition, &KEYS, trouble);
    let all = definition.key("sd").is_none();
    let named = take(definition, "sd", trouble, |key| chosen(&key.values, storages));
    let named = named.unwrap_or_else(|| if all { (0..storages.len()).collect() } else { Vec::new() });
    let range = take(definition, "range", trouble, |key| {
        let range = range(key)?;
        named.iter().try_for_each(|&index| storages[index].area(Some(range)).map(|_| ()))?;
        Ok(range)
    });
    take(definition, "hotband", trouble, |_| -> Result<(), String> {
        Err("bands that are hot by turns are not known here; in a plan, random_distribution = \"zoned:...\" says how much of the \
             I/O goes to which part"
            .to_owned())
    });
    let reads = take(definition, "rdpct", trouble, |key| percent(one(key)?)).unwrap_or(100);
    let read_hits = take(definition, "rhpct", trouble, |key| percent(one(key)?)).unwrap_or(0);
    let hits = take(definition, "whpct", trouble, |key| {
        let hits = percent(one(key)?)?;
        if hits == read_hits || reads == 100 { Ok(hits) } else { Err(OTHER_HITS.to_owned()) }
    });
    if let (Some(key), None, true) = (definition.key("rhpct"), hits, read_hits > 0 && reads < 100) {
        trouble.add(&key.location, key.quoted(), OTHER_HITS.to_owned());
    }
    Work {
        name: definition.name.clone(),
        storages: named,
        lengths: take(definition, "xfersize", trouble, |key| lengths(&key.values))
            .unwrap_or(TransferSizes::One(Bytes(4096))),
        reads,
        seeks: take(definition, "seekpct", trouble, |key| seeks(one(key)?))
            .unwrap_or(SeekPattern::Random(100)),
        skew: take(definition, "skew", trouble, |key| share(one(key)?)),
        rate: take(definition, "iorate", trouble, |key| rate(one(key)?)),
        hits: if reads == 0 { hits.unwrap_or(0) } else { read_hits },
        stride: take(definition, "stride", trouble, stride),
        threads: take(definition, "threads", trouble, |key| super::storage::threads(one(key)?)),
        range,
        flags: take(definition, "openflags", trouble, flags),
    }
}

/// Returns the indices of the storages whose names match the patterns.
pub(super) fn chosen(patterns: &[String], storages: &[StorageDefinition]) -> Result<Vec<usize>, String> {
    let known: Vec<&str> = storages.iter().map(|storage| storage.name.as_str()).collect();
    let named = names(patterns, &known)?;
    Ok((0..known.len()).filter(|index| named.contains(&known[*index])).collect())
}

const OTHER_HITS: &str = "rhpct and whpct are one figure here; give both the same";

pub(super) fn percent(text: &str) -> Result<u8, String> {
    number(text, 100).map(|percent| u8::try_from(percent).unwrap_or(100))
}

/// Parses a rate in I/Os per second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    match number(text, u64::from(u32::MAX)) {
        Ok(0) | Err(_) => Err(format!("{text:?} is not a number of I/Os a second from 1 on")),
        rate => rate,
    }
}

pub(super) fn seeks(text: &str) -> Result<SeekPattern, String> {
    match text.to_lowercase().as_str() {
        "eof" | "-1" => Ok(SeekPattern::ToTheEnd),
        "seq" | "sequential" => Ok(SeekPattern::Random(0)),
        "random" | "rand" => Ok(SeekPattern::Random(100)),
        text => percent(text).map(SeekPattern::Random).map_err(|why| format!("{why}, nor eof")),
    }
}

/// Parses transfer sizes: `4k`, `(4k,30,8k,70)`, or `(MIN,MAX,ALIGN)` if ALIGN is MIN and MAX is a multiple of it.
pub(super) fn lengths(values: &[String]) -> Result<TransferSizes, String> {
    match values {
        [one] => size(one).map(TransferSizes::One),
        [min, max, align] => {
            let (min, max, align) = (size(min)?, size(max)?, size(align)?);
            if align == min && max.0.is_multiple_of(min.0.max(1)) {
                Ok(TransferSizes::Range(format!("{min}-{max}")))
            } else {
                Err("lengths go in steps of the shortest here: accepted: (min,max,align) with align = min and max a multiple of \
                     it"
                    .to_owned())
            }
        }
        pairs if pairs.len().is_multiple_of(2) => {
            let parts = pairs.chunks(2).map(|pair| Ok(format!("{}/{}", size(&pair[0])?, percent(&pair[1])?)));
            Ok(TransferSizes::Split(parts.collect::<Result<Vec<String>, String>>()?.join(":")))
        }
        _ => {
            Err("accepted: 4k, (4k,30,8k,70) with percents that add up to 100, or (min,max,align)".to_owned())
        }
    }
}

fn stride(key: &VdbenchKey) -> Result<Stride, String> {
    let bytes = |text: &String| size(text).map(|bytes| bytes.0);
    let same = match key.values.as_slice() {
        [one] => Some(bytes(one)?),
        [min, max] => Some(bytes(min)?).filter(|min| bytes(max).as_ref() == Ok(min)),
        _ => None,
    };
    let whole = same.filter(|bytes| bytes.is_multiple_of(512)).and_then(|bytes| i64::try_from(bytes).ok());
    whole
        .map(Stride)
        .ok_or_else(|| "a stride is always the same here: accepted: (64k,64k), a multiple of 512".to_owned())
}

impl Work {
    /// Returns the workload keys for I/O on one storage, without rate and times. `base` is the start of the storage's file on the target, in bytes.
    pub(super) fn keys(&self, storage: &StorageDefinition, base: u64) -> Result<WorkloadKeys, String> {
        let (offset, size) = storage.area(self.range)?;
        let flags = self.flags.unwrap_or(storage.flags);
        let random = self.seeks != SeekPattern::ToTheEnd && self.seeks != SeekPattern::Random(0);
        let mut keys = WorkloadKeys {
            rw: Some(match (random, self.reads) {
                (true, 100) => Rw::RandRead,
                (true, 0) => Rw::RandWrite,
                (true, _) => Rw::RandRw,
                (false, 100) => Rw::Read,
                (false, 0) => Rw::Write,
                (false, _) => Rw::ReadWrite,
            }),
            rwmixread: Some(self.reads).filter(|reads| (1..100).contains(reads)),
            offset: Some(Bytes(base.saturating_add(offset))),
            size,
            direct: Some(flags.direct),
            sync: Some(flags.sync),
            loops: (self.seeks == SeekPattern::ToTheEnd).then_some(1),
            norandommap: random.then_some(true),
            ..WorkloadKeys::default()
        };
        if let SeekPattern::Random(share @ 1..100) = self.seeks {
            keys.percentage_random = Some(share);
        }
        match &self.lengths {
            TransferSizes::One(bs) => keys.bs = Some(*bs),
            TransferSizes::Split(split) => keys.set("bssplit", split)?,
            TransferSizes::Range(range) => keys.set("bsrange", range)?,
        }
        if let (Some(align), TransferSizes::One(bs)) = (storage.align, &self.lengths)
            && align != *bs
        {
            return Err(format!(
                "align={align} of {}: I/Os lie on multiples of their length, {bs}, here",
                storage.name
            ));
        }
        if self.hits > 0 {
            keys.random_distribution = Some(self.hot(storage, size)?);
        }
        match self.stride {
            Some(_) if random => return Err("stride: it is for seekpct=0 here".to_owned()),
            stride => keys.stride = stride,
        }
        Ok(keys)
    }

    /// Returns the random distribution of a storage with a hit area at its start.
    fn hot(&self, storage: &StorageDefinition, size: Option<Bytes>) -> Result<Distribution, String> {
        let whole = size.map(|size| size.0).filter(|size| *size > storage.hitarea.0);
        let Some(whole) = whole else {
            return Err(format!("rhpct and whpct need a size of {} larger than its hitarea", storage.name));
        };
        let percent = u8::try_from((storage.hitarea.0 * 100).div_ceil(whole).clamp(1, 99)).unwrap_or(99);
        Ok(Distribution::Zoned(vec![
            Zone { access: self.hits, size: percent },
            Zone { access: 100 - self.hits, size: 100 - percent },
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_one_or_shares_or_a_range() {
        let of = |text: &str| lengths(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert!(matches!(of("8k"), Ok(TransferSizes::One(Bytes(8192)))));
        assert!(
            matches!(of("4k,30,8k,70"), Ok(TransferSizes::Split(split)) if split.parse::<LengthSplitKey>().is_ok())
        );
        assert!(matches!(of("4k,64k,4k"), Ok(TransferSizes::Range(range)) if range == "4k-64k"));
        for wrong in ["4k,64k,8k", "x", "4k,200,8k,10"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    type LengthSplitKey = iotax_model::workload::ByDirection<iotax_model::workload::LengthSplit>;
}
