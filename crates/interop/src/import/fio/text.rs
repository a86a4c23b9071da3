//! Reads fio's human-readable output, of versions 2 and 3.
//!
//! A value is used only if the character that ends it is on the same line, because a terminal may have wrapped the number. If a value appears
//! twice in one job, the header of a second job is missing, so neither value is used.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::super::lines::lines;
use super::super::parse_util::half_a_digit;
use super::super::quantity::{bytes_in, impossible, nanos_in, number, number_and_unit};
use super::super::{Line, Stamp};
use super::Read;
use super::job::{ALL_IN_ONE, DIRECTIONS, Direction, Job, Options};
use super::json::ALL_CLIENTS;

#[derive(Default)]
struct Reader {
    read: Read,
    /// Options of each job by its name, from the lines before the results: `NAME: (g=0): rw=...`.
    asked: HashMap<String, Rc<BTreeMap<String, String>>>,
    /// Time of printing in the header of the last job, if any.
    printed: Option<String>,
    /// True if results were read since the current fio output began.
    has_results: bool,
    /// True in the part after the jobs, such as group summaries.
    is_over: bool,
    job: Option<Job>,
    direction: Option<usize>,
    /// Unit of the percentiles that follow, in nanoseconds.
    percentiles_in: Option<f64>,
    /// True after the last direction of the current job.
    is_past: bool,
    /// For each direction, true if its results were found twice.
    twice: [bool; 4],
    issued: Option<Vec<u64>>,
    /// Numbers of `clat` lines, of `lat` lines and of percentile headers in the current direction.
    times: [usize; 3],
}

pub(super) fn read(text: &str) -> Read {
    let mut reader = Reader::default();
    if !text.contains("groupid=") && !text.contains("IOPS=") {
        return reader.read;
    }
    let mut lines = lines(text).enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let next = lines.peek().map(|(_, next)| next.trim());
        reader.line(line, next, i + 1);
    }
    reader.end_job();
    reader.read
}

impl Reader {
    fn line(&mut self, line: &str, next: Option<&str>, at: usize) {
        let line = line.trim();
        if let Some(head) = head(line) {
            self.end_job();
            let Head { name, group, clones, error, printed } = head;
            // This job is the sum of the jobs above.
            if name == ALL_CLIENTS && line.contains("pid=0:") {
                self.is_over = true;
                return;
            }
            let is_later = self.printed.as_deref().is_some_and(|before| !is_at_once(before, &printed));
            if self.is_over || is_later {
                self.begin_document();
            }
            let time = Stamp::of(&printed);
            (self.printed, self.has_results) = (Some(printed), true);
            self.job = Some(Job {
                options: self
                    .asked
                    .get(&name)
                    .map(|options| Options { shared: Rc::clone(options), own: BTreeMap::new() }),
                name,
                group: Some(group),
                document: self.read.documents,
                clones: Some(clones),
                error,
                time,
                line: at,
                ..Job::default()
            });
            return;
        }
        if let Some((name, options)) = asked(line, next) {
            self.end_job();
            // Options after results belong to another run.
            if self.has_results {
                self.begin_document();
            }
            self.asked.entry(name).or_insert_with(|| Rc::new(options));
            return;
        }
        if line.starts_with("fio-") && !line.contains(' ') {
            if self.has_results {
                self.end_job();
                self.begin_document();
            }
            self.read.version = Some(super::json::plain_version(line));
            return;
        }
        if line.starts_with("Run status group") || line.starts_with("Disk stats") {
            self.end_job();
            self.is_over = true;
            return;
        }
        if self.job.is_some() {
            self.of_job(line, at);
        } else if !self.is_over && is_rate(line) {
            let reason = "a rate without its job's head".to_owned();
            self.read.miss(Line { number: at, text: line.to_owned(), reason });
        }
    }

    /// Prepares for the output of another run of fio: resets the state that belongs to the previous run.
    fn begin_document(&mut self) {
        self.read.begin_document();
        self.asked.clear();
        (self.printed, self.has_results, self.is_over) = (None, false, false);
    }

