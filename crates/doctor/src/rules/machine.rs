//! Rules on the machine as a whole.

use iotax_model::survey::MachineSetup;
use iotax_model::units::human;

use crate::rule::{Rule, Subject, Sureness, Violation, violation};

/// Minimum percentage of the last 5 minutes with all tasks stalled on memory at which memory pressure is reported.
const STALLS_PERCENT: f64 = 5.0;
/// Minimum steal time in percent at which the hypervisor counts as overcommitted.
const STEAL_PERCENT: f64 = 10.0;
/// Limit of dirty memory in bytes below which writers constantly wait for the disk.
const FEW_DIRTY_BYTES: u64 = 16 << 20;
/// Minimum vm.dirty_ratio, in percent, at which writing back all dirty pages takes minutes.
const MANY_DIRTY_PERCENT: u64 = 40;

/// Object named in violations that concern the machine itself.
const HERE: &str = "machine";

fn one(violation: Option<Violation>) -> Vec<Violation> {
    violation.into_iter().collect()
}

/// Returns the value of a fact; `None` if it is unknown or 0.
fn some(machine: Option<&iotax_model::survey::Fact<u64>>) -> Option<u64> {
    machine.map(|fact| fact.value).filter(|value| *value > 0)
}

fn slow_clock(machine: &MachineSetup) -> Option<Violation> {
    const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
    let clock = machine.clocksource.as_ref().filter(|clock| SLOW.contains(&clock.value.as_str()))?;
    violation(
        HERE,
        clock.value.clone(),
        clock,
        "dmesg | grep -i clocksource says why; in a guest: kvm-clock or invtsc",
    )
}

fn governor(machine: &MachineSetup) -> Option<Violation> {
    // These drivers scale the frequency even under the governor named powersave.
    const OWN: [&str; 3] = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];
    let governor = machine.governor.as_ref().filter(|governor| governor.value == "powersave")?;
    let driver = machine.frequency_driver.as_ref().filter(|driver| !OWN.contains(&driver.value.as_str()))?;
    violation(
        HERE,
        format!("powersave with driver {}", driver.value),
        governor,
        "cpupower frequency-set -g schedutil (or performance)",
    )
}

fn dirty_background(machine: &MachineSetup) -> Option<Violation> {
    let percent = machine.dirty_background_percent.as_ref().zip(some(machine.dirty_percent.as_ref()));
    let bytes = machine.dirty_background_bytes.as_ref().zip(some(machine.dirty_bytes.as_ref()));
    // The kernel sets the pair that is not in use to 0.
    let (fact, limit) = percent.or(bytes).filter(|(fact, limit)| fact.value >= *limit)?;
    let background = fact.value;
    violation(
        HERE,
        format!("background {background}, limit {limit}"),
        fact,
        "sysctl vm.dirty_background_ratio=10 vm.dirty_ratio=20",
    )
}

fn dirty_small(machine: &MachineSetup) -> Option<Violation> {
    let by_percent = || {
        let fact = machine.dirty_percent.as_ref().filter(|percent| percent.value == 1)?;
        Some((fact, "dirty_ratio 1".to_owned()))
    };
    let by_bytes = || {
        let fact =
            machine.dirty_bytes.as_ref().filter(|bytes| (1..FEW_DIRTY_BYTES).contains(&bytes.value))?;
        Some((fact, format!("dirty_bytes {}", human::bytes(fact.value))))
    };
    let (fact, value) = by_bytes().or_else(by_percent)?;
    violation(HERE, value, fact, "sysctl vm.dirty_background_ratio=10 vm.dirty_ratio=20")
}

