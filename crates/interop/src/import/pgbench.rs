//! Reads pgbench's summary, of PostgreSQL 8 to 18.
//!
//! A transaction is not an I/O, so its rate keeps pgbench's name. The latency is the transaction's.

use super::lines::lines;
use super::parse_util::{decimal, not_understood, whole_nanos};
use super::{Entry, Found};
use iotax_analysis::Metric;

/// Finds pgbench's results in a text; `None` if the text has no output of pgbench.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("tps = ") {
        return None;
    }
    let mut found = Found { tool: "pgbench", ..Found::default() };
    let mut run: Option<Summary> = None;
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            break;
        }
        let plain = line.trim();
        if let Some(version) = plain.strip_prefix("pgbench (") {
            close(run.take(), &mut found);
            // `15.3`, or `PostgreSQL) 15.3` of --version.
            let version = version.rsplit(' ').next().unwrap_or_default().trim_end_matches(')');
            found.version =
                Some(version.to_owned()).filter(|version| version.starts_with(|c: char| c.is_ascii_digit()));
        } else if let Some(script) = plain.strip_prefix("transaction type:") {
            close(run.take(), &mut found);
            run = Some(Summary { line: i + 1, script: script.trim().to_owned(), ..Summary::default() });
        } else if let Some(rate) = plain.strip_prefix("tps = ") {
            let rate = Rate::of(rate);
            let summary = run.get_or_insert_with(|| Summary { line: i + 1, ..Summary::default() });
            match rate {
                Some(rate) if summary.rates.iter().all(|known| known.name != rate.name) => {
                    summary.rates.push(rate);
                }
                _ => found.miss(not_understood(i + 1, line, "a rate that is torn or stands twice")),
            }
        } else if let Some(summary) = &mut run {
            if plain.starts_with("SQL script") || plain.starts_with("statement latencies") {
                // The following lines describe parts of the run.
                summary.is_over = true;
            }
            summary.take(plain);
        }
    }
    close(run, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

struct Rate {
    name: &'static str,
    value: f64,
}

impl Rate {
    /// Parses the transaction rate in `2061.1 (without initial connection time)`.
    fn of(text: &str) -> Option<Self> {
        let (value, what) = text.split_once(" (")?;
        let name = match what {
            "without initial connection time)" => "tps without initial connection time",
            "including reconnection times)" => "tps including reconnection times",
            "including connections establishing)" => "tps including connections",
            "excluding connections establishing)" => "tps excluding connections",
            _ => return None,
        };
        Some(Self { name, value: decimal(value)? })
    }
}

/// A summary that is being parsed.
#[derive(Default)]
struct Summary {
    line: usize,
    script: String,
    rates: Vec<Rate>,
    is_over: bool,
    mode: Option<String>,
    scale: Option<String>,
    clients: Option<u32>,
    seconds: Option<f64>,
    mean: Option<f64>,
    others: Vec<(&'static str, f64, &'static str)>,
    notes: Vec<String>,
}

impl Summary {
    fn take(&mut self, line: &str) {
        if self.is_over {
            return;
        }
        let Some((key, value)) = line.split_once(" = ").or_else(|| line.split_once(':')) else { return };
        let (key, value) = (key.trim(), value.trim());
        let number = || decimal(value);
        let ms = || value.strip_suffix(" ms").and_then(decimal).map(|ms| ms * 1e6);
        let other = match key {
            "query mode" => return self.mode = Some(value.to_owned()),
            "scaling factor" => return self.scale = Some(value.to_owned()),
            "number of clients" => {
                self.clients = value.parse().ok();
                ("clients", number(), "")
            }
            "number of threads" => ("threads", number(), ""),
            "duration" => return self.seconds = value.strip_suffix(" s").and_then(decimal),
            "latency average" => return self.mean = ms(),
            "latency stddev" => ("latency stddev", ms(), "ns"),
            "initial connection time" => ("initial connection time", ms(), "ns"),
            "average connection time" => ("average connection time", ms(), "ns"),
            "number of failed transactions" => {
                let failed = value.split(' ').next().and_then(decimal);
                if failed.is_some_and(|failed| failed > 0.0) {
                    self.notes.push(format!("failed transactions: {value}"));
                }
                ("failed transactions", failed, "")
            }
            "number of transactions actually processed" => {
                let done = value.split('/').next().and_then(decimal);
                if let Some((done, asked)) = value.split_once('/').filter(|(done, asked)| done != asked) {
                    self.notes.push(format!("{done} of {asked} transactions were processed"));
                }
                ("transactions processed", done, "")
            }
            _ if key.starts_with("number of transactions above the ") => {
                self.notes.push(format!("{key}: {value}"));
                return;
            }
            _ if key.starts_with("rate limit schedule lag") => {
                self.notes.push(format!("{key}: {value}"));
                return;
            }
            _ => return,
        };
        if let (name, Some(value), unit) = other {
            self.others.push((name, value, unit));
        }
    }
}

fn close(run: Option<Summary>, found: &mut Found) {
    let Some(run) = run else { return };
    if run.rates.is_empty() {
        return found.miss(not_understood(run.line, &run.script, "a summary of pgbench without its rate"));
    }
    let name = if run.script.is_empty() { "pgbench" } else { run.script.trim_matches(['<', '>']) };
    let mut workload = name.to_owned();
    for (what, value) in [("scale", &run.scale), ("mode", &run.mode)] {
        if let Some(value) = value {
            workload.extend([" ", what, "=", value]);
        }
    }
    if let Some(clients) = run.clients {
        workload.extend([" clients=", &clients.to_string()]);
    }
    let mut entry = Entry { workload, line: run.line, notes: run.notes, ..Entry::default() };
    entry.duration_ns = run.seconds.and_then(|seconds| whole_nanos(seconds * 1e9));
    entry.state(Metric::LATENCY_MEAN, run.mean);
    run.rates.iter().for_each(|rate| entry.add(rate.name, Some(rate.value), "/s"));
    run.others.iter().for_each(|(name, value, unit)| entry.add(*name, Some(*value), unit));
    found.keep(entry);
}