    fn of_job(&mut self, line: &str, at: usize) {
        let word = line.split(':').next().unwrap_or_default().trim();
        if let Some(which) = DIRECTIONS.iter().position(|known| *known == word) {
            self.begin_direction(which, line, at);
        } else if line.starts_with('|') {
            self.percentiles(line, at);
        } else if word.starts_with("clat percentiles") || word.starts_with("lat percentiles") {
            self.times[2] += 1;
            self.percentiles_in = in_brackets(word).and_then(nanos_in).filter(|_| self.times[2] == 1);
        } else if (word.starts_with("lat (") || word.starts_with("clat (")) && line.contains("avg=") {
            self.percentiles_in = None;
            self.times(word, line, at);
        } else {
            self.percentiles_in = None;
            // More lines after the counts belong to another job, whose header is missing.
            match word {
                "cpu" if self.issued.is_none() => self.cpu(line),
                "issued" | "issued rwts" | "issued rwt" if self.issued.is_none() => {
                    self.issued = issued(line);
                }
                _ => {}
            }
            if matches!(word, "cpu" | "IO depths" | "submit" | "complete" | "issued" | "issued rwts") {
                (self.is_past, self.direction) = (true, None);
            }
        }
    }

    fn begin_direction(&mut self, which: usize, line: &str, at: usize) {
        self.percentiles_in = None;
        let Some(job) = &mut self.job else { return };
        if self.is_past {
            let reason = "a direction after the end of its job: a job's head is missing".to_owned();
            self.read.miss(Line { number: at, text: line.to_owned(), reason });
            self.direction = None;
            self.end_job();
            return;
        }
        self.twice[which] |= job.directions[which].is_some();
        let found = direction(line).unwrap_or_else(|reason| {
            job.unread.push(Line { number: at, text: line.to_owned(), reason });
            Direction::default()
        });
        if found == Direction::default() && job.unread.is_empty() {
            let reason = "no rate was found in it".to_owned();
            self.read.miss(Line { number: at, text: line.to_owned(), reason });
        }
        job.directions[which] = Some(Box::new(found));
        self.times = [0; 3];
        self.direction = Some(which);
    }

    /// Returns a parsed figure, or `None` if it is missing or unreadable. An unreadable one makes its job's result unusable.
    fn read_or_refuse<T>(&mut self, figure: Result<Option<T>, String>, line: &str, at: usize) -> Option<T> {
        figure.unwrap_or_else(|reason| {
            if let Some(job) = &mut self.job {
                job.unread.push(Line { number: at, text: line.to_owned(), reason });
            }
            None
        })
    }

    fn now(&mut self) -> Option<&mut Direction> {
        self.job.as_mut()?.directions[self.direction?].as_deref_mut()
    }

    /// Parses `clat (usec): min=8, max=5484, avg=57.50, stdev=168.47`. A `lat` line replaces `clat`, because it also covers the time before
    /// submission.
    fn times(&mut self, word: &str, line: &str, at: usize) {
        let Some(unit) = in_brackets(word).and_then(nanos_in) else { return };
        let is_clat = word.starts_with("clat");
        let [mean, max] = ["avg", "max"].map(|key| {
            let ns = figure(line, key, "ns", |text| Some(scaled(text)? * unit));
            self.read_or_refuse(ns, line, at)
        });
        self.times[usize::from(!is_clat)] += 1;
        // Two sets of latencies belong to two directions, one of which lost its header, so neither is used.
        let is_twice = self.times[..2].iter().any(|times| *times > 1);
        if let Some(direction) = self.now() {
            direction.is_from_submission = is_clat;
            if is_twice {
                (direction.mean_ns, direction.max_ns) = (None, None);
                return;
            }
            (direction.mean_ns, direction.max_ns) = (mean, max);
        }
    }

