//! Which cell is held against which: by what they are, never by their place.

use iotax_model::Workload;
use iotax_model::net::NetTest;

use super::account::{Account, Subject};
use super::differences::{self, Difference};
use super::{CompareError, Side, Which};
use crate::metric::Metric;

/// Keys of a workload that say for how long and with what care it is done, not what is done: where they differ, that is named,
/// and the workloads are one all the same. With every other key another workload is meant.
const HOW_LONG: [&str; 5] = ["runtime", "ramp_time", "stall_timeout", "max_errors", "write_journal"];

/// Why two targets are held against one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matched {
    /// The user named both.
    Asked,
    /// They have one name.
    Name,
    /// They are made of the same under two names.
    Settings,
    /// Each is the only one of its run.
    Only,
}

impl Matched {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Name => "name",
            Self::Settings => "settings",
            Self::Only => "only",
        }
    }
}

/// What one side has and the other has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The side that lacks it.
    pub side: Which,
    /// The target's name on the side that has it; absent if no single target is concerned.
    pub target: Option<String>,
    /// The workload's name on the side that has it; absent if no single workload is concerned.
    pub workload: Option<String>,
    /// The figure that is not known; absent if it is all of them.
    pub metric: Option<Metric>,
    /// What is said of it.
    pub reason: String,
}

/// Two targets, A's first, and why these two.
type Pair<'a> = (&'a Subject, &'a Subject, Matched);

/// Whether two workloads may be held against one another.
type Fits<'a> = &'a dyn Fn(&Workload, &Workload) -> bool;

/// The pairs of targets in the order of A, and what has no partner.
pub(super) fn targets<'a>(a: &Side<'a>, b: &Side<'a>) -> Result<(Vec<Pair<'a>>, Vec<Missing>), CompareError> {
    let named = |side: &Side<'a>| {
        side.target
            .map(|name| side.account.subject(name).ok_or_else(|| unknown(side.account, name)))
            .transpose()
    };
    let (one, other) = (named(a)?, named(b)?);
    if a.account.is_same_run(b.account) && (one.is_none() || other.is_none() || one == other) {
        return Err(CompareError::SameRun { label: a.account.label.clone(), accepted: names(a.account) });
    }
    if let (Some(one), Some(other)) = (one, other) {
        return Ok((vec![(one, other, Matched::Asked)], vec![]));
    }
    let ours: Vec<&Subject> = one.map_or_else(|| a.account.subjects.iter().collect(), |one| vec![one]);
    let theirs: Vec<&Subject> =
        other.map_or_else(|| b.account.subjects.iter().collect(), |other| vec![other]);
    let (pairs, left_a, left_b) = match (ours.as_slice(), theirs.as_slice()) {
        // Where there is nothing to choose from, nothing can be mistaken.
        (&[x], &[y]) if x.name != y.name && (x.settings != y.settings || x.settings.is_empty()) => {
            (vec![(x, y, Matched::Only)], vec![], vec![])
        }
        _ => match_up(&ours, &theirs),
    };
    let mut missing = Vec::new();
    let lacks = |side, has: &Side<'_>, lacking: &Side<'_>, subject: &Subject| Missing {
        side,
        target: Some(subject.name.clone()),
        workload: None,
        metric: None,
        reason: format!(
            "target {} of {} has no partner in {}",
            subject.name, has.account.label, lacking.account.label
        ),
    };
    // Who names a target asks for that one alone.
    if other.is_none() || one.is_some() {
        missing.extend(left_a.iter().map(|subject| lacks(Which::B, a, b, subject)));
    }
    if one.is_none() || other.is_some() {
        missing.extend(left_b.iter().map(|subject| lacks(Which::A, b, a, subject)));
    }
    if pairs.is_empty() {
        return Err(CompareError::NothingInCommon {
            what: "target",
            a: format!("{}: {}", a.account.label, names(a.account)),
            b: format!("{}: {}", b.account.label, names(b.account)),
        });
    }
    Ok((pairs, missing))
}

type MatchedUp<'a> = (Vec<Pair<'a>>, Vec<&'a Subject>, Vec<&'a Subject>);

