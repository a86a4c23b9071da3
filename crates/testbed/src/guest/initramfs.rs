//! Builds the guest's initramfs: the iotax binary as /init, kernel modules, and mkfs if needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, trailer};
use iotax_model::guest_abi::{MODULES_DIR, MODULES_LIST, MOUNT_POINT};
use iotax_model::target::{GuestSpec, PlannedDevice};

use super::kernel::Kernel;
use super::mkfs::{self, GuestFile};
use super::modules::{self, Module, ModulesError};
use crate::program::ProgramError;

/// Page size in bytes; the archive is padded to whole pages. QEMU loads the archive as close to the end of a microvm's memory as page
/// alignment allows. The firmware keeps its ACPI tables (under 1 KiB) at that end. With whole pages, one page remains for the tables.
const PAGE: usize = 4096;

/// An error while building the initramfs.
#[derive(Debug, thiserror::Error)]
pub enum InitramfsError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The binary cannot be the guest's /init: it is not a static x86-64 ELF program.
    #[error("{}: {reason}; build it with `cargo build --release`, whose binary is static", path.display())]
    Binary {
        /// Path of the binary.
        path: PathBuf,
        /// Reason why the binary cannot be used.
        reason: String,
    },
    /// A kernel module is missing or cannot be read.
    #[error(transparent)]
    Modules(#[from] ModulesError),
    /// The mkfs program is missing, or its libraries cannot be listed.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Builds the initramfs around `binary`, usually the running program, and writes it to the new file `to`.
pub fn write(
    to: &Path,
    binary: &Path,
    kernel: &Kernel,
    spec: &GuestSpec,
    device: PlannedDevice<'_>,
) -> Result<(), InitramfsError> {
    let filesystem = spec.filesystem.filter(|_| device == PlannedDevice::Disk);
    let programs = filesystem.map_or(Ok(Vec::new()), mkfs::files)?;
    write_with(to, binary, kernel, &modules::needed(spec, device), &programs)
}

/// Builds the initramfs of a Xen domain as [`write()`] does for a guest.
pub fn write_for_domain(to: &Path, binary: &Path, kernel: &Kernel) -> Result<(), InitramfsError> {
    write_with(to, binary, kernel, &modules::IN_DOMAIN, &[])
}

fn write_with(
    to: &Path,
    binary: &Path,
    kernel: &Kernel,
    modules: &[&str],
    guest_files: &[GuestFile],
) -> Result<(), InitramfsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InitramfsError::Io { path, source }
    };
    let program = fs::read(binary).map_err(failed(binary))?;
    let init = static_program(program)
        .map_err(|reason| InitramfsError::Binary { path: binary.to_owned(), reason: reason.into() })?;
    let modules = modules::load(&kernel.modules, modules)?;
    let mut programs = Vec::new();
    for GuestFile { from, to } in guest_files {
        programs.push((to.clone(), fs::read(from).map_err(failed(from))?));
    }
    let archive = archive(&init, &modules, &programs).map_err(failed(to))?;
    fs::File::create_new(to).and_then(|mut file| file.write_all(&archive)).map_err(failed(to))
}

