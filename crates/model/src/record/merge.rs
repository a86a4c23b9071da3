//! Merges the results of several loads. Structs are destructured without `..`, so that a new field does not compile until it is merged here.

use std::collections::BTreeMap;

use super::{
    BlockStats, BlockTally, CpuTime, DiskActivity, DiskFlushes, ErrorCount, HostActivity, HostCpu,
    NicActivity, Outcome, Pacing, PageCache, Pressure, ProcessCounts, Replayed, Sample, Share, WindowEdges,
};

/// The relation between loads whose outcomes are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadRelation {
    /// All loads ran at the same time in one process, whose CPU time is in every outcome: the merged outcome has the CPU time of the longest load.
    SharedProcess,
    /// The loads ran at the same time, each in its own process: CPU times are added, and the other counters of the processes are dropped.
    OwnProcess,
    /// The loads ran one after another, as rounds do: windows, CPU times and counters of the processes are added, and the activity of the
    /// agent's machine is dropped.
    Successive,
}

impl LoadRelation {
    /// Returns the duration of two loads together.
    fn duration(self, one_ns: u64, other_ns: u64) -> u64 {
        match self {
            Self::SharedProcess | Self::OwnProcess => one_ns.max(other_ns),
            Self::Successive => one_ns + other_ns,
        }
    }
}

impl Sample {
    /// Merges the same interval of a concurrent load into this sample.
    pub fn merge(&mut self, other: Self) {
        let Self { at_ns, duration_ns, tallies, oldest_ns, failed, directions } = other;
        self.at_ns = self.at_ns.max(at_ns);
        self.duration_ns = self.duration_ns.max(duration_ns);
        self.tallies.merge(&tallies);
        self.oldest_ns = self.oldest_ns.max(oldest_ns);
        self.failed += failed;
        for direction in directions {
            match self.directions.iter_mut().find(|known| known.upload == direction.upload) {
                Some(known) => known.merge(direction),
                None => self.directions.push(direction),
            }
        }
    }
}

impl Outcome {
    /// Merges the outcomes of several loads, given by name: jobs in one process, guests, several network servers, or rounds. Each note gets the name
    /// of its load as a prefix.
    ///
    /// Counts are added; of concurrent loads the longest window is used; a result of `steadystate` becomes a note. Absent afterwards: blackouts and gaps of
    /// devices; the flush time, if a load that wrote or failed has none; page cache and machine activity, if any load lacks them; the I/O engine, if
    /// engines differ.
    pub fn merge(parts: impl IntoIterator<Item = (String, Self)>, relation: LoadRelation) -> Self {
        let parts: Vec<(String, Self)> = parts.into_iter().collect();
        let outcomes = || parts.iter().map(|(_, outcome)| outcome);
        let engine = outcomes().next().and_then(|first| first.ioengine);
        let cached: Option<Vec<PageCache>> = outcomes().map(|outcome| outcome.page_cache).collect();
        let inside: Option<Vec<&HostActivity>> = outcomes().map(|outcome| outcome.inside.as_ref()).collect();
        let is_unflushed = |outcome: &Self| {
            outcome.flush_ns.is_none() && (outcome.tallies.write.is_some() || !outcome.errors.is_empty())
        };
        let unflushed = outcomes().any(is_unflushed);
        let mut all = Self {
            ioengine: engine.filter(|_| outcomes().all(|outcome| outcome.ioengine == engine)),
            counts: (relation == LoadRelation::Successive).then(ProcessCounts::default),
            page_cache: cached.and_then(|parts| parts.into_iter().reduce(PageCache::merge)),
            inside: inside
                .filter(|machines| !machines.is_empty() && relation != LoadRelation::Successive)
                .map(|machines| HostActivity::merge(&machines)),
            ..Self::default()
        };
        for (name, outcome) in parts {
            all.add(&name, outcome, relation);
        }
        all.flush_ns = all.flush_ns.filter(|_| !unflushed);
        all
    }

