//! Converts imported results to runs: one per tool, whose plan has the settings that are known.

use std::collections::{BTreeMap, HashMap, HashSet};

use iotax_model::record::{Dated, ImportSource, ImportedMetrics, Measurement, Outcome, Tallies};
use iotax_model::workload::WorkloadKeys;
use iotax_model::{Plan, TargetSpec};

use super::{Entry, Found};

/// Maximum length of a target's name in a plan, in characters.
const LONGEST: usize = 40;

/// A run of another tool, ready to be stored. Its plan can be shown and compared but not run, because its targets have only names.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Plan with the targets and workloads; the first target is the baseline.
    pub plan: Plan,
    /// Measurements in compact form: with tens of thousands of rows, most of each [`Measurement`] would be empty.
    rows: Vec<Row>,
    /// Name of the tool, and the files with its output.
    pub source: ImportSource,
    /// Start of the first measurement, in milliseconds since 1970-01-01 UTC; `None` if no file has it.
    pub started_at_ms: Option<u64>,
    /// Position of each target in the plan, by the label and the target name of its results; either may be missing.
    names: HashMap<(Option<String>, Option<String>), usize>,
    /// Target names in use, and the last number that was appended to each.
    taken: HashSet<String>,
    numbers: HashMap<String, usize>,
    /// Index in the plan of each workload, by its name in the text and its keys.
    workloads: HashMap<(String, String), usize>,
    numbered: HashMap<String, usize>,
    /// Number of measurements so far per target and workload index.
    rounds: HashMap<(usize, usize), u32>,
}

/// An imported measurement in compact form.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    /// Index of the target in the plan.
    target: usize,
    workload: usize,
    round: u32,
    started_at_ms: u64,
    duration_ns: u64,
    /// I/O counts and histograms; `None` if the text has no histograms.
    tallies: Option<Box<Tallies>>,
    stated: ImportedMetrics,
    notes: Vec<String>,
}

/// Converts the results found in files, each given by its name, to runs. The runs are one per tool, in the order of the tools' first appearance.
///
/// Entries of the same target and workload are repetitions and become rounds. If they are under different headings, each heading becomes a separate
/// target instead. `label` replaces all headings.
#[must_use]
pub fn runs(files: Vec<(String, Vec<Found>)>, label: Option<&str>) -> Vec<Imported> {
    let mut runs: Vec<Imported> = Vec::new();
    let apart = if label.is_some() { HashSet::new() } else { apart(&files) };
    for (file, all) in files {
        for mut found in all {
            if label.is_some() || !apart.contains(found.tool) {
                found.entries.iter_mut().for_each(|entry| entry.label = label.map(str::to_owned));
            }
            let slot = runs.iter().position(|run| run.source.tool == found.tool).unwrap_or_else(|| {
                runs.push(empty(found.tool));
                runs.len() - 1
            });
            add(&mut runs[slot], &file, found);
        }
    }
    for run in &mut runs {
        run.finish();
    }
    runs
}

/// Returns the tools whose results have the same target and workload under different headings.
fn apart(files: &[(String, Vec<Found>)]) -> HashSet<&'static str> {
    let mut labels = HashMap::new();
    let mut apart = HashSet::new();
    for found in files.iter().flat_map(|(_, all)| all) {
        for entry in &found.entries {
            let label = &entry.label;
            let first = labels.entry((found.tool, &entry.target, &entry.workload)).or_insert(label);
            if *first != label {
                apart.insert(found.tool);
            }
        }
    }
    apart
}

fn empty(tool: &str) -> Imported {
    let plan = Plan::new(String::new(), vec![], vec![]);
    let source = ImportSource {
        tool: tool.to_owned(),
        version: None,
        files: vec![],
        dated: Some(Dated::ByImport),
        known: BTreeMap::new(),
        not_understood: vec![],
    };
    Imported {
        plan,
        rows: vec![],
        source,
        started_at_ms: None,
        names: HashMap::new(),
        taken: HashSet::new(),
        numbers: HashMap::new(),
        workloads: HashMap::new(),
        numbered: HashMap::new(),
        rounds: HashMap::new(),
    }
}