    /// Parses percentiles: `| 99.00th=[ 1663], 99.50th=[ 3982],`
    fn percentiles(&mut self, line: &str, at: usize) {
        let Some(unit) = self.percentiles_in else { return };
        for part in line.split_inclusive(']') {
            // Without the closing bracket, the number may be truncated.
            let Some((q, text)) = part.strip_suffix(']').and_then(|part| part.split_once("th=[")) else {
                continue;
            };
            let Some(q) = number(q.trim_start_matches(['|', ',', ' '])) else { continue };
            let ns = possible(&format!("{q}th=[{text}]"), number(text.trim()).map(|ns| ns * unit), "ns");
            if let Some(ns) = self.read_or_refuse(ns, line, at)
                && let Some(direction) = self.now()
            {
                direction.percentiles.push((q, ns));
            }
        }
    }

    fn cpu(&mut self, line: &str) {
        let share = |key| value(line, key).and_then(|text| number(text.strip_suffix('%')?));
        if let Some(job) = &mut self.job {
            job.cpu = share("usr").zip(share("sys"));
        }
    }

    fn end_job(&mut self) {
        let (issued, twice) = (self.issued.take(), std::mem::take(&mut self.twice));
        (self.direction, self.percentiles_in, self.is_past) = (None, None, false);
        let Some(mut job) = self.job.take() else { return };
        let there: Vec<bool> = job.directions.iter().map(Option::is_some).collect();
        if twice.contains(&true) {
            let text = job.name.clone();
            let reason = "one direction twice in one job: a job's head is missing".to_owned();
            self.read.miss(Line { number: job.line, text, reason });
            return;
        }
        // A sum of all directions is complete by itself; otherwise only the issued counts prove that no direction is missing.
        job.is_whole = there[ALL_IN_ONE]
            || issued
                .is_some_and(|issued| (0..3).all(|i| (issued.get(i).copied().unwrap_or(0) > 0) == there[i]));
        self.read.push(job);
    }
}

/// Returns whether a line has the rates of a direction: `read: IOPS=8473, BW=33.1MiB/s (34.7MB/s)(33.1MiB/1001msec)`.
fn is_rate(line: &str) -> bool {
    DIRECTIONS.iter().any(|word| line.starts_with(word)) && line.contains("IOPS=") && line.contains("BW=")
}

/// The first line of a job's results.
struct Head {
    name: String,
    group: String,
    clones: u32,
    error: Option<String>,
    /// Time of printing, the same for all jobs of a run; empty if unknown.
    printed: String,
}

/// Parses a job's first line: `NAME: (groupid=0, jobs=1): err= 0: pid=25370: Sun Nov 22 03:53:55 2026`
fn head(line: &str) -> Option<Head> {
    let (name, rest) = line.split_once(": (groupid=")?;
    let (group, rest) = rest.split_once(',')?;
    let (jobs, rest) = rest.trim().strip_prefix("jobs=")?.split_once(')')?;
    let (error, rest) = rest.split_once("err=")?.1.split_once(": pid")?;
    let error = error.trim();
    Some(Head {
        name: name.to_owned(),
        group: group.to_owned(),
        clones: jobs.trim().parse().ok()?,
        error: (error != "0").then(|| error.to_owned()),
        printed: rest.split_once(": ").map(|(_, date)| date.trim().to_owned()).unwrap_or_default(),
    })
}

/// Returns whether two dates such as `Sun Nov 22 03:53:55 2026` can belong to the same output, which fio prints within a second. A missing date
/// matches any other.
fn is_at_once(one: &str, other: &str) -> bool {
    let second = |date: &str| {
        let clock = date.split_whitespace().find(|word| word.matches(':').count() == 2)?;
        let parts: Option<Vec<u64>> = clock.split(':').map(|part| part.parse().ok()).collect();
        parts.map(|parts| parts.iter().fold(0_u64, |sum, part| sum.saturating_mul(60).saturating_add(*part)))
    };
    one.is_empty()
        || other.is_empty()
        || one == other
        || second(one).zip(second(other)).is_some_and(|(one, other)| one.abs_diff(other) <= 1)
}

