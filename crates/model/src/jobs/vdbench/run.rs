//! `rd=`: duration, rate and loop values.

use super::super::LineErrors;
use super::lines::{Definition, VdbenchKey};
use super::storage::{StorageDefinition, threads};
use super::values::{list, names, one, time};
use super::work::{TransferSizes, Work, lengths, percent, rate, seeks};
use super::{MOST_IN_ALL, refuse_unknown, take};
use crate::plan::MOST as MOST_AT_ONCE;
use crate::units::Nanos;
use crate::workload::{RateProcess, Workload, WorkloadKeys};

const KEYS: [&str; 15] = [
    "wd",
    "iorate",
    "curve",
    "elapsed",
    "interval",
    "warmup",
    "pause",
    "distribution",
    "forthreads",
    "forxfersize",
    "forrdpct",
    "forseekpct",
    "threads",
    "xfersize",
    "rdpct",
];
const LOOPS: [&str; 4] = ["forthreads", "forxfersize", "forrdpct", "forseekpct"];
/// vdbench's default.
const ELAPSED: Nanos = Nanos::from_secs(30);
/// Maximum number of workloads from one run definition. More is a typo.
const MOST: usize = 1000;

/// The definitions that a run definition refers to.
pub(super) struct RunContext<'a> {
    pub(super) storages: &'a [StorageDefinition],
    /// Start of each storage's file on the target.
    pub(super) bases: &'a [u64],
    pub(super) work: &'a [Work],
}

/// One combination of loop values.
#[derive(Debug, Clone, Default)]
struct Pass {
    /// Name suffix.
    suffix: String,
    threads: Option<u64>,
    lengths: Option<TransferSizes>,
    reads: Option<u8>,
    seeks: Option<super::work::SeekPattern>,
    /// I/Os per second; `None` for unlimited.
    rate: Option<u64>,
}

