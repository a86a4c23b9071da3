//! Reads `pg_test_fsync`'s table: one result per sync method.
//!
//! An operation is one or two writes and their sync. With one write, its rate is also the I/O rate.

use super::lines::lines;
use super::parse_util::{agree, decimal, not_understood};
use super::{Entry, Found};
use iotax_analysis::Metric;

/// Finds `pg_test_fsync`'s results in a text; `None` if the text has no output of `pg_test_fsync`.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("ops/sec") {
        return None;
    }
    let mut found = Found { tool: "pg_test_fsync", ..Found::default() };
    let (mut section, mut direct, mut last) = (None, None, None);
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            break;
        }
        let plain = line.trim();
        if plain.contains("supported on this platform for open_datasync") {
            direct = Some(true);
        } else if plain.contains("Direct I/O is not supported on this platform") {
            direct = Some(false);
        } else if let Some(new) = Section::of(plain) {
            (section, last) = (Some(new), None);
        } else if plain.contains("ops/sec") {
            // sysbench and others print these words too.
            let Some(head) = &mut section else { continue };
            if !head.has(plain, &mut last) {
                found.miss(not_understood(
                    i + 1,
                    line,
                    "it is not of the head above it: that of its own is lost",
                ));
                continue;
            }
            match row(head, plain, direct) {
                Ok(entry) => found.keep(Entry { line: i + 1, ..entry }),
                Err(reason) => found.miss(not_understood(i + 1, line, reason)),
            }
        }
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Sections of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Section {
    /// Sync methods, each after `writes` writes of `kb` kB.
    Methods { writes: u32, kb: u32 },
    /// Method `open_sync` with different write sizes.
    Sizes,
    /// Sync through a different file descriptor than the write.
    Descriptors,
    /// Writes of `kb` kB without any sync.
    NotSynced { kb: u32 },
}

/// Sync methods in the order in which they are printed.
const METHODS: [&str; 5] = ["open_datasync", "fdatasync", "fsync", "fsync_writethrough", "open_sync"];

impl Section {
    /// Returns whether a row can follow the method `last` in this section, and updates `last`.
    fn has(&self, row: &str, last: &mut Option<usize>) -> bool {
        let method = METHODS.iter().position(|method| row.split_whitespace().next() == Some(method));
        match self {
            Self::Methods { .. } => {
                let is_next = method.is_some() && method > *last;
                // After the last method, rows belong to another section whose header is missing.
                *last = if is_next { method } else { Some(METHODS.len()) };
                is_next
            }
            Self::Sizes => row.contains('*'),
            Self::Descriptors => row.starts_with("write,"),
            Self::NotSynced { .. } => row.starts_with("write "),
        }
    }

    fn of(line: &str) -> Option<Self> {
        let kb = |text: &str| text.split("kB").next()?.trim().parse().ok();
        if let Some(rest) = line.strip_prefix("Compare file sync methods using one ") {
            Some(Self::Methods { writes: 1, kb: kb(rest)? })
        } else if let Some(rest) = line.strip_prefix("Compare file sync methods using two ") {
            Some(Self::Methods { writes: 2, kb: kb(rest)? })
        } else if line.starts_with("Compare open_sync with different write sizes") {
            Some(Self::Sizes)
        } else if line.starts_with("Test if fsync on non-write file descriptor is honored") {
            Some(Self::Descriptors)
        } else {
            let rest = line.strip_prefix("Non-sync'ed ").or_else(|| line.strip_prefix("Non-Sync'ed "))?;
            Some(Self::NotSynced { kb: kb(rest)? })
        }
    }
}

/// Parses a row such as `fdatasync    1234.567 ops/sec     810 usecs/op`; versions before 9.3 print no time.
fn row(section: &Section, line: &str, direct: Option<bool>) -> Result<Entry, &'static str> {
    let (head, after) = line.split_once("ops/sec").ok_or("no rate in it")?;
    let (label, rate) = head.trim_end().rsplit_once(' ').ok_or("no rate in it")?;
    let (label, rate) = (label.trim(), decimal(rate).filter(|rate| *rate > 0.0).ok_or("no rate in it")?);
    let micros = match after.trim() {
        "" => None,
        rest => {
            Some(rest.strip_suffix("usecs/op").and_then(|us| decimal(us.trim())).ok_or("its time is torn")?)
        }
    };
    // The time is rounded to whole microseconds.
    if micros.is_some_and(|us| !agree(us, 1e6 / rate, 0.01) && (us - 1e6 / rate).abs() > 0.51) {
        return Err("its rate and its time contradict one another");
    }
    let mut entry = Entry::default();
    let (writes, kb) = match section {
        Section::Methods { writes, kb } => (Some(*writes), Some(*kb)),
        Section::Sizes => of_sizes(label).ok_or("no count and size of its writes")?,
        Section::Descriptors => (Some(1), None),
        Section::NotSynced { kb } => (Some(1), Some(*kb)),
    };
    entry.workload = match section {
        Section::Methods { writes: 1, kb } => format!("{label} {kb}k"),
        Section::Methods { writes, kb } => format!("{label} {writes}x{kb}k"),
        _ => label.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    if writes == Some(1) {
        entry.state(Metric::IOPS, Some(rate));
    } else {
        entry.add("operations", Some(rate), "/s");
    }
    entry.state(Metric::LATENCY_MEAN, micros.filter(|us| *us > 0.0).map(|us| us * 1e3));
    if let Some(kb) = kb {
        entry.set("bs", &format!("{kb}k"));
    }
    let opens_synced = label.contains("open_sync") || label.contains("open_datasync");
    match label {
        "open_datasync" => entry.set("sync", "dsync"),
        _ if label.contains("open_sync") => entry.set("sync", "sync"),
        "fdatasync" if writes == Some(1) => entry.set("fdatasync", "1"),
        "fsync" if writes == Some(1) => entry.set("fsync", "1"),
        _ => false,
    };
    // Methods that open the file with O_DSYNC or O_SYNC also try direct I/O.
    if let Some(direct) = direct.map(|direct| direct && opens_synced) {
        entry.set("direct", if direct { "1" } else { "0" });
    }
    if *section == (Section::NotSynced { kb: kb.unwrap_or_default() }) {
        entry.notes.push("write: the page cache took it, and nothing was made durable".into());
    }
    Ok(entry)
}

/// Parses the number of writes and kB per write in a label such as ` 2 *  8kB open_sync writes`.
fn of_sizes(label: &str) -> Option<(Option<u32>, Option<u32>)> {
    let (count, rest) = label.split_once('*')?;
    let (kb, _) = rest.split_once("kB")?;
    Some((Some(count.trim().parse().ok()?), Some(kb.trim().parse().ok()?)))
}
