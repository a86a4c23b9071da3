//! Converts run definitions (`rd=`): duration, rate and loop values.

use super::super::LineErrors;
use super::lines::Definition;
use super::storage::{StorageDefinition, flags, threads};
use super::values::{Share, list, names, one, size, time};
use super::work::{TransferSizes, Work, chosen, lengths, percent, rate, seeks};
use super::{MOST_IN_ALL, curve, refuse_unknown, take};
use iotax_model::plan::MOST as MOST_AT_ONCE;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{DEFAULT_SIZE, RateProcess, Rw, Workload, WorkloadKeys};

const KEYS: [&str; 16] = [
    "wd",
    "sd",
    "iorate",
    "maxdata",
    "curve",
    "stopcurve",
    "elapsed",
    "interval",
    "warmup",
    "pause",
    "distribution",
    "forthreads",
    "forxfersize",
    "forrdpct",
    "forseekpct",
    "openflags",
];
const LOOPS: [&str; 4] = ["forthreads", "forxfersize", "forrdpct", "forseekpct"];
/// vdbench's default duration.
const ELAPSED: Nanos = Nanos::from_secs(30);
/// Maximum number of workloads from one run definition; more suggest a typo.
const MOST: usize = 1000;

/// Definitions that a run definition may refer to.
pub(super) struct RunContext<'a> {
    pub(super) storages: &'a [StorageDefinition],
    /// Start in bytes of each storage's file on the target.
    pub(super) bases: &'a [u64],
    pub(super) work: &'a [Work],
    /// Workload of run definitions that name storages but no workload.
    pub(super) default: Option<&'a Work>,
    /// Number of failed I/Os after which a measurement ends.
    pub(super) max_errors: Option<u64>,
}

/// Returns whether a run definition names storages but no workload, and so uses the default workload.
pub(super) fn takes_default(definition: &Definition) -> bool {
    definition.key("sd").is_some() && definition.key("wd").is_none()
}

