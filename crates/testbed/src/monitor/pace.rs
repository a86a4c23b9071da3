//! Reads CPU frequencies, frequency governors and thermal throttling.
//!
//! Virtual machines report few of these; values that cannot be read are `None`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::CpuPace;

use super::counters::since;
use crate::host_info;

/// CPU frequency, throttling counter and governors at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PaceReading {
    hz: Option<u64>,
    throttles: Option<u64>,
    governors: BTreeSet<String>,
}

/// Reads the values from /sys/devices/system/cpu below `root`. The frequency is the mean over the CPUs that report one.
#[must_use]
pub fn read(root: &Path) -> PaceReading {
    let cpus = cpus(&root.join("sys/devices/system/cpu"));
    let number = |path: PathBuf| host_info::text(&path)?.parse::<u64>().ok();
    let hz: Vec<u64> = cpus
        .iter()
        .filter_map(|cpu| number(cpu.join("cpufreq/scaling_cur_freq"))?.checked_mul(1000))
        .collect();
    // CPUs of a core share its counter, CPUs of a package the package's: each counts once.
    let mut counts: BTreeMap<(Option<u64>, Option<u64>), u64> = BTreeMap::new();
    for cpu in &cpus {
        let package = number(cpu.join("topology/physical_package_id"));
        let core = number(cpu.join("topology/core_id"));
        for (part, file) in [(core, "core_throttle_count"), (None, "package_throttle_count")] {
            if let Some(count) = number(cpu.join("thermal_throttle").join(file)) {
                counts.insert((package, part), count);
            }
        }
    }
    PaceReading {
        hz: hz.iter().sum::<u64>().checked_div(hz.len() as u64),
        throttles: (!counts.is_empty()).then(|| counts.values().sum()),
        governors: cpus
            .iter()
            .filter_map(|cpu| host_info::text(&cpu.join("cpufreq/scaling_governor")))
            .collect(),
    }
}

/// Returns the values at both ends of a window, and the number of throttling events in it. `None` if the machine reports none of these.
#[must_use]
pub fn between(first: &PaceReading, last: &PaceReading) -> Option<CpuPace> {
    let pace = CpuPace {
        first_hz: first.hz,
        last_hz: last.hz,
        throttles: first.throttles.zip(last.throttles).and_then(|(first, last)| since(first, last, 1)),
        first_governors: first.governors.iter().cloned().collect(),
        last_governors: last.governors.iter().cloned().collect(),
    };
    (pace != CpuPace::default()).then_some(pace)
}

/// Returns the directories of the CPUs in /sys/devices/system/cpu.
fn cpus(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_cpu = |name: &str| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_cpu));
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a machine of one package, whose two CPUs are one core.
    fn tree(khz: [u32; 2], throttled: [u64; 2], governor: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (number, khz) in khz.iter().enumerate() {
            let cpu = root.path().join(format!("sys/devices/system/cpu/cpu{number}"));
            for (file, text) in [
                ("cpufreq/scaling_cur_freq", khz.to_string()),
                ("cpufreq/scaling_governor", governor.to_owned()),
                ("topology/core_id", "0".into()),
                ("topology/physical_package_id", "0".into()),
                ("thermal_throttle/core_throttle_count", throttled[0].to_string()),
                ("thermal_throttle/package_throttle_count", throttled[1].to_string()),
            ] {
                let path = cpu.join(file);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                fs::write(path, text + "\n").expect("written");
            }
        }
        fs::create_dir_all(root.path().join("sys/devices/system/cpu/cpufreq")).expect("made");
        root
    }

    #[test]
    fn frequencies_are_averaged_and_shared_counters_count_once() {
        let cool = tree([3_000_000, 2_000_000], [7, 100], "powersave");
        let hot = tree([1_200_000, 1_200_000], [9, 103], "performance");
        let (cool, hot) = (read(cool.path()), read(hot.path()));
        let pace = between(&cool, &hot).expect("told");
        assert_eq!((pace.first_hz, pace.last_hz), (Some(2_500_000_000), Some(1_200_000_000)));
        assert_eq!(pace.throttles, Some(5));
        assert_eq!(
            (pace.first_governors, pace.last_governors),
            (vec!["powersave".into()], vec!["performance".into()])
        );
        assert_eq!(between(&hot, &cool).expect("told").throttles, None, "a counter that ran backwards");
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_pace() {
        let root = tempfile::tempdir().expect("a directory");
        let nothing = read(root.path());
        assert_eq!(between(&nothing, &nothing), None);
    }
}
