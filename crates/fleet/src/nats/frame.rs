//! Frames: what is sent between a coordinator and a member.

use std::io::Read;

use crate::link::LinkError;

/// First byte of every frame. A frame of another version is answered by [`Kind::Refused`].
pub(super) const VERSION: u8 = 1;

/// Length of a frame's header in bytes.
pub(super) const HEADER: usize = 28;

/// Maximum payload of a frame: a quarter of what nats-server accepts by default.
pub(super) const CHUNK: usize = 256 << 10;

/// Minimum length in bytes of a message that is compressed.
const COMPRESS_FROM: usize = 512;

/// Maximum length in bytes of a decompressed message.
const LONGEST: u64 = 256 << 20;

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// From the coordinator: an offer to work for its fleet. The payload is [`super::presence::Offer`].
    Open = 0,
    /// From a member: it accepts the offer.
    Opened = 1,
    /// A part of a message in the stream.
    Data = 2,
    /// An acknowledgement and sign of life.
    Alive = 3,
    /// The stream has ended. The payload gives the reason.
    Close = 4,
    /// From a member: it does not work, or no longer works, for this coordinator. The payload gives the reason.
    Refused = 5,
    /// A message outside the stream.
    Datagram = 6,
}

/// A frame between a coordinator and a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Number of the coordinator within the fleet: later ones have higher numbers.
    pub(super) epoch: u64,
    /// The number of a [`Kind::Data`] frame, from 1.
    pub(super) sequence: u64,
    /// The number of the last data frame received.
    pub(super) acknowledged: u64,
    /// True if the message continues in the next frame.
    pub(super) goes_on: bool,
    /// True if the message is compressed.
    pub(super) is_compressed: bool,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Creates a frame outside the stream.
    pub(super) fn plain(kind: Kind, epoch: u64, payload: Vec<u8>) -> Self {
        Self { kind, epoch, sequence: 0, acknowledged: 0, goes_on: false, is_compressed: false, payload }
    }

    /// Wraps a whole message in a datagram.
    pub(super) fn datagram(epoch: u64, message: &[u8]) -> Self {
        let (is_compressed, payload) = pack(message);
        Self { is_compressed, ..Self::plain(Kind::Datagram, epoch, payload) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        bytes.extend([VERSION, self.kind as u8, u8::from(self.goes_on), u8::from(self.is_compressed)]);
        for number in [self.epoch, self.sequence, self.acknowledged] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&self.payload);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        let garbled =
            |what: &str| LinkError::Garbled(format!("a frame of {} bytes with {what}", bytes.len()));
        let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
            return Err(garbled("half a header"));
        };
        if header[0] != VERSION {
            return Err(garbled(&format!("version {}; this is version {VERSION}", header[0])));
        }
        let kind = match header[1] {
            0 => Kind::Open,
            1 => Kind::Opened,
            2 => Kind::Data,
            3 => Kind::Alive,
            4 => Kind::Close,
            5 => Kind::Refused,
            6 => Kind::Datagram,
            other => return Err(garbled(&format!("kind {other}"))),
        };
        let number = |at: usize| {
            u64::from_le_bytes(
                header[at..at + 8].try_into().expect("the header has three numbers of 8 bytes"),
            )
        };
        Ok(Self {
            kind,
            epoch: number(4),
            sequence: number(12),
            acknowledged: number(20),
            goes_on: header[2] == 1,
            is_compressed: header[3] == 1,
            payload: payload.to_vec(),
        })
    }

    /// The payload as text, for frames that carry a reason.
    pub(super) fn reason(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// Packs a message: compressed, with true, if that saves space, else as it is, with false.
pub(super) fn pack(message: &[u8]) -> (bool, Vec<u8>) {
    if message.len() < COMPRESS_FROM {
        return (false, message.to_vec());
    }
    match zstd::bulk::compress(message, 1) {
        Ok(packed) if packed.len() < message.len() => (true, packed),
        _ => (false, message.to_vec()),
    }
}

/// Restores a message from [`pack`].
pub(super) fn unpack(is_compressed: bool, bytes: Vec<u8>) -> Result<Vec<u8>, LinkError> {
    if !is_compressed {
        return Ok(bytes);
    }
    let garbled = |error: std::io::Error| LinkError::Garbled(format!("a message that is not zstd: {error}"));
    let mut message = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(bytes.as_slice()).map_err(garbled)?;
    decoder.take(LONGEST + 1).read_to_end(&mut message).map_err(garbled)?;
    if message.len() as u64 > LONGEST {
        return Err(LinkError::Garbled(format!("a message of more than {LONGEST} bytes")));
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_comes_back(epoch: u64, sequence: u64, acknowledged: u64, goes_on: bool, payload: Vec<u8>) {
            let frame = Frame { kind: Kind::Data, epoch, sequence, acknowledged, goes_on, is_compressed: false, payload };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
            let _ = unpack(true, bytes);
        }
    }

    #[test]
    fn a_frame_of_another_version_is_refused_by_its_number() {
        let mut bytes = Frame::plain(Kind::Alive, 1, Vec::new()).encode();
        bytes[0] = 9;
        let told = Frame::decode(&bytes).unwrap_err().to_string();
        assert!(told.contains("version 9") && told.contains("version 1"), "{told}");
    }

    #[test]
    fn a_message_that_unpacks_without_end_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; usize::try_from(LONGEST).unwrap() + 1], 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert!(unpack(true, bomb).unwrap_err().to_string().contains("more than"));
    }
}
