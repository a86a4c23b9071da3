//! Encrypts a block device with dm-crypt.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use iotax_model::target::LuksSpec;
use rustix::rand::{GetRandomFlags, getrandom};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::cryptsetup::{CRYPTSETUP, LuksHeader};
use crate::device::{RecordedDisk, WIPEFS};
use crate::host_info::new_uuid;
use crate::mapper::{self, Mapping};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoEntry, UndoLog};

/// Options for the cheapest key derivation that cryptsetup accepts. The key is random, so more iterations would add no security;
/// cryptsetup's default takes 2 s and up to 1 GiB of memory at each opening.
const CHEAP: [&str; 4] = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];

impl Build for LuksSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        mapper::check("luks", CRYPTSETUP, "crypt", "dm_crypt")?;
        WIPEFS.find().map_err(|error| Refusal::environment(error.to_string()))?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let device = &taken.area.path;
        let name = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        let uuid = new_uuid().map_err(BuildError::file(device))?;
        if taken.is_users {
            // On any other device, the header disappears with the device.
            let disk = RecordedDisk::of(device).map(Box::new);
            at.undo_log.record(Effect::Luks(LuksHeader {
                device: device.clone(),
                disk,
                uuid: uuid.clone(),
            }))?;
            at.undo_log.run(WIPEFS, ["--all".as_ref(), device.as_os_str()])?;
        }
        let folder = at.builder.folder(&std::env::temp_dir(), at.undo_log)?;
        let (key, entry) = new_key(&folder.join(format!("{name}.key")), at.undo_log)?;
        at.undo_log.run(CRYPTSETUP, self.format_arguments(device, &key, &uuid))?;
        let mapping = Mapping::of_luks(name, &uuid);
        at.undo_log.record(Effect::Mapping(mapping.clone()))?;
        at.undo_log.run(CRYPTSETUP, self.open_arguments(device, &key, &mapping.name))?;
        at.undo_log
            .undo(entry)
            .map_err(|failure| Refusal::environment(format!("{}: {}", failure.effect, failure.reason)))?;
        let ground = Ground::made(mapping.node())?;
        at.check_holds(&ground)?;
        Ok(ground)
    }
}

/// Builds cryptsetup's arguments from the layer's settings.
trait Arguments {
    fn format_arguments(&self, device: &Path, key: &Path, uuid: &str) -> Vec<String>;
    fn open_arguments(&self, device: &Path, key: &Path, name: &str) -> Vec<String>;
}

impl Arguments for LuksSpec {
    fn format_arguments(&self, device: &Path, key: &Path, uuid: &str) -> Vec<String> {
        let mut words = with_key("luksFormat", key);
        words.extend(["--type", "luks2", "--uuid", uuid].map(str::to_owned));
        words.extend(CHEAP.map(str::to_owned));
        words.extend(self.cipher.iter().map(|cipher| format!("--cipher={cipher}")));
        words.extend(self.key_size.map(|bits| format!("--key-size={bits}")));
        words.extend(self.sector_size.map(|bytes| format!("--sector-size={bytes}")));
        words.push(device.to_string_lossy().into_owned());
        words
    }

    fn open_arguments(&self, device: &Path, key: &Path, name: &str) -> Vec<String> {
        let mut words = with_key("open", key);
        words.extend(["--type", "luks2"].map(str::to_owned));
        let flags = [
            (self.no_read_workqueue, "--perf-no_read_workqueue"),
            (self.no_write_workqueue, "--perf-no_write_workqueue"),
            (self.allow_discards, "--allow-discards"),
        ];
        words.extend(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned()));
        words.extend([device.to_string_lossy().into_owned(), name.to_owned()]);
        words
    }
}

/// Returns the arguments for a cryptsetup command with the key file. Disables cryptsetup's own locking: no other
/// process uses the device, and the lock would leave a directory in /run.
fn with_key(command: &str, key: &Path) -> Vec<String> {
    let key = key.to_string_lossy();
    [command, "--batch-mode", "--disable-locks", "--key-file", &key].map(str::to_owned).to_vec()
}

/// Creates a random key in a new file that only this user can read. The file is removed once the container is open.
fn new_key(path: &Path, undo_log: &mut UndoLog) -> Result<(PathBuf, UndoEntry), BuildError> {
    let mut bytes = [0_u8; 64];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| BuildError::file(path)(errno.into()))?;
    let (entry, mut file): (UndoEntry, File) = undo_log.make_file(path)?;
    file.write_all(&bytes).map_err(BuildError::file(path))?;
    Ok((path.to_owned(), entry))
}
