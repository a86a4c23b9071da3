//! Formats network tests as text: the settings, each interval, the result.

use iotax_model::record::{DirectionSample, Sample};
use iotax_model::units::{Nanos, human};
use iotax_netperf::{Start, StreamFigures, TestReport};

/// Formats a rate: `9.41 Gbit/s`, or `-` if no time has passed.
fn rate(bytes: u64, ns: u64) -> String {
    if ns == 0 {
        return "-".into();
    }
    bits(bytes as f64 * 8e9 / ns as f64)
}

/// Formats a rate that is given in bits per second.
fn bits(per_s: f64) -> String {
    human::bits(per_s / 8.0)
}

/// Formats the settings of a test in one line: protocol, direction, streams.
pub(super) fn asked(start: &Start) -> String {
    let protocol = if start.udp { "UDP" } else { "TCP" };
    let direction = match (start.bidirectional, start.reverse) {
        (true, _) => "both ways",
        (false, true) => "server sends",
        (false, false) => "client sends",
    };
    let streams = match start.parallel {
        1 => "1 stream".to_owned(),
        more => format!("{more} streams"),
    };
    let bitrate =
        if start.bitrate > 0 { format!(", {} each", bits(start.bitrate as f64)) } else { String::new() };
    let until = match (start.time.0, start.bytes) {
        (0, 0) => format!("{} blocks", start.blocks),
        (0, bytes) => human::bytes(bytes),
        (time, _) => human::time(time as f64),
    };
    if start.round_trips {
        return format!("round trips over {protocol}, messages of {}, {until}", human::bytes(start.length));
    }
    format!("{protocol}, {direction}, {streams} of {}{bitrate}, {until}", human::bytes(start.length))
}

/// Formats an interval of streams, summed by direction.
pub(super) fn streams(sample: &Sample) -> String {
    let mut line = format!("{:>8.2} s", Nanos(sample.at_ns).as_secs_f64());
    for direction in &sample.directions {
        let tally = if direction.upload { &sample.tallies.write } else { &sample.tallies.read };
        let (bytes, packets) = tally.as_ref().map_or((0, 0), |tally| (tally.bytes, tally.ios));
        let word = if direction.upload { "upload" } else { "download" };
        line = format!(
            "{line}  {word:<8} {:>13}{}",
            rate(bytes, sample.duration_ns),
            counts(direction, packets)
        );
        for (figure, name, words) in [
            (direction.rtt_ns, "rtt", (|ns| human::time(ns as f64)) as fn(u64) -> String),
            (direction.cwnd, "window", human::bytes),
        ] {
            if let Some(figure) = figure {
                line = format!("{line}  {name} {}", words(figure));
            }
        }
    }
    line
}

/// Formats an interval of round trips, with their latency.
pub(super) fn round_trips(sample: &Sample) -> String {
    let line = format!("{:>8.2} s", Nanos(sample.at_ns).as_secs_f64());
    let Some(tally) = &sample.tallies.read else { return format!("{line}  nothing came back") };
    let times = tally.response.as_ref().unwrap_or(&tally.latency);
    let time = |q: f64| times.quantile(q).map_or_else(|| "none".to_owned(), human::time);
    let rate = tally.ios as f64 / Nanos(sample.duration_ns).as_secs_f64();
    let rate = human::count(rate);
    format!("{line}  {rate:>6} round trips/s  p50 {}  p99 {}  max {}", time(0.5), time(0.99), time(1.0))
}

/// Merges the next interval into `so_far`: counts add up, and momentary values are those at the end of `next`.
pub(super) fn extend(so_far: &mut Sample, next: &Sample) {
    so_far.at_ns = next.at_ns;
    so_far.duration_ns += next.duration_ns;
    so_far.tallies.merge(&next.tallies);
    so_far.oldest_ns = next.oldest_ns;
    for direction in &next.directions {
        let Some(known) = so_far.directions.iter_mut().find(|known| known.upload == direction.upload) else {
            so_far.directions.push(*direction);
            continue;
        };
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        *known = DirectionSample {
            lost: sum(known.lost, direction.lost),
            out_of_order: sum(known.out_of_order, direction.out_of_order),
            duplicates: sum(known.duplicates, direction.duplicates),
            retransmits: sum(known.retransmits, direction.retransmits),
            ..*direction
        };
    }
}

