//! Parses the text of a vdbench parameter file into definitions with keys and values.

use std::sync::Arc;

use super::super::{FileLine, LineErrors, MOST_JOBS};
use super::keywords::full;
use super::{HOSTS, REPLAY};

/// General parameters that do not change the workload, each with the reason why they have no effect.
const UNNEEDED: [(&str, &str); 10] = [
    ("messagescan", "the system's log is not read"),
    ("formatsds", "what is read is filled before anything is measured"),
    ("report", "every interval is recorded"),
    ("report_run_totals", "every interval is recorded"),
    ("histogram", "all latencies are in the histograms"),
    ("create_anchors", "the target is made ready before anything is measured"),
    ("ios_per_jvm", "all threads are in one process"),
    ("port", "agents are reached by pipes"),
    ("abort_failed_skew", "a measurement goes on to its end"),
    ("fwd_thread_adjust", "threads are as many as they are given"),
];

/// Supported kinds of definitions, and the one supported general parameter. Other lines are rejected with a reason.
const KINDS: [&str; 6] = ["data_errors", "sd", "wd", "fsd", "fwd", "rd"];

/// Maximum number of keys and values over all definitions. Those of a default count again in each definition below it; a long value counts
/// as several.
const MOST_KEYS: usize = 1 << 16;

/// A definition: `sd=NAME,key=value,...`.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    /// Kind of definition, which is one of [`KINDS`].
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) location: FileLine,
    /// Keys in file order; those of the `default` definition of the same kind come first.
    pub(super) keys: Vec<VdbenchKey>,
}

/// A key: `key=value`, `key=(value,value)` or `key=value,value`.
#[derive(Debug, Clone)]
pub(super) struct VdbenchKey {
    /// Full name of the keyword.
    pub(super) name: String,
    /// Keyword as written in the file, possibly abbreviated.
    written: String,
    pub(super) values: Vec<String>,
    pub(super) location: FileLine,
}

impl VdbenchKey {
    /// Formats the key as in the file, for messages.
    pub(super) fn quoted(&self) -> String {
        match self.values.as_slice() {
            [one] => format!("{}={one}", self.written),
            more => format!("{}=({})", self.written, more.join(",")),
        }
    }

    /// Returns the weight of the key in `MOST_KEYS`: 1 for the key and at least 1 for each value.
    fn weight(&self) -> usize {
        1 + self.values.iter().map(|value| 1 + value.len() / 64).sum::<usize>()
    }
}

impl Definition {
    /// Returns the last key of this name, which is the one in effect; `None` if there is none.
    pub(super) fn key(&self, name: &str) -> Option<&VdbenchKey> {
        self.keys.iter().rev().find(|key| key.name == name)
    }
}

/// All definitions of a parameter file.
#[derive(Debug)]
pub(super) struct Definitions {
    /// Definitions in file order, each with the `default` definitions of its kind above it merged in.
    pub(super) found: Vec<Definition>,
    /// All `default` definitions of workloads, merged into one.
    pub(super) work: Definition,
}

/// Parses the definitions of a parameter file; adds errors to `trouble`.
pub(super) fn definitions(
    file: &str,
    text: &str,
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> Definitions {
    let mut defaults: Vec<Definition> = Vec::new();
    let mut found: Vec<Definition> = Vec::new();
    let file: Arc<str> = file.into();
    let mut all = 0;
    let mut hosts = LocalHosts::default();
    for (line, statement) in statements(text) {
        let location = FileLine { file: Arc::clone(&file), line };
        if trouble.is_full() {
            break;
        }
        let Some(keys) = keys(&location, &statement, trouble) else { continue };
        if is_unneeded(&location, &keys, &mut hosts, notes) {
            continue;
        }
        let Some(mut definition) = definition(&location, &keys, trouble) else { continue };
        hosts.leave_out(&mut definition, notes);
        let is_default = definition.name.eq_ignore_ascii_case("default");
        let before = defaults.iter().filter(|default| default.kind == definition.kind && !is_default);
        let own = std::mem::take(&mut definition.keys);
        all += before
            .clone()
            .flat_map(|default| &default.keys)
            .chain(&own)
            .map(VdbenchKey::weight)
            .sum::<usize>();
        if all > MOST_KEYS || found.len() == MOST_JOBS || own.iter().any(|key| key.values.len() > MOST_JOBS) {
            let why = format!(
                "accepted: up to {MOST_JOBS} definitions, {MOST_JOBS} values of a key and {MOST_KEYS} keys in all; split the file"
            );
            trouble.add(&location, format!("{}={}", definition.kind, definition.name), why);
            break;
        }
        if is_default {
            defaults.push(Definition { keys: own, ..definition });
            continue;
        }
        definition.keys = before.flat_map(|default| default.keys.clone()).chain(own).collect();
        let same = |other: &&Definition| other.kind == definition.kind && other.name == definition.name;
        if let Some(other) = found.iter().find(same) {
            let why = format!("it is defined in line {} already", other.location.line);
            trouble.add(&location, format!("{}={}", definition.kind, definition.name), why);
            continue;
        }
        found.push(definition);
    }
    let mut work = Definition {
        kind: "wd",
        name: "default".to_owned(),
        location: FileLine { file, line: 1 },
        keys: Vec::new(),
    };
    for default in defaults.into_iter().filter(|default| default.kind == "wd") {
        work.location = default.location;
        work.keys.extend(default.keys);
    }
    Definitions { found, work }
}

/// Splits a text into statements, each with the number of its first line. A line that ends in a comma continues on the next line. Text
/// after a blank is a comment, as are lines that start with `*`, `#` or `/`. A line that starts with `eof` ends the file.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("eof") {
            break;
        }
        if line.is_empty() || line.starts_with(['*', '#', '/']) {
            continue;
        }
        let said = line.split_whitespace().next().unwrap_or_default();
        match found.last_mut() {
            Some((_, before)) if before.ends_with(',') => before.push_str(said),
            _ => found.push((number, said.to_owned())),
        }
    }
    found
}

