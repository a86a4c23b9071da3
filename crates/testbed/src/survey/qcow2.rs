//! Reads the headers of a qcow2 image and its backing files, as specified in QEMU's docs/interop/qcow2.rst.
//!
//! Does not use qemu-img, which opens everything that a header refers to, such as a server or an external data file.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use iotax_model::survey::{BrokenChain, ProbedBacking, Qcow2};

use super::file_head::{FileHead, inspect};
use super::image_format::format_of;
use super::reader::Reader;

/// Maximum number of backing files to follow.
const DEEPEST: usize = 100;
/// Bits of the header field `incompatible_features`.
const CORRUPT: u64 = 1 << 1;
const EXTENDED_L2: u64 = 1 << 4;
/// Type of the header extension with the backing file's format.
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Maximum length of a backing file's name in bytes, as in QEMU.
const LONGEST_NAME: usize = 1023;

/// The header of one image: properties, and name and format of its backing file.
struct Header {
    own: Qcow2,
    backing: Option<String>,
    backing_format: Option<String>,
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn text(bytes: &[u8], at: usize, length: usize) -> Option<String> {
    Some(String::from_utf8_lossy(bytes.get(at..at.checked_add(length)?)?).into_owned())
}

/// Parses a header; `length` is the file's length, which must cover the L1 table.
fn parse(start: &[u8], length: u64) -> Result<Header, String> {
    const CUT: &str = "its qcow2 header is cut off";
    let short = |at| number32(start, at).ok_or(CUT);
    let long = |at| number64(start, at).ok_or(CUT);
    let version = short(4)?;
    if ![2, 3].contains(&version) {
        return Err(format!("its qcow2 header has the unknown version {version}"));
    }
    let cluster_bits = short(20)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(format!("its qcow2 header has clusters of 2^{cluster_bits} bytes"));
    }
    let table = long(40)?.saturating_add(u64::from(short(36)?) * 8);
    if table > length {
        return Err(format!("its qcow2 table ends at byte {table}, and the file at {length}"));
    }
    let (features, header_length) = if version == 3 { (long(72)?, short(100)?) } else { (0, 72) };
    let (name_at, name_length) = (long(8)?, short(16)? as usize);
    let backing = if name_at == 0 || name_length == 0 {
        None
    } else {
        let at = usize::try_from(name_at).ok().filter(|_| name_length <= LONGEST_NAME).ok_or(CUT)?;
        Some(text(start, at, name_length).ok_or(CUT)?)
    };
    Ok(Header {
        own: Qcow2 {
            virtual_bytes: Some(long(24)?),
            cluster_bytes: Some(1 << cluster_bits),
            compat: Some(if version == 2 { "0.10" } else { "1.1" }.to_owned()),
            extended_l2: Some(features & EXTENDED_L2 != 0),
            corrupt: Some(features & CORRUPT != 0),
            snapshots: short(60)?.into(),
            encryption: match short(32)? {
                0 => None,
                1 => Some("aes".to_owned()),
                _ => Some("luks".to_owned()),
            },
            ..Qcow2::default()
        },
        backing,
        backing_format: backing_format(start, header_length as usize),
    })
}

/// Returns the backing file's format from the header extensions, each of which has a type, a length, and data padded to 8 bytes. `None` if
/// it is not given.
fn backing_format(start: &[u8], mut at: usize) -> Option<String> {
    loop {
        let (kind, length) = (number32(start, at)?, number32(start, at + 4)? as usize);
        match kind {
            0 => return None,
            BACKING_FORMAT => return text(start, at + 8, length),
            _ => at = at.checked_add(8)?.checked_add(length.checked_next_multiple_of(8)?)?,
        }
    }
}

