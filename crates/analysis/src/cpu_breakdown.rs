//! Breakdown of the host's CPU time per I/O by role.

use iotax_model::TargetSpec;
use iotax_model::record::{CpuTime, HostCpu, Measurement};

use crate::cell_means::CellMeans;
use crate::figures::{interrupts_ns, per_gib, per_io};
use crate::metric::Metric;
use crate::stats::median;

/// A consumer of CPU time on behalf of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The load generator on the host. In a guest its CPU time is part of the vCPUs' time.
    Generator,
    /// The server process of a network test, if the server runs on this host.
    Peer,
    /// Threads that run the guest's virtual CPUs.
    Vcpu,
    /// QEMU's I/O threads, which serve the disk.
    Iothread,
    /// QEMU's main loop thread.
    Main,
    /// QEMU's pool of worker threads.
    Worker,
    /// Servers of storage on this host: ceph-osd, tgtd, nbdkit.
    StorageServer,
    /// Kernel threads of the host.
    KernelThreads,
    /// Interrupts that no thread is charged for.
    Interrupts,
    /// Busy CPU time of the host beyond the other roles; only if the CPU time of the participating processes is unknown.
    Other,
}

impl Role {
    /// All roles, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Generator,
        Self::Peer,
        Self::Vcpu,
        Self::Iothread,
        Self::Main,
        Self::Worker,
        Self::StorageServer,
        Self::KernelThreads,
        Self::Interrupts,
        Self::Other,
    ];

    /// Roles of QEMU's threads. Any other thread name in a measurement's record belongs to a storage server.
    pub const QEMU: [Self; 4] = [Self::Vcpu, Self::Iothread, Self::Main, Self::Worker];

    /// Returns the role's name in JSON and CSV.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Peer => "far_end",
            Self::Vcpu => "vcpu",
            Self::Iothread => "iothread",
            Self::Main => "main",
            Self::Worker => "worker",
            Self::StorageServer => "storage_server",
            Self::KernelThreads => "kernel_threads",
            Self::Interrupts => "interrupts",
            Self::Other => "other",
        }
    }

    /// Returns the role's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generator => "load generator",
            Self::Peer => "server",
            Self::Vcpu => "vCPUs",
            Self::Iothread => "IOThreads",
            Self::Main => "QEMU main",
            Self::Worker => "QEMU workers",
            Self::StorageServer => "storage servers",
            Self::KernelThreads => "kernel threads",
            Self::Interrupts => "interrupts",
            Self::Other => "rest of the host",
        }
    }

    /// Returns the role's CPU nanoseconds in one measurement; `None` if the role's CPU time was not observed.
    fn ns(self, m: &Measurement, spec: &TargetSpec) -> Option<u64> {
        let host = m.host.as_ref()?;
        let thread = |role: &str| host.guest_threads.get(role).map(|time| time.total_ns());
        match self {
            Self::Generator => (!spec.is_in_guest()).then(|| m.outcome.cpu.total_ns()),
            Self::Peer => {
                let far = m.outcome.carried.as_ref().filter(|_| spec.has_server_here())?.server_cpu;
                far.map(CpuTime::total_ns)
            }
            Self::Vcpu | Self::Iothread | Self::Main | Self::Worker => thread(self.word()),
            Self::StorageServer => {
                let is_qemus = |role: &str| Self::QEMU.iter().any(|known| known.word() == role);
                let servers = host.guest_threads.iter().filter(|(role, _)| !is_qemus(role));
                servers.map(|(_, time)| time.total_ns()).reduce(|sum, ns| sum + ns)
            }
            Self::KernelThreads => host.kernel_ns,
            Self::Interrupts => interrupts_ns(host),
            Self::Other if interrupts_ns(host).is_some() => None,
            Self::Other => {
                let named = Self::ALL.into_iter().filter(|role| *role != Self::Other);
                let named: u64 = named.filter_map(|role| role.ns(m, spec)).sum();
                // The host's CPU time is counted in ticks, the threads' is not. A negative difference is therefore unknown.
                host.cpu?.busy_ns().checked_sub(named)
            }
        }
    }
}

/// The host's CPU time per I/O of one workload on one target, by role.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuByRole {
    /// CPU nanoseconds per I/O of the observed roles: medians over the rounds. Scaled to sum to the total CPU time per I/O, if that is
    /// known and the roles include interrupts or the rest of the host.
    pub roles: Vec<(Role, f64)>,
    /// CPU nanoseconds per GiB by role, computed in the same way for network streams; empty for other work.
    pub per_gib: Vec<(Role, f64)>,
    /// Steal time as a share of all CPU time of the guest, idle included, 0 to 1, median over the rounds; absent if the guest does not
    /// report its CPU time.
    pub steal: Option<f64>,
    /// Time in nested guests as a share of all CPU time of the guest, idle included, 0 to 1, median over the rounds; absent if the guest
    /// does not report its CPU time.
    pub nested: Option<f64>,
}

impl CpuByRole {
    /// Computes the breakdown from all rounds of a workload on a target. `None` if fewer than two roles were observed, or if the work ran
    /// on another machine.
    pub(crate) fn of(
        workload: &str,
        spec: &TargetSpec,
        measurements: &[&Measurement],
        means: &CellMeans<'_>,
    ) -> Option<Self> {
        if spec.remote().is_some() {
            return None;
        }
        let over_rounds = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
            median(&measurements.iter().filter_map(|m| figure(m)).collect::<Vec<_>>())
        };
        let by_role = |per: fn(&Measurement, u64) -> Option<f64>| -> Vec<(Role, f64)> {
            let of_role = |role: Role| Some((role, over_rounds(&|m| per(m, role.ns(m, spec)?))?));
            Role::ALL.into_iter().filter_map(of_role).collect()
        };
        let in_proportion = |mut roles: Vec<(Role, f64)>, metric| {
            let is_whole = roles.iter().any(|(role, _)| matches!(role, Role::Interrupts | Role::Other));
            let sum: f64 = roles.iter().map(|(_, ns)| ns).sum();
            if let Some(total) = means.get(workload, &spec.name, metric).filter(|_| is_whole && sum > 0.0) {
                roles.iter_mut().for_each(|(_, ns)| *ns *= total / sum);
            }
            roles
        };
        let roles = in_proportion(by_role(per_io), Metric::CPU_PER_IO);
        let gibs = in_proportion(by_role(per_gib), Metric::CPU_PER_GIB);
        // A breakdown needs at least two roles.
        if roles.len().max(gibs.len()) < 2 {
            return None;
        }
        let inside = |part: &dyn Fn(&HostCpu) -> u64| {
            over_rounds(&|m| {
                let cpu = m.outcome.inside.as_ref()?.cpu?;
                let all = cpu.busy_ns() + cpu.iowait_ns.unwrap_or_default() + cpu.idle_ns + cpu.steal_ns;
                (all > 0).then(|| part(&cpu) as f64 / all as f64)
            })
        };
        Some(Self {
            roles,
            per_gib: gibs,
            steal: inside(&|cpu| cpu.steal_ns),
            nested: inside(&|cpu| cpu.guest_ns),
        })
    }

    /// Returns a role's CPU nanoseconds per I/O, from `roles`; `None` if the role's CPU time was not observed.
    #[must_use]
    pub fn of_role(&self, role: Role) -> Option<f64> {
        self.roles.iter().find(|(known, _)| *known == role).map(|(_, ns)| *ns)
    }
}