/// Builds a cpio archive in newc format. `programs` are paths in the guest and file contents.
fn archive(init: &[u8], modules: &[Module], programs: &[(PathBuf, Vec<u8>)]) -> io::Result<Vec<u8>> {
    const DIRECTORY: u32 = 0o040_755;
    const CONSOLE: u32 = 0o020_600;
    const PROGRAM: u32 = 0o100_755;
    const FILE: u32 = 0o100_644;
    let modules_dir = &inside(MODULES_DIR);
    let mut out = Vec::new();
    let mut number = 0;
    let mut entry = |name: &str, mode: u32, content: &[u8]| {
        number += 1;
        let mut entry = Builder::new(name).ino(number).mode(mode);
        if mode == CONSOLE {
            entry = entry.rdev_major(5).rdev_minor(1);
        }
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut entry = entry.write(&mut out, length);
        entry.write_all(content)?;
        entry.finish().map(drop)
    };
    let parents = programs.iter().flat_map(|(path, _)| path.ancestors().skip(1)).map(inside);
    let mut directories: BTreeSet<String> = parents.filter(|name| !name.is_empty()).collect();
    directories.extend(["dev", "proc", "sys", "tmp", MOUNT_POINT, MODULES_DIR].map(inside));
    for directory in &directories {
        entry(directory, DIRECTORY, &[])?;
    }
    // The kernel opens it as stdin, stdout and stderr of /init, before any mount.
    entry("dev/console", CONSOLE, &[])?;
    entry("init", PROGRAM, init)?;
    let mut list = String::new();
    for module in modules {
        entry(&format!("{modules_dir}/{}.ko", module.name), FILE, &module.object)?;
        list.extend([module.name.as_str(), ".ko\n"]);
    }
    entry(&format!("{modules_dir}/{MODULES_LIST}"), FILE, list.as_bytes())?;
    for (path, content) in programs {
        entry(&inside(path), PROGRAM, content)?;
    }
    trailer(&mut out)?;
    out.resize(out.len().next_multiple_of(PAGE), 0);
    Ok(out)
}

/// Returns the path in the archive, which has no leading slash.
fn inside(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().trim_start_matches('/').to_owned()
}

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const DAMAGED: &str = "is a damaged ELF program";

