//! Tests every rule on a recorded host: no rule fires on the unchanged host, and a few changed lines make exactly one fire.

mod documented;
mod faults;
mod guests;
mod qcow2;

use std::path::Path;

use iotax_doctor::{Finding, examine};
use iotax_model::survey::Survey;
use iotax_testbed::survey;
use iotax_testkit::tree;

/// The host without a fault.
const HOST: &str = include_str!("host.tree");

/// Surveys a tree: the whole machine, or below `path`.
fn survey_of(root: &Path, path: Option<&str>) -> Survey {
    match path {
        Some(path) => survey::path(root, Path::new(path)).expect("a path of the tree"),
        None => survey::machine(root),
    }
}

/// Findings in short: `id place: seen (source)`.
fn short(findings: &[Finding]) -> Vec<String> {
    let one = |finding: &Finding| {
        let violation = &finding.violation;
        format!("{} {}: {} ({})", finding.rule.id, violation.component, violation.observed, violation.source)
    };
    findings.iter().map(one).collect()
}

#[test]
fn a_host_that_is_well_set_up_has_nothing_to_hear() {
    let root = tree::build(HOST);
    for path in [
        None,
        Some("/srv/web1.qcow2"),
        Some("/pool/a.qcow2"),
        Some("/net/a.img"),
        Some("/secret"),
        Some("/archive"),
        Some("/remote"),
    ] {
        let survey = survey_of(root.path(), path);
        assert_eq!(short(&examine(&survey)), Vec::<String>::new(), "{path:?}");
        assert_eq!(survey.unread, Vec::<String>::new(), "{path:?}");
    }
}

#[test]
fn the_host_is_read() {
    let root = tree::build(HOST);
    let survey = survey_of(root.path(), None);
    let names: Vec<&str> = survey.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bcache0",
            "dm-0",
            "dm-1",
            "dm-3",
            "dm-4",
            "loop0",
            "md5",
            "nvme0n1",
            "nvme0n1p1",
            "nvme0n1p2",
            "sda",
            "sda1",
            "sdb",
            "sdc",
            "sdd",
            "sde",
            "sdf",
            "vda",
            "vda1"
        ]
    );
    let points: Vec<&str> = survey.filesystems.iter().map(|filesystem| filesystem.point.as_str()).collect();
    assert_eq!(points, ["/", "/srv", "/archive", "/pool", "/secret"], "a server is not asked without need");
    let guest = &survey.guests[0];
    let disk = &guest.disks[0];
    let value =
        |fact: &Option<iotax_model::survey::Fact<String>>| fact.as_ref().map(|fact| fact.value.clone());
    assert_eq!((guest.name.as_str(), guest.pid), ("web1", Some(4242)));
    assert_eq!(
        [&disk.path, &disk.format, &disk.bus, &disk.cache, &disk.aio, &disk.discard].map(value),
        ["/srv/web1.qcow2", "qcow2", "virtio-blk", "none", "native", "unmap"]
            .map(|word| Some(word.to_owned()))
    );
    assert_eq!(disk.iothreads.as_ref().map(|fact| fact.value), Some(1));
    assert_eq!(survey.bottoms("md5").len(), 3);
    assert_eq!(survey.images[0].disk_bytes(), Some(10 << 30));
    let below = survey_of(root.path(), Some("/srv/web1.qcow2"));
    let names: Vec<&str> = below.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["nvme0n1", "nvme0n1p2", "dm-0"]);
    assert_eq!(below.guests[0].name, "web1");
    assert!(below.interfaces.is_empty());
}
