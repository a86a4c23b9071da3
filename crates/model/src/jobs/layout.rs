//! From jobs to workloads: which run at once, and where on the target each finds its files.

use std::collections::{HashMap, HashSet};

use super::ini::Setting;
use super::{Jobs, Place, Trouble};
use crate::plan::MOST as MOST_AT_ONCE;
use crate::units::{Bytes, Nanos};
use crate::workload::{Verify, Workload};

/// Areas begin at multiples of this, so that no file's place changes how its I/O meets the blocks beneath.
const ALIGNMENT: u64 = 1 << 20;

/// A section of which every option is read.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// All but its area on the target.
    pub(super) workload: Workload,
    /// Of the section's header.
    pub(super) place: Place,
    /// Where the options stand that hold.
    pub(super) places: HashMap<&'static str, Place>,
    pub(super) name: String,
    pub(super) filename: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) size: Option<Bytes>,
    pub(super) increment: Option<Bytes>,
    pub(super) delay: Option<Nanos>,
    pub(super) stonewall: bool,
    pub(super) seed: Option<u64>,
}

impl Job {
    /// Complains about an option, or about the section if the option is not there.
    fn complain(&self, trouble: &mut Trouble, option: &str, why: String) {
        match self.places.get(option) {
            Some(place) => trouble.add(place, format!("{option} of [{}]", self.name), why),
            None => trouble.add(&self.place, format!("[{}]", self.name), why),
        }
    }

    fn clones(&self) -> u64 {
        self.workload.numjobs.into()
    }

    /// How many workloads it may become.
    fn count(&self) -> u64 {
        if self.workload.verify == Verify::None { 1 } else { self.clones() }
    }

    /// From one clone's start to the next one's within a file.
    fn step(&self) -> u64 {
        self.increment.map_or(0, |increment| increment.0)
    }

    /// Its workload, on its files. What verifies has a workload for each clone: no two may know of one another's blocks.
    fn on(&self, files: &Files) -> Vec<Workload> {
        let mut workload = self.workload.clone();
        workload.size = self.size;
        workload.startdelay = self.delay;
        workload.offset.0 = workload.offset.0.saturating_add(files.start);
        let Some(increment) = files.increment.filter(|_| workload.verify != Verify::None) else {
            workload.offset_increment = files.increment;
            return vec![workload];
        };
        let one = Workload { numjobs: 1, ..workload };
        let begin = |number: u64| Bytes(one.offset.0.saturating_add(number.saturating_mul(increment.0)));
        (0..self.clones()).map(|number| Workload { offset: begin(number), ..one.clone() }).collect()
    }

    /// How long a file must be for the clones that work on it with areas of `size`; absent beyond all numbers.
    fn file_length(&self, size: Bytes) -> Option<u64> {
        let begin = self.step().checked_mul(self.clones().saturating_sub(1))?;
        begin.checked_add(self.workload.offset.0)?.checked_add(size.0)?.checked_next_multiple_of(ALIGNMENT)
    }
}

