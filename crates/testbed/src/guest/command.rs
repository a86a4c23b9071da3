//! Builds QEMU's command line.

use std::path::Path;

use iotax_model::guest_abi::AGENT_PORT;
use iotax_model::target::{Accel, GuestSpec, MachineType};

use super::directory::GuestDirectory;
use super::disk::{self, DiskChain};
use super::escape::escaped;
use super::nic::NicBackend;

/// File name of the guest's console log in the run directory.
pub const CONSOLE: &str = "console.log";
/// File name of QEMU's own log in the run directory.
pub const QEMU_LOG: &str = "qemu.log";
/// File name of the QMP monitor socket in the run directory.
pub const QMP_SOCKET: &str = "qmp.sock";
/// File name of the second QMP monitor socket, for operations on the disk, in the run directory.
pub const OPERATIONS_SOCKET: &str = "ops.sock";
/// File name of the agent's socket in the run directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// Maximum length of a Unix socket's path in bytes.
const SOCKET_NAME: usize = 107;

/// Kernel parameters of every guest: a panic ends the guest, and settings that affect I/O keep their defaults. Skips cipher self-tests,
/// which take a seventh of an emulated boot, and the timer test, which panics if a busy host stalls the guest for ten ticks.
const KERNEL_PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests no_timer_check";

/// Settings of a guest from which the command line is built.
#[derive(Debug)]
pub struct QemuMachine<'a> {
    /// A unique string in QEMU's `-name` option, by which the process can be found.
    pub marker: &'a str,
    /// CPUs, memory, bus and disk options of the guest.
    pub spec: &'a GuestSpec,
    /// KVM or TCG; never [`Accel::Auto`].
    pub accel: Accel,
    /// Path of the kernel image.
    pub kernel: &'a Path,
    /// Path of the initramfs.
    pub initramfs: &'a Path,
    /// Kernel parameters in addition to those of every guest; may be empty.
    pub parameters: &'a str,
    /// The disk's images; `None` for a guest with another device.
    pub disk: Option<DiskChain<'a>>,
    /// The network card; `None` for a guest with another device.
    pub nic: Option<&'a NicBackend>,
    /// The directory to mount; `None` for a guest with another device.
    pub directory: Option<&'a GuestDirectory>,
    /// The guest's private directory, which holds sockets and logs.
    pub run_dir: &'a Path,
}

/// Builds QEMU's arguments, without the program's path.
#[must_use]
pub fn arguments(machine: &QemuMachine) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    let spec = machine.spec;
    add(&["-name", &escaped(machine.marker)]);
    add(&["-nodefaults", "-no-user-config", "-display", "none"]);
    // With panic=-1 a panicking kernel reboots at once, which ends QEMU.
    add(&["-no-reboot"]);
    let machine_type = spec.machine_type();
    let is_microvm = machine_type == MachineType::Microvm;
    // microvm's ACPI tables list no 8259, so Linux does not initialize it: the timer's interrupts would arrive as vector 0, a divide error.
    let mut options = machine_type.word().to_owned();
    options.push_str(if is_microvm { ",pic=off" } else { "" });
    options.extend(machine.directory.map(GuestDirectory::machine_options));
    add(&["-machine", &options, "-accel", machine.accel.word()]);
    if is_microvm {
        // virtio 1.0; QEMU's default is the legacy transport.
        add(&["-global", "virtio-mmio.force-legacy=false"]);
    }
    add(&["-cpu", if machine.accel == Accel::Kvm { "host" } else { "max" }]);
    add(&["-smp", &spec.vcpus.to_string(), "-m", &format!("{}K", spec.memory.0 >> 10)]);
    add(&["-kernel", &machine.kernel.to_string_lossy(), "-initrd", &machine.initramfs.to_string_lossy()]);
    add(&["-append", format!("{KERNEL_PARAMETERS} {}", machine.parameters).trim_end()]);
    let in_run_dir = |name: &str| escaped(&machine.run_dir.join(name).to_string_lossy());
    add(&[
        "-chardev",
        &format!("file,id=console,path={}", in_run_dir(CONSOLE)),
        "-serial",
        "chardev:console",
    ]);
    for socket in [QMP_SOCKET, OPERATIONS_SOCKET] {
        add(&["-qmp", &format!("unix:{},server=on,wait=off", in_run_dir(socket))]);
    }
    add(&["-chardev", &format!("socket,id=agent,path={},server=on,wait=off", in_run_dir(AGENT_SOCKET))]);
    add(&["-device", &format!("virtio-serial-{}", disk::transport(machine_type))]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={AGENT_PORT}")]);
    if let Some(disk) = &machine.disk {
        disk.arguments(spec).iter().for_each(|argument| add(&[argument]));
    }
    if let Some(nic) = machine.nic {
        nic.arguments(spec, machine.run_dir).iter().for_each(|argument| add(&[argument]));
    }
    if let Some(directory) = machine.directory {
        directory.arguments(spec, machine.run_dir).iter().for_each(|argument| add(&[argument]));
    }
    arguments
}

