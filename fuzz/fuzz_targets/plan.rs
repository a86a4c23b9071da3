//! Fuzzes plans: each is rejected, or can be written and read again.
#![no_main]

use iotax_model::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(plan) = Plan::from_toml(text) {
        let json = serde_json::to_string(&plan).expect("a plan has a text form");
        assert_eq!(serde_json::from_str::<Plan>(&json).expect(&json), plan);
        // Numbers above 2^63 have no place in a file.
        if let Ok(text) = plan.to_toml() {
            assert_eq!(Plan::from_toml(&text).expect(&text), plan);
        }
    }
});
