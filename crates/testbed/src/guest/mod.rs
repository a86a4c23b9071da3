//! QEMU guests: boot, image swaps, shutdown.
//!
//! A guest is a QEMU process with one disk, network card or directory of the host and one agent, which is reached through a virtio-serial
//! port. All sockets and logs are in its run directory. The marker in `-name` identifies the process.

pub mod accel;
pub mod blockstats;
pub mod capabilities;
pub mod command;
pub mod directory;
pub mod disk;
mod escape;
pub mod image;
pub mod image_check;
pub mod initramfs;
pub mod kernel;
pub mod memory;
pub mod mkfs;
pub mod modules;
pub mod nic;
pub mod operation;
pub(crate) mod passt;
pub(crate) mod process;
pub mod qmp;
pub(crate) mod virtiofsd;
pub mod vmlinux;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iotax_model::guest_abi;
use iotax_model::target::{Accel, Bus, Format, GuestSpec};
use iotax_model::units::Bytes;
use iotax_model::wire::AgentHello;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client::{AgentClient, AgentError};
use crate::export::StorageDaemon;
use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::refusal::Refusal;
use blockstats::BlockCounters;
use directory::{DirectoryServer, GuestDirectory};
use disk::DiskChain;
use image::{ChainImage, DevicePart, ImageError};
use kernel::Kernel;
use nic::{Backend, NicBackend};
use operation::{DiskUser, OperationFiles, Operator};
use passt::Passt;
use process::{QemuProcess, Signs};
pub use process::{find_qemu, qemu_version};
pub use qmp::QmpEvent;
use qmp::{Qmp, QmpError};
use virtiofsd::Virtiofsd;

/// Maximum time for a guest's agent to acknowledge a shutdown.
const HEARD: Duration = Duration::from_secs(5);
/// Maximum time for QEMU to exit after its sockets closed.
const CRASH_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time for QEMU to flush and close its images.
const CLOSED: Duration = Duration::from_secs(30);

/// Everything that is needed to boot a guest.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// A unique string for QEMU's command line, by which the process can be found.
    pub marker: String,
    /// CPUs, memory, and the way that the disk is attached.
    pub spec: GuestSpec,
    /// KVM or TCG, as returned by [`accel::resolve`].
    pub accel: Accel,
    /// Kernel image and modules.
    pub kernel: Kernel,
    /// Path of the initramfs that [`initramfs::write`] made for this kernel.
    pub initramfs: PathBuf,
    /// The disk, network card or directory through which the guest's I/O is measured.
    pub device: GuestDevice,
    /// Kernel parameters in addition to those of every guest; usually empty.
    pub kernel_parameters: String,
    /// An existing private directory for sockets and logs. The caller removes it.
    pub run_dir: PathBuf,
    /// The run's process lock, which QEMU holds while it runs.
    pub lock: ProcessLock,
}

/// The disk, network card or directory through which a guest's I/O is measured.
#[derive(Debug, Clone)]
pub enum GuestDevice {
    /// A disk, for storage measurements.
    Disk(GuestStorage),
    /// A network card from [`crate::network::build`], for network measurements.
    Nic(NicBackend),
    /// A directory of the host, for storage measurements.
    Directory(GuestDirectory),
}

impl GuestDevice {
    /// Returns the guest's disk; `None` for a guest with another device.
    #[must_use]
    pub const fn disk(&self) -> Option<&GuestStorage> {
        match self {
            Self::Disk(storage) => Some(storage),
            Self::Nic(_) | Self::Directory(_) => None,
        }
    }

    /// Returns the guest's network card; `None` for a guest with another device.
    #[must_use]
    pub const fn nic(&self) -> Option<&NicBackend> {
        match self {
            Self::Nic(nic) => Some(nic),
            Self::Disk(_) | Self::Directory(_) => None,
        }
    }

    /// Returns the directory that the guest mounts; `None` for a guest with another device.
    #[must_use]
    pub const fn directory(&self) -> Option<&GuestDirectory> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Disk(_) | Self::Nic(_) => None,
        }
    }
}

/// The image behind a guest's disk, and the filesystem on it.
#[derive(Debug, Clone)]
pub struct GuestStorage {
    /// Path of the disk's topmost image.
    pub image: PathBuf,
    /// Format of the topmost image.
    pub format: Format,
    /// The byte range of a block device or file that holds a raw image; `None` if the image is a whole file.
    pub part: Option<DevicePart>,
    /// Size in bytes of the L2 table cache of each qcow2 image; `None` for QEMU's default.
    pub l2_cache_size: Option<Bytes>,
    /// The filesystem on the disk to create or mount; `None` to use the disk directly.
    pub filesystem: Option<GuestFilesystem>,
}

