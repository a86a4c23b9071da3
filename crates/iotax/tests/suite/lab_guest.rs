//! A guest with storage of known behaviour: a Debian kernel, a shell, device mapper, and iotax's agent.
//!
//! It is an ordinary guest with an extra archive in its initramfs and an extra port with a shell. Tests build their devices
//! from kernel modules (`dm_delay`, `null_blk`, `scsi_debug` ...) without touching the host, and measure through the agent,
//! like a runner.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cpio::newc::{Builder, trailer};
use iotax_model::record::Outcome;
use iotax_model::target::{Accel, GuestSpec, PlannedDevice};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::WorkloadKeys;
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::{command, find_qemu, initramfs, modules, vmlinux};
use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::require;
use tempfile::TempDir;

use crate::lab::Lab;
use crate::lab_xen;

/// Well above the duration of a boot, so that no test fails on a busy machine.
const BOOT: Duration = Duration::from_mins(2);
/// Time in addition to a measurement's duration: longer than the engine waits for I/O that does not return.
const SLACK: Duration = Duration::from_mins(1);
/// Timeout of a shell command, which may be a whole run of iotax on a busy, emulated machine.
const PROMPT: Duration = Duration::from_mins(9);

/// Modules loaded at boot: device mapper and its targets, and SCSI disks.
const LOADED: [&str; 4] = ["dm_delay", "dm_flakey", "sd_mod", "virtio_console"];
/// Modules to be loaded by `insmod /lab/NAME.ko` with parameters; their dependencies are loaded at boot.
const AT_HAND: [&str; 3] = ["brd", "null_blk", "scsi_debug"];

/// Name of the virtio-serial port of the shell.
const SHELL_PORT: &str = "lab.shell";
const SHELL_SOCKET: &str = "shell.sock";

