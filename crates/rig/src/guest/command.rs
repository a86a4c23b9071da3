//! QEMU's command line, made of the configuration alone.

use std::path::Path;

use iotax_model::target::{Accel, Bus, Format, GuestSpec};
use serde_json::{Value, json};

use super::image::Image;
use iotax_model::contract::{AGENT_PORT, DISK_SERIAL};

/// Name of the console's output in the run directory.
pub const CONSOLE: &str = "console.log";
/// Name of QEMU's own output in the run directory.
pub const QEMU_LOG: &str = "qemu.log";
/// Name of the monitor's socket in the run directory.
pub const QMP_SOCKET: &str = "qmp.sock";
/// Name of the agent's socket in the run directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// QEMU's id of the disk device.
pub const DISK: &str = "disk0";
/// Longest name of a unix socket that the kernel takes, in bytes.
const SOCKET_NAME: usize = 107;

/// A guest that panics ends, and nothing that bears on the cost of I/O is changed from the kernel's defaults. The
/// self-tests of ciphers that no guest uses would take a seventh of an emulated boot.
const KERNEL_PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests";

/// Everything that the command line depends on.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Appears in `-name`, so that the process can be told by its command line.
    pub marker: &'a str,
    /// How the guest is built.
    pub spec: &'a GuestSpec,
    /// KVM or TCG; what is to be probed has been probed.
    pub accel: Accel,
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// More words for the kernel's command line; may be empty.
    pub parameters: &'a str,
    /// The disk's image and those beneath it; empty: no disk.
    pub disk: &'a [Image],
    /// Where sockets and logs are.
    pub run_dir: &'a Path,
}

/// The arguments, without the program.
#[must_use]
pub fn arguments(machine: &Machine) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    let spec = machine.spec;
    add(&["-name", &escaped(machine.marker)]);
    add(&["-nodefaults", "-no-user-config", "-display", "none"]);
    // A kernel that panics reboots at once (panic=-1), which ends QEMU: nobody waits for a dead guest.
    add(&["-no-reboot"]);
    add(&["-machine", "q35", "-accel", machine.accel.word()]);
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
    add(&["-qmp", &format!("unix:{},server=on,wait=off", in_run_dir(QMP_SOCKET))]);
    add(&["-chardev", &format!("socket,id=agent,path={},server=on,wait=off", in_run_dir(AGENT_SOCKET))]);
    add(&["-device", "virtio-serial-pci"]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={AGENT_PORT}")]);
    if !machine.disk.is_empty() {
        if spec.iothread > 0 {
            add(&["-object", "iothread,id=iothread0"]);
        }
        add(&["-blockdev", &block_node(&node_name(0), machine.disk, spec).to_string()]);
        add(&["-device", &disk_device(spec)]);
    }
    arguments
}

/// The socket's name that is too long for the kernel, if one is.
#[must_use]
pub fn too_long(run_dir: &Path) -> Option<std::path::PathBuf> {
    [AGENT_SOCKET, QMP_SOCKET]
        .map(|name| run_dir.join(name))
        .into_iter()
        .find(|path| path.as_os_str().len() > SOCKET_NAME)
}

/// Name of the disk's block node after so many swaps.
#[must_use]
pub fn node_name(swaps: u32) -> String {
    format!("image{swaps}")
}

/// The block node of an image, its file and the images beneath it, as `-blockdev` and `blockdev-add` take it.
///
/// Every image of the chain is given in full: QEMU would open a backing file that it finds by itself with its default
/// I/O backend and not with the one that was asked for. `chain` must not be empty.
#[must_use]
pub fn block_node(name: &str, chain: &[Image], spec: &GuestSpec) -> Value {
    let mut below = Value::Null;
    for (depth, image) in chain.iter().enumerate().rev() {
        let cache = json!({ "direct": spec.cache.direct(), "no-flush": spec.cache.no_flush() });
        let read_only = depth > 0;
        let mut node = json!({
            "driver": image.format.word(),
            "read-only": read_only,
            "discard": "unmap",
            "cache": cache,
            "file": {
                "driver": "file",
                "filename": image.path.to_string_lossy(),
                "read-only": read_only,
                "discard": "unmap",
                "cache": cache,
                "aio": spec.aio.word(),
            },
        });
        if depth == 0 {
            node["node-name"] = json!(name);
        }
        if image.format == Format::Qcow2 {
            // Null says that there is none, and keeps QEMU from looking.
            node["backing"] = below;
        }
        below = node;
    }
    below
}

fn disk_device(spec: &GuestSpec) -> String {
    let driver = match spec.bus {
        Bus::VirtioBlk => "virtio-blk-pci",
        Bus::VirtioScsi => "scsi-hd",
        Bus::Nvme => "nvme",
        Bus::Sata | Bus::Ide => "ide-hd",
    };
    let write_cache = if spec.cache.write_cache() { "on" } else { "off" };
    let iothread = if spec.iothread > 0 { ",iothread=iothread0" } else { "" };
    format!(
        "{driver},id={DISK},drive={},serial={DISK_SERIAL},write-cache={write_cache}{iothread}",
        node_name(0)
    )
}

