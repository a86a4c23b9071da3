//! A separate libvirt daemon, run by an unprivileged user, with a guest that runs Debian's QEMU guest agent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::vmlinux;
use iotax_testkit::require;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{Lab, OtherUser, processes, text};
use crate::lab_guest::{Extras, append_lab};

/// Well above the duration of a boot or an answer, so that no test fails on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(100);

/// The user that runs the daemon and owns its files.
const USER: u32 = 65534;

/// Script run as PID 1 of the guest: starts the guest agent, and restarts it when it exits.
const INIT: &str = r#"#!/lab/busybox sh
/lab/busybox mkdir -p /bin /sbin /tmp /run /proc /sys /dev
/lab/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod /lab/$module.ko || echo "lab: $module was not loaded"; done < /lab/modules
port() { grep -lx org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name | cut -d/ -f5; }
until [ -n "$(port)" ]; do usleep 50000; done
while :; do
    /lab/qemu-ga -m virtio-serial -p /dev/$(port) -t /run
    sleep 1
done
"#;

/// Settings of the domain.
pub(crate) struct DomainSettings {
    /// Machine type, as libvirt names it.
    pub(crate) machine: &'static str,
    /// Format of its disk.
    pub(crate) format: &'static str,
    /// Target name of its disk, which decides the bus: `vda` or `sda`.
    pub(crate) disk: &'static str,
    /// Options of the disk's `<driver>`.
    pub(crate) options: &'static str,
}

/// A running domain `web1` with a disk in a directory of the user's.
pub(crate) struct LibvirtLab {
    daemon: Child,
    /// Content of the domain's disk before its start.
    before: Vec<u8>,
    pub(crate) user: OtherUser,
    /// Directory of the daemon's files and sockets, whose paths must be short.
    run: TempDir,
    _lab: Lab,
}

