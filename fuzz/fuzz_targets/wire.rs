//! Fuzzes frames from agent or runner: each is rejected, or is the same after writing and reading.
#![no_main]

use std::fmt::Debug;

use iotax_model::wire::{Event, Request, receive, send};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    check::<Event>(bytes);
    check::<Request>(bytes);
    // As the payload of a frame, which a mutated length would hide.
    let mut frame = b"iotx".to_vec();
    frame.extend(u32::try_from(bytes.len()).expect("short").to_le_bytes());
    frame.extend(bytes);
    check::<Event>(&frame);
    check::<Request>(&frame);
});

fn check<T: Serialize + DeserializeOwned + Debug>(mut bytes: &[u8]) {
    while let Ok(Some(message)) = receive::<T>(&mut bytes) {
        let mut sent = Vec::new();
        send(&mut sent, &message).expect("what was read can be sent");
        let again: T = receive(&mut sent.as_slice()).expect("it is sound").expect("it is one");
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
}
