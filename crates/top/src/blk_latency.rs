//! Latency histograms of block requests, kept in the kernel by two BPF programs (`bpf/latency.bpf.c`).
//!
//! Needs Linux 5.11, the kernel's BTF, and root or CAP_BPF with CAP_PERFMON. Devices without block requests, such as md, have no histogram.

use std::collections::BTreeMap;

use aya::maps::{MapData, PerCpuHashMap};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};

use crate::buckets;
use crate::raw::{RequestKind, RequestLatencies};

/// Compiled BPF object file, aligned as the ELF parser requires.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/latency.bpf.o");

const PROGRAMS: [&str; 2] = ["block_rq_issue", "block_rq_complete"];

/// Number of map values that precede the buckets: total time in ns, requests whose dispatch was observed, and their device time in ns.
const HEAD: usize = 3;
const VALUES: usize = HEAD + buckets::COUNT;

/// Reason why the BPF programs cannot be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BpfError {
    /// The kernel does not provide its type information (BTF).
    #[error("this kernel does not describe its types (/sys/kernel/btf/vmlinux): {0}")]
    Btf(#[from] aya::BtfError),
    /// The object file cannot be parsed, or the kernel refuses to create its maps.
    #[error("the kernel takes no BPF maps from this process (root may): {0}")]
    Load(#[from] aya::EbpfError),
    /// The kernel rejects a program, or the program cannot be attached to its tracepoint.
    #[error("the kernel does not take the BPF program (root may load it, from Linux 5.11 on): {0}")]
    Program(#[from] aya::programs::ProgramError),
    /// A map with latencies cannot be read from the kernel.
    #[error("a BPF map cannot be read: {0}")]
    Map(#[from] aya::maps::MapError),
}

/// Attached BPF programs that measure block requests; they are detached when this value is dropped.
#[derive(Debug)]
pub(crate) struct BlockLatency {
    programs: Ebpf,
}

impl BlockLatency {
    /// Loads the programs and attaches them to the block tracepoints, with room for the histograms of `devices` devices.
    pub(crate) fn attach(devices: usize) -> Result<Self, BpfError> {
        let btf = Btf::from_sys_fs()?;
        let entries = u32::try_from(2 * devices).unwrap_or(u32::MAX);
        let mut programs = EbpfLoader::new().map_max_entries("latency", entries).load(OBJECT)?;
        for name in PROGRAMS {
            let Some(program) = programs.program_mut(name) else { continue };
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(name, &btf)?;
            program.attach()?;
        }
        Ok(Self { programs })
    }

    /// Reads the latencies of all devices since the programs were attached, keyed by `major:minor`.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, Vec<RequestLatencies>>, BpfError> {
        let mut found: BTreeMap<String, Vec<RequestLatencies>> = BTreeMap::new();
        let Some(map) = self.programs.map("latency") else { return Ok(found) };
        let map: PerCpuHashMap<&MapData, u64, [u64; VALUES]> = PerCpuHashMap::try_from(map)?;
        for key in map.keys() {
            let key = key?;
            let direction = match key & 0xff {
                0 => RequestKind::Read,
                1 => RequestKind::Write,
                _ => continue,
            };
            let number = format!("{}:{}", key >> 32, (key >> 8) & 0xff_ffff);
            let mut sums = [0u64; VALUES];
            for cpu in map.get(&key, 0)?.iter() {
                sums.iter_mut().zip(cpu).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            }
            let counts = (0u16..).zip(&sums[HEAD..]).filter(|(_, count)| **count > 0);
            let buckets = counts.map(|(index, count)| (index, *count)).collect();
            let latencies = RequestLatencies { direction, device_ios: sums[1], device_ns: sums[2], buckets };
            found.entry(number).or_default().push(latencies);
        }
        Ok(found)
    }
}
