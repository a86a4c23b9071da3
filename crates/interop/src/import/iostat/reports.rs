//! Parses iostat's reports, in text and JSON, into devices and columns.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::super::json_tree::{self, Value};
use super::super::lines::Lines;
use super::super::parse_util::{decimal, not_understood};
use super::super::{Found, MOST_ROWS, Stamp};

/// Reports of one iostat command.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) reports: Vec<Report>,
    /// True if the command left out the report since boot (`-y`).
    pub(super) without_first: bool,
}

/// A report: the figures of all devices in one interval.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Line number of the report in the text.
    pub(super) line: usize,
    /// End of the interval in seconds since midnight; `None` without `-t`.
    pub(super) at: Option<u32>,
    /// End of the interval with its date; `None` without `-t`, or if day and month are ambiguous.
    pub(super) time: Option<Stamp>,
    /// Devices in the order of the text, each with its figures.
    pub(super) rows: Vec<(String, Columns)>,
}

/// Maximum number of columns; no version has more.
const MOST_COLUMNS: usize = 64;

/// Figures of a row by the names of their columns.
pub(super) type Columns = BTreeMap<Rc<str>, f64>;

/// Header of a report: the names of its columns without the device's.
struct Header {
    columns: Vec<Rc<str>>,
    /// True if the device is the last column, as in human-readable reports.
    device_last: bool,
}

/// Reads the reports of every iostat command in a text.
pub(super) fn of_text(text: &str, found: &mut Found) -> Vec<Session> {
    let lines = Lines::of(text);
    let mut sessions: Vec<Session> = Vec::new();
    let mut state = State::default();
    let mut i = 0;
    while let Some(line) = lines.get(i) {
        i += 1;
        if is_banner(line) {
            state.end(&mut sessions);
        } else if let Some(leaves_out) = command(line) {
            state.end(&mut sessions);
            state.session.without_first = leaves_out;
        } else if let Some(at) = time_of_day(line) {
            (state.at, state.time) = (Some(at), Stamp::of(line));
        } else if let Some((header, used)) = Header::of(&lines, i - 1) {
            state.head(header, i);
            i += used - 1;
        } else if line.trim().is_empty() || line.contains("avg-cpu") {
            state.inside &= !line.contains("avg-cpu");
        } else if state.inside && state.rows == MOST_ROWS {
            found.is_cut = true;
            break;
        } else if state.inside {
            i += state.row(&lines, i - 1, found) - 1;
        }
    }
    state.end(&mut sessions);
    sessions
}

#[derive(Default)]
struct State {
    session: Session,
    header: Option<Header>,
    at: Option<u32>,
    time: Option<Stamp>,
    /// True after a header, when rows may follow.
    inside: bool,
    /// Names of the columns in any row of the last report.
    columns: HashSet<Rc<str>>,
    indices: HashMap<String, usize>,
    /// Number of rows in all reports so far.
    rows: usize,
}

impl State {
    fn end(&mut self, sessions: &mut Vec<Session>) {
        // The banner starts a new session.
        if !self.session.reports.is_empty() {
            sessions.push(std::mem::take(&mut self.session));
        }
        (self.header, self.at, self.time, self.inside) = (None, None, None, false);
    }

    /// Reads a header, which starts a report unless it adds columns to the current one.
    fn head(&mut self, header: Header, line: usize) {
        let is_new = |name: &Rc<str>| !self.columns.contains(name);
        let more = header.device_last && header.columns.iter().all(is_new);
        if self.session.reports.is_empty() || !more {
            self.begin(line);
        }
        (self.header, self.inside) = (Some(header), true);
    }

    fn begin(&mut self, line: usize) {
        self.session.reports.push(Report {
            line,
            at: self.at.take(),
            time: self.time.take(),
            rows: Vec::new(),
        });
        self.columns.clear();
        self.indices.clear();
    }

    /// Reads a row, which may be wrapped over several lines. Returns the number of its lines.
    fn row(&mut self, lines: &Lines<'_>, at: usize, found: &mut Found) -> usize {
        let (Some(header), Some(line)) = (&self.header, lines.get(at)) else { return 1 };
        let wanted = header.columns.len() + 1;
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut used = 1;
        while words.len() < wanted
            && let Some(next) = lines.get(at + used)
            && next.split_whitespace().count() > 0
            && next.split_whitespace().all(|word| value(word, "").is_some())
        {
            words.extend(next.split_whitespace());
            used += 1;
        }
        let device =
            if header.device_last { words.pop() } else { (!words.is_empty()).then(|| words.remove(0)) };
        let values: Option<Vec<f64>> =
            words.iter().zip(&header.columns).map(|(word, column)| value(word, column)).collect();
        match (device, values) {
            (Some(device), Some(values)) if values.len() == words.len() && words.len() + 1 == wanted => {
                let columns = header.columns.iter().cloned().zip(values).collect();
                self.add(device, columns, at + 1);
                used
            }
            _ => {
                // Words that are not numbers belong to something else.
                if words.iter().any(|word| value(word, "").is_some()) {
                    let reason = "it does not fit the columns above it";
                    found.miss(not_understood(at + 1, line, reason));
                }
                1
            }
        }
    }

    fn add(&mut self, device: &str, columns: Columns, number: usize) {
        let Some(report) = self.session.reports.last_mut() else { return };
        let known = self.indices.get(device).map(|index| &mut report.rows[*index].1);
        match known {
            // Each device has one row per report: a second row belongs to a report whose header is missing.
            Some(row) if columns.keys().any(|name| row.contains_key(name)) => {
                self.begin(number);
                return self.add(device, columns, number);
            }
            Some(row) => row.extend(columns.clone()),
            None => {
                self.indices.insert(device.to_owned(), report.rows.len());
                report.rows.push((device.to_owned(), columns.clone()));
            }
        }
        self.columns.extend(columns.into_keys());
        self.rows += 1;
    }
}

