//! Matches targets and workloads of two runs by name and settings, never by position.

use iotax_model::Workload;
use iotax_model::net::NetTest;
use schemars::JsonSchema;
use serde::Serialize;

use super::account::{Account, AccountedTarget};
use super::differences::{self, Difference};
use super::{CompareError, Side, Which};
use crate::metric::Metric;

/// Workload keys that control duration and safety, not the I/O itself. A difference in these keys is reported, but the workloads still
/// match. A difference in any other key makes them different workloads, except in the I/O engine of two different tools.
pub(crate) const HOW_LONG: [&str; 9] = [
    "runtime",
    "ramp_time",
    "stall_timeout",
    "max_errors",
    "write_journal",
    "steadystate",
    "steadystate_duration",
    "steadystate_ramp_time",
    "steadystate_check_interval",
];

/// The reason why two targets are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Matched {
    /// The user named both targets.
    Asked,
    /// Both targets have the same name.
    Name,
    /// The targets have different names and the same settings.
    Settings,
    /// Each is the only target of its run.
    Only,
}

/// A target, workload, figure or rate that cannot be compared, because one side lacks it or both sides have it in no common round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The side that lacks it; B if both sides have it.
    pub side: Which,
    /// Name of the target; absent if more than one target is concerned.
    pub target: Option<String>,
    /// Name of the workload; absent if more than one workload is concerned.
    pub workload: Option<String>,
    /// The metric whose values this side lacks; absent if a target, a workload or a located rate is missing.
    pub metric: Option<Metric>,
    /// The reason why it cannot be compared, as a sentence for users.
    pub reason: String,
}

/// A target of A, the matching target of B, and the reason why they match.
type Pair<'a> = (&'a AccountedTarget, &'a AccountedTarget, Matched);

/// Predicate that is true if two workloads may be compared.
type Fits<'a> = &'a dyn Fn(&Workload, &Workload) -> bool;

/// Matches the targets of both sides. Returns the pairs in the order of A, and the targets without a match. Fails if a side names an
/// unknown target, if both sides are the same run without two different targets, or if no targets match.
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
    let ours: Vec<&AccountedTarget> =
        one.map_or_else(|| a.account.subjects.iter().collect(), |one| vec![one]);
    let theirs: Vec<&AccountedTarget> =
        other.map_or_else(|| b.account.subjects.iter().collect(), |other| vec![other]);
    let (pairs, left_a, left_b) = match (ours.as_slice(), theirs.as_slice()) {
        // With one target on each side nothing is ambiguous.
        (&[x], &[y]) if x.name != y.name && (x.settings != y.settings || x.settings.is_empty()) => {
            (vec![(x, y, Matched::Only)], vec![], vec![])
        }
        _ => match_up(&ours, &theirs),
    };
    let mut missing = Vec::new();
    let lacks = |side, has: &Side<'_>, lacking: &Side<'_>, subject: &AccountedTarget| Missing {
        side,
        target: Some(subject.name.clone()),
        workload: None,
        metric: None,
        reason: format!(
            "target {} of {} has no partner in {}",
            subject.name, has.account.label, lacking.account.label
        ),
    };
    // If the user named a target of one side, the other targets of that side are not missing.
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

type MatchedUp<'a> = (Vec<Pair<'a>>, Vec<&'a AccountedTarget>, Vec<&'a AccountedTarget>);

