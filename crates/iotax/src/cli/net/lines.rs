//! Tests in words: a line for an interval, a table for the end.

use iotax_engine::net::{Figures, Interval, Report, Start, StreamInterval};
use iotax_model::record::CpuTime;
use iotax_model::units::human;

/// `9.41 Gbit/s`.
pub(super) fn rate(bytes: u64, ns: u64) -> String {
    if ns == 0 {
        return "-".into();
    }
    bits(bytes as f64 * 8e9 / ns as f64)
}

/// A rate in bits a second.
pub(super) fn bits(per_s: f64) -> String {
    human::bits(per_s / 8.0)
}

/// What is asked of a test.
pub(super) fn asked(start: &Start) -> String {
    let protocol = if start.udp { "UDP" } else { "TCP" };
    let way = match (start.bidirectional, start.reverse) {
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
    format!("{protocol}, {way}, {streams} of {}{bitrate}, {until}", human::bytes(start.length))
}

/// One interval, of all streams together by direction.
pub(super) fn interval(interval: &Interval) -> String {
    let mut line = format!("{:>8.2} s", interval.end_ns as f64 / 1e9);
    let ns = interval.end_ns - interval.begin_ns;
    for (sends, way) in [(true, "up"), (false, "down")] {
        let streams: Vec<&StreamInterval> =
            interval.streams.iter().filter(|stream| stream.sends == sends).collect();
        if streams.is_empty() {
            continue;
        }
        let sum = sum(streams.iter().map(|stream| stream.figures));
        line = format!("{line}  {way:<4} {:>13}", rate(sum.bytes, ns));
        line.push_str(&counts(&sum));
        if let Some(tcp) = streams[0].tcp.filter(|_| sends) {
            line = format!(
                "{line}  rtt {}  window {}",
                human::time(tcp.rtt_ns as f64),
                human::bytes(tcp.snd_cwnd)
            );
        }
    }
    if interval.omitted { format!("{line}  (warm-up)") } else { line }
}

/// What is counted beside bytes.
fn counts(figures: &Figures) -> String {
    let mut text = String::new();
    if let Some(retransmits) = figures.retransmits {
        text = format!("{text}  {retransmits} retransmitted");
    }
    if let Some(lost) = figures.lost {
        let all = figures.packets.unwrap_or(0) + lost;
        let share = if all == 0 { 0.0 } else { lost as f64 / all as f64 * 100.0 };
        text = format!("{text}  lost {lost}/{all} ({share:.2}%)");
        for (count, name) in [(figures.out_of_order, "out of order"), (figures.duplicates, "twice")] {
            if let Some(count) = count.filter(|count| *count > 0) {
                text = format!("{text}  {count} {name}");
            }
        }
    }
    if let Some(jitter) = figures.jitter_ns {
        text = format!("{text}  jitter {}", human::time(jitter as f64));
    }
    text
}

/// Several streams together: the jitter is their mean, as iperf3's. What is unknown of one is unknown of all.
pub(super) fn sum(streams: impl Iterator<Item = Figures>) -> Figures {
    let streams: Vec<Figures> = streams.collect();
    let all = |of: fn(&Figures) -> Option<u64>| {
        let known = streams.iter().map(of).sum::<Option<u64>>();
        known.filter(|_| !streams.is_empty())
    };
    Figures {
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        packets: all(|stream| stream.packets),
        lost: all(|stream| stream.lost),
        out_of_order: all(|stream| stream.out_of_order),
        duplicates: all(|stream| stream.duplicates),
        jitter_ns: all(|stream| stream.jitter_ns).map(|sum| sum / streams.len() as u64),
        retransmits: all(|stream| stream.retransmits),
    }
}

/// A test's end in one line.
pub(super) fn brief(report: &Report) -> String {
    if report.start.round_trips {
        return "its round trips are over".into();
    }
    let far = report.far.as_ref();
    let way = |sent: bool| {
        let streams = report.near.streams.iter().filter(|stream| stream.sends == sent);
        let sum = sum(streams.map(|stream| stream.figures));
        let word = if sent { "sent" } else { "received" };
        (sum.bytes > 0)
            .then(|| format!("{word} {}{}", rate(sum.bytes, report.near.duration_ns), counts(&sum)))
    };
    let ways: Vec<String> = [way(true), way(false)].into_iter().flatten().collect();
    let told = if far.is_none() { ", and the client told nothing" } else { "" };
    let nothing = if ways.is_empty() { "nothing was carried" } else { "" };
    format!("{nothing}{}{told}", ways.join(", "))
}

/// The end of a test: what each stream carried by both ends' word, the sums, and what it cost.
pub(super) fn summary(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("{:<8} {:<5} {:>13} {:>13}", "stream", "way", "sent", "received")];
    let several = report.near.streams.len() > 1;
    for sends in [true, false] {
        let streams: Vec<_> = report.near.streams.iter().filter(|stream| stream.sends == sends).collect();
        let mut sums = [Some((0, 0)); 2];
        let mut all = Vec::new();
        for stream in &streams {
            let (sender, receiver) = report.ends(stream.id);
            let cell = |end: Option<&iotax_engine::net::StreamEnd>| {
                end.map_or_else(|| "-".to_owned(), |end| rate(end.figures.bytes, end.duration_ns))
            };
            for (sum, end) in sums.iter_mut().zip([sender, receiver]) {
                *sum = sum.zip(end).map(|((bytes, _), end)| (bytes + end.figures.bytes, end.duration_ns));
            }
            let mut figures = receiver.map_or_else(Figures::default, |end| end.figures);
            figures.retransmits = sender.and_then(|end| end.figures.retransmits);
            all.push(figures);
            lines.push(row(&stream.id.to_string(), sends, &cell(sender), &cell(receiver), &figures));
        }
        if several && !streams.is_empty() {
            let [sent, received] =
                sums.map(|sum| sum.map_or_else(|| "-".to_owned(), |(bytes, ns)| rate(bytes, ns)));
            lines.push(row("all", sends, &sent, &received, &sum(all.into_iter())));
        }
    }
    lines.extend(cost(report));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines
}

