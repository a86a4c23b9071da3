//! Reads DiskSpd's XML (`-Rxml`): counts per thread and target, and percentiles over all threads.

use super::super::json_tree::newlines;
use super::super::parse_util::{add_percentile, decimal, not_understood, whole_nanos};
use super::super::{Entry, Found, Stamp};
use super::Work;
use iotax_analysis::Metric;

/// Maximum nesting depth of elements, and maximum length of a tag in bytes.
const DEEPEST: usize = 32;
const LONGEST_TAG: usize = 1000;

/// A document that is being parsed.
#[derive(Default)]
struct Document<'t> {
    line: usize,
    open: Vec<&'t str>,
    works: Vec<Work>,
    time: Option<Stamp>,
    span: Span,
    /// Number of timespans in the document so far.
    spans: usize,
}

/// A timespan that is being parsed.
#[derive(Default)]
struct Span {
    seconds: Option<f64>,
    threads: Option<usize>,
    threads_read: usize,
    cpu: Option<f64>,
    mean: Option<f64>,
    /// Bytes and I/Os of reads, then bytes and I/Os of writes.
    sums: [[u64; 2]; 2],
    target: Target,
    percent: Option<String>,
    percentiles: Vec<(String, f64)>,
    is_broken: bool,
}

/// Bytes and number of I/Os of one target of a thread: in total, of reads and of writes.
#[derive(Default)]
struct Target {
    all: [Option<u64>; 2],
    read: [Option<u64>; 2],
    write: [Option<u64>; 2],
}

/// Reads each `<Results>` of a text.
pub(super) fn read(text: &str, found: &mut Found) {
    let mut document: Option<Document<'_>> = None;
    let (mut line, mut counted) = (1, 0);
    let mut begin = 0;
    for (at, _) in text.match_indices('<') {
        if found.is_cut {
            return;
        }
        let window = &text.as_bytes()[at..text.len().min(at + LONGEST_TAG)];
        let Some(length) = window.iter().position(|byte| *byte == b'>') else { continue };
        let tag = &text[at + 1..at + length];
        if tag.contains('<') {
            continue;
        }
        line += newlines(&text[counted..at]);
        counted = at;
        let inner = text[begin..at].trim();
        begin = at + length + 1;
        if tag == "Results" {
            torn(document.replace(Document { line, open: vec![tag], ..Document::default() }), found);
        } else if let Some(name) = tag.strip_prefix('/') {
            let Some(current) = &mut document else { continue };
            if current.open.last() != Some(&name) {
                torn(document.take(), found);
                continue;
            }
            current.leaf(inner, line, found);
            current.open.pop();
            if current.open.is_empty() {
                document = None;
            }
        } else if let Some(current) = &mut document
            && !tag.ends_with('/')
            && !tag.starts_with(['?', '!'])
        {
            let name = tag.split_whitespace().next().unwrap_or_default();
            current.open.push(name);
            current.begin();
            if current.open.len() > DEEPEST {
                torn(document.take(), found);
            }
        }
    }
    torn(document, found);
}

fn torn(document: Option<Document<'_>>, found: &mut Found) {
    if let Some(document) = document {
        found.miss(not_understood(document.line, "<Results>", "the XML that begins here is torn"));
    }
}

impl Document<'_> {
    fn begin(&mut self) {
        match self.open[..] {
            ["Results", "TimeSpan"] => self.span = Span::default(),
            ["Results", "Profile", "TimeSpans", "TimeSpan"] => self.works.push(Work::default()),
            ["Results", "Profile", "TimeSpans", "TimeSpan", "Targets", "Target"] => {
                if let Some(work) = self.works.last_mut() {
                    work.targets += 1;
                    // Sequential and cached by default.
                    (work.is_random, work.direct) = (Some(false), Some(false));
                }
            }
            ["Results", "TimeSpan", "Thread"] => self.span.threads_read += 1,
            ["Results", "TimeSpan", "Thread", "Target"] => self.span.target = Target::default(),
            _ => {}
        }
    }

    /// Reads the text of an element without children.
    fn leaf(&mut self, text: &str, line: usize, found: &mut Found) {
        match self.open[..] {
            ["Results", "System", "RunTime"] => self.time = Stamp::of(text),
            ["Results", "Profile", "TimeSpans", "TimeSpan", "Targets", "Target", key] => {
                if let Some(work) = self.works.last_mut() {
                    parameter(work, key, text);
                }
            }
            ["Results", "TimeSpan", "Thread", "Target"] => self.span.close_target(),
            ["Results", "TimeSpan", "Thread", "Target", key] => self.span.target.count(key, text),
            ["Results", "TimeSpan", "Latency", "Bucket", "Percentile"] => {
                self.span.percent = Some(text.to_owned());
            }
            ["Results", "TimeSpan", "Latency", "Bucket", "TotalMilliseconds"] => {
                let percent = self.span.percent.take();
                self.span.percentiles.extend(percent.zip(decimal(text)));
            }
            ["Results", "TimeSpan", "Latency", "AverageTotalMilliseconds"] => self.span.mean = decimal(text),
            ["Results", "TimeSpan", "CpuUtilization", "Average", "UsagePercent"] => {
                self.span.cpu = decimal(text);
            }
            ["Results", "TimeSpan", "TestTimeSeconds"] => self.span.seconds = decimal(text),
            ["Results", "TimeSpan", "ThreadCount"] => self.span.threads = text.parse().ok(),
            ["Results", "TimeSpan"] => {
                self.spans += 1;
                let work = self.works.get(self.spans - 1).cloned().unwrap_or_default();
                let span = std::mem::take(&mut self.span);
                match span.entry(&work, self.spans) {
                    Ok(entry) => found.keep(Entry { line, time: self.time, ..entry }),
                    Err(reason) => found.miss(not_understood(line, "<TimeSpan>", reason)),
                }
            }
            _ => {}
        }
    }
}

