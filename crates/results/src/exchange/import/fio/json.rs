//! fio's JSON, wherever in a text it stands.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::super::Line;
use super::Read;
use super::job::{DIRECTIONS, Direction, Job};

/// Every document in a text. Of one that is torn the jobs that are whole.
pub(super) fn read(text: &str) -> Read {
    let mut read = Read::default();
    if !text.contains("\"jobs\"") && !text.contains("\"jobname\"") {
        return read;
    }
    // The line of what was counted so far.
    let (mut at, mut counted, mut line) = (0, 0, 1);
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        let mut values = serde_json::Deserializer::from_str(&text[open..]).into_iter::<Sure>();
        line += text[counted..open].matches('\n').count();
        counted = open;
        match values.next() {
            Some(Ok(Sure(value))) => {
                documents(&value, line, &mut read);
                at = open + values.byte_offset().max(1);
            }
            Some(Err(error)) if is_head(&text[open..]) => {
                let number = line + error.line() - 1;
                let text = text[open..].lines().nth(error.line() - 1).unwrap_or_default().to_owned();
                let reason = "the JSON is torn here".to_owned();
                read.not_understood.push(Line { number, text, reason });
                at = open + 1;
            }
            _ => at = open + 1,
        }
    }
    leave_doubtful_out(text, &mut read);
    read
}

/// Takes away jobs of torn documents that say nothing of `numjobs`, which may be lost, where the text has others of that name: those
/// may be its clones, and its figures only a part.
fn leave_doubtful_out(text: &str, read: &mut Read) {
    let is_unsure = |job: &Job| job.is_torn && !job.options.iter().any(|known| known.contains_key("numjobs"));
    if !read.jobs.iter().any(is_unsure) {
        return;
    }
    let mut names: HashMap<String, usize> = HashMap::new();
    for rest in text.split("\"jobname\"").skip(1) {
        let value = rest.trim_start().strip_prefix(':').unwrap_or_default();
        if let Some(Ok(name)) = serde_json::Deserializer::from_str(value).into_iter::<String>().next() {
            *names.entry(name).or_default() += 1;
        }
    }
    let is_doubtful = |job: &mut Job| is_unsure(job) && names.get(&job.name).is_some_and(|times| *times > 1);
    for job in read.jobs.extract_if(.., is_doubtful) {
        let reason =
            "the JSON around it is torn and has others of this name: clones that ran at once, or repetitions";
        read.not_understood.push(Line { number: job.line, text: job.name, reason: reason.to_owned() });
    }
}

/// Whether a document begins here.
fn is_head(text: &str) -> bool {
    text[1..].trim_start().starts_with("\"fio version\"")
}

/// A value in which a key that is there twice is not there: which of the two is meant is not known.
struct Sure(Value);

impl<'de> Deserialize<'de> for Sure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SureVisitor).map(Sure)
    }
}

struct SureVisitor;

impl<'de> Visitor<'de> for SureVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Sure(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut twice = Vec::new();
        while let Some((key, Sure(value))) = entries.next_entry::<String, Sure>()? {
            if map.insert(key.clone(), value).is_some() {
                twice.push(key);
            }
        }
        for key in twice {
            map.remove(&key);
        }
        Ok(map.into())
    }
}

/// fio's documents in a value, which may be some tool's own record around them; and jobs by themselves, of a torn one.
fn documents(value: &Value, line: usize, read: &mut Read) {
    match value {
        Value::Object(map) => {
            let lists: Vec<&Vec<Value>> =
                ["jobs", "client_stats"].iter().filter_map(|key| map.get(*key)?.as_array()).collect();
            let is_job = |value: &Value| value.get("jobname").is_some();
            if lists.iter().any(|list| list.iter().any(is_job)) {
                let version = map.get("fio version").and_then(Value::as_str);
                read.version = read.version.take().or_else(|| version.map(plain_version));
                let all = lists.iter().flat_map(|list| list.iter());
                read.begin_document();
                let place = (line, read.documents);
                read.jobs.extend(all.filter_map(|value| job(value, map, place)));
            } else if is_job(value) && map.contains_key("read") {
                read.begin_document();
                let torn =
                    job(value, &Map::new(), (line, read.documents)).map(|job| Job { is_torn: true, ..job });
                read.jobs.extend(torn);
            } else {
                map.values().for_each(|value| documents(value, line, read));
            }
        }
        Value::Array(list) => list.iter().for_each(|value| documents(value, line, read)),
        _ => {}
    }
}

/// `3.33` of `fio-3.33`.
pub(super) fn plain_version(text: &str) -> String {
    text.trim_start_matches("fio-").to_owned()
}

