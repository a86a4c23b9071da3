//! Which processes use a device or a directory, by /proc.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::facts::text;

/// Processes that have one of these block devices (by their numbers, as `rdev` has them) open for writing.
pub(crate) fn writers(devices: &[u64]) -> Vec<String> {
    users(|process| {
        entries(&process.join("fd")).iter().any(|descriptor| {
            // Only what has its name in /dev is looked at: on a network's filesystem that could take for ever.
            let named = fs::read_link(descriptor).is_ok_and(|path| path.starts_with("/dev"));
            named
                && fs::metadata(descriptor)
                    .is_ok_and(|found| found.file_type().is_block_device() && devices.contains(&found.rdev()))
                && is_for_writing(process, descriptor).unwrap_or(true)
        })
    })
}

/// Processes that stand in a directory or have something below it open.
pub(crate) fn below(directory: &Path) -> Vec<String> {
    users(|process| {
        let places = ["cwd", "root", "exe"].map(|name| process.join(name));
        let mut links = places.into_iter().chain(entries(&process.join("fd")));
        links.any(|link| fs::read_link(link).is_ok_and(|path| path.starts_with(directory)))
    })
}

/// Processes that have a file open.
pub(crate) fn of_file(path: &Path) -> Vec<String> {
    users(|process| {
        let descriptors = entries(&process.join("fd"));
        descriptors.iter().any(|link| fs::read_link(link).is_ok_and(|open| open == path))
    })
}

/// Such as `qemu-system-x86 (process 1234)`. Those that may not be looked at are passed over.
fn users(uses: impl Fn(&Path) -> bool) -> Vec<String> {
    let processes = entries(Path::new("/proc"));
    let numbered = processes.iter().filter_map(|process| {
        let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
        Some((number, process))
    });
    numbered
        .filter(|(number, process)| *number != std::process::id() && uses(process))
        .map(|(number, process)| {
            let name = text(&process.join("comm")).unwrap_or_else(|| "?".to_owned());
            format!("{name} (process {number})")
        })
        .collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// By the flags of open(2), which fdinfo shows in octal; `None` if it does not show them.
fn is_for_writing(process: &Path, descriptor: &Path) -> Option<bool> {
    let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()?)).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(u32::from_str_radix(flags.trim(), 8).ok()? & 3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_in_a_directory_is_named() {
        let temp = tempfile::tempdir().expect("temp dir");
        let directory = temp.path().canonicalize().expect("there");
        assert_eq!(below(&directory), Vec::<String>::new());
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line"])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("started");
        assert_eq!(below(&directory), [format!("sh (process {})", child.id())]);
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
