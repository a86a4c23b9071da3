//! Creates and inspects disk images with qemu-img.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use iotax_model::target::{FileSpec, Format, Subformat};
use iotax_model::units::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::program;

/// An error while creating or inspecting a disk image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// qemu-img is not installed.
    #[error("qemu-img was not found in PATH; install it (Debian: apt-get install qemu-utils)")]
    NotFound,
    /// The file to create already exists; it may belong to the user.
    #[error("{}: exists already and is not overwritten", path.display())]
    Exists {
        /// Path of the existing file.
        path: PathBuf,
    },
    /// qemu-img failed or could not be run, or iotax cannot use the image.
    #[error("{}: qemu-img {action}: {reason}", path.display())]
    Failed {
        /// Path of the image.
        path: PathBuf,
        /// The step that failed: usually a qemu-img subcommand, such as `create`.
        action: &'static str,
        /// The error message of qemu-img or of a system call, or the reason why iotax cannot use the image.
        reason: String,
    },
}

/// A disk image in a chain of backing files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainImage {
    /// Path of the image's file or device.
    pub path: PathBuf,
    /// Format of the image, such as raw or qcow2.
    pub format: Format,
    /// The byte range of a block device or file that holds a raw image; `None` if the image is a whole file.
    pub part: Option<DevicePart>,
    /// Path of the external data file of a qcow2 image; `None` without one.
    pub data_file: Option<PathBuf>,
    /// True if QEMU needs the key to read the image.
    pub encrypted: bool,
}

impl ChainImage {
    /// Returns an image that occupies a whole file, without an external data file. Only a LUKS image is encrypted.
    #[must_use]
    pub const fn new(path: PathBuf, format: Format) -> Self {
        Self { path, format, part: None, data_file: None, encrypted: matches!(format, Format::Luks) }
    }

    /// Returns the format's option that names the object with the key.
    pub(crate) const fn key_option(&self) -> &'static str {
        match self.format {
            Format::Qcow2 => "encrypt.key-secret",
            _ => "key-secret",
        }
    }
}

/// A byte range of a block device or file that holds a raw image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePart {
    /// Byte offset of the range's start, a multiple of 512.
    pub offset: Bytes,
    /// Length of the range in bytes. The guest's disk is rounded up to whole sectors of 512 bytes.
    pub size: Bytes,
    /// True if the guest may write to the range. Otherwise QEMU opens it read-only.
    pub writable: bool,
}

/// QEMU's name for the key of an encrypted image.
pub(crate) const SECRET: &str = "secret0";

/// The key of encrypted images. It need not be secret: the images hold only test data.
pub(crate) const KEY: &str = "iotax";

/// Returns the value of QEMU's option `-object` that defines the encryption key.
pub(crate) fn secret_option() -> String {
    format!("secret,id={SECRET},data={KEY}")
}

/// Creates an image whose disk has `size` bytes. The file must not exist. qemu-img holds the run's lock, and an interrupt ends it: full
/// preallocation may take minutes.
pub fn create(path: &Path, file: &FileSpec, size: Bytes, lock: &ProcessLock) -> Result<(), ImageError> {
    refuse_existing(path)?;
    let options = match file.format {
        Format::Raw | Format::Qcow2 => {
            let data = file.data_file.then(|| format!(",data_file={}", escaped(&data_file(path))));
            let data = data.unwrap_or_default();
            format!("preallocation={}{}{data}", file.preallocation, qcow2_options(file))
        }
        // Without force_size, the length is rounded to whole cylinders.
        Format::Vpc => format!("force_size=on,subformat={}", file.subformat.unwrap_or(Subformat::Dynamic)),
        Format::Vhdx => format!("subformat={}", file.subformat.unwrap_or(Subformat::Dynamic)),
        Format::Vmdk => format!("subformat={}", file.subformat.unwrap_or(Subformat::MonolithicSparse)),
        Format::Vdi | Format::Parallels => String::new(),
        Format::Luks => luks_options(""),
    };
    let length = size.0.to_string();
    let given = if options.is_empty() { vec![] } else { vec!["-o", options.as_str()] };
    let secret = secret_option();
    let arguments = ["create", "-q", "--object", &secret, "-f", file.format.word()].into_iter().chain(given);
    let arguments = arguments.map(OsStr::new);
    make("create", path, lock, arguments.chain([path.as_os_str(), length.as_ref()]))?;
    if file.format == Format::Qcow2 { fill_sector(path) } else { Ok(()) }
}

