//! The cost of each kind of pattern: CPU time per I/O on the null backend at depth 128, with everything else on. The difference to the
//! first row is the cost of the pattern.
//!
//! `cargo bench -p iotax-engine --bench pattern`

use iotax_engine::measure;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::WorkloadKeys;

/// Number of runs; the fastest counts, because disturbances only make a run slower.
const RUNS: usize = 5;
const SIZE: Bytes = Bytes(1 << 30);

const KINDS: &[(&str, &[(&str, &str)])] = &[
    ("sequential", &[("rw", "read")]),
    ("stride -4k", &[("rw", "read"), ("stride", "-4k")]),
    ("mix (all reads: writes would cost content)", &[("rw", "rw"), ("rwmixread", "100")]),
    ("io_size", &[("rw", "read"), ("io_size", "8000p")]),
    ("random, each once", &[]),
    ("random, each once, not a power of two", &[("size", "1000m")]),
    ("norandommap", &[("norandommap", "1")]),
    ("zipf:1.2", &[("random_distribution", "zipf:1.2")]),
    ("pareto:0.2", &[("random_distribution", "pareto:0.2")]),
    ("normal:20", &[("random_distribution", "normal:20")]),
    ("zoned:50/5:30/15:20/80", &[("random_distribution", "zoned:50/5:30/15:20/80")]),
    ("percentage_random=50", &[("percentage_random", "50")]),
    ("bsrange=4k-64k", &[("bsrange", "4k-64k")]),
    ("bssplit=4k/60:64k/40", &[("bssplit", "4k/60:64k/40")]),
];

/// Nanoseconds of CPU time per I/O, or the reason for their absence.
fn cost(keys: &[(&str, &str)], path: &std::path::Path) -> Result<f64, String> {
    let mut own = WorkloadKeys::default();
    let common = [
        ("ioengine", "null"),
        ("iodepth", "128"),
        ("direct", "0"),
        ("ramp_time", "20ms"),
        ("runtime", "200ms"),
    ];
    for (key, text) in common.iter().chain(keys) {
        own.set(key, text)?;
    }
    let workload = own.complete(&WorkloadKeys::default());
    let size = workload.size.unwrap_or(SIZE);
    let job = Job { writable: true, ..Job::new(workload, size, 1, Nanos::from_millis(100)) };
    let outcome = measure(&job, path, &mut |_| ()).map_err(|error| error.to_string())?;
    Ok((outcome.cpu.user_ns + outcome.cpu.system_ns) as f64 / outcome.tallies.ios() as f64)
}

fn main() -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.as_file().set_len(SIZE.0).map_err(|error| error.to_string())?;
    let mut least = vec![f64::INFINITY; KINDS.len()];
    for _ in 0..RUNS {
        for (least, (_, keys)) in least.iter_mut().zip(KINDS) {
            *least = least.min(cost(keys, file.path())?);
        }
    }
    for ((name, _), cost) in KINDS.iter().zip(&least) {
        println!("{name:<45} {cost:6.1} ns  {:+6.1}", cost - least[0]);
    }
    Ok(())
}
