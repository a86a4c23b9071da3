//! `iotax trace`: shows a trace, and writes it in another format.

use std::fs::{self, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::trace::{
    CacheHits, HitShare, HotAreas, HotShare, LengthShare, Profiler, Reuse, TraceProfile,
};
use iotax_interop::trace::{self, Trace, TraceFacts};
use iotax_model::exit::Exit;
use iotax_model::trace::{Events, TraceExport, TraceFormat, TracedIo};
use iotax_model::units::human::{self, grouped};
use iotax_report::json;
use iotax_report::nearest::nearest;

use super::json_args::JsonArgs;
use super::say::{note, print_line};
use super::{Failure, OrExit, links, usage};

/// Flags of `iotax trace`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The trace; its format is recognised by content. With --export several, which are merged by time
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
    /// Write the trace to a new file instead: iolog, parquet or csv
    #[arg(long, num_args = 2, value_names = ["FORMAT", "OUT"], conflicts_with = "json")]
    export: Vec<String>,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open(json::trace::MARK)?;
    if let [format, out] = &args.export[..] {
        return export(&args.files, format.parse().map_err(usage)?, Path::new(out));
    }
    let [file] = &args.files[..] else {
        return Err(usage(format!(
            "{} traces are given; one is shown at a time, and several become one by --export parquet OUT",
            args.files.len()
        )));
    };
    let Trace { format, facts, events } = open(file)?;
    let mut profiler = Profiler::default();
    for event in events {
        profiler.add(&event.map_err(|reason| broken(file, &reason))?);
    }
    let profile = profiler.profile();
    json.write(|| {
        let name = file.display().to_string();
        json::trace::document(&name, format, facts.source.as_deref(), facts.lost, &profile)
    })?;
    if !json.is_on_stdout() {
        lines(file, format, &facts, &profile).iter().for_each(|line| print_line!("{line}"));
    }
    Ok(Exit::Fine)
}

/// Opens a trace that the user named.
pub(super) fn open(file: &Path) -> Result<Trace, Failure> {
    trace::open(file).or_exit(Exit::Usage)
}

/// Returns the error for a trace that cannot be used.
pub(super) fn broken(file: &Path, reason: &str) -> Failure {
    usage(format!("{}: {reason}", file.display()))
}

/// Writes a trace to a new file, or several as one.
fn export(files: &[PathBuf], format: TraceExport, out: &Path) -> Result<Exit, Failure> {
    let (facts, events) = match files {
        [file] => {
            let Trace { facts, events, .. } = open(file)?;
            let name = file.display().to_string();
            let source = facts.source.or_else(|| Some(name.clone()));
            let named =
                move |event: Result<TracedIo, String>| event.map_err(|reason| format!("{name}: {reason}"));
            let events: Events = Box::new(events.map(named));
            (TraceFacts { source, ..facts }, events)
        }
        files => trace::merged(files).or_exit(Exit::Usage)?,
    };
    let named = || out.display().to_string();
    links::check(out).with_context(named).or_exit(Exit::Environment)?;
    let made = OpenOptions::new().write(true).create_new(true).open(out);
    let made = made
        .with_context(|| format!("{}: a trace is written to a new file", out.display()))
        .or_exit(Exit::Usage)?;
    match trace::write(format, &facts, events, BufWriter::new(made)) {
        Ok(ios) => {
            note!("{} I/Os in {}", ios, out.display());
            Ok(Exit::Fine)
        }
        Err(reason) => {
            // This command created the file, and it holds only part of the trace.
            let _ = fs::remove_file(out);
            Err(usage(reason))
        }
    }
}

