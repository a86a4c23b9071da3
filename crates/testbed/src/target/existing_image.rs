//! Builds targets on an existing disk image of the user, which is only read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iotax_model::target::{FileSpec, Format, ImageSpec, Layer, LayerKind};
use iotax_model::units::{Bytes, human};

use super::ExportedImage;
use super::ground::{Ground, NodeGround};
use super::image::overlay as overlay_on;
use super::image_file;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, NodeBase};
use super::preflight::{check_directory, check_exchange, check_found, check_length, check_nothing_beside};
use crate::build_error::BuildError;
use crate::guest::image::{self, DevicePart, FoundImage, ImageError};
use crate::holders::{self, BackingFile};
use crate::refusal::Refusal;

impl Build for ImageSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        // Open the image as the daemon will: whoever writes it holds a lock.
        let found = inspect(self, false)?;
        if !found.others.is_empty() {
            let (image, others) = (self.path.display(), found.others.join(", "));
            needs.notes.push(format!("{}: what {image} reads is also in {others}", at.target.name));
        }
        let (shown, work) = (self.path.display().to_string(), at.plan.work_on(at.target));
        let Some(dir) = &self.overlay else {
            return check_found(&shown, Some(found.size), at.plan, &work).map_err(|refusal| {
                match work.iter().find(|workload| workload.modifies()) {
                    Some(workload) => Refusal::input(format!(
                        "image {shown}: it is only read, and {:?} changes it ({}); give a directory for an overlay that takes what is \
                         written: image {shown} overlay=DIR, in a plan image = {{ path = {shown:?}, overlay = \"DIR\" }}",
                        workload.name,
                        workload.doing()
                    )),
                    None => refusal,
                }
            });
        };
        check_nothing_beside(&shown, &work)?;
        check_length(&shown, found.size, &work)?;
        check_directory(dir)?;
        check_exchange(dir)?;
        // Writes fill whole clusters, and their tables take space too.
        let written = at.plan.touched().min(found.size).0;
        *needs.space.entry(dir.clone()).or_default() += written + written / 50 + EMPTY;
        Ok(())
    }

    fn build(&self, _: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let FoundImage { format, size, .. } = inspect(self, true)?;
        let path = std::fs::canonicalize(&self.path).map_err(BuildError::file(&self.path))?;
        let node = match &self.overlay {
            None => {
                // QEMU does not open a raw file that ends within a sector, as VPC images do.
                let part = DevicePart { offset: Bytes(0), size, writable: false };
                let part = (self.format == Some(Format::Raw)).then_some(part);
                BlockNode::on(NodeBase::Image { path, format, part, read_only: true })
            }
            Some(dir) => {
                let folder = at.builder.folder(dir, at.undo_log)?;
                let overlay = folder.join(at.name::<Self>()).with_added_extension("qcow2");
                overlay_on(&overlay, &path, format, &FileSpec::default(), at.undo_log)?;
                BlockNode { over: Some((path, format)), ..BlockNode::image(overlay, Format::Qcow2) }
            }
        };
        Ok(Ground::Node(Box::new(NodeGround { node, size: Some(size), claim: None, identity: None })))
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let stored = exported.and_then(|image| image.stored.as_ref());
        let format = stored.map_or(Format::Raw, |(_, format)| *format);
        let over = if self.format == Some(Format::Raw) { Vec::new() } else { others(&self.path) };
        let over = if over.is_empty() { String::new() } else { format!(", over {}", over.join(", ")) };
        let image = Layer::new(LayerKind::Image, format.word(), format!("as it was found{over}"));
        let overlay = self.overlay.as_ref().map(|dir| {
            let detail = format!("qcow2 in {}, new before each measurement", dir.display());
            Layer::new(LayerKind::Snapshot, "overlay", detail)
        });
        [image].into_iter().chain(overlay).collect()
    }
}

/// Estimated size of an empty overlay in bytes.
const EMPTY: u64 = 1 << 20;