/// Creates a qcow2 overlay over `backing`, with the cluster options and encryption of `file`. Nothing may exist at `path`. qemu-img holds
/// the run's lock.
pub fn create_overlay(
    path: &Path,
    backing: &Path,
    backing_format: Format,
    file: &FileSpec,
    lock: &ProcessLock,
) -> Result<(), ImageError> {
    refuse_existing(path)?;
    // A relative name would be resolved from the overlay's directory.
    let absolute = std::path::absolute(backing).unwrap_or_else(|_| backing.to_owned());
    let options = format!("preallocation=off{}", qcow2_options(file));
    let (secret, below) = (secret_option(), backing_format.word());
    let arguments = ["create", "-q", "--object", &secret, "-f", "qcow2", "-o", &options, "-F", below, "-b"];
    let arguments = arguments.map(OsStr::new).into_iter().chain([absolute.as_os_str(), path.as_os_str()]);
    make("create", path, lock, arguments)?;
    fill_sector(path)
}

/// Returns the name of the internal snapshot `number`, counted from 1.
pub(crate) fn snapshot_name(number: u32) -> String {
    format!("iotax-{number}")
}

/// Takes `count` internal snapshots of a qcow2 image that no program has open. qemu-img holds the run's lock.
pub fn take_snapshots(path: &Path, count: u32, lock: &ProcessLock) -> Result<(), ImageError> {
    (1..=count).try_for_each(|number| snapshot(path, "-c", number, lock))
}

/// Reverts the disk of a qcow2 image to its first internal snapshot, and keeps all snapshots. No program may have the
/// image open. qemu-img holds the run's lock.
pub fn revert(path: &Path, lock: &ProcessLock) -> Result<(), ImageError> {
    snapshot(path, "-a", 1, lock)
}

fn snapshot(path: &Path, action: &str, number: u32, lock: &ProcessLock) -> Result<(), ImageError> {
    let name = snapshot_name(number);
    let image = opened(path, Format::Qcow2);
    let arguments = ["snapshot", "-q", action, &name].map(OsStr::new).into_iter();
    make("snapshot", path, lock, arguments.chain(image.iter().map(OsString::as_os_str)))?;
    fill_sector(path)
}

/// Returns the path of the external data file of a new qcow2 image.
fn data_file(path: &Path) -> PathBuf {
    path.with_extension("data")
}

/// Maximum size in bytes of each extent file of a split VMDK image.
const EXTENT: u64 = 2 << 30;

/// Returns the paths of the additional files of a new image: its data file, or the extents of a VMDK image, as qemu-img names them.
pub(crate) fn companions(path: &Path, file: &FileSpec, size: Bytes) -> Vec<PathBuf> {
    let named = |more: &str| {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(more);
        path.with_file_name(name).with_added_extension("vmdk")
    };
    let extents =
        |kind: char| (1..=size.0.div_ceil(EXTENT).max(1)).map(|n| named(&format!("-{kind}{n:03}"))).collect();
    match file.subformat {
        _ if file.data_file => vec![data_file(path)],
        Some(Subformat::MonolithicFlat) => vec![named("-flat")],
        Some(Subformat::TwoGbMaxExtentSparse) => extents('s'),
        Some(Subformat::TwoGbMaxExtentFlat) => extents('f'),
        Some(Subformat::Dynamic | Subformat::Fixed | Subformat::MonolithicSparse) | None => Vec::new(),
    }
}

/// Doubles the commas in a path, as QEMU's option syntax requires.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Returns the options of a LUKS header, whose keys begin with `prefix`.
fn luks_options(prefix: &str) -> String {
    // The key protects only test data, so its derivation need not take long.
    format!("{prefix}key-secret={SECRET},{prefix}iter-time=10")
}