/// Adds a note on each key that has no effect on the workload.
pub(super) fn note_unneeded(definition: &Definition, notes: &mut Vec<String>) {
    for (key, why) in [
        ("interval", "figures come in intervals of their own here"),
        ("pause", "nothing waits between measurements here"),
        ("format", "files are made before anything is measured, and removed afterwards"),
    ] {
        let note = definition.key(key).map(|key| format!("{}: {}: {why}", key.location, key.quoted()));
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
}

/// Returns the duration of each measurement; 30 s by default.
pub(super) fn elapsed(definition: &Definition, trouble: &mut LineErrors) -> Nanos {
    take(definition, "elapsed", trouble, |key| time(one(key)?)).unwrap_or(ELAPSED)
}

/// A combination of loop values, which becomes one workload.
#[derive(Debug, Clone, Default)]
struct Pass {
    /// Suffix of the workload's name with the loop values.
    suffix: String,
    threads: Option<u64>,
    lengths: Option<TransferSizes>,
    reads: Option<u8>,
    seeks: Option<super::work::SeekPattern>,
    /// Rate of the run in I/Os per second; `None` if the run sets none, so that only the workloads' own rates limit them.
    rate: Option<u64>,
    /// True if the rates depend on the storage's capacity (`iorate=curve`).
    is_curve: bool,
}

impl RunContext<'_> {
    /// Returns the workloads of a run definition, one per combination of loop values.
    pub(super) fn workloads(
        &self,
        definition: &Definition,
        notes: &mut Vec<String>,
        trouble: &mut LineErrors,
    ) -> Vec<Workload> {
        refuse_unknown(definition, &KEYS, trouble);
        note_unneeded(definition, notes);
        let work = self.work(definition, trouble);
        let times = times(definition, trouble);
        let mut workloads = Vec::new();
        let mut jobs = 0;
        for pass in passes(definition, trouble) {
            // Too many: the whole file is rejected.
            if jobs > MOST_IN_ALL || trouble.is_full() {
                break;
            }
            let name = format!("{}{}", definition.name, pass.suffix);
            match self.at_once(&work, &pass, &times, name, notes) {
                Ok(workload) => {
                    jobs += workload.iter().map(|workload| workload.jobs().count()).sum::<usize>();
                    workloads.extend(workload);
                }
                Err(why) => trouble.add(&definition.location, format!("rd={}", definition.name), why),
            }
        }
        workloads
    }

    /// Returns the workload definitions of a run. The run's `sd=` and `openflags=` replace those of the workloads.
    fn work(&self, definition: &Definition, trouble: &mut LineErrors) -> Vec<Work> {
        let mut work: Vec<Work> = match self.default.filter(|_| takes_default(definition)) {
            Some(default) => vec![default.clone()],
            None => self.named(definition, trouble).into_iter().cloned().collect(),
        };
        let storages = take(definition, "sd", trouble, |key| match key.values.as_slice() {
            [one] if one == "single" || one == "range" || one.starts_with("setsof") => Err(SETS.to_owned()),
            values => chosen(values, self.storages),
        });
        let flags = take(definition, "openflags", trouble, flags);
        for work in &mut work {
            if let Some(storages) = &storages {
                work.storages.clone_from(storages);
            }
            work.flags = flags.or(work.flags);
        }
        work
    }

    /// Returns the workload definitions that a run names with `wd=`; all of them if it names none.
    fn named(&self, definition: &Definition, trouble: &mut LineErrors) -> Vec<&Work> {
        let Some(key) = definition.key("wd") else {
            if self.work.is_empty() && trouble.0.is_empty() {
                let why =
                    "it names neither a workload nor a storage; accepted: wd=NAME or sd=NAME".to_owned();
                trouble.add(&definition.location, format!("rd={}", definition.name), why);
            }
            return self.work.iter().collect();
        };
        let known: Vec<&str> = self.work.iter().map(|work| work.name.as_str()).collect();
        let wanted = take(definition, "wd", trouble, |_| names(&key.values, &known)).unwrap_or_default();
        self.work.iter().filter(|work| wanted.contains(&work.name.as_str())).collect()
    }

    /// Combines the workload definitions of a run into one workload, with a job for each definition and storage, or with a single job for
    /// `iorate=curve`; `None` without jobs.
    fn at_once(
        &self,
        work: &[Work],
        pass: &Pass,
        times: &WorkloadKeys,
        name: String,
        notes: &mut Vec<String>,
    ) -> Result<Option<Workload>, String> {
        let rates = rates(work, pass)?;
        let jobs: usize = work.iter().map(|work| work.storages.len()).sum();
        if jobs > MOST_AT_ONCE {
            return Err(format!(
                "{jobs} workloads run at the same time, each on each of its storages; accepted: up to {MOST_AT_ONCE}"
            ));
        }
        let mut all: Vec<WorkloadKeys> = Vec::new();
        let mut whole = WholeRates::default();
        let mut rounded = Vec::new();
        for (work, rate) in work.iter().zip(rates) {
            let work = Work {
                lengths: pass.lengths.clone().unwrap_or_else(|| work.lengths.clone()),
                reads: pass.reads.unwrap_or(work.reads),
                seeks: pass.seeks.unwrap_or(work.seeks),
                ..work.clone()
            };
            for &index in &work.storages {
                let (storage, shares) = (&self.storages[index], work.storages.len() as u64);
                let mut keys = work.keys(storage, self.bases[index])?;
                let threads = pass.threads.or(work.threads).unwrap_or(storage.threads);
                keys.iodepth = Some(u32::try_from(threads).map_err(|_| "too many threads".to_owned())?);
                keys.rate_iops = rate.map(|rate| whole.next(rate / shares));
                keys.rate_process = times.rate_process.filter(|_| rate.is_some());
                keys.max_errors = self.max_errors;
                let job = format!("{}-{}", work.name, storage.name);
                if let (Some(exact), Some(given)) = (rate.map(|rate| rate / shares), keys.rate_iops)
                    && given.saturating_mul(Share::WHOLE).abs_diff(exact) > exact / 100
                {
                    let exact = exact as f64 / Share::WHOLE as f64;
                    rounded.push(format!("{given} instead of {exact:.2} for {job}"));
                }
                keys.name = Some(job);
                (keys.runtime, keys.ramp_time) = (times.runtime, times.ramp_time);
                if times.io_size.is_some() {
                    (keys.io_size, keys.loops) = (times.io_size, Some(1));
                }
                all.push(keys);
            }
        }
        if !rounded.is_empty() {
            notes.push(format!("{name}: rates are whole I/Os a second here: {}", rounded.join(", ")));
        }
        together(all, pass, name, notes)
    }
}

