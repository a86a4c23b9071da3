//! Reads fio's terse lines, versions 2 to 5: fields separated by semicolons, times in microseconds, rates in KiB/s.

use super::super::Line;
use super::super::lines::lines;
use super::super::quantity::number;
use super::Read;
use super::job::{Direction, Job};
use super::json::plain_version;

/// Numbers of fields in a version of the format.
struct Layout {
    /// Number of fields before the first direction.
    head: usize,
    /// Number of fields per direction.
    direction: usize,
    directions: usize,
}

impl Layout {
    fn of(version: &str) -> Option<Self> {
        Some(match version {
            "2" => Self { head: 4, direction: 41, directions: 3 },
            "3" => Self { head: 5, direction: 41, directions: 2 },
            "4" => Self { head: 5, direction: 41, directions: 3 },
            // Version 5 adds the number of bandwidth samples and five IOPS fields.
            "5" => Self { head: 5, direction: 47, directions: 3 },
            _ => return None,
        })
    }

    /// Returns the number of fields up to and including user and system CPU share.
    fn fields(&self) -> usize {
        self.head + self.directions * self.direction + 2
    }
}

/// Number of fields with context switches and page faults.
const COUNTS: usize = 3;

/// Number of fields with the distributions of depths and latencies.
const SHARES: usize = 29;

/// Number of percentile fields per direction, such as `99.000000%=872`.
const PERCENTILES: usize = 20;

pub(super) fn read(text: &str) -> Read {
    let mut read = Read::default();
    if !text.contains(';') {
        return read;
    }
    let mut lines = lines(text).enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let line = line.trim();
        let Some(layout) = layout(line) else { continue };
        // A terminal may have wrapped the line anywhere; append lines as long as fields are missing.
        let mut whole = line.to_owned();
        while whole.split(';').count() < layout.fields() + COUNTS + SHARES
            && let Some((_, more)) =
                lines.next_if(|(_, more)| more.contains(';') && self::layout(more.trim()).is_none())
        {
            whole.push_str(more.trim());
        }
        let fields: Vec<&str> = whole.split(';').collect();
        match job(&fields, &layout, at + 1) {
            Some(job) => {
                if layout.head == 5 {
                    read.version = Some(plain_version(fields[1]));
                }
                add(&mut read, job, fields[0]);
            }
            None => read.miss(Line {
                number: at + 1,
                text: line.chars().take(80).collect(),
                reason: format!("a terse line that has not the {} fields of its version", layout.fields()),
            }),
        }
    }
    read
}

/// Adds the job of a line. Adjacent lines of one job may be concurrent clones or repetitions, which look alike: keeps the first and adds a
/// note about the others. A job that recurs after another job is a repetition.
fn add(read: &mut Read, mut job: Job, version: &str) {
    version.clone_into(&mut job.version);
    let same =
        |last: &&mut Job| last.name == job.name && last.group == job.group && last.version == job.version;
    if let Some(last) = read.jobs.last_mut().filter(same) {
        last.note = Some(AMBIGUOUS.to_owned());
        let reason = AMBIGUOUS.to_owned();
        read.miss(Line { number: job.line, text: job.name, reason });
        return;
    }
    read.begin_document();
    job.document = read.documents;
    read.push(job);
}

const AMBIGUOUS: &str = "several lines of this job stand together: its clones, which ran at once, or repetitions; only the first is taken";

/// Returns the layout of a terse line; `None` for other lines.
fn layout(line: &str) -> Option<Layout> {
    let mut fields = line.split(';');
    let layout = Layout::of(fields.next()?)?;
    let second = fields.next()?;
    let is_number = |text: Option<&str>| {
        text.is_some_and(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
    };
    let known = if layout.head == 4 {
        !second.is_empty() && is_number(fields.next()) && is_number(fields.next())
    } else {
        second.starts_with("fio-")
    };
    known.then_some(layout)
}

fn job(fields: &[&str], layout: &Layout, line: usize) -> Option<Job> {
    // Valid fields after those that are used prove that nothing is shifted: three counts, then shares.
    let rest = fields.get(layout.fields()..layout.fields() + COUNTS + SHARES)?;
    let is_count = |field: &&str| !field.is_empty() && field.bytes().all(|b| b.is_ascii_digit());
    if !rest[..COUNTS].iter().all(is_count) || !rest[COUNTS..].iter().all(|field| field.ends_with('%')) {
        return None;
    }
    let head = &fields[layout.head - 3..layout.head];
    let cpu = |field: &str| number(field.strip_suffix('%')?);
    let at = layout.fields() - 2;
    let cpu = (cpu(fields[at])?, cpu(fields[at + 1])?);
    let mut directions = [None, None, None, None];
    for (i, slot) in directions.iter_mut().enumerate().take(layout.directions) {
        let start = layout.head + i * layout.direction;
        *slot = direction(&fields[start..start + layout.direction])?;
    }
    Some(Job {
        name: head[0].to_owned(),
        group: Some(head[1].to_owned()),
        error: Some(head[2]).filter(|error| *error != "0").map(|error| format!("error {error}")),
        directions: directions.map(|one| one.map(Box::new)),
        is_whole: true,
        cpu: Some(cpu),
        line,
        ..Job::default()
    })
}

/// Parses the fields of a direction. `None` if they are invalid; `Some(None)` if the direction had no I/O.
#[expect(clippy::option_option, reason = "what is none and what is no direction are two answers")]
fn direction(fields: &[&str]) -> Option<Option<Direction>> {
    let figures: Vec<f64> = fields[..12].iter().map(|field| number(field)).collect::<Option<_>>()?;
    let [kib, kib_per_s, iops, runtime_ms] = figures[..4] else { return None };
    let percentiles: Vec<(f64, f64)> = fields[12..12 + PERCENTILES]
        .iter()
        .map(|field| {
            let (q, value) = field.split_once("%=")?;
            Some((number(q)?, number(value)? * 1e3))
        })
        .collect::<Option<_>>()?;
    let lat: Vec<f64> = fields[12 + PERCENTILES..16 + PERCENTILES]
        .iter()
        .map(|field| number(field))
        .collect::<Option<_>>()?;
    if kib == 0.0 && iops == 0.0 {
        return Some(None);
    }
    let above = |value: f64| Some(value).filter(|value| *value != 0.0);
    Some(Some(Direction {
        iops: above(iops),
        bytes_per_s: above(kib_per_s * 1024.0),
        runtime_ms: above(runtime_ms),
        mean_ns: above(lat[2] * 1e3),
        max_ns: above(lat[1] * 1e3),
        percentiles: percentiles.into_iter().filter(|(q, ns)| *q > 0.0 && *ns != 0.0).collect(),
        ..Direction::default()
    }))
}