/// By name first, then by what they are made of; and what is left of each.
fn match_up<'a>(ours: &[&'a Subject], theirs: &[&'a Subject]) -> MatchedUp<'a> {
    let mut free: Vec<&Subject> = theirs.to_vec();
    let mut partners: Vec<Option<(&Subject, Matched)>> = vec![None; ours.len()];
    let mut pass = |matched, fits: fn(&Subject, &Subject) -> bool| {
        for (subject, partner) in ours.iter().zip(&mut partners) {
            if partner.is_none()
                && let Some(place) = free.iter().position(|other| fits(subject, other))
            {
                *partner = Some((free.remove(place), matched));
            }
        }
    };
    pass(Matched::Name, |one, other| one.name == other.name);
    // Of what another tool measured nothing is known that could be the same.
    pass(Matched::Settings, |one, other| one.settings == other.settings && !one.settings.is_empty());
    let mut pairs = Vec::new();
    let mut left = Vec::new();
    for (subject, partner) in ours.iter().zip(partners) {
        match partner {
            Some((other, matched)) => pairs.push((*subject, other, matched)),
            None => left.push(*subject),
        }
    }
    (pairs, left, free)
}

fn unknown(account: &Account, name: &str) -> CompareError {
    CompareError::UnknownTarget {
        label: account.label.clone(),
        target: name.to_owned(),
        accepted: names(account),
    }
}

fn names(account: &Account) -> String {
    account.subjects.iter().map(|subject| subject.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The pairs of workloads, A's first, in the order of A; and those without a partner, with the reason.
pub(super) fn workloads<'a>(
    a: &'a Account,
    b: &'a Account,
) -> (Vec<(&'a Workload, &'a Workload)>, Vec<Missing>) {
    let mut free: Vec<&Workload> = b.workloads.iter().collect();
    let mut partners: Vec<Option<&Workload>> = vec![None; a.workloads.len()];
    let told = |one: &Workload, other: &Workload| differences::told((a, one), (b, other));
    let alike = |one: &Workload, other: &Workload| told(one, other).iter().all(|found| is_one(a, b, found));
    // Of several that fit, the one of the same name, then the one that is as long.
    let fits: [Fits<'_>; 3] = [
        &|one, other| one.name == other.name && alike(one, other),
        &|one, other| told(one, other).is_empty(),
        &alike,
    ];
    for fits in fits {
        for at in (0..partners.len()).filter(|at| partners[*at].is_none()).collect::<Vec<_>>() {
            let workload = &a.workloads[at];
            let mut fitting = (0..free.len()).filter(|place| fits(workload, free[*place]));
            // Of which of two a source tells is not known where it tells too little.
            let (first, another) = (fitting.next(), fitting.next());
            let is_only = |place: usize| {
                let mut others =
                    (0..partners.len()).filter(|other| *other != at && partners[*other].is_none());
                another.is_none() && !others.any(|other| fits(&a.workloads[other], free[place]))
            };
            let is_told = a.source.is_none() && b.source.is_none();
            if let Some(place) = first.filter(|place| is_told || is_only(*place)) {
                partners[at] = Some(free.remove(place));
            }
        }
    }
    let mut pairs = Vec::new();
    let mut missing = Vec::new();
    for (workload, partner) in a.workloads.iter().zip(partners) {
        match partner {
            Some(partner) => pairs.push((workload, partner)),
            None => missing.push(lonely(workload, Which::B, a, b)),
        }
    }
    missing.extend(free.iter().map(|workload| lonely(workload, Which::A, b, a)));
    (pairs, missing)
}

/// Whether workloads that differ in this are one all the same.
fn is_one(a: &Account, b: &Account, difference: &Difference) -> bool {
    // Another tool has its own ways to hand I/O over in any case.
    let by_another = a.source != b.source && difference.what == "ioengine";
    by_another || HOW_LONG.contains(&difference.what.as_str())
}

fn lonely(workload: &Workload, side: Which, has: &Account, lacks: &Account) -> Missing {
    let namesake = lacks.workloads.iter().find(|other| other.name == workload.name);
    let why = namesake.map(|other| {
        let given = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        let keys: Vec<String> = differences::told((has, workload), (lacks, other))
            .iter()
            .filter(|difference| !is_one(has, lacks, difference))
            .map(|d| format!("{} = {} instead of {}", d.what, given(&d.b), given(&d.a)))
            .collect();
        format!(": the one of that name there has {}", keys.join(", "))
    });
    Missing {
        side,
        target: None,
        workload: Some(workload.name.clone()),
        metric: None,
        reason: format!(
            "workload {} of {} has no partner in {}{}",
            workload.name,
            has.label,
            lacks.label,
            why.unwrap_or_default()
        ),
    }
}

/// Whether a workload is compared by a metric between two targets. How long TCP's segments were no account tells, so nothing follows from
/// what one of them takes.
pub(super) fn compares(metric: Metric, workload: &Workload, alike: bool) -> bool {
    let Some(net) = workload.kind().traffic() else { return metric.compares(workload) };
    let by_segment = metric == Metric::CPU_PER_IO && net.test == NetTest::Tcp;
    metric.compares(workload) && !by_segment && (alike || !metric.is_cpu())
}

/// Whether the host's busy time holds the work of the same: of a server on this host, and of the same neighbour.
pub(super) fn counts_alike(one: &Subject, other: &Subject) -> bool {
    let is_remote =
        |subject: &Subject| subject.settings.get("network.via").is_some_and(|via| via == "remote");
    let beside = |subject: &Subject| -> Vec<(String, String)> {
        let settings = subject.settings.iter().filter(|(key, _)| key.starts_with("neighbour"));
        settings.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    is_remote(one) == is_remote(other) && beside(one) == beside(other)
}