/// Returns the first socket path in the run directory that is longer than 107 bytes, the kernel's limit; `None` if all paths fit.
#[must_use]
pub fn too_long(run_dir: &Path) -> Option<std::path::PathBuf> {
    [AGENT_SOCKET, QMP_SOCKET]
        .map(|name| run_dir.join(name))
        .into_iter()
        .find(|path| path.as_os_str().len() > SOCKET_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::image::ChainImage;
    use iotax_model::target::{Aio, CacheMode, Format};
    use iotax_model::units::Bytes;

    fn images(names: &[(&str, Format)]) -> Vec<ChainImage> {
        names.iter().map(|(path, format)| ChainImage::new(path.into(), *format)).collect()
    }

    /// Returns the arguments one per line: those of the machine, and those of its disk.
    fn lines(spec: &GuestSpec, chain: &[ChainImage], accel: Accel) -> (String, String) {
        let machine = QemuMachine {
            marker: "iotax-17-vm,raw",
            spec,
            accel,
            kernel: Path::new("/boot/vmlinuz-6.1.0-9-amd64"),
            initramfs: Path::new("/run/iotax-17/initramfs"),
            parameters: "",
            disk: Some(DiskChain { chain, l2_cache_size: None }),
            nic: None,
            directory: None,
            run_dir: Path::new("/run/iotax-17,x"),
        };
        let arguments = arguments(&machine)
            .join("\n")
            .replace("\n-", "\n\n-")
            .replace("\n\n", "\u{1}")
            .replace('\n', " ")
            .replace('\u{1}', "\n");
        let (machine, disk) =
            arguments.split_once(",name=iotax.agent\n").expect("it ends with the agent's port");
        (machine.to_owned(), disk.to_owned())
    }

    #[test]
    fn the_default_guest() {
        let disk = images(&[("/srv/vm-raw.img", Format::Raw)]);
        let (machine, disk) = lines(&GuestSpec::default(), &disk, Accel::Tcg);
        insta::assert_snapshot!(machine, @r"
        -name iotax-17-vm,,raw
        -nodefaults
        -no-user-config
        -display none
        -no-reboot
        -machine q35
        -accel tcg
        -cpu max
        -smp 1
        -m 524288K
        -kernel /boot/vmlinuz-6.1.0-9-amd64
        -initrd /run/iotax-17/initramfs
        -append console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests no_timer_check
        -chardev file,id=console,path=/run/iotax-17,,x/console.log
        -serial chardev:console
        -qmp unix:/run/iotax-17,,x/qmp.sock,server=on,wait=off
        -qmp unix:/run/iotax-17,,x/ops.sock,server=on,wait=off
        -chardev socket,id=agent,path=/run/iotax-17,,x/agent.sock,server=on,wait=off
        -device virtio-serial-pci
        -device virtserialport,chardev=agent
        ");
        insta::assert_snapshot!(disk, @r#"
        -object iothread,id=iothread0
        -blockdev {"cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"raw","file":{"aio":"io_uring","cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/vm-raw.img","read-only":false},"node-name":"image0","read-only":false}
        -device {"drive":"image0","driver":"virtio-blk-pci","id":"disk0","iothread":"iothread0","serial":"iotax-disk","write-cache":"on"}
        "#);
    }

    #[test]
    fn an_overlay_under_kvm_with_the_hosts_cache() {
        let spec = GuestSpec {
            cache: CacheMode::Writethrough,
            aio: Aio::Threads,
            vcpus: 4,
            memory: Bytes(1 << 30),
            iothread: Some(0),
            ..GuestSpec::default()
        };
        let disk = images(&[
            ("/srv/top,1", Format::Qcow2),
            ("/srv/middle", Format::Qcow2),
            ("/srv/base", Format::Raw),
        ]);
        let (default, _) = lines(&GuestSpec::default(), &disk, Accel::Tcg);
        let (machine, disk) = lines(&spec, &disk, Accel::Kvm);
        let changed = [
            ("accel tcg", "accel kvm"),
            ("cpu max", "cpu host"),
            ("smp 1", "smp 4"),
            ("m 524288K", "m 1048576K"),
        ];
        let expected = changed
            .iter()
            .fold(default, |lines, (from, to)| lines.replace(&format!("\n-{from}\n"), &format!("\n-{to}\n")));
        assert_eq!(machine, expected);
        insta::assert_snapshot!(disk, @r#"
        -blockdev {"backing":{"backing":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/base","read-only":true},"read-only":true},"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/middle","read-only":true},"read-only":true},"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/top,1","read-only":false},"node-name":"image0","read-only":false}
        -device {"drive":"image0","driver":"virtio-blk-pci","id":"disk0","serial":"iotax-disk","write-cache":"off"}
        "#);
    }

    #[test]
    fn a_microvm_has_no_interrupt_controller_that_linux_does_not_know() {
        let disk = images(&[("/srv/vm-raw.img", Format::Raw)]);
        let (default, _) = lines(&GuestSpec::default(), &disk, Accel::Tcg);
        let spec = GuestSpec { machine: Some(MachineType::Microvm), ..GuestSpec::default() };
        let (machine, _) = lines(&spec, &disk, Accel::Tcg);
        let expected = default.replace("-machine q35\n", "-machine microvm,pic=off\n");
        let expected = expected.replace("\n-cpu", "\n-global virtio-mmio.force-legacy=false\n-cpu");
        assert_eq!(machine, expected.replace("serial-pci", "serial-device"));
    }

    #[test]
    fn a_socket_name_that_is_too_long_is_found_beforehand() {
        assert_eq!(too_long(Path::new("/run/iotax")), None);
        // "/agent.sock" has eleven bytes.
        assert_eq!(too_long(Path::new(&format!("/{}", "x".repeat(SOCKET_NAME - 12)))), None);
        assert!(too_long(Path::new(&format!("/{}", "x".repeat(SOCKET_NAME - 11)))).is_some());
    }
}