/// Script run as PID 1 of the guest; it ends as the shell on the port.
const INIT: &str = r#"#!/lab/busybox sh
/lab/busybox mkdir -p /bin /sbin /run/netns /mnt
/lab/busybox --install -s /bin
export PATH=/lab:/bin DM_DISABLE_UDEV=1
# A shell that is busybox takes its own programs first, wherever the path leads.
while read -r program; do alias "$program=/lab/$program"; done < /lab/programs
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod /lab/$module.ko || echo "lab: $module was not loaded"; done < /lab/modules
mount -t configfs configfs /sys/kernel/config
port() { grep -lx "$1" /sys/class/virtio-ports/*/name | cut -d/ -f5; }
clock=/sys/devices/system/clocksource/clocksource0/current_clocksource
for wait in $(seq 100); do
    [ -n "$(port lab.shell)" ] && [ -n "$(port iotax.agent)" ] && ! grep -qx tsc-early $clock && break
    usleep 50000
done
/init agent <>/dev/$(port iotax.agent) >&0 &
agent=$!
exec 3<>/dev/$(port lab.shell)
while read -r line <&3; do
    eval "$line" >&3 2>&1 3>&-
    echo "lab: $?" >&3
done
poweroff -f
"#;

/// Optional equipment of a laboratory.
#[derive(Default)]
pub(crate) struct Extras<'a> {
    /// Programs copied from the host, which precede those of busybox in PATH. `iotax` is always included.
    pub(crate) programs: &'a [&'a str],
    /// Other files of the host, at the same paths. Programs among them bring their libraries.
    pub(crate) files: &'a [&'a str],
    /// Modules, loaded at boot.
    pub(crate) modules: &'a [&'a str],
    /// Sizes of its empty disks `/dev/vda`, `/dev/vdb` ....
    pub(crate) disks: &'a [Bytes],
    /// Additional disks and ports, as QEMU arguments.
    pub(crate) devices: &'a [String],
    /// A port of this host's loopback that is forwarded to the guest's port 22; adds a network card `eth0`, which is down.
    pub(crate) ssh: Option<u16>,
    /// Makes the guest's clock count instructions (1 ns each) and skip waits for timers: 5 ms in the guest are exact even on a busy host.
    pub(crate) exact_time: bool,
    /// Runs it as the control domain of a Xen hypervisor: `/lab/xen` starts the services that domains need.
    pub(crate) xen: bool,
}

/// A running guest; killed on drop.
pub(crate) struct LabGuest {
    qemu: Child,
    link: AgentClient,
    shell: BufReader<UnixStream>,
    /// Directory for sockets, console and initramfs.
    _dir: TempDir,
    pub(crate) lab: Lab,
}

impl LabGuest {
    /// Boots a guest with default settings.
    pub(crate) fn boot() -> Option<Self> {
        Self::boot_with(&Extras::default())
    }

    /// Boots a guest with exact time, even on a busy host.
    pub(crate) fn boot_in_exact_time() -> Option<Self> {
        Self::boot_with(&Extras { exact_time: true, ..Extras::default() })
    }

    /// Boots a guest. Returns `None` and prints the reason if this machine cannot run it.
    pub(crate) fn boot_with(extras: &Extras<'_>) -> Option<Self> {
        let programs = [&["busybox", "dmsetup"], extras.programs].concat();
        require!(guests);
        require!(program "ldd");
        require!(programs programs.as_slice());
        require!(files extras.files);
        if extras.xen {
            require!(files lab_xen::FILES);
        }
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        let kernel = Kernel::find_with(Path::new("/"), release.trim(), None, None, extras.modules);
        let kernel = kernel.expect("a kernel for guests");
        let lab = Lab::new();
        let dir = TempDir::new().expect("a directory for the guest");
        let initramfs = dir.path().join("initramfs");
        let program = Path::new(env!("CARGO_BIN_EXE_iotax"));
        initramfs::write(&initramfs, program, &kernel, &GuestSpec::default(), PlannedDevice::Disk)
            .expect("an initramfs");
        append_lab(&initramfs, &kernel, INIT, &programs, extras).expect("the laboratory's archive");
        let unpacked =
            vmlinux::write(&kernel.image, dir.path().join("vmlinux")).expect("the unpacked kernel");
        let memory = if extras.xen { lab_xen::MEMORY } else { Bytes(1 << 30) };
        // To learn the frequency of the local APIC's timer the kernel spins for 0.1 s, which takes seconds where instructions are
        // counted.
        let timer = if extras.exact_time { " nolapic_timer" } else { "" };
        let parameters = format!("rdinit=/lab/init{timer}");
        let mut arguments = command::arguments(&command::QemuMachine {
            marker: "iotax-test-lab",
            // One CPU: between emulated CPUs it takes a millisecond to wake a thread, and their clocks are not trusted.
            spec: &GuestSpec { vcpus: 1, memory, ..GuestSpec::default() },
            // The same in every laboratory.
            accel: Accel::Tcg,
            kernel: unpacked.as_ref().unwrap_or(&kernel.image),
            initramfs: &initramfs,
            parameters: &parameters,
            disk: None,
            nic: None,
            directory: None,
            run_dir: dir.path(),
        });
        let socket = dir.path().join(SHELL_SOCKET);
        arguments.extend([
            "-chardev".into(),
            format!("socket,id=shell,path={},server=on,wait=off", socket.display()),
            "-device".into(),
            format!("virtserialport,chardev=shell,name={SHELL_PORT}"),
        ]);
        if let Some(port) = extras.ssh {
            arguments.extend([
                "-netdev".into(),
                format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
                "-device".into(),
                "virtio-net-pci,netdev=net,romfile=".into(),
            ]);
        }
        if extras.xen {
            lab_xen::append(&initramfs, &kernel).expect("Xen's archive");
            lab_xen::boot_under(&mut arguments, &kernel.image);
        }
        if extras.exact_time {
            arguments.extend(["-icount".into(), "shift=0,sleep=off".into()]);
        }
        for (number, length) in extras.disks.iter().enumerate() {
            let path = dir.path().join(format!("disk{number}"));
            File::create_new(&path).and_then(|file| file.set_len(length.0)).expect("a disk");
            arguments.extend([
                "-blockdev".into(),
                format!("driver=file,node-name=lab{number},filename={}", path.display()),
                "-device".into(),
                format!("virtio-blk-pci,drive=lab{number}"),
            ]);
        }
        arguments.extend_from_slice(extras.devices);
        let mut qemu = Command::new(find_qemu().expect("checked above"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("QEMU starts");
        let console = dir.path().join(command::CONSOLE);
        let agent = connect(&mut qemu, &dir.path().join(command::AGENT_SOCKET), &console);
        let shell = connect(&mut qemu, &socket, &console);
        shell.set_read_timeout(Some(BOOT)).expect("a socket");
        let exit_diagnostics = Box::new(move || fs::read_to_string(&console).unwrap_or_default());
        let mut link = AgentClient::over(agent, "the lab guest", exit_diagnostics, &Interrupt::default())
            .expect("a link");
        let began = Instant::now();
        let hello = link.hello(BOOT).expect("the agent answers");
        eprintln!(
            "lab guest: {} after {:.1?}, clocksource {:?}",
            hello.kernel,
            began.elapsed(),
            hello.clocksource
        );
        shell.set_read_timeout(Some(PROMPT)).expect("a socket");
        Some(Self { qemu, link, shell: BufReader::new(shell), _dir: dir, lab })
    }

    /// Runs a shell command in the guest and returns its stdout; panics if it fails. Background commands must print nothing. `$agent` is
    /// the agent's process.
    pub(crate) fn sh(&mut self, line: &str) -> String {
        let (status, printed) = self.try_sh(line);
        assert_eq!(status, "0", "{line}: {printed}");
        printed
    }

    /// Runs a shell command in the guest. Returns its exit status and stdout.
    pub(crate) fn try_sh(&mut self, line: &str) -> (String, String) {
        assert!(!line.contains('\n'), "one line: {line:?}");
        writeln!(self.shell.get_mut(), "{line}").expect("the guest's shell listens");
        let mut printed = String::new();
        loop {
            let start = printed.len();
            let length = self.shell.read_line(&mut printed).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(length > 0, "{line}: the guest went away: {printed}");
            if let Some(status) = printed[start..].strip_prefix("lab: ") {
                let status = status.trim().to_owned();
                printed.truncate(start);
                return (status, printed.trim_end().to_owned());
            }
        }
    }

    /// Creates a device-mapper device from the lines of a table. Returns its path.
    pub(crate) fn map(&mut self, name: &str, table: &[String]) -> PathBuf {
        self.sh(&format!("printf '{}\\n' | dmsetup create {name}", table.join("\\n")));
        Path::new("/dev/mapper").join(name)
    }

    /// Measures the first `size` bytes of a device or file in the guest.
    pub(crate) fn measure(
        &mut self,
        path: &Path,
        size: Bytes,
        keys: &WorkloadKeys,
    ) -> Result<Outcome, AgentError> {
        let workload = keys.complete(&WorkloadKeys::default());
        let path = Some(path.display().to_string());
        let writable = workload.rw.writes();
        let job = Job { path, writable, ..Job::new(workload, size, 1, Nanos::from_millis(100)) };
        self.link.run(&job, SLACK, &mut |_| {})
    }
}

impl Drop for LabGuest {
    fn drop(&mut self) {
        // It has nothing that is worth an orderly end.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Connects to a socket of QEMU; waits until it exists.
fn connect(qemu: &mut Child, socket: &Path, console: &Path) -> UnixStream {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => {
                let status = qemu.try_wait().expect("a child");
                assert!(
                    status.is_none() && Instant::now() < end,
                    "{}: {error}; QEMU: {status:?}; {}",
                    socket.display(),
                    fs::read_to_string(console).unwrap_or_default()
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Appends the laboratory to an initramfs, with `init` as its PID 1: the kernel unpacks one archive after the other.
pub(crate) fn append_lab(
    initramfs: &Path,
    kernel: &Kernel,
    init: &str,
    programs: &[&str],
    extras: &Extras<'_>,
) -> std::io::Result<()> {
    let mut archive = Archive::default();
    archive.add("lab", Archive::DIRECTORY, &[])?;
    archive.add("lab/init", Archive::PROGRAM, init.as_bytes())?;
    archive.add("lab/iotax", Archive::LINK, b"/init")?;
    archive.add(
        "lab/programs",
        Archive::PROGRAM,
        programs.iter().flat_map(|name| [name, "\n"]).collect::<String>().as_bytes(),
    )?;
    let mut added = BTreeSet::new();
    let mut files: Vec<PathBuf> = extras.files.iter().map(PathBuf::from).collect();
    for name in programs {
        let program = iotax_testkit::program(name);
        archive.add(&format!("lab/{name}"), Archive::PROGRAM, &fs::read(&program)?)?;
        files.extend(libraries(&program));
    }
    files.extend(extras.files.iter().flat_map(|file| libraries(Path::new(file))));
    for file in files {
        // Samba's programs have 70 MB of libraries in common.
        if !added.insert(file.clone()) {
            continue;
        }
        let path = file.to_str().expect("utf-8").trim_start_matches('/');
        archive.add_with_directories(path, &fs::read(&file)?)?;
    }
    let names: Vec<&str> = modules::needed(&GuestSpec::default(), PlannedDevice::Disk)
        .iter()
        .chain(&LOADED)
        .chain(extras.modules)
        .chain(&AT_HAND)
        .copied()
        .collect();
    let mut at_boot = String::new();
    for module in modules::load(&kernel.modules, &names).map_err(std::io::Error::other)? {
        archive.add(&format!("lab/{}.ko", module.name), Archive::PROGRAM, &module.object)?;
        if !AT_HAND.contains(&module.name.as_str()) {
            at_boot.extend([module.name.as_str(), "\n"]);
        }
    }
    archive.add("lab/modules", Archive::PROGRAM, at_boot.as_bytes())?;
    archive.append_to(initramfs)
}

/// A cpio archive that the kernel unpacks after the initramfs.
#[derive(Default)]
pub(crate) struct Archive(Vec<u8>);

impl Archive {
    /// Modes of entries; the content of a link is its target.
    pub(crate) const LINK: u32 = 0o120_777;
    pub(crate) const DIRECTORY: u32 = 0o040_755;
    pub(crate) const PROGRAM: u32 = 0o100_755;

    pub(crate) fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(content.len()).expect("a small file");
        let mut entry = Builder::new(name).mode(mode).write(&mut self.0, length);
        entry.write_all(content)?;
        entry.finish().map(drop)
    }

    /// Adds a program, and the directories above it.
    pub(crate) fn add_with_directories(&mut self, path: &str, content: &[u8]) -> std::io::Result<()> {
        for (end, _) in path.match_indices('/') {
            self.add(&path[..end], Self::DIRECTORY, &[])?;
        }
        self.add(path, Self::PROGRAM, content)
    }

    /// Ends the archive and appends it to an initramfs.
    pub(crate) fn append_to(mut self, initramfs: &Path) -> std::io::Result<()> {
        trailer(&mut self.0)?;
        let mut file = File::options().append(true).open(initramfs)?;
        // An archive begins at a multiple of four.
        let padding = file.metadata()?.len().next_multiple_of(4) - file.metadata()?.len();
        file.write_all(&[0; 4][..usize::try_from(padding).expect("below four")])?;
        file.write_all(&self.0)
    }
}

/// Returns the libraries of a program and its dynamic linker; empty if it is static.
fn libraries(program: &Path) -> Vec<PathBuf> {
    listed(Command::new("ldd").arg(program))
}

/// Returns the files listed by ldd(1).
pub(crate) fn listed(ldd: &mut Command) -> Vec<PathBuf> {
    let text = crate::lab::text(&ldd.output().expect("ldd runs").stdout);
    assert!(!text.contains("not found"), "{text}");
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
