//! Common parts of the tests of `iotax watch`: loads in a lab guest, and helpers to read reports.

use serde_json::Value;

use crate::lab::assert_valid;
use crate::lab_guest::{Extras, LabGuest};

pub(crate) const MS: u64 = 1_000_000;
/// Options of the constant load.
pub(crate) const LOAD: &str = "--size 4m --rate-iops 200 --iodepth 1024 --ramp-time 0 --yes";
/// Longest stall expected on a host shared with other tests, in ms.
pub(crate) const STALL: u64 = 400;

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// Returns begin and length of each gap of writes.
pub(crate) fn gaps_of_writes(episode: &Value) -> Vec<(u64, u64)> {
    let gaps = episode["gaps"].as_array().expect("gaps");
    let writes = gaps.iter().filter(|gap| gap["of"] == "writes");
    writes.map(|gap| (number(&gap["at_ns"]), number(&gap["duration_ns"]))).collect()
}

pub(crate) fn timeouts(episode: &Value) -> &[Value] {
    episode["timeouts"].as_array().expect("timeouts")
}

/// Returns limit (in seconds) and verdict of a timeout of the target.
pub(crate) fn timeout<'a>(episode: &'a Value, layer: &str, kind: &str) -> (Option<u64>, &'a str) {
    let is_it = |one: &&Value| one["owner"] == "target" && one["layer"] == layer && one["timeout"] == kind;
    let found = timeouts(episode).iter().find(is_it).unwrap_or_else(|| panic!("{layer}: {episode}"));
    (found["limit_ns"].as_u64().map(|ns| ns / 1000 / MS), found["verdict"].as_str().expect("a verdict"))
}

/// Returns source and text of the observations.
pub(crate) fn observations(episode: &Value) -> Vec<(&str, &str)> {
    let lines = episode["observations"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.iter().filter_map(|line| Some((line["source"].as_str()?, line["text"].as_str()?))).collect()
}

/// Returns the times of a source's lines that contain these words.
pub(crate) fn observed_at(episode: &Value, source: &str, words: &str) -> Vec<u64> {
    let lines = episode["observations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |line: &&Value| line["text"].as_str().is_some_and(|text| text.contains(words));
    lines
        .iter()
        .filter(|line| line["source"] == source)
        .filter(has)
        .map(|line| number(&line["at_ns"]))
        .collect()
}

/// Runs a watch in the guest.
pub(crate) fn watch(guest: &mut LabGuest, device: &str, event: &str, more: &str) -> Value {
    let command = format!(
        "iotax watch {device} --overwrite {device} {LOAD} --runtime 6 --json - --event '{event}' {more}"
    );
    let (_, printed) = guest.try_sh(&format!("{command} 2> /tmp/said; true"));
    let json: Value = serde_json::from_str(&printed).unwrap_or_else(|error| {
        let said = guest.sh("cat /tmp/said");
        panic!("{error}: {printed} {said}")
    });
    assert_valid(&json);
    json["watch"][0].clone()
}

/// Returns begin and length of an episode's longest gap of writes and of its only event.
pub(crate) fn gap_and_event(episode: &Value) -> ((u64, u64), (u64, u64)) {
    let event = &episode["events"][0];
    let longest = gaps_of_writes(episode).into_iter().max_by_key(|gap| gap.1).unwrap_or_default();
    (longest, (number(&event["at_ns"]), number(&event["duration_ns"])))
}

/// Boots a guest with exact time and a home for iotax. Its disks should be in its memory ([`memory_disks`]), because its time jumps while
/// it waits for the host's disks.
pub(crate) fn boot(extras: &Extras<'_>) -> Option<LabGuest> {
    let mut guest = LabGuest::boot_with(&Extras { exact_time: true, ..*extras })?;
    guest.sh("mkdir -p /tmp && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
    Some(guest)
}

/// Creates `/dev/ram0`, `/dev/ram1` ... with this size in MiB.
pub(crate) fn memory_disks(guest: &mut LabGuest, number: usize, mib: u64) {
    guest.sh(&format!("insmod /lab/brd.ko rd_nr={number} rd_size={}", mib << 10));
}

/// Connects the guest to its own `/dev/ram0` as `/dev/nvme0n1`, over TCP at this address. `within` is a prefix of the listening command
/// that enters a network namespace.
pub(crate) fn nvme_tcp(guest: &mut LabGuest, address: &str, within: &str) {
    let at = "/sys/kernel/config/nvmet";
    for line in [
        format!("mkdir {at}/subsystems/lab {at}/subsystems/lab/namespaces/1 {at}/ports/1"),
        format!("echo 1 > {at}/subsystems/lab/attr_allow_any_host"),
        format!("echo /dev/ram0 > {at}/subsystems/lab/namespaces/1/device_path"),
        format!("echo 1 > {at}/subsystems/lab/namespaces/1/enable"),
        format!("echo ipv4 > {at}/ports/1/addr_adrfam; echo tcp > {at}/ports/1/addr_trtype"),
        format!("echo {address} > {at}/ports/1/addr_traddr; echo 4420 > {at}/ports/1/addr_trsvcid"),
        format!("{within} ln -s {at}/subsystems/lab {at}/ports/1/subsystems/lab"),
        format!("echo transport=tcp,traddr={address},trsvcid=4420,nqn=lab > /dev/nvme-fabrics"),
        "for wait in $(seq 50); do [ -b /dev/nvme0n1 ] && break; usleep 100000; done; [ -b /dev/nvme0n1 ]"
            .into(),
    ] {
        guest.sh(&line);
    }
}
