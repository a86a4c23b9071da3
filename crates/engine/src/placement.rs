//! Binds the calling thread to CPUs and NUMA memory, and sets its I/O priority.
#![expect(unsafe_code, reason = "two system calls have no safe form")]

use std::io;
use std::path::Path;

use iotax_load::error::EngineError;
use iotax_model::workload::{CpuPolicy, MemoryPolicy, NumberList, Workload};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Maximum number of NUMA nodes, from the kernel's limit; the number of bits in a node mask.
const NODES: usize = 1024;

/// Binds the calling thread, which is worker number `number`, to the CPUs and NUMA nodes of its workload, and sets its I/O priority.
pub(crate) fn bind_thread(workload: &Workload, number: u32) -> Result<(), EngineError> {
    if let Some(cpus) = cpus(workload)? {
        bind(&cpus, workload.cpus_allowed_policy, number)?;
    }
    if let Some(policy) = &workload.numa_mem_policy {
        set_memory_policy(policy)
            .map_err(EngineError::system(format!("taking memory as numa_mem_policy = {policy} says")))?;
    }
    if workload.prio.is_some() || workload.prioclass.is_some() {
        let (class, level) = (workload.prioclass.unwrap_or(BEST_EFFORT), workload.prio.unwrap_or(0));
        set_io_priority(class, level)
            .map_err(EngineError::system(format!("setting prioclass = {class}, prio = {level}")))?;
    }
    Ok(())
}

/// Returns the CPUs that a workload names, directly or by NUMA node; `None` if it names neither.
fn cpus(workload: &Workload) -> Result<Option<Vec<u32>>, EngineError> {
    let Some(nodes) = &workload.numa_cpu_nodes else {
        return Ok(workload.cpus_allowed.as_ref().map(|list| list.numbers().collect()));
    };
    let mut cpus = Vec::new();
    for node in nodes.numbers() {
        cpus.extend(of_node(Path::new("/sys/devices/system/node"), node).map_err(EngineError::system(
            format!("finding the CPUs of NUMA node {node}, which numa_cpu_nodes = {nodes} names"),
        ))?);
    }
    Ok(Some(cpus))
}

/// Returns the CPUs of a NUMA node; empty for a node that has only memory.
fn of_node(nodes: &Path, node: u32) -> io::Result<Vec<u32>> {
    let list = std::fs::read_to_string(nodes.join(format!("node{node}/cpulist")))?;
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: NumberList = list.trim().parse().map_err(io::Error::other)?;
    Ok(list.numbers().collect())
}

fn bind(cpus: &[u32], policy: Option<CpuPolicy>, number: u32) -> Result<(), EngineError> {
    let own = match policy {
        Some(CpuPolicy::Split) if !cpus.is_empty() => &cpus[number as usize % cpus.len()..][..1],
        _ => cpus,
    };
    let mut set = CpuSet::new();
    for cpu in own.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    let shown = own.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    sched_setaffinity(None, &set)
        .map_err(io::Error::from)
        .map_err(EngineError::system(format!("binding worker {number} to CPU {shown}")))
}

fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    let (mode, nodes) = match policy {
        MemoryPolicy::Default => (libc::MPOL_DEFAULT, vec![]),
        MemoryPolicy::Local => (libc::MPOL_LOCAL, vec![]),
        MemoryPolicy::Prefer(node) => (libc::MPOL_PREFERRED, vec![*node]),
        MemoryPolicy::Bind(nodes) => (libc::MPOL_BIND, nodes.numbers().collect()),
        MemoryPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes.numbers().collect()),
    };
    let mut mask = [0_u64; NODES / 64];
    for node in &nodes {
        let word = mask.get_mut(*node as usize / 64);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % 64);
    }
    let (mask, bits) = if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), NODES) };
    // SAFETY: the kernel reads as many bits as it is told of a mask that lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The I/O priority class "best effort", fio's default for a `prio` without `prioclass`.
const BEST_EFFORT: u16 = 2;

fn set_io_priority(class: u16, level: u16) -> io::Result<()> {
    /// The `which` argument of ioprio_set(2) for a thread; with id 0 it means the calling thread.
    const WHO: i32 = 1;
    let value = i32::from(class) << 13 | i32::from(level);
    // SAFETY: three numbers.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO, 0, value) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

    fn bound(keys: &[(&str, &str)], number: u32) -> Result<String, EngineError> {
        let mut own = WorkloadKeys::default();
        keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
        let workload = own.complete(&WorkloadKeys::default());
        // A separate thread, so that its settings do not outlive the test.
        std::thread::spawn(move || {
            bind_thread(&workload, number)?;
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
            // SAFETY: two numbers.
            let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) };
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            Ok(format!("{} {priority:#x}", allowed.expect("a list").trim()))
        })
        .join()
        .expect("no panic")
    }

    #[test]
    fn a_thread_is_where_it_is_told_to_be() {
        let set = rustix::thread::sched_getaffinity(None).expect("a set");
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        let last = cpus.last().expect("a CPU").to_string();
        assert!(bound(&[("cpus_allowed", &last)], 0).expect("bound").starts_with(&format!("{last} ")));
        let all = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        for (number, cpu) in (0..).zip(cpus.iter().cycle()).take(cpus.len() + 1) {
            let keys = [("cpus_allowed", all.as_str()), ("cpus_allowed_policy", "split")];
            assert!(bound(&keys, number).expect("bound").starts_with(&format!("{cpu} ")), "{number}");
        }
        assert!(bound(&[("prioclass", "3"), ("prio", "2")], 0).expect("set").ends_with(" 0x6002"));
        assert!(bound(&[("prio", "7")], 0).expect("set").ends_with(" 0x4007"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = bound(&[("cpus_allowed", "1000")], 3).expect_err("no such CPU").to_string();
        assert!(error.contains("binding worker 3 to CPU 1000"), "{error}");
        let error = bound(&[("numa_cpu_nodes", "900")], 0).expect_err("no such node").to_string();
        assert!(error.contains("NUMA node 900"), "{error}");
    }

    #[test]
    fn nodes_have_their_cpus_and_give_memory() {
        let nodes = tempfile::tempdir().expect("directory");
        for (node, list) in [("node0", "0-1,4\n"), ("node1", "\n")] {
            std::fs::create_dir(nodes.path().join(node)).expect("made");
            std::fs::write(nodes.path().join(node).join("cpulist"), list).expect("written");
        }
        assert_eq!(of_node(nodes.path(), 0).expect("read"), [0, 1, 4]);
        assert_eq!(of_node(nodes.path(), 1).expect("read"), Vec::<u32>::new());
        assert!(of_node(nodes.path(), 2).is_err());
        if !Path::new("/sys/devices/system/node/node0").exists() {
            iotax_testkit::skip!("no NUMA nodes here");
        }
        for policy in ["default", "local", "prefer:0", "bind:0", "interleave:0"] {
            match bound(&[("numa_mem_policy", policy)], 0) {
                Err(error) if error.to_string().contains("not permitted") => {
                    iotax_testkit::skip!("set_mempolicy is forbidden here")
                }
                bound => drop(bound.expect(policy)),
            }
        }
    }
}
