//! Builds dm-delay on a block device.

use std::path::Path;

use iotax_model::target::DelaySpec;
use iotax_model::units::Bytes;

use super::ground::{BlockGround, Ground};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::mapper::{self, DMSETUP, SECTOR};
use crate::refusal::Refusal;

impl Build for DelaySpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        mapper::check("delay", DMSETUP, "delay", "dm_delay")?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let table = table(self, &taken.area.path, taken.area.size);
        let (_, ground) = at.map(self, mapper::DELAY, &table)?;
        // Each byte lies where it would without the delay, and stays there.
        Ok(Ground::Block(BlockGround { transient: taken.transient, ..ground.block()? }))
    }
}

/// Returns the device-mapper table that delays all `length` bytes of `device`: the device, an offset and a delay in milliseconds for reads,
/// for writes and for flushes, as the kernel documents in Documentation/admin-guide/device-mapper/delay.rst.
fn table(spec: &DelaySpec, device: &Path, length: Bytes) -> String {
    let (device, [read, write, flush]) = (device.display(), spec.milliseconds());
    format!("0 {} delay {device} 0 {read} {device} 0 {write} {device} 0 {flush}", length.0 / SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_what_the_kernel_documents() {
        let spec: DelaySpec = serde_json::from_str(r#"{"read": "2ms", "flush": "10ms"}"#).expect("known");
        let table = table(&spec, Path::new("/dev/loop3"), Bytes(1 << 20));
        assert_eq!(table, "0 2048 delay /dev/loop3 0 2 /dev/loop3 0 0 /dev/loop3 0 10");
    }
}