/// Start of each storage's file on the target: one after the other.
pub(super) fn lay_out(
    storages: &[StorageDefinition],
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> Vec<u64> {
    let mut luns: Vec<(Option<&str>, u64)> = Vec::new();
    let mut end = 0_u64;
    let mut bases = Vec::new();
    for (index, storage) in storages.iter().enumerate() {
        let lun = storage.lun.as_ref().map(|(_, lun)| lun.as_str());
        if let Some((_, base)) = luns.iter().find(|(known, _)| *known == lun && lun.is_some()) {
            bases.push(*base);
            continue;
        }
        luns.push((lun, end));
        bases.push(end);
        let more =
            storages[index + 1..].iter().any(|other| other.lun.as_ref().map(|(_, lun)| lun.as_str()) != lun);
        match storage.whole {
            Some(whole) => end = end.saturating_add(whole),
            None if more => trouble.add(
                &storage.place,
                format!("sd={}", storage.name),
                "several storages are laid out one behind the other on the target, so that each needs its size=".to_owned(),
            ),
            None => {}
        }
    }
    if luns.len() > 1 {
        notes.push(format!("{} storages are laid out one behind the other on the target", luns.len()));
    }
    bases
}

impl RunContext<'_> {
    /// The workloads of a run definition.
    pub(super) fn workloads(
        &self,
        definition: &Definition,
        notes: &mut Vec<String>,
        trouble: &mut LineErrors,
    ) -> Vec<Workload> {
        refuse_unknown(definition, &KEYS, trouble);
        for (key, why) in [
            ("interval", "figures come in intervals of their own here"),
            ("pause", "nothing waits between measurements here"),
        ] {
            let note = definition.key(key).map(|key| format!("{}: {}: {why}", key.place, key.quoted()));
            notes.extend(note.filter(|note| !notes.contains(note)));
        }
        let known: Vec<&str> = self.work.iter().map(|work| work.name.as_str()).collect();
        let all = vec!["*".to_owned()];
        let wanted = match take(definition, "wd", trouble, |key| Ok(key.values.clone())) {
            Some(values) => names(&values, &known),
            None => names(&all, &known),
        };
        let wanted = wanted.unwrap_or_else(|why| {
            let quoted =
                definition.key("wd").map_or_else(|| format!("rd={}", definition.name), VdbenchKey::quoted);
            trouble.add(&definition.place, quoted, why);
            Vec::new()
        });
        let work: Vec<&Work> = self.work.iter().filter(|work| wanted.contains(&work.name.as_str())).collect();
        let times = times(definition, trouble);
        let mut workloads = Vec::new();
        let mut jobs = 0;
        for pass in passes(definition, trouble) {
            // Too many: the whole file is rejected.
            if jobs > MOST_IN_ALL || trouble.is_full() {
                break;
            }
            let name = format!("{}{}", definition.name, pass.suffix);
            match self.at_once(&work, &pass, &times, name) {
                Ok(workload) => {
                    jobs += workload.iter().map(|workload| workload.jobs().count()).sum::<usize>();
                    workloads.extend(workload);
                }
                Err(why) => trouble.add(&definition.place, format!("rd={}", definition.name), why),
            }
        }
        workloads
    }

    /// Combines concurrent work into one workload.
    fn at_once(
        &self,
        work: &[&Work],
        pass: &Pass,
        times: &WorkloadKeys,
        name: String,
    ) -> Result<Option<Workload>, String> {
        let rates = rates(work, pass)?;
        let jobs: usize = work.iter().map(|work| work.storages.len()).sum();
        if jobs > MOST_AT_ONCE {
            return Err(format!(
                "{jobs} workloads run at the same time, each on each of its storages; accepted: up to {MOST_AT_ONCE}"
            ));
        }
        let mut all: Vec<WorkloadKeys> = Vec::new();
        for (work, rate) in work.iter().zip(rates) {
            let work = Work {
                lengths: pass.lengths.clone().unwrap_or_else(|| work.lengths.clone()),
                reads: pass.reads.unwrap_or(work.reads),
                seeks: pass.seeks.unwrap_or(work.seeks),
                ..(*work).clone()
            };
            for &index in &work.storages {
                let (storage, places) = (&self.storages[index], work.storages.len() as u64);
                let mut keys = work.keys(storage, self.bases[index])?;
                let threads = pass.threads.or(work.threads).unwrap_or(storage.threads);
                keys.iodepth = Some(u32::try_from(threads).map_err(|_| "too many threads".to_owned())?);
                keys.rate_iops = rate.map(|rate| (rate / places).max(1));
                keys.rate_process = times.rate_process.filter(|_| rate.is_some());
                keys.name = Some(format!("{}-{}", work.name, storage.name));
                (keys.runtime, keys.ramp_time) = (times.runtime, times.ramp_time);
                all.push(keys);
            }
        }
        let Some((first, beside)) = all.split_first() else { return Ok(None) };
        // The first job needs a name of its own, apart from the workload's.
        let names: Vec<&str> = all.iter().filter_map(|keys| keys.name.as_deref()).collect();
        let name = if beside.is_empty() { name } else { format!("{name}: {}", names.join("+")) };
        let keys = WorkloadKeys { name: Some(name), beside: beside.to_vec(), ..first.clone() };
        let workload = keys.complete(&WorkloadKeys::default());
        workload.check().map_err(|error| error.to_string())?;
        Ok(Some(workload))
    }
}

/// The rate of each workload: its own, or its share of the rest, by `skew` or evenly.
fn rates(work: &[&Work], pass: &Pass) -> Result<Vec<Option<u64>>, String> {
    let skewed: u64 = work.iter().filter_map(|work| work.skew).sum();
    let Some(rate) = pass.rate else {
        return if work.len() > 1 && skewed > 0 {
            Err("iorate=max with skew: the slower one would have to hold the faster one back; give a rate, which skew divides"
                .to_owned())
        } else {
            Ok(work.iter().map(|work| work.rate).collect())
        };
    };
    let blank = work.iter().filter(|work| work.skew.is_none() && work.rate.is_none()).count() as u64;
    if skewed > 100 || (blank == 0 && skewed < 100 && work.iter().all(|work| work.rate.is_none())) {
        return Err(format!("the skew of its workloads adds up to {skewed}, not 100"));
    }
    let of = |work: &&Work| {
        let share = work.skew.unwrap_or_else(|| (100 - skewed) / blank.max(1));
        work.rate.or(Some((rate * share / 100).max(1)))
    };
    Ok(work.iter().map(of).collect())
}

