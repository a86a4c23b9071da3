use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Tests the property of the fuzz target with the same name.
    #[test]
    fn values(
        key in prop::sample::select(KEYS),
        text in "[a-z_]{0,10}:?[0-9.]{0,6}[kmgGiBs]{0,3}([-:/,][0-9]{1,3}[km]?){0,3}|.{0,16}",
    ) {
        let mut keys = WorkloadKeys::default();
        if keys.set(key.name, &text).is_ok() {
            let json = serde_json::to_string(&keys).expect("keys have a text form");
            prop_assert_eq!(serde_json::from_str::<WorkloadKeys>(&json).expect(&json), keys.clone());
            let _ = keys.complete(&WorkloadKeys::default()).check();
        }
    }
}

#[test]
fn every_default_is_read_back_from_its_text() {
    let mut keys = WorkloadKeys::default();
    for key in KEYS {
        let Some(default) = key.default else { continue };
        keys.set(key.name, &default()).expect(key.name);
    }
    let nothing = WorkloadKeys::default();
    assert_eq!(keys.complete(&nothing), nothing.complete(&nothing));
}

#[test]
fn an_unknown_key_or_value_is_quoted() {
    let mut keys = WorkloadKeys::default();
    for (key, value, words) in [
        ("iodept", "1", "\"iodept\""),
        ("direct", "maybe", "\"maybe\""),
        ("rw", "raed", "\"raed\""),
        ("rate_iops", "100 apples", "\"100 apples\" is not a whole number"),
    ] {
        let error = keys.set(key, value).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(keys, WorkloadKeys::default());
}

#[test]
fn a_number_out_of_range_is_told_the_range_of_its_key() {
    for (name, text, accepted) in [
        ("rwmixread", "300", "\"300\" is not a whole percentage; accepted: 0 to 100"),
        ("iodepth", "0", "\"0\" is out of range; accepted: 1 to 4096"),
        ("numjobs", "x", "accepted: 1 to 1024"),
        ("rate_iops", "-5", "accepted: 1 and more, such as 500 or 10k"),
    ] {
        let key = KEYS.iter().find(|key| key.name == name).expect(name);
        let error = (key.check)(text).expect_err(name);
        assert!(error.contains(accepted), "{error}");
    }
    let mut keys = WorkloadKeys::default();
    for (key, text) in [("rate_iops", "1.27k"), ("rwmixread", "70%"), ("iodepth", "2k")] {
        keys.set(key, text).expect(key);
    }
    assert_eq!((keys.rate_iops, keys.rwmixread, keys.iodepth), (Some(1270), Some(70), Some(2000)));
}

#[test]
fn only_a_percentage_takes_its_sign_in_a_plan_as_among_the_flags() {
    let takes = |key: &WorkloadKey, text| (key.check)(text).is_ok() && key.value != "FILE";
    for key in KEYS.iter().filter(|key| takes(key, "5") || takes(key, "3")) {
        let is_percentage = key.value == "PERCENT";
        for text in ["3%", "5%"] {
            let read = toml::from_str::<WorkloadKeys>(&format!("{} = '{text}'", key.name));
            assert_eq!(read.is_ok(), is_percentage, "{} = {text}: {read:?}", key.name);
            assert_eq!((key.check)(text).is_ok(), is_percentage, "--{} {text}", key.name);
        }
    }
}

#[test]
fn a_workload_is_read_back_from_json() {
    let mut keys = WorkloadKeys { name: Some("one".into()), ..WorkloadKeys::default() };
    keys.set("size", "1GiB").expect("a size");
    let workload = keys.complete(&WorkloadKeys::default());
    let text = serde_json::to_string(&workload).expect("serializes");
    assert_eq!(serde_json::from_str::<Workload>(&text).expect("reads back"), workload);
}
