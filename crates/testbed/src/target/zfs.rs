//! Creates ZFS pools with a volume or a filesystem.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use iotax_model::record::LayerCounters;
use iotax_model::target::{ZfsKind, ZfsSpec};
use rustix::mount::{MountFlags, mount};

use super::counters::Counters;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::refusal::Refusal;
use crate::undo::Effect;
use crate::zfs::{self, COUNTERS, CreatedPool, FILESYSTEM, ZFS, ZPOOL, ZVOL_ID};

/// Name of the volume in a pool.
const VOLUME: &str = "volume";
const FILESYSTEMS: &str = "/proc/filesystems";

impl Build for ZfsSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment("zfs: only root may create a pool; run iotax as root"));
        }
        for program in [ZPOOL, ZFS, ZVOL_ID] {
            program.find().map_err(|error| Refusal::environment(error.to_string()))?;
        }
        check_kernel(&fs::read_to_string(FILESYSTEMS).unwrap_or_default())?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let name = format!("iotax-{}-{}-zfs", at.builder.tag, at.name::<Self>());
        let device = taken.area.path.clone();
        let pool = CreatedPool { name: name.clone(), device: device.clone(), guid: None };
        let unidentified = at.undo_log.record(Effect::ZfsPool(pool.clone()))?;
        at.undo_log.run(ZPOOL, pool_arguments(self, &name, &device))?;
        at.undo_log.record(Effect::ZfsPool(pool.identified().map_err(BuildError::file(&device))?))?;
        at.undo_log.commit(unidentified)?;
        match self.kind {
            ZfsKind::Zvol => volume(self, &name, at),
            ZfsKind::Dataset => dataset(&name, at),
        }
    }
}

/// Rejects a kernel without ZFS. `filesystems` is the content of /proc/filesystems.
fn check_kernel(filesystems: &str) -> Result<(), Refusal> {
    if filesystems.lines().any(|line| line.split_whitespace().last() == Some(FILESYSTEM)) {
        return Ok(());
    }
    Err(Refusal::environment(format!(
        "zfs: there is no zfs in {FILESYSTEMS}: modprobe zfs (Debian: apt-get install zfs-dkms, of the section contrib), or leave out targets with zfs"
    )))
}

/// Returns the arguments for zpool(8) that create a pool on `device`, with the settings as properties of its root dataset. The pool is in
/// no cache file, so that no other program imports it after a reboot.
fn pool_arguments(spec: &ZfsSpec, pool: &str, device: &Path) -> Vec<String> {
    let mountpoint = match spec.kind {
        ZfsKind::Zvol => "none",
        ZfsKind::Dataset => "legacy",
    };
    let mut words = ["create", "-f", "-o", "cachefile=none", "-o", "ashift=12"].map(str::to_owned).to_vec();
    let properties = [
        format!("mountpoint={mountpoint}"),
        format!("compression={}", spec.compression),
        format!("sync={}", spec.sync),
        format!("primarycache={}", spec.primarycache),
    ];
    let recordsize = spec.recordsize.map(|size| format!("recordsize={}", size.0));
    words.extend(properties.into_iter().chain(recordsize).flat_map(|property| ["-O".to_owned(), property]));
    words.extend([pool.to_owned(), device.to_string_lossy().into_owned()]);
    words
}

/// Creates the volume of a pool.
fn volume(spec: &ZfsSpec, pool: &str, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
    let name = format!("{pool}/{VOLUME}");
    let size = at.size().0.next_multiple_of(ZfsSpec::LARGEST_VOLUME_BLOCK.0);
    let mut words = vec!["create".to_owned(), "-V".to_owned(), size.to_string()];
    words.extend(spec.volblocksize.iter().flat_map(|block| ["-b".to_owned(), block.0.to_string()]));
    at.undo_log.run(ZFS, words.into_iter().chain([name.clone()]))?;
    let node = zfs::node(&name).ok_or_else(|| {
        Refusal::environment(format!("zfs: no device of the volume {name} has appeared in /dev"))
    })?;
    let ground = Ground::made(node)?;
    at.check_holds(&ground)?;
    Ok(ground)
}