impl GuestStorage {
    /// Lists the disk's image and its backing files, topmost first.
    fn chain(&self) -> Result<Vec<ChainImage>, ImageError> {
        let mut chain = image::chain(&self.image, self.format)?;
        chain[0].part = self.part;
        Ok(chain)
    }
}

/// A filesystem inside the guest that PID 1 creates or mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestFilesystem {
    /// True to create the filesystem, false to mount the one that an earlier boot created.
    pub make: bool,
    /// Length in bytes of the test file on the filesystem.
    pub size: Bytes,
}

/// An error while booting or controlling a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// QEMU is not installed.
    #[error("{program} was not found in PATH; install it (Debian: apt-get install qemu-system-x86)")]
    NoQemu {
        /// Name of the missing program.
        program: &'static str,
    },
    /// The user requests KVM, which cannot run guests on this machine.
    #[error("KVM was asked for, but {reason}; --accel tcg emulates the CPU, --accel auto decides by itself")]
    NoKvm {
        /// Reason why KVM cannot run guests.
        reason: String,
    },
    /// The path of a socket in the run directory is longer than 107 bytes.
    #[error("{}: too long a name for a socket; use a directory with a shorter one", path.display())]
    LongName {
        /// Path of the socket.
        path: PathBuf,
    },
    /// An operation on a file, socket or program failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file, socket or program.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// QEMU exited before its sockets could be connected.
    #[error("the guest could not be started: {exit_diagnostics}")]
    Died {
        /// QEMU's exit status and output, and the console's last lines.
        exit_diagnostics: String,
    },
    /// A command to QEMU's monitor failed.
    #[error("{error}{}", if exit_diagnostics.is_empty() { String::new() } else { format!(" ({exit_diagnostics})") })]
    Qmp {
        /// The monitor's error, or QEMU's error message.
        error: QmpError,
        /// QEMU's exit status and output, and the console's last lines; may be empty, as when QEMU only rejected the command.
        exit_diagnostics: String,
    },
    /// The guest's agent failed or does not answer.
    #[error(transparent)]
    AgentClient(AgentError),
    /// An image cannot be read or created.
    #[error(transparent)]
    ChainImage(#[from] ImageError),
    /// The guest is configured in a way that this machine does not support.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The interrupt flag was set, for example by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl From<AgentError> for GuestError {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Interrupted => Self::Interrupted,
            other => Self::AgentClient(other),
        }
    }
}

/// A running guest. Dropping it kills QEMU; [`Guest::shutdown`] powers it off.
pub struct Guest {
    process: Arc<QemuProcess>,
    _passt: Option<Passt>,
    virtiofsd: Option<Virtiofsd>,
    qmp: Qmp,
    agent: AgentClient,
    /// QEMU's name of the disk device, for its I/O counters; `None` without a disk.
    device: Option<String>,
    spec: GuestSpec,
    begun: Instant,
    boot_ns: Option<u64>,
    paused: bool,
    /// The images of the disk, topmost first; empty for a guest with a network card.
    chain: Vec<ChainImage>,
    l2_cache_size: Option<Bytes>,
    swaps: u32,
}

