//! Finds a kernel for guests and its modules.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::modules;

/// A kernel image for guests and the directory of its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Path of the kernel image, a bzImage.
    pub image: PathBuf,
    /// Directory of the kernel's modules, which contains `modules.dep`.
    pub modules: PathBuf,
}

/// An error while looking for a kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// /boot has no readable kernel whose modules are installed.
    #[error(
        "no kernel for guests: {}/vmlinuz-* has none with its modules in {}{unreadable}; install one \
         (Debian: apt-get install linux-image-cloud-amd64) or name one with --kernel and --modules",
        boot.display(),
        modules.display()
    )]
    None {
        /// Directory that was searched for kernel images.
        boot: PathBuf,
        /// Directory that was searched for modules.
        modules: PathBuf,
        /// The last image that this user cannot read, with the error, as text for the message; empty if all images are readable.
        unreadable: String,
    },
    /// The kernel image given with --kernel cannot be opened.
    #[error("--kernel {}: {source}", path.display())]
    Unreadable {
        /// Path of the kernel image, as given.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The module directory of the kernel given with --kernel has no `modules.dep`.
    #[error(
        "{} has no modules.dep; name the directory of this kernel's modules with --modules (as in /lib/modules/6.1.0-9-amd64)",
        path.display()
    )]
    NoModules {
        /// Path of the module directory.
        path: PathBuf,
    },
}

impl Kernel {
    /// Finds a kernel for guests: the given one, else the running one (`release`, as from `uname -r`), else the newest in /boot whose
    /// modules are installed. `root` is `/` outside of tests.
    pub fn find(
        root: &Path,
        release: &str,
        kernel: Option<&Path>,
        modules: Option<&Path>,
    ) -> Result<Self, KernelError> {
        Self::find_with(root, release, kernel, modules, &[])
    }

    /// Finds a kernel as [`Self::find`] does, but prefers one that has the modules `needed`, unless a kernel is given.
    pub fn find_with(
        root: &Path,
        release: &str,
        kernel: Option<&Path>,
        modules: Option<&Path>,
        needed: &[&str],
    ) -> Result<Self, KernelError> {
        let all_modules = root.join("lib/modules");
        if let Some(image) = kernel {
            let unreadable = |source| KernelError::Unreadable { path: image.to_owned(), source };
            File::open(image).map_err(unreadable)?;
            let modules = modules
                .map_or_else(|| all_modules.join(release_of(image).unwrap_or("unknown")), Path::to_owned);
            return Self { image: image.to_owned(), modules }.with_modules();
        }
        let boot = root.join("boot");
        let mut releases: Vec<String> = fs::read_dir(&boot)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| release_of(&entry.path()).map(str::to_owned))
            .collect();
        releases.sort_by_cached_key(|name| (name == release, version_key(name)));
        let (mut unreadable, mut first) = (String::new(), None);
        for name in releases.into_iter().rev() {
            let image = boot.join(format!("vmlinuz-{name}"));
            let directory = modules.map_or_else(|| all_modules.join(&name), Path::to_owned);
            let Ok(candidate) = (Self { image, modules: directory }).with_modules() else { continue };
            match File::open(&candidate.image) {
                Ok(_) if modules::check(&candidate.modules, needed).is_ok() => return Ok(candidate),
                Ok(_) => first = first.or(Some(candidate)),
                Err(error) => unreadable = format!(" ({}: {error})", candidate.image.display()),
            }
        }
        first.ok_or(KernelError::None { boot, modules: all_modules, unreadable })
    }

    /// Returns the kernel release in the image's file name, such as `6.1.0-9-cloud-amd64`; `None` for other file names.
    #[must_use]
    pub fn release(&self) -> Option<&str> {
        release_of(&self.image)
    }

    fn with_modules(self) -> Result<Self, KernelError> {
        if self.modules.join("modules.dep").is_file() {
            Ok(self)
        } else {
            Err(KernelError::NoModules { path: self.modules })
        }
    }
}

fn release_of(image: &Path) -> Option<&str> {
    image.file_name()?.to_str()?.strip_prefix("vmlinuz-")
}

/// Returns a sort key for kernel releases, in which runs of digits compare as numbers: 6.1.0-9 comes before 6.1.0-56.
fn version_key(release: &str) -> Vec<(u64, String)> {
    let mut key: Vec<(u64, String)> = Vec::new();
    let mut rest = release;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let words = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (word, after) = after.split_at(words);
        key.push((number.parse().unwrap_or(0), word.to_owned()));
        rest = after;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(images: &[&str], modules: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("boot")).expect("made");
        for image in images {
            fs::write(root.path().join(format!("boot/vmlinuz-{image}")), "").expect("written");
        }
        for release in modules {
            let dir = root.path().join("lib/modules").join(release);
            fs::create_dir_all(&dir).expect("made");
            fs::write(dir.join("modules.dep"), "").expect("written");
        }
        root
    }

    fn found(root: &Path, running: &str) -> String {
        Kernel::find(root, running, None, None).expect("found").release().expect("named").to_owned()
    }

    #[test]
    fn the_running_kernel_comes_first_then_the_newest() {
        let all = ["6.1.0-9-amd64", "6.1.0-56-cloud-amd64", "5.10.0-30-amd64", "6.10.1-amd64"];
        let root = tree(&all, &all);
        assert_eq!(found(root.path(), "5.10.0-30-amd64"), "5.10.0-30-amd64");
        assert_eq!(found(root.path(), "4.4.0"), "6.10.1-amd64");
    }

    #[test]
    fn a_kernel_without_its_modules_is_passed_over() {
        let root =
            tree(&["6.1.0-9-amd64", "6.1.0-56-amd64", "6.2.0-1-amd64"], &["6.1.0-9-amd64", "6.1.0-56-amd64"]);
        assert_eq!(found(root.path(), "6.2.0-1-amd64"), "6.1.0-56-amd64");
    }

    #[test]
    fn no_kernel_names_the_package() {
        let root = tree(&["6.1.0-9-amd64"], &[]);
        let error = Kernel::find(root.path(), "6.1.0-9-amd64", None, None).expect_err("none").to_string();
        assert!(error.contains("linux-image-cloud-amd64") && error.contains("--kernel"), "{error}");
    }

    #[test]
    fn a_named_kernel_is_taken_or_refused_by_name() {
        let root = tree(&["6.1.0-9-amd64", "6.2.0-1-amd64"], &["6.1.0-9-amd64"]);
        let image = root.path().join("boot/vmlinuz-6.1.0-9-amd64");
        let kernel = Kernel::find(root.path(), "6.2.0-1-amd64", Some(&image), None).expect("found");
        assert!(kernel.modules.ends_with("lib/modules/6.1.0-9-amd64"));

        let without = root.path().join("boot/vmlinuz-6.2.0-1-amd64");
        let error = Kernel::find(root.path(), "", Some(&without), None).expect_err("no modules").to_string();
        assert!(error.contains("6.2.0-1-amd64") && error.contains("--modules"), "{error}");
        let with =
            Kernel::find(root.path(), "", Some(&without), Some(&kernel.modules)).expect("modules named");
        assert_eq!(with.modules, kernel.modules);

        let error = Kernel::find(root.path(), "", Some(Path::new("/no/kernel")), None).expect_err("absent");
        assert!(error.to_string().contains("/no/kernel"));
    }
}