/// Duration, warm-up and arrival process.
fn times(definition: &Definition, trouble: &mut LineErrors) -> WorkloadKeys {
    let elapsed = take(definition, "elapsed", trouble, |key| time(one(key)?));
    let warm_up = take(definition, "warmup", trouble, |key| time(one(key)?));
    let process = take(definition, "distribution", trouble, |key| match one(key)? {
        "exponential" | "exp" | "e" => Ok(RateProcess::Poisson),
        "deterministic" | "det" | "d" => Ok(RateProcess::Linear),
        other => Err(format!("{other:?} is not known here; accepted: exponential or deterministic")),
    });
    WorkloadKeys {
        runtime: Some(elapsed.unwrap_or(ELAPSED)),
        ramp_time: Some(warm_up.unwrap_or(Nanos(0))),
        rate_process: Some(process.unwrap_or(RateProcess::Poisson)),
        ..WorkloadKeys::default()
    }
}

/// Every combination of loop values and rates. The first loop in the file is the outermost, rates are the innermost.
fn passes(definition: &Definition, trouble: &mut LineErrors) -> Vec<Pass> {
    let start = Pass {
        threads: take(definition, "threads", trouble, |key| threads(one(key)?)),
        lengths: take(definition, "xfersize", trouble, |key| lengths(&key.values)),
        reads: take(definition, "rdpct", trouble, |key| percent(one(key)?)),
        ..Pass::default()
    };
    let mut passes = vec![start];
    let loops = definition.keys.iter().filter(|key| LOOPS.contains(&key.name.as_str()));
    for key in loops.chain(definition.key("iorate")) {
        let values = match key.name.as_str() {
            "iorate" if key.values == ["curve"] => Err(CURVE.to_owned()),
            _ => list(&key.values),
        };
        let set = |pass: &Pass, value: &String, several: bool| -> Result<Pass, String> {
            let mut pass = pass.clone();
            match key.name.as_str() {
                "forthreads" => pass.threads = Some(threads(value)?),
                "forxfersize" => pass.lengths = Some(lengths(std::slice::from_ref(value))?),
                "forrdpct" => pass.reads = Some(percent(value)?),
                "forseekpct" => pass.seeks = Some(seeks(value)?),
                _ => pass.rate = if value == "max" { None } else { Some(rate(value)?) },
            }
            if several {
                pass.suffix = format!("{}-{}{value}", pass.suffix, key.name.trim_start_matches("for"));
            }
            Ok(pass)
        };
        let next = values.and_then(|values| {
            let several = values.len() > 1;
            let each = passes.iter().flat_map(|pass| values.iter().map(move |value| (pass, value)));
            each.take(MOST + 1).map(|(pass, value)| set(pass, value, several)).collect::<Result<Vec<_>, _>>()
        });
        match next {
            Ok(next) if next.len() > MOST => {
                trouble.add(&key.place, key.quoted(), format!("the loops come to more than {MOST} runs"));
            }
            Ok(next) => passes = next,
            Err(why) => trouble.add(&key.place, key.quoted(), why),
        }
    }
    if let (Some(key), true) =
        (definition.key("curve"), definition.key("iorate").is_none_or(|rate| rate.values != ["curve"]))
    {
        trouble.add(&key.place, key.quoted(), CURVE.to_owned());
    }
    passes
}

const CURVE: &str = "the rates of a curve follow from what iorate=max comes to: measure that first, then give the rates themselves, \
                     such as iorate=(1000,5000,7000,8000,9000)";
