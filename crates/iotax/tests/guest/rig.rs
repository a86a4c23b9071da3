//! Common parts of guest tests: a directory with everything that guests need, and jobs for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_model::target::{Accel, CacheMode, FileSpec, Format, GuestSpec, PlannedDevice};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{ByteRange, Job};
use iotax_model::workload::{Rw, WorkloadKeys};
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::{
    Guest, GuestConfig, GuestDevice, GuestStorage, image, initramfs, modules, vmlinux,
};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::lock::ProcessLock;
use iotax_testkit::require;

/// Well above the duration of a boot, so that no test fails on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(90);
pub(crate) const SIZE: Bytes = Bytes(16 << 20);

pub(crate) fn area(path: Option<&str>) -> ByteRange {
    ByteRange { path: path.map(str::to_owned), offset: Bytes(0), size: SIZE, shared: false, identity: None }
}

/// A directory with everything that guests need.
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kernel: Kernel,
    /// The same kernel, unpacked.
    booted: Kernel,
    pub(crate) initramfs: PathBuf,
    pub(crate) lock: ProcessLock,
}

impl Rig {
    /// Returns `None` and prints the reason if this machine cannot run guests.
    pub(crate) fn build() -> Option<Self> {
        Self::build_for(&GuestSpec::default())
    }

    /// Same, for the given guest.
    pub(crate) fn build_for(spec: &GuestSpec) -> Option<Self> {
        require!(guests);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        let kernel = Kernel::find(Path::new("/"), release.trim(), None, None).expect("a kernel for guests");
        Some(Self::build_on(spec, PlannedDevice::Disk, &kernel))
    }

    /// Same, with the given kernel.
    pub(crate) fn build_on(spec: &GuestSpec, device: PlannedDevice<'_>, kernel: &Kernel) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let initramfs = dir.path().join("initramfs");
        initramfs::write(&initramfs, Path::new(env!("CARGO_BIN_EXE_iotax")), kernel, spec, device)
            .expect("built");
        let lock = ProcessLock::take(&dir.path().join("lock")).expect("a lock").expect("free");
        let unpacked = vmlinux::write(&kernel.image, dir.path().join("vmlinux")).expect("unpacked");
        let mut booted = kernel.clone();
        booted.image = unpacked.unwrap_or(booted.image);
        Self { dir, kernel: kernel.clone(), booted, initramfs, lock }
    }

    pub(crate) fn image(&self, name: &str, format: Format) -> PathBuf {
        let path = self.dir.path().join(name);
        let file = FileSpec { format, ..FileSpec::default() };
        image::create(&path, &file, SIZE, &self.lock).expect("created");
        path
    }

    /// The configuration of a guest whose image is raw and whose host cache works on any filesystem.
    pub(crate) fn config(&self, name: &str) -> GuestConfig {
        let run_dir = self.dir.path().join(name);
        fs::create_dir(&run_dir).expect("made");
        GuestConfig {
            marker: format!("iotax-test-{}-{name}", std::process::id()),
            spec: GuestSpec { cache: CacheMode::Writeback, ..GuestSpec::default() },
            accel: Accel::Tcg,
            kernel: self.booted.clone(),
            initramfs: self.initramfs.clone(),
            device: disk(self.image(&format!("{name}.img"), Format::Raw), Format::Raw),
            kernel_parameters: String::new(),
            run_dir,
            lock: self.lock.clone(),
        }
    }

    pub(crate) fn boot(&self, name: &str) -> Guest {
        let mut guest = Guest::boot(&self.config(name), &Interrupt::default()).expect("started");
        guest.wait_ready(BOOT).expect("ready");
        guest
    }
}

/// A disk with the whole image.
pub(crate) fn disk(image: PathBuf, format: Format) -> GuestDevice {
    GuestDevice::Disk(storage(image, format))
}

/// The whole image.
pub(crate) fn storage(image: PathBuf, format: Format) -> GuestStorage {
    GuestStorage { image, format, part: None, l2_cache_size: None, filesystem: None }
}

/// A kernel of this machine that has these modules: Debian's kernel for clouds has neither AHCI nor old network cards.
pub(crate) fn kernel_with(needed: &[&str]) -> Kernel {
    let boot = fs::read_dir("/boot").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut known = boot.filter_map(|image| Kernel::find(Path::new("/"), "", Some(&image), None).ok());
    let found = known.find(|kernel| modules::check(&kernel.modules, needed).is_ok());
    found.unwrap_or_else(|| panic!("no kernel in /boot has {needed:?}"))
}

/// Returns the text of the error; panics on success.
pub(crate) fn text<T>(result: Result<T, impl std::fmt::Display>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

/// A job on the guest's disk, half a second long.
pub(crate) fn job(rw: Rw) -> Job {
    let keys = WorkloadKeys { rw: Some(rw), iodepth: Some(8), ..WorkloadKeys::default() };
    let mut workload = keys.complete(&WorkloadKeys::default());
    (workload.runtime, workload.ramp_time) = (Nanos::from_millis(500), Nanos::from_millis(100));
    Job { writable: rw.writes(), ..Job::new(workload, SIZE, 7, Nanos::from_millis(100)) }
}