fn swappiness(machine: &MachineSetup) -> Option<Violation> {
    let swappiness = machine.swappiness.as_ref()?;
    let swaps = machine.swaps.as_ref().map(|swaps| swaps.value.as_slice()).unwrap_or_default();
    let is_on_disk = !swaps.is_empty() && !swaps.iter().any(|swap| swap.starts_with("/dev/zram"));
    let is_extreme = swappiness.value == 0 || swappiness.value > 100;
    let value = format!("swappiness {} with swap on {}", swappiness.value, swaps.join(", "));
    (is_extreme && is_on_disk)
        .then(|| violation(HERE, value, swappiness, "sysctl vm.swappiness=60 (10 for hosts of guests)"))?
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "aio-used-up",
        subject: Subject::Machine,
        sureness: Sureness::Fault,
        title: "Hardly an asynchronous I/O is left",
        why: "The next database or guest with native AIO fails to start: io_setup returns EAGAIN.",
        source: "Linux: Documentation/admin-guide/sysctl/fs.rst, aio-nr and aio-max-nr",
        check: |survey| {
            let used = survey.machine.aio.as_ref();
            one(used.zip(survey.machine.aio_max.as_ref()).and_then(|(used, most)| {
                let is_low = most.value > 0 && used.value > most.value / 10 * 9;
                let value = format!("{} of {} are reserved", used.value, most.value);
                is_low.then(|| violation(HERE, value, used, "sysctl fs.aio-max-nr=1048576"))?
            }))
        },
    },
    Rule {
        id: "clocksource-slow",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "The kernel's clock is slow to read",
        why: "Each I/O reads the clock several times; these ones take a microsecond or more, in a guest an exit.",
        source: "Linux: Documentation/virt/kvm/x86/timekeeping.rst",
        check: |survey| one(slow_clock(&survey.machine)),
    },
    Rule {
        id: "governor-powersave",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "The CPUs stay at their lowest frequency",
        why: "With this driver powersave means the lowest frequency whatever the load; every I/O's CPU time grows.",
        source: "Linux: Documentation/admin-guide/pm/cpufreq.rst, powersave",
        check: |survey| one(governor(&survey.machine)),
    },
    Rule {
        id: "dirty-limit-small",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "Writers wait for the disk almost at once",
        why: "The limit of dirty memory is so low that buffered writes run at the disk's pace and nothing is gathered.",
        source: "Linux: Documentation/admin-guide/sysctl/vm.rst, dirty_bytes and dirty_ratio",
        check: |survey| one(dirty_small(&survey.machine)),
    },
    Rule {
        id: "dirty-limit-large",
        subject: Subject::Machine,
        sureness: Sureness::Depends,
        title: "Much memory may be dirty",
        why: "fsync and unmount may wait for minutes until it is written, and a crash loses it. It helps work that deletes what it wrote.",
        source: "Linux: Documentation/admin-guide/sysctl/vm.rst, dirty_ratio",
        check: |survey| {
            let percent = survey.machine.dirty_percent.as_ref();
            one(percent.filter(|percent| percent.value >= MANY_DIRTY_PERCENT).and_then(|percent| {
                violation(
                    HERE,
                    format!("dirty_ratio {}", percent.value),
                    percent,
                    "sysctl vm.dirty_ratio=20, or vm.dirty_bytes",
                )
            }))
        },
    },
    Rule {
        id: "dirty-background-above-limit",
        subject: Subject::Machine,
        sureness: Sureness::Depends,
        title: "Writeback is set to begin at or above its limit",
        why: "The kernel then takes half of the limit, which is not what was set.",
        source: "Linux: Documentation/admin-guide/sysctl/vm.rst, dirty_background_ratio; mm/page-writeback.c",
        check: |survey| one(dirty_background(&survey.machine)),
    },
    Rule {
        id: "swappiness-extreme",
        subject: Subject::Machine,
        sureness: Sureness::Depends,
        title: "Swappiness is at an end of its range",
        why: "0 keeps memory that is never used until almost nothing is left; above 100 swapping counts as cheaper than reading files, true for zram only.",
        source: "Linux: Documentation/admin-guide/sysctl/vm.rst, swappiness",
        check: |survey| one(swappiness(&survey.machine)),
    },
    Rule {
        id: "zone-reclaim",
        subject: Subject::Machine,
        sureness: Sureness::Depends,
        title: "A NUMA node throws out file pages although another has free memory",
        why: "The page cache is then as small as one node; the kernel's documentation recommends it off for what depends on caching.",
        source: "Linux: Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
        check: |survey| {
            let mode = survey.machine.zone_reclaim.as_ref().filter(|mode| mode.value != 0);
            one(mode.and_then(|mode| {
                violation(
                    HERE,
                    format!("zone_reclaim_mode {}", mode.value),
                    mode,
                    "sysctl vm.zone_reclaim_mode=0",
                )
            }))
        },
    },
    Rule {
        id: "huge-page-stalls",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "Programs wait while the kernel makes huge pages",
        why: "defrag=always compacts memory in the page fault of any program; the default does so only for those that ask for huge pages.",
        source: "Linux: Documentation/admin-guide/mm/transhuge.rst, defrag",
        check: |survey| {
            let defrag = survey.machine.huge_page_defrag.as_ref().filter(|defrag| defrag.value == "always");
            one(defrag.and_then(|defrag| {
                violation(HERE, "defrag always", defrag, format!("echo madvise > {}", defrag.source))
            }))
        },
    },
    Rule {
        id: "memory-stalls",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "The machine waits for memory",
        why: "All tasks waited for memory for this part of the last 5 minutes; swap and refaults compete with the I/O to be measured.",
        source: "Linux: Documentation/accounting/psi.rst",
        check: |survey| {
            let stalls =
                survey.machine.memory_stalls_percent.as_ref().filter(|stalls| stalls.value >= STALLS_PERCENT);
            one(stalls.and_then(|stalls| {
                violation(
                    HERE,
                    format!("full avg300 {:.1}%", stalls.value),
                    stalls,
                    "find who uses it: ps aux --sort -rss | head",
                )
            }))
        },
    },
    Rule {
        id: "cpu-stolen",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "The hypervisor gives this machine's CPU time to others",
        why: "I/O completes late when the CPU that it interrupts is not running.",
        source: "proc_stat(5), steal",
        check: |survey| {
            let steal = survey.machine.steal_percent.as_ref().filter(|steal| steal.value >= STEAL_PERCENT);
            one(steal.and_then(|steal| {
                violation(
                    HERE,
                    format!("{:.1}% of the CPU time since boot", steal.value),
                    steal,
                    "fewer guests on that host, or CPUs of its own",
                )
            }))
        },
    },
    Rule {
        id: "mitigations-off",
        subject: Subject::Machine,
        sureness: Sureness::Depends,
        title: "The CPU's mitigations are off",
        why: "System calls and exits are cheaper, and a guest may read the memory of others. Figures do not compare with machines that have them.",
        source: "Linux: Documentation/admin-guide/kernel-parameters.txt, mitigations",
        check: |survey| {
            let line = survey.machine.command_line.as_ref();
            let line =
                line.filter(|line| line.value.split_whitespace().any(|word| word == "mitigations=off"));
            one(line.and_then(|line| {
                violation(
                    HERE,
                    "mitigations=off",
                    line,
                    "remove it from the kernel's command line unless all code here is trusted",
                )
            }))
        },
    },
    Rule {
        id: "cgroup-limit",
        subject: Subject::Machine,
        sureness: Sureness::Cost,
        title: "A control group limits I/O or CPU",
        why: "No I/O is faster than this limit, whatever the disk can do.",
        source: "Linux: Documentation/admin-guide/cgroup-v2.rst, io.max and cpu.max; cgroup-v1/blkio-controller.rst",
        check: |survey| {
            let limits = survey.machine.limits.iter();
            limits
                .filter_map(|limit| {
                    let value = format!("{} {}", limit.file, limit.limit.value);
                    violation(&limit.of, value, &limit.limit, "systemctl show --property=IOReadBandwidthMax,IOWriteBandwidthMax,CPUQuotaPerSecUSec UNIT")
                })
                .collect()
        },
    },
];