/// Formats a trace's profile as text, with one fact per line.
fn lines(file: &Path, format: TraceFormat, facts: &TraceFacts, profile: &TraceProfile) -> Vec<String> {
    let TraceProfile { reads, writes, trims, flushes, fua, duration_s, .. } = *profile;
    let ios = reads + writes + trims + flushes;
    let mut lines = vec![format!(
        "{} ({format}): {} I/Os in {}",
        file.display(),
        grouped(ios),
        if duration_s < 1.0 { human::time(duration_s * 1e9) } else { human::duration(duration_s) }
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
    let lengths = length_shares(&profile.lengths);
    if !lengths.is_empty() {
        // `profile.longest` leaves out I/Os that are too long to be replayed.
        let longest = profile.lengths.iter().map(|length| length.bytes).fold(profile.longest, u64::max);
        put("lengths", format!("{}; the longest {}", lengths.join(", "), human::bytes(longest)));
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
    if reads + writes > 0 {
        for (name, rows) in [("reuse", reuse_lines(&profile.reuse)), ("hot", hot_lines(&profile.hot))] {
            rows.into_iter()
                .enumerate()
                .for_each(|(index, line)| put(if index == 0 { name } else { "" }, line));
        }
    }
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

/// Describes hit rates of caches of several sizes, and the size of the sample if they are based on one.
fn reuse_lines(reuse: &Reuse) -> Vec<String> {
    let reads = hits(reuse, "reads", "answer", |cache| cache.reads);
    let writes = hits(reuse, "writes", "hold the blocks of", |cache| cache.writes);
    let mut lines: Vec<String> = reads.into_iter().chain(writes).collect();
    if lines.is_empty() {
        return vec!["no cache would answer a read or take a write: no block is used twice".into()];
    }
    if reuse.sampled < 1.0 {
        lines.push(format!(
            "by a sample of {} blocks, {:.2}% of all; ± is half of a 95% interval",
            grouped(reuse.followed),
            reuse.sampled * 100.0
        ));
    }
    lines
}

/// Describes the smallest caches with 50%, 90% and 100% of the highest hit rate; `None` without hits.
fn hits(reuse: &Reuse, ios: &str, does: &str, of: fn(&CacheHits) -> Option<HitShare>) -> Option<String> {
    let caches: Vec<(u64, HitShare)> =
        reuse.caches.iter().filter_map(|cache| Some((cache.cache, of(cache)?))).collect();
    let most = caches.iter().map(|(_, hits)| hits.share).fold(0.0, f64::max);
    let mut chosen: Vec<&(u64, HitShare)> = [0.5, 0.9, 1.0]
        .iter()
        .filter_map(|part| caches.iter().find(|(_, hits)| hits.share >= part * most))
        .collect();
    chosen.dedup();
    let described: Vec<String> = chosen
        .iter()
        .enumerate()
        .map(|(index, (cache, hits))| {
            let would = if index == 0 { format!(" would {does}") } else { String::new() };
            let error =
                if hits.error > 0.0 { format!(" ± {:.1}", hits.error * 100.0) } else { String::new() };
            format!("{}{would} {:.1}{error}%", human::bytes(*cache), hits.share * 100.0)
        })
        .collect();
    (most > 0.0).then(|| format!("{ios}: an LRU cache of {}, and no larger one more", described.join(", ")))
}

/// Describes the shares of the touched area that take 50% and 90% of all I/Os. Adds separate lines for reads and writes if their 50% areas
/// differ by a factor of more than 1.5.
fn hot_lines(hot: &HotAreas) -> Vec<String> {
    let line = |ios: &str, share: HotShare| {
        format!(
            "half of the {ios} go to {:.1}% of the area that they touch, 90% to {:.1}% (at random: {:.1}% and {:.1}%)",
            share.half * 100.0,
            share.ninety * 100.0,
            share.half_by_chance * 100.0,
            share.ninety_by_chance * 100.0
        )
    };
    let mut lines: Vec<String> = hot.all.map(|all| line("I/Os", all)).into_iter().collect();
    if let (Some(reads), Some(writes)) = (hot.reads, hot.writes)
        && (reads.half > 1.5 * writes.half || writes.half > 1.5 * reads.half)
    {
        lines.extend([line("reads", reads), line("writes", writes)]);
    }
    lines
}

/// Returns each length with its share, such as `4.00 KiB 97%`. Lengths that would round to the same text are given in bytes.
fn length_shares(lengths: &[LengthShare]) -> Vec<String> {
    let text = |bytes| {
        let alike = |other: &&LengthShare| human::bytes(other.bytes) == human::bytes(bytes);
        if lengths.iter().filter(alike).count() > 1 { format!("{bytes} B") } else { human::bytes(bytes) }
    };
    lengths.iter().map(|length| format!("{} {:.0}%", text(length.bytes), length.share * 100.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reuse(sampled: f64, shares: &[(f64, f64)], error: f64) -> Reuse {
        let hit = |share| Some(HitShare { share, error });
        let caches = shares.iter().zip(20..).map(|((reads, writes), bits)| CacheHits {
            cache: 1 << bits,
            reads: hit(*reads),
            writes: hit(*writes),
        });
        Reuse { followed: 65_536, sampled, caches: caches.collect() }
    }

    #[test]
    fn lengths_that_differ_look_different() {
        let lengths = [(4096, 0.5), (1_048_576, 0.3), (1_049_088, 0.2)];
        let lengths = lengths.map(|(bytes, share)| LengthShare { bytes, share });
        assert_eq!(length_shares(&lengths), ["4.00 KiB 50%", "1048576 B 30%", "1049088 B 20%"]);
    }

    #[test]
    fn caches_are_those_with_half_most_and_all_of_the_hits() {
        let shares = [(0.1, 0.0), (0.4, 0.0), (0.6, 0.0), (0.75, 0.0), (0.8, 0.0), (0.8, 0.25)];
        assert_eq!(
            reuse_lines(&reuse(0.03125, &shares, 0.0123)),
            [
                "reads: an LRU cache of 2.00 MiB would answer 40.0 ± 1.2%, 8.00 MiB 75.0 ± 1.2%, 16.0 MiB 80.0 ± 1.2%, and no larger one more",
                "writes: an LRU cache of 32.0 MiB would hold the blocks of 25.0 ± 1.2%, and no larger one more",
                "by a sample of 65,536 blocks, 3.12% of all; ± is half of a 95% interval",
            ]
        );
        assert_eq!(
            reuse_lines(&reuse(1.0, &[(0.5, 0.0)], 0.0)),
            ["reads: an LRU cache of 1.00 MiB would answer 50.0%, and no larger one more"]
        );
        assert_eq!(reuse_lines(&reuse(1.0, &[], 0.0)).len(), 1);
    }

    #[test]
    fn reads_and_writes_are_told_apart_where_they_differ() {
        let share = |half| Some(HotShare { half, ninety: 0.9, half_by_chance: 0.5, ninety_by_chance: 0.9 });
        let lines = |reads, writes| {
            hot_lines(&HotAreas { region: 4096, all: share(0.4), reads: share(reads), writes: share(writes) })
        };
        assert_eq!(lines(0.3, 0.4).len(), 1);
        assert_eq!(
            lines(0.03, 0.4)[1],
            "half of the reads go to 3.0% of the area that they touch, 90% to 90.0% (at random: 50.0% and 90.0%)"
        );
        assert!(lines(0.4, 0.03)[2].starts_with("half of the writes go to 3.0%"));
    }
}
