//! Fuzzes the importers with any text: none panics, and every figure is a finite number.
#![no_main]

use iotax_interop::import::{recognise, runs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let found = recognise(text);
    let entries = || found.iter().flat_map(|found| &found.entries);
    assert!(
        entries().all(|entry| entry.stated.metrics.values().all(|value| value.is_finite() && *value > 0.0))
    );
    assert!(entries().all(|entry| entry.stated.others.iter().all(|figure| figure.value.is_finite())));
    let _ = runs(vec![("file".to_owned(), found)], None);
});
