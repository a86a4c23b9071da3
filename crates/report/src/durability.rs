//! Describes durable writes in sentences: how many flushes reached each layer, and which method is the fastest.

use iotax_analysis::Ratio;
use iotax_analysis::durability::{DurableWrites, MethodOnTarget};
use iotax_analysis::flushes::{FlushAccount, FlushCount, FlushFate, FlushLevel, SwallowEvidence};
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_model::units::human;
use iotax_model::units::human::listed;

use crate::figure::{change, grouped, or_unknown};

/// Relative difference below which two flush counts count as equal: a flush requested within a window may end just after it.
const EDGE: f64 = 0.02;

/// The time in nanoseconds below which a durable write did not wait for flash: the fastest kind, Z-NAND, takes 100 us to program a page (Cheong
/// et al., A flash memory controller for 15 us ultra-low-latency SSD, ISSCC 2018).
const PROGRAMMED_NS: f64 = 100e3;

/// The durable-write methods of one target whose flushes had the same outcome, with their flush counts added up.
struct Alike<'a> {
    cells: Vec<&'a MethodOnTarget<'a>>,
    account: FlushAccount,
    /// The least median time of one of their writes in nanoseconds; absent if none is known.
    p50_ns: Option<f64>,
}

/// Returns a line for each target and each outcome of its flushes, with the flush count of each layer.
pub(super) fn account_lines(run: &Run, writes: &DurableWrites<'_>) -> Vec<String> {
    let of_target = |target: &str| -> Vec<String> {
        let alike = alike(writes, target);
        let several = alike.len() > 1;
        let methods = |alike: &Alike<'_>| if several { methods(&alike.cells, writes) } else { Vec::new() };
        alike.iter().map(|alike| line(target, alike, &methods(alike))).collect()
    };
    run.plan.targets.iter().flat_map(|target| of_target(&target.name)).collect()
}

fn alike<'a>(writes: &'a DurableWrites<'_>, target: &str) -> Vec<Alike<'a>> {
    let mut all: Vec<Alike<'a>> = Vec::new();
    for cell in writes.cells.iter().filter(|cell| cell.target == target) {
        let Some(account) = &cell.flushes else { continue };
        match all.iter_mut().find(|alike| alike.account.ends_as(account)) {
            Some(alike) => {
                alike.cells.push(cell);
                alike.account.add(account);
                alike.p50_ns = alike.p50_ns.into_iter().chain(cell.p50_ns).reduce(f64::min);
            }
            None => all.push(Alike { cells: vec![cell], account: account.clone(), p50_ns: cell.p50_ns }),
        }
    }
    all
}

