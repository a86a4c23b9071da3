//! Facts about disk images.

use std::fs::File;
use std::io::Read;

use iotax_model::survey::{Fact, Image, ImageFile, Known, Qcow2};
use serde_json::Value;

use super::reader::Reader;
use crate::program::Program;

const STAT: Program = Program { name: "stat", package: "coreutils" };
const FILEFRAG: Program = Program { name: "filefrag", package: "e2fsprogs" };
const LSATTR: Program = Program { name: "lsattr", package: "e2fsprogs" };
const QEMU_IMG: Program = Program { name: "qemu-img", package: "qemu-utils" };

/// The first bytes of image formats.
const MARKS: [(&[u8], &str); 6] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"# Disk DescriptorFile", "vmdk"),
    (b"<<< ", "vdi"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
];

/// The regular file at a path; `None` for anything else.
pub(super) fn image(reader: &Reader<'_>, path: &str) -> Option<Image> {
    let place = reader.place(path);
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let mut start = Vec::new();
    let read = File::open(&place).and_then(|file| file.take(64).read_to_end(&mut start));
    if let Err(error) = read {
        reader.leave_out(format!("{path}: {error}"));
    }
    let format = MARKS.iter().find(|(mark, _)| start.starts_with(mark)).map(|(_, name)| *name);
    let format = format.map(|name| Fact::new(name.to_owned(), path));
    let is_qcow2 = format.as_ref().is_some_and(|format| format.value == "qcow2");
    Some(Image {
        path: path.to_owned(),
        file: file(reader, path),
        extents: extents(reader, path),
        in_place: in_place(reader, path),
        qcow2: if is_qcow2 { header(reader, path) } else { None },
        format,
    })
}

fn file(reader: &Reader<'_>, path: &str) -> Known<ImageFile> {
    reader.command(STAT, &["-c", "%s %b %B", path])?.read(|text| {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [length_bytes, blocks, block] = numbers[..] else { return None };
        Some(ImageFile { length_bytes, allocated_bytes: blocks.checked_mul(block)? })
    })
}

/// From `PATH: 12 extents found`.
fn extents(reader: &Reader<'_>, path: &str) -> Known<u64> {
    let told = reader.command(FILEFRAG, &[path])?;
    told.read(|text| text.rsplit_once(": ")?.1.split_whitespace().next()?.parse().ok())
}

/// From `---------------C------ PATH`.
fn in_place(reader: &Reader<'_>, path: &str) -> Known<bool> {
    // Elsewhere than on btrfs the attribute means nothing.
    let table = crate::stack::mount::of(reader.root(), std::path::Path::new(path)).ok()?;
    if table.kind != "btrfs" {
        return None;
    }
    reader.command(LSATTR, &["-d", path])?.read(|text| Some(text.split_whitespace().next()?.contains('C')))
}

/// The header and those of the images below. `-U` reads an image that is in use; the format is given, as a probed one could be the guest's
/// choice.
fn header(reader: &Reader<'_>, path: &str) -> Known<Qcow2> {
    let told =
        reader.command(QEMU_IMG, &["info", "-U", "--output=json", "--backing-chain", "-f", "qcow2", path])?;
    told.read(|text| {
        let chain: Vec<Value> = serde_json::from_str(text).ok()?;
        let (own, below) = chain.split_first()?;
        let data = &own["format-specific"]["data"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Qcow2 {
            virtual_bytes: own["virtual-size"].as_u64(),
            cluster_bytes: own["cluster-size"].as_u64(),
            compat: text(&data["compat"]),
            extended_l2: data["extended-l2"].as_bool(),
            corrupt: data["corrupt"].as_bool(),
            snapshots: own["snapshots"].as_array().map_or(0, |all| all.len() as u64),
            encryption: text(&data["encrypt"]["format"]),
            backing: below.iter().filter_map(|info| text(&info["filename"])).collect(),
            probes_backing: chain.iter().any(|info| {
                info["backing-filename"].is_string() && info["backing-filename-format"].is_null()
            }),
        })
    })
}
