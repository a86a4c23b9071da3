//! Frames as tables of text, for `--once` and for the screen.

use std::fmt::Write as _;

use iotax_model::{visible, wrap};

use crate::diagnosis::{self, Heat};
use crate::figure::{self, Figure};
use crate::rates::{CgroupRates, Frame, GuestRates, InterfaceRates, LayerRates};
use crate::raw::PercentileSource;

/// Minimum width of the name column in characters.
const SHORTEST_NAME: usize = 10;
/// Width in characters of the mark ` +12>`, which counts the columns that do not fit.
const MARK: usize = 5;
/// Width in characters of the mark `+12` beside a heading, which counts the rows that do not fit.
const MARK_OF_ROWS: usize = 3;
/// Maximum number of processes, and of control groups, listed in the text of a frame.
const MOST_CAUSES: usize = 10;

/// The kinds of tables of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// Table of block devices, as a tree.
    Layers,
    /// Table of guests, with a row for each of their disks.
    Guests,
    /// Table of processes with I/O in the interval.
    Processes,
    /// Table of control groups with I/O in the interval, with a row per group and device.
    Cgroups,
    /// Table of network interfaces.
    Interfaces,
}

impl TableKind {
    /// All tables, the most important first.
    pub const ALL: [Self; 5] = [Self::Layers, Self::Guests, Self::Processes, Self::Cgroups, Self::Interfaces];

    /// Returns the number of figure columns of the table if percentiles come from this source.
    #[must_use]
    pub fn columns(self, percentiles: &PercentileSource) -> usize {
        match self {
            Self::Layers => of_layers(percentiles).count(),
            Self::Guests => figure::GUESTS.len(),
            Self::Processes => figure::PROCESSES.len(),
            Self::Cgroups => figure::CGROUPS.len(),
            Self::Interfaces => figure::INTERFACES.len(),
        }
    }
}

/// Options for the layout of a table: width, sorting and filter.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableOptions<'a> {
    /// Width of the screen in characters.
    pub width: usize,
    /// Index of the figure to sort by; `None` to show the busiest rows first.
    pub by: Option<usize>,
    /// True to show devices as one list instead of a tree.
    pub is_flat: bool,
    /// Number of figure columns scrolled past on the left.
    pub skip: usize,
    /// Text that the shown rows must contain; empty to show all rows.
    pub filter: &'a str,
}

/// A table as text: a line of column headings, and rows of one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Heading of the name column, with a mark if columns are scrolled past on the left.
    title: String,
    /// Width of the name column in characters.
    names: usize,
    /// Headings of the shown figures, as text of a line.
    heads: String,
    /// Rows in the order in which they are shown.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Key that identifies the row within the table across frames.
    pub key: String,
    /// The row's name, figures and remark as a line of text.
    pub text: String,
    /// Name and remark of the row without truncation.
    pub whole: String,
    /// Load level of the row, shown by its colour.
    pub heat: Heat,
}

impl Table {
    /// Formats the heading line; `hidden` is the number of rows that do not fit.
    #[must_use]
    pub fn head(&self, hidden: usize) -> String {
        let hidden = if hidden == 0 { String::new() } else { format!("+{hidden}") };
        let title = wrap::cut(&format!("{}{hidden}", self.title), self.names);
        format!("{title:<0$}{1}", self.names, self.heads).trim_end().to_owned()
    }
}

/// A row before its layout: its data, name and remark.
struct Source<'a, R> {
    row: &'a R,
    key: String,
    name: String,
    remark: String,
    /// Depth in the tree; the following rows with a larger depth are below this row.
    depth: usize,
    heat: Heat,
}

/// Sorts rows in descending order of the largest value in each row or below it; rows stay below their parents.
fn largest_first<'a, R>(rows: Vec<Source<'a, R>>, value: &dyn Fn(&R) -> f64) -> Vec<Source<'a, R>> {
    let mut groups: Vec<Vec<Source<'a, R>>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if row.depth > group[0].depth => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    let most =
        |group: &[Source<'a, R>]| group.iter().map(|row| value(row.row)).fold(f64::NEG_INFINITY, f64::max);
    groups.sort_by(|one, other| most(other).total_cmp(&most(one)));
    let ordered = groups.into_iter().flat_map(|mut group| {
        let belonging = group.split_off(1);
        group.extend(largest_first(belonging, value));
        group
    });
    ordered.collect()
}

