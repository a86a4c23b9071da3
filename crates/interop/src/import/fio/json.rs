//! fio's JSON, wherever in a text it stands.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::super::json_tree::{Tree, Value, newlines};
use super::super::{Line, Stamp};
use super::Read;
use super::job::{DIRECTIONS, Direction, Job, MIXED, Options};

/// Every document in a text. Of one that is torn the jobs that are whole.
pub(super) fn read(text: &str) -> Read {
    let mut read = Read::default();
    if !text.contains("\"jobs\"") && !text.contains("\"jobname\"") {
        return read;
    }
    let mut tree = Tree::of(text);
    // The position and line up to which lines were counted.
    let (mut at, mut counted, mut line) = (0, 0, 1);
    let mut line_of = |place: usize| {
        line += newlines(&text[counted..place]);
        counted = place;
        line
    };
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        tree.read(open);
        tree.maps().for_each(|(begin, map)| documents(map, line_of(begin), &mut read));
        if tree.is_torn && is_head(&text[open..]) {
            let number = line_of(tree.end);
            // A line may be as long as the file.
            let near = text.floor_char_boundary(tree.end.saturating_sub(200));
            let begin = text[near..tree.end].rfind('\n').map_or(near, |end| near + end + 1);
            let text = text[begin..].chars().take_while(|c| *c != '\n').take(400).collect();
            read.miss(Line { number, text, reason: "the JSON is torn here".to_owned() });
        }
        at = tree.end.max(open + 1);
    }
    leave_doubtful_out(text, &mut read);
    read
}

/// Takes away jobs of torn documents that say nothing of `numjobs`, which may be lost, where the text has others of that name: those
/// may be its clones, and its figures only a part.
fn leave_doubtful_out(text: &str, read: &mut Read) {
    let is_unsure = |job: &Job| job.is_torn && !job.options.iter().any(|known| known.has("numjobs"));
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
    let doubtful: Vec<Job> = read.jobs.extract_if(.., is_doubtful).collect();
    for job in doubtful {
        let reason =
            "the JSON around it is torn and has others of this name: clones that ran at once, or repetitions";
        read.miss(Line { number: job.line, text: job.name, reason: reason.to_owned() });
    }
}

/// True if a document begins here.
fn is_head(text: &str) -> bool {
    text[1..].trim_start().starts_with("\"fio version\"")
}

/// fio's documents in a value, which may be some tool's own record around them; and jobs by themselves, of a torn one.
fn documents(value: Value<'_>, line: usize, read: &mut Read) {
    if !value.is_map() {
        return value.items().for_each(|value| documents(value, line, read));
    }
    let lists = ["jobs", "client_stats"].map(|key| value.get(key));
    let is_job = |value: Value<'_>| !value.get("jobname").is_null();
    if lists.iter().any(|list| list.items().any(is_job)) {
        read.version = read.version.take().or_else(|| Some(plain_version(&value.get("fio version").text()?)));
        read.begin_document();
        let document = Document {
            number: read.documents,
            line,
            global: shared(value),
            time: printed(value),
            of_clients: !lists[1].is_null(),
        };
        lists
            .iter()
            .flat_map(|list| list.items())
            .filter_map(|value| job(value, &document))
            .for_each(|job| read.push(job));
    } else if is_job(value) && DIRECTIONS.iter().any(|word| !value.get(word).is_null()) {
        read.begin_document();
        let document = Document { number: read.documents, line, ..Document::default() };
        if let Some(job) = job(value, &document) {
            read.push(Job { is_torn: true, ..job });
        }
    } else {
        value.entries().for_each(|(_, value)| documents(value, line, read));
    }
}

/// Data that the jobs of a document share.
#[derive(Default)]
struct Document {
    number: usize,
    line: usize,
    global: Rc<BTreeMap<String, String>>,
    /// When it was printed.
    time: Option<Stamp>,
    /// True for a server's document, which sums up the results of its clients.
    of_clients: bool,
}

/// The time of a document's printing.
fn printed(document: Value<'_>) -> Option<Stamp> {
    let seconds = || document.get("timestamp").u64()?.checked_mul(1000);
    document.get("timestamp_ms").u64().or_else(seconds).and_then(Stamp::since_1970)
}

/// The options of all jobs.
fn shared(document: Value<'_>) -> Rc<BTreeMap<String, String>> {
    Rc::new(told(document.get("global options")).collect())
}

