//! Checks the consistency of an image with `qemu-img check`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use iotax_model::crash::ImageCondition;
use iotax_model::target::Format;
use serde::Deserialize;

use super::image::{self, ImageError};
use crate::interrupt::Interrupt;
use crate::program;

/// Error counts in the output of `qemu-img check`; 0 for those that are missing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Checked {
    check_errors: u64,
    corruptions: u64,
    leaks: u64,
}

/// Checks an image that is not in use, without changing it. Formats that QEMU cannot check are reported as unchecked.
///
/// # Errors
/// qemu-img cannot be run. An image that qemu-img cannot read counts as damaged.
pub fn check(path: &Path, format: Format) -> Result<ImageCondition, ImageError> {
    if !matches!(format, Format::Qcow2 | Format::Vmdk | Format::Vhdx | Format::Vdi | Format::Parallels) {
        return Ok(ImageCondition::Unchecked);
    }
    let failed = |reason: String| ImageError::Failed { path: path.to_owned(), action: "check", reason };
    let mut command = Command::new("qemu-img");
    command.args(["check", "--output=json"]).args(image::opened(path, format));
    command.stdin(Stdio::null()).process_group(0);
    let output = program::output_within(&mut command, &Interrupt::default(), program::PATIENCE)
        .map_err(|error| failed(error.to_string()))?;
    let checked: Option<Checked> = serde_json::from_slice(&output.stdout).ok();
    Ok(match checked {
        None => ImageCondition::Damaged(1),
        Some(Checked { check_errors: 0, corruptions: 0, leaks: 0 }) => ImageCondition::Sound,
        Some(Checked { check_errors: 0, corruptions: 0, leaks }) => ImageCondition::Leaks(leaks),
        Some(Checked { check_errors, corruptions, .. }) => {
            ImageCondition::Damaged(check_errors + corruptions)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_image_is_told_from_a_damaged_one_and_from_one_that_has_no_tables() {
        iotax_testkit::require!(program "qemu-img");
        let temp = tempfile::tempdir().expect("temp dir");
        let path = temp.path().join("image");
        let condition = |format| check(&path, format).expect("checked");
        let luks = format!(",encrypt.format=luks,encrypt.iter-time=10,encrypt.key-secret={}", image::SECRET);
        for more in [&luks, ""] {
            let options = format!("preallocation=metadata{more}");
            let mut create = Command::new("qemu-img");
            create.args(["create", "-q", "--object", &image::secret_option(), "-f", "qcow2", "-o", &options]);
            assert!(create.arg(&path).arg("4m").status().expect("started").success());
            assert_eq!(condition(Format::Qcow2), ImageCondition::Sound, "{options}");
        }
        assert_eq!(condition(Format::Raw), ImageCondition::Unchecked);
        // The reference counts are in the second cluster at the latest.
        let mut image = std::fs::read(&path).expect("read");
        image[64 << 10..192 << 10].fill(0);
        std::fs::write(&path, &image).expect("written");
        assert!(
            matches!(condition(Format::Qcow2), ImageCondition::Damaged(_)),
            "{:?}",
            condition(Format::Qcow2)
        );
        std::fs::write(&path, b"no image").expect("written");
        assert_eq!(condition(Format::Qcow2), ImageCondition::Damaged(1));
    }
}
