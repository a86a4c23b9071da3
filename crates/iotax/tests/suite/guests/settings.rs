//! Tests of guests described by a plan: images, snapshots, buses and filesystems in one run, and plans that are rejected.

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

const GUESTS: &str = r#"
[[target]]
name = "deep"
file = { dir = "WORK", format = "qcow2", snapshot = "external", backing_depth = 3, encrypt = "luks", cluster_size = "16k", l2_cache_size = "64k" }
guest = { bus = "virtio-scsi", memory = "384m", cache = "writeback", aio = "threads" }
[[target]]
name = "within"
file = { dir = "WORK", format = "qcow2", snapshot = "internal", internal_snapshots = 2, cluster_size = "128k", extended_l2 = true, lazy_refcounts = true }
guest = { filesystem = "ext4", memory = "384m", cache = "writeback", aio = "threads" }
[[target]]
name = "nvme"
file = { dir = "WORK", preallocation = "falloc" }
guest = { bus = "nvme", memory = "384m", cache = "writeback", aio = "threads", discard = "ignore" }
[[workload]]
rw = "randwrite"
verify = "crc32c"
"#;

/// Returns a target's layers above those of the host, as `name: detail`.
fn layers(json: &Value, target: &str) -> Vec<String> {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|found| found["name"] == target).expect("recorded");
    let layers = target["layers"].as_array().expect("layers").iter();
    let above = layers.skip_while(|layer| layer["kind"] != "image");
    above
        .map(|layer| {
            format!("{}: {}", layer["name"].as_str().unwrap_or(""), layer["detail"].as_str().unwrap_or(""))
        })
        .collect()
}

/// Returns layer, kind and limit of each timeout in a target's guest.
fn guest_timeouts<'a>(json: &'a Value, target: &str) -> Vec<(&'a str, &'a str, Option<u64>)> {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|found| found["name"] == target).expect("recorded");
    let all = target["guest_timeouts"].as_array().expect("timeouts of the guest").iter();
    let word = |value: &'a Value| value.as_str().expect("text");
    all.map(|one| (word(&one["layer"]), word(&one["kind"]), one["limit_ns"].as_u64())).collect()
}

#[test]
fn images_snapshots_buses_and_filesystems_are_measured_as_they_were_described() {
    require!(guests);
    require!(program "mkfs.ext4");
    let lab = Lab::new();
    let plan = lab.short_plan("name = \"presentations\"\nrepeat = 2\nseed = 5", "16m", GUESTS);
    let json = lab.json(&[
        "run",
        plan.to_str().expect("utf-8"),
        "--accel",
        "tcg",
        "--yes",
        "--db",
        lab.path("runs.db").to_str().expect("utf-8"),
        "--json",
        "-",
    ]);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 8);
    for measurement in measurements {
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    let deep = layers(&json, "deep");
    assert_eq!(
        deep[..3],
        [
            "qcow2: preallocation=off cluster_size=16k encrypt=luks l2_cache_size=64k not compressed",
            "external snapshot: new before each measurement, 3 overlays deep",
            "virtio-scsi: cache=writeback aio=threads iothread",
        ]
    );
    let within = layers(&json, "within");
    assert_eq!(
        within[..3],
        [
            "qcow2: preallocation=off cluster_size=128k extended_l2 lazy_refcounts not compressed",
            "internal snapshot: new before each measurement, 2 in the image",
            "virtio-blk: cache=writeback aio=threads iothread",
        ]
    );
    assert!(within[3].starts_with("guest: q35, 1 vCPU, "), "{within:?}");
    assert!(within[4].starts_with("ext4: ") && within.len() == 5, "{within:?}");
    let nvme = layers(&json, "nvme");
    assert_eq!(
        nvme[..2],
        ["raw: preallocation=falloc", "nvme: cache=writeback aio=threads discard=ignore"],
        "{nvme:?}"
    );
    // Drivers of a hypervisor's disks wait for it; NVMe does not.
    assert_eq!(guest_timeouts(&json, "deep"), [("sda", "SCSI command timeout", None)]);
    let within = guest_timeouts(&json, "within");
    assert_eq!(within[0], ("vda", "virtio-blk request timeout", None));
    assert!(within[1].1.starts_with("errors=") && within.len() == 2, "{within:?}");
    assert_eq!(guest_timeouts(&json, "nvme"), [("nvme0n1", "NVMe command timeout", Some(30_000_000_000))]);
    assert_valid(&json);
    lab.assert_nothing_left();
}

#[test]
fn guests_that_cannot_be_are_refused_before_anything_is_made() {
    require!(guests);
    let lab = Lab::new();
    for (keys, code, words) in [
        ("bus = 'ide', machine = 'q35'", 2, "needs machine = \"pc\""),
        ("cache = 'unsafe', aio = 'native'", 2, "not \"unsafe\""),
        ("memory = '900TiB'", 4, "(1 in all) run side by side and take 900 TiB"),
        ("kernel = '/no/kernel'", 4, "target \"vm\": --kernel /no/kernel"),
    ] {
        let plan = lab.plan(&format!(
            "[[target]]\nname = 'vm'\nfile = {{ dir = 'WORK' }}\nguest = {{ {keys} }}\n\
             [[workload]]\nrw = 'read'\nsize = '1m'\nruntime = '100ms'"
        ));
        let output = lab.run(&["run", plan.to_str().expect("utf-8"), "--yes"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{keys}: {said}");
        assert!(said.contains(words), "{keys}: {said}");
        lab.assert_nothing_left();
    }
}

#[test]
fn a_guest_whose_qemu_crashes_while_it_boots_is_started_again() {
    require!(guests);
    let lab = Lab::new();
    let plan = lab.plan(
        "name = \"crash\"\nrepeat = 1\n[defaults]\nsize = \"16m\"\nruntime = \"200ms\"\nramp_time = \"0s\"\n\
         [[target]]\nname = \"crasher\"\nfile = { dir = \"WORK\" }\nguest = { memory = \"384m\" }\n\
         [[workload]]\nrw = \"randread\"\n",
    );
    // Aborts the first time that it boots this guest, as QEMU does when an assertion fails.
    let once = lab.path("crashed");
    let script = format!(
        "#!/bin/sh\nreal=/usr/bin/qemu-system-x86_64\ncase \"$*\" in *-crasher*) if mkdir {} 2>/dev/null; then\n\
         \"$real\" \"$@\" & sleep 1.5; kill -9 $!; kill -ABRT $$; fi;; esac\nexec \"$real\" \"$@\"\n",
        once.display()
    );
    let output = lab
        .iotax_with("qemu-system-x86_64", &script)
        .arg("run")
        .arg(plan)
        .args(["--accel", "tcg", "--yes", "--json", "-"])
        .output()
        .expect("iotax starts");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(once.is_dir() && stderr.contains("crasher: QEMU crashed while the guest booted"), "{stderr}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(json["measurements"][0]["read"]["ios"].as_u64() > Some(0), "{json}");
    lab.assert_nothing_left();
}
