//! The same test for dd, ping, iperf, iostat and others, whose figures are means over the lines present, or appear only once.

use std::collections::BTreeSet;

use iotax_interop::import::{Found, recognise};
use proptest::prelude::*;

use super::{data, seeded};

/// Texts of which each part contains complete figures.
const TEXTS: [&str; 24] = [
    "crystaldiskmark-3-6.txt",
    "crystaldiskmark-8.txt",
    "dd-9.1-de-zh-uk.txt",
    "dd-9.1-progress.txt",
    "dd-9.1.txt",
    "dd-others.txt",
    "diskspd-2.0.txt",
    "diskspd-2.2.txt",
    "elbencho-3.0.txt",
    "iperf2-udp.txt",
    "iperf2.csv",
    "iperf3-3.1-udp.txt",
    "iperf3-bidir.txt",
    "iperf3-reverse.txt",
    "iperf3-udp.txt",
    "pg_test_fsync-15.txt",
    "pgbench-15.txt",
    "pgbench-9.txt",
    "ping-busybox-1.35.txt",
    "ping-iputils.txt",
    "ping-macos.txt",
    "ping-windows-de.txt",
    "ping-windows.txt",
    "unixbench-5.1.3.txt",
];

/// Texts whose figures are means or sums over the lines present, or in which a missing line cannot be detected.
const WHOLES: [&str; 30] = [
    "atop-2.x.txt",
    "atop-P-DSK.txt",
    "diskspd-2.2.xml",
    "elbencho-3.0.csv",
    "hyperfine-1.15.json",
    "iostat-10.txt",
    "iostat-12.0.txt",
    "iostat-12.6-x.json",
    "iostat-12.6-x.txt",
    "iostat-12.6-xh.txt",
    "iostat-12.6-xmt.txt",
    "iostat-12.6-xs.txt",
    "iperf-1.7-udp.txt",
    "iperf2-2.1.8-e.txt",
    "iperf2-tcp.txt",
    "iperf3-V.txt",
    "iperf3-bidir.json",
    "iperf3-parallel-mbytes.txt",
    "iperf3-tcp.json",
    "iperf3-udp.json",
    "nvme-smart-log-2.json",
    "nvme-smart-log-2.txt",
    "ping-iputils-D.txt",
    "sar-10.txt",
    "sar-12.txt",
    "smartctl-7-ata.json",
    "smartctl-7.json",
    "sysbench-0.4.txt",
    "sysbench-1.0.txt",
    "sysbench-1.1.txt",
];

/// Formats every figure with its name and all digits. Units are left out, because a text that lost one contains the same figure without it.
fn figures(found: &[Found]) -> BTreeSet<String> {
    let entries = found.iter().flat_map(|found| &found.entries);
    entries
        .flat_map(|entry| {
            let metrics = entry.stated.metrics.iter().map(|(name, value)| format!("{name} {value:?}"));
            let others =
                entry.stated.others.iter().map(|figure| format!("{} {:?}", figure.name, figure.value));
            let all = entry.tallies.iter().flat_map(|tallies| tallies.each()).filter_map(|(word, tally)| {
                let tally = tally?;
                Some(format!("{word} {} {} {:?}", tally.ios, tally.bytes, tally.latency.mean()))
            });
            metrics.chain(others).chain(all).collect::<Vec<_>>()
        })
        .collect()
}

/// Damage to a text.
#[derive(Debug, Clone)]
enum Mishap {
    Drop(Vec<prop::sample::Index>),
    Cut(prop::sample::Index),
    Behead(prop::sample::Index),
    Wrap(usize),
    Quotes,
    Crlf,
    Indent,
    Comma,
    Around,
    OneBlank,
}

impl Mishap {
    fn befall(&self, text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let at = |index: &prop::sample::Index| {
            let at = index.index(text.len());
            (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
        };
        match self {
            Self::Drop(which) => {
                let lost: BTreeSet<usize> = which.iter().map(|index| index.index(lines.len())).collect();
                let kept = lines.iter().enumerate().filter(|(i, _)| !lost.contains(i));
                kept.flat_map(|(_, line)| [*line, "\n"]).collect()
            }
            Self::Cut(index) => text[..at(index)].to_owned(),
            Self::Behead(index) => text[at(index)..].to_owned(),
            Self::Wrap(width) => lines.iter().map(|line| wrapped(line, *width)).collect(),
            Self::Quotes => text.replace('"', "\u{201d}").replace('\'', "\u{2019}"),
            Self::Crlf => text.replace('\n', "\r\n"),
            Self::Indent => lines.iter().flat_map(|line| ["    ", *line, "\n"]).collect(),
            Self::OneBlank => lines
                .iter()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
                .collect(),
            Self::Comma => with_commas(text),
            Self::Around => format!("See what I got, 3 s for 12 MB/s:\n\n{text}\nThat is 100 % of it [1].\n"),
        }
    }
}

/// Wraps lines at spaces, as mail programs do.
fn wrapped(line: &str, width: usize) -> String {
    let (mut out, mut length) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        if length + word.len() > width && length > 0 {
            out.push('\n');
            length = 0;
        }
        out.push_str(word);
        length += word.len();
    }
    out + "\n"
}

/// Replaces every decimal point by a comma.
fn with_commas(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |at: Option<&char>| at.is_some_and(char::is_ascii_digit);
    let between = |i: usize| i > 0 && is_digit(chars.get(i - 1)) && is_digit(chars.get(i + 1));
    chars.iter().enumerate().map(|(i, c)| if *c == '.' && between(i) { ',' } else { *c }).collect()
}

