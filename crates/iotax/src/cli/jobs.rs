//! fio job files and vdbench parameter files on the command line, turned into plans.

use std::path::{Path, PathBuf};

use clap::Args;
use iotax_interop::jobs::{self, Included, Jobs, MachineKeywords, Surroundings, vdbench};
use iotax_model::exit::Exit;
use iotax_model::plan::{Design, Plan};
use iotax_model::target::{FileSpec, TargetSpec};
use iotax_model::units::Bytes;
use iotax_testbed::device::Permission;

use super::confine::Directories;
use super::say::note;
use super::{Failure, OrExit, input, replay, target_args, usage};

/// Default number of rounds for a job file or a trace on several targets. With one target there is nothing to compare, so the default is 1,
/// as in fio.
const REPEAT: u32 = 3;

/// Options for job files and traces.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct JobFlags {
    /// Replay a trace on this target, or run a job file on it instead of its own files: a file, directory or block device,
    /// ssh://user@host/path, podman://container/path, RUNG:DIR for a rung of the ladder, or PLAN.toml for its targets (repeat for several;
    /// the first is the baseline)
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Run only this section of a job file (repeat for several)
    #[arg(long, value_name = "NAME")]
    section: Vec<String>,
}

/// Returns true for a fio job file or a vdbench parameter file. The endings .fio, .job and .toml decide; for other names the content does.
pub(super) fn is_meant(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("fio" | "job") => true,
        Some("toml") => false,
        _ => jobs::is_job_file(text) || vdbench::is_meant(text),
    }
}

/// Reads a fio job file or a vdbench parameter file, and prints notes on how its options are applied. `size` replaces the size of every fio
/// job. Refuses included files outside of the directories `confined`, if given.
pub(super) fn read(
    path: &Path,
    text: &str,
    sections: &[String],
    size: Option<Bytes>,
    confined: Option<&Directories>,
) -> Result<Jobs, Failure> {
    let around = Surroundings {
        include: &|including, name| included(including, name, confined),
        variable: &|name| std::env::var(name).ok(),
        machine: machine(),
        size,
    };
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
        note!("note: {note}");
    }
    Ok(jobs)
}

impl JobFlags {
    /// Builds the plan of a job file, on the targets of `--target` or else on the file or directory that the job file implies.
    pub(super) fn plan(
        &self,
        path: &Path,
        text: &str,
        size: Option<Bytes>,
        permission: &Permission,
        confined: Option<&Directories>,
    ) -> Result<Plan, Failure> {
        let jobs = read(path, text, &self.section, size, confined)?;
        let targets = if self.target.is_empty() {
            vec![target_of(&jobs, permission)?]
        } else {
            target_args::targets(&self.target, false, permission)?
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let repeat = if targets.len() > 1 { REPEAT } else { 1 };
        Ok(Plan {
            repeat,
            seed: jobs.seed,
            design: jobs.curve.map(Design::Curve).unwrap_or_default(),
            ..Plan::new(name, targets, jobs.workloads)
        })
    }

    /// Builds the plan that replays a trace on the targets of `--target`. Fails without a target and with `--section`.
    pub(super) fn replay(&self, path: &Path, permission: &Permission) -> Result<Plan, Failure> {
        if let Some(section) = self.section.first() {
            return Err(usage(format!(
                "--section {section}: it is for job files, and {} is a trace",
                path.display()
            )));
        }
        if self.target.is_empty() {
            return Err(usage(format!(
                "{} is a trace; say where to replay it with --target, such as --target host-file:DIR --target virtio-qcow2:DIR",
                path.display()
            )));
        }
        let targets = target_args::targets(&self.target, false, permission)?;
        let repeat = if targets.len() > 1 { REPEAT } else { 1 };
        Ok(replay::plan(path, targets, repeat))
    }

    /// Refuses `--target` and `--section` for a plan file, which names its targets itself.
    pub(super) fn refuse_for_plan(&self, path: &Path) -> Result<(), Failure> {
        let given = [("--target", &self.target), ("--section", &self.section)];
        match given.iter().find_map(|(flag, values)| Some((flag, values.first()?))) {
            Some((flag, value)) => Err(usage(format!(
                "{flag} {value}: it is for job files, and {} is a plan, which says so itself; a profile, a plan without targets, is for iotax fit {} {value}",
                path.display(),
                path.display()
            ))),
            None => Ok(()),
        }
    }
}

/// Returns a job file's own target: the file that all jobs name, otherwise a new file in the directory of the jobs' files.
fn target_of(jobs: &Jobs, permission: &Permission) -> Result<TargetSpec, Failure> {
    let base = jobs.directory.as_deref().map_or_else(|| PathBuf::from("."), PathBuf::from);
    if let ([(_, name)], false) = (jobs.filenames.as_slice(), jobs.own_files) {
        return target_args::target(&base.join(name), false, false, permission);
    }
    if let Some((line, name)) = jobs.filenames.iter().find(|(_, name)| base.join(name).exists()) {
        return Err(usage(format!("{line}: {name}: it exists, and not all jobs are about it; {ONE_TARGET}")));
    }
    Ok(TargetSpec::new("file", FileSpec::in_dir(common_directory(jobs, &base)?)))
}

const ONE_TARGET: &str =
    "a plan measures all jobs on one target: give it with --target, or take one section with --section";

/// Returns the directory that all of the jobs' files are in; files without a name are in `base`. Fails if the directories differ, because
/// they may be on different disks.
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

/// Reads an included file, by its name if that exists, otherwise from the directory of the including file.
fn included(including: &str, name: &str, confined: Option<&Directories>) -> Result<Included, String> {
    let beside = Path::new(including).parent().map(|directory| directory.join(name));
    let named = Path::new(name).to_path_buf();
    let path = if named.exists() { named } else { beside.unwrap_or(named) };
    let path = confined.map_or(Ok(path.clone()), |area| area.readable(&path))?;
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