impl Header {
    /// Parses a header, which may be wrapped over several lines. Also returns the number of its lines.
    fn of(lines: &Lines<'_>, at: usize) -> Option<(Self, usize)> {
        let line = lines.get(at)?;
        // Most lines are rows.
        line.contains("Device").then_some(())?;
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let is_device = |word: Option<&&str>| word.is_some_and(|word| matches!(*word, "Device" | "Device:"));
        let device_last = is_device(words.last()) && words.len() > 1;
        let mut used = 1;
        if device_last {
            words.pop();
        } else if is_device(words.first()) {
            words.remove(0);
            while words.len() < MOST_COLUMNS
                && let Some(next) = lines.get(at + used)
                && next.split_whitespace().count() > 0
                && next.split_whitespace().all(is_column)
            {
                words.extend(next.split_whitespace());
                used += 1;
            }
        } else {
            return None;
        }
        let columns: Vec<Rc<str>> = words.iter().map(|word| Rc::from(*word)).collect();
        (!columns.is_empty() && columns.len() <= MOST_COLUMNS && columns.iter().all(|name| is_column(name)))
            .then_some((Self { columns, device_last }, used))
    }
}

fn is_column(word: &str) -> bool {
    let endings = ["/s", "await", "-sz", "%util", "svctm", "tps", "rqm", "_read", "_wrtn", "_dscd"];
    endings.iter().any(|end| word.ends_with(end))
}

/// Parses a figure in the unit of its column. Human-readable figures have a unit suffix and are converted.
fn value(word: &str, column: &str) -> Option<f64> {
    let word = word.strip_suffix('%').unwrap_or(word);
    let power = match word.chars().last()? {
        'k' => 0,
        'M' => 1,
        'G' => 2,
        'T' => 3,
        _ => return decimal(word),
    };
    let kib = decimal(&word[..word.len() - 1])? * 1024_f64.powi(power);
    Some(if column.contains("MB") { kib / 1024.0 } else { kib })
}

/// Returns whether a line is iostat's banner: `Linux 6.1.0 (box) 11/22/26 _x86_64_ (2 CPU)`.
fn is_banner(line: &str) -> bool {
    line.contains('(') && line.contains("CPU)")
}

/// Returns whether an iostat command leaves out the report since boot; `None` if the line is not an iostat command.
fn command(line: &str) -> Option<bool> {
    let mut words = line.split_whitespace().skip_while(|word| word.rsplit('/').next() != Some("iostat"));
    words.next()?;
    let flag = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains('y');
    Some(words.any(flag))
}

/// Parses the time in a line into seconds since midnight: `11/22/26 03:51:31`, `03/01/2017 03:51:31 PM`, `2026-11-22T03:51:31+0000`.
fn time_of_day(line: &str) -> Option<u32> {
    let trimmed = line.trim();
    let words: Vec<&str> = trimmed.split([' ', 'T']).collect();
    let plain = |c: char| {
        c.is_ascii_digit() || matches!(c, '/' | '-' | '.' | ':' | '+' | ' ' | 'T' | 'Z' | 'A' | 'P' | 'M')
    };
    if !trimmed.chars().all(plain) {
        return None;
    }
    let clock = words.iter().find(|word| word.matches(':').count() >= 2)?;
    let mut parts = clock.split(['+', '-', 'Z']).next()?.split(':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let hour = match words.last() {
        Some(&"PM") => hour % 12 + 12,
        Some(&"AM") => hour % 12,
        _ => hour,
    };
    (hour < 24 && minute < 60 && second < 61).then_some(hour * 3600 + minute * 60 + second)
}

/// Reads the reports of every iostat command in the JSON of a text.
pub(super) fn of_json(text: &str, found: &mut Found) -> Vec<Session> {
    let mut rows = 0;
    let mut sessions = Vec::new();
    json_tree::objects(text, &mut |line, object| {
        let Some(object) = object.or_torn(line, &["\"sysstat\"", "\"disk_device\""], found) else { return };
        for host in object.at(&["sysstat", "hosts"]).items() {
            let report = |statistics: Value<'_>| Report {
                line,
                at: statistics.get("timestamp").text().and_then(|stamp| time_of_day(&stamp)),
                time: statistics.get("timestamp").text().and_then(|stamp| Stamp::of(&stamp)),
                rows: statistics.get("disk").items().take(MOST_ROWS).filter_map(disk).collect(),
            };
            let reports = host.get("statistics").items().map(report).filter(|report| !report.rows.is_empty());
            let is_room = |report: &Report| {
                rows += report.rows.len();
                rows <= MOST_ROWS
            };
            let reports: Vec<Report> = reports.take_while(is_room).collect();
            if !reports.is_empty() {
                sessions.push(Session { reports, without_first: false });
            }
        }
    });
    found.is_cut |= rows > MOST_ROWS;
    sessions
}

fn disk(disk: Value<'_>) -> Option<(String, Columns)> {
    let name = |key: &str| match key {
        "util" | "rrqm" | "wrqm" | "drqm" => Rc::from(format!("%{key}")),
        _ => Rc::from(key),
    };
    let columns = disk
        .entries()
        .filter_map(|(key, value)| Some((name(&key), value.f64()?)))
        .take(MOST_COLUMNS)
        .collect();
    Some((disk.get("disk_device").string()?, columns))
}