/// Lays out rows in sorted order: name, the figures that fit, and a remark in the remaining space. Names are shortened before any of the
/// first `essential` figures is left out. Without `by`, rows are sorted by the sum of the `usual` figures.
fn lay_out<R>(
    title: &str,
    figures: &[&Figure<R>],
    (essential, usual): (usize, &[&str]),
    rows: Vec<Source<'_, R>>,
    (by, options): (Option<&'static str>, &TableOptions<'_>),
) -> Table {
    let is_sorting = |figure: &Figure<R>| by.map_or(usual.contains(&figure.id), |by| by == figure.id);
    let value = |row: &R| {
        let known = figures.iter().filter(|figure| is_sorting(figure)).filter_map(|figure| (figure.get)(row));
        // Unknown values sort last.
        known.reduce(|sum, value| sum + value).unwrap_or(-1.0)
    };
    let wanted = options.filter.to_lowercase();
    let is_wanted = |row: &Source<'_, R>| {
        format!("{} {} {}", row.name, row.remark, row.key).to_lowercase().contains(&wanted)
    };
    let rows: Vec<_> = largest_first(rows, &value).into_iter().filter(is_wanted).collect();

    let taken = |figures: &[&Figure<R>]| figures.iter().map(|figure| figure.width() + 1).sum::<usize>();
    let needed = taken(&figures[..essential.min(figures.len())]);
    let heading = title.len() + MARK_OF_ROWS;
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(heading);
    let names = longest.min(options.width.saturating_sub(needed).max(SHORTEST_NAME));
    let skip = options.skip.min(figures.len().saturating_sub(1));
    let figures = &figures[skip..];
    let mut room = options.width.saturating_sub(names);
    if taken(figures) > room {
        room = room.saturating_sub(MARK);
    }
    let mut shown: Vec<&Figure<R>> = Vec::new();
    for figure in figures {
        let Some(left) = room.checked_sub(figure.width() + 1) else { break };
        room = left;
        shown.push(figure);
    }
    let cells = |text: &dyn Fn(&Figure<R>) -> String| {
        shown
            .iter()
            .fold(String::new(), |line, figure| format!("{line} {:>1$}", text(figure), figure.width()))
    };
    let mut heads = cells(&|figure| {
        if is_sorting(figure) { format!("*{}", figure.title) } else { figure.title.to_owned() }
    });
    if shown.len() < figures.len() {
        let _ = write!(heads, " +{}>", figures.len() - shown.len());
    }
    let line = |source: Source<'_, R>| {
        let name = visible::line(&source.name).into_owned();
        let mut text =
            format!("{:<names$}{}", wrap::cut(&name, names), cells(&|figure| figure.text(source.row)));
        let remark = visible::line(&source.remark).into_owned();
        if !remark.is_empty() && room > SHORTEST_NAME + 4 {
            let _ = write!(text, "  {}", wrap::cut(&remark, room - 2));
        }
        let whole = [name.trim_start(), &remark].join("  ").trim_end().to_owned();
        Row { key: source.key, text: text.trim_end().to_owned(), whole, heat: source.heat }
    };
    let title = if skip > 0 { format!("{title}<{skip}") } else { title.to_owned() };
    Table { title, names, heads, rows: rows.into_iter().map(line).collect() }
}

/// Lays out one table of a frame as text.
#[must_use]
pub fn table(kind: TableKind, frame: &Frame, options: &TableOptions<'_>) -> Table {
    match kind {
        TableKind::Layers => layers(frame, options),
        TableKind::Guests => guests(frame, options),
        TableKind::Processes => processes(frame, options),
        TableKind::Cgroups => cgroups(frame, options),
        TableKind::Interfaces => interfaces(frame, options),
    }
}

/// Returns the columns of the device table. Leaves out those that only BPF can fill, unless BPF is in use.
fn of_layers(percentiles: &PercentileSource) -> impl Iterator<Item = &'static Figure<LayerRates>> {
    const BY_BPF: [&str; 3] = ["read_p99_ns", "write_p99_ns", "device_latency_ns"];
    let has_percentiles = *percentiles == PercentileSource::Bpf;
    figure::LAYERS.iter().filter(move |figure| has_percentiles || !BY_BPF.contains(&figure.id))
}

