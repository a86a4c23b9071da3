//! A tree of files that resembles a program's source code: many small files, a few large ones, nested directories, names of different lengths.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::workload::Content;
use rand_distr::{Distribution, StandardNormal};
use rustix::fs::{Mode, OFlags, mkdirat, openat};

use crate::payload::Source;

/// Spread of file sizes: the standard deviation of the natural logarithm, as in a kernel's source. It makes the mean three times the median.
const SPREAD: f64 = 1.45;
/// Maximum number of nested directories below the tree's root.
const DEEPEST: usize = 7;

/// Syllables from which names are composed.
const SYLLABLES: [&str; 24] = [
    "ad", "block", "bus", "core", "ctl", "dev", "dma", "ext", "flow", "hw", "io", "irq", "key", "log", "map",
    "net", "pci", "queue", "reg", "sched", "str", "sys", "tab", "virt",
];
/// Endings of file names, each with its relative frequency.
const ENDINGS: [(&str, u64); 6] = [(".c", 48), (".h", 38), (".rst", 5), (".dts", 4), (".S", 2), ("", 3)];

/// A file or directory of a planned tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path relative to the tree's root.
    pub(super) path: String,
    /// Size in bytes; `None` for a directory.
    pub(super) size: Option<u64>,
}

/// Plans the entries of a tree, directories before their content. Names, sizes and nesting follow from the seed.
pub(super) fn plan(files: u64, directories: u64, bytes: u64, seed: u64) -> Vec<Entry> {
    let mut random = SplitMix64::new(seed, Purpose::Tree, 0);
    let mut taken = HashSet::new();
    // The first is the root itself.
    let mut folders = vec![(String::new(), 0)];
    let mut entries = Vec::new();
    for _ in 1..directories {
        let (parent, depth) = pick(&mut random, &folders);
        let path = name(&mut random, &mut taken, parent, &[("", 1)]);
        let depth = depth + 1;
        entries.push(Entry { path: path.clone(), size: None });
        if depth < DEEPEST {
            folders.push((format!("{path}/"), depth));
        }
    }
    let leaves: Vec<(String, usize)> =
        entries.iter().map(|entry| (format!("{}/", entry.path), 0)).chain([(String::new(), 0)]).collect();
    for size in sizes(&mut random, files, bytes) {
        let (parent, _) = pick(&mut random, &leaves);
        let path = name(&mut random, &mut taken, parent, &ENDINGS);
        entries.push(Entry { path, size: Some(size) });
    }
    entries
}

/// Picks a directory at random. Low numbers are more likely, so that a few directories hold most of the files.
fn pick<'a>(random: &mut SplitMix64, folders: &'a [(String, usize)]) -> (&'a str, usize) {
    let position = random.unit() * random.unit().sqrt() * folders.len() as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is below the length")]
    let (path, depth) = &folders[position as usize];
    (path, *depth)
}

/// Draws a name that is not used yet in a directory.
fn name(
    random: &mut SplitMix64,
    taken: &mut HashSet<String>,
    folder: &str,
    endings: &[(&str, u64)],
) -> String {
    let ending = {
        let mut position = random.below(endings.iter().map(|(_, share)| share).sum());
        let found = endings.iter().find(|(_, share)| {
            let is_it = position < *share;
            position = position.saturating_sub(*share);
            is_it
        });
        found.map_or("", |(ending, _)| ending)
    };
    let mut stem = String::from(folder);
    loop {
        let syllable = SYLLABLES[usize::try_from(random.below(SYLLABLES.len() as u64)).unwrap_or(0)];
        stem.push_str(syllable);
        // Two syllables on average, more if the name is taken.
        if random.below(2) == 0 {
            let path = format!("{stem}{ending}");
            if taken.insert(path.clone()) {
                return path;
            }
            stem.push_str(if random.below(2) == 0 { "_" } else { "-" });
        }
    }
}

/// Draws the sizes in bytes of `files` files; they add up to `bytes`.
fn sizes(random: &mut SplitMix64, files: u64, bytes: u64) -> Vec<u64> {
    let weights: Vec<f64> = (0..files)
        .map(|_| {
            let z: f64 = StandardNormal.sample(random);
            // Beyond four deviations one file would be most of a small tree.
            (SPREAD * z.clamp(-4.0, 4.0)).exp()
        })
        .collect();
    let all: f64 = weights.iter().sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of bytes")]
    let share = |weight: &f64| (weight / all * bytes as f64) as u64;
    let mut sizes: Vec<u64> = weights.iter().map(share).collect();
    // The last file gets the bytes lost to rounding.
    let left = bytes.saturating_sub(sizes.iter().sum());
    if let Some(last) = sizes.last_mut() {
        *last += left;
    }
    sizes
}

/// Generator of the content of a tree's files, record by record.
pub(super) struct Filler {
    source: Source,
    record: usize,
    buffer: Vec<u8>,
    written: u64,
}