/// Options in JSON. One alone is a switch that is on.
fn told(options: Value<'_>) -> impl Iterator<Item = (String, String)> + use<'_> {
    let of = |text: String| if text.is_empty() { "1".to_owned() } else { text };
    options.entries().filter_map(move |(key, value)| Some((key.into_owned(), of(value.string()?))))
}

/// `3.33` of `fio-3.33`.
pub(super) fn plain_version(text: &str) -> String {
    text.trim_start_matches("fio-").to_owned()
}

/// The name of the sum over all clients.
pub(super) const ALL_CLIENTS: &str = "All clients";

/// A job of a document.
fn job(value: Value<'_>, document: &Document) -> Option<Job> {
    let name = value.get("jobname").string()?;
    let host = value.get("hostname").string();
    // The sum over all clients is none of them, although it has the host of one.
    if document.of_clients && (host.is_none() || name == ALL_CLIENTS && value.get("job options").is_null()) {
        return None;
    }
    let error = value.get("error").i64().filter(|error| *error != 0);
    let cpu = |key: &str| value.get(key).f64();
    let (group, options) = (value.get("groupid"), value.get("job options"));
    Some(Job {
        name,
        group: (!group.is_null()).then(|| group.to_string()),
        document: document.number,
        host,
        // Absent in the JSON of versions that do not write them.
        options: options
            .is_map()
            .then(|| Options { shared: Rc::clone(&document.global), own: told(options).collect() }),
        is_whole: is_told(value.get(MIXED)) || ["read", "write"].iter().all(|word| is_told(value.get(word))),
        directions: DIRECTIONS.map(|word| direction(value.get(word)).map(Box::new)),
        error: error.map(|error| format!("error {error}")),
        time: value.get("job_start").u64().and_then(Stamp::since_1970).or(document.time),
        cpu: cpu("usr_cpu").zip(cpu("sys_cpu")),
        took_ms: value.get("job_runtime").f64(),
        sync_ns: value.at(&["sync", "lat_ns", "mean"]).f64().filter(|ns| *ns > 0.0),
        line: document.line,
        ..Job::default()
    })
}

/// True if there is a count of I/Os or a rate.
fn is_told(direction: Value<'_>) -> bool {
    ["total_ios", "iops", "bw", "bw_bytes"].iter().any(|key| !direction.get(key).is_null())
}

/// Absent if nothing was done in it.
fn direction(value: Value<'_>) -> Option<Direction> {
    let number = |key: &str| value.get(key).f64();
    let none =
        ["total_ios", "iops", "bw", "io_kbytes"].iter().all(|key| number(key).unwrap_or_default() == 0.0);
    if none {
        return None;
    }
    // Version 3 counts nanoseconds and bytes and says so in the names; before it, microseconds and KiB.
    let has_nanos = ["clat_ns", "lat_ns"].iter().any(|key| !value.get(key).is_null());
    let (lat, clat, unit) = if has_nanos {
        (value.get("lat_ns"), value.get("clat_ns"), 1.0)
    } else {
        (value.get("lat"), value.get("clat"), 1e3)
    };
    let has_bytes = !value.get("bw_bytes").is_null();
    // The first of the two that has this.
    let with = |key: &str| if lat.get(key).is_null() { clat.get(key) } else { lat.get(key) };
    let times = if lat.is_null() { clat } else { lat };
    let of = |key: &str| times.get(key).f64().filter(|ns| *ns > 0.0).map(|value| value * unit);
    let bins = with("bins");
    Some(Direction {
        ios: value.get("total_ios").u64(),
        bytes: value.get("io_bytes").u64().filter(|_| has_bytes),
        iops: number("iops"),
        bytes_per_s: if has_nanos || has_bytes {
            number("bw_bytes")
        } else {
            number("bw").map(|kib| kib * 1024.0)
        },
        runtime_ms: number("runtime"),
        mean_ns: of("mean"),
        max_ns: of("max"),
        is_from_submission: lat.is_null(),
        percentiles: percentiles(with("percentile"), unit),
        bins: bins.is_map().then(|| read_bins(bins)).flatten(),
    })
}

fn percentiles(list: Value<'_>, unit: f64) -> Vec<(f64, f64)> {
    let known =
        |(q, value): (std::borrow::Cow<'_, str>, Value<'_>)| Some((q.parse().ok()?, value.f64()? * unit));
    list.entries().filter_map(known).filter(|(q, ns): &(f64, f64)| *q > 0.0 && *ns > 0.0).collect()
}

/// JSON+ has every bin that is not empty: nanoseconds and their count.
fn read_bins(bins: Value<'_>) -> Option<Vec<(u64, u64)>> {
    bins.entries().map(|(ns, times)| Some((ns.parse().ok()?, times.u64()?))).collect()
}