impl Guest {
    /// Starts QEMU and connects to its monitor and agent sockets. Returns while the guest is still booting; see [`Guest::wait_ready`].
    pub fn boot(config: &GuestConfig, interrupt: &Interrupt) -> Result<Self, GuestError> {
        if let Some(path) = command::too_long(&config.run_dir) {
            return Err(GuestError::LongName { path });
        }
        let (storage, nic) = (config.device.disk(), config.device.nic());
        let directory = config.device.directory();
        let chain = storage.map_or(Ok(Vec::new()), GuestStorage::chain)?;
        let l2_cache_size = storage.and_then(|storage| storage.l2_cache_size);
        let arguments = command::arguments(&command::QemuMachine {
            marker: &config.marker,
            spec: &config.spec,
            accel: config.accel,
            kernel: &config.kernel.image,
            initramfs: &config.initramfs,
            parameters: &parameters(config)?,
            disk: storage.map(|_| DiskChain { chain: &chain, l2_cache_size }),
            nic,
            directory,
            run_dir: &config.run_dir,
        });
        let begun = Instant::now();
        let namespace = nic.and_then(|nic| nic.namespace.as_deref());
        let passt = nic.filter(|nic| nic.backend == Backend::Passt);
        let passt = passt.map(|nic| Passt::start(nic, &config.run_dir)).transpose()?;
        let virtiofsd = match directory {
            Some(GuestDirectory { path, server: DirectoryServer::Virtiofsd(spec) }) => {
                Some(Virtiofsd::start(spec, path, &config.run_dir, &config.lock)?)
            }
            _ => None,
        };
        let process = Arc::new(QemuProcess::spawn(&arguments, &config.run_dir, namespace, &config.lock)?);
        let agent = process.connect(command::AGENT_SOCKET, interrupt)?;
        let monitor = process.connect(command::QMP_SOCKET, interrupt)?;
        let mut qmp = Qmp::start(monitor, qmp::DEADLINE, process.pid(), interrupt)
            .map_err(|source| with_diagnostics(source, &process))?;
        let device = blockstats::begin(&mut qmp).map_err(|source| with_diagnostics(source, &process))?;
        let exit_diagnostics = Box::new({
            let process = Arc::clone(&process);
            move || process.exit_diagnostics()
        });
        let agent =
            AgentClient::over(agent, format!("the guest {}", config.marker), exit_diagnostics, interrupt)
                .map_err(|source| GuestError::Io {
                    path: config.run_dir.join(command::AGENT_SOCKET),
                    source,
                })?;
        let spec = config.spec.clone();
        Ok(Self {
            process,
            _passt: passt,
            virtiofsd,
            qmp,
            agent,
            device,
            spec,
            begun,
            boot_ns: None,
            paused: false,
            chain,
            l2_cache_size,
            swaps: 0,
        })
    }

    /// Waits until the guest's agent answers. Gives up after `deadline`, after 15 s without a sign of life from the guest, or on an
    /// interrupt.
    pub fn wait_ready(&mut self, deadline: Duration) -> Result<AgentHello, GuestError> {
        let mut signs = Signs::of(&self.process, self.spec.vcpus);
        let hello = self.agent.hello_while(&mut || signs.is_alive(), deadline)?;
        self.boot_ns = u64::try_from(self.begun.elapsed().as_nanos()).ok();
        Ok(hello)
    }

