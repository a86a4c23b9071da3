//! Surveys disk images.

use std::path::Path;

use iotax_model::survey::{Fact, Image, ImageFile, Known};

use super::file_head::inspect;
use super::image_format::format_of;
use super::qcow2;
use super::reader::Reader;
use crate::program::Program;

const STAT: Program = Program { name: "stat", package: "coreutils" };
const FILEFRAG: Program = Program { name: "filefrag", package: "e2fsprogs" };
const LSATTR: Program = Program { name: "lsattr", package: "e2fsprogs" };

/// Describes the regular file at a path as a disk image; `None` for any other kind of file. If the path cannot be read, the result holds
/// only the reason. `declared` is the format that guests use. The header of a raw disk is ignored, because the guest can write it.
pub(super) fn image(reader: &Reader<'_>, path: &str, declared: Option<&str>) -> Option<Image> {
    let found = match inspect(&reader.full_path(path)) {
        Ok(found) => found,
        Err(error) => {
            let unread = Some(error.to_string());
            reader.leave_out(format!("{path}: {error}"));
            return Some(Image { path: path.to_owned(), unread, ..Image::default() });
        }
    };
    if !found.metadata.is_file() {
        return None;
    }
    let format = if declared == Some("raw") { None } else { format_of(&found.start) };
    let is_meant = declared == Some("qcow2")
        || declared.is_none()
            && Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("qcow2"));
    let (qcow2, unread) = match format {
        Some("qcow2") => match qcow2::chain(reader, path, &found) {
            Ok((header, unread)) => (Some(Fact::new(header, path)), unread),
            Err(reason) => (None, Some(reason)),
        },
        None if is_meant => (None, Some("it should be a qcow2 image and has no such header".to_owned())),
        _ => (None, None),
    };
    if let Some(reason) = &unread {
        reader.leave_out(format!("{path}: {reason}"));
    }
    Some(Image {
        path: path.to_owned(),
        file: file(reader, path),
        extents: extents(reader, path),
        in_place: in_place(reader, path),
        qcow2,
        unread,
        format: format.map(|name| Fact::new(name.to_owned(), path)),
    })
}

fn file(reader: &Reader<'_>, path: &str) -> Known<ImageFile> {
    reader.command(STAT, &["-c", "%s %b %B", path])?.read(|text| {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [length_bytes, blocks, block] = numbers[..] else { return None };
        Some(ImageFile { length_bytes, allocated_bytes: blocks.checked_mul(block)? })
    })
}

/// Returns the file's number of extents, from filefrag(8): `PATH: 12 extents found`.
fn extents(reader: &Reader<'_>, path: &str) -> Known<u64> {
    let output = reader.command(FILEFRAG, &[path])?;
    output.read(|text| text.rsplit_once(": ")?.1.split_whitespace().next()?.parse().ok())
}

/// Returns true if the file is overwritten in place on btrfs: it has the attribute `C` in lsattr(1)'s output. `None` on other filesystems.
fn in_place(reader: &Reader<'_>, path: &str) -> Known<bool> {
    // On other filesystems the attribute has no effect.
    let table = crate::stack::mount::of(reader.root(), std::path::Path::new(path)).ok()?;
    if table.kind != "btrfs" {
        return None;
    }
    reader.command(LSATTR, &["-d", path])?.read(|text| Some(text.split_whitespace().next()?.contains('C')))
}
