//! The disk and the console of a Xen domain.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iotax_model::guest_abi;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::{appearing, present};

/// The kernel's log levels. The first is the console's.
const PRINTK: &str = "/proc/sys/kernel/printk";

/// Waits for the disk, which has no serial number.
pub(super) fn find_disk() -> Result<PathBuf> {
    let disk = Path::new("/dev").join(guest_abi::XEN_DISK);
    appearing(|| Some(disk.clone()))
        .with_context(|| format!("there is no {}; {}", disk.display(), present("/sys/block")))
}

/// Prepares the console for the agent: the kernel no longer prints there, and every byte passes unchanged. Then writes
/// the marker that announces the agent.
pub(super) fn open_console() -> Result<File> {
    fs::write(PRINTK, "1").context(PRINTK)?;
    let path = guest_abi::XEN_CONSOLE;
    let mut console = File::options().read(true).write(true).open(path).context(path)?;
    let mut settings = tcgetattr(&console).context(path)?;
    settings.make_raw();
    tcsetattr(&console, OptionalActions::Drain, &settings).context(path)?;
    writeln!(console, "{}", guest_abi::LISTENS_MARKER).context(path)?;
    Ok(console)
}
