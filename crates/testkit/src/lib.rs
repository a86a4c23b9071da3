//! Requirements of tests: [`require!`] for programs, files and kernel modules that can be installed, [`skip!`] for limits of the machine or
//! its kernel, and [`thorough`] for tests that take longer under `scripts/test --all`.
//!
//! `scripts/setup --tests` installs everything in `scripts/requirements`; a test that requires anything else panics. If a requirement is
//! missing, the test prints `skipped:`, its name and the reason. With `IOTAX_REQUIRE=all`, as `scripts/test` sets it on Debian, it fails
//! instead.

pub mod documents;
pub mod flash;
pub mod nats;
pub mod postgres;
pub mod runs;
pub mod tree;

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The list of requirements, which `scripts/setup` reads too.
const LIST: &str = include_str!("../../../scripts/requirements");

/// Environment variable: with the value `all`, a missing requirement fails the test instead of skipping it.
const VARIABLE: &str = "IOTAX_REQUIRE";

/// Environment variable: with the value `all`, tests run more cases and repeat measurements more often.
const TIER: &str = "IOTAX_TESTS";

/// Skips the test unless this machine has the required programs, files, kernel modules or privileges: the calling function then returns its
/// default value. With `IOTAX_REQUIRE=all`, panics instead, except for `root`.
///
/// Forms: `program "fio", "busybox"`, `programs LIST`, `file "/path"`, `files LIST`, `kernel "ahci"` (a kernel in /boot with this module),
/// `guests` (QEMU and a kernel with virtio_blk) and `root`.
#[macro_export]
macro_rules! require {
    (program $($name:expr),+) => { $crate::require!(programs &[$($name),+]) };
    (programs $names:expr) => {
        if !$crate::has($crate::RequirementKind::Program, $names) {
            return Default::default();
        }
    };
    (file $($name:expr),+) => { $crate::require!(files &[$($name),+]) };
    (files $names:expr) => {
        if !$crate::has($crate::RequirementKind::File, $names) {
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

/// Skips the test with a reason, given like the arguments of `format!`. Returns the default value of the calling function. Use it for
/// limits of the machine that no package removes.
#[macro_export]
macro_rules! skip {
    ($($words:tt)+) => {
        return $crate::skipped(format_args!($($words)+))
    };
}

/// Type of a requirement in `scripts/requirements`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementKind {
    /// A program, by its name in PATH.
    Program,
    /// A file or directory, by its absolute path.
    File,
    /// A kernel module, loadable or built in, of any kernel in /boot.
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

/// A line of `scripts/requirements`.
#[derive(Debug)]
struct Requirement<'a> {
    kind: RequirementKind,
    name: &'a str,
    package: &'a str,
}

/// Parses `scripts/requirements`, skipping lines that start with `#`. Panics on an invalid line.
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

/// Returns true if this machine has all `names`. Otherwise prints the missing ones and returns false, or panics with `IOTAX_REQUIRE=all`.
/// Panics if a name is not in `scripts/requirements`.
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

/// Returns true under `scripts/test --all`, where tests cover all cases instead of a sample and repeat measurements more often.
pub fn thorough() -> bool {
    is_thorough(std::env::var(TIER).ok().as_deref())
}

/// Parses the value of `IOTAX_TESTS`: `all` means thorough, no value means quick. Panics on any other value.
fn is_thorough(tier: Option<&str>) -> bool {
    assert!(matches!(tier, None | Some("all")), "{TIER} = {tier:?}: expected \"all\", or nothing");
    tier.is_some()
}

/// Panics if the calling test, which boots a guest, is neither in a module `guests` nor in the test binary `guest`: `scripts/test` selects
/// tests by these names.
pub fn assert_among_guests() {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let binary = std::env::current_exe().ok();
    let is_guest = binary
        .as_deref()
        .and_then(Path::file_name)
        .is_some_and(|name| name.to_string_lossy().starts_with("guest-"));
    // With a single CPU, tests run on the main thread.
    assert!(
        is_guest || name == "main" || name.starts_with("guests::") || name.contains("::guests::"),
        "{name}: a test that boots guests belongs into a module `guests`, or into the test binary `guest`"
    );
}

/// Returns true if `missing` is empty. Otherwise prints `skipped:` and returns false; panics instead if `promised`, the value of
/// `IOTAX_REQUIRE`, is `all`.
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

/// Prints `skipped:`, the name of the current test and the reason in one line. Returns the default value.
pub fn skipped<T: Default>(reason: impl Display) -> T {
    let thread = std::thread::current();
    // One line, because scripts/test searches the output for these lines.
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {}: {reason}", thread.name().unwrap_or("a test"));
    T::default()
}

/// Returns true if the effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the path of a program in PATH. Panics if it is missing: call [`require!`] first.
pub fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not in PATH: require!(program {name:?}) first"))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Returns true if any kernel in /boot has the module, loadable or built in. Looks below `root`.
fn kernel_has(root: &Path, module: &str) -> bool {
    let images = std::fs::read_dir(root.join("boot")).into_iter().flatten().flatten();
    let releases = images.filter_map(|image| {
        Some(root.join("lib/modules").join(image.file_name().to_str()?.strip_prefix("vmlinuz-")?))
    });
    let object = format!("/{module}.ko");
    releases.flat_map(|modules| ["modules.dep", "modules.builtin"].map(|index| modules.join(index))).any(
        |index| {
            let text = std::fs::read_to_string(index).unwrap_or_default();
            // The text before the colon is the installed module; the dependencies after the colon need not be installed.
            text.lines().filter_map(|line| line.split(':').next()).any(|file| file.contains(&object))
        },
    )
}

#[cfg(test)]
mod tests;