fn add(run: &mut Imported, file: &str, found: Found) {
    run.source.files.push(file.to_owned());
    match (&mut run.source.version, &found.version) {
        (Some(known), Some(version)) if !known.split(", ").any(|one| one == version) => {
            known.push_str(", ");
            known.push_str(version);
        }
        (known @ None, Some(version)) => *known = Some(version.clone()),
        _ => {}
    }
    run.source.not_understood.extend(found.not_understood.iter().map(|line| line.of_file(file)));
    for entry in found.entries {
        run.add(entry);
    }
}

impl Imported {
    /// Returns the headings that distinguish results of the same target and workload, in the order of the text.
    #[must_use]
    pub fn labels(&self) -> Vec<&str> {
        let mut labels: Vec<(usize, &str)> =
            self.names.iter().filter_map(|((label, _), slot)| Some((*slot, label.as_deref()?))).collect();
        labels.sort_unstable();
        labels.dedup_by_key(|(_, label)| *label);
        labels.into_iter().map(|(_, label)| label).collect()
    }

    /// Returns the measurements in the order of the text. The n-th measurement of a target and workload is round n.
    pub fn measurements(&self) -> impl ExactSizeIterator<Item = Measurement> {
        self.rows.iter().enumerate().map(|(index, row)| Measurement {
            target: self.plan.targets[row.target].name.clone(),
            workload: self.plan.workloads[row.workload].name.clone(),
            round: row.round,
            order: u32::try_from(index + 1).unwrap_or(u32::MAX),
            started_at_ms: row.started_at_ms,
            outcome: Outcome {
                duration_ns: row.duration_ns,
                tallies: row.tallies.as_deref().cloned().unwrap_or_default(),
                notes: row.notes.clone(),
                ..Outcome::default()
            },
            stated: Some(row.stated.clone()),
            ..Measurement::default()
        })
    }

    fn add(&mut self, entry: Entry) {
        let target = self.target(entry.label.as_deref(), entry.target.as_deref());
        let workload = self.workload(&entry);
        let known = self.rounds.entry((target, workload)).or_default();
        *known = known.saturating_add(1);
        let round = *known;
        self.plan.repeat = self.plan.repeat.max(round);
        if let Some(time) = entry.time.filter(|time| self.started_at_ms.is_none_or(|first| time.ms < first)) {
            self.started_at_ms = Some(time.ms);
            self.source.dated =
                Some(if time.has_zone { Dated::BySource } else { Dated::BySourceWithoutZone });
        }
        self.rows.push(Row {
            target,
            workload,
            round,
            started_at_ms: entry.time.map_or(0, |time| time.ms),
            duration_ns: entry.duration_ns.unwrap_or_default(),
            tallies: entry.tallies,
            stated: entry.stated,
            notes: entry.notes,
        });
    }

    /// Returns the index of the target with this label and name. Adds the target if it is new, with a number appended if its name is taken.
    fn target(&mut self, label: Option<&str>, reported: Option<&str>) -> usize {
        let key = (label.map(str::to_owned), reported.map(str::to_owned));
        if let Some(slot) = self.names.get(&key) {
            return *slot;
        }
        let plain = match (label, reported) {
            (Some(label), Some(reported)) => {
                let label: String = simple(label, "").chars().take(LONGEST / 2).collect();
                let reported = simple(reported, "");
                let beyond = reported.chars().count().saturating_sub(LONGEST - 1 - label.chars().count());
                format!("{label}-{}", reported.chars().skip(beyond).collect::<String>())
            }
            (one, other) => simple(one.or(other).unwrap_or(&self.source.tool), ""),
        };
        let number = self.numbers.entry(plain.clone()).or_default();
        let name = loop {
            *number += 1;
            let name = if *number == 1 { plain.clone() } else { simple(&plain, &format!("-{number}")) };
            if self.taken.insert(name.clone()) {
                break name;
            }
        };
        let slot = self.plan.targets.len();
        self.plan.targets.push(TargetSpec { name, ..TargetSpec::default() });
        self.names.insert(key, slot);
        slot
    }

