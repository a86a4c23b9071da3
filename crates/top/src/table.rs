//! Frames as tables of text, for `--once` and for the screen.

use std::fmt::Write as _;

use iotax_model::visible;

use crate::diagnosis;
use crate::figure::{self, Figure};
use crate::rates::{Frame, GuestRates, LayerRates};
use crate::raw::PercentileSource;

/// The shortest column of names.
const SHORTEST_NAME: usize = 10;
/// Rows of processes and groups in the text of a frame.
const MOST_CAUSES: usize = 10;

/// A table: a title, the heads of its columns, and its rows, each a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// What the rows are.
    pub title: &'static str,
    /// The heads of the columns.
    pub head: String,
    /// The rows.
    pub rows: Vec<String>,
}

/// The order of block devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Each after the first one that it stands on.
    #[default]
    Stack,
    /// By the figure with this index in [`figure::LAYERS`], the largest first.
    By(usize),
}

/// Lays out rows: a name, the figures that fit, and a remark where room is left. `essential` figures narrow the names before they are
/// left out.
fn lay_out<R>(
    title: &'static str,
    figures: &[&Figure<R>],
    essential: usize,
    rows: &[(String, &R, String)],
    width: usize,
) -> Table {
    let taken = |figures: &[&Figure<R>]| figures.iter().map(|figure| figure.width() + 1).sum::<usize>();
    let needed = taken(&figures[..essential.min(figures.len())]);
    let longest = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0).max(title.len());
    let names = longest.min(width.saturating_sub(needed).max(SHORTEST_NAME));
    let mut room = width.saturating_sub(names);
    let mut shown: Vec<&Figure<R>> = Vec::new();
    for figure in figures {
        let Some(left) = room.checked_sub(figure.width() + 1) else { break };
        room = left;
        shown.push(figure);
    }
    let line = |name: &str, cells: &mut dyn Iterator<Item = String>, remark: &str| {
        let mut line = format!("{:<names$}", cut(name, names));
        for (figure, cell) in shown.iter().zip(cells) {
            let _ = write!(line, " {cell:>0$}", figure.width());
        }
        if !remark.is_empty() && room > SHORTEST_NAME + 4 {
            let _ = write!(line, "  {}", cut(remark, room - 2));
        }
        line.trim_end().to_owned()
    };
    let head = line(title, &mut shown.iter().map(|figure| figure.title.to_owned()), "");
    let rows = rows
        .iter()
        .map(|(name, row, remark)| line(name, &mut shown.iter().map(|figure| figure.text(row)), remark));
    Table { title, head, rows: rows.collect() }
}

/// At most `width` characters of a name, with a mark where some are left out, safe for a terminal.
fn cut(name: &str, width: usize) -> String {
    let name = visible::line(name);
    if name.chars().count() <= width {
        return name.into_owned();
    }
    let kept: String = name.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}~")
}

/// Block devices in an order; those whose figure is not known come last.
#[must_use]
pub fn sorted(frame: &Frame, order: Order) -> Vec<&LayerRates> {
    let mut layers: Vec<&LayerRates> = frame.layers.iter().collect();
    if let Order::By(index) = order
        && let Some(figure) = figure::LAYERS.get(index)
    {
        let value = |layer: &LayerRates| (figure.get)(layer).unwrap_or(-1.0);
        layers.sort_by(|one, other| value(other).total_cmp(&value(one)));
    }
    layers
}

/// Block devices, as a tree or in another order.
#[must_use]
pub fn layers(frame: &Frame, order: Order, width: usize) -> Table {
    let has_percentiles = frame.percentiles == PercentileSource::Bpf;
    let by_bpf = ["read_p99_ns", "write_p99_ns", "device_latency_ns"];
    let figures: Vec<&Figure<LayerRates>> =
        figure::LAYERS.iter().filter(|figure| has_percentiles || !by_bpf.contains(&figure.id)).collect();
    let layers = sorted(frame, order);
    let rows: Vec<_> = layers
        .into_iter()
        .map(|layer| {
            let indent = if order == Order::Stack { "  ".repeat(layer.depth.min(8)) } else { String::new() };
            (format!("{indent}{}", layer.title), layer, remark(layer))
        })
        .collect();
    // Up to the share of busy time, on a terminal of 80 columns.
    let essential = figures.iter().position(|figure| figure.id == "busy").map_or(0, |at| at + 1);
    lay_out("LAYER", &figures, essential, &rows, width)
}

/// What a device is, where it is mounted, what else it stands on.
fn remark(layer: &LayerRates) -> String {
    let kind = layer.kind.map(|kind| kind.to_string());
    let alias = (layer.title != layer.name).then(|| layer.name.clone());
    let on = (layer.on.len() > 1).then(|| format!("on {}", layer.on.join(" ")));
    let mounts = (!layer.mounts.is_empty()).then(|| layer.mounts.join(" "));
    kind.into_iter().chain(alias).chain(on).chain(mounts).collect::<Vec<_>>().join(", ")
}