/// Reads the headers of an image and its backing files. Returns the image's properties with its chain, and a reason if a backing file
/// cannot be read or the chain is too long. A missing backing file or a loop is recorded in `broken` instead; a backing image that is not
/// a local file is reported to `reader`. Fails with the reason if the image's own header is invalid.
pub(super) fn chain(
    reader: &Reader<'_>,
    path: &str,
    found: &FileHead,
) -> Result<(Qcow2, Option<String>), String> {
    let mut header = parse(&found.start, found.metadata.len())?;
    let mut whole = header.own.clone();
    let mut seen = vec![(found.metadata.dev(), found.metadata.ino())];
    let mut overlay = path.to_owned();
    while let Some(name) = header.backing.take() {
        let Some(base) = local(&name, &overlay) else {
            reader.leave_out(format!(
                "the backing image {name} of {overlay} is not a local file, so it was not looked at"
            ));
            break;
        };
        if whole.backing.len() == DEEPEST {
            return Ok((whole, Some(format!("more than {DEEPEST} images are below it"))));
        }
        let below = match inspect(&reader.full_path(&base)) {
            Ok(below) => below,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                whole.broken = Some(BrokenChain::Missing { overlay, base });
                break;
            }
            Err(error) => return Ok((whole, Some(format!("its backing file {base}: {error}")))),
        };
        let is_file = below.metadata.is_file();
        if !is_file && !below.metadata.file_type().is_block_device() {
            return Ok((
                whole,
                Some(format!("its backing file {base} is neither a regular file nor a block device")),
            ));
        }
        let identity = (below.metadata.dev(), below.metadata.ino());
        if seen.contains(&identity) {
            whole.broken = Some(BrokenChain::Loop { overlay, base });
            break;
        }
        seen.push(identity);
        whole.backing.push(base.clone());
        let format = is_file.then(|| format_of(&below.start).unwrap_or("raw"));
        if header.backing_format.is_none() && whole.probed.is_none() {
            let format = format.map(str::to_owned);
            whole.probed = Some(ProbedBacking { overlay, base: base.clone(), format });
        }
        // A guest may have written the header of a base that is declared raw.
        let is_followed = header.backing_format.as_deref().is_none_or(|format| format == "qcow2");
        if !is_followed || format != Some("qcow2") {
            break;
        }
        header = match parse(&below.start, below.metadata.len()) {
            Ok(header) => header,
            Err(reason) => return Ok((whole, Some(format!("its backing file {base}: {reason}")))),
        };
        overlay = base;
    }
    Ok((whole, None))
}

/// Returns the path of a backing file. Relative names count from the overlay's directory. `None` if the name has a protocol, such as `nbd:`
/// or `json:`.
fn local(name: &str, overlay: &str) -> Option<String> {
    let name = name.strip_prefix("file:").unwrap_or(name);
    let before_slash = name.split('/').next().unwrap_or_default();
    if name.is_empty() || before_slash.contains(':') {
        return None;
    }
    let directory = Path::new(overlay).parent().unwrap_or(Path::new("/"));
    directory.join(name).to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_local() {
        for name in
            ["nbd:host:10809", "nbd://host/x", "json:{\"driver\":\"nbd\"}", "ssh://host/x", "fat:/etc", ""]
        {
            assert_eq!(local(name, "/srv/a"), None, "{name}");
        }
        for (name, path) in [("b", "/srv/b"), ("/b", "/b"), ("file:/b", "/b"), ("./a:b", "/srv/./a:b")] {
            assert_eq!(local(name, "/srv/a").as_deref(), Some(path));
        }
    }

    #[test]
    fn damaged_headers_are_refused() {
        let mut header = [0; 104];
        header[..4].copy_from_slice(b"QFI\xfb");
        assert!(parse(&header, 104).is_err_and(|reason| reason.contains("version 0")));
        header[7] = 3;
        header[23] = 16;
        assert!(parse(&header, 104).is_ok());
        assert!(parse(&header[..80], 80).is_err_and(|reason| reason.contains("cut off")));
        header[39] = 1;
        header[46] = 3;
        assert!(parse(&header, 104).is_err_and(|reason| reason.contains("ends at byte 776")));
    }
}
