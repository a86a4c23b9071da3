//! Fuzzes key values: each text is rejected, or its value is the same after writing and reading.
#![no_main]

use iotax_model::workload::{KEYS, WorkloadKeys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((number, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let key = &KEYS[usize::from(*number) % KEYS.len()];
    let mut keys = WorkloadKeys::default();
    match keys.set(key.name, text) {
        Err(why) => assert!(!why.is_empty()),
        Ok(()) => {
            let json = serde_json::to_string(&keys).expect("keys have a text form");
            assert_eq!(serde_json::from_str::<WorkloadKeys>(&json).expect(&json), keys);
            let _ = keys.complete(&WorkloadKeys::default()).check();
        }
    }
});