impl Filler {
    /// Creates a filler for records of up to `record` bytes.
    pub(super) fn new(content: &Content, record: usize, seed: u64, number: u32) -> Self {
        let source = Source::new(content, SplitMix64::new(seed, Purpose::Payload, number.into()));
        Self { source, record, buffer: vec![0; record.next_multiple_of(512)], written: 0 }
    }

    /// Calls `out` with the offset and content of each record of a file of `size` bytes, until `out` breaks.
    pub(super) fn each<B>(
        &mut self,
        size: u64,
        mut out: impl FnMut(u64, &[u8]) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for offset in (0..size).step_by(self.record) {
            let left = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let length = left.min(self.record);
            let whole = length.next_multiple_of(512);
            self.source.put(self.written, &mut self.buffer[..whole]);
            self.written += 1;
            out(offset, &self.buffer[..length])?;
        }
        ControlFlow::Continue(())
    }
}

/// Turns an error into a break with that error.
pub(super) fn or_break<T, B>(result: Result<T, B>) -> ControlFlow<B, T> {
    match result {
        Ok(value) => ControlFlow::Continue(value),
        Err(error) => ControlFlow::Break(error),
    }
}

/// Creates a file of `size` bytes with generated content in a directory.
pub(super) fn make_file(
    root: BorrowedFd<'_>,
    path: impl rustix::path::Arg,
    size: u64,
    filler: &mut Filler,
) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = File::from(openat(root, path, flags, Mode::from_raw_mode(0o644))?);
    match filler.each(size, |_, record| or_break(io::Write::write_all(&mut &file, record))) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(file),
    }
}

/// Creates all entries of a planned tree in a directory.
pub(super) fn make(root: BorrowedFd<'_>, entries: &[Entry], filler: &mut Filler) -> io::Result<()> {
    for entry in entries {
        match entry.size {
            None => mkdirat(root, &entry.path, Mode::from_raw_mode(0o755))?,
            Some(size) => drop(make_file(root, &entry.path, size, filler)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_what_was_asked_for_and_looks_like_source_code() {
        let entries = plan(24_000, 1714, 320 << 20, 7);
        let mut sizes: Vec<u64> = entries.iter().filter_map(|entry| entry.size).collect();
        sizes.sort_unstable();
        assert_eq!((entries.len(), sizes.len()), (24_000 + 1713, 24_000));
        assert_eq!(sizes.iter().sum::<u64>(), 320 << 20);
        // In Linux 6.1 half of the files are below 4.4 KiB while the mean is 14 KiB; the largest are megabytes.
        let middle = sizes[12_000];
        assert!((3_000..7_000).contains(&middle), "{middle}");
        assert!(sizes.last() > Some(&(500 << 10)) && sizes.last() < Some(&(20 << 20)), "{:?}", sizes.last());
        let depth = |entry: &Entry| entry.path.matches('/').count();
        let mean = entries.iter().map(depth).sum::<usize>() as f64 / entries.len() as f64;
        assert!((2.0..5.0).contains(&mean) && entries.iter().map(depth).max() <= Some(DEEPEST), "{mean}");
        let paths: HashSet<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths.len(), entries.len(), "no path twice");
        let longest = entries.iter().map(|entry| entry.path.rsplit('/').next().map_or(0, str::len)).max();
        assert!(longest < Some(100), "{longest:?}");
        assert!(plan(24_000, 1714, 320 << 20, 7) == entries && plan(24_000, 1714, 320 << 20, 8) != entries);
    }

    #[test]
    fn small_and_empty_trees_are_trees_too() {
        assert_eq!(plan(1, 1, 0, 1).iter().map(|entry| entry.size).collect::<Vec<_>>(), [Some(0)]);
        let entries = plan(3, 3, 100, 1);
        assert_eq!(entries.iter().filter_map(|entry| entry.size).sum::<u64>(), 100);
        assert_eq!(entries.iter().filter(|entry| entry.size.is_none()).count(), 2);
    }

    #[test]
    fn what_is_made_is_the_plan() {
        let temp = tempfile::tempdir().expect("a directory");
        let root = File::open(temp.path()).expect("opened");
        let entries = plan(40, 5, 300_000, 3);
        let mut filler = Filler::new(&Content::default(), 4096, 1, 0);
        make(std::os::fd::AsFd::as_fd(&root), &entries, &mut filler).expect("made");
        let mut seen = HashSet::new();
        for entry in &entries {
            let found = temp.path().join(&entry.path).metadata().expect("there");
            assert_eq!(entry.size, found.is_file().then_some(found.len()), "{entry:?}");
            let content = if found.is_file() {
                std::fs::read(temp.path().join(&entry.path)).expect("read")
            } else {
                Vec::new()
            };
            assert!(content.len() < 16 || seen.insert(content), "no two files alike");
        }
    }
}
