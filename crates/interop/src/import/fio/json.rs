//! Reads fio's JSON documents at any position in a text.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::super::json_tree::{Tree, Value, newlines};
use super::super::lines::Lines;
use super::super::quantity::impossible;
use super::super::{Line, Stamp};
use super::Read;
use super::job::{DIRECTIONS, Direction, Job, MIXED, Options};

/// Reads all documents of a text, and the complete jobs of truncated documents.
pub(super) fn read(text: &str) -> Read {
    let mut read = Read::default();
    if !text.contains("\"jobs\"") && !text.contains("\"jobname\"") {
        return read;
    }
    let mut tree = Tree::of(text);
    // Position and line number up to which newlines were counted.
    let (mut at, mut counted, mut line) = (0, 0, 1);
    let mut line_of = |offset: usize| {
        line += newlines(&text[counted..offset]);
        counted = offset;
        line
    };
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        tree.read(open);
        tree.maps().for_each(|(begin, map)| documents(map, line_of(begin), &mut read));
        if tree.is_torn && is_head(&text[open..]) {
            let number = line_of(tree.end);
            // The line may be as long as the file, so only its last part is quoted.
            let near = text.floor_char_boundary(tree.end.saturating_sub(200));
            let begin = text[near..tree.end].rfind('\n').map_or(near, |end| near + end + 1);
            let text = text[begin..].chars().take_while(|c| *c != '\n').take(400).collect();
            read.miss(Line { number, text, reason: "the JSON is torn here".to_owned() });
        }
        at = tree.end.max(open + 1);
    }
    number_unread(text, &mut read);
    leave_doubtful_out(text, &mut read);
    read
}

/// Replaces the byte positions of unreadable figures with line numbers.
fn number_unread(text: &str, read: &mut Read) {
    let mut unread = read.jobs.iter_mut().flat_map(|job| &mut job.unread).peekable();
    if unread.peek().is_some() {
        let lines = Lines::of(text);
        unread.for_each(|line| line.number = lines.number_at(line.number));
    }
}

/// Reader of a job's figures, with the lines of the unreadable ones.
#[derive(Default)]
struct Figures(Vec<Line>);

impl Figures {
    /// Returns a number multiplied by `factor`; `None` if it is missing or invalid. An invalid number is recorded as unreadable.
    fn number(&mut self, value: Value<'_>, factor: f64, unit: &str) -> Option<f64> {
        let number = value.f64().map(|number| number * factor);
        let why = match number {
            Some(number) => impossible(number, unit),
            None => value.is_there().then(|| "it is no number".to_owned()),
        };
        let is_possible = why.is_none();
        self.refuse(value, why);
        number.filter(|_| is_possible)
    }

    /// Returns a whole number; `None` if it is missing or invalid. An invalid number is recorded as unreadable.
    fn count(&mut self, value: Value<'_>) -> Option<u64> {
        let count = value.u64();
        self.refuse(value, (value.is_there() && count.is_none()).then(|| "it is no count".to_owned()));
        count
    }

    fn refuse(&mut self, value: Value<'_>, why: Option<String>) {
        if let Some(reason) = why {
            let (number, text) = value.quoted();
            self.0.push(Line { number, text, reason });
        }
    }
}

/// Drops a job of a truncated document if its `numjobs` is missing and the text has other jobs of that name. They may be clones, so the job's figures
/// may cover only a part.
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

/// Returns whether the opening brace at the start of this text begins an fio document.
fn is_head(text: &str) -> bool {
    text[1..].trim_start().starts_with("\"fio version\"")
}

/// Finds fio documents in a JSON value, even within another tool's record, and single jobs of a truncated document.
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
            value,
            of_clients: !lists[1].is_null(),
        };
        lists
            .iter()
            .flat_map(|list| list.items())
            .filter_map(|value| job(value, &document))
            .for_each(|job| read.push(job));
    } else if is_job(value) && DIRECTIONS.iter().any(|word| !value.get(word).is_null()) {
        read.begin_document();
        let document =
            Document { number: read.documents, line, global: Rc::default(), value, of_clients: false };
        if let Some(job) = job(value, &document) {
            read.push(Job { is_torn: true, ..job });
        }
    } else {
        value.entries().for_each(|(_, value)| documents(value, line, read));
    }
}

/// Data that the jobs of a document share.
struct Document<'t> {
    number: usize,
    line: usize,
    global: Rc<BTreeMap<String, String>>,
    value: Value<'t>,
    /// True for the document of an fio client, which includes the sum of all servers' results.
    of_clients: bool,
}

/// Returns the start time of a job, else the time at which its document was printed; `None` if neither is known.
fn time(job: Value<'_>, document: &Document<'_>, figures: &mut Figures) -> Option<Stamp> {
    let [printed_ms, printed_s] = ["timestamp_ms", "timestamp"].map(|key| document.value.get(key));
    [(job.get("job_start"), 1), (printed_ms, 1), (printed_s, 1000)].into_iter().find_map(|(value, unit)| {
        let ms = figures.count(value)?.saturating_mul(unit);
        let stamp = Stamp::since_1970(ms);
        let is_known = stamp.is_some() || ms == 0;
        figures.refuse(value, (!is_known).then(|| "it is after the year 9999".to_owned()));
        stamp
    })
}

/// Returns the global options of the document.
fn shared(document: Value<'_>) -> Rc<BTreeMap<String, String>> {
    Rc::new(options_of(document.get("global options")).collect())
}

