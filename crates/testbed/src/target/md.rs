//! Creates md arrays over files, each of which is attached to a loop device.

use std::path::{Path, PathBuf};

use iotax_model::target::{LoopSpec, MdSpec, Preallocation, RaidLevel};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_directory, check_exchange};
use super::sizes::size_on;
use super::{loop_device, raw};
use crate::build_error::BuildError;
use crate::host_info::{boot_id, new_uuid};
use crate::losetup::Attached;
use crate::mdadm::{self, CreatedArray, MDADM};
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for MdSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        loop_device::check("md")?;
        MDADM.find().map_err(|error| Refusal::environment(error.to_string()))?;
        let level = self.level.word();
        if !mdadm::has_level(Path::new("/"), level) {
            let module = if self.level == RaidLevel::Raid5 { "raid456" } else { level };
            return Err(Refusal::environment(format!(
                "this kernel has no {level} of md's (its module is {module}); leave out targets with md"
            )));
        }
        check_created(at.plan, &at.plan.work_on(at.target))?;
        let Some(dir) = &self.dir else { return Ok(()) };
        check_directory(dir)?;
        check_exchange(dir)?;
        let guests = at.target.guest().map_or(1, |guest| u64::from(guest.count));
        let member = self.member(size_on(at.above, at.plan.space())).0;
        *needs.space.entry(dir.clone()).or_default() += guests * u64::from(self.raid_devices) * member;
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(self.dir.as_deref(), below)?;
        let (stem, size) = (directory.join(at.name::<Self>()), self.member(at.size()));
        let (mut members, mut nodes) = (Vec::new(), Vec::new());
        for number in 0..self.raid_devices {
            let path = stem.with_added_extension(format!("{number}.raw"));
            let file = raw::build(&path, size, Preallocation::Off, at.undo_log)?;
            members.push(Attached { file: path, device: file.device, inode: file.inode, boot_id: boot_id() });
            let mut attached = loop_device::build(file, &LoopSpec::default(), at.undo_log)?;
            at.warnings.append(&mut attached.warnings);
            nodes.push(attached.path);
        }
        let Some(node) = mdadm::free_node() else {
            return Err(Refusal::environment(
                "md: all arrays from /dev/md0 to /dev/md127 are taken; stop one",
            )
            .into());
        };
        let uuid = new_uuid().map_err(BuildError::file(&node))?;
        at.undo_log.record(Effect::Array(CreatedArray { uuid: uuid.clone(), members }))?;
        let arguments = create_arguments(self, &node, &uuid, &at.builder.tag, &nodes);
        at.undo_log.run(MDADM, arguments)?;
        let ground = Ground::made(node)?;
        at.check_holds(&ground)?;
        Ok(ground)
    }
}

/// Returns the arguments for mdadm(8) that create the array without a resync. The members are new files of zeros, so mirrors are equal and
/// parity is right, and no resync disturbs the measurements.
fn create_arguments(spec: &MdSpec, node: &Path, uuid: &str, tag: &str, members: &[PathBuf]) -> Vec<String> {
    let mut words = vec!["--create".to_owned(), node.to_string_lossy().into_owned()];
    // Without the machine's configuration, which may name arrays otherwise.
    words.extend(["--run", "--config=none", "--homehost=iotax", "--metadata=1.2"].map(str::to_owned));
    words.extend([
        format!("--uuid={uuid}"),
        format!("--name={tag}"),
        format!("--level={}", spec.level),
        format!("--raid-devices={}", spec.raid_devices),
        format!("--data-offset={}K", MdSpec::DATA_OFFSET.0 >> 10),
    ]);
    words.extend(spec.chunk.map(|chunk| format!("--chunk={}K", chunk.0 >> 10)));
    if spec.level != RaidLevel::Raid0 {
        words.extend(["--assume-clean".to_owned(), format!("--bitmap={}", spec.bitmap)]);
    }
    words.extend(members.iter().map(|member| member.to_string_lossy().into_owned()));
    words
}
