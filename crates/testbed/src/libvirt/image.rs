//! Derives image settings from a domain's disk and, if it is readable, from the image's header.

use std::path::Path;

use iotax_model::target::{FileSpec, Format, Preallocation, Snapshot};
use iotax_model::units::Bytes;
use serde_json::Value;

use crate::program::Program;

const QEMU_IMG: Program = Program { name: "qemu-img", package: "qemu-utils" };

/// Returns the settings for a new image that resembles the one at `source`. `backing` is the number of backing files
/// that the domain lists, for an image that cannot be read.
pub(super) fn like(source: Option<&Path>, format: Format, backing: u32, notes: &mut Vec<String>) -> FileSpec {
    let mut file = FileSpec { format, ..FileSpec::default() };
    if format != Format::Qcow2 {
        return file;
    }
    let known = source.filter(|path| path.exists()).map(chain);
    let backing = match &known {
        Some(Ok(chain)) => {
            header(&chain[0], &mut file);
            let format = |info: &Value| info["format"].as_str().map(str::to_owned);
            if let Some(other) = chain[1..].iter().filter_map(format).find(|format| format != "qcow2") {
                notes.push(format!("an image below the disk's own is {other}; here they are qcow2"));
            }
            u32::try_from(chain.len() - 1).unwrap_or(u32::MAX)
        }
        Some(Err(reason)) => {
            notes.push(format!("the image's header is not known: {reason}"));
            backing
        }
        None => {
            notes.push(
                "the image is not here, so how it was made is not known: taken are QEMU's defaults".into(),
            );
            backing
        }
    };
    if backing > 0 {
        file.snapshot = Some(Snapshot::External);
        file.backing_depth = Some(backing);
        notes.push(format!(
            "images below the disk's own: {backing}; here the overlay is new before each measurement, so that all it writes \
             is written for the first time"
        ));
    }
    file.preallocation = Preallocation::Metadata;
    notes.push("what was allocated in advance is not known: taken is preallocation = metadata".into());
    file
}

/// Describes an image and its backing files as qemu-img does, topmost first. Reads only headers, and works while the image is in use.
fn chain(path: &Path) -> Result<Vec<Value>, String> {
    let arguments = ["info", "-U", "--backing-chain", "--output=json", "-f", "qcow2"].map(AsRef::as_ref);
    let text =
        QEMU_IMG.run(arguments.into_iter().chain([path.as_os_str()])).map_err(|error| error.to_string())?;
    let chain: Vec<Value> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("qemu-img info says nothing".into()) } else { Ok(chain) }
}

fn header(info: &Value, file: &mut FileSpec) {
    // QEMU's default, which is omitted.
    const CLUSTER: u64 = 64 << 10;
    let flag = |key: &str| info["format-specific"]["data"][key].as_bool().unwrap_or(false);
    file.cluster_size = info["cluster-size"].as_u64().filter(|size| *size != CLUSTER).map(Bytes);
    file.extended_l2 = flag("extended-l2");
    file.lazy_refcounts = flag("lazy-refcounts");
}