/// Returns the image options that only qcow2 has, each with a leading comma.
fn qcow2_options(file: &FileSpec) -> String {
    let mut options = file.cluster_size.map(|size| format!(",cluster_size={}", size.0)).unwrap_or_default();
    for (key, on) in [("extended_l2", file.extended_l2), ("lazy_refcounts", file.lazy_refcounts)] {
        if on {
            options.extend([",", key, "=on"]);
        }
    }
    if let Some(encryption) = file.encrypt {
        options.extend([",encrypt.format=", encryption.word(), ",", &luks_options("encrypt.")]);
    }
    options
}

/// Lists an image and its backing files, topmost first. Reads only headers, and works while a guest has the image open.
pub fn chain(path: &Path, format: Format) -> Result<Vec<ChainImage>, ImageError> {
    let mut top = ChainImage::new(path.to_owned(), format);
    if format == Format::Raw {
        return Ok(vec![top]);
    }
    let failed = |reason: String| ImageError::Failed { path: path.to_owned(), action: "info", reason };
    let arguments = ["info", "-U", "--backing-chain", "--output=json", "-f", format.word()].map(OsStr::new);
    let text = qemu_img("info", path, arguments.into_iter().chain([path.as_os_str()]))?;
    let infos: Vec<Value> = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    let field = |info: &Value, key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
    let encrypted = |info: &Value| info.get("encrypted").and_then(Value::as_bool) == Some(true);
    top.data_file = infos.first().and_then(|info| data_of(info, path));
    top.encrypted |= infos.first().is_some_and(encrypted);
    let mut chain = vec![top];
    for info in infos.iter().skip(1) {
        let path = field(info, "filename").ok_or_else(|| failed("a backing file without a name".into()))?;
        let format = field(info, "format").unwrap_or_default();
        let format = format.parse().map_err(|error| failed(format!("backing file {path}: {error}")))?;
        let path = PathBuf::from(path);
        let (data_file, encrypted) = (data_of(info, &path), encrypted(info));
        chain.push(ChainImage { data_file, encrypted, ..ChainImage::new(path, format) });
    }
    Ok(chain)
}

/// Returns the absolute path of an image's external data file, according to qemu-img; `None` if it has none. A relative path counts from
/// the image's directory.
fn data_of(info: &Value, image: &Path) -> Option<PathBuf> {
    let data = info.pointer("/format-specific/data/data-file").and_then(Value::as_str)?;
    let beside = image.parent().unwrap_or(Path::new("/")).join(data);
    Some(std::path::absolute(beside).unwrap_or_else(|_| data.into()))
}

/// Properties of an image, read from its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundImage {
    /// The image's format, detected by content.
    pub format: Format,
    /// Length of the disk that a guest sees, in bytes.
    pub size: Bytes,
    /// True for a qcow2 image with an external data file.
    pub has_data_file: bool,
    /// True if the image or one of its backing files is encrypted.
    pub encrypted: bool,
    /// Paths of the other files that the image refers to: backing files, nearest first, external data files, and extents.
    pub others: Vec<String>,
}

