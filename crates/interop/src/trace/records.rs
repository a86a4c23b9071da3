//! Reads binary records of a fixed length.

use std::io::{self, BufReader, Read};

use iotax_model::trace::TracedIo;

/// Reads events from records of `N` bytes. `event` parses a record and returns `None` if the record describes no I/O. Ends after the first
/// error.
pub(super) fn of_records<const N: usize>(
    source: Box<dyn Read + Send>,
    mut event: impl FnMut(&[u8; N]) -> Result<Option<TracedIo>, String> + Send,
) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    let (mut source, mut byte, mut is_over) = (BufReader::with_capacity(1 << 18, source), 0_u64, false);
    std::iter::from_fn(move || {
        while !is_over {
            let mut record = [0; N];
            let found = match filled(&mut source, &mut record) {
                Ok(0) => return None,
                Ok(read) if read < N => Err(format!("the file ends within a record: {read} of {N} bytes")),
                Ok(_) => event(&record),
                Err(error) => Err(error.to_string()),
            };
            let at = byte;
            byte += N as u64;
            match found {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(reason) => {
                    is_over = true;
                    return Some(Err(format!("byte {at}: {reason}")));
                }
            }
        }
        None
    })
}

fn filled(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let length = buffer.len() as u64;
    let mut rest = &mut buffer[..];
    io::copy(&mut source.take(length), &mut rest).map(|read| usize::try_from(read).unwrap_or(usize::MAX))
}

/// Returns the little-endian number of `bytes` bytes at offset `at` of a record.
pub(super) fn number(record: &[u8], at: usize, bytes: usize) -> u64 {
    record[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
