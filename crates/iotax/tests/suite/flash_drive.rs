//! A simulated flash drive as a block device; its writes become slower with the number of pages that its translation layer moves.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iotax_model::record::Measurement;
use iotax_testkit::flash::Flash;

use crate::lab::Lab;
use crate::served_disk::{DiskTiming, ServedDisk};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages of a block.
const BLOCK: usize = 64;
/// Time for which the drive may catch up after this process was late, as if it had a buffer.
const BUFFERED: Duration = Duration::from_millis(50);

/// A flash drive; removed on drop.
pub(crate) struct FlashDrive {
    pub(crate) disk: ServedDisk,
    state: Arc<Mutex<FlashState>>,
}

struct FlashState {
    flash: Flash,
    /// Time at which the last page is programmed.
    busy: Instant,
    /// Time in nanoseconds since 1970 and number of programmed pages, for each write.
    writes: Vec<(u128, u64)>,
    /// Bytes discarded before the first write.
    discarded: u64,
}

impl FlashDrive {
    /// Time to program a page.
    pub(crate) const PROGRAM: Duration = Duration::from_micros(250);

    /// Creates a drive of `blocks` blocks of 256 KiB, and `spare` more.
    pub(crate) fn new(lab: &Lab, blocks: u64, spare: usize) -> Self {
        let pages = usize::try_from(blocks).expect("few") * BLOCK;
        let flash = Flash::new(pages, BLOCK, spare);
        let state = FlashState { flash, busy: Instant::now(), writes: Vec::new(), discarded: 0 };
        let state = Arc::new(Mutex::new(state));
        let timing = FlashTiming(Arc::clone(&state));
        Self { disk: ServedDisk::serve(lab, "drive", pages as u64 * PAGE, timing), state }
    }

    /// Bytes discarded before the first write.
    pub(crate) fn discarded(&self) -> u64 {
        self.state.lock().expect("whole").discarded
    }

    /// The drive's own write amplification during a measurement.
    pub(crate) fn amplification(&self, measurement: &Measurement) -> f64 {
        let begin = u128::from(measurement.started_at_ms) * 1_000_000;
        let window = begin..begin + u128::from(measurement.outcome.duration_ns);
        let state = self.state.lock().expect("whole");
        let within = state.writes.iter().filter(|(at, _)| window.contains(at));
        let programmed: Vec<u64> = within.map(|(_, pages)| *pages).collect();
        programmed.iter().sum::<u64>() as f64 / programmed.len() as f64
    }
}

struct FlashTiming(Arc<Mutex<FlashState>>);

impl DiskTiming for FlashTiming {
    fn write(&self, offset: u64, length: u64) {
        let mut state = self.0.lock().expect("whole");
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        let all = pages.map(|page| state.flash.write(usize::try_from(page).expect("few")));
        let programmed: u64 = all.sum();
        let now = Instant::now();
        let begin = state.busy.max(now.checked_sub(BUFFERED).expect("later"));
        state.busy = begin + Self::time(programmed);
        let wait = state.busy.saturating_duration_since(now);
        let over = SystemTime::now().duration_since(UNIX_EPOCH).expect("later") + wait;
        state.writes.push((over.as_nanos(), programmed));
        drop(state);
        std::thread::sleep(wait);
    }

    fn discard(&self, offset: u64, length: u64) {
        let mut state = self.0.lock().expect("whole");
        for page in offset.div_ceil(PAGE)..(offset + length) / PAGE {
            state.flash.trim(usize::try_from(page).expect("few"));
        }
        if state.writes.is_empty() {
            state.discarded += length;
        }
    }
}

impl FlashTiming {
    fn time(pages: u64) -> Duration {
        FlashDrive::PROGRAM * u32::try_from(pages).expect("few")
    }
}