/// What is said beside the result.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    /// Options that change nothing, by reason.
    unchanged: Vec<(&'static str, Vec<(String, Place)>)>,
    seen: HashSet<(&'static str, (String, Place))>,
    /// Everything else.
    pub(super) sentences: Vec<String>,
}

impl Notes {
    /// An option that changes nothing for this reason.
    pub(super) fn add(&mut self, setting: &Setting, why: &'static str) {
        let option = (setting.name.clone(), setting.place.clone());
        if !self.seen.insert((why, option.clone())) {
            return;
        }
        match self.unchanged.iter_mut().find(|(known, _)| *known == why) {
            Some((_, options)) => options.push(option),
            None => self.unchanged.push((why, vec![option])),
        }
    }

    fn into_lines(self) -> Vec<String> {
        let mut said = HashSet::new();
        let mut lines = self.sentences;
        lines.retain(|sentence| said.insert(sentence.clone()));
        lines.extend(self.unchanged.into_iter().map(|(why, options)| {
            let options: Vec<_> =
                options.iter().map(|(name, place)| format!("{name} (line {})", place.line)).collect();
            format!("{}: changes nothing here: {why}", options.join(", "))
        }));
        lines
    }
}

/// Puts jobs side by side, and after one another where a stonewall is.
pub(super) fn lay_out(jobs: Vec<Job>, mut notes: Notes, trouble: &mut Trouble) -> Jobs {
    let mut filenames: Vec<(Place, String)> = Vec::new();
    let mut seen = HashSet::new();
    for job in &jobs {
        if let Some(name) = &job.filename
            && seen.insert(name)
        {
            filenames.push((job.places.get("filename").unwrap_or(&job.place).clone(), name.clone()));
        }
    }
    let own_files = jobs.iter().any(|job| job.filename.is_none());
    let directory = jobs.iter().find_map(|job| job.directory.clone());
    let seed = jobs.iter().find_map(|job| job.seed);
    let mut groups: Vec<Vec<Job>> = Vec::new();
    for job in jobs {
        match groups.last_mut().filter(|_| !job.stonewall) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    if groups.len() > 1 {
        notes.sentences.push(
            "stonewall: what it keeps apart is measured apart, in an order that each block draws; files are filled beforehand".into(),
        );
    }
    let mut workloads: Vec<Workload> = Vec::new();
    let mut names = Names::default();
    for group in groups {
        let Some(mut workload) = together(&group, &mut notes, trouble) else { continue };
        names.tell_apart(&mut workload);
        workloads.push(workload);
    }
    Jobs { workloads, filenames, own_files, directory, seed, notes: notes.into_lines() }
}

/// Jobs that run at once, as one workload.
fn together(group: &[Job], notes: &mut Notes, trouble: &mut Trouble) -> Option<Workload> {
    let first = group.first()?;
    for job in group {
        if job.workload.ramp_time != first.workload.ramp_time {
            let why = format!(
                "[{}] has {}: jobs at the same time have one window; give them the same ramp_time",
                first.name, first.workload.ramp_time
            );
            job.complain(trouble, "ramp_time", why);
        }
    }
    if group.iter().map(Job::count).fold(0, u64::saturating_add) > MOST_AT_ONCE as u64 {
        let why = format!(
            "accepted: up to {MOST_AT_ONCE} jobs at the same time, and with verify as many clones of them"
        );
        first.complain(trouble, "numjobs", why);
        return None;
    }
    let mut workloads: Vec<Workload> = Vec::new();
    let mut names = Names::default();
    for (job, files) in group.iter().zip(place(group, notes, trouble)?) {
        for mut workload in job.on(&files) {
            if let Err(error) = workload.check() {
                job.complain(trouble, error.key, error.accepted);
            }
            names.tell_apart(&mut workload);
            workloads.push(workload);
        }
    }
    let name = workloads.iter().map(|workload| workload.name.as_str()).collect::<Vec<_>>().join("+");
    let mut workloads = workloads.into_iter();
    let mut workload = workloads.next()?;
    workload.beside = workloads.collect();
    workload.name = name;
    if let Err(error) = workload.check() {
        first.complain(trouble, error.key, error.accepted);
    }
    Some(workload)
}

/// The names of workloads so far.
#[derive(Default)]
struct Names {
    taken: HashSet<String>,
    /// The last number that a name got.
    numbers: HashMap<String, usize>,
}

impl Names {
    /// Numbers a workload whose name another one has.
    fn tell_apart(&mut self, workload: &mut Workload) {
        let name = workload.name.clone();
        let number = self.numbers.entry(name.clone()).or_insert(1);
        while !self.taken.insert(workload.name.clone()) {
            *number += 1;
            workload.name = format!("{name}-{number}");
        }
    }
}

/// Where a job finds what fio has in files.
struct Files {
    /// Where its first file begins on the target.
    start: u64,
    /// From one clone's offset to the next one's.
    increment: Option<Bytes>,
}

/// Puts the files of a group side by side.
fn place(group: &[Job], notes: &mut Notes, trouble: &mut Trouble) -> Option<Vec<Files>> {
    let distinct = distinct_files(group);
    if distinct > 1 {
        notes.sentences.push("files: those of fio are areas of one target here, side by side".into());
    }
    let mut room = Room { group, starts: HashMap::new(), end: 0 };
    let mut found = Vec::new();
    for job in group {
        let Some(size) = job.size else {
            let alike = job.clones() == 1 || (job.workload.rw.is_random() && job.increment.is_none());
            if group.len() == 1 && job.filename.is_some() && alike {
                // The whole of what is there.
                return Some(vec![Files { start: 0, increment: None }]);
            }
            job.complain(trouble, "size", "size is not given, and is needed here: such as size = 1g".into());
            return None;
        };
        // Files end at 2^63 at the latest.
        let files = room.take(job, size).filter(|_| i64::try_from(room.end).is_ok());
        if files.is_none() {
            job.complain(trouble, "size", "it ends beyond any file".into());
        }
        found.push(files?);
    }
    Some(found)
}

/// What of the target is given away.
struct Room<'a> {
    group: &'a [Job],
    /// Where files begin that have a name.
    starts: HashMap<&'a str, u64>,
    end: u64,
}

impl<'a> Room<'a> {
    /// Room for the files of a job with areas of `size`; absent beyond all numbers.
    fn take(&mut self, job: &'a Job, size: Bytes) -> Option<Files> {
        let clones = job.clones();
        let Some(name) = job.filename.as_deref() else {
            let length = job.file_length(size)?;
            let increment = Bytes(length.checked_add(job.step())?);
            let files = Files { start: self.end, increment: (clones > 1).then_some(increment) };
            self.end = self.end.checked_add(length.checked_mul(clones)?)?;
            return Some(files);
        };
        let start = self.starts.get(name).copied();
        let start = start.or_else(|| {
            let users = self.group.iter().filter(|other| other.filename.as_deref() == Some(name));
            let lengths = users.filter_map(|user| Some(user.file_length(user.size?)));
            let length = lengths.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
            let start = self.end;
            self.end = start.checked_add(length)?;
            self.starts.insert(name, start);
            Some(start)
        })?;
        // Without it sequential clones would divide the file, where fio has each go through all of it.
        let shared = (clones > 1 && !job.workload.rw.is_random()).then_some(Bytes(0));
        Some(Files { start, increment: job.increment.filter(|_| clones > 1).or(shared) })
    }
}

/// How many files fio would have.
fn distinct_files(group: &[Job]) -> u64 {
    let mut names: Vec<&str> = group.iter().filter_map(|job| job.filename.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    let own = group.iter().filter(|job| job.filename.is_none()).map(Job::clones);
    names.len() as u64 + own.sum::<u64>()
}