/// Host names that refer to this machine.
struct LocalHosts(Vec<String>);

impl Default for LocalHosts {
    fn default() -> Self {
        Self(vec!["default".to_owned(), "localhost".to_owned()])
    }
}

impl LocalHosts {
    /// Reads a host definition. Returns false if it names another machine or has `clients=`.
    fn take(&mut self, keys: &[VdbenchKey]) -> bool {
        let value =
            |key: &VdbenchKey| key.values.first().map(String::as_str).unwrap_or_default().to_lowercase();
        let name = keys.first().map(value).unwrap_or_default();
        let key = |name: &str| keys.iter().find(|key| key.name == name).map(value);
        let is_local = self.0.contains(&name) || key("system").is_some_and(|system| self.0.contains(&system));
        if is_local {
            self.0.push(name);
        }
        is_local && key("clients").is_none() && key("system").is_none_or(|system| self.0.contains(&system))
    }

    /// Removes `host=` keys that name only this machine, with a note.
    fn leave_out(&self, definition: &mut Definition, notes: &mut Vec<String>) {
        definition.keys.retain(|key| {
            let is_here =
                key.name == "host" && key.values.iter().all(|host| self.0.contains(&host.to_lowercase()));
            if is_here {
                notes.push(format!("{}: {}: it is this machine", key.location, key.quoted()));
            }
            !is_here
        });
    }
}

/// Returns whether a statement has no effect on the workload. If so, adds a note with the reason.
fn is_unneeded(
    location: &FileLine,
    keys: &[VdbenchKey],
    hosts: &mut LocalHosts,
    notes: &mut Vec<String>,
) -> bool {
    let Some(first) = keys.first() else { return false };
    let why = match UNNEEDED.iter().find(|(name, _)| *name == first.name) {
        Some((_, why)) => why,
        None if first.name == "hd" && hosts.take(keys) => {
            "it is this machine, whose threads are in one process"
        }
        None => return false,
    };
    notes.push(format!("{location}: {}: changes nothing here: {why}", first.quoted()));
    true
}

fn definition(location: &FileLine, keys: &[VdbenchKey], trouble: &mut LineErrors) -> Option<Definition> {
    let (first, keys) = keys.split_first()?;
    let Some(kind) = KINDS.into_iter().find(|kind| *kind == full("", &first.name)) else {
        let why = match first.name.as_str() {
            "hd" => HOSTS,
            "rg" => REPLAY,
            _ => "accepted at the start of a line: data_errors=, sd=, wd=, fsd=, fwd= or rd=",
        };
        trouble.add(location, first.quoted(), why.to_owned());
        return None;
    };
    let [name] = first.values.as_slice() else {
        trouble.add(location, first.quoted(), format!("accepted: one value, {kind}=VALUE"));
        return None;
    };
    let in_full = |key: &VdbenchKey| VdbenchKey { name: full(kind, &key.name), ..key.clone() };
    let keys = keys.iter().map(in_full).collect();
    Some(Definition { kind, name: name.clone(), location: location.clone(), keys })
}

/// Splits a statement into keys at commas outside of parentheses. A part without `=` is another value of the preceding key. `None` on an
/// error, which is added to `trouble`.
fn keys(location: &FileLine, statement: &str, trouble: &mut LineErrors) -> Option<Vec<VdbenchKey>> {
    let mut keys: Vec<VdbenchKey> = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    let ends = statement.char_indices().chain([(statement.len(), ',')]);
    for (at, c) in ends {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let part = &statement[start..at];
                start = at + 1;
                match (part.split_once('='), keys.last_mut()) {
                    (Some((name, value)), _) => keys.push(VdbenchKey {
                        name: name.trim().to_lowercase(),
                        written: name.trim().to_owned(),
                        values: values(value),
                        location: location.clone(),
                    }),
                    (None, _) if part.is_empty() => {}
                    (None, Some(before)) => before.values.extend(values(part)),
                    (None, None) => {
                        trouble.add(location, part.to_owned(), "accepted: key=value,key=value".to_owned());
                        return None;
                    }
                }
            }
            _ => {}
        }
    }
    if depth > 0 {
        trouble.add(location, statement.to_owned(), "a bracket is not closed".to_owned());
        return None;
    }
    Some(keys)
}

fn values(text: &str) -> Vec<String> {
    text.trim_matches(['(', ')']).split(',').map(|value| value.trim_matches('"').to_owned()).collect()
}
