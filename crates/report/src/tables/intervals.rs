//! Tables with several rows per measurement: one per interval, per device or interface in an interval, or per stream.

use std::collections::BTreeMap;

use iotax_analysis::Judgement;
use iotax_analysis::network::word;
use iotax_analysis::percentile::percentile;
use iotax_model::record::{DiskActivity, Flow, HostActivity, NicActivity, Sample};
use iotax_model::{Histogram, Run};

use super::{MeasurementRow, cell_columns, directions, rows_of};
use crate::columns;
use crate::table::{Column, DataTable, column, seconds};

/// Defines columns for figures of the latency histogram that `of` selects.
pub fn latency<R>(of: impl for<'r> Fn(&'r R) -> &'r Histogram + Copy + 'static) -> [Column<R>; 3] {
    [
        column("latency_mean_ns", move |row| of(row).mean()),
        column("latency_p50_ns", move |row| percentile(of(row), 0.5)),
        column("latency_p99_ns", move |row| percentile(of(row), 0.99)),
    ]
}

/// Defines columns in seconds for the end and the length of an interval, which are given in nanoseconds.
pub fn span<R>(of: impl Fn(&R) -> (u64, u64) + Copy + 'static) -> [Column<R>; 2] {
    [column("at_s", move |row| seconds(of(row).0)), column("duration_s", move |row| seconds(of(row).1))]
}

/// Builds the table of I/Os and latencies with one row per interval of a measurement.
#[must_use]
pub fn samples(runs: &[(Run, Judgement)]) -> DataTable {
    type Row<'a> = MeasurementRow<'a, (&'a Sample, Histogram)>;
    let span = span(|row: &Row<'_>| (row.datum.0.at_ns, row.datum.0.duration_ns));
    let directions = directions(|row: &Row<'_>| &row.datum.0.tallies);
    let bytes = columns!(Row<'_>, |row| "bytes" => row.datum.0.tallies.bytes());
    let oldest = columns!(Row<'_>, |row| "oldest_ns" => row.datum.0.oldest_ns);
    let latency = latency(|row: &Row<'_>| &row.datum.1);
    let columns =
        cell_columns().into_iter().chain(span).chain(directions).chain(bytes).chain(latency).chain(oldest);
    let rows = rows_of(runs, |m| m.samples.iter().map(|sample| (sample, sample.tallies.latency())).collect());
    DataTable::new(columns, rows)
}

/// Builds a table with one row per interval of a measurement and observed block device.
#[must_use]
pub fn disks(runs: &[(Run, Judgement)]) -> DataTable {
    of_machine(
        runs,
        |activity| &activity.disks,
        columns!(MachineRow<'_, DiskActivity>, |row|
            "device" => row.datum.name,
            "reads" => row.datum.of.reads,
            "read_bytes" => row.datum.of.read_bytes,
            "writes" => row.datum.of.writes,
            "write_bytes" => row.datum.of.write_bytes,
            "busy" => row.datum.of.busy,
            "mean_wait_ns" => row.datum.of.mean_wait_ns,
        ),
    )
}

/// Builds a table with one row per interval of a measurement and network interface.
#[must_use]
pub fn nics(runs: &[(Run, Judgement)]) -> DataTable {
    of_machine(
        runs,
        |activity| &activity.nics,
        columns!(MachineRow<'_, NicActivity>, |row|
            "interface" => row.datum.name,
            "rx_bytes" => row.datum.of.rx_bytes,
            "rx_packets" => row.datum.of.rx_packets,
            "rx_drops" => row.datum.of.rx_drops,
            "tx_bytes" => row.datum.of.tx_bytes,
            "tx_packets" => row.datum.of.tx_packets,
            "tx_drops" => row.datum.of.tx_drops,
        ),
    )
}

/// A block device or network interface of a machine in one interval, as a row of a table.
struct MachinePart<'a, T> {
    during: &'a HostActivity,
    name: &'a str,
    of: &'a T,
}

type MachineRow<'a, T> = MeasurementRow<'a, MachinePart<'a, T>>;

fn of_machine<'a, T, const N: usize>(
    runs: &'a [(Run, Judgement)],
    parts: fn(&HostActivity) -> &BTreeMap<String, T>,
    columns: [Column<MachineRow<'a, T>>; N],
) -> DataTable {
    let span = span(|row: &MachineRow<'a, T>| (row.datum.during.at_ns, row.datum.during.duration_ns));
    let of = |during| parts(during).iter().map(move |(name, of)| MachinePart { during, name, of });
    let rows = rows_of(runs, |m| m.host_samples.iter().flat_map(of).collect());
    DataTable::new(cell_columns().into_iter().chain(span).chain(columns), rows)
}

/// Builds a table with one row per stream of a measurement.
#[must_use]
pub fn streams(runs: &[(Run, Judgement)]) -> DataTable {
    type Row<'a> = MeasurementRow<'a, (u32, &'a Flow)>;
    let columns = columns!(Row<'_>, |row|
        "stream" => row.datum.0,
        "direction" => word(row.datum.1.upload),
        "sent_bytes" => row.datum.1.sent_bytes,
        "received_bytes" => row.datum.1.received_bytes,
        "sent_packets" => row.datum.1.sent_packets,
        "received_packets" => row.datum.1.received_packets,
        "lost" => row.datum.1.lost,
        "out_of_order" => row.datum.1.out_of_order,
        "duplicates" => row.datum.1.duplicates,
        "jitter_ns" => row.datum.1.jitter_ns,
        "retransmits" => row.datum.1.retransmits,
        "rtt_min_ns" => row.datum.1.rtt_ns.map(|[min, ..]| min),
        "rtt_mean_ns" => row.datum.1.rtt_ns.map(|[_, mean, _]| mean),
        "rtt_max_ns" => row.datum.1.rtt_ns.map(|[.., max]| max),
    );
    let rows = rows_of(runs, |m| (1..).zip(m.outcome.carried.iter().flat_map(|it| &it.flows)).collect());
    DataTable::new(cell_columns().into_iter().chain(columns), rows)
}