/// Inspects an image whose format is unknown. Reads only headers. `shared` also allows an image that a guest has open for writing.
pub fn inspect(path: &Path, shared: bool) -> Result<FoundImage, ImageError> {
    let failed = |reason: String| ImageError::Failed { path: path.to_owned(), action: "info", reason };
    let mut chain = Vec::new();
    // QEMU takes "nbd:..." or "json:..." for an address, but not in an absolute path.
    let absolute = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    let mut next = absolute.display().to_string();
    let (mut found, mut has_data_file, mut encrypted) = (None, false, false);
    // Inspect the images one by one: with --backing-chain, qemu-img would open anything that a header names. The limit ends a cyclic chain.
    loop {
        let arguments = ["info", "--output=json"].into_iter().chain(shared.then_some("-U")).chain(["--"]);
        let arguments = arguments.map(OsStr::new).chain([OsStr::new(&next)]);
        let text = run("info", path, Stdio::null(), arguments, &Interrupt::default(), INFO_TIMEOUT)?;
        let info: Value = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        let field = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_owned);
        if found.is_none() {
            let format = field("format").unwrap_or_default();
            let format = format
                .parse()
                .map_err(|error| failed(format!("iotax does not measure such an image: {error}")))?;
            let size = info.get("virtual-size").and_then(Value::as_u64);
            let size = size.ok_or_else(|| failed("it does not say how long it is".into()))?;
            found = Some((format, Bytes(size)));
        }
        encrypted |= info.get("encrypted").and_then(Value::as_bool) == Some(true);
        if let Some(data) = data_of(&info, Path::new(&next)) {
            has_data_file |= chain.is_empty();
            chain.push(data.display().to_string());
        }
        let extents = info.pointer("/format-specific/data/extents").and_then(Value::as_array);
        let extents = extents.into_iter().flatten().filter_map(|extent| extent["filename"].as_str());
        chain.extend(extents.filter(|extent| *extent != next).map(str::to_owned));
        match field("full-backing-filename").or_else(|| field("backing-filename")) {
            Some(backing) if chain.len() < DEEPEST => {
                chain.push(backing.clone());
                let is_here = |path: &Path| path.is_absolute() && path.is_file();
                if !is_here(Path::new(&backing)) {
                    break;
                }
                next = backing;
            }
            Some(_) => return Err(failed(format!("it has more than {DEEPEST} backing files"))),
            None => break,
        }
    }
    let (format, size) = found.unwrap_or((Format::Raw, Bytes(0)));
    Ok(FoundImage { format, size, has_data_file, encrypted, others: chain })
}

/// Maximum number of files that an image may refer to.
const DEEPEST: usize = 64;

/// A contiguous range of the disk in an image, with its allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ImageExtent {
    /// Length of the range in bytes.
    pub length: u64,
    /// Index in the image chain of the image that holds the range; 0 is the topmost image.
    pub depth: u32,
    /// True if the range is allocated in any image of the chain.
    #[serde(default = "there")]
    pub present: bool,
    /// True if the range is read from storage; false for known zeros.
    pub data: bool,
    /// Byte offset of the data in that image's file; `None` if qemu-img reports none.
    #[serde(default)]
    pub offset: Option<u64>,
    /// True if the data is compressed. False with versions of qemu-img that do not report it.
    #[serde(default)]
    pub compressed: bool,
}

/// Returns the default of `present`: true, for versions of qemu-img that do not report it.
const fn there() -> bool {
    true
}

/// Lists the extents of an image. Reads only metadata tables, and works while a guest has the image open.
pub fn map(path: &Path, format: Format) -> Result<Vec<ImageExtent>, ImageError> {
    let image = opened(path, format);
    let arguments = ["map", "-U", "--output=json"].map(OsStr::new).into_iter();
    let text = qemu_img("map", path, arguments.chain(image.iter().map(OsString::as_os_str)))?;
    serde_json::from_slice(&text).map_err(|error| ImageError::Failed {
        path: path.to_owned(),
        action: "map",
        reason: error.to_string(),
    })
}

/// Returns qemu-img's arguments for opening an image. They contain the key if an image of the chain is encrypted, and the paths of external
/// data files, because QEMU would look up relative names in its working directory. If a header cannot be read, returns plain arguments, so
/// that qemu-img reports the reason.
pub(super) fn opened(path: &Path, format: Format) -> Vec<OsString> {
    let chain = chain(path, format).unwrap_or_default();
    if !chain.iter().any(|image| image.encrypted || image.data_file.is_some()) {
        return vec!["-f".into(), format.word().into(), path.into()];
    }
    let mut options = Vec::new();
    for (depth, image) in chain.iter().enumerate() {
        let prefix = "backing.".repeat(depth);
        options.push(format!("{prefix}driver={}", image.format));
        options.push(format!("{prefix}file.filename={}", escaped(&image.path)));
        if let Some(data) = &image.data_file {
            options.push(format!("{prefix}data-file.driver=file"));
            options.push(format!("{prefix}data-file.filename={}", escaped(data)));
        }
        if image.encrypted {
            options.push(format!("{prefix}{}={SECRET}", image.key_option()));
        }
    }
    ["--object", &secret_option(), "--image-opts", &options.join(",")].map(OsString::from).into()
}

