//! A reliable stream of messages over a transport that may lose them. Does not read a clock or use the connection: the caller passes times
//! and frames.

use std::collections::VecDeque;

use super::frame::{CHUNK, Frame, Kind, pack, unpack};
use crate::link::LinkError;

/// Maximum length in bytes of a message as transmitted, which may be compressed.
const LONGEST_PACKED: usize = 64 << 20;

/// Maximum number of data frames in flight.
const WIDEST: usize = 16;
/// Initial maximum of data frames in flight, while the quality of the connection is unknown.
const FIRST_WINDOW: usize = 4;

/// Initial time in nanoseconds after which unacknowledged frames are sent again.
const FIRST_PATIENCE_NS: u64 = 1_000_000_000;
/// Maximum time in nanoseconds after which unacknowledged frames are sent again; each repetition doubles the time.
const MOST_PATIENCE_NS: u64 = 16_000_000_000;

/// One end of a reliable stream.
#[derive(Debug)]
pub(super) struct Session {
    epoch: u64,
    /// Data frames that are not acknowledged or not sent yet. The first one has the number `acknowledged + 1`.
    waiting: VecDeque<Chunk>,
    acknowledged: u64,
    /// Number of frames at the start of `waiting` that are sent and not assumed lost.
    in_flight: usize,
    window: usize,
    patience_ns: u64,
    repeat_at_ns: u64,
    received: u64,
    owes: bool,
    partial: Vec<u8>,
    repeated: u64,
}

#[derive(Debug)]
struct Chunk {
    goes_on: bool,
    is_compressed: bool,
    bytes: Vec<u8>,
}

