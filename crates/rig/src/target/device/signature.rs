//! Signatures on block devices: filesystems, RAID, LVM, partition tables, as wipefs(8) finds them.

use std::path::Path;

use serde::Deserialize;

use crate::program::{Program, ProgramError};

/// Finds and wipes signatures.
pub(crate) const WIPEFS: Program = Program { name: "wipefs", package: "util-linux" };

/// What tells what is on a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Signature {
    /// In hexadecimal: `0x438`.
    offset: String,
    /// Such as `ext4`, `LVM2_member`, `gpt`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) uuid: Option<String>,
    label: Option<String>,
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

/// The signatures of a device or file. Only reads.
pub(crate) fn read(device: &Path) -> Result<Vec<Signature>, ProgramError> {
    let text = WIPEFS.run(["--json".as_ref(), "--no-act".as_ref(), device.as_os_str()])?;
    if text.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&text).map(|listing: Listing| listing.signatures).map_err(|error| {
        let text = String::from_utf8_lossy(&text);
        ProgramError::Failed {
            command: format!("wipefs --json --no-act {}", device.display()),
            reason: format!("its words are not understood ({error}): {text}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_as_the_tool_finds_them() {
        iotax_testkit::require!(program "wipefs");
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(1 << 20).expect("sized");
        assert_eq!(read(file.path()).expect("read"), []);
        // A swap area: its mark ends the first page, its label and UUID are before it.
        let mut page = vec![0; 4096];
        page[1024] = 1;
        page[1028..1032].copy_from_slice(&255_u32.to_le_bytes());
        page[1036..1052].copy_from_slice(&[0x11; 16]);
        page[1052..1057].copy_from_slice(b"spare");
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        std::fs::write(file.path(), page.repeat(1)).expect("written");
        file.as_file().set_len(1 << 20).expect("sized");
        let found = read(file.path()).expect("read");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].to_string(), "swap \"spare\" at 0xff6");
        assert_eq!(found[0].uuid.as_deref(), Some("11111111-1111-1111-1111-111111111111"));
    }
}