/// Parses a job's name and options: `NAME: (g=0): rw=randread, bs=(R) 4096B-4096B, ..., ioengine=psync, iodepth=1`. `next` is the following line.
fn asked(line: &str, next: Option<&str>) -> Option<(String, BTreeMap<String, String>)> {
    let (name, rest) = line.split_once(": (g=")?;
    let rest = rest.split_once("): ")?.1;
    let mut options = BTreeMap::new();
    for key in ["rw", "ioengine"] {
        options.insert(key.to_owned(), value(&format!("{rest},"), key)?.to_owned());
    }
    // The last value of a line may be truncated, unless the next line cannot continue it.
    let is_end = next.is_some_and(|next| {
        next.contains(": (g=") || next.starts_with("fio-") || next == "..." || next.is_empty()
    });
    let depth = rest.rsplit_once("iodepth=")?.1.to_owned();
    options.insert("iodepth".to_owned(), if is_end { depth } else { String::new() });
    options.insert("bs".to_owned(), block_size(rest).unwrap_or_default());
    // Other options are not printed, so fio's defaults may not hold.
    options.insert("direct".to_owned(), String::new());
    options.insert("numjobs".to_owned(), String::new());
    Some((name.to_owned(), options))
}

/// Parses the block size in `(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B` or `4K-4K/4K-4K/4K-4K`; `None` if it is missing or the
/// sizes differ.
fn block_size(text: &str) -> Option<String> {
    let list = text.split_once("bs=")?.1.split_once(", ioengine")?.0;
    let is_mark = |part: &&str| part.starts_with('(') || part.is_empty();
    let mut sizes = list.split([' ', ',', '/', '-']).filter(|part| !is_mark(part));
    let first = sizes.next()?;
    sizes.all(|size| size == first).then(|| first.to_owned())
}

/// Returns the text in round brackets: `usec` in `clat (usec)`.
fn in_brackets(text: &str) -> Option<&str> {
    Some(text.split_once('(')?.1.split_once(')')?.0)
}

/// Returns the value of `key=`, up to a comma, bracket or space.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut from = 0;
    loop {
        let found = from + line[from..].find(key)?;
        let (before, after) = (&line[..found], &line[found + key.len()..]);
        from = found + key.len();
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some(rest) = after.strip_prefix('=').filter(|_| is_word) else { continue };
        let rest = rest.trim_start();
        // A comma between digits is a decimal comma of some locale.
        let is_end = |(at, _): &(usize, &str)| !rest[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        let (end, _) = rest.match_indices([',', '(', ' ', ';']).find(|end| end.1 != "," || is_end(end))?;
        // A comma at the line's end may be a decimal comma too, at which the number was wrapped.
        let may_go_on = rest[end..] == *","
            && rest[..end].ends_with(|c: char| c.is_ascii_digit())
            && !rest[..end].contains(['.', ',']);
        return (!may_go_on).then(|| &rest[..end]);
    }
}

/// Parses the value of `key=` with `read`, and checks that it is plausible for `unit`. `None` if it is 0, missing or truncated. Fails with
/// a reason if it is invalid or implausible.
fn figure(
    line: &str,
    key: &str,
    unit: &str,
    read: impl Fn(&str) -> Option<f64>,
) -> Result<Option<f64>, String> {
    value(line, key).map_or(Ok(None), |text| possible(&format!("{key}={text}"), read(text), unit))
}

/// Checks a parsed figure; `None` if it is 0. Fails if `text` has no figure, or an impossible one.
fn possible(text: &str, figure: Option<f64>, unit: &str) -> Result<Option<f64>, String> {
    let Some(figure) = figure else { return Err(format!("{text} is no figure")) };
    impossible(figure, unit)
        .map_or_else(|| Ok((figure > 0.0).then_some(figure)), |why| Err(format!("{text}: {why}")))
}

/// Parses a count or time with a decimal suffix: `8571.1k` is 8571100.
fn scaled(text: &str) -> Option<f64> {
    let (value, suffix) = number_and_unit(text)?;
    let factor = match suffix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        _ => return None,
    };
    Some(value * factor)
}

