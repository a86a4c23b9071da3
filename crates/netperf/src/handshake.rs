//! The datagrams that open a UDP stream. An iperf3 client sends four constant bytes and waits for four others. An iotax client appends the
//! test's cookie, which iperf3 ignores, so that concurrent tests can be told apart.

use super::control::{COOKIE, Cookie};

/// The numbers in iperf3's opening datagrams, in the sender's byte order: iperf3 sends the first since version 3.12, and sent the second
/// before.
const CALLS: [u32; 2] = [0x3637_3839, 123_456_789];
/// The numbers in the server's answers to these datagrams, for the same versions.
const ANSWERS: [u32; 2] = [0x3938_3736, 987_654_321];

/// Length in bytes of an opening datagram with a cookie, the longest one.
pub(super) const LENGTH: usize = 4 + COOKIE;

/// Builds the opening datagram of a stream.
pub(super) fn call(cookie: &Cookie) -> [u8; LENGTH] {
    let mut call = [0; LENGTH];
    call[..4].copy_from_slice(&CALLS[0].to_ne_bytes());
    call[4..].copy_from_slice(cookie);
    call
}

/// A request to open a stream, from an opening datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// Cookie of the test; `None` if the client is iperf3.
    pub(super) cookie: Option<Cookie>,
}

/// Parses an opening datagram; `None` if it is another kind of datagram.
pub(super) fn read_call(datagram: &[u8]) -> Option<Call> {
    is_one_of(datagram.get(..4)?, CALLS).then(|| Call { cookie: datagram[4..].try_into().ok() })
}

/// Returns the datagram that answers a request to open a stream.
pub(super) const fn answer() -> [u8; 4] {
    ANSWERS[0].to_ne_bytes()
}

/// Returns whether a datagram is the server's answer to an opening datagram.
pub(super) fn is_answer(datagram: &[u8]) -> bool {
    datagram.len() == 4 && is_one_of(datagram, ANSWERS)
}

/// Returns whether these four bytes encode one of `numbers` in either byte order, because the other machine's may differ from this one's.
fn is_one_of(bytes: &[u8], numbers: [u32; 2]) -> bool {
    numbers.iter().any(|number| bytes == number.to_be_bytes() || bytes == number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_any_version_are_understood() {
        assert_eq!(read_call(&call(&[7; COOKIE])), Some(Call { cookie: Some([7; COOKIE]) }));
        assert_eq!(read_call(b"9876"), Some(Call { cookie: None }), "iperf3 3.12 on this machine's kind");
        assert_eq!(read_call(&123_456_789_u32.to_ne_bytes()), Some(Call { cookie: None }));
        assert_eq!((read_call(b"987"), read_call(b"GET /")), (None, None));
        assert!(is_answer(&answer()) && is_answer(b"6789") && is_answer(&987_654_321_u32.to_be_bytes()));
        assert!(!is_answer(b"9870") && !is_answer(b"67890"));
    }
}