/// Queries the length of an export from an NBD server. `shown` is the export's name for errors.
pub fn length_of_export(server: &Value, shown: &str) -> Result<Bytes, ImageError> {
    let path = Path::new(shown);
    let node = format!("json:{server}");
    let arguments = ["info", "--output=json", "--", &node].map(OsStr::new).into_iter();
    let text = run("info", path, Stdio::null(), arguments, &Interrupt::default(), INFO_TIMEOUT)?;
    let info: Value = serde_json::from_slice(&text).unwrap_or_default();
    info.get("virtual-size").and_then(Value::as_u64).map(Bytes).ok_or_else(|| ImageError::Failed {
        path: path.to_owned(),
        action: "info",
        reason: "it does not say how long it is".into(),
    })
}

fn refuse_existing(path: &Path) -> Result<(), ImageError> {
    match path.symlink_metadata() {
        Ok(_) => Err(ImageError::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// Fails if qemu-img is not in PATH.
pub fn find_qemu_img() -> Result<(), ImageError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join("qemu-img").is_file()) {
        Ok(())
    } else {
        Err(ImageError::NotFound)
    }
}

/// Creates or changes an image by running qemu-img, which holds the run's lock meanwhile.
fn make<'a>(
    action: &'static str,
    path: &Path,
    lock: &ProcessLock,
    arguments: impl Iterator<Item = &'a OsStr>,
) -> Result<(), ImageError> {
    let held = lock.stdio().map_err(|error| ImageError::Failed {
        path: path.to_owned(),
        action,
        reason: error.to_string(),
    })?;
    run(action, path, held, arguments, lock.stop(), program::PATIENCE).map(drop)
}

/// Largest alignment of direct I/O in bytes: the sector of a 4Kn disk.
const LARGEST_SECTOR: u64 = 4096;

/// Pads a qcow2 image to a multiple of 4 KiB: QEMU may hang when it reads a table in a partial last sector (see `disk::aio`).
fn fill_sector(path: &Path) -> Result<(), ImageError> {
    let fill = || {
        let file = File::options().write(true).open(path)?;
        file.set_len(file.metadata()?.len().next_multiple_of(LARGEST_SECTOR))
    };
    let failed = |error: io::Error| ImageError::Failed {
        path: path.to_owned(),
        action: "create or snapshot, then filling its last sector",
        reason: error.to_string(),
    };
    fill().map_err(failed)
}

/// Runs a read-only qemu-img command and returns its stdout.
fn qemu_img<'a>(
    action: &'static str,
    path: &Path,
    arguments: impl Iterator<Item = &'a OsStr>,
) -> Result<Vec<u8>, ImageError> {
    run(action, path, Stdio::null(), arguments, &Interrupt::default(), program::PATIENCE)
}

