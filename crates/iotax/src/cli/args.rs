//! Flags that several commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use iotax_model::exit::Exit;
use iotax_model::target::Accel;
use iotax_results::store::Store;

use super::{Failure, OrExit, usage};
use crate::conduct::GuestOptions;

/// Where results go.
#[derive(Debug, Clone, Args)]
pub(super) struct Output {
    /// Store of runs [default: iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    pub(super) db: Option<PathBuf>,
    /// Write the results as JSON; - is stdout, which then carries nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl Output {
    /// Whether stdout is for JSON alone.
    pub(super) fn json_on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// Opens the store, making its directory if it is missing.
    pub(super) fn store(&self) -> Result<Store, Failure> {
        let path = match &self.db {
            Some(path) => path.clone(),
            None => directories()?.data_dir().join("iotax.db"),
        };
        if self.db.is_none()
            && let Some(dir) = path.parent()
        {
            std::fs::create_dir_all(dir)
                .map_err(|error| anyhow::anyhow!("{}: {error}", dir.display()))
                .or_exit(Exit::Environment)?;
        }
        Store::open(&path).or_exit(Exit::Environment)
    }
}

/// How a command that measures behaves.
#[derive(Debug, Clone, Args)]
pub(super) struct Conduct {
    /// Ask nothing
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Decides order, offsets and payload [default: random]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
}

/// What guests are booted with.
#[derive(Debug, Clone, Args)]
pub(super) struct Guest {
    /// What runs guests: auto, kvm or tcg
    #[arg(long, default_value = "auto")]
    accel: Accel,
    /// Kernel for guests [default: the running one's, else the newest in /boot that has its modules]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Module directory of that kernel [default: /lib/modules/RELEASE]
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
}

impl Guest {
    pub(super) fn options(&self) -> GuestOptions {
        GuestOptions { accel: Some(self.accel), kernel: self.kernel.clone(), modules: self.modules.clone() }
    }
}

/// The user's directories for iotax.
fn directories() -> Result<directories::ProjectDirs, Failure> {
    directories::ProjectDirs::from("", "", "iotax").ok_or_else(|| {
        usage("no home directory is known: set HOME, or give --db FILE and set XDG_STATE_HOME")
    })
}

/// Where undo ledgers are kept.
pub(super) fn ledger_dir() -> Result<PathBuf, Failure> {
    let dirs = directories()?;
    Ok(dirs.state_dir().unwrap_or_else(|| dirs.data_dir()).join("undo"))
}
