//! The directory of the host that the guest mounts.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iotax_model::guest_abi;
use rustix::mount::MountFlags;

/// Mounts the directory if the kernel parameters ask for one, and returns the path of the file to measure in it; `None` otherwise.
pub(super) fn measured(parameters: &str) -> Result<Option<PathBuf>> {
    let Some((kind, options)) = wanted(parameters)? else { return Ok(None) };
    let (tag, point) = (guest_abi::SHARE_TAG, guest_abi::MOUNT_POINT);
    let data = CString::new(options).context("mount options")?;
    rustix::mount::mount(tag, point, kind, MountFlags::empty(), &*data).with_context(|| {
        format!("the host's directory {tag} could not be mounted as {kind} with options {options:?}")
    })?;
    Ok(Some(Path::new(point).join(guest_abi::MEASURED_FILE)))
}

/// Returns the filesystem type and the mount options from the kernel parameters; `None` if they ask for no directory.
fn wanted(parameters: &str) -> Result<Option<(&str, &str)>> {
    let key = guest_abi::SHARE_PARAMETER;
    let Some(word) = parameters.split_whitespace().find_map(|word| word.strip_prefix(key)) else {
        return Ok(None);
    };
    word.split_once(':').map(Some).with_context(|| format!("{key}{word}: accepted: {key}TYPE:OPTIONS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_read_or_quoted() {
        let read = |text| wanted(text).map_err(|error| error.to_string());
        assert_eq!(read("quiet panic=-1"), Ok(None));
        assert_eq!(read("quiet iotax.share=virtiofs:"), Ok(Some(("virtiofs", ""))));
        let options = "trans=virtio,cache=none";
        assert_eq!(read("iotax.share=9p:trans=virtio,cache=none quiet"), Ok(Some(("9p", options))));
        let error = read("iotax.share=9p").expect_err("no options");
        assert!(error.contains("iotax.share=9p: accepted: iotax.share=TYPE:OPTIONS"), "{error}");
    }
}