/// Names the methods of cells on one target: `fsync`; `fsync in 3 of 12 cells` if a sweep has others of that method.
fn methods(cells: &[&MethodOnTarget<'_>], writes: &DurableWrites<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for cell in cells {
        let of_method = |one: &&MethodOnTarget<'_>| one.method == cell.method;
        let all = writes.on(cell.target).filter(of_method).count();
        let here = cells.iter().copied().filter(of_method).count();
        let name = cell.method;
        let name = if here == all { name.to_owned() } else { format!("{name} in {here} of {all} cells") };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

/// Formats the flush counts of a target by layer: `host-file: 1,000 asked, 1,000 in volatile, which passed on 0, 12 in vda. 1,000 of 1,000
/// swallowed by volatile`.
fn line(target: &str, alike: &Alike<'_>, methods: &[String]) -> String {
    let account = &alike.account;
    let methods = if methods.is_empty() { String::new() } else { format!(" by {}", listed(methods)) };
    let mut parts = vec![format!("{} asked{methods}", grouped(account.asked))];
    parts.extend(account.levels.iter().map(|level| counted(level, account)));
    let sooner = sooner_than_flash(alike).unwrap_or_default();
    format!("{target}: {}. {}{sooner}", parts.join(", "), fate(account))
}

/// Says that a disk with a volatile cache acknowledges flushes sooner than flash can be programmed; `None` if it does not, or no disk was
/// seen.
fn sooner_than_flash(alike: &Alike<'_>) -> Option<String> {
    let FlushFate::Kept(_) = alike.account.fate else { return None };
    let level = alike.account.levels.last().filter(|level| level.is_device())?;
    let p50 = alike.p50_ns.filter(|ns| *ns < PROGRAMMED_NS)?;
    Some(format!(
        ". {} says that its cache is volatile and acknowledges in {}: it is protected against power loss, or lies, and only a cut can tell \
         (iotax powercut)",
        level.name,
        human::time(p50)
    ))
}

/// Describes the flushes of one layer: `1,000 in loop0`, `2,100 in sda (2.10 each)`, `none needed by vda`.
fn counted(level: &FlushLevel, account: &FlushAccount) -> String {
    let name = &level.name;
    match level.flushes {
        FlushCount::Counted(flushes) => format!("{} in {name}{}", grouped(flushes), each(flushes, account)),
        FlushCount::WithFua { flushes, fua_writes } => {
            let also = if flushes > 0 { format!("{} flushes and ", grouped(flushes)) } else { String::new() };
            format!(
                "{also}{} writes with FUA in {name}{}",
                grouped(fua_writes),
                each(flushes + fua_writes, account)
            )
        }
        FlushCount::Dropping { done, dropped } => {
            format!("{} in {name}, which passed on {}", grouped(done), grouped(done - dropped))
        }
        FlushCount::NoVolatileCache => format!("none needed by {name}"),
        FlushCount::Fua => format!("writes with FUA in {name}"),
        FlushCount::NotCounted => format!("not counted in {name}"),
    }
}

/// Formats a count as a ratio to what was asked for: ` (2.10 each)`; empty if they are the same, or none.
fn each(count: u64, account: &FlushAccount) -> String {
    let ratio = count as f64 / account.asked as f64;
    if count == 0 || (ratio - 1.0).abs() < EDGE { String::new() } else { format!(" ({ratio:.2} each)") }
}

fn fate(account: &FlushAccount) -> String {
    match &account.fate {
        FlushFate::Kept(flushes) => {
            let ratio = *flushes as f64 / account.asked as f64;
            if ratio > 1.0 + EDGE {
                "Kept; those beyond are a journal's own, other programs', or the kernel's behind a synchronous write with O_DSYNC".into()
            } else if ratio < 1.0 - EDGE {
                "Kept; a journal or the kernel joined some".into()
            } else {
                "Kept".into()
            }
        }
        FlushFate::Swallowed { by, evidence: SwallowEvidence::NoneBelow } => format!("Swallowed by {by}"),
        FlushFate::Swallowed { by, evidence: SwallowEvidence::OwnCount { done, dropped } } => {
            format!("{} of {} swallowed by {by}", grouped(*dropped), grouped(*done))
        }
        FlushFate::Swallowed { by, evidence: SwallowEvidence::Setting } => {
            format!("Swallowed by {by}, which ignores flushes; those counted below it are not these")
        }
        FlushFate::NotNeeded { device } => {
            format!("None needed: the kernel takes the cache of {device} for non-volatile")
        }
        FlushFate::NotCountable { reason } => format!("Not countable: {reason}"),
    }
}

/// Returns one conclusion per target: the layer that swallows its flushes, else its fastest durable write.
pub(super) fn sentences(run: &Run, writes: &DurableWrites<'_>) -> Vec<String> {
    let of_target = |target: &str| swallowed(writes, target).or_else(|| quickest(writes, target));
    run.plan.targets.iter().filter_map(|target| of_target(&target.name)).collect()
}

fn swallowed(writes: &DurableWrites<'_>, target: &str) -> Option<String> {
    let by = writes.on(target).find_map(|cell| match &cell.flushes.as_ref()?.fate {
        FlushFate::Swallowed { by, .. } => Some(by),
        _ => None,
    })?;
    Some(format!(
        "{target}: acknowledged writes are not safe from a power cut, because {by} swallows flushes."
    ))
}

/// Names a target's fastest durable method: `vm-raw: open_datasync has the highest rate of durable writes, 3.21k a second, p99 412 us;
/// against fsync +12%; without durability 40.0 times as many.` `None` if the rate of no durable method is known.
fn quickest(writes: &DurableWrites<'_>, target: &str) -> Option<String> {
    let rate = |cell: &&MethodOnTarget<'_>| cell.per_second.unwrap_or_default();
    let durable = writes.on(target).filter(|cell| cell.is_durable() && cell.per_second.is_some());
    let best = durable.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let mut text = format!(
        "{target}: {} has the highest rate of durable writes, {} a second",
        best.workload.name,
        or_unknown(best.per_second, human::count)
    );
    if let Some(p99) = best.p99_ns {
        text = format!("{text}, p99 {}", human::time(p99));
    }
    if let (Some(ratio), Some(reference)) = (&best.against_reference, writes.reference) {
        text = format!("{text}; against {reference} {}", against(ratio));
    }
    let is_bare = |cell: &&MethodOnTarget<'_>| !cell.is_durable() && cell.workload.flush_call().is_none();
    let bare = writes.on(target).find(|cell| is_bare(cell) && cell.is_at_point_of(best));
    if let Some(times) = bare.and_then(|bare| Some(bare.per_second? / best.per_second?)) {
        text = format!("{text}; without durability {} times as many", human::count(times));
    }
    Some(text + ".")
}

/// Formats a method's rate compared with the reference method's: `+12%`, `+3.0% (undecided)`.
pub(super) fn against(ratio: &Ratio) -> String {
    let word = match ratio.verdict {
        Verdict::Undecided | Verdict::Same => format!(" ({})", ratio.word()),
        _ => String::new(),
    };
    change(ratio.mean) + &word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_answers_sooner_than_flash_is_protected_or_lies() {
        let line = |name: &str, p50_ns: f64, flushes: FlushCount, fate: FlushFate| {
            let levels = vec![FlushLevel { name: name.into(), flushes }];
            let account = FlushAccount { asked: 9, levels, ignored_by: None, fate };
            super::line("t", &Alike { cells: Vec::new(), account, p50_ns: Some(p50_ns) }, &[])
        };
        let kept = |name: &str, p50_ns| line(name, p50_ns, FlushCount::Counted(9), FlushFate::Kept(9));
        assert_eq!(
            kept("sda", 12e3),
            "t: 9 asked, 9 in sda. Kept. sda says that its cache is volatile and acknowledges in 12.0 us: it is protected against power loss, \
             or lies, and only a cut can tell (iotax powercut)"
        );
        for (name, p50_ns) in [("sda", 120e3), ("loop0", 12e3), ("QEMU", 12e3), ("vda in the guest", 12e3)] {
            assert!(kept(name, p50_ns).ends_with("Kept"), "{name}");
        }
        let lost = FlushFate::Swallowed { by: "ext4".into(), evidence: SwallowEvidence::NoneBelow };
        assert!(line("sda", 12e3, FlushCount::Counted(0), lost).ends_with("Swallowed by ext4"));
    }
}
