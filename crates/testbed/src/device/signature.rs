//! Finds signatures on block devices: filesystems, RAID, LVM and partition tables by wipefs(8), and disk images.

use std::fs::File;

use serde::Deserialize;

use super::{image, node};
use crate::program::{Program, ProgramError};

/// The tool that finds and wipes signatures.
pub(crate) const WIPEFS: Program = Program { name: "wipefs", package: "util-linux" };

/// A signature on a device, as reported by wipefs(8), or the header of a disk image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Signature {
    /// Byte offset in hexadecimal, such as `0x438`.
    offset: String,
    /// The type, such as `ext4`, `LVM2_member`, `gpt`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) uuid: Option<String>,
    label: Option<String>,
    /// True if wipefs(8) can wipe the signature; false for a disk image.
    #[serde(skip, default = "yes")]
    pub(super) wipeable: bool,
}

const fn yes() -> bool {
    true
}

impl Signature {
    /// Describes the header of a disk image at this byte offset.
    fn of_image(kind: &str, offset: u64) -> Self {
        Self {
            offset: format!("{offset:#x}"),
            kind: kind.to_owned(),
            uuid: None,
            label: None,
            wipeable: false,
        }
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(label) = &self.label {
            write!(f, " {label:?}")?;
        }
        write!(f, " at {}", self.offset)
    }
}

#[derive(Deserialize)]
struct Listing {
    signatures: Vec<Signature>,
}

/// Lists the signatures of an open device or file, without changing it.
pub(crate) fn read(device: &File) -> Result<Vec<Signature>, ProgramError> {
    let device_path = node::by_descriptor(device);
    let failed = |reason: String| ProgramError::Failed {
        command: format!("wipefs --json --no-act {}", device_path.display()),
        reason,
    };
    let text = WIPEFS.run(["--json".as_ref(), "--no-act".as_ref(), device_path.as_os_str()])?;
    let marks = image::read(device).map_err(|error| failed(error.to_string()))?;
    let images = marks.into_iter().map(|(name, offset)| Signature::of_image(name, offset));
    if text.trim_ascii().is_empty() {
        return Ok(images.collect());
    }
    let listing: Listing = serde_json::from_slice(&text).map_err(|error| {
        let text = String::from_utf8_lossy(&text);
        failed(format!("its output is not the expected JSON ({error}): {text}"))
    })?;
    Ok(listing.signatures.into_iter().chain(images).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_as_the_tool_finds_them() {
        iotax_testkit::require!(program "wipefs");
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(1 << 20).expect("sized");
        assert_eq!(read(file.as_file()).expect("read"), []);
        // A swap area: the magic number ends the first page, label and UUID precede it.
        let mut page = vec![0; 4096];
        page[1024] = 1;
        page[1028..1032].copy_from_slice(&255_u32.to_le_bytes());
        page[1036..1052].copy_from_slice(&[0x11; 16]);
        page[1052..1057].copy_from_slice(b"spare");
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        std::fs::write(file.path(), page.repeat(1)).expect("written");
        file.as_file().set_len(1 << 20).expect("sized");
        let found = read(file.as_file()).expect("read");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].to_string(), "swap \"spare\" at 0xff6");
        assert_eq!(found[0].uuid.as_deref(), Some("11111111-1111-1111-1111-111111111111"));
    }
}
