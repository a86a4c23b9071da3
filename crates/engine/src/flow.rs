//! Keeps the I/Os of concurrent jobs in proportion, as fio's `flow` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iotax_model::workload::Workload;

/// Default pause in nanoseconds of a worker that has done more than its share.
const PAUSE_NS: u64 = 50_000;

/// Sums over all workers that are kept in proportion: their I/Os so far and their weights.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    ios: AtomicU64,
    weights: AtomicU64,
}

/// One worker's weight and I/O count. Dropping it removes both from the sums, so that the other workers need not wait for it.
#[derive(Debug)]
pub(crate) struct FlowShare {
    flow: Arc<Flow>,
    weight: u64,
    ios: u64,
    pause_ns: u64,
}

impl FlowShare {
    /// Registers one worker of a job with the shared counts; `None` if the job sets no `flow`.
    pub(crate) fn new(workload: &Workload, flow: &Arc<Flow>) -> Option<Self> {
        let weight = workload.flow?;
        flow.weights.fetch_add(weight, Ordering::Relaxed);
        let pause_ns = workload.flow_sleep.map_or(PAUSE_NS, |pause| pause.0.max(1));
        Some(Self { flow: Arc::clone(flow), weight, ios: 0, pause_ns })
    }

    /// Returns the pause in nanoseconds if the worker has done more than its share of the I/Os; `None` otherwise.
    #[inline(never)]
    pub(crate) fn is_ahead(&self) -> Option<u64> {
        let all = self.flow.ios.load(Ordering::Relaxed);
        let weights = self.flow.weights.load(Ordering::Relaxed);
        // In 128 bits, because the products of two counts may exceed 64 bits.
        let is_ahead = u128::from(self.ios) * u128::from(weights) > u128::from(all) * u128::from(self.weight);
        is_ahead.then_some(self.pause_ns)
    }

    /// Counts one I/O of this worker.
    #[inline(never)]
    pub(crate) fn count(&mut self) {
        self.flow.ios.fetch_add(1, Ordering::Relaxed);
        self.ios += 1;
    }
}

impl Drop for FlowShare {
    fn drop(&mut self) {
        self.flow.ios.fetch_sub(self.ios, Ordering::Relaxed);
        self.flow.weights.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

    #[test]
    fn shares_are_kept_and_one_that_ends_holds_nobody_back() {
        let flow = Arc::new(Flow::default());
        let share = |weight| {
            let keys = WorkloadKeys { flow: Some(weight), ..WorkloadKeys::default() };
            FlowShare::new(&keys.complete(&WorkloadKeys::default()), &flow).expect("a share")
        };
        let (mut one, mut eight) = (share(1), share(8));
        let mut done = [0_i64, 0];
        for _ in 0..9000 {
            for (share, done) in [&mut one, &mut eight].into_iter().zip(&mut done) {
                if share.is_ahead().is_none() {
                    share.count();
                    *done += 1;
                }
            }
        }
        assert!((done[1] - 8 * done[0]).abs() <= 16, "{done:?}");
        drop(eight);
        assert!((0..100).all(|_| {
            one.count();
            one.is_ahead().is_none()
        }));
        let none = WorkloadKeys::default().complete(&WorkloadKeys::default());
        assert!(FlowShare::new(&none, &flow).is_none());
    }
}