/// Combines concurrent jobs into one workload; with `iorate=curve` into a single job over all their areas. `None` without jobs.
fn together(
    mut all: Vec<WorkloadKeys>,
    pass: &Pass,
    name: String,
    notes: &mut Vec<String>,
) -> Result<Option<Workload>, String> {
    let several = all.len() > 1;
    if several && all.iter().any(|keys| keys.size.is_none()) {
        all.iter_mut().for_each(|keys| keys.size = keys.size.or(Some(DEFAULT_SIZE)));
        notes.push(format!("{name}: no size= is given, so {DEFAULT_SIZE} of the target is used"));
    }
    if several && all.iter().any(|keys| keys.io_size.is_some()) {
        return Err(format!(
            "maxdata is for one workload on one storage here, and {} run at once",
            all.len()
        ));
    }
    let names: Vec<&str> = all.iter().filter_map(|keys| keys.name.as_deref()).collect();
    // The first job needs a separate name from the workload's.
    let own = if several { format!("{name}: {}", names.join("+")) } else { name.clone() };
    if several && pass.is_curve {
        let names = names.join(", ");
        notes.push(format!("{name}: {names} are one area, so that the rates are those of all together"));
        all = vec![WorkloadKeys { name: Some(name), ..one_area(&all)? }];
    } else if let Some(first) = all.first_mut() {
        first.name = Some(own);
    }
    let Some((first, beside)) = all.split_first() else { return Ok(None) };
    let keys = WorkloadKeys { beside: beside.to_vec(), ..first.clone() };
    let workload = keys.complete(&WorkloadKeys::default());
    workload.check().map_err(|error| error.to_string())?;
    Ok(Some(workload))
}

/// Rounding of job rates to whole I/Os per second. Each rounding error is carried over to the next job.
#[derive(Debug, Default)]
struct WholeRates {
    /// Sum of the exact rates so far, in I/Os per second times `Share::WHOLE`.
    exact: u64,
    given: u64,
}

impl WholeRates {
    fn next(&mut self, exact: u64) -> u64 {
        self.exact += exact;
        let next = ((self.exact + Share::WHOLE / 2) / Share::WHOLE).saturating_sub(self.given);
        self.given += next;
        next.max(1)
    }
}

/// Returns the rate of each workload definition in I/Os per second times `Share::WHOLE`: its `iorate`, or its share of the run's rate, by
/// `skew` or evenly; `None` for unlimited.
fn rates(work: &[Work], pass: &Pass) -> Result<Vec<Option<u64>>, String> {
    let skewed: u64 = work.iter().filter_map(|work| work.skew).map(|share| share.0).sum();
    let own = |work: &Work| work.rate.map(|rate| rate * Share::WHOLE);
    let Some(rate) = pass.rate else {
        return if work.len() > 1 && skewed > 0 {
            Err("iorate=max with skew: the slower one would have to hold the faster one back; give a rate, which skew divides"
                .to_owned())
        } else {
            Ok(work.iter().map(own).collect())
        };
    };
    let blank = work.iter().filter(|work| work.skew.is_none() && work.rate.is_none()).count() as u64;
    let rated = work.iter().any(|work| work.rate.is_some());
    if skewed > Share::WHOLE || (blank == 0 && skewed < Share::WHOLE && !rated) {
        let percent = skewed as f64 / Share::WHOLE as f64 * 100.0;
        return Err(format!("the skew of its workloads adds up to {percent}, not 100"));
    }
    let of = |work: &Work| {
        let share = work.skew.map_or_else(|| (Share::WHOLE - skewed) / blank.max(1), |share| share.0);
        own(work).or(Some(rate * share))
    };
    Ok(work.iter().map(of).collect())
}