/// Timeout for reading an image's header, or the length of an NBD export. A file that a header refers to may be a pipe, or on a server that
/// hangs.
const INFO_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs qemu-img in a separate process group, so that Ctrl-C reaches only the runner.
fn run<'a>(
    action: &'static str,
    path: &Path,
    stdin: Stdio,
    arguments: impl Iterator<Item = &'a OsStr>,
    stop: &Interrupt,
    patience: Duration,
) -> Result<Vec<u8>, ImageError> {
    let failed = |reason| ImageError::Failed { path: path.to_owned(), action, reason };
    let mut command = Command::new("qemu-img");
    command.args(arguments).stdin(stdin).process_group(0);
    let output =
        program::output_within(&mut command, stop, patience).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ImageError::NotFound,
            _ => failed(error.to_string()),
        })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::target::Preallocation;

    /// Returns a directory and a lock; `None`, with a message, if images cannot be created here.
    fn workshop() -> Option<(tempfile::TempDir, ProcessLock)> {
        iotax_testkit::require!(program "qemu-img");
        let dir = tempfile::tempdir().expect("a directory");
        let lock = ProcessLock::take(&dir.path().join("lock")).expect("a lock").expect("free");
        Some((dir, lock))
    }

    fn of(format: Format) -> FileSpec {
        FileSpec { format, ..FileSpec::default() }
    }

    #[test]
    fn an_image_is_what_was_asked_for() {
        let Some((dir, lock)) = workshop() else { return };
        let path = dir.path().join("image");
        let file = FileSpec {
            cluster_size: Some(Bytes(128 << 10)),
            extended_l2: true,
            lazy_refcounts: true,
            preallocation: Preallocation::Metadata,
            ..of(Format::Qcow2)
        };
        create(&path, &file, Bytes(4 << 20), &lock).expect("created");
        let overlay = dir.path().join("overlay");
        create_overlay(&overlay, &path, Format::Qcow2, &file, &lock).expect("created");
        for image in [&path, &overlay] {
            let info = ["info", "--output=json"].map(OsStr::new).into_iter().chain([image.as_os_str()]);
            let info: Value =
                serde_json::from_slice(&qemu_img("info", image, info).expect("read")).expect("JSON");
            let data = &info["format-specific"]["data"];
            assert_eq!(
                (&info["cluster-size"], &info["virtual-size"]),
                (&(128 << 10).into(), &(4 << 20).into())
            );
            assert_eq!((&data["extended-l2"], &data["lazy-refcounts"]), (&true.into(), &true.into()));
        }
    }

    #[test]
    fn a_chain_lists_every_image_with_its_format() {
        let Some((dir, lock)) = workshop() else { return };
        let [base, middle, top] = ["base", "a,comma", "top"].map(|name| dir.path().join(name));
        let raw = FileSpec { preallocation: Preallocation::Falloc, ..of(Format::Raw) };
        create(&base, &raw, Bytes(1 << 20), &lock).expect("created");
        create_overlay(&middle, &base, Format::Raw, &of(Format::Qcow2), &lock).expect("created");
        create_overlay(&top, &middle, Format::Qcow2, &of(Format::Qcow2), &lock).expect("created");
        let image = |path: &Path, format| ChainImage::new(path.to_owned(), format);
        for path in [&base, &middle, &top] {
            assert_eq!(
                std::fs::metadata(path).expect("a file").len() % LARGEST_SECTOR,
                0,
                "{}",
                path.display()
            );
        }
        assert_eq!(
            chain(&top, Format::Qcow2).expect("read"),
            [image(&top, Format::Qcow2), image(&middle, Format::Qcow2), image(&base, Format::Raw)]
        );
        assert_eq!(chain(&base, Format::Raw).expect("read"), [image(&base, Format::Raw)]);
        let error = chain(&base, Format::Qcow2).expect_err("no qcow2").to_string();
        assert!(error.contains("base: qemu-img info"), "{error}");
    }

    #[test]
    fn an_image_is_reverted_to_its_snapshots() {
        let Some((dir, lock)) = workshop() else { return };
        iotax_testkit::require!(program "qemu-io");
        let path = dir.path().join("image");
        create(&path, &of(Format::Qcow2), Bytes(1 << 20), &lock).expect("created");
        let io = |command: &str| {
            let done = Command::new("qemu-io").args(["-f", "qcow2", "-c", command]).arg(&path).output();
            let done = done.expect("qemu-io");
            assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stdout));
        };
        io("write -P 1 0 1M");
        take_snapshots(&path, 2, &lock).expect("taken");
        for _ in 0..2 {
            io("write -P 2 0 128k");
            revert(&path, &lock).expect("reverted");
            io("read -P 1 0 1M");
            assert_eq!(std::fs::metadata(&path).expect("a file").len() % LARGEST_SECTOR, 0);
        }
        assert!(take_snapshots(&dir.path().join("none"), 1, &lock).is_err());
    }

    #[test]
    fn what_exists_is_never_overwritten() {
        let Some((dir, lock)) = workshop() else { return };
        let path = dir.path().join("mine");
        std::fs::write(&path, "precious").expect("written");
        for refused in [
            create(&path, &of(Format::Raw), Bytes(1 << 20), &lock),
            create_overlay(&path, &path, Format::Raw, &of(Format::Qcow2), &lock),
        ] {
            assert!(matches!(refused, Err(ImageError::Exists { .. })));
        }
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "precious");
        let error = create(&dir.path().join("no/dir"), &of(Format::Qcow2), Bytes(512), &lock);
        assert!(error.expect_err("no directory").to_string().contains("no/dir"));
    }
}
