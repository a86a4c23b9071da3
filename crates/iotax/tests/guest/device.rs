//! Tests of guests whose disk is part of a block device.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use iotax_model::target::{Aio, Format, GuestSpec};
use iotax_model::workload::Content;
use iotax_testbed::guest::{Guest, GuestConfig, GuestDevice, GuestStorage, image};
use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::{require, skip};

use crate::rig::{BOOT, Rig, SIZE, area, storage};

/// A loop device on a file of the given size without zeros; detached on drop.
struct Loop {
    node: PathBuf,
    file: PathBuf,
}

impl Loop {
    /// Returns `None` and prints the reason if this machine has no loop devices.
    fn over(file: PathBuf, bytes: u64) -> Option<Self> {
        require!(program "losetup", "blockdev");
        fs::write(&file, vec![0xA5; usize::try_from(bytes).expect("small")]).expect("written");
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match attached {
            Ok(output) if output.status.success() => {
                let node = String::from_utf8(output.stdout).expect("UTF-8").trim().into();
                Some(Self { node, file })
            }
            failed => skip!("no loop device: {failed:?}"),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.node).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} is left over", self.node.display());
        }
    }
}

#[test]
fn guests_have_a_part_of_a_block_device_and_touch_no_more() {
    let Some(rig) = Rig::build() else { return };
    let Some(device) = Loop::over(rig.dir.path().join("device"), 3 * SIZE.0) else { return };
    // Two at once, as two rungs of a ladder are; QEMU must not refuse the second.
    let boot = |name: &str, spec: GuestSpec| {
        let part = Some(image::DevicePart { offset: SIZE, size: SIZE, writable: true });
        let disk = GuestStorage { part, ..storage(device.node.clone(), Format::Raw) };
        let config = GuestConfig { device: GuestDevice::Disk(disk), spec, ..rig.config(name) };
        let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
        guest.wait_ready(BOOT).expect("ready");
        guest
    };
    let mut first = boot("first", GuestSpec::default());
    let second = boot("second", GuestSpec { aio: Aio::Threads, ..GuestSpec::default() });
    first.agent().fill(&area(None), &Content::default(), 1, BOOT, &mut |_| {}).expect("filled");
    first.shutdown();
    second.shutdown();
    let synced = Command::new("blockdev").arg("--flushbufs").arg(&device.node).status();
    assert!(synced.expect("blockdev runs").success());
    let bytes = fs::read(&device.file).expect("readable");
    let size = usize::try_from(SIZE.0).expect("small");
    let untouched = |part: &[u8]| part.iter().all(|byte| *byte == 0xA5);
    assert!(untouched(&bytes[..size]) && untouched(&bytes[2 * size..]), "beside its part");
    let part = &bytes[size..2 * size];
    assert!(part.chunks(4096).all(|block| !untouched(block)), "all of its part");
}
