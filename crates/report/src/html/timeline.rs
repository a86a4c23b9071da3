//! Shows a workload over time, with the host's layers below: one row per interval, one panel per figure.

use iotax_model::Workload;
use iotax_model::record::HostActivity;
use iotax_model::units::human;
use iotax_model::workload::Kind;

use super::chart::{Across, Axis, Cell, Chart, Panel, Plot, Unit};
use super::clock::Clock;
use super::colours;
use iotax_analysis::cpu_breakdown::Role;
use iotax_analysis::figures::{bottom_disks, done, is_stream};
use iotax_analysis::stats::median;
use iotax_model::Run;

/// Number of leading columns, which identify an interval: target, round, start, end.
const WHEN: usize = 4;

/// Function that returns a figure of the host's activity; its first argument is the name of the measured target.
type Of<'a> = Box<dyn Fn(&str, &HostActivity) -> Option<f64> + 'a>;

/// A figure of the host that is drawn over time in a panel.
struct Layer<'a> {
    column: String,
    label: String,
    unit: Unit,
    /// The vertical axis extends at least to this value, even if all data are smaller.
    at_least: f64,
    height: u32,
    /// Returns the figure's mean over an interval; `None` if unknown.
    of: Of<'a>,
}

/// Builds the chart of a workload's rate and the host's figures over time; without rows if there are no intervals.
pub(super) fn timeline(run: &Run, workload: &Workload, clock: &Clock<'_>) -> Chart {
    let layers = layers(run);
    let mut rows = rows(clock, &layers);
    let (label, column, unit) = match &workload.kind {
        Kind::Streams(_) => ("Throughput", "bits_per_s", Unit::Bits),
        Kind::RoundTrips(_) => ("Round trips per second", "trips_per_s", Unit::Count),
        Kind::Block | Kind::Files(_) | Kind::Foreign => ("I/Os per second", "ios_per_s", Unit::Count),
    };
    let io = Axis { label: label.into(), unit, log: false, at_least: 0.0 };
    let mut columns: Vec<String> = ["target", "round", "from_s", "to_s", column].map(Into::into).into();
    let mut panels = vec![Panel { column: WHEN, axis: io, height: 140, ends: None }];
    let mut known = vec![true; WHEN + 1];
    for (index, layer) in layers.into_iter().enumerate() {
        // A figure that is unknown everywhere has no panel.
        known.push(rows.iter().any(|row| row[WHEN + 1 + index] != Cell::Unknown));
        if known.last() == Some(&true) {
            let axis = Axis { label: layer.label, unit: layer.unit, log: false, at_least: layer.at_least };
            panels.push(Panel { column: columns.len(), axis, height: layer.height, ends: None });
            columns.push(layer.column);
        }
    }
    for row in &mut rows {
        let mut keep = known.iter();
        row.retain(|_| keep.next().copied().unwrap_or_default());
    }
    let beneath = if panels.len() > 1 { "; below: the host in the same time" } else { "" };
    let note = format!("{}{beneath}", clock.note());
    Chart {
        key: "over-time".into(),
        title: format!("{label} over time"),
        note,
        message: message(run, &rows, unit),
        columns,
        colours: colours(run, &rows),
        rows,
        plot: Plot::Lines { series: 0, across: Across::Rounds(clock.across(1, 2, 3)), panels, marks: false },
    }
}

/// Returns a row per interval of the load, with the host's figures for the same interval.
fn rows(clock: &Clock<'_>, layers: &[Layer<'_>]) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for m in &clock.measurements {
        let row = |(from, to): (f64, f64), iops: Option<f64>, values: Vec<Cell>| {
            let mut row = vec![m.target.as_str().into(), m.round.into(), from.into(), to.into(), iops.into()];
            row.extend(values);
            row
        };
        let mut watched = m.host_samples.chunks(clock.joined).map(|activities| {
            let values: Vec<Cell> =
                layers.iter().map(|layer| mean(activities, &|h| (layer.of)(&m.target, h)).into()).collect();
            (span(activities.iter().map(|h| (h.at_ns, h.duration_ns))), values)
        });
        for samples in m.samples.chunks(clock.joined) {
            let each = if is_stream(m) { 8 } else { 1 };
            let ios: u64 = samples.iter().map(|s| each * done(m, &s.tallies)).sum();
            let ns: u64 = samples.iter().map(|s| s.duration_ns).sum();
            let iops = (ns > 0).then(|| ios as f64 / (ns as f64 / 1e9));
            let when = span(samples.iter().map(|s| (s.at_ns, s.duration_ns)));
            let unknown = || vec![Cell::Unknown; layers.len()];
            // The host is sampled together with the agent, so both have nearly the same intervals.
            let (host, values) = watched.next().unwrap_or_else(|| (None, unknown()));
            match (when, host) {
                (Some(when), Some(host)) if (when.1 - host.1).abs() > (when.1 - when.0) / 2.0 => {
                    rows.extend([row(when, iops, unknown()), row(host, None, values)]);
                }
                (Some(when), _) => rows.push(row(when, iops, values)),
                (None, Some(host)) => rows.push(row(host, None, values)),
                (None, None) => {}
            }
        }
        rows.extend(watched.filter_map(|(host, values)| Some(row(host?, None, values))));
    }
    rows
}