fn parameter(work: &mut Work, key: &str, text: &str) {
    match key {
        "Path" => work.path = Some(text.to_owned()),
        "BlockSize" => work.block = text.parse().ok(),
        "WriteRatio" => work.writes = text.parse().ok(),
        "RequestCount" => work.queue = text.parse().ok(),
        "ThreadsPerFile" => work.threads = text.parse().ok(),
        "Random" => work.is_random = Some(true),
        // A mix of random and sequential I/O.
        "RandomRatio" => work.is_random = None,
        "DisableOSCache" | "DisableAllCache" if text == "true" => work.direct = Some(true),
        _ => {}
    }
}

impl Target {
    fn count(&mut self, key: &str, text: &str) {
        let field = match key {
            "BytesCount" => &mut self.all[0],
            "IOCount" => &mut self.all[1],
            "ReadBytes" => &mut self.read[0],
            "ReadCount" => &mut self.read[1],
            "WriteBytes" => &mut self.write[0],
            "WriteCount" => &mut self.write[1],
            _ => return,
        };
        *field = text.parse().ok();
    }
}

impl Span {
    fn close_target(&mut self) {
        for i in 0..2 {
            let (all, read, write) = (self.target.all[i], self.target.read[i], self.target.write[i]);
            let sum = read.zip(write).and_then(|(read, write)| read.checked_add(write));
            self.is_broken |= sum.is_none() || sum != all;
            self.sums[0][i] = self.sums[0][i].saturating_add(read.unwrap_or_default());
            self.sums[1][i] = self.sums[1][i].saturating_add(write.unwrap_or_default());
        }
    }

    fn entry(self, work: &Work, number: usize) -> Result<Entry, &'static str> {
        let seconds =
            self.seconds.filter(|seconds| *seconds > 0.0).ok_or("it was interrupted, or has no time")?;
        if self.is_broken || self.threads != Some(self.threads_read) {
            return Err("counts of a thread or of a target are not there");
        }
        let mut entry = Entry::default();
        work.describe(&mut entry, number);
        let [read, write] = self.sums.map(|sums| sums.map(|sum| sum as f64 / seconds));
        if read[1] + write[1] <= 0.0 {
            return Err("nothing was done in it");
        }
        entry.duration_ns = whole_nanos(seconds * 1e9);
        entry.state(Metric::IOPS, Some(read[1] + write[1]));
        entry.state(Metric::BYTES_PER_S, Some(read[0] + write[0]));
        entry.state(Metric::LATENCY_MEAN, self.mean.map(|ms| ms * 1e6));
        for (percent, ms) in &self.percentiles {
            match percent.as_str() {
                "0" => entry.add("latency_min", Some(ms * 1e6), "ns"),
                "100" => entry.add("latency_max", Some(ms * 1e6), "ns"),
                "25" | "50" | "75" | "90" | "95" | "99" | "99.9" | "99.99" | "99.999" => {
                    add_percentile(&mut entry, "", percent, Some(ms * 1e6));
                }
                _ => {}
            }
        }
        if read[1] > 0.0 && write[1] > 0.0 {
            for (before, [bytes, ios]) in [("read ", read), ("write ", write)] {
                entry.add(format!("{before}iops"), Some(ios), "IOPS");
                entry.add(format!("{before}bytes_per_s"), Some(bytes), "B/s");
            }
        }
        entry.add("cpu", self.cpu, "%");
        Ok(entry)
    }
}
