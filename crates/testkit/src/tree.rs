//! Builds directory trees that imitate /proc and /sys, from a text.
//!
//! Each line is one entry: `path = content` is a file (`\n` in the content is a newline, `\x00` a byte in hexadecimal), `path -> target` a
//! symbolic link, `path/` a directory. Empty lines and lines that start with `#` are ignored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

/// Creates the tree described by `recorded` in a new temporary directory.
pub fn build(recorded: &str) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary directory");
    let lines = recorded.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.for_each(|line| add(root.path(), line));
    root
}

/// Creates the file, link or directory that one line of the text describes. Panics on any other line.
pub fn add(root: &Path, line: &str) {
    if let Some((path, content)) = line.split_once(" = ") {
        write(root, path, &content.replace("\\n", "\n"));
    } else if let Some((path, target)) = line.split_once(" -> ") {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("created");
        symlink(target, path).expect("linked");
    } else {
        assert!(line.ends_with('/'), "neither file, link nor directory: {line:?}");
        fs::create_dir_all(root.join(line)).expect("created");
    }
}

/// Removes a file or link from a tree, and then its parent directories as long as they are empty.
pub fn remove(root: &Path, path: &str) {
    let path = root.join(path);
    fs::remove_file(&path).expect("removed");
    for directory in path.ancestors().skip(1).take_while(|directory| *directory != root) {
        if fs::remove_dir(directory).is_err() {
            break;
        }
    }
}

/// Writes a file of a tree, with a newline after `content`, in which `\x00` is a byte in hexadecimal. An existing file keeps its inode, so
/// that open handles see the new content, as in /proc.
pub fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("created");
    let mut bytes = bytes(content);
    bytes.push(b'\n');
    fs::write(path, bytes).expect("written");
}

/// Decodes the hexadecimal escapes `\x00` in a file's content.
fn bytes(content: &str) -> Vec<u8> {
    let mut parts = content.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}
