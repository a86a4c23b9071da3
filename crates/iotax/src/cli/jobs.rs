//! Job files of fio and parameter files of vdbench on the command line: what they become, and on which targets.

use std::path::{Path, PathBuf};

use clap::Args;
use iotax_model::exit::Exit;
use iotax_model::jobs::{self, Included, Jobs, MachineKeywords, Surroundings, vdbench};
use iotax_model::plan::Plan;
use iotax_model::target::{FileSpec, TargetSpec};
use iotax_testbed::device::Permission;

use super::say::say;
use super::{Failure, OrExit, input, target_args, usage};

/// How many rounds a job file is measured in when nothing is said.
const REPEAT: u32 = 3;

/// What a job file leaves to the command line.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct JobFlags {
    /// Do a job file's work here, instead of where it says: a file, directory or block device, ssh://user@host/path, RUNG:DIR
    /// for a rung of the ladder, or PLAN.toml for its targets (several: repeat; the first is the baseline)
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Of a job file, only this section (several: repeat)
    #[arg(long, value_name = "NAME")]
    section: Vec<String>,
}

/// Whether a file is meant as a job file or a parameter file: by its name, or by what is in it.
pub(super) fn is_meant(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("fio" | "job") => true,
        Some("toml") => false,
        _ => jobs::is_job_file(text) || vdbench::is_meant(text),
    }
}

/// Reads a job file or a parameter file, and says what it means here.
pub(super) fn read(path: &Path, text: &str, sections: &[String]) -> Result<Jobs, Failure> {
    let around =
        Surroundings { include: &included, variable: &|name| std::env::var(name).ok(), machine: machine() };
    let name = path.display().to_string();
    let jobs = match (vdbench::is_meant(text), sections) {
        (false, sections) => jobs::read(&name, text, sections, &around),
        (true, []) => vdbench::read(&name, text),
        (true, [section, ..]) => {
            return Err(usage(format!(
                "--section {section}: it is for job files of fio, and {name} is a parameter file of vdbench"
            )));
        }
    };
    let jobs = jobs.or_exit(Exit::Usage)?;
    for note in &jobs.notes {
        say!("note: {note}");
    }
    Ok(jobs)
}

impl JobFlags {
    /// The plan that a job file stands for.
    pub(super) fn plan(&self, path: &Path, text: &str, permission: &Permission) -> Result<Plan, Failure> {
        let jobs = read(path, text, &self.section)?;
        let targets = if self.target.is_empty() {
            vec![target_of(&jobs, permission)?]
        } else {
            target_args::targets(&self.target, false, permission)?
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Plan { repeat: REPEAT, seed: jobs.seed, ..Plan::new(name, targets, jobs.workloads) })
    }

    /// Refuses flags that a plan file has no use for.
    pub(super) fn refuse_for_plan(&self, path: &Path) -> Result<(), Failure> {
        let given = [("--target", &self.target), ("--section", &self.section)];
        match given.iter().find_map(|(flag, values)| Some((flag, values.first()?))) {
            Some((flag, value)) => Err(usage(format!(
                "{flag} {value}: it is for job files, and {} is a plan, which says so itself",
                path.display()
            ))),
            None => Ok(()),
        }
    }
}

/// Where a job file has its work done: the one file that all of it names, else a new file where its files would be.
fn target_of(jobs: &Jobs, permission: &Permission) -> Result<TargetSpec, Failure> {
    let base = jobs.directory.as_deref().map_or_else(|| PathBuf::from("."), PathBuf::from);
    if let ([(_, name)], false) = (jobs.filenames.as_slice(), jobs.own_files) {
        return target_args::target(&base.join(name), false, false, permission);
    }
    if let Some((line, name)) = jobs.filenames.iter().find(|(_, name)| base.join(name).exists()) {
        return Err(usage(format!("{line}: {name}: it exists, and not all jobs are about it; {ONE_TARGET}")));
    }
    let file = FileSpec { dir: Some(common_directory(jobs, &base)?), ..FileSpec::default() };
    Ok(TargetSpec { name: "file".into(), file: Some(file), ..TargetSpec::default() })
}

const ONE_TARGET: &str =
    "a plan measures all jobs on one target: give it with --target, or take one section with --section";

/// The directory that all files are in; one elsewhere may be on another disk. What has no name is in `base`.
fn common_directory(jobs: &Jobs, base: &Path) -> Result<PathBuf, Failure> {
    let of = |name: &str| base.join(name).parent().map_or_else(|| base.to_path_buf(), Path::to_path_buf);
    let named = jobs.filenames.first().filter(|_| !jobs.own_files).map(|(_, name)| of(name));
    let first = named.unwrap_or_else(|| base.to_path_buf());
    match jobs.filenames.iter().map(|(line, name)| (line, name, of(name))).find(|(.., of)| *of != first) {
        Some((line, name, of)) => Err(usage(format!(
            "{line}: {name}: it is in {}, and not all files are, but in {}; {ONE_TARGET}",
            of.display(),
            first.display()
        ))),
        None => Ok(first),
    }
}

/// A file that another one includes: as it is named, or beside that one.
fn included(including: &str, name: &str) -> Result<Included, String> {
    let beside = Path::new(including).parent().map(|directory| directory.join(name));
    let named = Path::new(name).to_path_buf();
    let path = if named.exists() { named } else { beside.unwrap_or(named) };
    match input::text(&path, input::PLAN) {
        Ok(text) => Ok(Included { file: path.display().to_string(), text }),
        Err(failure) => Err(failure.error.to_string()),
    }
}

fn machine() -> MachineKeywords {
    let memory = rustix::system::sysinfo();
    MachineKeywords {
        pagesize: rustix::param::page_size() as u64,
        mb_memory: (memory.totalram as u64).saturating_mul(memory.mem_unit.into()) >> 20,
        ncpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
    }
}
