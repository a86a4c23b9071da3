use std::path::Path;
use std::time::Instant;

use iotax_doctor::{Sureness, examine};
use iotax_testbed::survey;

use crate::found;

#[test]
fn this_machine_has_neither_fault_nor_cost() {
    // Findings caused by other tests and users of this machine.
    const OTHERS: [&str; 4] = ["memory-stalls", "cpu-stolen", "filesystem-nearly-full", "cgroup-limit"];
    let found = found(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let texts: Vec<String> = found
        .iter()
        .filter(|finding| finding.rule.sureness < Sureness::Depends && !OTHERS.contains(&finding.rule.id))
        .map(|finding| format!("{}: {:?}", finding.rule.id, finding.violation))
        .collect();
    assert!(texts.is_empty(), "{texts:?}");
}

#[test]
fn the_machine_is_surveyed_with_its_disks() {
    let began = Instant::now();
    let survey = survey::machine(Path::new("/"));
    println!(
        "{:?}: {} disks, {} filesystems, unread {:?}",
        began.elapsed(),
        survey.disks.len(),
        survey.filesystems.len(),
        survey.unread
    );
    assert!(survey.machine.environment.kernel.is_some());
    assert!(survey.machine.swappiness.is_some_and(|fact| fact.source == "/proc/sys/vm/swappiness"));
    assert!(survey.disks.iter().all(|disk| !disk.name.starts_with("zram")));
    // Every finding has evidence and a remedy.
    let survey = survey::machine(Path::new("/"));
    assert!(examine(&survey).iter().all(|finding| !finding.violation.source.is_empty()));
}