/// A job of a document, whose line and number are given.
fn job(value: &Value, document: &Map<String, Value>, (line, number): (usize, usize)) -> Option<Job> {
    let name = value.get("jobname")?.as_str()?.to_owned();
    // The sum over all clients is none of them.
    if value.get("hostname").is_none() && document.contains_key("client_stats") {
        return None;
    }
    // The document's own time is that of printing it.
    let began = value.get("job_start").and_then(Value::as_u64);
    let error = value.get("error").and_then(Value::as_i64).filter(|error| *error != 0);
    let cpu = |key: &str| value.get(key).and_then(Value::as_f64);
    let directions = DIRECTIONS.map(|word| value.get(word).and_then(direction));
    Some(Job {
        name,
        group: value.get("groupid").map(Value::to_string),
        document: number,
        host: value.get("hostname").and_then(Value::as_str).map(str::to_owned),
        options: options(value, document),
        is_whole: ["read", "write"].iter().all(|word| value.get(*word).is_some_and(is_told)),
        directions,
        error: error.map(|error| format!("error {error}")),
        started_at_ms: began.filter(|began| *began > 0),
        cpu: cpu("usr_cpu").zip(cpu("sys_cpu")),
        sync_ns: value.pointer("/sync/lat_ns/mean").and_then(Value::as_f64).filter(|ns| *ns > 0.0),
        line,
        ..Job::default()
    })
}

/// Whether it says if anything was done.
fn is_told(direction: &Value) -> bool {
    ["total_ios", "iops", "bw", "bw_bytes"].iter().any(|key| direction.get(*key).is_some())
}

/// Those of all jobs and its own. Absent in the JSON of versions that do not write them.
fn options(job: &Value, document: &Map<String, Value>) -> Option<BTreeMap<String, String>> {
    let own = job.get("job options")?.as_object()?;
    let global = document.get("global options").and_then(Value::as_object);
    let all = global.into_iter().flatten().chain(own);
    // An option alone is a switch that is on.
    let told = |value: &str| if value.is_empty() { "1".to_owned() } else { value.to_owned() };
    Some(all.filter_map(|(key, value)| Some((key.clone(), told(value.as_str()?)))).collect())
}

/// Absent if nothing was done in it.
fn direction(value: &Value) -> Option<Direction> {
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    let none =
        ["total_ios", "iops", "bw", "io_kbytes"].iter().all(|key| number(key).unwrap_or_default() == 0.0);
    if none {
        return None;
    }
    // Version 3 counts nanoseconds and bytes and says so in the names; before it, microseconds and KiB.
    let (lat, clat, unit) = match (value.get("clat_ns"), value.get("lat_ns")) {
        (None, None) => (value.get("lat"), value.get("clat"), 1e3),
        (clat, lat) => (lat, clat, 1.0),
    };
    let is_new =
        value.get("clat_ns").or_else(|| value.get("lat_ns")).or_else(|| value.get("bw_bytes")).is_some();
    let of = |times: Option<&Value>, key: &str| {
        times?.get(key).and_then(Value::as_f64).filter(|ns| *ns > 0.0).map(|value| value * unit)
    };
    let spread = lat.filter(|lat| lat.get("percentile").is_some()).or(clat);
    let bins =
        lat.filter(|lat| lat.get("bins").is_some()).or(clat).and_then(|times| bins(times.get("bins")?));
    Some(Direction {
        ios: value.get("total_ios").and_then(Value::as_u64),
        bytes: value.get("bw_bytes").and_then(|_| value.get("io_bytes")?.as_u64()),
        iops: number("iops"),
        bytes_per_s: if is_new { number("bw_bytes") } else { number("bw").map(|kib| kib * 1024.0) },
        runtime_ms: number("runtime"),
        mean_ns: of(lat.or(clat), "mean"),
        max_ns: of(lat.or(clat), "max"),
        is_from_submission: lat.is_none(),
        percentiles: spread.map(|times| percentiles(times, unit)).unwrap_or_default(),
        bins,
    })
}

fn percentiles(times: &Value, unit: f64) -> Vec<(f64, f64)> {
    let list = times.get("percentile").and_then(Value::as_object);
    let known = |(q, value): (&String, &Value)| Some((q.parse().ok()?, value.as_f64()? * unit));
    list.into_iter().flatten().filter_map(known).filter(|(q, ns)| *q > 0.0 && *ns > 0.0).collect()
}

/// JSON+ has every bin that is not empty: nanoseconds and how many.
fn bins(value: &Value) -> Option<Vec<(u64, u64)>> {
    let all = value.as_object()?.iter().map(|(ns, times)| Some((ns.parse().ok()?, times.as_u64()?)));
    all.collect()
}