    /// Returns the index of the entry's workload. Adds the workload if it is new, with a number appended if its name is taken.
    fn workload(&mut self, entry: &Entry) -> usize {
        let tree = serde_json::to_value(&entry.keys).unwrap_or_default();
        let alike = (entry.workload.clone(), tree.to_string());
        if let Some(slot) = self.workloads.get(&alike) {
            return *slot;
        }
        let is_new = |name: &String| !self.source.known.contains_key(name);
        let number = self.numbered.entry(entry.workload.clone()).or_default();
        let name = loop {
            *number += 1;
            let name =
                if *number == 1 { entry.workload.clone() } else { format!("{}-{number}", entry.workload) };
            if is_new(&name) {
                break name;
            }
        };
        let mut keys = WorkloadKeys { name: Some(name.clone()), ..(*entry.keys).clone() };
        if keys.rw.is_none() && keys.test.is_none() {
            keys.foreign = true;
        }
        let slot = self.plan.workloads.len();
        self.plan.workloads.push(keys.complete(&WorkloadKeys::default()));
        self.source.known.insert(name, known(&entry.keys, &tree));
        self.workloads.insert(alike, slot);
        slot
    }

    fn finish(&mut self) {
        self.plan.baseline = self.plan.targets.first().map(|target| target.name.clone()).unwrap_or_default();
        let mut files = self.source.files.clone();
        files.dedup();
        self.plan.name = format!("{} of {}", self.source.tool, files.join(", "));
        self.source.files = files;
    }
}

/// Returns the names of the keys whose values are known: those that are set, and always `test` and `foreign`. An unset `test` means that
/// the workload is plain I/O.
fn known(keys: &WorkloadKeys, tree: &serde_json::Value) -> Vec<String> {
    let set = tree.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
    let mut known: Vec<String> = set.map(|(key, _)| key.clone()).collect();
    if keys.test.is_none() {
        known.push("test".into());
    }
    known.push("foreign".into());
    known
}

/// Converts a text to a valid name in a plan, and appends `end`.
fn simple(text: &str, end: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_.".contains(c);
    let parts: Vec<&str> = text.split(|c| !plain(c)).filter(|part| !part.is_empty()).collect();
    let name = parts.join("-");
    // The end of a name is more specific than its beginning: the file name in a path.
    let beyond = name.chars().count().saturating_sub(LONGEST - end.len());
    let name: String = name.chars().skip(beyond).collect();
    let name = name.trim_start_matches(['.', '-']);
    format!("{}{end}", if name.is_empty() { "unnamed" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_tells_apart_stays_apart() {
        let long = "a/very/long/path/whose/last/forty/characters/are/the/same.dat";
        let reported =
            ["/dev/sda", "dev-sda", "/dev/sda", "\u{1f4be}", "\u{1f4bf}", "\u{30c7}1", "\u{30c8}1", long];
        let entry = |reported: &str| Entry {
            target: Some(reported.into()),
            workload: "w".into(),
            ..Entry::default()
        };
        let mut entries: Vec<Entry> = reported.iter().map(|reported| entry(reported)).collect();
        entries.push(entry(&format!("another/{long}")));
        let run = runs(vec![("f".into(), vec![Found { tool: "fio", entries, ..Found::default() }])], None)
            .remove(0);
        let names: Vec<String> = run.measurements().map(|m| m.target).collect();
        assert_eq!(names[..5], ["dev-sda", "dev-sda-2", "dev-sda", "unnamed", "unnamed-2"]);
        assert_eq!(
            (names[5].as_str(), names[6].as_str(), run.plan.targets.len()),
            ("\u{30c7}1", "\u{30c8}1", 8)
        );
        assert!(names.iter().all(|name| name.chars().count() <= LONGEST), "{names:?}");
        assert_eq!(run.measurements().map(|m| m.round).collect::<Vec<_>>(), [1, 1, 2, 1, 1, 1, 1, 1, 1]);
    }
}
