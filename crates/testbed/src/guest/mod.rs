//! QEMU guests: kernel, initramfs, command line, QMP.
//!
//! A guest is one QEMU process with one disk or one network card and one agent, whose stream comes over a virtio-serial port.
//! Everything that a guest needs of the host is in its run directory; the process can be told by the marker in its `-name`.

pub mod accel;
pub mod blockstats;
pub mod capabilities;
pub mod command;
pub mod disk;
mod escape;
pub mod image;
pub mod initramfs;
pub mod kernel;
pub mod memory;
pub mod mkfs;
pub mod modules;
pub mod nic;
pub(crate) mod passt;
mod process;
pub mod qmp;

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
use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::refusal::Refusal;
use blockstats::BlockCounters;
use disk::Disk;
use image::{Image, ImageError, Part};
use kernel::Kernel;
use nic::{Backend, Card};
use passt::Passt;
use process::{Process, Signs};
pub use process::{find_qemu, qemu_version};
use qmp::{Qmp, QmpError};

/// How long a guest's agent may take to hear that it is to end.
const HEARD: Duration = Duration::from_secs(5);
/// How long a process that closed its sockets may take to be seen as ended.
const CRASH_PATIENCE: Duration = Duration::from_secs(2);
/// How long QEMU may take to flush and close its images.
const CLOSED: Duration = Duration::from_secs(30);
/// Name of the snapshot within an image, of which there is never more than one.
const SNAPSHOT: &str = "iotax";

/// What a guest is made of.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// Unique on this machine; appears in the process's command line.
    pub marker: String,
    /// CPUs, memory, and how the disk is attached.
    pub spec: GuestSpec,
    /// KVM or TCG, as [`accel::resolve`] gives it.
    pub accel: Accel,
    /// The kernel.
    pub kernel: Kernel,
    /// What [`initramfs::write`] made for this kernel.
    pub initramfs: PathBuf,
    /// The disk; absent: none.
    pub storage: Option<Storage>,
    /// The network card, which [`crate::network::build`] found its way for; absent: none.
    pub card: Option<Card>,
    /// More words for the guest's kernel command line; usually empty.
    pub kernel_parameters: String,
    /// A private directory of this guest alone for sockets and logs, which the caller creates and removes.
    pub run_dir: PathBuf,
    /// Of the run that the guest is part of.
    pub lock: ProcessLock,
}

/// What a guest's disk is made of.
#[derive(Debug, Clone)]
pub struct Storage {
    /// The disk's image.
    pub image: PathBuf,
    /// The image's format.
    pub format: Format,
    /// What of a block device is the image; absent: it is a file.
    pub part: Option<Part>,
    /// Memory for the tables of each qcow2 image; absent: QEMU's choice.
    pub l2_cache_size: Option<Bytes>,
    /// The filesystem to make or to mount, if the spec asks for one.
    pub filesystem: Option<Inside>,
}

impl Storage {
    /// The images that it consists of, the top first.
    fn chain(&self) -> Result<Vec<Image>, ImageError> {
        let mut chain = image::chain(&self.image, self.format)?;
        chain[0].part = self.part;
        Ok(chain)
    }
}

/// What the guest does for its filesystem when it boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// Whether it is made; else it is there from an earlier boot.
    pub make: bool,
    /// Length of the file on it that is measured.
    pub size: Bytes,
}

/// A guest that does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// No QEMU.
    #[error("{program} was not found in PATH; install it (Debian: apt-get install qemu-system-x86)")]
    NoQemu {
        /// The program.
        program: &'static str,
    },
    /// KVM was asked for and does not run guests.
    #[error("KVM was asked for, but {reason}; --accel tcg emulates the CPU, --accel auto decides by itself")]
    NoKvm {
        /// What is in the way.
        reason: String,
    },
    /// The run directory's name is too long for a socket in it.
    #[error("{}: too long a name for a socket; use a directory with a shorter one", path.display())]
    LongName {
        /// The socket.
        path: PathBuf,
    },
    /// A file, a socket or a program of the system.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// QEMU ended before the guest ran.
    #[error("the guest could not be started: {last_words}")]
    Died {
        /// QEMU's exit status and words, the console's last lines.
        last_words: String,
    },
    /// QEMU's monitor.
    #[error("{error}{}", if last_words.is_empty() { String::new() } else { format!(" ({last_words})") })]
    Qmp {
        /// What went wrong.
        error: QmpError,
        /// If QEMU is gone: its exit status and words, the console's last lines.
        last_words: String,
    },
    /// The conversation with the guest's agent.
    #[error(transparent)]
    AgentClient(AgentError),
    /// An image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// This machine cannot carry such a guest.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The user interrupted.
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

/// A running guest. Dropping it kills it; [`Guest::shutdown`] ends it in order.
pub struct Guest {
    process: Arc<Process>,
    _passt: Option<Passt>,
    qmp: Qmp,
    link: AgentClient,
    /// QEMU's name of the disk device; absent if it counts nothing for it.
    device: Option<String>,
    spec: GuestSpec,
    begun: Instant,
    boot_ns: Option<u64>,
    paused: bool,
    /// The images under the disk, the top first; none without a disk.
    chain: Vec<Image>,
    l2_cache_size: Option<Bytes>,
    swaps: u32,
}

