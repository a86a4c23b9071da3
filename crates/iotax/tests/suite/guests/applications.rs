//! Applications in a guest, on a device whose flushes take a known time.

use iotax_model::units::Bytes;

use crate::lab_guest::{Extras, LabGuest};
use crate::pgbench::{layers_of_transaction, transaction};

/// Time of a flush of the slow device: many ticks of the guest's timer, which dm-delay rounds up to.
const FLUSH_MS: f64 = 100.0;

#[test]
fn a_planted_delay_of_flushes_is_in_the_time_of_a_transaction() {
    let Some(mut lab) = LabGuest::boot_with(&Extras {
        programs: &["dmsetup", "mkfs.ext4", "mount", "umount", "losetup"],
        modules: &["dm_delay", "ext4", "loop"],
        disks: &[Bytes(2 << 30), Bytes(256 << 20)],
        ..Extras::default()
    }) else {
        return;
    };
    lab.sh(
        "mkdir -p /tmp /plain /slow && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    let table =
        format!("0 $(blockdev --getsz /dev/vdb) delay /dev/vdb 0 0 /dev/vdb 0 0 /dev/vdb 0 {FLUSH_MS}");
    lab.sh(&format!("dmsetup create slow --noudevsync --table \"{table}\""));
    // Without a journal a commit flushes the device with requests of their own, which the disk counts and dm-delay delays.
    for (device, directory) in [("/dev/vda", "/plain"), ("/dev/mapper/slow", "/slow")] {
        lab.sh(&format!("mkfs.ext4 -q -O ^has_journal {device} && mount {device} {directory}"));
    }
    let said =
        lab.sh("iotax suite applications /plain /slow --tests sqlite-wal --size 1m --repeat 3 --yes --quiet");
    let ((plain_ms, _), (slow_ms, flushes)) = (transaction(&said, "plain"), transaction(&said, "slow"));
    let predicted_ms = plain_ms + flushes * FLUSH_MS;
    assert!((0.99..1.5).contains(&flushes), "{flushes} flushes a transaction: {said}");
    assert!(
        (slow_ms / predicted_ms - 1.0).abs() < 0.1,
        "{slow_ms} ms, and {predicted_ms} ms predicted: {said}"
    );

    // The delay is between two loop devices, which count the flushes above and below it.
    let stack = "/plain > raw file > loop direct_io=true > delay flush=100ms > ext4 > raw file > loop direct_io=true > ext4 > raw file";
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
