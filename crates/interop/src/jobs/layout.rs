//! Converts jobs to workloads: groups concurrent jobs, and assigns an area of the target to each job.

use std::collections::{HashMap, HashSet};

use super::ini::OptionLine;
use super::{FileLine, Jobs, LineErrors};
use iotax_model::plan::MOST as MOST_AT_ONCE;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{FileLayout, Kind, Verify, Workload, WorkloadError};

/// Alignment of each job's area in bytes, so that I/O is aligned as in a separate file.
const ALIGNMENT: u64 = 1 << 20;

/// A section whose options have all been parsed.
#[derive(Debug, Clone)]
pub(super) struct SectionJob {
    /// Workload of the job; its area on the target is not set yet.
    pub(super) workload: Workload,
    /// Position of the section's header in the file.
    pub(super) location: FileLine,
    /// Positions of the options in effect, by name.
    pub(super) locations: HashMap<&'static str, FileLine>,
    pub(super) name: String,
    pub(super) filename: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) size: Option<Bytes>,
    pub(super) increment: Option<Bytes>,
    pub(super) delay: Option<Nanos>,
    pub(super) stonewall: bool,
    /// Name of an earlier job that must have ended before this one starts.
    pub(super) wait_for: Option<String>,
    pub(super) flow_id: u64,
    pub(super) seed: Option<u64>,
}

impl SectionJob {
    /// Reports an error at the position of an option, or of the section if the option is not set.
    fn complain(&self, trouble: &mut LineErrors, option: &str, why: String) {
        match self.locations.get(option) {
            Some(location) => trouble.add(location, format!("{option} of [{}]", self.name), why),
            None => trouble.add(&self.location, format!("[{}]", self.name), why),
        }
    }

    /// Reports an invalid workload key, at the position of its option if the file sets it.
    fn refuse(&self, trouble: &mut LineErrors, error: &WorkloadError) {
        let location = self.locations.get(error.key).unwrap_or(&self.location);
        trouble.add(location, format!("[{}]", self.name), error.reason());
    }

    fn clones(&self) -> u64 {
        self.workload.numjobs.into()
    }

    /// Returns the maximum number of workloads to which the job is converted.
    fn count(&self) -> u64 {
        if self.workload.verify == Verify::None { 1 } else { self.clones() }
    }

    /// Returns the distance in bytes between the starts of two clones in a file (`offset_increment`).
    fn step(&self) -> u64 {
        self.increment.map_or(0, |increment| increment.0)
    }

    /// Returns the workloads of the job on `files`: one per clone if it verifies and `files` has an increment, because clones must not
    /// write the same blocks; otherwise one.
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

    /// Returns the length in bytes of a file that holds the areas of all clones, each of `size`; `None` on overflow.
    fn file_length(&self, size: Bytes) -> Option<u64> {
        let begin = self.step().checked_mul(self.clones().saturating_sub(1))?;
        begin.checked_add(self.workload.offset.0)?.checked_add(size.0)?.checked_next_multiple_of(ALIGNMENT)
    }
}

/// Notes on the conversion, for the user.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    /// Options without effect, grouped by the reason.
    unchanged: Vec<(&'static str, Vec<(String, FileLine)>)>,
    seen: HashSet<(&'static str, (String, FileLine))>,
    /// Notes other than those on options without effect.
    pub(super) sentences: Vec<String>,
}

impl Notes {
    /// Adds a note that an option has no effect, with the reason.
    pub(super) fn add(&mut self, setting: &OptionLine, why: &'static str) {
        let option = (setting.name.clone(), setting.location.clone());
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
                options.iter().map(|(name, location)| format!("{name} (line {})", location.line)).collect();
            format!("{}: changes nothing here: {why}", options.join(", "))
        }));
        lines
    }
}