impl Guest {
    /// Starts QEMU and connects to it. The guest boots by itself meanwhile: see [`Guest::wait_ready`].
    pub fn boot(config: &GuestConfig, interrupt: &Interrupt) -> Result<Self, GuestError> {
        if let Some(path) = command::too_long(&config.run_dir) {
            return Err(GuestError::LongName { path });
        }
        let storage = config.storage.as_ref();
        let chain = storage.map_or(Ok(Vec::new()), Storage::chain)?;
        let l2_cache_size = storage.and_then(|storage| storage.l2_cache_size);
        let arguments = command::arguments(&command::Machine {
            marker: &config.marker,
            spec: &config.spec,
            accel: config.accel,
            kernel: &config.kernel.image,
            initramfs: &config.initramfs,
            parameters: &parameters(config)?,
            disk: storage.map(|_| Disk { chain: &chain, l2_cache_size }),
            card: config.card.as_ref(),
            run_dir: &config.run_dir,
        });
        let begun = Instant::now();
        let namespace = config.card.as_ref().and_then(|card| card.namespace.as_deref());
        let passt = config.card.as_ref().filter(|card| card.backend == Backend::Passt);
        let passt = passt.map(|card| Passt::start(card, &config.run_dir)).transpose()?;
        let process = Arc::new(Process::spawn(&arguments, &config.run_dir, namespace, &config.lock)?);
        let agent = process.connect(command::AGENT_SOCKET, interrupt)?;
        let monitor = process.connect(command::QMP_SOCKET, interrupt)?;
        let mut qmp = Qmp::start(monitor, qmp::DEADLINE, process.pid(), interrupt)
            .map_err(|source| with_last_words(source, &process))?;
        let device = blockstats::begin(&mut qmp).map_err(|source| with_last_words(source, &process))?;
        let last_words = Box::new({
            let process = Arc::clone(&process);
            move || process.last_words()
        });
        let link = AgentClient::over(agent, format!("the guest {}", config.marker), last_words, interrupt)
            .map_err(|source| GuestError::Io { path: config.run_dir.join(command::AGENT_SOCKET), source })?;
        let spec = config.spec.clone();
        Ok(Self {
            process,
            _passt: passt,
            qmp,
            link,
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

    /// Waits until the guest's agent answers, at most `deadline` from now, and no longer than it shows signs of life.
    pub fn wait_ready(&mut self, deadline: Duration) -> Result<AgentHello, GuestError> {
        let mut signs = Signs::of(&self.process, self.spec.vcpus);
        let hello = self.link.hello_while(&mut || signs.seen(), deadline)?;
        self.boot_ns = u64::try_from(self.begun.elapsed().as_nanos()).ok();
        Ok(hello)
    }

    /// Whether QEMU has crashed: ended by a signal that it raised itself, as a failed assertion does.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        let status = self.process.wait(CRASH_PATIENCE);
        let signal = status.and_then(|status| status.signal()).and_then(Signal::from_named_raw);
        matches!(signal, Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::ILL))
    }

    /// From the start of QEMU until the agent answered; absent before it did.
    #[must_use]
    pub const fn boot_ns(&self) -> Option<u64> {
        self.boot_ns
    }

    /// The conversation with the guest's agent. A paused guest does not answer.
    pub const fn link(&mut self) -> &mut AgentClient {
        &mut self.link
    }

    /// The conversation with the guest's agent, and the block layer that can be looked at meanwhile.
    pub const fn link_and_blocks(&mut self) -> (&mut AgentClient, BlockLayer<'_>) {
        (&mut self.link, BlockLayer { qmp: &mut self.qmp, device: self.device.as_ref() })
    }

    /// Stops the guest's CPUs; its I/O in flight is waited for.
    pub fn pause(&mut self) -> Result<(), GuestError> {
        self.execute("stop", &json!({}))?;
        self.paused = true;
        Ok(())
    }

    /// Lets the guest's CPUs go on.
    pub fn resume(&mut self) -> Result<(), GuestError> {
        self.execute("cont", &json!({}))?;
        self.paused = false;
        Ok(())
    }

    /// Puts another image of the same size under the guest's disk; the one before is closed. The guest is paused
    /// meanwhile and goes on if it ran. What the guest has cached of the disk is the caller's to drop.
    pub fn swap_disk(&mut self, image: &Path, format: Format) -> Result<(), GuestError> {
        let chain = image::chain(image, format)?;
        self.while_paused(|guest| guest.exchange(chain))
    }

    /// Takes a snapshot within the disk's image, which must be qcow2, in place of the one before. The guest is paused
    /// meanwhile and goes on if it ran.
    pub fn renew_snapshot(&mut self) -> Result<(), GuestError> {
        let arguments = json!({ "device": disk::node_name(self.swaps), "name": SNAPSHOT });
        self.while_paused(|guest| {
            match guest.execute("blockdev-snapshot-delete-internal-sync", &arguments) {
                // There was none. If it is another reason, no second one of this name can be taken either.
                Ok(_) | Err(GuestError::Qmp { error: QmpError::Refused { .. }, .. }) => {}
                Err(error) => return Err(error),
            }
            guest.execute("blockdev-snapshot-internal-sync", &arguments).map(drop)
        })
    }

    /// Does something to a guest that stands still; it goes on afterwards if it ran.
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

    /// The old image is closed before the new one is opened: the new one may have it as its backing file, and QEMU
    /// locks images against being written and read from at once. If the new one cannot be opened the old one is put back.
    fn exchange(&mut self, chain: Vec<Image>) -> Result<(), GuestError> {
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

    fn node(&self, name: &str, chain: &[Image]) -> Value {
        Disk { chain, l2_cache_size: self.l2_cache_size }.node(name, &self.spec)
    }

    /// Puts a block node under the disk device.
    fn attach(&mut self, node: &str) -> Result<(), GuestError> {
        if self.spec.bus == Bus::VirtioScsi && self.spec.iothreads() > 0 {
            // Its disks stay with their thread while the guest is paused (virtio-blk's come back to the main loop), and QEMU
            // 10.0 fails an assertion and ends if the node that is put under one is not there already.
            let arguments = json!({ "node-name": node, "iothread": disk::iothread(0) });
            self.execute("x-blockdev-set-iothread", &arguments)?;
        }
        let device = format!("/machine/peripheral/{}", disk::DISK);
        self.execute("qom-set", &json!({ "path": device, "property": "drive", "value": node })).map(drop)
    }

    /// Whether it has to be booted anew: QEMU has ended, or the conversation with the agent is over.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_over() || self.process.status().is_some()
    }

    /// QEMU's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// QEMU's complete command line, as a shell takes it.
    #[must_use]
    pub fn command_line(&self) -> &str {
        self.process.command_line()
    }

    /// The ids of QEMU's threads by role: `vcpu`, `iothread`, `main`, and `worker` for all others, which come and go.
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

    /// The last lines of the guest's console; empty if it said nothing.
    #[must_use]
    pub fn console_tail(&self) -> String {
        self.process.console_tail()
    }

    /// Ends the guest: powers it off, has QEMU quit if that does not do it, kills it if that does not either. Bounded, and
    /// also after an interrupt. QEMU has ended when this returns; what the guest flushed is in its image.
    pub fn shutdown(mut self) {
        // A paused guest hears nothing.
        if !self.paused && self.link.shutdown(HEARD).is_ok() && self.process.wait(CLOSED).is_some() {
            return;
        }
        // A monitor that refuses is a QEMU that is to be killed.
        if self.process.status().is_none() && self.qmp.quit().is_ok() {
            self.process.wait(CLOSED);
        }
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, GuestError> {
        self.qmp.execute(command, arguments).map_err(|source| with_last_words(source, &self.process))
    }
}

/// QEMU's block layer beneath a guest's disk.
pub struct BlockLayer<'a> {
    qmp: &'a mut Qmp,
    device: Option<&'a String>,
}

impl BlockLayer<'_> {
    /// The disk's counters now, which QEMU's main loop is held up for by some 0.3 ms; absent if there are none.
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

/// More words for the kernel: what it must be told of its CPU, PID 1 of its filesystem, and what the caller adds.
fn parameters(config: &GuestConfig) -> Result<String, GuestError> {
    let mut words = vec![accel::parameters(&config.spec, config.accel, Path::new("/"))?];
    let inside = config.storage.as_ref().and_then(|storage| storage.filesystem);
    if let Some((inside, kind)) = inside.zip(config.spec.filesystem) {
        let what = if inside.make { guest_abi::MKFS_PARAMETER } else { guest_abi::MOUNT_PARAMETER };
        words.push(format!("{what}{kind}"));
        words.push(format!("{}{}", guest_abi::SIZE_PARAMETER, inside.size.0));
    }
    if config.storage.is_none() {
        words.push(guest_abi::DISKLESS_PARAMETER.into());
    }
    words.extend(config.card.as_ref().map(Card::parameter));
    words.push(config.kernel_parameters.clone());
    words.retain(|word| !word.is_empty());
    Ok(words.join(" "))
}

fn with_last_words(error: QmpError, process: &Process) -> GuestError {
    if matches!(error, QmpError::Interrupted) {
        return GuestError::Interrupted;
    }
    let lost = !matches!(error, QmpError::Refused { .. });
    GuestError::Qmp { error, last_words: if lost { process.last_words() } else { String::new() } }
}

fn thread_ids(answer: &Value) -> BTreeSet<u32> {
    let ids = answer.as_array().into_iter().flatten().filter_map(|entry| entry.get("thread-id")?.as_u64());
    ids.filter_map(|id| u32::try_from(id).ok()).collect()
}