/// Inspects an image. Rejects an image that iotax cannot measure, such as one that is encrypted or truncated or, unless `shared` is true,
/// open for writing.
fn inspect(spec: &ImageSpec, shared: bool) -> Result<FoundImage, Refusal> {
    let path = spec.path.as_path();
    let shown = path.display();
    let is_here = |path: &Path| path.is_absolute() && path.is_file();
    if !path.is_file() {
        let why = if path.exists() { "is no regular file" } else { "does not exist" };
        return Err(Refusal::input(format!("image {shown}: {why}; give the file of a disk image")));
    }
    let found = if spec.format == Some(Format::Raw) { bytes_of(path) } else { image::inspect(path, shared) };
    let found = found.map_err(|error| {
        let said = error.to_string();
        // Part of `Failed to get shared "write" lock`; other messages are about blocks.
        if said.contains("\" lock") {
            return Refusal::environment(format!(
                "image {shown}: a program has it open to write it, or a file that it reads, such as the QEMU of a guest that runs; measure it when \
                 that has ended"
            ));
        }
        Refusal::input(said)
    })?;
    if let Some(format) = spec.format.filter(|format| *format != found.format) {
        return Err(Refusal::input(format!(
            "image {shown} format={format}: QEMU takes it for {}; leave the format out, or give raw for the bytes of the file",
            found.format
        )));
    }
    if found.format == Format::Raw && spec.format.is_none() && spec.overlay.is_none() {
        return Err(Refusal::input(format!(
            "image {shown}: QEMU knows no format by its content; a raw image is measured by its path alone, {shown}, or as QEMU reads it, \
             image {shown} format=raw"
        )));
    }
    if found.encrypted || found.format == Format::Luks {
        return Err(Refusal::input(format!(
            "image {shown}: it is encrypted, and iotax has no key; to measure the cost of encryption use a new one: format = \"luks\""
        )));
    }
    if let Some(beyond) = found.others.iter().find(|name| !is_here(Path::new(name))) {
        return Err(Refusal::input(format!(
            "image {shown}: it reads {beyond:?} too, which is named otherwise than by the path of a regular file that exists here, and is not opened; \
             qemu-img rebase -u gives it another backing file"
        )));
    }
    if !shared && let Some(writer) = writer(path, &found) {
        return Err(Refusal::environment(format!(
            "image {shown}: {writer} has it, or a file that it reads, open to write it; measure it when that has ended"
        )));
    }
    if let Some(cut) = cut_short(path, &found) {
        return Err(Refusal::input(format!("image {shown}: {cut}")));
    }
    Ok(found)
}

/// Describes a file as a raw image, whatever its content. The image ends at the last whole sector of 4096 bytes.
fn bytes_of(path: &Path) -> Result<FoundImage, ImageError> {
    let failed = |error: io::Error| ImageError::Failed {
        path: path.into(),
        action: "info",
        reason: error.to_string(),
    };
    let length = path.metadata().map_err(failed)?.len();
    let size = Bytes(length - length % WHOLE);
    Ok(FoundImage { format: Format::Raw, size, has_data_file: false, encrypted: false, others: Vec::new() })
}

/// Returns a process that has the image, or a file that it reads, open for writing. QEMU's lock of a raw image does not keep readers out.
fn writer(path: &Path, found: &FoundImage) -> Option<String> {
    let paths: Vec<&Path> = std::iter::once(path).chain(found.others.iter().map(Path::new)).collect();
    let files: Vec<BackingFile> =
        paths.iter().filter_map(|file| Some(BackingFile::of(&std::fs::metadata(file).ok()?))).collect();
    let open = holders::writers_of_files(&files).into_iter().next();
    open.or_else(|| paths.into_iter().find_map(image_file::writer))
}

/// Describes the problem if an image file ends before the data that its tables refer to; `None` otherwise. For VHDX and VPC, QEMU detects
/// this itself.
fn cut_short(path: &Path, found: &FoundImage) -> Option<String> {
    let is_in_one_file = match found.format {
        Format::Qcow2 => !found.has_data_file,
        Format::Vdi => true,
        Format::Vmdk => kind_by_magic(path) == Some(Format::Vmdk),
        _ => false,
    };
    let length = path.metadata().ok().filter(|_| is_in_one_file)?.len();
    let own =
        image::map(path, found.format).ok()?.into_iter().filter(|extent| extent.depth == 0 && extent.data);
    let ends = own.filter_map(|extent| Some(extent.offset?.saturating_add(extent.length)));
    let end = ends.max().filter(|end| end.next_multiple_of(SECTOR) > length.next_multiple_of(SECTOR))?;
    Some(format!(
        "it is cut short: the file has {}, and its tables name data up to {}; copy it again",
        human::bytes(length),
        human::bytes(end)
    ))
}

/// Bytes of the largest sectors that disks have.
const WHOLE: u64 = 4096;

/// Bytes per sector. The last cluster of an image may end within a sector.
const SECTOR: u64 = 512;