fn layers(frame: &Frame, options: &TableOptions<'_>) -> Table {
    let figures: Vec<&Figure<LayerRates>> = of_layers(&frame.percentiles).collect();
    let rows = frame.layers.iter().map(|layer| {
        let LayerRates { name, title, depth, .. } = layer;
        let depth = if options.is_flat { 0 } else { *depth };
        Source {
            row: layer,
            key: name.clone(),
            name: format!("{}{title}", "  ".repeat(depth.min(8))),
            remark: remark(layer),
            depth,
            heat: diagnosis::heat(layer),
        }
    });
    // Names are shortened before any of the columns up to `queue` is left out: these fit on a terminal of 80 columns.
    let essential = figures.iter().position(|figure| figure.id == "queue").map_or(0, |at| at + 1);
    let by = options.by.and_then(|by| figures.get(by)).map(|figure| figure.id);
    lay_out("LAYER", &figures, (essential, &["busy"]), rows.collect(), (by, options))
}

/// Describes a device: its kind, its kernel name if not shown already, its lower devices if several, and its mount points.
fn remark(layer: &LayerRates) -> String {
    let kind = layer.kind.map(|kind| kind.to_string());
    let alias = (layer.title != layer.name).then(|| layer.name.clone());
    let on = (layer.on.len() > 1).then(|| format!("on {}", layer.on.join(" ")));
    let mounts = (!layer.mounts.is_empty()).then(|| layer.mounts.join(" "));
    kind.into_iter().chain(alias).chain(on).chain(mounts).collect::<Vec<_>>().join(", ")
}

/// Lays out rows as [`lay_out`] does, but shortens names before it leaves out any figure.
fn all_of<R>(
    title: &str,
    figures: &'static [Figure<R>],
    usual: &[&str],
    rows: Vec<Source<'_, R>>,
    options: &TableOptions<'_>,
) -> Table {
    let by = options.by.and_then(|by| figures.get(by)).map(|figure| figure.id);
    let all: Vec<&Figure<R>> = figures.iter().collect();
    lay_out(title, &all, (all.len(), usual), rows, (by, options))
}

fn processes(frame: &Frame, options: &TableOptions<'_>) -> Table {
    let name = |pid: u32, name: &str| {
        let guest = frame.guests.iter().find(|guest| guest.pid == pid);
        guest.map_or_else(|| format!("{pid} {name}"), |guest| format!("{pid} guest {}", guest.guest))
    };
    let rows = frame.processes.iter().map(|process| Source {
        row: process,
        key: process.pid.to_string(),
        name: name(process.pid, &process.name),
        remark: process.cgroup.clone().unwrap_or_default(),
        depth: 0,
        heat: Heat::Calm,
    });
    all_of("PROCESS", figure::PROCESSES, &["read_bytes_per_s", "write_bytes_per_s"], rows.collect(), options)
}

fn cgroups(frame: &Frame, options: &TableOptions<'_>) -> Table {
    let rows = frame.cgroups.iter().map(|group| {
        let CgroupRates { path, device, .. } = group;
        let name = format!("{device} {path}");
        Source { row: group, key: name.clone(), name, remark: String::new(), depth: 0, heat: Heat::Calm }
    });
    all_of("CGROUP", figure::CGROUPS, &["read_bytes_per_s", "write_bytes_per_s"], rows.collect(), options)
}

fn guests(frame: &Frame, options: &TableOptions<'_>) -> Table {
    let name =
        |row: &GuestRates| row.disk.as_ref().map_or(row.guest.clone(), |disk| format!("  {}", tail(disk)));
    let remark = |row: &GuestRates| match (&row.disk, &row.device) {
        (Some(_), Some(device)) => format!("on {device}"),
        (Some(_), None) => "on no device that is known".to_owned(),
        (None, _) => format!("pid {}", row.pid),
    };
    let rows = frame.guests.iter().map(|row| Source {
        row,
        key: guest_key(row),
        name: name(row),
        remark: remark(row),
        depth: usize::from(row.disk.is_some()),
        heat: Heat::Calm,
    });
    all_of("GUEST", figure::GUESTS, &["read_bytes_per_s", "write_bytes_per_s"], rows.collect(), options)
}