/// Returns the keys for duration, amount of data, warm-up and arrival process.
fn times(definition: &Definition, trouble: &mut LineErrors) -> WorkloadKeys {
    let warm_up = take(definition, "warmup", trouble, |key| time(one(key)?));
    let process = take(definition, "distribution", trouble, |key| match one(key)?.to_lowercase().as_str() {
        "exponential" | "exp" | "e" => Ok(RateProcess::Poisson),
        "deterministic" | "det" | "d" => Ok(RateProcess::Linear),
        other => Err(format!("{other:?} is not known here; accepted: exponential or deterministic")),
    });
    WorkloadKeys {
        runtime: Some(elapsed(definition, trouble)),
        io_size: take(definition, "maxdata", trouble, |key| amount(one(key)?)),
        ramp_time: Some(warm_up.unwrap_or(Nanos(0))),
        rate_process: Some(process.unwrap_or(RateProcess::Poisson)),
        ..WorkloadKeys::default()
    }
}

/// Parses an amount of data (`maxdata`). Rejects 0 and numbers without a unit; vdbench does not take small ones as bytes.
fn amount(text: &str) -> Result<Bytes, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    size(text).ok().filter(|bytes| has_unit && bytes.0 > 0).ok_or_else(|| {
        format!("{text:?} is not an amount of data; accepted: a size with its unit, such as maxdata=200g")
    })
}

/// Combines jobs on several storages into one job with random I/O over all their areas, and the sum of their queue depths. Fails if the
/// jobs differ otherwise, are not fully random, or have areas that do not adjoin.
fn one_area(all: &[WorkloadKeys]) -> Result<WorkloadKeys, String> {
    let refuse = || {
        "iorate=curve on several storages: accepted where one workload goes to random places of storages of one size; give the \
         others a file for each"
            .to_owned()
    };
    let first = all.first().ok_or_else(refuse)?;
    let mut end = first.offset.unwrap_or_default().0;
    let mut depth = 0;
    for keys in all {
        let like_first =
            WorkloadKeys { name: first.name.clone(), offset: first.offset, ..keys.clone() } == *first;
        let is_next = keys.offset.unwrap_or_default().0 == end;
        let is_random = keys.rw.is_some_and(Rw::is_random)
            && keys.percentage_random.is_none()
            && keys.random_distribution.is_none();
        let length = keys.size.filter(|_| like_first && is_next && is_random).ok_or_else(refuse)?;
        end = end.saturating_add(length.0);
        depth += keys.iodepth.unwrap_or(1);
    }
    let size = Bytes(end - first.offset.unwrap_or_default().0);
    Ok(WorkloadKeys { size: Some(size), iodepth: Some(depth), ..first.clone() })
}

/// Returns all combinations of loop values and rates. The first loop in the file is the outermost; rates are the innermost.
fn passes(definition: &Definition, trouble: &mut LineErrors) -> Vec<Pass> {
    let mut passes = vec![Pass::default()];
    let loops = definition.keys.iter().filter(|key| LOOPS.contains(&key.name.as_str()));
    for key in loops.chain(definition.key("iorate")) {
        let values = list(&key.values);
        let set = |pass: &Pass, value: &String, several: bool| -> Result<Pass, String> {
            let mut pass = pass.clone();
            match key.name.as_str() {
                "forthreads" => pass.threads = Some(threads(value)?),
                "forxfersize" => pass.lengths = Some(lengths(std::slice::from_ref(value))?),
                "forrdpct" => pass.reads = Some(percent(value)?),
                "forseekpct" => pass.seeks = Some(seeks(value)?),
                _ if curve::is_curve(key) => pass.is_curve = true,
                _ if value.eq_ignore_ascii_case("max") => pass.rate = None,
                _ => pass.rate = Some(rate(value)?),
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
                trouble.add(&key.location, key.quoted(), format!("the loops come to more than {MOST} runs"));
            }
            Ok(next) => passes = next,
            Err(why) => trouble.add(&key.location, key.quoted(), why),
        }
    }
    passes
}

const SETS: &str =
    "one run for each set of storages is not made here; give each set a run definition of its own";
