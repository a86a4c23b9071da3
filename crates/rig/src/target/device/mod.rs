//! Block devices that may be overwritten: only what was named twice, and only if nobody else uses it.

mod disk;
pub(crate) mod signature;
pub mod usage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::Plan;
use iotax_model::target::TargetSpec;
use iotax_model::units::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{BuildError, Refusal, existing};
use crate::facts::text;
use crate::users;
pub use disk::DiskId;
pub(crate) use signature::WIPEFS;

/// How long a tool that only looks at devices, one after the other, may have one open.
const PASSING: Duration = Duration::from_millis(500);

/// What the user allows on the command line.
#[derive(Debug, Clone, Default)]
pub struct Permission {
    overwrite: Vec<Allowed>,
    /// Devices may be overwritten even if they carry a signature.
    pub signature: bool,
}

/// A device that may be overwritten: the one that stood there when it was allowed, and no other that takes its name.
#[derive(Debug, Clone)]
struct Allowed {
    path: PathBuf,
    /// Absent: there was none.
    number: Option<u64>,
    /// Absent where the kernel does not count them.
    sequence: Option<String>,
}

impl Permission {
    /// Allows what stands at these paths now to be overwritten, with `signature` even if it carries one.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, signature: bool) -> Self {
        let allowed = |path: PathBuf| {
            let number = number(&path).ok();
            Allowed { number, sequence: number.and_then(sequence), path }
        };
        Self { overwrite: paths.into_iter().map(allowed).collect(), signature }
    }

    /// Whether this device may be overwritten, under whatever name it was allowed.
    #[must_use]
    pub fn allows(&self, path: &Path) -> bool {
        number(path).is_ok_and(|device| self.allowed(device).is_some())
    }

    fn allowed(&self, device: u64) -> Option<&Allowed> {
        self.overwrite.iter().find(|allowed| allowed.number == Some(device))
    }
}

/// A number that the kernel gives to no second disk until it is started again, also if one takes the place of another.
fn sequence(number: u64) -> Option<String> {
    let place = Path::new("/sys/dev/block").join(number_text(number));
    // A partition has its disk's.
    text(&place.join("diskseq")).or_else(|| text(&fs::canonicalize(place).ok()?.parent()?.join("diskseq")))
}

/// A block device, or a part of one, that a target stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The device's node.
    pub path: PathBuf,
    /// Where the target's area begins on it.
    pub offset: Bytes,
    /// The area's length.
    pub size: Bytes,
}

/// A device that was found free and is held against everybody who asks for it alone (a mount, a volume manager, another
/// iotax) until this is dropped.
#[derive(Debug)]
pub struct Claim {
    /// All of it.
    pub block: Block,
    _held: File,
}

/// Refuses a device that may not be used as the plan uses it.
pub fn check(spec: &TargetSpec, plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    let Some(path) = &spec.device else { return Ok(()) };
    number(path)?;
    let makes = spec.lvm.is_some() || spec.filesystem.is_some() || spec.filesystem_in_guest().is_some();
    let writes = plan.work_on(spec).iter().any(|workload| workload.modifies());
    if !permission.allows(path) && !makes && !writes {
        return Ok(());
    }
    claim(path, permission).map(drop)
}

/// A device that was given as a path is only read: says instead how it is overwritten, where that is what was refused.
pub(super) fn or_named_twice(path: &Path, plan: &Plan, refusal: Refusal) -> Refusal {
    let writes = plan.workloads.iter().find(|workload| workload.modifies());
    match writes.filter(|_| number(path).is_ok()) {
        Some(workload) => Refusal::input(format!(
            "{0}: a block device is only read as it is, and {1:?} changes it ({2}); to have it overwritten, name it \
             twice: iotax bench {0} --overwrite {0}, in a plan device = \"{0}\" and iotax run --overwrite {0}",
            path.display(),
            workload.name,
            workload.doing()
        )),
        None => refusal,
    }
}

/// Refuses a permission that no target uses: it may have been meant for another device.
pub fn check_permission(plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    for Allowed { path: allowed, .. } in &permission.overwrite {
        let device = number(allowed)?;
        let named = |path: &PathBuf| number(path).is_ok_and(|number| number == device);
        if !plan.everything().any(|target| target.device.as_ref().is_some_and(named)) {
            return Err(Refusal::input(format!(
                "--overwrite {}: no target is on that device; name it as device = \"{}\" too, or leave the flag out",
                allowed.display(),
                allowed.display()
            )));
        }
    }
    Ok(())
}