/// Groups concurrent jobs into workloads; `stonewall`, or a `wait_for` for all earlier jobs, starts a new group. Adds errors to `trouble`.
pub(super) fn lay_out(jobs: Vec<SectionJob>, mut notes: Notes, trouble: &mut LineErrors) -> Jobs {
    let mut filenames: Vec<(FileLine, String)> = Vec::new();
    let mut seen = HashSet::new();
    for job in &jobs {
        if let Some(name) = &job.filename
            && seen.insert(name)
        {
            filenames.push((job.locations.get("filename").unwrap_or(&job.location).clone(), name.clone()));
        }
    }
    let own_files = jobs.iter().any(|job| job.filename.is_none());
    let directory = jobs.iter().find_map(|job| job.directory.clone());
    let seed = jobs.iter().find_map(|job| job.seed);
    let mut groups: Vec<Vec<SectionJob>> = Vec::new();
    for job in jobs {
        let waits = job.stonewall || waits_for_all(&job, &groups, trouble);
        match groups.last_mut().filter(|_| !waits) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    once_new(&mut groups);
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
    Jobs { workloads, filenames, own_files, directory, seed, curve: None, notes: notes.into_lines() }
}

/// Returns whether a job starts after all earlier jobs, because its `wait_for` names a job of the last group. Adds an error if no earlier
/// job has the name, or if other jobs of the last group would go on.
fn waits_for_all(job: &SectionJob, groups: &[Vec<SectionJob>], trouble: &mut LineErrors) -> bool {
    let Some(name) = &job.wait_for else { return false };
    let Some(group) = groups.iter().rposition(|group| group.iter().any(|other| other.name == *name)) else {
        job.complain(trouble, "wait_for", format!("no job before it is called {name:?}"));
        return false;
    };
    let is_last = group + 1 == groups.len();
    if is_last && groups[group].iter().any(|other| other.name != *name) {
        let why = "other jobs would go on meanwhile; accepted: a job that runs alone, or stonewall, which waits for all";
        job.complain(trouble, "wait_for", why.into());
    }
    is_last
}

/// Marks a file as filled in all groups after the first one that uses it, because the first group has written it.
fn once_new(groups: &mut [Vec<SectionJob>]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (number, job) in groups
        .iter_mut()
        .enumerate()
        .flat_map(|(number, group)| group.iter_mut().map(move |job| (number, job)))
    {
        let Some(name) = &job.filename else { continue };
        if *seen.entry(name.clone()).or_insert(number) != number {
            job.workload.layout = FileLayout::Filled;
        }
    }
}

/// Marks an area for filling before the run if another job reads it concurrently, because reads of unwritten blocks do no I/O.
fn fill_for_readers(workloads: &mut [Workload], notes: &mut Notes) {
    let area = |job: &Workload| {
        let length = job.size.and_then(|size| job.span(size)).map_or(0, |span| span.0);
        job.offset.0..job.offset.0.saturating_add(length)
    };
    let filled: Vec<_> = workloads.iter().filter(|job| job.layout == FileLayout::Filled).map(area).collect();
    for job in workloads.iter_mut().filter(|job| job.layout != FileLayout::Filled) {
        let own = area(job);
        if filled.iter().any(|other| own.start < other.end && other.start < own.end) {
            job.layout = FileLayout::Filled;
            notes
                .sentences
                .push(format!("{}: its file is filled beforehand, as another job reads it", job.name));
        }
    }
}

/// Combines the jobs of a group into one workload with concurrent jobs. Adds errors to `trouble`; returns `None` if an error leaves no
/// workload.
fn together(group: &[SectionJob], notes: &mut Notes, trouble: &mut LineErrors) -> Option<Workload> {
    let first = group.first()?;
    if let Some(other) = group.iter().find(|job| job.workload.flow.is_some() && job.flow_id != first.flow_id)
    {
        other.complain(trouble, "flow_id", "jobs at the same time have one flow; leave it out".into());
    }
    for job in group {
        if job.workload.ramp_time != first.workload.ramp_time {
            let why = format!(
                "[{}] has {}: jobs at the same time have one window; give them the same ramp_time",
                first.name, first.workload.ramp_time
            );
            job.complain(trouble, "ramp_time", why);
        }
    }
    if group.iter().map(SectionJob::count).fold(0, u64::saturating_add) > MOST_AT_ONCE as u64 {
        let why = format!(
            "accepted: up to {MOST_AT_ONCE} jobs at the same time, and with verify as many clones of them"
        );
        first.complain(trouble, "numjobs", why);
        return None;
    }
    if group.iter().any(|job| matches!(job.workload.kind, Kind::Files(_) | Kind::Foreign)) {
        return on_files(group, notes, trouble);
    }
    let mut workloads: Vec<Workload> = Vec::new();
    let mut names = Names::default();
    for (job, files) in group.iter().zip(assign_areas(group, notes, trouble)?) {
        for mut workload in job.on(&files) {
            if let Err(error) = workload.check() {
                job.refuse(trouble, &error);
            }
            names.tell_apart(&mut workload);
            workloads.push(workload);
        }
    }
    fill_for_readers(&mut workloads, notes);
    let name = workloads.iter().map(|workload| workload.name.as_str()).collect::<Vec<_>>().join("+");
    let mut workloads = workloads.into_iter();
    let mut workload = workloads.next()?;
    workload.beside = workloads.collect();
    workload.name = name;
    if let Err(error) = workload.check() {
        first.refuse(trouble, &error);
    }
    Some(workload)
}

/// Combines jobs of a test other than block I/O into one workload with the threads of all; `None`, with an error in `trouble`, if the jobs
/// differ in more than name and number of clones.
fn on_files(group: &[SectionJob], notes: &mut Notes, trouble: &mut LineErrors) -> Option<Workload> {
    let (first, last) = (group.first()?, group.last()?);
    let kind = |job: &SectionJob| Workload { name: String::new(), numjobs: 1, ..job.workload.clone() };
    if let Some(other) = group.iter().find(|job| kind(job) != kind(first) || job.delay != first.delay) {
        let why =
            format!("[{}] does something else at the same time; put a stonewall between them", first.name);
        other.complain(trouble, "ioengine", why);
        return None;
    }
    let mut workload = first.workload.clone();
    workload.startdelay = first.delay;
    if group.len() > 1 {
        workload.numjobs = group.iter().map(|job| job.workload.numjobs).fold(0, u32::saturating_add);
        workload.name = format!("{}..{}", first.name, last.name);
        notes.sentences.push(format!(
            "{}: they are alike, and one workload of {} threads, whose figures are reported together",
            workload.name, workload.numjobs
        ));
    }
    if let Err(error) = workload.check() {
        first.refuse(trouble, &error);
    }
    Some(workload)
}

/// Workload names in use.
#[derive(Default)]
struct Names {
    taken: HashSet<String>,
    /// Last number that was appended to each name.
    numbers: HashMap<String, usize>,
}

impl Names {
    /// Appends a number to the name of a workload if the name is taken.
    fn tell_apart(&mut self, workload: &mut Workload) {
        let name = workload.name.clone();
        let number = self.numbers.entry(name.clone()).or_insert(1);
        while !self.taken.insert(workload.name.clone()) {
            *number += 1;
            workload.name = format!("{name}-{number}");
        }
    }
}

/// Position of a job's files on the target.
struct Files {
    /// Start of the first file in bytes.
    start: u64,
    /// Distance in bytes between the starts of two clones; 0 if sequential clones each access the whole file. `None` for a single clone,
    /// and for random clones that share the area.
    increment: Option<Bytes>,
}

/// Places the files of a group one after another on the target; `None`, with an error in `trouble`, if sizes are missing or too large.
fn assign_areas(group: &[SectionJob], notes: &mut Notes, trouble: &mut LineErrors) -> Option<Vec<Files>> {
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
                // The job gets the whole target.
                return Some(vec![Files { start: 0, increment: None }]);
            }
            job.complain(trouble, "size", "size is not given, and is needed here: such as size = 1g".into());
            return None;
        };
        // Files end at 2^63 at most.
        let files = room.take(job, size).filter(|_| i64::try_from(room.end).is_ok());
        if files.is_none() {
            job.complain(trouble, "size", "it ends beyond any file".into());
        }
        found.push(files?);
    }
    Some(found)
}

/// Allocator of areas for files on the target.
struct Room<'a> {
    group: &'a [SectionJob],
    /// Start in bytes of each file with a name.
    starts: HashMap<&'a str, u64>,
    end: u64,
}

impl<'a> Room<'a> {
    /// Allocates the files of a job whose clones have areas of `size`; `None` on overflow.
    fn take(&mut self, job: &'a SectionJob, size: Bytes) -> Option<Files> {
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
        // Otherwise sequential clones would split the file; in fio each clone reads the whole file.
        let shared = (clones > 1 && !job.workload.rw.is_random()).then_some(Bytes(0));
        Some(Files { start, increment: job.increment.filter(|_| clones > 1).or(shared) })
    }
}

/// Returns the number of distinct files that fio would use for a group.
fn distinct_files(group: &[SectionJob]) -> u64 {
    let mut names: Vec<&str> = group.iter().filter_map(|job| job.filename.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    let own = group.iter().filter(|job| job.filename.is_none()).map(SectionJob::clones);
    names.len() as u64 + own.sum::<u64>()
}