impl LibvirtLab {
    /// Starts the daemon and boots a domain. Returns `None` and prints the reason if this machine cannot run guests or lacks a program.
    pub(crate) fn boot(settings: &DomainSettings) -> Option<Self> {
        require!(guests);
        require!(root);
        require!(
            programs
                & [
                    "libvirtd", "virsh", "qemu-ga", "busybox", "ldd", "setpriv", "strip", "unshare",
                    "qemu-img"
                ]
        );
        require!(file "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so");
        let lab = Lab::new();
        let user = OtherUser::beside(&lab);
        // Without what a debugger reads it is copied to the guest in a third of the time.
        let stripped = Command::new("strip").arg(user.path("iotax")).status();
        assert!(stripped.expect("strip starts").success());
        let run = TempDir::new().expect("a directory for sockets");
        let owned = |path: &Path| std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("root may");
        owned(run.path());
        let images = user.path("images");
        fs::create_dir(&images).expect("made");
        owned(&images);
        let config = run.path().join("config/libvirt");
        fs::create_dir_all(&config).expect("made");
        // Its messages would otherwise go through another daemon.
        fs::write(config.join("qemu.conf"), "stdio_handler = \"file\"\n").expect("written");
        owned(&run.path().join("config"));
        owned(&config);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        let kernel = Kernel::find(Path::new("/"), release.trim(), None, None).expect("a kernel for guests");
        let archive = user.path("initramfs");
        File::create_new(&archive).expect("made");
        let extras = Extras { modules: &["virtio_scsi"], ..Extras::default() };
        append_lab(&archive, &kernel, INIT, &["busybox", "qemu-ga"], &extras)
            .expect("the laboratory's archive");
        let unpacked = vmlinux::write(&kernel.image, user.path("vmlinux")).expect("the unpacked kernel");
        let unpacked = unpacked.unwrap_or_else(|| kernel.image.clone());
        for path in [&archive, &unpacked] {
            owned(path);
        }
        let log = File::create(run.path().join("daemon.log")).expect("a log");
        // What the daemon starts ends with it, also where the test is killed.
        let program = as_user(&user, run.path(), "libvirtd");
        let mut daemon = Command::new("unshare");
        daemon.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "\"$@\" & wait", "sh"]);
        daemon.arg(program.get_program()).args(program.get_args()).current_dir(user.path(""));
        daemon.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        daemon.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let daemon = daemon.spawn().expect("unshare starts");
        let mut lab = Self { daemon, before: Vec::new(), user, run, _lab: lab };
        lab.until("the daemon answers", || lab.try_virsh(&["version"]).status.success());
        lab.define(settings, &archive, &unpacked);
        lab.before = fs::read(lab.disk()).expect("a disk");
        lab.start();
        Some(lab)
    }

    fn define(&self, settings: &DomainSettings, initramfs: &Path, kernel: &Path) {
        let DomainSettings { machine, format, disk: name, options } = settings;
        let disk = self.disk();
        let made =
            Command::new("qemu-img").args(["create", "-q", "-f", format]).arg(&disk).arg("16M").status();
        assert!(made.expect("qemu-img starts").success());
        std::os::unix::fs::chown(&disk, Some(USER), Some(USER)).expect("root may");
        let bus = if name.starts_with('s') { "scsi" } else { "virtio" };
        // A device attached to q35 needs a separate port.
        let ports = match *machine {
            "q35" => {
                let ports = "<controller type='pci' model='pcie-root-port'/>".repeat(8);
                format!("<controller type='pci' index='0' model='pcie-root'/>{ports}")
            }
            _ => String::new(),
        };
        let xml = format!(
            "<domain type='qemu'><name>web1</name><memory unit='MiB'>768</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='{machine}'>hvm</type><kernel>{}</kernel><initrd>{}</initrd>\
             <cmdline>console=ttyS0 rdinit=/lab/init quiet</cmdline></os><features><acpi/></features>\
             <devices><disk type='file' device='disk'><driver name='qemu' type='{format}' {options}/>\
             <source file='{}'/><target dev='{name}' bus='{bus}'/></disk>{ports}<controller type='scsi' model='virtio-scsi'/>\
             <controller type='usb' model='none'/><memballoon model='none'/><video><model type='none'/></video>\
             <serial type='file'><source path='{}'/></serial>\
             <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>",
            kernel.display(),
            initramfs.display(),
            disk.display(),
            self.run.path().join("console").display()
        );
        let file = self.user.path("web1.xml");
        fs::write(&file, xml).expect("written");
        self.virsh(&["define", &file.display().to_string()]);
    }

    /// Starts the domain and waits for its guest agent.
    pub(crate) fn start(&self) {
        self.virsh(&["start", "web1"]);
        let ping = r#"{"execute":"guest-ping"}"#;
        let answers =
            || self.try_virsh(&["qemu-agent-command", "web1", "--timeout", "5", ping]).status.success();
        let began = Instant::now();
        self.until("the guest agent answers", answers);
        eprintln!("web1: its guest agent answers after {:.1?}", began.elapsed());
    }

    /// The image of the domain's disk.
    fn disk(&self) -> PathBuf {
        self.images().join("web1.img")
    }

    /// The directory of the domain's disk.
    pub(crate) fn images(&self) -> PathBuf {
        self.user.path("images")
    }

    /// The tested binary, started by the user of the daemon.
    pub(crate) fn iotax(&self) -> Command {
        let mut command = self.user.iotax();
        self.lead_to_daemon(&mut command);
        command
    }

    fn lead_to_daemon(&self, command: &mut Command) {
        lead(command, self.run.path());
    }

    fn try_virsh(&self, arguments: &[&str]) -> Output {
        as_user(&self.user, self.run.path(), "virsh").args(arguments).output().expect("virsh starts")
    }

    /// Runs virsh and returns its stdout; panics if it fails.
    pub(crate) fn virsh(&self, arguments: &[&str]) -> String {
        let output = self.try_virsh(arguments);
        assert!(output.status.success(), "virsh {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Sends a command to the guest agent. Returns its answer.
    fn ask(&self, command: &Value) -> Value {
        let said = self.virsh(&["qemu-agent-command", "web1", &command.to_string()]);
        serde_json::from_str::<Value>(&said).expect("JSON")["return"].clone()
    }

    /// Starts a shell command in the guest. Returns its process.
    pub(crate) fn begin_in_guest(&self, line: &str) -> Value {
        let arguments = json!({ "path": "/bin/sh", "arg": ["-c", line] });
        self.ask(&json!({ "execute": "guest-exec", "arguments": arguments }))["pid"].clone()
    }

    /// Runs a shell command in the guest. Returns its exit status.
    fn in_guest(&self, line: &str) -> i64 {
        let pid = self.begin_in_guest(line);
        let mut status = None;
        self.until("a command in the guest ends", || {
            let said = self.ask(&json!({ "execute": "guest-exec-status", "arguments": { "pid": pid } }));
            status = said["exitcode"].as_i64();
            said["exited"].as_bool() == Some(true)
        });
        status.expect("an exit status")
    }

    /// Waits until the condition is true.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            let said =
                |name: &str| fs::read(self.run.path().join(name)).map(|log| text(&log)).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: not so: {}{}", said("daemon.log"), said("console"));
            std::thread::sleep(POLL);
        }
    }

    /// Asserts that a run left no file, undo log or device of the domain, and nothing in the guest.
    pub(crate) fn assert_nothing_left(&self, moment: &str) {
        let list = |dir: &Path| -> Vec<PathBuf> {
            fs::read_dir(dir)
                .map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect())
                .unwrap_or_default()
        };
        assert_eq!(list(&self.images()), [self.disk()], "{moment}: files left");
        assert!(
            fs::read(self.disk()).expect("a disk") == self.before,
            "{moment}: the domain's own disk was written"
        );
        let undo = self.user.path(".local/state/iotax/undo");
        assert_eq!(list(&undo), Vec::<PathBuf>::new(), "{moment}: undo logs left");
        // The sources may lie in a directory of that name.
        let xml = self.virsh(&["dumpxml", "web1"]).replace(env!("CARGO_TARGET_TMPDIR"), "");
        assert!(!xml.contains("iotax"), "{moment}: attached: {xml}");
        if xml.contains("state='connected'") {
            let is_clean = "[ -z \"$(ls -A /tmp)\" ] && ! ps | grep -q '[i]otax'";
            assert_eq!(self.in_guest(is_clean), 0, "{moment}: left in the guest");
        }
        let home = self.user.path("iotax").display().to_string();
        let left: Vec<String> =
            processes(&home).into_iter().filter(|line| !line.contains("qemu-system")).collect();
        assert_eq!(left, Vec::<String>::new(), "{moment}: processes left");
    }
}

impl Drop for LibvirtLab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A program started by the user, configured for the daemon with files in `run`.
fn as_user(user: &OtherUser, run: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]).arg(program);
    command.current_dir(user.path("")).env("HOME", user.path(""));
    lead(&mut command, run);
    command
}

fn lead(command: &mut Command, run: &Path) {
    command.env("LIBVIRT_DEFAULT_URI", "qemu:///session").env("XDG_RUNTIME_DIR", run);
    command.env("XDG_CONFIG_HOME", run.join("config")).env("XDG_CACHE_HOME", run.join("cache"));
}