/// Processes.
#[must_use]
pub fn processes(frame: &Frame, width: usize) -> Table {
    let name = |pid: u32, name: &str| {
        let guest = frame.guests.iter().find(|guest| guest.pid == pid);
        guest.map_or_else(|| format!("{pid} {name}"), |guest| format!("{pid} guest {}", guest.guest))
    };
    let rows: Vec<_> = frame
        .processes
        .iter()
        .map(|process| {
            let cgroup = process.cgroup.clone().unwrap_or_default();
            (name(process.pid, &process.name), process, cgroup)
        })
        .collect();
    let figures: Vec<_> = figure::PROCESSES.iter().collect();
    lay_out("PROCESS", &figures, figures.len(), &rows, width)
}

/// Control groups.
#[must_use]
pub fn cgroups(frame: &Frame, width: usize) -> Table {
    let rows: Vec<_> = frame
        .cgroups
        .iter()
        .map(|group| (format!("{} {}", group.device, group.path), group, String::new()))
        .collect();
    let figures: Vec<_> = figure::CGROUPS.iter().collect();
    lay_out("CGROUP", &figures, figures.len(), &rows, width)
}

/// Guests, with their disks.
#[must_use]
pub fn guests(frame: &Frame, width: usize) -> Table {
    let name =
        |row: &GuestRates| row.disk.as_ref().map_or(row.guest.clone(), |disk| format!("  {}", tail(disk)));
    let remark = |row: &GuestRates| match (&row.disk, &row.device) {
        (Some(_), Some(device)) => format!("on {device}"),
        (Some(_), None) => "on no device that is known".to_owned(),
        (None, _) => format!("pid {}", row.pid),
    };
    let rows: Vec<_> = frame.guests.iter().map(|row| (name(row), row, remark(row))).collect();
    let figures: Vec<_> = figure::GUESTS.iter().collect();
    lay_out("GUEST", &figures, figures.len(), &rows, width)
}

/// The last part of a path, which tells disks apart.
fn tail(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Network interfaces.
#[must_use]
pub fn interfaces(frame: &Frame, width: usize) -> Table {
    let rows: Vec<_> =
        frame.interfaces.iter().map(|interface| (interface.name.clone(), interface, String::new())).collect();
    let figures: Vec<_> = figure::INTERFACES.iter().collect();
    lay_out("NETWORK", &figures, figures.len(), &rows, width)
}

/// Stall times in one line; `None` if they are not known.
#[must_use]
pub fn pressure(frame: &Frame) -> Option<String> {
    let pressure = frame.pressure?;
    let parts = figure::PRESSURE.iter().map(|figure| format!("{} {}", figure.title, figure.text(&pressure)));
    Some(format!("stalled: {}", parts.collect::<Vec<_>>().join("  ")))
}

/// The line that says where latencies come from.
#[must_use]
pub fn source(frame: &Frame) -> String {
    match &frame.percentiles {
        PercentileSource::Bpf => "mean: diskstats, p99 and device: BPF".to_owned(),
        PercentileSource::Unknown(reason) => format!("mean: diskstats, p99: unknown ({reason})"),
        PercentileSource::NotTold => "figures: the text's".to_owned(),
    }
}

/// The time and length of a frame.
#[must_use]
pub fn moment(frame: &Frame) -> String {
    let time = frame.at_ms.map_or_else(|| "time unknown".to_owned(), utc);
    let length = frame.interval_ns.map(|ns| format!("  {:.2} s", ns as f64 / 1e9));
    time + &length.unwrap_or_default()
}

/// Milliseconds since 1970 as `2026-01-31T12:00:00Z`.
pub(crate) fn utc(ms: u64) -> String {
    // The last second that RFC 3339 can write.
    const LAST_MS: u64 = 253_402_300_799_000;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.min(LAST_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A whole frame. Tables without rows are left out.
#[must_use]
pub fn text(frame: &Frame, width: usize) -> String {
    let mut text = format!("{}  {}\n", moment(frame), visible::line(&source(frame)));
    text.extend(pressure(frame).map(|line| line + "\n"));
    for mut table in [
        layers(frame, Order::Stack, width),
        guests(frame, width),
        processes(frame, width),
        cgroups(frame, width),
        interfaces(frame, width),
    ] {
        if table.rows.is_empty() {
            continue;
        }
        let is_cause = matches!(table.title, "PROCESS" | "CGROUP");
        let hidden = if is_cause { table.rows.len().saturating_sub(MOST_CAUSES) } else { 0 };
        table.rows.truncate(table.rows.len() - hidden);
        let _ = write!(text, "\n{}\n{}\n", table.head, table.rows.join("\n"));
        if table.title == "GUEST" {
            text.extend(diagnosis::guests(frame).iter().map(|line| format!("{}\n", visible::line(line))));
        }
        if hidden > 0 {
            let _ = writeln!(text, "and {hidden} more (--json has all)");
        }
    }
    if !frame.remarks.is_empty() {
        let _ = writeln!(text, "\n{}", visible::text(&frame.remarks.join("\n")));
    }
    text
}