impl Session {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            waiting: VecDeque::new(),
            acknowledged: 0,
            in_flight: 0,
            window: FIRST_WINDOW,
            patience_ns: FIRST_PATIENCE_NS,
            repeat_at_ns: u64::MAX,
            received: 0,
            owes: false,
            partial: Vec::new(),
            repeated: 0,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of data frames that were sent again.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns true if all frames of this end are acknowledged and this end has no acknowledgement to send.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && !self.owes
    }

    /// Adds a message to the stream, in as many frames as it needs.
    pub(super) fn push(&mut self, message: &[u8]) {
        let (is_compressed, packed) = pack(message);
        let mut chunks = packed.chunks(CHUNK).peekable();
        while let Some(bytes) = chunks.next() {
            let goes_on = chunks.peek().is_some();
            self.waiting.push_back(Chunk { goes_on, is_compressed, bytes: bytes.to_vec() });
        }
    }

    /// Returns the next data frame to send; `None` if none can be sent now. Call it until it returns `None`.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Frame> {
        if now_ns >= self.repeat_at_ns && self.in_flight > 0 {
            // All frames in flight may be lost. Slow down: the network or the other end may be overloaded.
            self.repeated += self.in_flight as u64;
            self.in_flight = 0;
            self.window = 1;
            self.patience_ns = (self.patience_ns * 2).min(MOST_PATIENCE_NS);
        }
        if self.in_flight >= self.window {
            return None;
        }
        let chunk = self.waiting.get(self.in_flight)?;
        if self.in_flight == 0 {
            self.repeat_at_ns = now_ns.saturating_add(self.patience_ns);
        }
        self.in_flight += 1;
        self.owes = false;
        Some(Frame {
            kind: Kind::Data,
            epoch: self.epoch,
            sequence: self.acknowledged + self.in_flight as u64,
            acknowledged: self.received,
            goes_on: chunk.goes_on,
            is_compressed: chunk.is_compressed,
            payload: chunk.bytes.clone(),
        })
    }

    /// Returns the acknowledgement to send; `None` if none is due. Data frames carry acknowledgements too.
    pub(super) fn acknowledgement(&mut self) -> Option<Frame> {
        std::mem::take(&mut self.owes).then(|| self.alive())
    }

    /// Returns a frame that shows that this end is alive, and acknowledges the received frames.
    pub(super) fn alive(&mut self) -> Frame {
        self.owes = false;
        Frame { acknowledged: self.received, ..Frame::plain(Kind::Alive, self.epoch, Vec::new()) }
    }

    /// Assumes that all frames in flight are lost, so that they are sent again immediately. Called when the connection is restored.
    pub(super) fn reconnected(&mut self) {
        self.patience_ns = FIRST_PATIENCE_NS;
        self.window = FIRST_WINDOW;
        self.repeated += self.in_flight as u64;
        self.in_flight = 0;
        self.repeat_at_ns = u64::MAX;
    }

    /// Processes a received frame. Returns the message if the frame completes one, else `None`. A data frame that is not the next in order
    /// is ignored; the sender repeats it. Fails if the message is too long or cannot be decompressed.
    pub(super) fn take(&mut self, frame: &Frame, now_ns: u64) -> Result<Option<Vec<u8>>, LinkError> {
        self.take_acknowledged(frame.acknowledged, now_ns);
        if frame.kind != Kind::Data {
            return Ok(None);
        }
        self.owes = true;
        if frame.sequence != self.received + 1 {
            return Ok(None);
        }
        self.received += 1;
        self.partial.extend(&frame.payload);
        if self.partial.len() > LONGEST_PACKED {
            return Err(LinkError::Garbled(format!("a message of more than {LONGEST_PACKED} bytes")));
        }
        if frame.goes_on {
            return Ok(None);
        }
        unpack(frame.is_compressed, std::mem::take(&mut self.partial)).map(Some)
    }

    fn take_acknowledged(&mut self, number: u64, now_ns: u64) {
        let Some(new) = number.checked_sub(self.acknowledged) else { return };
        let Some(new) = usize::try_from(new).ok().filter(|new| (1..=self.waiting.len()).contains(new)) else {
            return;
        };
        self.waiting.drain(..new);
        self.acknowledged = number;
        self.in_flight = self.in_flight.saturating_sub(new);
        self.window = (self.window + new).min(WIDEST);
        self.patience_ns = FIRST_PATIENCE_NS;
        self.repeat_at_ns =
            if self.in_flight > 0 { now_ns.saturating_add(self.patience_ns) } else { u64::MAX };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Exchanges frames between two ends until both are done; `losses` says which are lost.
    fn carry(a: &mut Session, b: &mut Session, losses: &[bool]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        let mut losses = losses.iter().copied().chain(std::iter::repeat(false));
        let mut now = 0;
        while !(a.is_quiet() && b.is_quiet()) {
            for turn in [true, false] {
                let (from, to, got) =
                    if turn { (&mut *a, &mut *b, &mut at_b) } else { (&mut *b, &mut *a, &mut at_a) };
                let mut frames: Vec<Frame> = std::iter::from_fn(|| from.next(now)).collect();
                frames.extend(from.acknowledgement());
                for frame in frames {
                    if !losses.next().unwrap() {
                        let frame = Frame::decode(&frame.encode()).unwrap();
                        got.extend(to.take(&frame, now).unwrap());
                    }
                }
            }
            now += FIRST_PATIENCE_NS / 4;
            assert!(now < 10_000 * FIRST_PATIENCE_NS, "the stream stands still");
        }
        (at_a, at_b)
    }

    proptest! {
        #[test]
        fn each_message_arrives_once_and_in_order(
            there in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2000), 0..40),
            back in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2000), 0..40),
            losses in prop::collection::vec(any::<bool>(), 0..300),
        ) {
            let (mut a, mut b) = (Session::new(1), Session::new(1));
            there.iter().for_each(|message| a.push(message));
            back.iter().for_each(|message| b.push(message));
            let (at_a, at_b) = carry(&mut a, &mut b, &losses);
            prop_assert_eq!(at_b, there);
            prop_assert_eq!(at_a, back);
        }

        #[test]
        fn hostile_acknowledgements_do_no_harm(numbers in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut session = Session::new(1);
            session.push(b"one");
            session.push(b"two");
            session.next(0);
            for number in numbers {
                let frame = Frame { acknowledged: number, ..Frame::plain(Kind::Alive, 1, Vec::new()) };
                session.take(&frame, 0).unwrap();
            }
        }
    }

    #[test]
    fn a_message_longer_than_a_frame_is_put_together() {
        let mut seed = 1_u64;
        let message: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_le_bytes()[7]
        })
        .take(3 * CHUNK + 5)
        .collect();
        let (mut a, mut b) = (Session::new(1), Session::new(1));
        a.push(&message);
        let (_, at_b) = carry(&mut a, &mut b, &[false, true, true]);
        assert_eq!(at_b, [message]);
        assert!(a.repeated() > 0);
    }

    #[test]
    fn a_carrier_that_is_back_carries_at_once() {
        let mut session = Session::new(1);
        session.push(b"one");
        assert!(session.next(0).is_some());
        assert!(session.next(1).is_none());
        session.reconnected();
        assert_eq!(session.next(2).map(|frame| frame.sequence), Some(1));
    }
}