    /// Returns whether QEMU crashed: it was ended by SIGABRT, SIGSEGV, SIGBUS or SIGILL. Waits up to 2 s for its exit.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        let status = self.process.wait(CRASH_PATIENCE);
        let signal = status.and_then(|status| status.signal()).and_then(Signal::from_named_raw);
        matches!(signal, Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::ILL))
    }

    /// Returns the time from the start of QEMU until the agent answered, in nanoseconds; `None` before that.
    #[must_use]
    pub const fn boot_ns(&self) -> Option<u64> {
        self.boot_ns
    }

    /// Returns the client of the guest's agent. While the guest is paused, the agent does not answer.
    pub const fn agent(&mut self) -> &mut AgentClient {
        &mut self.agent
    }

    /// Returns the client of the guest's agent and QEMU's block layer, which can be used at the same time.
    pub const fn agent_and_blocks(&mut self) -> (&mut AgentClient, BlockLayer<'_>) {
        (&mut self.agent, BlockLayer { qmp: &mut self.qmp, device: self.device.as_ref() })
    }

    /// Connects to QEMU's second monitor, for operations on the guest and its disk. An interrupt does not abort these operations.
    pub fn operator(&self, files: OperationFiles) -> Result<Operator, GuestError> {
        let stop = Interrupt::default();
        let monitor = self.process.connect(command::OPERATIONS_SOCKET, &stop)?;
        let qmp = Qmp::start(monitor, qmp::DEADLINE, self.pid(), &stop)
            .map_err(|source| with_diagnostics(source, &self.process))?;
        let (image, drive) = (disk::node_name(self.swaps), disk::drive_of(&self.spec));
        Ok(Operator::new(qmp, image, DiskUser::Guest, drive, self.l2_cache_size, files))
    }

    /// Returns QEMU's events since the last call. Keeps at most 500 events between calls; later ones are dropped.
    pub fn events(&mut self) -> Result<Vec<QmpEvent>, GuestError> {
        self.qmp.events().map_err(|source| with_diagnostics(source, &self.process))
    }

    /// Pauses the virtual CPUs and waits for I/O in flight.
    pub fn pause(&mut self) -> Result<(), GuestError> {
        self.execute("stop", &json!({}))?;
        self.paused = true;
        Ok(())
    }

    /// Resumes the virtual CPUs.
    pub fn resume(&mut self) -> Result<(), GuestError> {
        self.execute("cont", &json!({}))?;
        self.paused = false;
        Ok(())
    }

    /// Replaces the image of the guest's disk with another of the same size. Pauses a running guest meanwhile. The caller must drop the
    /// guest's caches.
    pub fn swap_disk(&mut self, image: &Path, format: Format) -> Result<(), GuestError> {
        let chain = image::chain(image, format)?;
        self.while_paused(|guest| guest.exchange(chain))
    }

    /// Takes `count` internal snapshots of the disk's qcow2 image, and first deletes earlier ones of the same names. Pauses a running guest
    /// meanwhile.
    pub fn renew_snapshots(&mut self, count: u32) -> Result<(), GuestError> {
        let device = disk::node_name(self.swaps);
        let all = (1..=count).map(image::snapshot_name);
        let all: Vec<Value> = all.map(|name| json!({ "device": device, "name": name })).collect();
        self.while_paused(|guest| {
            for arguments in &all {
                match guest.execute("blockdev-snapshot-delete-internal-sync", arguments) {
                    // The snapshot may not exist yet. If the deletion failed for another reason, the next snapshot of this name fails too.
                    Ok(_) | Err(GuestError::Qmp { error: QmpError::Refused { .. }, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            all.iter().try_for_each(|arguments| {
                guest.execute("blockdev-snapshot-internal-sync", arguments).map(drop)
            })
        })
    }

    /// Pauses the guest, runs `act`, and resumes the guest if it was running before.
    fn while_paused<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, GuestError>,
    ) -> Result<T, GuestError> {
        let ran = !self.paused;
        if ran {
            self.pause()?;
        }
        let done = act(self);
        if ran {
            self.resume()?;
        }
        done
    }

    /// Replaces the disk's image. Closes the old image first, because QEMU locks images and the old image may be a backing file of the new
    /// one. Reopens the old image if the new one cannot be opened.
    fn exchange(&mut self, chain: Vec<ChainImage>) -> Result<(), GuestError> {
        const NOTHING: &str = "nothing";
        let (old, new) = (disk::node_name(self.swaps), disk::node_name(self.swaps + 1));
        self.execute("blockdev-add", &json!({ "driver": "null-co", "node-name": NOTHING }))?;
        self.attach(NOTHING)?;
        self.execute("blockdev-del", &json!({ "node-name": old }))?;
        let opened = self.execute("blockdev-add", &self.node(&new, &chain));
        if opened.is_ok() {
            self.chain = chain;
        } else {
            self.execute("blockdev-add", &self.node(&new, &self.chain))?;
        }
        self.swaps += 1;
        self.attach(&new)?;
        self.execute("blockdev-del", &json!({ "node-name": NOTHING }))?;
        opened.map(drop)
    }

    fn node(&self, name: &str, chain: &[ChainImage]) -> Value {
        DiskChain { chain, l2_cache_size: self.l2_cache_size }.node(name, &self.spec)
    }

    /// Connects a block node to the guest's disk device.
    fn attach(&mut self, node: &str) -> Result<(), GuestError> {
        if self.spec.bus == Bus::VirtioScsi && self.spec.iothreads() > 0 {
            // While paused, a disk other than virtio-blk stays in its I/O thread, and QEMU 10.0 fails an assertion if the new node is not
            // in that thread.
            let arguments = json!({ "node-name": node, "iothread": disk::iothread(0) });
            self.execute("x-blockdev-set-iothread", &arguments)?;
        }
        let device = format!("/machine/peripheral/{}", disk::DISK);
        self.execute("qom-set", &json!({ "path": device, "property": "drive", "value": node })).map(drop)
    }

    /// Returns whether the guest must be rebooted: QEMU has exited, or the connection to the agent is unusable.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.agent.is_over() || self.process.status().is_some()
    }

    /// Returns the process id of QEMU.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the daemons that serve only this guest.
    pub fn daemons(&self) -> impl Iterator<Item = &StorageDaemon> {
        self.virtiofsd.iter().map(Virtiofsd::daemon)
    }

    /// Lists the files and block devices that QEMU has open, except those in its run directory.
    #[must_use]
    pub fn open_files(&self) -> Vec<PathBuf> {
        self.process.open_files()
    }

    /// Returns QEMU's complete command line, quoted for a shell.
    #[must_use]
    pub fn command_line(&self) -> &str {
        self.process.command_line()
    }

    /// Returns the ids of QEMU's threads by role: `vcpu`, `iothread`, `main`, and `worker` for the others, which come and go.
    pub fn threads(&mut self) -> Result<BTreeMap<String, Vec<u32>>, GuestError> {
        let vcpus = thread_ids(&self.execute("query-cpus-fast", &json!({}))?);
        let iothreads = thread_ids(&self.execute("query-iothreads", &json!({}))?);
        let main = self.pid();
        let path = PathBuf::from(format!("/proc/{main}/task"));
        let entries = std::fs::read_dir(&path).map_err(|source| GuestError::Io { path, source })?;
        let ids: BTreeSet<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let mut roles: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for id in ids {
            let role = match id {
                id if vcpus.contains(&id) => "vcpu",
                id if iothreads.contains(&id) => "iothread",
                id if id == main => "main",
                _ => "worker",
            };
            roles.entry(role.into()).or_default().push(id);
        }
        Ok(roles)
    }

    /// Returns the last lines of the guest's console; empty if there is no output.
    #[must_use]
    pub fn console_tail(&self) -> String {
        self.process.console_tail()
    }

    /// Powers the guest off through its agent; if that fails, ends QEMU through its monitor; if that fails, kills QEMU. Each step has a
    /// time limit, even after an interrupt. On return, QEMU has exited and all data that the guest flushed is in its image, unless QEMU
    /// hangs in the kernel.
    pub fn shutdown(mut self) {
        // A paused guest cannot hear the request.
        if !self.paused && self.agent.shutdown(HEARD).is_ok() && self.process.wait(CLOSED).is_some() {
            return;
        }
        // If the monitor refuses, QEMU is killed.
        if self.process.status().is_none() && self.qmp.quit().is_ok() {
            self.process.wait(CLOSED);
        }
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, GuestError> {
        self.qmp.execute(command, arguments).map_err(|source| with_diagnostics(source, &self.process))
    }
}

/// Access to QEMU's block layer for the guest's disk.
pub struct BlockLayer<'a> {
    qmp: &'a mut Qmp,
    device: Option<&'a String>,
}

impl BlockLayer<'_> {
    /// Reads the disk's I/O counters; `None` without a disk, or if QEMU does not report them. Blocks QEMU's main loop for about 0.3 ms.
    pub fn counters(&mut self) -> Option<BlockCounters> {
        let device = self.device?;
        blockstats::counters(&self.qmp.execute("query-blockstats", &json!({})).ok()?, device)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// Returns the kernel parameters in addition to those of every guest: for the CPU, for PID 1 (filesystem or network), and from the caller.
fn parameters(config: &GuestConfig) -> Result<String, GuestError> {
    let mut words = vec![accel::parameters(&config.spec, config.accel, Path::new("/"))?];
    match &config.device {
        GuestDevice::Disk(storage) => {
            if let Some((inside, kind)) = storage.filesystem.zip(config.spec.filesystem) {
                let what = if inside.make { guest_abi::MKFS_PARAMETER } else { guest_abi::MOUNT_PARAMETER };
                words.push(format!("{what}{kind}"));
                words.push(format!("{}{}", guest_abi::SIZE_PARAMETER, inside.size.0));
            }
        }
        GuestDevice::Nic(nic) => words.extend([guest_abi::DISKLESS_PARAMETER.into(), nic.parameter()]),
        GuestDevice::Directory(directory) => {
            words.extend([guest_abi::DISKLESS_PARAMETER.into(), directory.parameter()]);
        }
    }
    words.push(config.kernel_parameters.clone());
    words.retain(|word| !word.is_empty());
    Ok(words.join(" "))
}

fn with_diagnostics(error: QmpError, process: &QemuProcess) -> GuestError {
    if matches!(error, QmpError::Interrupted) {
        return GuestError::Interrupted;
    }
    let lost = !matches!(error, QmpError::Refused { .. });
    GuestError::Qmp { error, exit_diagnostics: if lost { process.exit_diagnostics() } else { String::new() } }
}

fn thread_ids(answer: &Value) -> BTreeSet<u32> {
    let ids = answer.as_array().into_iter().flatten().filter_map(|entry| entry.get("thread-id")?.as_u64());
    ids.filter_map(|id| u32::try_from(id).ok()).collect()
}
