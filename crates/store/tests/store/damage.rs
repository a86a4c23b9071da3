//! Tests of a store with flipped bits, and of a read-only one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use iotax_analysis::trend::RunFigures;
use iotax_model::Run;
use iotax_store::{Store, StoreError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

use crate::both::fill;
use iotax_testkit::runs::{HOST, Truth, bench, run};
use iotax_testkit::thorough;

/// A store of three runs, and its content.
fn three(path: &Path) -> Vec<Run> {
    let mut store = Store::open(path).expect("new");
    let slow = Truth { slowdown: 1.3, ..HOST };
    let runs = [
        bench(),
        run(&[("host-file", HOST), ("vm-raw", slow)], &["randread-4k-qd1", "randwrite-4k-qd32"], 3, false),
        run(&[("host-device", HOST)], &["seqread-1m"], 2, false),
    ];
    runs.into_iter().map(|run| Run { id: fill(&mut store, &run), ..run }).collect()
}

/// Returns the rejected runs. Asserts that the others are unchanged, and that each error names the next step.
fn refusals(path: &Path, runs: &[Run], bit: usize) -> BTreeSet<Option<i64>> {
    let mut refused = BTreeSet::new();
    let mut note = |run: Option<i64>, error: &StoreError| {
        let said = error.to_string();
        let names = run.is_none_or(|run| said.contains(&format!("run {run} ")));
        assert!(names && said.contains("store") && said.contains("--db"), "bit {bit}: {said}");
        refused.insert(run);
    };
    let store = match Store::open_to_read(path) {
        Ok(store) => store,
        Err(error) => {
            note(None, &error);
            return refused;
        }
    };
    match store.runs() {
        Ok(listed) => {
            assert!(listed.len() >= runs.len(), "bit {bit}: {listed:?}");
            for (id, summary) in listed {
                match summary {
                    Ok(summary) => {
                        let run = &runs[usize::try_from(id).expect("small") - 1];
                        let shown = (&summary.name, summary.measured, summary.started_at_ms, summary.state);
                        let measured = run.measurements.len() as u64;
                        assert_eq!(
                            shown,
                            (&run.plan.name, measured, run.started_at_ms, run.state),
                            "bit {bit}"
                        );
                        // The list shows the same error as loading the run.
                        let is_whole = store.load(id).is_ok() && store.notes(id).is_ok();
                        assert_eq!(summary.damage.is_none(), is_whole, "bit {bit}: run {id}");
                    }
                    Err(error) => note(Some(id), &error),
                }
            }
        }
        Err(error) => note(None, &error),
    }
    for run in runs {
        match store.load(run.id) {
            Ok(read) => assert!(read == *run, "bit {bit}: run {} differs silently", run.id),
            Err(error) => note(Some(run.id), &error),
        }
        // What a trend reads is right too, or refused.
        if let Ok((read, figures)) = store.load_figures(run.id) {
            assert!(read == Run { measurements: vec![], ..run.clone() }, "bit {bit}: run {}", run.id);
            assert!(figures == RunFigures::all(run), "bit {bit}: the figures of run {}", run.id);
        }
    }
    refused
}

/// Returns the bits to flip: random bits of the whole file, every bit of its header, and one bit per byte of the beginning of each page;
/// every n-th of these.
fn bits(length: usize, every: usize) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
    let anywhere = (0..600).map(|_| random.random_range(0..length * 8)).collect::<Vec<_>>();
    let pages = (0..length).step_by(4096).flat_map(|page| (page..page + 12).map(|byte| byte * 8 + byte % 7));
    anywhere.into_iter().chain(0..108 * 8).chain(pages).step_by(every).collect()
}