/// Rejects a program that is not a static x86-64 ELF program. Truncates the program after its loaded segments, which removes symbols and
/// debug information.
fn static_program(mut program: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    // 64-bit, little-endian, x86-64. Offsets are from the ELF-64 object file format.
    if program.len() < HEADER || !program.starts_with(b"\x7fELF\x02\x01") || program[18..20] != [62, 0] {
        return Err("is not an x86-64 ELF program");
    }
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes)
    };
    let table = number(&program, 32).and_then(|at| usize::try_from(at).ok()).ok_or(DAMAGED)?;
    let count = usize::from(u16::from_le_bytes([program[56], program[57]]));
    let headers =
        table.checked_add(count * PROGRAM_HEADER).and_then(|end| program.get(table..end)).ok_or(DAMAGED)?;
    let mut end = HEADER.max(table + count * PROGRAM_HEADER);
    for header in headers.chunks_exact(PROGRAM_HEADER) {
        if header[..4] == 3_u32.to_le_bytes() {
            return Err("needs a dynamic linker, which a guest does not have");
        }
        let segment = number(header, 8).zip(number(header, 32)).and_then(|(at, size)| at.checked_add(size));
        let segment = segment.and_then(|end| usize::try_from(end).ok()).ok_or(DAMAGED)?;
        end = end.max(segment);
    }
    if end > program.len() {
        return Err(DAMAGED);
    }
    program.truncate(end);
    // Removes the section headers: their offset, number and the index of their names.
    program[40..48].fill(0);
    program[60..64].fill(0);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    /// Returns a program with one segment of this type that ends at byte 200, and 100 bytes of debug information.
    fn program(segment: u32) -> Vec<u8> {
        let mut elf = vec![0; 300];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = 62;
        elf[32..40].copy_from_slice(&64_u64.to_le_bytes());
        elf[40..48].copy_from_slice(&250_u64.to_le_bytes());
        elf[56] = 1;
        elf[60] = 7;
        elf[64..68].copy_from_slice(&segment.to_le_bytes());
        elf[72..80].copy_from_slice(&150_u64.to_le_bytes());
        elf[96..104].copy_from_slice(&50_u64.to_le_bytes());
        elf
    }

    #[test]
    fn a_static_program_is_cut_to_what_is_loaded() {
        let cut = static_program(program(1)).expect("static");
        assert_eq!(cut.len(), 200);
        assert_eq!((&cut[40..48], &cut[60..64]), (&[0; 8][..], &[0; 4][..]));
    }

    #[test]
    fn a_program_whose_table_is_empty_keeps_its_header() {
        let mut elf = program(1);
        elf[32] = 8;
        elf[56] = 0;
        assert_eq!(static_program(elf).expect("static").len(), HEADER);
    }

    #[test]
    fn what_cannot_run_alone_is_refused() {
        let mut too_long = program(1);
        too_long[96..104].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut table_outside = program(1);
        table_outside[32..40].copy_from_slice(&(u64::MAX - 3).to_le_bytes());
        for (bad, word) in [
            (program(3), "dynamic linker"),
            (b"#!/bin/sh".to_vec(), "not an x86-64 ELF"),
            (Vec::new(), "not an x86-64 ELF"),
            (program(1)[..100].to_vec(), "damaged"),
            (program(1)[..180].to_vec(), "damaged"),
            (too_long, "damaged"),
            (table_outside, "damaged"),
        ] {
            assert!(static_program(bad).expect_err(word).contains(word));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(patches in prop::collection::vec((0_usize..300, any::<u8>()), 0..40), length in 0_usize..=300) {
            let mut elf = program(1);
            patches.iter().for_each(|(at, byte)| elf[*at] = *byte);
            elf.truncate(length);
            if let Ok(cut) = static_program(elf) {
                prop_assert!(cut.len() <= length);
            }
        }
    }

    #[test]
    fn the_archive_holds_init_the_modules_and_nothing_else() {
        let modules = [("virtio_ring", "one"), ("virtio_blk", "three")]
            .map(|(name, object)| Module { name: name.into(), object: object.into() });
        let programs = [("/sbin/mkfs.ext4", "five"), ("/lib/libc.so.6", "six")]
            .map(|(path, content)| (PathBuf::from(path), content.into()));
        let archive = archive(b"program", &modules, &programs).expect("built");
        assert_eq!(archive.len() % 4096, 0, "QEMU would lay it over a microvm's ACPI tables");
        let mut rest = archive.as_slice();
        let mut seen = Vec::new();
        loop {
            let mut reader = cpio::newc::Reader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = String::new();
            reader.read_to_string(&mut content).expect("text");
            let entry = reader.entry();
            seen.push(format!(
                "{:o} {} {}:{} {content:?}",
                entry.mode(),
                entry.name(),
                entry.rdev_major(),
                entry.rdev_minor()
            ));
            rest = reader.finish().expect("next");
        }
        insta::assert_snapshot!(seen.join("\n"), @r#"
        40755 dev 0:0 ""
        40755 disk 0:0 ""
        40755 lib 0:0 ""
        40755 modules 0:0 ""
        40755 proc 0:0 ""
        40755 sbin 0:0 ""
        40755 sys 0:0 ""
        40755 tmp 0:0 ""
        20600 dev/console 5:1 ""
        100755 init 0:0 "program"
        100644 modules/virtio_ring.ko 0:0 "one"
        100644 modules/virtio_blk.ko 0:0 "three"
        100644 modules/list 0:0 "virtio_ring.ko\nvirtio_blk.ko\n"
        100755 sbin/mkfs.ext4 0:0 "five"
        100755 lib/libc.so.6 0:0 "six"
        "#);
    }

    #[test]
    fn the_file_is_new_and_errors_name_their_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh").expect("written");
        let kernel = Kernel { image: "/k".into(), modules: dir.path().into() };
        let to = dir.path().join("initramfs");
        let error = write(&to, &script, &kernel, &GuestSpec::default(), PlannedDevice::Disk)
            .expect_err("no ELF")
            .to_string();
        assert!(error.contains("script") && error.contains("cargo build --release"), "{error}");
        assert!(
            write(&to, Path::new("/no/binary"), &kernel, &GuestSpec::default(), PlannedDevice::Disk)
                .expect_err("absent")
                .to_string()
                .contains("/no/binary")
        );
        assert!(!to.exists());
    }
}