/// Parses a direction's rates: `read: IOPS=8473, BW=33.1MiB/s (34.7MB/s)(33.1MiB/1001msec)`, or before version 3
/// `read : io=1024.0MB, bw=98765KB/s, iops=24691, runtime= 10618msec`, whose KB are 1024 bytes.
fn direction(line: &str) -> Result<Direction, String> {
    if value(line, "bw").is_some() {
        let bytes_per_s = |text: &str| {
            let (value, unit) = number_and_unit(text)?;
            match unit.strip_suffix("/s")? {
                "B" => Some(value),
                unit => Some(value * bytes_in(&unit.replace('B', "iB").replace("iiB", "iB"))?),
            }
        };
        // The runtime ends the line; a blank marks its end.
        let line = format!("{line} ");
        let runtime = ["runtime", "runt"]
            .iter()
            .find_map(|key| value(&line, key))
            .and_then(|text| number(text.strip_suffix("msec")?));
        return Ok(Direction {
            iops: figure(&line, "iops", "IOPS", scaled)?,
            bytes_per_s: figure(&line, "bw", "B/s", bytes_per_s)?,
            runtime_ms: runtime.filter(|ms| *ms > 0.0),
            ..Direction::default()
        });
    }
    let runtime = line.rsplit_once('/').and_then(|(_, text)| number(text.split_once("msec)")?.0));
    Ok(Direction {
        iops: figure(line, "IOPS", "IOPS", scaled)?,
        bytes_per_s: bytes_per_s(line)?,
        runtime_ms: runtime.filter(|ms| *ms > 0.0),
        ..Direction::default()
    })
}

/// A figure, with the largest relative rounding error that its number of digits allows.
struct Rounded {
    value: f64,
    error: f64,
}

impl Rounded {
    fn of(text: &str, in_unit: impl Fn(&str) -> Option<f64>) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let digits = text.trim().strip_suffix(unit)?.trim_end();
        Some(Self { value: number * in_unit(unit)?, error: half_a_digit(digits) / number })
    }

    fn rate(text: &str) -> Option<Self> {
        Self::of(text, |unit| {
            let unit = unit.strip_suffix("/s")?;
            // With `unit_base=1` fio counts bits.
            let bits = || Some(bytes_in(&format!("{}B", unit.strip_suffix("bit")?))? / 8.0);
            bytes_in(unit).or_else(bits)
        })
    }
}

/// Parses bytes per second, from the most precise part of `BW=50.6MiB/s (53.0MB/s)(50.6MiB/1001msec)`; `None` if the rate is missing, 0 or
/// truncated.
fn bytes_per_s(line: &str) -> Result<Option<f64>, String> {
    let Some(first) = value(line, "BW") else { return Ok(None) };
    let no_figure = |text: &str| format!("{text} is no figure");
    let mut least = Rounded::rate(first).ok_or_else(|| no_figure(&format!("BW={first}")))?;
    let behind = line.split_once("BW=").and_then(|(_, rest)| rest.trim_start().strip_prefix(first));
    if let Some(more) = behind.and_then(|rest| rest.trim_start().strip_prefix('(')) {
        let parts = || {
            let (rate, rest) = more.split_once(")(")?;
            let (bytes, rest) = rest.split_once('/')?;
            Some([rate, bytes, rest.split_once("msec)")?.0])
        };
        let Some([rate, bytes, ms]) = parts() else { return Ok(None) };
        let rate = Rounded::rate(rate).ok_or_else(|| no_figure(rate))?;
        let seconds = number(ms).filter(|ms| *ms > 0.0).map(|ms| ms / 1e3);
        let over_time =
            seconds.and_then(|seconds| Rounded::of(bytes, |unit| Some(bytes_in(unit)? / seconds)));
        for other in [Some(rate), over_time].into_iter().flatten() {
            if other.error < least.error {
                least = other;
            }
        }
    }
    possible(&format!("BW={first}"), Some(least.value), "B/s")
}

/// Parses the I/O counts in `issued rwts: total=8482,0,0,0 short=0,0,0,0`, or before version 3 `issued : total=r=8482/w=0/d=0, short=...`.
fn issued(line: &str) -> Option<Vec<u64>> {
    let list = line.split_once("total=")?.1.split_once(" short=")?.0.trim_end_matches(',');
    let count = |part: &str| part.trim_start_matches(['r', 'w', 'd', '=']).parse().ok();
    let counts: Vec<u64> = list.split([',', '/']).map(count).collect::<Option<_>>()?;
    (counts.len() >= 3).then_some(counts)
}