/// Formats the retransmits, losses, reordering, duplicates and jitter of one direction; `packets` is the number
/// received.
fn counts(direction: &DirectionSample, packets: u64) -> String {
    let mut text = String::new();
    if let Some(retransmits) = direction.retransmits {
        text = format!("{text}  {retransmits} retransmits");
    }
    if let Some(lost) = direction.lost {
        let all = packets + lost;
        let share = if all == 0 { 0.0 } else { lost as f64 / all as f64 * 100.0 };
        text = format!("{text}  lost {lost}/{all} ({share:.2}%)");
        for (count, name) in [(direction.out_of_order, "out of order"), (direction.duplicates, "duplicates")]
        {
            if let Some(count) = count.filter(|count| *count > 0) {
                text = format!("{text}  {count} {name}");
            }
        }
    }
    if let Some(jitter) = direction.jitter_ns {
        text = format!("{text}  jitter {}", human::time(jitter as f64));
    }
    text
}

/// Formats the result of a test in one line.
pub(super) fn brief(report: &TestReport) -> String {
    if report.start.round_trips {
        return "its round trips are over".into();
    }
    let remote = report.remote.as_ref();
    let direction = |sent: bool| {
        let streams = report.local.streams.iter().filter(|stream| stream.sends == sent);
        let sum = StreamFigures::sum(streams.map(|stream| stream.figures));
        let word = if sent { "sent" } else { "received" };
        (sum.bytes > 0).then(|| {
            format!(
                "{word} {}{}",
                rate(sum.bytes, report.local.duration_ns),
                counts(&beside(sum), sum.packets.unwrap_or(0))
            )
        })
    };
    let directions: Vec<String> = [direction(true), direction(false)].into_iter().flatten().collect();
    let missing = if remote.is_none() { ", and the client reported nothing" } else { "" };
    let nothing = if directions.is_empty() { "nothing was carried" } else { "" };
    format!("{nothing}{}{missing}", directions.join(", "))
}

/// Extracts the counters that [`counts`] formats: losses, reordering, duplicates, jitter and retransmits.
fn beside(figures: StreamFigures) -> DirectionSample {
    let StreamFigures { lost, out_of_order, duplicates, jitter_ns, retransmits, .. } = figures;
    DirectionSample { lost, out_of_order, duplicates, jitter_ns, retransmits, ..DirectionSample::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Tallies, Tally};

    #[test]
    fn rates_are_in_bits() {
        assert_eq!(rate(1_250_000_000, 1_000_000_000), "10.0 Gbit/s");
        assert_eq!((rate(100, 0).as_str(), rate(10, 1_000_000_000).as_str()), ("-", "80.0 bit/s"));
    }

    #[test]
    fn an_interval_has_each_direction() {
        let up = DirectionSample {
            upload: true,
            retransmits: Some(2),
            rtt_ns: Some(1_500_000),
            ..DirectionSample::default()
        };
        let down = DirectionSample { lost: Some(1), jitter_ns: Some(20_000), ..DirectionSample::default() };
        let tally = |bytes| Some(Tally { bytes, ios: 99, ..Tally::default() });
        let sample = Sample {
            at_ns: 2_000_000_000,
            duration_ns: 1_000_000_000,
            tallies: Tallies { write: tally(1_250_000_000), read: tally(125), ..Tallies::default() },
            oldest_ns: None,
            failed: 0,
            directions: vec![up, down],
        };
        assert_eq!(
            streams(&sample),
            "    2.00 s  upload     10.0 Gbit/s  2 retransmits  rtt 1.50 ms  download   1.00 kbit/s  lost 1/100 (1.00%)  jitter 20.0 us"
        );
    }

    #[test]
    fn intervals_add_up_to_what_was_measured() {
        let second = |at_s: u64, bytes: u64| Sample {
            at_ns: at_s * 1_000_000_000,
            duration_ns: 1_000_000_000,
            tallies: Tallies { write: Some(Tally { bytes, ..Tally::default() }), ..Tallies::default() },
            oldest_ns: None,
            failed: 0,
            directions: vec![DirectionSample {
                upload: true,
                retransmits: Some(at_s),
                rtt_ns: Some(at_s * 1_000_000),
                ..DirectionSample::default()
            }],
        };
        let mut all = second(1, 125_000_000);
        extend(&mut all, &second(2, 375_000_000));
        assert_eq!(streams(&all), "    2.00 s  upload     2.00 Gbit/s  3 retransmits  rtt 2.00 ms");
    }
}