/// Magic bytes by which QEMU recognises an image: byte offset, bytes, format. A VMDK image in several files has none.
const MAGIC: [(u64, &[u8], Format); 5] = [
    (0, b"QFI\xfb", Format::Qcow2),
    (0, b"KDMV", Format::Vmdk),
    (0x40, b"\x7f\x10\xda\xbe", Format::Vdi),
    (0, b"vhdxfile", Format::Vhdx),
    (0, b"conectix", Format::Vpc),
];

/// Returns the image format that a file's magic bytes identify; `None` for others.
fn kind_by_magic(path: &Path) -> Option<Format> {
    let file = File::open(path).ok()?;
    let has = |magic_offset: u64, magic: &[u8]| {
        let mut found = vec![0; magic.len()];
        file.read_exact_at(&mut found, magic_offset).is_ok() && found == magic
    };
    MAGIC.into_iter().find(|(magic_offset, magic, _)| has(*magic_offset, magic)).map(|(_, _, format)| format)
}

/// Returns the paths of the other files that an image refers to; empty if it cannot be inspected.
#[must_use]
pub fn others(path: &Path) -> Vec<String> {
    image::inspect(path, true).map(|found| found.others).unwrap_or_default()
}

/// Inspects a file; `None` for raw data, for anything but a regular file, and for a file that QEMU cannot read and that does not begin as a
/// known image. An `Err` holds the reason why an image cannot be measured.
pub fn found(path: &Path) -> Result<Option<FoundImage>, String> {
    if !path.is_file() {
        return Ok(None);
    }
    match (image::inspect(path, true), kind_by_magic(path)) {
        (Ok(found), _) if found.encrypted => Err("it is encrypted".into()),
        (Ok(found), _) => Ok(Some(found).filter(|found| found.format != Format::Raw)),
        (Err(error), Some(format)) => Err(format!("it begins as an image in {format}, and {error}")),
        (Err(_), None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_testkit::require;
    use std::fs;
    use std::process::Command;

    fn qemu(program: &str, arguments: &[&str], path: &Path) {
        let done = Command::new(program).args(arguments).arg(path).output().expect(program);
        assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn an_image_that_is_cut_short_is_called_so() {
        require!(program "qemu-img");
        let directory = tempfile::tempdir().expect("directory");
        for format in ["qcow2", "vdi", "vmdk", "vhdx", "vpc"] {
            let path = directory.path().join(format);
            let source = directory.path().join("raw");
            fs::write(&source, [7].repeat(4 << 20)).expect("written");
            let shown = path.display().to_string();
            qemu("qemu-img", &["convert", "-O", format, &source.display().to_string()], &path);
            let spec = ImageSpec { path: path.clone(), format: None, overlay: None };
            inspect(&spec, true).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let length = path.metadata().expect("there").len();
            File::options().write(true).open(&path).and_then(|file| file.set_len(length / 2)).expect("cut");
            let said = inspect(&spec, true).expect_err(format).to_string();
            let words = ["cut short", "truncated"];
            assert!(words.iter().any(|words| said.contains(words)), "{format}: {said}");
        }
    }

    #[test]
    fn what_begins_as_an_image_and_is_none_is_said() {
        require!(program "qemu-img");
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("i.qcow2");
        fs::write(&path, [&b"QFI\xfb\0\0\0\x03"[..], &[0; 512]].concat()).expect("written");
        let said = found(&path).expect_err("no header");
        assert!(said.starts_with("it begins as an image in qcow2, and "), "{said}");
        fs::write(&path, b"plain").expect("written");
        assert_eq!(found(&path), Ok(None));
        assert_eq!(found(directory.path()), Ok(None));
    }

    #[test]
    fn an_encrypted_image_is_refused_before_anything_is_started() {
        require!(program "qemu-img");
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("i.qcow2");
        let secret = ["create", "-q", "--object", "secret,id=s,data=x", "-f", "qcow2"];
        let arguments =
            [&secret[..], &["-o", "encrypt.format=luks,encrypt.iter-time=10,encrypt.key-secret=s,size=1M"]]
                .concat();
        qemu("qemu-img", &arguments, &path);
        let spec = ImageSpec { path: path.clone(), format: None, overlay: None };
        let refused = inspect(&spec, false).expect_err("no key").to_string();
        assert!(refused.contains("it is encrypted, and iotax has no key"), "{refused}");
        assert_eq!(found(&path), Err("it is encrypted".into()));
    }
}
