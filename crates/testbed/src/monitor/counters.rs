//! Parses counters of block devices, network interfaces, CPUs and pressure stall information, and computes differences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use iotax_model::record::{DiskActivity, DiskFlushes, HostCpu, NicActivity, Pressure};

/// Bytes per sector in /proc/diskstats, whatever the device's block size.
const SECTOR: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_US: u64 = 1_000;

/// Returns the nanoseconds per clock tick, the unit of CPU times in /proc.
pub(super) fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Returns `(later - earlier) * unit`; `None` if the counter ran backwards, or on overflow.
pub(super) fn since(earlier: u64, later: u64, unit: u64) -> Option<u64> {
    later.checked_sub(earlier)?.checked_mul(unit)
}

/// I/O counters of a block device since it appeared (kernel documentation, admin-guide/iostats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskCounters {
    reads: u64,
    read_merges: u64,
    read_sectors: u64,
    read_ms: u64,
    writes: u64,
    write_merges: u64,
    write_sectors: u64,
    write_ms: u64,
    busy_ms: u64,
    /// Number of flushes and their total milliseconds; `None` before Linux 5.5.
    flushes: Option<(u64, u64)>,
}

/// The write cache and FUA settings in /sys/block/X/queue, from which the kernel decides whether to send flushes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlushPolicy {
    volatile_cache: Option<bool>,
    fua: Option<bool>,
    /// The kernel's number of the device, `major << 20 | minor`; `None` if it cannot be read.
    pub(super) number: Option<u64>,
}

impl FlushPolicy {
    /// Reads the settings of a device, given by its kernel name. `None` if the kernel counts no flushes for it: partitions and devices
    /// without a request queue.
    pub(super) fn of(root: &Path, disk: &str) -> Option<Self> {
        let device = root.join("sys/block").join(disk);
        if !device.join("mq").is_dir() {
            return None;
        }
        let read = |name: &str| fs::read_to_string(device.join("queue").join(name)).ok();
        let volatile_cache = match read("write_cache").as_deref().map(str::trim) {
            Some("write back") => Some(true),
            Some("write through") => Some(false),
            _ => None,
        };
        let fua = read("fua").and_then(|text| text.trim().parse::<u8>().ok()).map(|fua| fua != 0);
        let number = fs::read_to_string(device.join("dev")).ok().and_then(|text| {
            let (major, minor) = text.trim().split_once(':')?;
            Some(major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?)
        });
        Some(Self { volatile_cache, fua, number })
    }
}

/// Returns the counters of the devices in `names`, from the text of /proc/diskstats. Devices that it does not list are left out.
pub(super) fn disks(diskstats: &str, names: &[String]) -> BTreeMap<String, DiskCounters> {
    let named = diskstats.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let name = fields.nth(2)?;
        names.iter().any(|wanted| wanted == name).then_some(())?;
        Some((name.to_owned(), DiskCounters::parse(fields)?))
    });
    named.collect()
}

impl DiskCounters {
    /// Parses the fields of /proc/diskstats after the device name; `None` if one is missing, except for those of flushes. Ignores discard
    /// counters.
    fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut fields = fields.map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self {
            reads: next()?,
            read_merges: next()?,
            read_sectors: next()?,
            read_ms: next()?,
            writes: next()?,
            write_merges: next()?,
            write_sectors: next()?,
            write_ms: next()?,
            busy_ms: {
                let _in_flight: u64 = next()?;
                next()?
            },
            flushes: {
                let [_weighted_ms, ..] = [(); 5].map(|()| next());
                next().zip(next())
            },
        })
    }

    /// Returns the activity of the device from this reading to `later`, `duration_ns` apart. `cache` is the flush policy; without one,
    /// flushes are left out, because the kernel does not count them. Returns `None` if a counter of reads, writes or busy time ran
    /// backwards, or if `duration_ns` is 0.
    pub(super) fn until(
        &self,
        later: &Self,
        duration_ns: u64,
        cache: Option<FlushPolicy>,
    ) -> Option<DiskActivity> {
        let reads = since(self.reads, later.reads, 1)?;
        let writes = since(self.writes, later.writes, 1)?;
        let read_wait_ns = since(self.read_ms, later.read_ms, NS_PER_MS)?;
        let write_wait_ns = since(self.write_ms, later.write_ms, NS_PER_MS)?;
        let waited = read_wait_ns.checked_add(write_wait_ns)?;
        let busy_ns = since(self.busy_ms, later.busy_ms, NS_PER_MS)?;
        if duration_ns == 0 {
            return None;
        }
        Some(DiskActivity {
            reads,
            read_bytes: since(self.read_sectors, later.read_sectors, SECTOR)?,
            read_merges: since(self.read_merges, later.read_merges, 1)?,
            writes,
            write_bytes: since(self.write_sectors, later.write_sectors, SECTOR)?,
            write_merges: since(self.write_merges, later.write_merges, 1)?,
            // The kernel counts busy time in ticks, which may slightly exceed the window.
            busy: (busy_ns as f64 / duration_ns as f64).min(1.0),
            mean_wait_ns: (reads + writes > 0).then(|| waited as f64 / (reads + writes) as f64),
            read_wait_ns: Some(read_wait_ns),
            write_wait_ns: Some(write_wait_ns),
            flushes: cache.and_then(|cache| {
                let ((before, before_ms), (after, after_ms)) = (self.flushes?, later.flushes?);
                Some(DiskFlushes {
                    done: since(before, after, 1)?,
                    wait_ns: since(before_ms, after_ms, NS_PER_MS)?,
                    volatile_cache: cache.volatile_cache,
                    fua: cache.fua,
                    fua_writes: None,
                })
            }),
        })
    }
}