/// Returns options in JSON as names and values. An option without a value is an enabled switch and gets the value `1`.
fn options_of(options: Value<'_>) -> impl Iterator<Item = (String, String)> + use<'_> {
    let of = |text: String| if text.is_empty() { "1".to_owned() } else { text };
    options.entries().filter_map(move |(key, value)| Some((key.into_owned(), of(value.string()?))))
}

/// Returns the version without its prefix: `3.33` from `fio-3.33`.
pub(super) fn plain_version(text: &str) -> String {
    text.trim_start_matches("fio-").to_owned()
}

/// Name of the job that holds fio's sum over all clients.
pub(super) const ALL_CLIENTS: &str = "All clients";

/// Parses a job of a document; `None` if the value is not a job, or is the sum over all clients.
fn job(value: Value<'_>, document: &Document<'_>) -> Option<Job> {
    let name = value.get("jobname").string()?;
    let host = value.get("hostname").string();
    // The sum over all clients is not a job, although it has the host name of one.
    if document.of_clients && (host.is_none() || name == ALL_CLIENTS && value.get("job options").is_null()) {
        return None;
    }
    let error = value.get("error").i64().filter(|error| *error != 0);
    let cpu = |key: &str| value.get(key).f64();
    let (group, options) = (value.get("groupid"), value.get("job options"));
    let mut figures = Figures::default();
    let time = time(value, document, &mut figures);
    let directions = DIRECTIONS.map(|word| direction(value.get(word), &mut figures).map(Box::new));
    let sync_ns = figures.number(value.at(&["sync", "lat_ns", "mean"]), 1.0, "ns").filter(|ns| *ns > 0.0);
    Some(Job {
        name,
        group: (!group.is_null()).then(|| group.to_string()),
        document: document.number,
        host,
        // Older versions do not write these keys.
        options: options
            .is_map()
            .then(|| Options { shared: Rc::clone(&document.global), own: options_of(options).collect() }),
        is_whole: has_result(value.get(MIXED))
            || ["read", "write"].iter().all(|word| has_result(value.get(word))),
        directions,
        error: error.map(|error| format!("error {error}")),
        time,
        cpu: cpu("usr_cpu").zip(cpu("sys_cpu")),
        took_ms: value.get("job_runtime").f64(),
        sync_ns,
        line: document.line,
        unread: figures.0,
        ..Job::default()
    })
}

/// Returns whether a direction in JSON has a count of I/Os or a rate.
fn has_result(direction: Value<'_>) -> bool {
    ["total_ios", "iops", "bw", "bw_bytes"].iter().any(|key| !direction.get(key).is_null())
}

/// Parses a direction; `None` if it had no I/O.
fn direction(value: Value<'_>, figures: &mut Figures) -> Option<Direction> {
    let is_none = |key: &&str| !value.get(key).is_there() || value.get(key).f64() == Some(0.0);
    if ["total_ios", "iops", "bw", "io_kbytes"].iter().all(is_none) {
        return None;
    }
    // Since version 3, nanoseconds and bytes are named in the keys; before, times were in microseconds and rates in KiB/s.
    let has_nanos = ["clat_ns", "lat_ns"].iter().any(|key| !value.get(key).is_null());
    let (lat, clat, unit) = if has_nanos {
        (value.get("lat_ns"), value.get("clat_ns"), 1.0)
    } else {
        (value.get("lat"), value.get("clat"), 1e3)
    };
    let has_bytes = !value.get("bw_bytes").is_null();
    // The value from total latencies, else from completion latencies.
    let with = |key: &str| if lat.get(key).is_null() { clat.get(key) } else { lat.get(key) };
    let times = if lat.is_null() { clat } else { lat };
    let bins = with("bins");
    let rate = if has_nanos || has_bytes { ("bw_bytes", 1.0) } else { ("bw", 1024.0) };
    let mut time = |key: &str| figures.number(times.get(key), unit, "ns").filter(|ns| *ns > 0.0);
    let (mean_ns, max_ns) = (time("mean"), time("max"));
    Some(Direction {
        ios: figures.count(value.get("total_ios")),
        bytes: figures.count(value.get("io_bytes")).filter(|_| has_bytes),
        iops: figures.number(value.get("iops"), 1.0, "IOPS"),
        bytes_per_s: figures.number(value.get(rate.0), rate.1, "B/s"),
        runtime_ms: figures.number(value.get("runtime"), 1.0, "ms"),
        mean_ns,
        max_ns,
        is_from_submission: lat.is_null(),
        percentiles: percentiles(with("percentile"), unit, figures),
        bins: bins.is_map().then(|| read_bins(bins, figures)).flatten(),
    })
}

fn percentiles(list: Value<'_>, unit: f64, figures: &mut Figures) -> Vec<(f64, f64)> {
    let known = |(q, value): (Cow<'_, str>, Value<'_>)| {
        let ns = figures.number(value, unit, "ns");
        Some((q.parse().ok()?, ns?))
    };
    list.entries().filter_map(known).filter(|(q, ns): &(f64, f64)| *q > 0.0 && *ns > 0.0).collect()
}

/// Reads the bins of JSON+: nanoseconds and count. `None` if a bin cannot be read.
fn read_bins(bins: Value<'_>, figures: &mut Figures) -> Option<Vec<(u64, u64)>> {
    let bin = |(ns, times): (Cow<'_, str>, Value<'_>)| {
        let (ns, count): (u64, _) = (ns.parse().ok()?, figures.count(times)?);
        figures.refuse(times, impossible(ns as f64, "ns"));
        Some((ns, count))
    };
    bins.entries().map(bin).collect()
}