/// Returns a key that identifies the table row of a guest, or of one of its disks.
pub(crate) fn guest_key(row: &GuestRates) -> String {
    format!("{} {} {}", row.pid, row.guest, row.disk.as_deref().unwrap_or_default())
}

/// Returns the last component of a path, which usually distinguishes disks.
fn tail(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

fn interfaces(frame: &Frame, options: &TableOptions<'_>) -> Table {
    let rows = frame.interfaces.iter().map(|interface| {
        let InterfaceRates { name, rx_drops_per_s, tx_drops_per_s, .. } = interface;
        let has_losses = [rx_drops_per_s, tx_drops_per_s].into_iter().flatten().any(|rate| *rate > 0.0);
        let heat = if has_losses { Heat::Hot } else { Heat::Calm };
        Source {
            row: interface,
            key: name.clone(),
            name: name.clone(),
            remark: String::new(),
            depth: 0,
            heat,
        }
    });
    all_of("NETWORK", figure::INTERFACES, &["rx_bytes_per_s", "tx_bytes_per_s"], rows.collect(), options)
}

/// Formats in one line the shares of time in which tasks waited for I/O, a CPU or memory; `None` if unknown.
#[must_use]
pub fn pressure(frame: &Frame) -> Option<String> {
    let pressure = frame.pressure?;
    let parts = figure::PRESSURE.iter().map(|figure| format!("{} {}", figure.title, figure.text(&pressure)));
    Some(format!("stalled: {}", parts.collect::<Vec<_>>().join("  ")))
}

/// Returns a line that names the source of the means and of the percentiles.
#[must_use]
pub fn source(frame: &Frame) -> String {
    match &frame.percentiles {
        PercentileSource::Bpf => "mean: diskstats, p99 and device: BPF".to_owned(),
        PercentileSource::Unknown(reason) => format!("mean: diskstats, p99: unknown ({reason})"),
        PercentileSource::NotReported => "figures: the text's".to_owned(),
    }
}

/// Formats the end time and the length of a frame's interval.
#[must_use]
pub fn moment(frame: &Frame) -> String {
    let time = frame.at_ms.map_or_else(|| "time unknown".to_owned(), utc);
    let length = frame.interval_ns.map(|ns| format!("  {:.2} s", ns as f64 / 1e9));
    time + &length.unwrap_or_default()
}

/// Formats milliseconds since 1970 as `2026-01-31T12:00:00Z`.
pub(crate) fn utc(ms: u64) -> String {
    // The last second that RFC 3339 can write.
    const LAST_MS: u64 = 253_402_300_799_000;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.min(LAST_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Formats a whole frame as text, with tables of at most `width` characters. Tables without rows are left out; those of processes and of
/// control groups have at most 10 rows.
#[must_use]
pub fn text(frame: &Frame, width: usize) -> String {
    let mut text = format!("{}  {}\n", moment(frame), visible::line(&source(frame)));
    text.extend(pressure(frame).map(|line| line + "\n"));
    for kind in TableKind::ALL {
        let table = table(kind, frame, &TableOptions { width, ..TableOptions::default() });
        if table.rows.is_empty() {
            continue;
        }
        let shown = match kind {
            TableKind::Processes | TableKind::Cgroups => table.rows.len().min(MOST_CAUSES),
            TableKind::Layers | TableKind::Guests | TableKind::Interfaces => table.rows.len(),
        };
        let _ = writeln!(text, "\n{}", table.head(0));
        table.rows[..shown].iter().for_each(|row| text.extend([&row.text, "\n"]));
        if kind == TableKind::Guests {
            text.extend(diagnosis::guests(frame).iter().map(|line| format!("{}\n", visible::line(line))));
        }
        if shown < table.rows.len() {
            let _ = writeln!(text, "and {} more (--json has all)", table.rows.len() - shown);
        }
    }
    if !frame.remarks.is_empty() {
        let _ = writeln!(text, "\n{}", visible::text(&frame.remarks.join("\n")));
    }
    text
}