    fn add(&mut self, name: &str, part: Self, relation: LoadRelation) {
        let Self {
            duration_ns,
            tallies,
            edges,
            ramp_ios,
            cpu,
            counts,
            errors,
            notes,
            ioengine: _,
            pacing,
            replayed,
            stop,
            steadystate,
            blackouts: _,
            devices: _,
            verify,
            inside: _,
            first_io_ns,
            flush_ns,
            page_cache: _,
            carried,
            jobs,
        } = part;
        match relation {
            LoadRelation::SharedProcess if duration_ns > self.duration_ns => {
                (self.cpu, self.counts) = (cpu, counts);
            }
            LoadRelation::SharedProcess => {}
            LoadRelation::OwnProcess => self.cpu = self.cpu.plus(cpu),
            LoadRelation::Successive => {
                self.cpu = self.cpu.plus(cpu);
                self.counts = self.counts.zip(counts).map(|(one, other)| one.plus(other));
            }
        }
        self.duration_ns = relation.duration(self.duration_ns, duration_ns);
        self.tallies.merge(&tallies);
        self.edges = self.edges.into_iter().chain(edges).reduce(WindowEdges::merge);
        self.ramp_ios += ramp_ios;
        errors.iter().for_each(|error| ErrorCount::add(&mut self.errors, error));
        let steady = steadystate.map(|result| result.to_string());
        self.notes.extend(notes.into_iter().chain(steady).map(|note| format!("{name}: {note}")));
        self.pacing = self.pacing.into_iter().chain(pacing).reduce(Pacing::merge);
        self.replayed = self.replayed.take().into_iter().chain(replayed).reduce(Replayed::merge);
        self.stop = self.stop.or(stop);
        if let Some(findings) = verify {
            self.verify.get_or_insert_default().merge(findings);
        }
        self.first_io_ns = self.first_io_ns.into_iter().chain(first_io_ns).min();
        self.flush_ns = self.flush_ns.max(flush_ns);
        match (&mut self.carried, carried) {
            (Some(all), Some(carried)) => all.merge(&carried),
            (none, carried) => *none = none.take().or(carried),
        }
        jobs.iter().for_each(|job| Share::add(&mut self.jobs, job, relation));
    }
}

impl Share {
    /// Adds a share to a list that has one entry per name. For a known name, tallies are added; of concurrent loads the longer duration is kept.
    pub fn add(known: &mut Vec<Self>, share: &Self, relation: LoadRelation) {
        let Self { name, duration_ns, tallies } = share;
        match known.iter_mut().find(|one| one.name == *name) {
            Some(one) => {
                one.duration_ns = relation.duration(one.duration_ns, *duration_ns);
                one.tallies.merge(tallies);
            }
            None => known.push(share.clone()),
        }
    }
}

impl HostActivity {
    /// Merges the activity of several guests or machines, each over its own window. CPU, pressure and kernel threads' times and disk I/Os
    /// are added; disk utilization is averaged; the longest window is kept. Disks are matched by name, because all guests of a target use
    /// the same disk names. CPU or pressure is absent if any machine lacks it; all other figures are dropped.
    #[must_use]
    pub fn merge(machines: &[&Self]) -> Self {
        let mut all = Self::default();
        for machine in machines {
            // CPU and pressure are merged below. The other ignored fields are those that only a host reports, not a guest or other machine.
            let Self {
                at_ns,
                duration_ns,
                disks,
                nics: _,
                cpu: _,
                pressure: _,
                guest_threads: _,
                kernel_threads,
                programs_ns: _,
                kernel_ns: _,
                watching_ns: _,
                pace: _,
                flushed,
            } = machine;
            all.at_ns = all.at_ns.max(*at_ns);
            all.duration_ns = all.duration_ns.max(*duration_ns);
            add_disks(&mut all.disks, disks, machines.len());
            add_disks(&mut all.flushed, flushed, machines.len());
            for (name, time) in kernel_threads {
                let sum = all.kernel_threads.entry(name.clone()).or_default();
                *sum = sum.plus(*time);
            }
        }
        let cpus: Option<Vec<HostCpu>> = machines.iter().map(|machine| machine.cpu).collect();
        let pressures: Option<Vec<Pressure>> = machines.iter().map(|machine| machine.pressure).collect();
        all.cpu = cpus.and_then(|all| all.into_iter().reduce(HostCpu::plus));
        all.pressure = pressures.and_then(|all| all.into_iter().reduce(Pressure::plus));
        all
    }
}

impl CpuTime {
    /// Adds two CPU times.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let Self { user_ns, system_ns } = other;
        Self { user_ns: self.user_ns + user_ns, system_ns: self.system_ns + system_ns }
    }
}

impl ProcessCounts {
    const fn plus(self, other: Self) -> Self {
        let Self { context_switches, major_faults, minor_faults } = other;
        Self {
            context_switches: self.context_switches + context_switches,
            major_faults: self.major_faults + major_faults,
            minor_faults: self.minor_faults + minor_faults,
        }
    }
}

