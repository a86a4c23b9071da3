//! The cost of the engine itself.

use std::sync::{Arc, mpsc};

use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::backend::{Options, Setup};
use crate::clock;
use crate::pattern::Pattern;
use crate::shared::Heartbeat;
use crate::window::Window;
use crate::worker::{self, Task};
use crate::workers::{Report, WorkerContext};

/// CPU nanoseconds per I/O of a worker on the null backend; see [`crate::floor()`].
pub(crate) fn floor() -> u64 {
    clock::calibrate();
    let keys = WorkloadKeys {
        rw: Some(Rw::RandRead),
        runtime: Some(Nanos::from_millis(50)),
        ramp_time: Some(Nanos(0)),
        ioengine: Some(IoEngine::Null),
        ..WorkloadKeys::default()
    };
    let workload = keys.complete(&WorkloadKeys::default());
    let (size, interval, seed) = (Bytes(1 << 30), Nanos::from_millis(10), 1);
    let job = Job {
        path: None,
        workload,
        size,
        seed,
        interval,
        writable: false,
        shared: false,
        identity: None,
        directory: None,
        peer: None,
    };
    let (reports, reported) = mpsc::channel();
    let (start, started) = mpsc::channel();
    let (_spare, spares) = mpsc::channel();
    let task = Task {
        context: WorkerContext {
            number: 0,
            common: Arc::default(),
            heartbeat: Heartbeat::new(),
            start: started,
            spare: spares,
            reports,
        },
        workload: job.workload.clone(),
        setup: Setup {
            // The null backend has no use for it, but a worker has a file.
            file: memfd_create("floor", MemfdFlags::CLOEXEC).expect("an empty file in memory").into(),
            depth: job.workload.iodepth,
            slot_bytes: 4096,
            options: Options::default(),
        },
        pattern: Pattern::new(&job.workload, size, 0, seed),
        seed,
        proof: None,
    };
    start.send(Window::new(&job, clock::now())).expect("the task holds the other end");
    let before = clock::thread_cpu();
    let finish = worker::run(IoEngine::Null, task).expect("the null backend needs one page of memory");
    let used = clock::thread_cpu() - before;
    let ios: u64 = reported.iter().map(|report| counted(&report)).sum::<u64>() + finish.ramp_ios;
    used / ios.max(1)
}

fn counted(report: &Report) -> u64 {
    match report {
        Report::Interval(interval) => interval.latencies.ios(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn costs_something_and_far_less_than_any_disk() {
        let floor = super::floor();
        assert!((1..5_000).contains(&floor), "{floor} ns");
    }
}
