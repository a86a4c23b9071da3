//! A lab guest as the control domain of Xen: the hypervisor below it, and the programs that `xl` needs.
//!
//! `scripts/setup --tests` unpacks Debian's Xen packages without installing them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iotax_model::units::Bytes;
use iotax_testbed::guest::kernel::Kernel;

use crate::lab_guest::{Archive, listed};

/// Directory into which the packages are unpacked.
const ROOT: &str = "/var/cache/iotax/xen";
const HYPERVISOR: &str = "/var/cache/iotax/xen/boot/xen-4.17-amd64";
const XL: &str = "/var/cache/iotax/xen/usr/lib/xen-4.17/bin/xl";
const XENSTORE_READ: &str = "/var/cache/iotax/xen/usr/bin/xenstore-read";
const DEVICE_MODEL: &str = "/var/cache/iotax/xen/usr/libexec/xen-qemu-system-i386";
const BLOCK_SCRIPT: &str = "/var/cache/iotax/xen/etc/xen/scripts/block";
const KEYMAP: &str = "/usr/share/qemu/keymaps/en-us";

/// Files of this machine that are copied into it.
pub(crate) const FILES: &[&str] = &[HYPERVISOR, XL, XENSTORE_READ, DEVICE_MODEL, BLOCK_SCRIPT, KEYMAP];
/// Programs of the host that Xen's scripts require.
pub(crate) const PROGRAMS: [&str; 4] = ["bash", "flock", "losetup", "stat"];
/// Modules of the control domain. Only kernels that can run as one have the first.
pub(crate) const MODULES: [&str; 7] =
    ["xen-acpi-processor", "xen_evtchn", "xen_gntdev", "xen_gntalloc", "xen_privcmd", "xenfs", "xen_blkback"];

/// Memory of the machine: for the control domain, and the rest for other domains.
pub(crate) const MEMORY: Bytes = Bytes(3584 << 20);
const CONTROL_MEMORY: &str = "dom0_mem=1536M,max:1536M";

/// Script that starts the services of domains and prints the output of `xl`.
const START: &str = r"#!/lab/busybox sh
export PATH=/lab:/bin
for n in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${n%:*} /dev/${n#*:}; done
ln -s /proc/self/fd /dev/fd
ln -s /lab/bash /bin/bash
mkdir -p /dev/pts /proc/xen /run/xen /run/xenstored /run/lock /var/lib/xen/dump /var/log/xen
mount -t devpts devpts /dev/pts
mount -t xenfs xenfs /proc/xen
ln -s /run /var/run
ln -s /run/lock /var/lock
cd /usr/lib/xen-4.17/bin
./xenstored --pid-file /run/xenstored.pid
for wait in $(seq 100); do xenstore-read domid > /run/domid 2>&1 && break; usleep 50000; ./xen-init-dom0 > /run/init 2>&1; done
./xenconsoled --pid-file=/run/xenconsoled.pid
exec xl info
";

/// Appends Xen's programs, and the kernel for domains at the path where iotax searches for it.
pub(crate) fn append(initramfs: &Path, kernel: &Kernel) -> std::io::Result<()> {
    let mut files = BTreeSet::new();
    let tools =
        ["xl", "xenstored", "xenconsoled", "xen-init-dom0"].map(|name| Path::new(XL).with_file_name(name));
    let programs =
        tools.iter().map(PathBuf::as_path).chain([Path::new(XENSTORE_READ), Path::new(DEVICE_MODEL)]);
    for program in programs {
        files.insert(program.to_owned());
        files.extend(libraries(program));
    }
    files.extend([Path::new(ROOT).join("etc/xen/xl.conf"), PathBuf::from(KEYMAP), kernel.image.clone()]);
    // xenconsoled's threads load it at their end.
    files.extend(["/lib/x86_64-linux-gnu/libgcc_s.so.1".into()]);
    for entry in fs::read_dir(Path::new(BLOCK_SCRIPT).parent().expect("a directory"))? {
        files.insert(entry?.path());
    }
    let module = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let module = module.lines().filter_map(|line| line.split(':').next());
    let module = module.into_iter().find(|path| path.contains("/xen-blkfront.ko")).expect("listed");
    files.extend(["modules.dep", "modules.builtin", module].map(|name| kernel.modules.join(name)));

    let mut archive = Archive::default();
    archive.add("var", Archive::DIRECTORY, &[])?;
    for file in files {
        let inner_path = file.strip_prefix(ROOT).map_or(file.clone(), |inside| Path::new("/").join(inside));
        let inner_path = inner_path.to_str().expect("utf-8").trim_start_matches('/').to_owned();
        archive.add_with_directories(&inner_path, &fs::read(&file)?)?;
    }
    archive.add("lab/xl", Archive::LINK, b"/usr/lib/xen-4.17/bin/xl")?;
    archive.add("lab/xenstore-read", Archive::LINK, b"/usr/bin/xenstore-read")?;
    for name in ["xenstore-exists", "xenstore-list", "xenstore-rm", "xenstore-write"] {
        archive.add(&format!("usr/bin/{name}"), Archive::LINK, b"/usr/bin/xenstore-read")?;
    }
    archive.add("lab/xen", Archive::PROGRAM, START.as_bytes())?;
    archive.append_to(initramfs)
}

/// Changes QEMU's arguments so that it boots the hypervisor, which gets kernel and initramfs as modules. Its CPU has no AMD-V: that of
/// QEMU 10.0 reports every read of a control register as one of CR0, and a PVH domain stops in its first steps. It has no XSAVE and
/// FSGSBASE: with these, programs crashed at random once a domain ran.
pub(crate) fn boot_under(arguments: &mut [String], kernel: &Path) {
    let mut set = |option: &str, change: &dyn Fn(&str) -> String| {
        let index = arguments.iter().position(|word| word == option).expect(option);
        arguments[index + 1] = change(&arguments[index + 1]);
    };
    set("-kernel", &|_| HYPERVISOR.to_owned());
    let parameters = std::cell::RefCell::new(String::new());
    set("-append", &|of_kernel| {
        // A comma ends a module.
        *parameters.borrow_mut() = of_kernel.replace("console=ttyS0", "console=hvc0").replace(',', ",,");
        format!("{CONTROL_MEMORY} com1=115200,8n1 console=com1 loglvl=warning")
    });
    set("-initrd", &|initramfs| format!("{} {},{initramfs}", kernel.display(), parameters.borrow()));
    set("-cpu", &|cpu| format!("{cpu},-svm,-xsave,-fsgsbase"));
}

/// Returns the libraries of a Xen program and its dynamic linker.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let own = ["usr/lib/x86_64-linux-gnu", "usr/lib/xen-4.17/lib/x86_64-linux-gnu"];
    let path = own.map(|dir| Path::new(ROOT).join(dir).display().to_string()).join(":");
    listed(Command::new("ldd").env("LD_LIBRARY_PATH", path).arg(program))
}
