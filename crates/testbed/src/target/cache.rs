//! Builds dm-cache and dm-writecache in front of a block device, with the cache on loop devices over raw files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iotax_model::target::{
    BottomLocation, CacheSpec, CacheType, DmCacheMode, LoopSpec, Preallocation, Stack,
};
use iotax_model::units::Bytes;

use super::counters::Counters;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_directory, check_exchange};
use super::{loop_device, raw};
use crate::build_error::BuildError;
use crate::mapper::{self, DMSETUP, SECTOR};
use crate::refusal::Refusal;

impl Build for CacheSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        loop_device::check("cache")?;
        let (target, module) = kernel_target(self.kind);
        mapper::check("cache", DMSETUP, target, module)?;
        check_created(at.plan, &at.plan.work_on(at.target))?;
        let dir = directory(self, &at.target.stack)?;
        check_directory(dir)?;
        check_exchange(dir)?;
        let guests = at.target.guest().map_or(1, |guest| u64::from(guest.count));
        let each = self.size.0 + self.metadata().unwrap_or_default().0;
        *needs.space.entry(dir.to_owned()).or_default() += guests * each;
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let taken = below.block()?.take(at.builder.permission.signature)?;
        let folder = at.builder.folder(directory(self, &at.target.stack)?, at.undo_log)?;
        let stem = folder.join(at.name::<Self>());
        let mut device = |extension: &str, size: Bytes| -> Result<PathBuf, BuildError> {
            let path = stem.with_added_extension(extension);
            let file = raw::build(&path, size, Preallocation::Off, at.undo_log)?;
            let mut attached = loop_device::build(file, &LoopSpec::default(), at.undo_log)?;
            at.warnings.append(&mut attached.warnings);
            Ok(attached.path)
        };
        let metadata = self.metadata().map(|size| device("cache-metadata.raw", size)).transpose()?;
        let cache = device("cache.raw", self.size)?;
        let table = table(self, &taken.area.path, taken.area.size, &cache, metadata.as_deref());
        let (mapping, ground) = at.map(self, self.kind.word(), &table)?;
        at.counters.push(Arc::new(CacheCounters { kind: self.kind, mapping }));
        Ok(ground)
    }
}

/// The counters of a cache, as dmsetup(8) shows them.
#[derive(Debug)]
struct CacheCounters {
    kind: CacheType,
    mapping: String,
}

impl Counters for CacheCounters {
    fn layer(&self) -> &'static str {
        self.kind.word()
    }

    fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        let status = DMSETUP.run(["status", &self.mapping]).map_err(io::Error::other)?;
        let status = String::from_utf8_lossy(&status);
        counts(self.kind, &status).ok_or_else(|| io::Error::other(format!("{}: {status}", self.mapping)))
    }
}

/// Parses the counts in a line of `dmsetup status`; `None` if a cache has none, as after a failure or in Linux before 5.15 for
/// dm-writecache. The kernel documents the fields in Documentation/admin-guide/device-mapper, cache.rst and writecache.rst.
fn counts(kind: CacheType, status: &str) -> Option<BTreeMap<String, u64>> {
    // Start, length and target come before the fields; sizes and use come before the counts.
    let names: &[&str] = match kind {
        CacheType::DmCache => {
            &["read hits", "read misses", "write hits", "write misses", "demotions", "promotions"]
        }
        CacheType::DmWritecache => &[
            "blocks read",
            "blocks read from the cache",
            "blocks written",
            "uncommitted blocks overwritten",
            "committed blocks overwritten",
            "blocks written past the cache",
            "blocks allocated",
            "writes that waited for room",
            "flushes",
            "blocks discarded",
        ],
    };
    let fields = status.split_whitespace().skip(3 + 4);
    let counts: Vec<u64> = fields.take(names.len()).map_while(|field| field.parse().ok()).collect();
    let all = names.iter().map(|name| (*name).to_owned()).zip(counts.iter().copied());
    (counts.len() == names.len()).then(|| all.collect())
}

/// Returns the directory for the cache's files: the one that the plan names, else that of the target's files.
fn directory<'a>(spec: &'a CacheSpec, stack: &'a Stack) -> Result<&'a Path, Refusal> {
    match (&spec.dir, stack.location()) {
        (Some(dir), _) => Ok(dir),
        (None, Some(BottomLocation::Directory(dir))) => Ok(dir),
        // The plan's check rejects such a stack.
        (None, _) => Err(Refusal::input("cache needs dir = \"...\", a directory on the fast device")),
    }
}

/// Returns the names of a cache type's device-mapper target and kernel module.
const fn kernel_target(kind: CacheType) -> (&'static str, &'static str) {
    match kind {
        CacheType::DmCache => ("cache", "dm_cache"),
        CacheType::DmWritecache => ("writecache", "dm_writecache"),
    }
}

/// Returns the device-mapper table that puts the cache in front of all `length` bytes of `origin`. The cache's files are new and full of
/// zeros, so the kernel formats them.
fn table(spec: &CacheSpec, origin: &Path, length: Bytes, cache: &Path, metadata: Option<&Path>) -> String {
    let (origin, cache, length) = (origin.display(), cache.display(), length.0 / SECTOR);
    let block = spec.block().0;
    match metadata {
        Some(metadata) => {
            let mode = spec.mode.unwrap_or(DmCacheMode::Writethrough);
            let (metadata, block) = (metadata.display(), block / SECTOR);
            format!("0 {length} cache {metadata} {cache} {origin} {block} 1 {mode} smq 0")
        }
        // "s" is for a disk, in contrast to persistent memory.
        None => format!("0 {length} writecache s {origin} {cache} {block} 0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_the_kernels_status() {
        let cache = "0 2097152 cache 8 27/4096 128 512/1024 120 30 44 5 6 7 8 1 writethrough 2 migration_threshold 2048 smq 0 rw -";
        let found = counts(CacheType::DmCache, cache).expect("whole");
        assert_eq!((found["read hits"], found["write misses"], found["promotions"]), (120, 5, 7));
        let writecache = "0 2097152 writecache 0 16384 16000 0 900 400 500 1 2 3 499 0 20 0 ";
        let found = counts(CacheType::DmWritecache, writecache).expect("whole");
        assert_eq!((found["blocks read"], found["blocks allocated"], found["flushes"]), (900, 499, 20));
        for failed in
            ["0 2097152 cache Fail", "0 2097152 cache Error", "", "0 2097152 writecache 0 16384 16000 0"]
        {
            assert_eq!(counts(CacheType::DmCache, failed), None, "{failed}");
            assert_eq!(counts(CacheType::DmWritecache, failed), None, "{failed}");
        }
    }

    #[test]
    fn a_table_is_what_the_kernel_documents() {
        let line = |keys: &str| {
            let spec: CacheSpec = serde_json::from_str(&format!("{{\"size\": \"64m\"{keys}}}")).expect(keys);
            let metadata = spec.metadata().map(|_| Path::new("/dev/loop1"));
            table(&spec, Path::new("/dev/vda"), Bytes(1 << 20), Path::new("/dev/loop0"), metadata)
        };
        assert_eq!(line(""), "0 2048 cache /dev/loop1 /dev/loop0 /dev/vda 128 1 writethrough smq 0");
        let back = r#", "mode": "writeback", "block_size": "256k""#;
        assert_eq!(line(back), "0 2048 cache /dev/loop1 /dev/loop0 /dev/vda 512 1 writeback smq 0");
        assert_eq!(line(r#", "type": "dm-writecache""#), "0 2048 writecache s /dev/vda /dev/loop0 4096 0");
    }
}