#[test]
fn a_flipped_bit_is_refused_or_makes_no_difference() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let runs = three(&path);
    assert_eq!(refusals(&path, &runs, 0), BTreeSet::new());
    let whole = fs::read(&path).expect("read");
    let (mut harmless, mut one_run, mut several) = (0, 0, 0);
    // Not a divisor of the bits of a byte or of the tested bytes of a page.
    let every = if thorough() { 1 } else { 5 };
    for bit in bits(whole.len(), every) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).expect("damaged");
        let refused = refusals(&path, &runs, bit);
        match refused.len() {
            0 => harmless += 1,
            1 if !refused.contains(&None) => one_run += 1,
            _ => several += 1,
        }
        // Whoever writes on either notices, or harms nothing.
        if bit % 7 == 0
            && let Ok(mut store) = Store::open(&path)
        {
            let more = store.create_run(&iotax_store::NewRun {
                plan: &runs[0].plan,
                seed: 1,
                started_at_ms: 1,
                fleet: None,
            });
            let more = more.map(|id| store.put_measurement(id, &runs[0].measurements[0]).is_ok());
            drop(store);
            let extra = matches!(more, Ok(true));
            for run in runs.iter().filter(|run| !refused.contains(&Some(run.id))) {
                let read = Store::open_to_read(&path).and_then(|store| store.load(run.id));
                assert!(
                    !extra || read.is_ok_and(|read| read == *run),
                    "bit {bit}: run {} was lost by writing",
                    run.id
                );
            }
        }
        let _ = fs::remove_file(dir.path().join("iotax.db-journal"));
    }
    assert!(
        one_run * every > 50 && several * every > 50,
        "{harmless} harmless, {one_run} of one run, {several} of several"
    );
}

#[test]
fn a_run_with_a_damaged_measurement_is_listed_and_the_others_are_unharmed() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let runs = three(&path);
    let change = |sql: &str| {
        let changed = rusqlite::Connection::open(&path).and_then(|connection| {
            connection.pragma_update(None, "foreign_keys", false)?;
            connection.execute(sql, [])
        });
        assert_eq!(changed.expect(sql), 1, "{sql}");
    };
    let of_second = "WHERE rowid = (SELECT min(rowid) FROM measurement WHERE run = 2)";
    let refused = || {
        let store = Store::open_to_read(&path).expect("opens");
        let listed = store.runs().expect("lists");
        let [first, second, third] = listed.as_slice() else { panic!("{listed:?}") };
        let second = second.1.as_ref().expect("its own row is sound");
        let reason = second.damage.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(second.measured == 12 && reason.contains("11 of 12 measurements are sound"), "{reason}");
        for other in [first, third] {
            assert!(other.1.as_ref().is_ok_and(|run| run.damage.is_none()), "{other:?}");
        }
        assert!(store.load(1).expect("sound") == runs[0] && store.load(3).expect("sound") == runs[2]);
        store.load(2).expect_err("damaged").to_string()
    };
    change(&format!("UPDATE measurement SET seal = seal + 1 {of_second}"));
    let said = refused();
    for words in ["run 2 cannot be shown", "measurement", "11 of 12", "checksum", "iotax list", "--db"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    change(&format!("DELETE FROM measurement {of_second}"));
    assert!(
        refused().contains("11 of 12 measurements are sound; of the others no row is found"),
        "{}",
        refused()
    );
    let read = |run| Store::open_to_read(&path).and_then(|store| store.load_figures(run));
    let lost = read(2).expect_err("a measurement is gone").to_string();
    assert!(lost.contains("run 2 cannot be shown") && lost.contains("11 of 12"), "{lost}");
    // Separately stored figures are recomputed from the measurements.
    change("UPDATE run_figures SET content = x'00' WHERE run = 1");
    assert!(read(1).expect("by its measurements").1 == RunFigures::all(&runs[0]));
    change("DELETE FROM run_figures WHERE run = 3");
    change("DELETE FROM run WHERE id = 3");
    let store = Store::open_to_read(&path).expect("opens");
    let lost = store.load(3).expect_err("gone").to_string();
    assert!(lost.contains("run 3 cannot be shown") && lost.contains("its row is gone"), "{lost}");
    assert!(store.runs().expect("lists")[2].1.is_err());
}
