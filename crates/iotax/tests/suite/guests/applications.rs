//! Tests of applications in a guest, on a device with flushes of known duration.

use iotax_model::units::Bytes;

use crate::lab_guest::{Extras, LabGuest};
use crate::pgbench::{layers_of_transaction, transaction};

/// Duration of a flush of the slow device: many ticks of the guest's timer, because dm-delay rounds up to ticks.
const FLUSH_MS: f64 = 100.0;

/// Boots a guest with two empty disks, and ext4 without a journal in /plain on the first. There a commit sends separate flush requests,
/// which the disk counts and dm-delay delays.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["dmsetup", "mkfs.ext4", "mount", "umount", "losetup", "wipefs"],
        modules: &["dm_delay", "ext4", "loop"],
        disks: &[Bytes(2 << 30), Bytes(256 << 20)],
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /plain /slow && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q -O ^has_journal /dev/vda && mount /dev/vda /plain");
    Some(lab)
}

#[test]
fn a_planted_delay_of_flushes_is_in_the_time_of_a_transaction() {
    let Some(mut lab) = boot() else { return };
    let table =
        format!("0 $(blockdev --getsz /dev/vdb) delay /dev/vdb 0 0 /dev/vdb 0 0 /dev/vdb 0 {FLUSH_MS}");
    lab.sh(&format!("dmsetup create slow --noudevsync --table \"{table}\""));
    lab.sh("mkfs.ext4 -q -O ^has_journal /dev/mapper/slow && mount /dev/mapper/slow /slow");
    let said =
        lab.sh("iotax suite applications /plain /slow --tests sqlite-wal --size 1m --repeat 3 --yes --quiet");
    let ((plain_ms, _), (slow_ms, flushes)) = (transaction(&said, "plain"), transaction(&said, "slow"));
    let predicted_ms = plain_ms + flushes * FLUSH_MS;
    assert!((0.99..1.5).contains(&flushes), "{flushes} flushes a transaction: {said}");
    assert!(
        (slow_ms / predicted_ms - 1.0).abs() < 0.1,
        "{slow_ms} ms, and {predicted_ms} ms predicted: {said}"
    );
}

#[test]
fn a_delay_between_two_layers_is_what_the_upper_one_adds() {
    let Some(mut lab) = boot() else { return };
    // The delay is between two loop devices, which count the flushes above and below it.
    lab.sh("truncate -s 400M /plain/disk && losetup --direct-io=on /dev/loop0 /plain/disk");
    let table = format!(
        "0 $(blockdev --getsz /dev/loop0) delay /dev/loop0 0 0 /dev/loop0 0 0 /dev/loop0 0 {FLUSH_MS}"
    );
    lab.sh(&format!("dmsetup create slow --noudevsync --table \"{table}\""));
    lab.sh("mkfs.ext4 -q -O ^has_journal /dev/mapper/slow && mount /dev/mapper/slow /slow");
    let stack = "/slow > raw file > loop direct_io=true > ext4 > raw file";
    let said = lab.sh(&format!(
        "iotax suite applications '{stack}' --tests sqlite-wal --size 1m --repeat 1 --yes --quiet"
    ));
    let layers = layers_of_transaction(&said);
    let [(_, Some(adds_ms)), (flushes, _), ..] = layers.as_slice() else { panic!("{layers:?}: {said}") };
    let predicted_ms = flushes * FLUSH_MS;
    assert!(
        (adds_ms / predicted_ms - 1.0).abs() < 0.1,
        "{adds_ms} ms added, and {predicted_ms} ms predicted: {said}"
    );
}
