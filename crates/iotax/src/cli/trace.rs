//! `iotax trace`: shows a trace, and writes it in another format.

use std::fs::{self, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::trace::{Profiler, TraceProfile};
use iotax_interop::trace::{self, Trace, TraceFacts};
use iotax_model::exit::Exit;
use iotax_model::trace::{TraceExport, TraceFormat};
use iotax_model::units::human;
use iotax_report::json;
use iotax_report::nearest::nearest;

use super::say::{self, note, print_line};
use super::{Failure, OrExit, links, usage};

/// Flags of `iotax trace`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The trace; its format is recognised by content
    file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Write the trace to a new file instead: iolog, parquet or csv
    #[arg(long, num_args = 2, value_names = ["FORMAT", "OUT"], conflicts_with = "json")]
    export: Vec<String>,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let opened = open(&args.file)?;
    if let [format, out] = &args.export[..] {
        return export(&args.file, opened, format.parse().map_err(usage)?, Path::new(out));
    }
    let Trace { format, facts, events } = opened;
    let mut profiler = Profiler::default();
    for event in events {
        profiler.add(&event.map_err(|reason| broken(&args.file, &reason))?);
    }
    let profile = profiler.profile();
    if args.json {
        let name = args.file.display().to_string();
        say::print_json(&json::trace::document(&name, format, facts.source.as_deref(), facts.lost, &profile));
    } else {
        lines(&args.file, format, &facts, &profile).iter().for_each(|line| print_line!("{line}"));
    }
    Ok(Exit::Fine)
}

/// Opens a trace that the user named.
pub(super) fn open(file: &Path) -> Result<Trace, Failure> {
    trace::open(file).or_exit(Exit::Usage)
}

/// A trace that ends before its end.
pub(super) fn broken(file: &Path, reason: &str) -> Failure {
    usage(format!("{}: {reason}", file.display()))
}

fn export(file: &Path, opened: Trace, format: TraceExport, out: &Path) -> Result<Exit, Failure> {
    let named = || out.display().to_string();
    links::check(out).with_context(named).or_exit(Exit::Environment)?;
    let made = OpenOptions::new().write(true).create_new(true).open(out);
    let made = made
        .with_context(|| format!("{}: a trace is written to a new file", out.display()))
        .or_exit(Exit::Usage)?;
    let facts = TraceFacts {
        source: opened.facts.source.or_else(|| Some(file.display().to_string())),
        ..opened.facts
    };
    match trace::write(format, &facts, opened.events, BufWriter::new(made)) {
        Ok(ios) => {
            note!("{} I/Os in {}", ios, out.display());
            Ok(Exit::Fine)
        }
        Err(reason) => {
            // It is this command's own file, and half a trace.
            let _ = fs::remove_file(out);
            Err(broken(file, &reason))
        }
    }
}

/// A profile as text, with one fact per line.
fn lines(file: &Path, format: TraceFormat, facts: &TraceFacts, profile: &TraceProfile) -> Vec<String> {
    let TraceProfile { reads, writes, trims, flushes, fua, duration_s, .. } = *profile;
    let ios = reads + writes + trims + flushes;
    let mut lines = vec![format!(
        "{} ({format}): {} I/Os in {}",
        file.display(),
        grouped(ios),
        human::duration(duration_s)
    )];
    let mut put = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
    if let Some(source) = &facts.source {
        let lost = match facts.lost {
            Some(0) => "; no event was lost".to_owned(),
            Some(lost) => format!("; {} events were lost", grouped(lost)),
            None => String::new(),
        };
        put("recorded of", format!("{source}{lost}"));
    }
    if let Some(caveat) = format.caveat() {
        put("untold", caveat.to_owned());
    }
    let kinds = [
        (reads, "reads"),
        (writes, "writes"),
        (trims, "trims"),
        (flushes, "flushes"),
        (fua, "of the writes with FUA"),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    put("mix", kinds.join(", "));
    if let Some(rate) = profile.ios_per_s {
        let per_second = |bytes: u64| human::rate(bytes as f64 / duration_s);
        let peak =
            profile.peak_ios_per_s.map(|peak| format!(", {} in the busiest 100 ms", human::count(peak)));
        put(
            "rate",
            format!(
                "{} IOPS{}; {} read, {} written",
                human::count(rate),
                peak.unwrap_or_default(),
                per_second(profile.read_bytes),
                per_second(profile.written_bytes)
            ),
        );
    }
    if let Some(variation) = profile.gap_variation {
        put(
            "gaps",
            format!("{variation:.2} of their mean is their standard deviation (1: at random; more: bursts)"),
        );
    }
    let lengths: Vec<String> = profile
        .lengths
        .iter()
        .map(|length| format!("{} {:.0}%", human::bytes(length.bytes), length.share * 100.0))
        .collect();
    if !lengths.is_empty() {
        put("lengths", format!("{}; the longest {}", lengths.join(", "), human::bytes(profile.longest)));
    }
    if let Some(share) = profile.sequential {
        put("order", format!("{:.0}% sequential", share * 100.0));
    }
    put(
        "places",
        format!(
            "{} of distinct 4 KiB blocks, up to {}",
            human::bytes(profile.working_set),
            human::bytes(profile.reach)
        ),
    );
    if let (Some(mean), Some(most), Some(latency)) =
        (profile.mean_depth, profile.max_depth, profile.mean_latency_s)
    {
        put(
            "in flight",
            format!("{mean:.2} on average, at most {most}; {} each", human::time(latency * 1e9)),
        );
    }
    if profile.queues > 1 {
        put("volumes", format!("{} volumes; a replay puts all on one target", profile.queues));
    }
    if let Some(nearest) = nearest(profile) {
        put("nearest", format!("iotax bench TARGET {}", nearest.flags));
        nearest.loses.iter().for_each(|lost| put("", format!("which loses {lost}")));
    }
    lines
}

/// `1,234,567`
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
