//! The message that the client sends and the server sends back.

/// Minimum length of a message in bytes, which holds the cookie and the message number.
pub(crate) const LEAST: usize = 16;

/// The start of a message: the measurement's random number and the message's number from 0, both big-endian. Zeros fill the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) cookie: u64,
    pub(super) number: u64,
}

impl Message {
    /// Writes the message to the start of `bytes`, which has at least [`LEAST`] bytes.
    pub(super) fn write(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[8..LEAST].copy_from_slice(&self.number.to_be_bytes());
    }

    /// Parses the message at the start of `bytes`; `None` if `bytes` is too short.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (cookie, rest) = bytes.split_first_chunk()?;
        let number = rest.first_chunk()?;
        Some(Self { cookie: u64::from_be_bytes(*cookie), number: u64::from_be_bytes(*number) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = Message { cookie: 0x0123_4567_89AB_CDEF, number: 1 << 40 };
        let mut bytes = [7; 20];
        message.write(&mut bytes);
        assert_eq!(Message::read(&bytes), Some(message));
        assert_eq!(bytes[LEAST..], [7; 4], "no byte beyond");
        assert_eq!(Message::read(&bytes[..LEAST - 1]), None);
    }
}
