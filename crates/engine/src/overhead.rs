//! Measures the CPU time that the engine itself spends per I/O.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use iotax_load::clock;
use iotax_load::error::EngineError;
use iotax_load::shared::Heartbeat;
use iotax_load::window::Window;
use iotax_load::workers::{Finish, WorkerContext, WorkerReport};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

use crate::backend::{Backend, Null, Options, Setup};
use crate::pattern::Pattern;
use crate::worker::{self, Task};

/// Measures the CPU nanoseconds that the engine spends per I/O on the null backend; no measured latency can be lower. Runs for some 50 ms at queue
/// depth 1, where I/Os cannot share time stamps, and with the full accounting.
///
/// # Panics
/// If the system has not a single page of memory left, or no /dev/null.
#[must_use]
pub fn overhead_ns() -> u64 {
    clock::calibrate();
    let keys = WorkloadKeys {
        rw: Some(Rw::RandRead),
        runtime: Some(Nanos::from_millis(50)),
        ramp_time: Some(Nanos(0)),
        ioengine: Some(IoEngine::Null),
        ..WorkloadKeys::default()
    };
    let workload = keys.complete(&WorkloadKeys::default());
    let job = Job::new(workload, Bytes(1 << 30), 1, Nanos::from_millis(10));
    // A worker needs a file, although the null backend does not use it.
    let file = File::open("/dev/null").expect("every system has it");
    let before = clock::thread_cpu();
    let (finish, _, reported) = alone::<Null>(&job, file).expect("the null backend needs one page of memory");
    let used = clock::thread_cpu() - before;
    let ios: u64 = reported.iter().map(|report| counted(&report)).sum::<u64>() + finish.ramp_ios;
    used / ios.max(1)
}

/// Runs one worker on the calling thread, with blocks of at most 4 KiB. Returns the worker's result, its window and the receiver of its
/// reports.
pub(crate) fn alone<B: Backend>(
    job: &Job,
    file: File,
) -> Result<(Finish, Window, Receiver<WorkerReport>), EngineError> {
    let (reports, reported) = mpsc::channel();
    let (start, started) = mpsc::channel();
    let (_spare, spares) = mpsc::channel();
    let (number, common, heartbeat) = (0, Arc::default(), Heartbeat::new());
    let task = Task {
        context: WorkerContext { number, common, heartbeat, start: started, spare: spares, reports },
        workload: job.workload.clone(),
        setup: Setup { file, depth: job.workload.iodepth, slot_bytes: 4096, options: Options::default() },
        pattern: Pattern::new(&job.workload, job.size, number, job.seed),
        passes: None,
        share: None,
        seed: job.seed,
        verification: None,
        replay: None,
    };
    let window = Window::new(job, clock::now());
    start.send(window).expect("the task holds the other end");
    Ok((worker::work::<B>(task)?, window, reported))
}

fn counted(report: &WorkerReport) -> u64 {
    match report {
        WorkerReport::Interval(interval) => interval.latencies.ios(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn costs_something_and_far_less_than_any_disk() {
        let overhead = super::overhead_ns();
        assert!((1..5_000).contains(&overhead), "{overhead} ns");
    }
}
