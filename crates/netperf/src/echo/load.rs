//! TCP streams that run while round trips are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use iotax_model::net::{NetTest, Peer, Traffic};
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

use super::super::report::TestReport;
use super::super::test::{ClientTest, Prepared, Progress};
use iotax_load::error::EngineError;

/// Agrees with the server on the load: a second test, of TCP streams, with the warm-up and window of the round trips.
pub(super) fn prepare(
    workload: &Workload,
    traffic: &Traffic,
    peer: &Peer,
    interval: Nanos,
) -> Result<Prepared, EngineError> {
    let traffic = Traffic {
        test: NetTest::Tcp,
        length: None,
        rate: None,
        busy_poll: None,
        loaded: false,
        ..traffic.clone()
    };
    // The requested client port belongs to the round trips.
    let peer = Peer { cport: None, ..peer.clone() };
    ClientTest { traffic, peer, time: workload.window(), omit: workload.ramp_time, interval }.prepare()
}

/// A running load of TCP streams.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<TestReport, EngineError>>>,
}

impl Load {
    /// Starts the load. Returns when its streams are connected, or with the reason why they cannot be.
    pub(super) fn start(prepared: Prepared) -> Result<Self, EngineError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (started, is_started) = mpsc::channel();
        let work = {
            let stop = Arc::clone(&stop);
            move || {
                prepared.run(&stop, &mut |progress| {
                    if matches!(progress, Progress::Started(_)) {
                        // `start` waits for this.
                        let _ = started.send(());
                    }
                })
            }
        };
        let thread = threads::spawn("load", work);
        let thread = thread.map_err(EngineError::system("the load beside it"))?;
        let load = Self { stop, thread: Some(thread) };
        match is_started.recv() {
            Ok(()) => Ok(load),
            // The load failed before it started; its result says why.
            Err(_) => load.end().map(|_| Err(gone()))?,
        }
    }

    /// Waits until the load ends with the window, and returns its results.
    pub(super) fn end(mut self) -> Result<TestReport, EngineError> {
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The test was stopped early, so its result does not matter.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Returns the error for a load thread that ended without a result, which would be a bug.
fn gone() -> EngineError {
    EngineError::Net("the load beside the round trips panicked: this is a bug in iotax".into())
}
