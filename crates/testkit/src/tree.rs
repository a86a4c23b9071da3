//! Recorded trees of /proc and /sys in text form.
//!
//! One entry per line: `path = content` is a file (`\n` in the content is a newline), `path -> target` a
//! symbolic link, `path/` a directory. Empty lines and lines that start with `#` are ignored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

/// Creates a recorded tree in a new directory.
pub fn build(recorded: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary directory");
    for line in recorded.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((path, content)) = line.split_once(" = ") {
            write(root.path(), path, &content.replace("\\n", "\n"));
        } else if let Some((path, target)) = line.split_once(" -> ") {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("created");
            symlink(target, path).expect("linked");
        } else {
            assert!(line.ends_with('/'), "neither file, link nor directory: {line:?}");
            fs::create_dir_all(root.path().join(line)).expect("created");
        }
    }
    root
}

/// Writes one file of a tree, in place if it exists, so that open handles see the change as in /proc.
pub fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("created");
    fs::write(path, format!("{content}\n")).expect("written");
}