/// Refuses two targets of which one destroys what the other is made of: a filesystem on the whole of a device leaves no
/// room for another target there.
pub fn check_sharing(plan: &Plan) -> Result<(), Refusal> {
    let mut seen: BTreeMap<u64, (&str, bool)> = BTreeMap::new();
    for target in plan.everything() {
        let Some(device) = target.device.as_ref().map(|path| number(path)).transpose()? else { continue };
        let in_guest = target.filesystem_in_guest().is_some();
        let alone = (target.filesystem.is_some() || in_guest) && target.lvm.is_none();
        match seen.insert(device, (&target.name, alone)) {
            Some((other, other_alone)) if alone || other_alone => {
                return Err(Refusal::input(format!(
                    "targets {other:?} and {:?} are on the same device, and a filesystem takes all of it; use lvm = {{}} \
                     beneath, another device, or a plan for each",
                    target.name
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes a device for this run alone, or says what stands in the way. Nothing is written.
pub fn claim(path: &Path, permission: &Permission) -> Result<Claim, Refusal> {
    let device = number(path)?;
    let shown = path.display();
    let Some(allowed) = permission.allowed(device) else {
        return Err(Refusal::input(format!(
            "{shown}: it would be overwritten; name it once more with --overwrite {shown}"
        )));
    };
    let refuse = |reason: String| Refusal::environment(format!("{shown}: {reason}"));
    if sequence(device) != allowed.sequence {
        return Err(refuse("another device has taken its place since it was named; name it again".into()));
    }
    let root = Path::new("/");
    let number = number_text(device);
    usage::check(root, &number).map_err(refuse)?;
    let devices = usage::numbers(root, &number);
    let deadline = Instant::now() + PASSING;
    while let Some(writer) = users::writers(&devices).first() {
        if Instant::now() > deadline {
            return Err(refuse(format!("{writer} has it open for writing; end that first")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut held = File::options()
        .read(true)
        .custom_flags(i32::try_from(OFlags::EXCL.bits()).unwrap_or_default())
        .open(path)
        .map_err(|error| refuse(reason_of(&error)))?;
    let opened = held.metadata().map_err(|error| refuse(error.to_string()))?;
    if opened.rdev() != device {
        return Err(refuse("another device has come to stand here just now; name it again".into()));
    }
    let size = held.seek(SeekFrom::End(0)).map_err(|error| refuse(error.to_string()))?;
    if size == 0 {
        return Err(refuse("it holds nothing; is there a medium in it?".into()));
    }
    if !permission.signature {
        check_signature(path)?;
    }
    // The kernel's own name: what is shown and given to tools does not depend on a link that may change.
    let path = fs::canonicalize(path).map_err(|error| refuse(error.to_string()))?;
    Ok(Claim { block: Block { path, offset: Bytes(0), size: Bytes(size) }, _held: held })
}

/// Refuses a device that carries one.
pub(super) fn check_signature(path: &Path) -> Result<(), Refusal> {
    let found = signature::read(path).map_err(|error| Refusal::environment(error.to_string()))?;
    if found.is_empty() {
        return Ok(());
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(Refusal::environment(format!(
        "{}: it carries {}; if nobody needs that any more, add --overwrite-signature, or wipe it (wipefs --all {})",
        path.display(),
        found.join(", "),
        path.display()
    )))
}

fn reason_of(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => {
            "something else has claimed it (O_EXCL): a volume manager, a filesystem of another mount \
                              namespace, another iotax; end that first (lsblk and fuser may show it)"
                .into()
        }
        Some(Errno::NXIO | Errno::NODEV) => {
            "there is no device behind this node any more; was it unplugged? Name one that lsblk lists".into()
        }
        Some(Errno::NOMEDIUM) => "there is no medium in it".into(),
        Some(Errno::ACCESS | Errno::PERM) => format!("cannot be opened ({error}); run iotax as root"),
        _ => format!("cannot be opened ({error})"),
    }
}

/// The number of a block device, as `rdev` has it.
fn number(path: &Path) -> Result<u64, Refusal> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal::input(format!("{}: no such device; name one that lsblk lists", path.display()))
        }
        _ => Refusal::environment(format!("{}: {error}", path.display())),
    })?;
    if !found.file_type().is_block_device() {
        return Err(Refusal::input(format!(
            "{}: not a block device; a file or directory is given as path = \"...\" or file = {{ dir = \"...\" }}",
            path.display()
        )));
    }
    Ok(found.rdev())
}

/// As /sys and the mount table write it: `8:1`.
pub(crate) fn number_text(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// A whole device as it is.
pub fn whole(path: &Path) -> Result<Block, BuildError> {
    Ok(Block { path: path.to_owned(), offset: Bytes(0), size: existing::length(path)? })
}