/// Mounts the root dataset of a pool.
fn dataset(pool: &str, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
    // The mount table shows paths without symbolic links.
    let scratch = std::env::temp_dir();
    let point = fs::canonicalize(&scratch).map_err(BuildError::file(&scratch))?.join(pool);
    at.undo_log.make_directory(&point)?;
    at.undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: pool.to_owned() }))?;
    // A system call instead of mount(8): after a kill, no other process goes on to mount.
    mount(pool, &point, FILESYSTEM, MountFlags::empty(), None).map_err(|errno| {
        Refusal::environment(format!("zfs: cannot mount {pool}: {}", io::Error::from(errno)))
    })?;
    fs::set_permissions(&point, Permissions::from_mode(0o700)).map_err(BuildError::file(&point))?;
    Ok(Ground::Directory(point))
}

/// The counters of ZFS's cache in memory (ARC), in blocks. They cover all pools of the machine.
#[derive(Debug)]
pub struct ArcCounters(PathBuf);

impl ArcCounters {
    /// Returns the counters below `root`, `/` on a live system.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self(root.join(COUNTERS.trim_start_matches('/')).join("arcstats"))
    }
}

impl Counters for ArcCounters {
    fn layer(&self) -> &'static str {
        LayerCounters::ARC
    }

    fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        counts(&fs::read_to_string(&self.0)?)
            .ok_or_else(|| io::Error::other(format!("{}: it has no counters of data", self.0.display())))
    }
}

/// Parses the content of arcstats, with a name, a type and a count in each line; `None` if one of the counts is missing.
fn counts(arcstats: &str) -> Option<BTreeMap<String, u64>> {
    let of = |name: &str| {
        let mut lines = arcstats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|fields| fields.first() == Some(&name))?.get(2)?.parse::<u64>().ok()
    };
    let names = [
        (LayerCounters::ARC_HITS, "demand_data_hits"),
        (LayerCounters::ARC_MISSES, "demand_data_misses"),
        (LayerCounters::ARC_PREFETCHED, "prefetch_data_misses"),
        ("metadata hits", "demand_metadata_hits"),
        ("metadata misses", "demand_metadata_misses"),
    ];
    names.into_iter().map(|(ours, theirs)| Some((ours.to_owned(), of(theirs)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::target::{ZfsCompression, ZfsPrimaryCache, ZfsSync};
    use iotax_model::units::Bytes;

    #[test]
    fn a_kernel_without_zfs_is_told_what_to_load_and_to_install() {
        assert!(check_kernel("nodev\tsysfs\nnodev\tzfs\n\text4\n").is_ok());
        let refusal = check_kernel("nodev\tsysfs\n\text4\n").expect_err("no zfs").to_string();
        assert!(refusal.contains("modprobe zfs (Debian: apt-get install zfs-dkms"), "{refusal}");
    }

    #[test]
    fn a_pool_has_the_settings_as_properties_and_is_in_no_cache_file() {
        let line =
            |spec: ZfsSpec| pool_arguments(&spec, "iotax-1a2b-t-zfs", Path::new("/dev/loop0")).join(" ");
        let dataset = ZfsSpec {
            recordsize: Some(Bytes(16 << 10)),
            compression: ZfsCompression::Lz4,
            sync: ZfsSync::Always,
            ..ZfsSpec::new(ZfsKind::Dataset)
        };
        assert_eq!(
            line(dataset),
            "create -f -o cachefile=none -o ashift=12 -O mountpoint=legacy -O compression=lz4 -O sync=always -O primarycache=all -O recordsize=16384 \
             iotax-1a2b-t-zfs /dev/loop0"
        );
        let zvol = ZfsSpec { primarycache: ZfsPrimaryCache::Off, ..ZfsSpec::new(ZfsKind::Zvol) };
        let properties =
            "-O mountpoint=none -O compression=off -O sync=standard -O primarycache=none iotax-1a2b-t-zfs";
        assert!(line(zvol).contains(properties));
    }

    #[test]
    fn counts_of_the_arc_are_those_of_data_and_metadata() {
        let text = "13 1 0x01 147 39984 10 20\nname                            type data\nhits                            4    900\n\
                    demand_data_hits                4    500\ndemand_data_misses              4    40\ndemand_metadata_hits            4    300\n\
                    demand_metadata_misses          4    7\nprefetch_data_hits              4    1\nprefetch_data_misses            4    9\n";
        let found = counts(text).expect("whole");
        let of = |name: &str| found[name];
        assert_eq!((of("data hits"), of("data misses"), of("data prefetched")), (500, 40, 9));
        assert_eq!((of("metadata hits"), of("metadata misses")), (300, 7));
        assert_eq!(counts(&text.replace("demand_data_misses", "x")), None);
    }
}
