//! The requirements of tests: [`require!`] for what can be installed, [`skip!`] for what the machine or its kernel lacks, and
//! [`thorough`] for the amount of work.
//!
//! `scripts/setup --tests` installs from the same list, so a test that asks for anything else panics. Where everything on the
//! list was promised (`IOTAX_REQUIRE=all`, as `scripts/test` does on Debian) a test that lacks something fails; elsewhere it
//! prints `skipped:`, its name and the reason.

pub mod nats;
pub mod postgres;
pub mod runs;
pub mod tree;

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The list that `scripts/setup` reads too.
const LIST: &str = include_str!("../../../scripts/requirements");

/// Set to `all` where everything on the list was promised.
const VARIABLE: &str = "IOTAX_REQUIRE";

/// Environment variable that is `all` if tests may take their time.
const TIER: &str = "IOTAX_TESTS";

/// Returns from a test, or from a function that has a default to return, unless this machine has what is named:
/// `program "fio", "busybox"`, `programs LIST`, `kernel "ahci"` (one in /boot that has this module), `guests` (what every guest
/// needs) or `root`.
#[macro_export]
macro_rules! require {
    (program $($name:expr),+) => { $crate::require!(programs &[$($name),+]) };
    (programs $names:expr) => {
        if !$crate::has($crate::RequirementKind::Program, $names) {
            return Default::default();
        }
    };
    (file $($name:expr),+) => {
        if !$crate::has($crate::RequirementKind::File, &[$($name),+]) {
            return Default::default();
        }
    };
    (kernel $($module:expr),+) => {
        if !$crate::has($crate::RequirementKind::Kernel, &[$($module),+]) {
            return Default::default();
        }
    };
    (guests) => {
        $crate::assert_among_guests();
        $crate::require!(program "qemu-system-x86_64", "qemu-img");
        $crate::require!(kernel "virtio_blk");
    };
    (root) => {
        if !$crate::is_root() {
            $crate::skip!("this needs root");
        }
    };
}

/// Returns from a test, or from a function that has a default to return, and says why: words as those of `format!`.
/// For what nobody can install.
#[macro_export]
macro_rules! skip {
    ($($words:tt)+) => {
        return $crate::skipped(format_args!($($words)+))
    };
}

/// Kinds of requirements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementKind {
    /// A program in PATH.
    Program,
    /// A file, by its path.
    File,
    /// A module of a kernel in /boot.
    Kernel,
}

impl RequirementKind {
    fn of(word: &str) -> Self {
        match word {
            "program" => Self::Program,
            "file" => Self::File,
            "kernel" => Self::Kernel,
            _ => panic!("scripts/requirements: {word}: expected program, file or kernel"),
        }
    }

    fn is_there(self, name: &str) -> bool {
        match self {
            Self::Program => find(name).is_some(),
            Self::File => Path::new(name).exists(),
            Self::Kernel => kernel_has(Path::new("/"), name),
        }
    }
}

/// One line of the list.
#[derive(Debug)]
struct Requirement<'a> {
    kind: RequirementKind,
    name: &'a str,
    package: &'a str,
}

/// Parses the lines of a list, except comments. Panics on invalid lines.
fn requirements(list: &str) -> impl Iterator<Item = Requirement<'_>> {
    list.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["demo" | "test", kind, name, package] => {
                Requirement { kind: RequirementKind::of(kind), name, package }
            }
            _ => panic!("scripts/requirements: {line:?}: expected demo or test, a kind, a name, a package"),
        }
    })
}

/// Returns whether this machine has all of these. Prints what is missing, or panics if it was promised.
pub fn has(kind: RequirementKind, names: &[&str]) -> bool {
    let missing: Vec<String> = names
        .iter()
        .map(|name| {
            let listed = requirements(LIST).find(|one| one.kind == kind && one.name == *name);
            listed.unwrap_or_else(|| {
                panic!("{name} is not in scripts/requirements, which tests ask for nothing beyond")
            })
        })
        .filter(|one| !kind.is_there(one.name))
        .map(|one| format!("{} (Debian: {})", one.name, one.package))
        .collect();
    judge(&missing, std::env::var(VARIABLE).ok().as_deref())
}

/// Returns true under `scripts/test --all`: a test that takes samples of many cases goes through all of them, and one that repeats
/// a measurement repeats it more often.
pub fn thorough() -> bool {
    is_thorough(std::env::var(TIER).ok().as_deref())
}

/// Reads the tier's variable; a panic if it is not understood.
fn is_thorough(tier: Option<&str>) -> bool {
    assert!(matches!(tier, None | Some("all")), "{TIER} = {tier:?}: expected \"all\", or nothing");
    tier.is_some()
}

/// Panics in a test that boots a guest but does not say so in its name, by which `scripts/test` selects tests.
pub fn assert_among_guests() {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let binary = std::env::current_exe().ok();
    let is_guest = binary
        .as_deref()
        .and_then(Path::file_name)
        .is_some_and(|name| name.to_string_lossy().starts_with("guest-"));
    // Where there is one CPU a test is the main thread.
    assert!(
        is_guest || name == "main" || name.starts_with("guests::") || name.contains("::guests::"),
        "{name}: a test that boots guests belongs into a module `guests`, or into the test binary `guest`"
    );
}

/// Returns whether nothing is missing; panics where everything was promised.
fn judge(missing: &[String], promised: Option<&str>) -> bool {
    assert!(
        matches!(promised, None | Some("all")),
        "{VARIABLE} = {promised:?}: expected \"all\", or nothing"
    );
    if missing.is_empty() {
        return true;
    }
    let words = format!("missing: {}; run scripts/setup --tests", missing.join(", "));
    assert!(promised.is_none(), "{words}");
    skipped::<()>(words);
    false
}

/// Says that the current test, or a part of it, is skipped, and why.
pub fn skipped<T: Default>(reason: impl Display) -> T {
    let thread = std::thread::current();
    // One line: scripts/test looks for them.
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {}: {reason}", thread.name().unwrap_or("a test"));
    T::default()
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The file of a program that a test required before.
pub fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not in PATH: require!(program {name:?}) first"))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Returns whether a kernel in /boot has a module, as a file or built in.
fn kernel_has(root: &Path, module: &str) -> bool {
    let images = std::fs::read_dir(root.join("boot")).into_iter().flatten().flatten();
    let releases = images.filter_map(|image| {
        Some(root.join("lib/modules").join(image.file_name().to_str()?.strip_prefix("vmlinuz-")?))
    });
    let object = format!("/{module}.ko");
    releases.flat_map(|modules| ["modules.dep", "modules.builtin"].map(|index| modules.join(index))).any(
        |index| {
            let text = std::fs::read_to_string(index).unwrap_or_default();
            // `kernel/drivers/ata/ahci.ko.xz: kernel/drivers/ata/libahci.ko.xz`: what is before the colon is there.
            text.lines().filter_map(|line| line.split(':').next()).any(|file| file.contains(&object))
        },
    )
}

#[cfg(test)]
mod tests;