/// Counters of a network interface since it appeared (proc_net(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NicCounters(NicActivity);

/// Returns the counters of all network interfaces by name, from the text of /proc/net/dev.
pub(super) fn nics(dev: &str) -> BTreeMap<String, NicCounters> {
    let named = dev.lines().filter_map(|line| {
        // The two header lines have no colon.
        let (name, fields) = line.rsplit_once(':')?;
        Some((name.trim().to_owned(), NicCounters::parse(fields)?))
    });
    named.collect()
}

impl NicCounters {
    /// Returns the counter values since the interface appeared.
    pub(super) fn totals(self) -> NicActivity {
        self.0
    }

    /// Parses the fields of /proc/net/dev after the name: eight for receive, then eight for transmit. Errors count as
    /// drops. `None` if a field is missing.
    fn parse(fields: &str) -> Option<Self> {
        let fields: Option<Vec<u64>> =
            fields.split_ascii_whitespace().map(|field| field.parse().ok()).collect();
        let [
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            _,
            _,
            _,
            _,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_dropped,
            ..,
        ] = *fields?
        else {
            return None;
        };
        Some(Self(NicActivity {
            rx_bytes,
            rx_packets,
            rx_drops: rx_errors.checked_add(rx_dropped)?,
            tx_bytes,
            tx_packets,
            tx_drops: tx_errors.checked_add(tx_dropped)?,
        }))
    }

    /// Returns the traffic from this reading to `later`; `None` if a counter ran backwards.
    pub(super) fn until(&self, later: &Self) -> Option<NicActivity> {
        let (earlier, later) = (&self.0, &later.0);
        Some(NicActivity {
            rx_bytes: since(earlier.rx_bytes, later.rx_bytes, 1)?,
            rx_packets: since(earlier.rx_packets, later.rx_packets, 1)?,
            rx_drops: since(earlier.rx_drops, later.rx_drops, 1)?,
            tx_bytes: since(earlier.tx_bytes, later.tx_bytes, 1)?,
            tx_packets: since(earlier.tx_packets, later.tx_packets, 1)?,
            tx_drops: since(earlier.tx_drops, later.tx_drops, 1)?,
        })
    }
}

/// CPU times of the whole machine since boot in clock ticks, from the first line of /proc/stat (proc_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuCounters {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
    guest: u64,
    guest_nice: u64,
}

/// Parses the CPU times summed over all CPUs from the text of /proc/stat; `None` if a field is missing.
pub(super) fn cpu(stat: &str) -> Option<CpuCounters> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut fields = line.split_ascii_whitespace().map(|field| field.parse().ok());
    let mut next = || fields.next().flatten();
    Some(CpuCounters {
        user: next()?,
        nice: next()?,
        system: next()?,
        idle: next()?,
        iowait: next()?,
        irq: next()?,
        softirq: next()?,
        steal: next()?,
        guest: next()?,
        guest_nice: next()?,
    })
}

impl CpuCounters {
    /// Returns the CPU times from this reading to `later`; `None` if a counter other than I/O wait ran backwards.
    pub(super) fn until(&self, later: &Self) -> Option<HostCpu> {
        let tick = tick_ns();
        let both = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        Some(HostCpu {
            // The kernel includes guest time in user and nice.
            user_ns: both(since(self.user, later.user, tick), since(self.nice, later.nice, tick))?,
            system_ns: since(self.system, later.system, tick)?,
            irq_ns: both(since(self.irq, later.irq, tick), since(self.softirq, later.softirq, tick))?,
            iowait_ns: since(self.iowait, later.iowait, tick),
            idle_ns: since(self.idle, later.idle, tick)?,
            steal_ns: since(self.steal, later.steal, tick)?,
            guest_ns: both(
                since(self.guest, later.guest, tick),
                since(self.guest_nice, later.guest_nice, tick),
            )?,
        })
    }
}

/// Stall times since boot in microseconds, from /proc/pressure (kernel documentation, accounting/psi).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PressureCounters {
    io_some: u64,
    io_full: u64,
    cpu_some: u64,
    memory_some: u64,
}

/// Returns the stall times from the texts of the three files; `None` if one is missing or cannot be parsed.
pub(super) fn pressure(
    io: Option<&str>,
    cpu: Option<&str>,
    memory: Option<&str>,
) -> Option<PressureCounters> {
    Some(PressureCounters {
        io_some: total(io?, "some ")?,
        io_full: total(io?, "full ")?,
        cpu_some: total(cpu?, "some ")?,
        memory_some: total(memory?, "some ")?,
    })
}

fn total(text: &str, line: &str) -> Option<u64> {
    let line = text.lines().find(|candidate| candidate.starts_with(line))?;
    line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

impl PressureCounters {
    /// Returns the stall times since boot in nanoseconds; `None` on overflow.
    pub(super) fn totals(self) -> Option<Pressure> {
        let boot = Self { io_some: 0, io_full: 0, cpu_some: 0, memory_some: 0 };
        boot.until(&self)
    }

    /// Returns the stall times from this reading to `later`; `None` if a counter ran backwards.
    pub(super) fn until(&self, later: &Self) -> Option<Pressure> {
        Some(Pressure {
            io_some_ns: since(self.io_some, later.io_some, NS_PER_US)?,
            io_full_ns: since(self.io_full, later.io_full, NS_PER_US)?,
            cpu_some_ns: since(self.cpu_some, later.cpu_some, NS_PER_US)?,
            memory_some_ns: since(self.memory_some, later.memory_some, NS_PER_US)?,
        })
    }
}