/// Matches targets by name first, then by their settings. Returns the pairs, and the targets left over on each side.
fn match_up<'a>(ours: &[&'a AccountedTarget], theirs: &[&'a AccountedTarget]) -> MatchedUp<'a> {
    let mut free: Vec<&AccountedTarget> = theirs.to_vec();
    let mut partners: Vec<Option<(&AccountedTarget, Matched)>> = vec![None; ours.len()];
    let mut pass = |matched, fits: fn(&AccountedTarget, &AccountedTarget) -> bool| {
        for (subject, partner) in ours.iter().zip(&mut partners) {
            if partner.is_none()
                && let Some(index) = free.iter().position(|other| fits(subject, other))
            {
                *partner = Some((free.remove(index), matched));
            }
        }
    };
    pass(Matched::Name, |one, other| one.name == other.name);
    // Imported targets have no settings that could match.
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

/// Matches the workloads of both sides. Returns the pairs, A's first, in the order of A, and the workloads without a match.
pub(super) fn workloads<'a>(
    a: &'a Account,
    b: &'a Account,
) -> (Vec<(&'a Workload, &'a Workload)>, Vec<Missing>) {
    let mut free: Vec<&Workload> = b.workloads.iter().collect();
    let mut partners: Vec<Option<&Workload>> = vec![None; a.workloads.len()];
    let stated = |one: &Workload, other: &Workload| differences::stated((a, one), (b, other));
    let alike = |one: &Workload, other: &Workload| stated(one, other).iter().all(|found| is_one(a, b, found));
    // In order of preference: the same name, a name that differs only in `-` and `_`, equal settings, compatible settings.
    let fits: [Fits<'_>; 4] = [
        &|one, other| one.name == other.name && alike(one, other),
        &|one, other| one.name.replace('-', "_") == other.name.replace('-', "_") && alike(one, other),
        &|one, other| stated(one, other).is_empty(),
        &alike,
    ];
    for fits in fits {
        for at in (0..partners.len()).filter(|at| partners[*at].is_none()).collect::<Vec<_>>() {
            let workload = &a.workloads[at];
            let mut fitting = (0..free.len()).filter(|index| fits(workload, free[*index]));
            // If a source states too little to choose between two candidates, neither is matched.
            let (first, another) = (fitting.next(), fitting.next());
            let is_only = |index: usize| {
                let mut others =
                    (0..partners.len()).filter(|other| *other != at && partners[*other].is_none());
                another.is_none() && !others.any(|other| fits(&a.workloads[other], free[index]))
            };
            let is_measured = !a.source.is_imported() && !b.source.is_imported();
            if let Some(index) = first.filter(|index| is_measured || is_only(*index)) {
                partners[at] = Some(free.remove(index));
            }
        }
    }
    let lonely = a.workloads.iter().zip(&partners).filter(|(_, partner)| partner.is_none());
    let lonely: Vec<&Workload> = lonely.map(|(workload, _)| workload).collect();
    let pairs = a.workloads.iter().zip(partners).filter_map(|(one, other)| Some((one, other?))).collect();
    let mut missing = all_unmatched(&lonely, Which::B, a, b);
    missing.extend(all_unmatched(&free, Which::A, b, a));
    (pairs, missing)
}

/// Lists a run's workloads without a match. The rates of a curve become one entry, because every curve has its own rates.
fn all_unmatched(lonely: &[&Workload], side: Which, has: &Account, lacks: &Account) -> Vec<Missing> {
    let is_curve_rate = |workload: &&&Workload| has.has_own_rates && workload.is_open_loop();
    let curve_rates = lonely.iter().filter(is_curve_rate).count();
    let others = lonely.iter().filter(|workload| !is_curve_rate(workload));
    let mut missing: Vec<Missing> = others.map(|workload| unmatched(workload, side, has, lacks)).collect();
    missing.extend((curve_rates > 0).then(|| Missing {
        side,
        target: None,
        workload: None,
        metric: None,
        reason: format!("{curve_rates} rates of the curve of {} are not those of {}", has.label, lacks.label),
    }));
    missing
}

/// Returns whether two workloads with this difference still match: it concerns duration or safety ([`HOW_LONG`]), or the I/O engine of two
/// different tools.
fn is_one(a: &Account, b: &Account, difference: &Difference) -> bool {
    // Another tool submits I/O in its own way in any case.
    let by_another = a.source != b.source && difference.what == "ioengine";
    by_another || HOW_LONG.contains(&difference.what.as_str())
}

fn unmatched(workload: &Workload, side: Which, has: &Account, lacks: &Account) -> Missing {
    let namesake = lacks.workloads.iter().find(|other| other.name == workload.name);
    let why = namesake.map(|other| {
        let given = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        let keys: Vec<String> = differences::stated((has, workload), (lacks, other))
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

/// Returns whether two targets are compared by a metric on a workload. CPU time of network work is compared only if `alike`, see
/// [`counts_alike`]. CPU time per TCP segment is not compared, because accounts lack the segment size.
pub(super) fn compares(metric: Metric, workload: &Workload, alike: bool) -> bool {
    let Some(net) = workload.kind.traffic() else { return metric.compares(workload) };
    let by_segment = metric == Metric::CPU_PER_IO && net.test == NetTest::Tcp;
    metric.compares(workload) && !by_segment && (alike || !metric.is_cpu())
}

/// Returns whether the host's CPU time covers the same work for both targets: the server runs on this host for both or for neither, and the
/// noisy neighbour is the same.
pub(super) fn counts_alike(one: &AccountedTarget, other: &AccountedTarget) -> bool {
    let is_remote =
        |subject: &AccountedTarget| subject.settings.get("network.via").is_some_and(|via| via == "remote");
    let neighbour = |subject: &AccountedTarget| -> Vec<(String, String)> {
        let settings = subject.settings.iter().filter(|(key, _)| key.starts_with("neighbour"));
        settings.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    is_remote(one) == is_remote(other) && neighbour(one) == neighbour(other)
}
