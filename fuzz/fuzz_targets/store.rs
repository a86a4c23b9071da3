//! Fuzzes stores with changed bytes or a missing end: each run is rejected, or can be judged and shown.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use iotax_analysis::judge;
use iotax_interop::import::{recognise, runs};
use iotax_model::RunState;
use iotax_report::{document, terminal};
use iotax_store::{NewRun, Store};
use libfuzzer_sys::fuzz_target;

/// The runs in the store, with figures, histograms and plans.
const RUNS: [&str; 2] = [
    include_str!("../../crates/interop/tests/data/import/ping-iputils.txt"),
    include_str!("../../crates/interop/tests/data/import/fio-3.33-plus.json"),
];

/// A directory in memory, and the bytes of an intact store.
static SOUND: LazyLock<(PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let dir = iotax_fuzz::scratch_dir();
    let path = dir.join("sound");
    let mut store = Store::open(&path).expect("new");
    for run in RUNS.iter().flat_map(|text| runs(vec![("file".to_owned(), recognise(text))], None)) {
        let id = store
            .create_run(&NewRun { plan: &run.plan, seed: 0, started_at_ms: 1, fleet: None })
            .expect("created");
        store.set_source(id, &run.source).expect("kept");
        store.put_measurements(id, run.measurements()).expect("kept");
        store.set_state(id, RunState::Complete).expect("kept");
    }
    drop(store);
    let bytes = std::fs::read(&path).expect("there");
    (dir, bytes)
});

fuzz_target!(|edits: &[u8]| {
    let (dir, sound) = &*SOUND;
    let path = dir.join("store");
    for rest in ["store-journal", "store-wal", "store-shm"] {
        let _ = std::fs::remove_file(dir.join(rest));
    }
    std::fs::write(&path, iotax_fuzz::edited(sound, edits)).expect("written");
    let Ok(store) = Store::open(&path) else { return };
    for known in store.runs().unwrap_or_default() {
        if let Ok(run) = store.load(known.0) {
            let _ = terminal::set(&document::run(&run, &judge(&run)), 100, false);
        }
    }
});
