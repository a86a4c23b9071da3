//! Fuzzes trace readers with any bytes: they return events in order of time, followed by at most one error.
#![no_main]

use iotax_interop::trace::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((_, events)) = read(bytes.to_vec()) else { return };
    let (mut last, mut is_broken) = (0, false);
    for event in events.take(100_000) {
        assert!(!is_broken, "an error is the last");
        match event {
            Ok(event) => {
                assert!(event.at_ns >= last, "in order");
                last = event.at_ns;
            }
            Err(reason) => {
                assert!(!reason.is_empty());
                is_broken = true;
            }
        }
    }
});
