//! Measures streams as a job of an agent: reports samples and an outcome.

use std::sync::atomic::AtomicBool;

use iotax_model::net::{Peer, Traffic};
use iotax_model::record::{Carried, DirectionSample, ErrorCount, Flow, Outcome, Sample, Tallies, Tally};
use iotax_model::wire::{Event, Job};

use super::report::{End, StreamEnd, StreamFigures, TestInterval, TestReport};
use super::test::{ClientTest, Progress};
use iotax_load::clock::ProcessUsage;
use iotax_load::control::Control;
use iotax_load::error::EngineError;

/// Measures a job's streams with the server at `peer`.
pub(super) fn streams(
    control: &Control,
    job: &Job,
    traffic: &Traffic,
    peer: &Peer,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let workload = &job.workload;
    let test = ClientTest {
        traffic: traffic.clone(),
        peer: peer.clone(),
        time: workload.window(),
        omit: workload.ramp_time,
        interval: job.interval,
    };
    let prepared = test.prepare()?;
    events(Event::Ready);
    control.await_start();
    let mut ramp_packets = 0;
    let mut marks = [ProcessUsage::default(); 2];
    let report = prepared.run(&AtomicBool::new(false), &mut |progress| match progress {
        Progress::Started(_) => {}
        Progress::Counting => {
            marks[0] = ProcessUsage::now();
            events(Event::Measuring);
        }
        Progress::Interval(interval) if interval.omitted => {
            ramp_packets += interval.streams.iter().filter_map(|stream| stream.figures.packets).sum::<u64>();
        }
        Progress::Interval(interval) => events(Event::Sample(Box::new(sample(interval)))),
        Progress::Over => {
            marks[1] = ProcessUsage::now();
            events(Event::Over);
        }
    })?;
    Ok(outcome(report, marks[1].since(&marks[0]), ramp_packets))
}

/// Converts an interval at this end to a sample. Sent data counts as soon as this end's kernel accepts it.
fn sample(interval: &TestInterval) -> Sample {
    let streams = |sends: bool| interval.streams.iter().filter(move |stream| stream.sends == sends);
    let tally = |sends: bool| sum(streams(sends).map(|stream| stream.figures));
    let direction_sample = |sends: bool| {
        let tcp = streams(sends).next()?.tcp.filter(|_| sends);
        let StreamFigures { lost, out_of_order, duplicates, jitter_ns, retransmits, .. } =
            StreamFigures::sum(streams(sends).map(|stream| stream.figures));
        let (rtt_ns, cwnd) = (tcp.map(|tcp| tcp.rtt_ns), tcp.map(|tcp| tcp.snd_cwnd));
        Some(DirectionSample {
            upload: sends,
            lost,
            out_of_order,
            duplicates,
            jitter_ns,
            retransmits,
            rtt_ns,
            cwnd,
        })
    };
    Sample {
        at_ns: interval.end_ns,
        duration_ns: interval.end_ns - interval.begin_ns,
        tallies: Tallies { write: tally(true), read: tally(false), ..Tallies::default() },
        oldest_ns: None,
        failed: 0,
        directions: [true, false].into_iter().filter_map(direction_sample).collect(),
    }
}

/// Sums the streams of one direction; `None` if there are none.
fn sum(streams: impl Iterator<Item = StreamFigures>) -> Option<Tally> {
    let mut streams = streams.peekable();
    streams.peek()?;
    let StreamFigures { bytes, packets, .. } = StreamFigures::sum(streams);
    Some(Tally { bytes, ios: packets.unwrap_or(0), ..Tally::default() })
}

