//! Finds a common name for several workloads: `everywhere`, `reads`, `random writes`.

use iotax_model::Run;
use iotax_model::Workload;
use iotax_model::units::human::listed;
use iotax_model::workload::Kind;

/// A class of workloads: its name, and a predicate that returns whether a workload belongs to it.
type Class = (&'static str, fn(&Workload) -> bool);

const CLASSES: [Class; 8] = [
    ("reads", only_reads),
    ("writes", only_writes),
    ("random I/O", |w| w.rw.is_random()),
    ("sequential I/O", |w| !w.rw.is_random()),
    ("random reads", |w| w.rw.is_random() && only_reads(w)),
    ("random writes", |w| w.rw.is_random() && only_writes(w)),
    ("sequential reads", |w| !w.rw.is_random() && only_reads(w)),
    ("sequential writes", |w| !w.rw.is_random() && only_writes(w)),
];

fn only_reads(workload: &Workload) -> bool {
    workload.jobs().all(|job| job.rw.reads() && !job.rw.writes())
}

/// Returns whether every job writes and none reads; trims count as neither.
fn only_writes(workload: &Workload) -> bool {
    workload.jobs().all(|job| job.rw.writes() && !job.rw.reads())
}

/// The workloads that a statement applies to, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Where {
    /// All workloads of the run.
    Everywhere,
    /// Some workloads: the name of their class, their own names, or their number.
    On(String),
}

/// Names a set of workloads: by the class that contains exactly these workloads, else by their own names, or by their number if `brief` is set.
pub(super) fn name(run: &Run, names: &[&str], brief: bool) -> Where {
    let all = &run.plan.workloads;
    if names.len() == all.len() {
        return Where::Everywhere;
    }
    let alike = |workload: &Workload| workload.kind == Kind::Block && workload.jobs().count() == 1;
    let block = all.iter().all(alike);
    let is_one = |class: &&Class| all.iter().all(|w| (class.1)(w) == names.contains(&w.name.as_str()));
    if let Some((class, _)) = CLASSES.iter().filter(|_| block).find(is_one) {
        return Where::On((*class).into());
    }
    if brief && names.len() > 1 {
        return Where::On(format!("{} of {} workloads", names.len(), all.len()));
    }
    Where::On(listed(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()))
}
