//! Frames, the units in which messages travel between a coordinator and a member.

use std::io::Read;

use crate::link::LinkError;

/// The first byte of every frame. A coordinator gives up a member that sends another version; an agent ignores such frames.
pub(super) const VERSION: u8 = 1;

/// Length of a frame's header in bytes.
pub(super) const HEADER: usize = 28;

/// Maximum length in bytes of a frame's payload: a quarter of the message size that nats-server accepts by default.
pub(super) const CHUNK: usize = 256 << 10;

/// Minimum length in bytes of a message that is compressed.
const COMPRESS_FROM: usize = 512;

/// Maximum length in bytes of a decompressed message.
const LONGEST: u64 = 256 << 20;

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// From the coordinator: an offer to work for its fleet, [`super::presence::Offer`].
    Open = 0,
    /// From a member: it accepts the offer.
    Opened = 1,
    /// A part of a message in the reliable stream.
    Data = 2,
    /// An acknowledgement of data frames, which also shows that the sender is alive.
    Alive = 3,
    /// The sender ends the stream. The payload is the reason as text.
    Close = 4,
    /// From a member: it does not work for this coordinator, or no longer. The payload is the reason as text.
    Refused = 5,
    /// A whole message outside of the reliable stream, which may be lost.
    Datagram = 6,
}

/// A frame between a coordinator and a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Number of the fleet's coordinator. A coordinator that takes over the fleet has a higher number.
    pub(super) epoch: u64,
    /// Number of a [`Kind::Data`] frame in the stream, from 1; 0 for other frames.
    pub(super) sequence: u64,
    /// Number of the last data frame that the sender has received in order.
    pub(super) acknowledged: u64,
    /// True if the message continues in the next data frame.
    pub(super) goes_on: bool,
    /// True if the whole message is compressed.
    pub(super) is_compressed: bool,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Creates a frame that is not part of the reliable stream.
    pub(super) fn plain(kind: Kind, epoch: u64, payload: Vec<u8>) -> Self {
        Self { kind, epoch, sequence: 0, acknowledged: 0, goes_on: false, is_compressed: false, payload }
    }

    /// Creates a datagram with a whole message.
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

    /// Returns the payload of a frame that carries a reason, as text.
    pub(super) fn reason(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// Compresses a message of at least [`COMPRESS_FROM`] bytes if that makes it shorter. Returns true and the compressed bytes, or false and
/// the message.
pub(super) fn pack(message: &[u8]) -> (bool, Vec<u8>) {
    if message.len() < COMPRESS_FROM {
        return (false, message.to_vec());
    }
    match zstd::bulk::compress(message, 1) {
        Ok(packed) if packed.len() < message.len() => (true, packed),
        _ => (false, message.to_vec()),
    }
}

/// Restores a message that [`pack`] returned; fails if it is invalid or too long.
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
        let refusal = Frame::decode(&bytes).unwrap_err().to_string();
        assert!(refusal.contains("version 9") && refusal.contains("version 1"), "{refusal}");
    }

    #[test]
    fn a_message_that_unpacks_without_end_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; usize::try_from(LONGEST).unwrap() + 1], 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert!(unpack(true, bomb).unwrap_err().to_string().contains("more than"));
    }
}