fn outcome(report: TestReport, used: ProcessUsage, ramp_ios: u64) -> Outcome {
    let flows = flows(&report);
    // The two windows differ a little: the server's counts are scaled to this end's window.
    let window = |upload: bool, count: u64| match &report.remote {
        Some(remote) if upload && remote.duration_ns > 0 => {
            over(count, report.local.duration_ns, remote.duration_ns)
        }
        _ => count,
    };
    let tally = |upload: bool| {
        let flows = flows.iter().filter(|flow| flow.upload == upload);
        sum(flows.map(|flow| StreamFigures {
            // Without the server's count, use the sender's.
            bytes: flow.received_bytes.map(|bytes| window(upload, bytes)).or(flow.sent_bytes).unwrap_or(0),
            packets: flow.received_packets.map(|packets| window(upload, packets)).or(flow.sent_packets),
            ..StreamFigures::default()
        }))
    };
    let tallies = Tallies { write: tally(true), read: tally(false), ..Tallies::default() };
    let errors = errors(&report);
    let TestReport { start, local, remote, mut notes } = report;
    if flows.iter().any(|flow| flow.received_bytes.is_none()) {
        notes.push("the server does not tell what it received: what was sent is counted".into());
    }
    let gaps = [Some(&local), remote.as_ref()].into_iter().flatten().flat_map(|end| &end.streams);
    let mut gaps: Vec<_> = gaps.flat_map(|stream| stream.gaps.iter().copied()).collect();
    gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.duration_ns), gap.at_ns));
    gaps.truncate(Carried::GAPS);
    Outcome {
        duration_ns: local.duration_ns,
        tallies,
        ramp_ios,
        cpu: used.cpu,
        counts: Some(used.counts),
        errors,
        notes,
        carried: Some(Carried {
            flows,
            server_cpu: remote.and_then(|remote: End| remote.cpu),
            congestion: start.congestion,
            mss: start.mss.filter(|_| !start.udp),
            gaps,
            ..Carried::default()
        }),
        ..Outcome::default()
    }
}

/// Scales a count over `counted_ns` to the count over `wanted_ns` at the same rate.
fn over(count: u64, wanted_ns: u64, counted_ns: u64) -> u64 {
    let scaled = u128::from(count) * u128::from(wanted_ns) / u128::from(counted_ns.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns the streams that broke at either end, as errors counted by reason and direction.
fn errors(report: &TestReport) -> Vec<ErrorCount> {
    let ends = [(true, Some(&report.local)), (false, report.remote.as_ref())];
    let broken = ends.into_iter().filter_map(|(local, end)| Some((local, end?))).flat_map(|(local, end)| {
        end.streams.iter().filter_map(move |stream| {
            let direction = if stream.sends == local { "write" } else { "read" };
            Some((stream.error.clone()?, direction))
        })
    });
    let mut errors = Vec::new();
    for (error, direction) in broken {
        let error = ErrorCount {
            error,
            direction: direction.into(),
            count: 1,
            in_ramp: 0,
            first_offset: 0,
            last_offset: None,
        };
        ErrorCount::add(&mut errors, &error);
    }
    errors
}

/// Merges the counts of both ends for each stream.
pub(super) fn flows(report: &TestReport) -> Vec<Flow> {
    report.local.streams.iter().map(|stream| flow(report, stream)).collect()
}

/// Merges both ends' counts of one stream.
fn flow(report: &TestReport, stream: &StreamEnd) -> Flow {
    let (sender, receiver) = report.ends(stream.id);
    let sent = sender.map(|end| end.figures);
    let received = receiver.map(|end| end.figures);
    Flow {
        upload: stream.sends,
        sent_bytes: sent.map(|figures| figures.bytes),
        received_bytes: received.map(|figures| figures.bytes),
        sent_packets: sent.and_then(|figures| figures.packets),
        received_packets: received.and_then(|figures| figures.packets),
        lost: received.and_then(|figures| figures.lost),
        out_of_order: received.and_then(|figures| figures.out_of_order),
        duplicates: received.and_then(|figures| figures.duplicates),
        jitter_ns: received.and_then(|figures| figures.jitter_ns),
        retransmits: sent.and_then(|figures| figures.retransmits),
        rtt_ns: sender.and_then(|end| end.rtt_ns),
        max_cwnd: sender.and_then(|end| end.max_cwnd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_another_window_is_told_as_its_rate() {
        assert_eq!(over(3_000, 1_000_000_000, 1_500_000_000), 2_000);
        assert_eq!(over(7, 5, 5), 7);
        assert_eq!(over(u64::MAX, 2, 1), u64::MAX, "no overflow");
    }
}
