//! Finds the host's mkfs program and its libraries, to be copied into a guest.

use std::path::{Path, PathBuf};

use iotax_model::guest_abi::MKFS;
use iotax_model::target::GuestFs;

use crate::program::{Program, ProgramError};

const LDD: Program = Program { name: "ldd", package: "libc-bin" };

/// A file to copy from the host into the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Path of the file on the host.
    pub from: PathBuf,
    /// Absolute path of the copy in the guest.
    pub to: PathBuf,
}

/// Returns the host's mkfs program for a type of filesystem, and its package.
#[must_use]
pub const fn program(kind: GuestFs) -> Program {
    match kind {
        GuestFs::Ext4 => Program { name: "mkfs.ext4", package: "e2fsprogs" },
        GuestFs::Xfs => Program { name: "mkfs.xfs", package: "xfsprogs" },
    }
}

/// Returns the files that a guest needs to run mkfs: the program, under the fixed name that PID 1 executes, and its libraries under their
/// own paths.
pub fn files(kind: GuestFs) -> Result<Vec<GuestFile>, ProgramError> {
    let program = program(kind).path()?;
    let libraries = libraries(&String::from_utf8_lossy(&LDD.run([&program])?));
    let program = GuestFile { from: program, to: Path::new(MKFS).to_owned() };
    let libraries = libraries.into_iter().map(|path| GuestFile { from: path.clone(), to: path });
    Ok([program].into_iter().chain(libraries).collect())
}

/// Returns the paths of the libraries and of the dynamic linker in the output of `ldd`; empty for a static program.
fn libraries(ldd: &str) -> Vec<PathBuf> {
    ldd.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_linker_are_told_from_what_the_kernel_provides() {
        let text = "\tlinux-vdso.so.1 (0x00007f84dcf34000)\n\tlibuuid.so.1 => /lib/x86_64-linux-gnu/libuuid.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f84dcf36000)\n";
        let expected =
            ["/lib/x86_64-linux-gnu/libuuid.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(text), expected);
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
