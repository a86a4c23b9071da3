//! Streams of TCP that go while round trips are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use iotax_model::net::{NetTest, Peer, Traffic};
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

use super::super::report::Report;
use super::super::test::{Prepared, Progress, Test};
use iotax_engine::EngineError;

/// Has the server agree to the load of some round trips: a test beside theirs, with the same warm-up and window.
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
    // The first port that was asked for is the round trips'.
    let peer = Peer { cport: None, ..peer.clone() };
    Test { traffic, peer, time: workload.window(), omit: workload.ramp_time, interval }.prepare()
}

/// A load under way.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, EngineError>>>,
}

impl Load {
    /// Lets it go; returns when its streams are connected, or with why they cannot be.
    pub(super) fn start(prepared: Prepared) -> Result<Self, EngineError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (started, is_started) = mpsc::channel();
        let work = {
            let stop = Arc::clone(&stop);
            move || {
                prepared.run(&stop, &mut |progress| {
                    if matches!(progress, Progress::Started(_)) {
                        // Whoever started it waits for this.
                        let _ = started.send(());
                    }
                })
            }
        };
        let thread = thread::Builder::new().name("load".into()).spawn(work);
        let thread = thread
            .map_err(|error| EngineError::System { doing: "starting a thread for the load".into(), error })?;
        let load = Self { stop, thread: Some(thread) };
        match is_started.recv() {
            Ok(()) => Ok(load),
            // It ended before it began, and says why.
            Err(_) => load.end().map(|_| Err(gone()))?,
        }
    }

    /// Waits for its end, which is that of the window. What it was.
    pub(super) fn end(mut self) -> Result<Report, EngineError> {
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // What it would say is of no account any more.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// It ended without a word, which no load does.
fn gone() -> EngineError {
    EngineError::Net("the load beside the round trips panicked: this is a bug in iotax".into())
}
