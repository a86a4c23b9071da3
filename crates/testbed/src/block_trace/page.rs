//! Decodes pages of the kernel's trace buffers, as read from `trace_pipe_raw` (Documentation/trace/ring-buffer-design.rst and
//! `events/header_page`, `events/header_event`).

/// Length of a page's header in bytes: a time stamp and the length of the events.
const HEADER: usize = 16;
/// Bits of the header's second word that hold the length of the events; higher bits report lost events.
const LENGTH: u64 = (1 << 30) - 1;
/// Entry types for padding and time stamps; all lower types are events.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Number of bits in an absolute time stamp; the higher bits come from the page's time stamp.
const STAMP_BITS: u32 = 59;

/// Calls `event` with the time stamp in nanoseconds and the payload of each event of a page.
///
/// # Errors
/// The page is malformed.
pub(super) fn events(page: &[u8], mut event: impl FnMut(u64, &[u8])) -> Result<(), String> {
    let wide = |at: usize| page.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_ne_bytes);
    let (Some(mut time), Some(commit)) = (wide(0), wide(8)) else {
        return Err(format!("a page of {} bytes", page.len()));
    };
    let length = usize::try_from(commit & LENGTH).unwrap_or(usize::MAX);
    let data = page.get(HEADER..HEADER.saturating_add(length));
    let data = data.ok_or_else(|| format!("a page whose events take {length} bytes"))?;
    let word = |at: usize| {
        let part = data.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
        part.ok_or_else(|| "an event that is cut off".to_owned())
    };
    let mut at = 0;
    while at < data.len() {
        let head = word(at)?;
        let (kind, delta) = (head & 31, head >> 5);
        match kind {
            // The rest of the page.
            PADDING if delta == 0 => return Ok(()),
            PADDING => at += 4 + word(at + 4)? as usize,
            TIME_EXTEND => {
                time = time.wrapping_add(u64::from(delta) + (u64::from(word(at + 4)?) << 27));
                at += 8;
            }
            TIME_STAMP => {
                let stamp = u64::from(delta) + (u64::from(word(at + 4)?) << 27);
                time = (time >> STAMP_BITS << STAMP_BITS) | (stamp & ((1 << STAMP_BITS) - 1));
                at += 8;
            }
            _ => {
                time = time.wrapping_add(delta.into());
                let (begin, length) = if kind == 0 {
                    (at + 8, (word(at + 4)? as usize).saturating_sub(4))
                } else {
                    (at + 4, kind as usize * 4)
                };
                let payload = data.get(begin..begin.saturating_add(length));
                event(time, payload.ok_or("an event that is longer than its page")?);
                at = begin + length;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(time: u64, data: &[u32], commit: Option<u64>) -> Vec<u8> {
        let mut page = time.to_ne_bytes().to_vec();
        page.extend(commit.unwrap_or(data.len() as u64 * 4).to_ne_bytes());
        data.iter().for_each(|word| page.extend(word.to_ne_bytes()));
        page
    }

    fn read(page: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let mut found = Vec::new();
        events(page, |time, payload| found.push((time, payload.to_vec()))).map(|()| found)
    }

    #[test]
    fn times_add_up_and_long_and_short_events_are_told_apart() {
        let head = |kind: u32, delta: u32| kind | delta << 5;
        let data = [
            head(1, 10),
            7,
            head(TIME_EXTEND, 5),
            1,
            head(0, 1),
            8,
            9,
            head(PADDING, 1),
            4,
            0,
            head(TIME_STAMP, 3),
            0,
            head(1, 0),
            8,
            head(PADDING, 0),
            0,
            99,
        ];
        let data: Vec<u32> = data.to_vec();
        // The padding's length of 4 bytes covers only the length word itself, so no further word of padding follows.
        let data = [&data[..7], &[head(PADDING, 1), 4], &data[10..]].concat();
        let seven = 7_u32.to_ne_bytes().to_vec();
        let extended = 1010 + 5 + (1 << 27) + 1;
        assert_eq!(
            read(&page(1000, &data, None)).expect("read"),
            [(1010, seven), (extended, 9_u32.to_ne_bytes().to_vec()), (3, 8_u32.to_ne_bytes().to_vec())]
        );
    }

    #[test]
    fn a_page_that_lies_is_refused() {
        assert!(read(&[0; 7]).is_err());
        assert!(read(&page(0, &[1, 2], Some(4000))).is_err());
        assert!(read(&page(0, &[28, 0], None)).is_err());
        assert!(read(&page(0, &[0, u32::MAX], None)).is_err());
        assert_eq!(read(&page(0, &[], Some(1 << 31))), Ok(Vec::new()));
    }
}