fn harmless() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        (30..120_usize).prop_map(Mishap::Wrap),
        Just(Mishap::Quotes),
        Just(Mishap::Crlf),
        Just(Mishap::Indent),
        Just(Mishap::Comma),
        Just(Mishap::Around),
        Just(Mishap::OneBlank),
    ]
}

fn any_mishap() -> impl Strategy<Value = Mishap> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        prop::collection::vec(index(), 1..4).prop_map(Mishap::Drop),
        index().prop_map(Mishap::Cut),
        index().prop_map(Mishap::Behead),
        harmless(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..seeded(2000) })]

    #[test]
    fn what_is_lost_gives_no_other_figure(
        name in prop::sample::select(&TEXTS[..]),
        mishaps in prop::collection::vec(any_mishap(), 1..3),
    ) {
        let whole = data(name);
        let text = mishaps.iter().fold(whole.clone(), |text, mishap| {
            if text.is_empty() { text } else { mishap.befall(&text) }
        });
        let (true_ones, found) = (figures(&recognise(&whole)), figures(&recognise(&text)));
        let new: Vec<&String> = found.difference(&true_ones).collect();
        prop_assert!(new.is_empty(), "{new:?} in {name}:\n{text}");
    }

    #[test]
    fn what_is_only_written_otherwise_gives_no_other_figure(
        name in prop::sample::select(&WHOLES[..]),
        mishap in harmless(),
    ) {
        let whole = data(name);
        let text = mishap.befall(&whole);
        let (true_ones, found) = (figures(&recognise(&whole)), figures(&recognise(&text)));
        let new: Vec<&String> = found.difference(&true_ones).collect();
        prop_assert!(new.is_empty(), "{new:?} in {name}:\n{text}");
    }

    #[test]
    fn no_text_at_all_makes_it_stumble(
        name in prop::sample::select([TEXTS.as_slice(), WHOLES.as_slice()].concat()),
        mishaps in prop::collection::vec(any_mishap(), 1..4),
        noise in "\\PC{0,40}",
        at in any::<prop::sample::Index>(),
    ) {
        let mut text = mishaps.iter().fold(data(name), |text, mishap| {
            if text.is_empty() { text } else { mishap.befall(&text) }
        });
        let ends: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        text.insert_str(ends[at.index(ends.len())], &noise);
        let lines = text.lines().count().max(1);
        for found in recognise(&text) {
            prop_assert!(!found.entries.is_empty());
            prop_assert!(found.entries.iter().all(|entry| (1..=lines).contains(&entry.line)), "{found:?}");
            prop_assert!(found.not_understood.iter().all(|line| (1..=lines).contains(&line.number)), "{found:?}");
        }
    }
}

#[test]
fn every_sample_is_read_and_by_its_own_tool_alone() {
    for name in TEXTS.iter().chain(&WHOLES) {
        let found = recognise(&data(name));
        let tools: Vec<&str> = found.iter().map(|found| found.tool).collect();
        let tool = name.split(['-', '.']).next().expect("a name");
        let tool = match tool {
            "iperf2" => "iperf",
            "unixbench" => "UnixBench",
            "diskspd" => "DiskSpd",
            "crystaldiskmark" => "CrystalDiskMark",
            "nvme" => "nvme smart-log",
            tool => tool,
        };
        assert_eq!(tools, [tool], "{name}");
        assert!(found[0].not_understood.is_empty(), "{name}: {:?}", found[0].not_understood);
        let is_context = matches!(tool, "nvme smart-log" | "smartctl");
        let has_metrics = found[0].entries.iter().any(|entry| !entry.stated.metrics.is_empty());
        assert_eq!(has_metrics, !is_context, "{name}");
    }
}

#[test]
fn layouts_that_no_program_here_wrote_give_the_figures_in_them() {
    let metric = |name: &str, entry: usize, metric: &str| {
        let found = recognise(&data(name));
        found[0].entries[entry]
            .stated
            .metrics
            .get(metric)
            .copied()
            .unwrap_or_else(|| panic!("{name}: {found:?}"))
    };
    for (name, entry, word, value) in [
        ("dd-others.txt", 0, "bytes_per_s", 1_073_741_824.0 / 2.503_429),
        ("dd-others.txt", 1, "bytes_per_s", 1_073_741_824.0 / 8.034_52),
        ("ping-macos.txt", 0, "latency_mean", 2.71e6),
        ("ping-windows-de.txt", 0, "latency_mean", 13e6),
        ("iperf2-tcp.txt", 0, "bytes_per_s", 937e6 / 8.0),
        ("iperf2-udp.txt", 0, "bytes_per_s", 1e6 / 8.0),
        ("iperf2.csv", 2, "bytes_per_s", 999_600.0 / 8.0),
        ("iperf3-3.1-udp.txt", 0, "bytes_per_s", 1e6 / 8.0),
        ("iostat-10.txt", 1, "iops", f64::midpoint(530.0, 524.0)),
        ("iostat-10.txt", 1, "latency_mean", (530.0 * 2.26 + 524.0 * 2.33) / 1054.0 * 1e6),
        ("iostat-12.0.txt", 0, "bytes_per_s", f64::midpoint(64_180.0, 64_584.0) * 1024.0),
    ] {
        let found = metric(name, entry, word);
        assert!((found / value - 1.0).abs() < 1e-12, "{name} {word}: {found}, not {value}");
    }
}
