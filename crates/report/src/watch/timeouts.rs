//! Describes timeouts of layers and guests, compared with the longest time that I/O hung.

use iotax_analysis::watch::{Episode, JudgedTimeout, Stalled, TimeoutOwner, TimeoutVerdict};
use iotax_model::Nanos;
use iotax_model::units::human;

/// Column heads of [`row`].
pub(crate) const COLUMNS: [&str; 4] = ["layer", "timeout", "limit", "against the gap"];

/// Returns whether I/O hung, so that timeouts are compared with it: in a gap during which the load's machine and guest ran, by an I/O that
/// took longer than a timeout, or in gaps of unknown length.
pub(crate) fn has_hung(episode: &Episode<'_>) -> bool {
    let is_exceeded = |timeout: &JudgedTimeout<'_>| timeout.verdict == TimeoutVerdict::Exceeded;
    let hung = episode
        .gaps
        .as_ref()
        .is_none_or(|gaps| gaps.iter().any(|gap| !matches!(gap.of, Stalled::Guest | Stalled::Machine)));
    hung || episode.timeouts.iter().any(is_exceeded)
}

/// Summarises the timeouts: `timeouts: sdb's SCSI command timeout of 30s was not reached (26.9 s to spare); guests' defaults not reached:
/// Linux 30s, Windows 1m`; `None` if no I/O hung, or if no timeout is known.
pub(crate) fn line(episode: &Episode<'_>) -> Option<String> {
    let (defaults, own): (Vec<&JudgedTimeout<'_>>, Vec<_>) =
        episode.timeouts.iter().partition(|timeout| timeout.owner == TimeoutOwner::GuestDefault);
    let parts = [of_layers(&own), of_guests(&defaults)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (has_hung(episode) && !parts.is_empty()).then(|| format!("timeouts: {}", parts.join("; ")))
}

/// Names the exceeded timeouts of the layers; if none was exceeded, the shortest timeout, or the layers that wait without limit.
fn of_layers(own: &[&JudgedTimeout<'_>]) -> Option<String> {
    let name = |(timeout, limit): &(&JudgedTimeout<'_>, Nanos)| {
        let inside = if timeout.owner == TimeoutOwner::Guest { " in the guest" } else { "" };
        format!("{}'s {} of {limit}{inside}", timeout.layer, timeout.what)
    };
    let mut limited: Vec<_> = own.iter().filter_map(|one| Some((*one, one.limit?))).collect();
    limited.sort_by_key(|(_, limit)| *limit);
    let exceeded = limited.iter().filter(|(one, _)| one.verdict == TimeoutVerdict::Exceeded);
    let exceeded: Vec<String> = exceeded.map(name).collect();
    if !exceeded.is_empty() {
        return Some(format!("EXCEEDED: {}", exceeded.join(", ")));
    }
    if let Some(nearest) = limited.first() {
        return Some(match nearest.0.verdict {
            TimeoutVerdict::Spare(ns) => {
                format!("{} was not reached ({} to spare)", name(nearest), human::time(ns as f64))
            }
            _ => format!("unknown whether {} was reached", name(nearest)),
        });
    }
    let unlimited: Vec<&str> = own
        .iter()
        .filter(|timeout| timeout.verdict == TimeoutVerdict::Unlimited)
        .map(|timeout| timeout.layer)
        .collect();
    (!unlimited.is_empty()).then(|| format!("{} waits without a limit", unlimited.join(", ")))
}

/// Lists default timeouts of guest systems, grouped into exceeded, not reached and unknown; `None` if there are none.
fn of_guests(defaults: &[&JudgedTimeout<'_>]) -> Option<String> {
    let of = |word: &str, is: fn(TimeoutVerdict) -> bool| {
        let of_it = defaults.iter().filter(|one| is(one.verdict));
        let names: Vec<String> =
            of_it.filter_map(|default| Some(format!("{} {}", default.layer, default.limit?))).collect();
        (!names.is_empty()).then(|| format!("{word}: {}", names.join(", ")))
    };
    let parts = [
        of("EXCEEDED", |verdict| verdict == TimeoutVerdict::Exceeded),
        of("not reached", |verdict| matches!(verdict, TimeoutVerdict::Spare(_))),
        of("unknown", |verdict| verdict == TimeoutVerdict::Unknown),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("guests' defaults {}", parts.join("; ")))
}

/// Returns the fields of a table row, in the order of [`COLUMNS`].
pub(crate) fn row(timeout: &JudgedTimeout<'_>) -> [String; 4] {
    let verdict = match timeout.verdict {
        TimeoutVerdict::Exceeded => "EXCEEDED".into(),
        TimeoutVerdict::Spare(ns) => format!("{} to spare", human::time(ns as f64)),
        TimeoutVerdict::Unknown => "unknown".into(),
        TimeoutVerdict::Unlimited => "waits".into(),
        TimeoutVerdict::OnError => "only on an error".into(),
    };
    let limit = timeout.limit.map_or_else(|| "none".into(), |limit| limit.to_string());
    [layer(timeout), timeout.what.to_owned(), limit, verdict]
}

/// Describes a timeout: the consequence of exceeding it, and the source of its value.
pub(crate) fn note(timeout: &JudgedTimeout<'_>) -> String {
    format!("{}, {}: {} ({})", layer(timeout), timeout.what, timeout.then, timeout.source)
}

fn layer(timeout: &JudgedTimeout<'_>) -> String {
    match timeout.owner {
        TimeoutOwner::Target => timeout.layer.to_owned(),
        TimeoutOwner::Guest => format!("{} in the guest", timeout.layer),
        TimeoutOwner::GuestDefault => format!("{} by default", timeout.layer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn timeout(
        owner: TimeoutOwner,
        seconds: Option<u64>,
        verdict: TimeoutVerdict,
    ) -> JudgedTimeout<'static> {
        let limit = match seconds {
            Some(seconds) => Some(Nanos::from_secs(seconds)),
            None => None,
        };
        let (layer, what) = match owner {
            TimeoutOwner::GuestDefault => ("Linux", "disks"),
            _ => ("sda", "SCSI command timeout"),
        };
        JudgedTimeout { owner, layer, what, limit, verdict, then: "", source: "" }
    }

    use TimeoutOwner::{Guest, GuestDefault, Target};
    use TimeoutVerdict::{Exceeded, OnError, Spare, Unknown, Unlimited};

    #[test]
    fn the_exceeded_ones_come_first_and_else_the_nearest() {
        let layers_text = |all: &[JudgedTimeout<'_>]| of_layers(&all.iter().collect::<Vec<_>>());
        let nearest =
            [timeout(Target, Some(120), Spare(90)), timeout(Target, Some(30), Spare(26_900_000_000))];
        let expected = "sda's SCSI command timeout of 30s was not reached (26.9 s to spare)";
        assert_eq!(layers_text(&nearest).as_deref(), Some(expected));
        let exceeded = [timeout(Target, Some(120), Spare(1)), timeout(Guest, Some(30), Exceeded)];
        let expected = "EXCEEDED: sda's SCSI command timeout of 30s in the guest";
        assert_eq!(layers_text(&exceeded).as_deref(), Some(expected));
        let unknown = [timeout(Target, Some(30), Unknown), timeout(Target, None, Unlimited)];
        let expected = "unknown whether sda's SCSI command timeout of 30s was reached";
        assert_eq!(layers_text(&unknown).as_deref(), Some(expected));
        let waiting = [timeout(Target, None, OnError), timeout(Target, None, Unlimited)];
        assert_eq!(layers_text(&waiting).as_deref(), Some("sda waits without a limit"));
        assert_eq!(layers_text(&waiting[..1]), None);
    }

    #[test]
    fn defaults_of_guests_come_by_what_became_of_them() {
        let guests_text = |all: &[JudgedTimeout<'_>]| of_guests(&all.iter().collect::<Vec<_>>());
        let all = [
            timeout(GuestDefault, Some(30), Exceeded),
            timeout(GuestDefault, Some(60), Spare(1)),
            timeout(GuestDefault, Some(180), Unknown),
            timeout(GuestDefault, None, Unlimited),
        ];
        let expected = "guests' defaults EXCEEDED: Linux 30s; not reached: Linux 1m; unknown: Linux 3m";
        assert_eq!(guests_text(&all).as_deref(), Some(expected));
        assert_eq!(guests_text(&all[3..]), None);
    }
}
