//! `iorate=curve`: rates derived from the storage's capacity.

use super::super::LineErrors;
use super::lines::{Definition, VdbenchKey};
use super::take;
use super::values::{list, number, one};
use iotax_model::plan::CurveSpec;

/// vdbench's default loads in percent of the maximum rate.
const SHARES: [u32; 6] = [10, 50, 70, 80, 90, 100];
/// Maximum load in percent of the maximum rate; above 100 the queue only grows.
const MOST: u64 = 200;

/// Returns whether the value of an `iorate` key is `curve`.
pub(super) fn is_curve(iorate: &VdbenchKey) -> bool {
    matches!(iorate.values.as_slice(), [one] if one.eq_ignore_ascii_case("curve"))
}

/// Returns the loads of a file with `iorate=curve`; `None` if no run definition has it. Otherwise all must have it with the same loads,
/// because a plan has only one list of loads.
pub(super) fn curve<'a>(
    runs: impl Iterator<Item = &'a Definition> + Clone,
    notes: &mut Vec<String>,
    trouble: &mut LineErrors,
) -> Option<CurveSpec> {
    let wants = |run: &&Definition| run.key("iorate").is_some_and(is_curve);
    for key in runs.clone().filter(|run| !wants(run)).filter_map(|run| run.key("curve")) {
        notes.push(format!("{}: {}: it has no effect without iorate=curve", key.location, key.quoted()));
    }
    let first = runs.clone().find(wants)?;
    let mut given: Option<Vec<u32>> = None;
    for run in runs {
        let name = || format!("rd={}", run.name);
        if !wants(&run) {
            let why = format!(
                "rd={} asks for iorate=curve and this one does not; accepted: all of a file or none of them, split it",
                first.name
            );
            trouble.add(&run.location, name(), why);
            continue;
        }
        if let Some(key) = run.key("distribution").filter(|key| key.values.iter().any(|v| v.starts_with('d')))
        {
            trouble.add(
                &key.location,
                key.quoted(),
                "with iorate=curve I/Os come at random moments: leave it out".into(),
            );
        }
        if let Some(key) = run.key("stopcurve") {
            let why = "every rate is measured, in random order";
            notes.push(format!("{}: {}: {why}", key.location, key.quoted()));
            take(run, "stopcurve", trouble, |key| number(one(key)?, u64::MAX));
        }
        let shares = take(run, "curve", trouble, percentages).unwrap_or_else(|| SHARES.to_vec());
        if given.as_ref().is_some_and(|given| *given != shares) {
            trouble.add(
                &run.location,
                name(),
                "its curve= is another than that of a run before it; accepted: one for a file, split it"
                    .into(),
            );
        }
        given = given.or(Some(shares));
    }
    Some(CurveSpec { shares: given?, ..CurveSpec::default() })
}

/// Parses a list of percentages. Returns them in ascending order, without duplicates.
fn percentages(key: &VdbenchKey) -> Result<Vec<u32>, String> {
    let refused = || format!("accepted: percentages from 1 to {MOST}, such as curve=(10,50,70,80,90,100)");
    let read = |value: &String| {
        let share = number(value, MOST).ok().filter(|share| *share > 0);
        share.and_then(|share| u32::try_from(share).ok()).ok_or_else(refused)
    };
    let mut shares = list(&key.values)?.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    shares.sort_unstable();
    shares.dedup();
    Ok(shares)
}
