//! Packet counts of one measurement.

use iotax_model::record::{Flow, Measurement};

/// Sums a figure over all streams. `None` without streams, or if any stream does not report the figure.
pub(crate) fn over_flows<'a>(
    flows: impl IntoIterator<Item = &'a Flow>,
    figure: impl Fn(&Flow) -> Option<u64>,
) -> Option<u64> {
    flows
        .into_iter()
        .map(figure)
        .try_fold(None, |sum: Option<u64>, value| Some(Some(sum.unwrap_or(0) + value?)))?
}

/// Packet counts of one measurement, both directions together; for round trips, counts of messages. A count is `None` if a stream lacks it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Packets {
    /// Number of packets that never arrived; `None` if unknown.
    pub(crate) lost: Option<u64>,
    /// Number of packets that arrived after a later one; `None` if unknown.
    pub(crate) out_of_order: Option<u64>,
    /// Number of packets that arrived more than once; `None` if unknown.
    pub(crate) duplicates: Option<u64>,
    /// Number of TCP segments that were retransmitted; `None` if unknown.
    pub(crate) retransmits: Option<u64>,
    /// Jitter of datagrams in nanoseconds: mean of the streams; `None` if unknown.
    pub(crate) jitter_ns: Option<f64>,
}

impl Packets {
    /// Counts the packets of a measurement; all counts are unknown if the measurement used no network.
    pub(crate) fn of(m: &Measurement) -> Self {
        let Some(carried) = &m.outcome.carried else { return Self::default() };
        let sum = |figure: fn(&Flow) -> Option<u64>| over_flows(&carried.flows, figure);
        let retransmits = sum(|flow| flow.retransmits);
        if let Some(probes) = carried.probes {
            return Self {
                lost: probes.sent.checked_sub(probes.received),
                out_of_order: Some(probes.out_of_order),
                duplicates: Some(probes.duplicates),
                retransmits,
                jitter_ns: None,
            };
        }
        Self {
            lost: sum(|flow| flow.lost),
            out_of_order: sum(|flow| flow.out_of_order),
            duplicates: sum(|flow| flow.duplicates),
            retransmits,
            jitter_ns: sum(|flow| flow.jitter_ns).map(|ns| ns as f64 / carried.flows.len() as f64),
        }
    }
}