impl HostCpu {
    fn plus(self, other: Self) -> Self {
        let Self { user_ns, system_ns, irq_ns, iowait_ns, idle_ns, steal_ns, guest_ns } = other;
        Self {
            user_ns: self.user_ns + user_ns,
            system_ns: self.system_ns + system_ns,
            irq_ns: self.irq_ns + irq_ns,
            iowait_ns: self.iowait_ns.zip(iowait_ns).map(|(one, other)| one + other),
            idle_ns: self.idle_ns + idle_ns,
            steal_ns: self.steal_ns + steal_ns,
            guest_ns: self.guest_ns + guest_ns,
        }
    }
}

impl Pressure {
    const fn plus(self, other: Self) -> Self {
        let Self { io_some_ns, io_full_ns, cpu_some_ns, memory_some_ns } = other;
        Self {
            io_some_ns: self.io_some_ns + io_some_ns,
            io_full_ns: self.io_full_ns + io_full_ns,
            cpu_some_ns: self.cpu_some_ns + cpu_some_ns,
            memory_some_ns: self.memory_some_ns + memory_some_ns,
        }
    }
}

fn add_disks(
    all: &mut BTreeMap<String, DiskActivity>,
    disks: &BTreeMap<String, DiskActivity>,
    machines: usize,
) {
    for (name, disk) in disks {
        match all.get_mut(name) {
            Some(sum) => sum.add(disk, machines),
            None => {
                all.insert(name.clone(), DiskActivity { busy: disk.busy / machines as f64, ..disk.clone() });
            }
        }
    }
}

impl DiskActivity {
    fn add(&mut self, other: &Self, machines: usize) {
        let Self {
            reads,
            read_bytes,
            read_merges,
            writes,
            write_bytes,
            write_merges,
            busy,
            mean_wait_ns,
            read_wait_ns,
            write_wait_ns,
            flushes,
        } = *other;
        let waited = |ios: u64, mean: Option<f64>| mean.map_or(0.0, |mean| mean * ios as f64);
        let (ios, others) = (self.reads + self.writes, reads + writes);
        let sum_ns = waited(ios, self.mean_wait_ns) + waited(others, mean_wait_ns);
        let both = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        *self = Self {
            reads: self.reads + reads,
            read_bytes: self.read_bytes + read_bytes,
            read_merges: self.read_merges + read_merges,
            writes: self.writes + writes,
            write_bytes: self.write_bytes + write_bytes,
            write_merges: self.write_merges + write_merges,
            busy: self.busy + busy / machines as f64,
            mean_wait_ns: (ios + others > 0).then(|| sum_ns / (ios + others) as f64),
            read_wait_ns: both(self.read_wait_ns, read_wait_ns),
            write_wait_ns: both(self.write_wait_ns, write_wait_ns),
            flushes: self.flushes.zip(flushes).map(|(one, other)| one.plus(other)),
        };
    }
}

impl DiskFlushes {
    /// Adds the flushes of another disk. The cache mode or FUA support becomes absent if the disks differ in it.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let Self { done, wait_ns, volatile_cache, fua, fua_writes } = other;
        Self {
            done: self.done + done,
            wait_ns: self.wait_ns + wait_ns,
            volatile_cache: self.volatile_cache.filter(|_| self.volatile_cache == volatile_cache),
            fua: self.fua.filter(|_| self.fua == fua),
            fua_writes: self.fua_writes.zip(fua_writes).map(|(one, other)| one + other),
        }
    }
}

impl BlockStats {
    /// Adds the I/Os of another guest's disk to these.
    pub fn merge(&mut self, other: &Self) {
        let Self { read, write, flush } = other;
        self.read.merge(read);
        self.write.merge(write);
        self.flush.merge(flush);
    }
}

impl BlockTally {
    fn merge(&mut self, other: &Self) {
        let Self { ios, bytes, total_ns, latency } = other;
        self.ios += ios;
        self.bytes += bytes;
        self.total_ns += total_ns;
        for (end, count) in latency {
            match self.latency.iter_mut().find(|(known, _)| known == end) {
                Some((_, known)) => *known += count,
                None => self.latency.push((*end, *count)),
            }
        }
    }
}

impl NicActivity {
    /// Adds the counters of two network interfaces.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let Self { rx_bytes, rx_packets, rx_drops, tx_bytes, tx_packets, tx_drops } = other;
        Self {
            rx_bytes: self.rx_bytes + rx_bytes,
            rx_packets: self.rx_packets + rx_packets,
            rx_drops: self.rx_drops + rx_drops,
            tx_bytes: self.tx_bytes + tx_bytes,
            tx_packets: self.tx_packets + tx_packets,
            tx_drops: self.tx_drops + tx_drops,
        }
    }
}

#[cfg(test)]
mod tests;