/// QEMU's option parser takes a comma for the end of a value unless it is doubled.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::target::{Aio, CacheMode};
    use iotax_model::units::Bytes;

    fn images(names: &[(&str, Format)]) -> Vec<Image> {
        names.iter().map(|(path, format)| Image { path: path.into(), format: *format }).collect()
    }

    fn lines(spec: &GuestSpec, disk: &[Image], accel: Accel) -> String {
        let machine = Machine {
            marker: "iotax-17-vm,raw",
            spec,
            accel,
            kernel: Path::new("/boot/vmlinuz-6.1.0-9-amd64"),
            initramfs: Path::new("/run/iotax-17/initramfs"),
            parameters: "",
            disk,
            run_dir: Path::new("/run/iotax-17,x"),
        };
        arguments(&machine)
            .join("\n")
            .replace("\n-", "\n\n-")
            .replace("\n\n", "\u{1}")
            .replace('\n', " ")
            .replace('\u{1}', "\n")
    }

    #[test]
    fn the_default_guest() {
        let disk = images(&[("/srv/vm-raw.img", Format::Raw)]);
        insta::assert_snapshot!(lines(&GuestSpec::default(), &disk, Accel::Tcg), @r#"
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
        -append console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests
        -chardev file,id=console,path=/run/iotax-17,,x/console.log
        -serial chardev:console
        -qmp unix:/run/iotax-17,,x/qmp.sock,server=on,wait=off
        -chardev socket,id=agent,path=/run/iotax-17,,x/agent.sock,server=on,wait=off
        -device virtio-serial-pci
        -device virtserialport,chardev=agent,name=iotax.agent
        -object iothread,id=iothread0
        -blockdev {"cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"raw","file":{"aio":"io_uring","cache":{"direct":true,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/vm-raw.img","read-only":false},"node-name":"image0","read-only":false}
        -device virtio-blk-pci,id=disk0,drive=image0,serial=iotax-disk,write-cache=on,iothread=iothread0
        "#);
    }

    #[test]
    fn an_overlay_under_kvm_with_the_hosts_cache() {
        let spec = GuestSpec {
            cache: CacheMode::Writethrough,
            aio: Aio::Threads,
            vcpus: 4,
            memory: Bytes(1 << 30),
            iothread: 0,
            ..GuestSpec::default()
        };
        let disk = images(&[
            ("/srv/top,1", Format::Qcow2),
            ("/srv/middle", Format::Qcow2),
            ("/srv/base", Format::Raw),
        ]);
        insta::assert_snapshot!(lines(&spec, &disk, Accel::Kvm), @r#"
        -name iotax-17-vm,,raw
        -nodefaults
        -no-user-config
        -display none
        -no-reboot
        -machine q35
        -accel kvm
        -cpu host
        -smp 4
        -m 1048576K
        -kernel /boot/vmlinuz-6.1.0-9-amd64
        -initrd /run/iotax-17/initramfs
        -append console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests
        -chardev file,id=console,path=/run/iotax-17,,x/console.log
        -serial chardev:console
        -qmp unix:/run/iotax-17,,x/qmp.sock,server=on,wait=off
        -chardev socket,id=agent,path=/run/iotax-17,,x/agent.sock,server=on,wait=off
        -device virtio-serial-pci
        -device virtserialport,chardev=agent,name=iotax.agent
        -blockdev {"backing":{"backing":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"raw","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/base","read-only":true},"read-only":true},"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/middle","read-only":true},"read-only":true},"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"aio":"threads","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/srv/top,1","read-only":false},"node-name":"image0","read-only":false}
        -device virtio-blk-pci,id=disk0,drive=image0,serial=iotax-disk,write-cache=off
        "#);
    }

    #[test]
    fn every_cache_mode_means_what_qemu_documents() {
        let table: Vec<String> = CacheMode::WORDS
            .iter()
            .map(|word| {
                let spec = GuestSpec { cache: word.parse().expect("known"), ..GuestSpec::default() };
                let node = block_node("image0", &images(&[("/srv/a", Format::Raw)]), &spec);
                assert_eq!(node["cache"], node["file"]["cache"], "both nodes open the file alike");
                let device = disk_device(&spec);
                let write_cache =
                    device.split(',').find(|part| part.starts_with("write-cache")).expect("given");
                format!("{word}: {} {write_cache}", node["cache"])
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"), @r#"
        none: {"direct":true,"no-flush":false} write-cache=on
        writeback: {"direct":false,"no-flush":false} write-cache=on
        writethrough: {"direct":false,"no-flush":false} write-cache=off
        directsync: {"direct":true,"no-flush":false} write-cache=off
        unsafe: {"direct":false,"no-flush":true} write-cache=on
        "#);
    }

    #[test]
    fn a_socket_name_that_is_too_long_is_found_beforehand() {
        assert_eq!(too_long(Path::new("/run/iotax")), None);
        // "/agent.sock" has eleven bytes.
        assert_eq!(too_long(Path::new(&format!("/{}", "x".repeat(SOCKET_NAME - 12)))), None);
        assert!(too_long(Path::new(&format!("/{}", "x".repeat(SOCKET_NAME - 11)))).is_some());
    }
}