/// Returns start and end in seconds of consecutive intervals, which are given as (end, length) in nanoseconds; `None` if their total length
/// is 0.
pub(super) fn span(mut intervals: impl Iterator<Item = (u64, u64)>) -> Option<(f64, f64)> {
    let (at, length) = intervals.next()?;
    let (from, to) = (at.saturating_sub(length), intervals.last().map_or(at, |(at, _)| at));
    (to > from).then_some((from as f64 / 1e9, to as f64 / 1e9))
}

/// Returns the mean of a figure over several intervals, weighted by their lengths; `None` if it is unknown in any of them.
fn mean(activities: &[HostActivity], figure: &dyn Fn(&HostActivity) -> Option<f64>) -> Option<f64> {
    let known = activities.iter().filter(|h| h.duration_ns > 0);
    let ns: u64 = known.clone().map(|h| h.duration_ns).sum();
    let sum = known.map(|h| Some(figure(h)? * h.duration_ns as f64)).sum::<Option<f64>>()?;
    (ns > 0).then(|| sum / ns as f64)
}

fn layer<'a>(column: &str, label: &str, unit: Unit, of: Of<'a>) -> Layer<'a> {
    Layer {
        column: column.into(),
        label: label.into(),
        unit,
        at_least: if unit == Unit::Percent { 100.0 } else { 0.0 },
        height: 64,
        of,
    }
}

fn layers(run: &Run) -> Vec<Layer<'_>> {
    let share = |ns: u64, h: &HostActivity| 100.0 * ns as f64 / h.duration_ns as f64;
    let mut layers = vec![
        layer(
            "device_busy_percent",
            "device busy",
            Unit::Percent,
            Box::new(|target, h| {
                bottom_disks(run, target, h).map(|(_, disk)| disk.busy * 100.0).reduce(f64::max)
            }),
        ),
        layer(
            "device_bytes_per_s",
            "device throughput",
            Unit::Rate,
            Box::new(|target, h| {
                let moved = bottom_disks(run, target, h).map(|(_, disk)| disk.read_bytes + disk.write_bytes);
                moved.reduce(|a, b| a + b).map(|bytes| bytes as f64 / (h.duration_ns as f64 / 1e9))
            }),
        ),
        layer(
            "io_stalled_some_percent",
            "some task stalled on I/O (PSI)",
            Unit::Percent,
            Box::new(move |_, h| Some(share(h.pressure?.io_some_ns, h))),
        ),
        layer(
            "io_stalled_full_percent",
            "all tasks stalled on I/O (PSI)",
            Unit::Percent,
            Box::new(move |_, h| Some(share(h.pressure?.io_full_ns, h))),
        ),
        layer(
            "cpus_busy",
            "CPUs busy, all programs and guests",
            Unit::Count,
            Box::new(|_, h| Some(h.cpu?.busy_ns() as f64 / h.duration_ns as f64)),
        ),
    ];
    for role in Role::QEMU {
        let (column, label) = (format!("cpus_of_{}", role.word()), format!("CPUs busy with {}", role.name()));
        layers.push(layer(
            &column,
            &label,
            Unit::Count,
            Box::new(move |_, h| {
                Some(h.guest_threads.get(role.word())?.total_ns() as f64 / h.duration_ns as f64)
            }),
        ));
    }
    layers
}

/// Describes the rates of each target in a sentence, for screen readers.
fn message(run: &Run, rows: &[Vec<Cell>], unit: Unit) -> String {
    let words = |rate: f64| if unit == Unit::Bits { human::bits(rate / 8.0) } else { human::count(rate) };
    let of = |target: &str| {
        let rates: Vec<f64> = rows
            .iter()
            .filter(|row| row[0] == Cell::from(target))
            .filter_map(|row| if let Cell::Figure(rate) = row[WHEN] { Some(rate) } else { None })
            .collect();
        let (least, most) =
            (rates.iter().copied().reduce(f64::min)?, rates.iter().copied().reduce(f64::max)?);
        let [least, most, middle] = [least, most, median(&rates)?].map(words);
        Some(format!("{target}: {middle} in the middle, from {least} to {most}"))
    };
    run.plan.targets.iter().filter_map(|target| of(&target.name)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_intervals_are_weighted_by_their_length() {
        let activity = |at_ns, duration_ns| HostActivity { at_ns, duration_ns, ..HostActivity::default() };
        let both = [activity(1_000, 1_000), activity(4_000, 3_000)];
        assert_eq!(mean(&both, &|h| Some(h.duration_ns as f64)), Some(2_500.0));
        assert_eq!(mean(&both, &|h| (h.at_ns > 1_000).then_some(1.0)), None, "partly unknown is unknown");
        assert_eq!(mean(&[activity(0, 0)], &|_| Some(1.0)), None);
        assert_eq!(span(both.iter().map(|h| (h.at_ns, h.duration_ns))), Some((0.0, 4e-6)));
        assert_eq!(span([(5, 0)].into_iter()), None);
    }
}