fn row(name: &str, sends: bool, sent: &str, received: &str, figures: &Figures) -> String {
    let way = if sends { "up" } else { "down" };
    format!("{name:<8} {way:<5} {sent:>13} {received:>13}{}", counts(figures))
}

/// CPU time of a process over some time, as a share of it.
pub(super) fn cpu(used: CpuTime, duration_ns: u64) -> String {
    let [all, user, system] = [used.total_ns(), used.user_ns, used.system_ns]
        .map(|ns| ns as f64 / duration_ns.max(1) as f64 * 100.0);
    format!("{all:.1}% of a CPU ({user:.1}% user, {system:.1}% system)")
}

/// CPU of both ends, and the gaps.
fn cost(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, end) in [("here", Some(&report.near)), ("far end", report.far.as_ref())] {
        if let Some((end, used)) = end.and_then(|end| Some((end, end.cpu?))) {
            lines.push(format!("cpu {name}: {}", cpu(used, end.duration_ns)));
        }
    }
    let ends = [Some(&report.near), report.far.as_ref()];
    let streams = ends.into_iter().flatten().flat_map(|end| &end.streams);
    for (stream, gap) in streams.flat_map(|stream| stream.gaps.iter().map(move |gap| (stream.id, gap))) {
        let lost = gap.lost_bytes.filter(|lost| *lost > 0);
        let lost = lost.map_or_else(String::new, |lost| format!(", {} lost", human::bytes(lost)));
        let [at, length] = [gap.at_ns, gap.duration_ns].map(|ns| human::time(ns as f64));
        lines.push(format!("gap: nothing came on stream {stream} for {length}, {at} after the start{lost}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_bits() {
        assert_eq!(rate(1_250_000_000, 1_000_000_000), "10.0 Gbit/s");
        assert_eq!((rate(100, 0).as_str(), rate(10, 1_000_000_000).as_str()), ("-", "80.0 bit/s"));
    }

    #[test]
    fn sums_keep_what_is_unknown_unknown() {
        let one = Figures { bytes: 5, lost: Some(1), jitter_ns: Some(10), ..Figures::default() };
        let other = Figures { bytes: 6, jitter_ns: Some(30), ..Figures::default() };
        assert_eq!(super::sum([one, one].into_iter()).lost, Some(2));
        let sum = sum([one, other].into_iter());
        assert_eq!((sum.bytes, sum.lost, sum.jitter_ns, sum.retransmits), (11, None, Some(20), None));
        assert_eq!(
            counts(&Figures { packets: Some(99), lost: Some(1), ..Figures::default() }),
            "  lost 1/100 (1.00%)"
        );
    }
}
