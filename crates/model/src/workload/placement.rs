//! CPUs, NUMA nodes and I/O priority of a job's workers.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};
use super::{IoEngine, Workload, WorkloadError};
use crate::words::words;

/// Highest accepted number of a CPU or NUMA node: one less than the kernel's maximum number of CPUs.
const LARGEST: u32 = 8191;

/// A list of CPUs or NUMA nodes, given by number and in ranges. Text form: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberList(Vec<(u32, u32)>);

impl NumberList {
    /// Returns all numbers in the list, in the order in which they were given.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromStr for NumberList {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |part: &str| {
            let reason = format!("{part:?} is neither a number up to {LARGEST} nor a range");
            TextError::new("a list of numbers", text, reason, "numbers and ranges such as 0-3,8")
        };
        let number = |part: &str| part.trim().parse().ok().filter(|number| *number <= LARGEST);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
            range.ok_or_else(|| refuse(part))
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for NumberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

text_form!(NumberList);

words! {
    /// The assignment of a job's allowed CPUs to its threads, under fio's names.
    CpuPolicy, "cpus_allowed_policy" {
        /// Each thread may use all of the CPUs.
        Shared = "shared",
        /// Each thread is bound to one of the CPUs, in turn.
        Split = "split",
    }
}

/// The NUMA nodes that a job's memory is allocated from, as in fio's `numa_mem_policy`. Text form: `bind:0`, `interleave:0-1`, `prefer:1`, `local` or
/// `default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The default policy of the process.
    Default,
    /// The node of the CPU that runs the allocating thread.
    Local,
    /// This node, or another node if it has no free memory.
    Prefer(u32),
    /// Only these nodes, even if they have no free memory.
    Bind(NumberList),
    /// These nodes in turn, page by page.
    Interleave(NumberList),
}

impl FromStr for MemoryPolicy {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let accepted = "default, local, prefer:NODE, bind:NODES or interleave:NODES";
        let refuse = |reason: String| TextError::new("a memory policy", text, reason, accepted);
        let (word, nodes) = text.split_once(':').unwrap_or((text, ""));
        let list = || nodes.parse::<NumberList>().map_err(|error| refuse(error.to_string()));
        match word {
            "default" if nodes.is_empty() => Ok(Self::Default),
            "local" if nodes.is_empty() => Ok(Self::Local),
            "prefer" => list()?.numbers().next().map(Self::Prefer).ok_or_else(|| refuse("no node".into())),
            "bind" => Ok(Self::Bind(list()?)),
            "interleave" => Ok(Self::Interleave(list()?)),
            _ => Err(refuse(format!("{word:?} is not one that is known"))),
        }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Local => f.write_str("local"),
            Self::Prefer(node) => write!(f, "prefer:{node}"),
            Self::Bind(nodes) => write!(f, "bind:{nodes}"),
            Self::Interleave(nodes) => write!(f, "interleave:{nodes}"),
        }
    }
}

text_form!(MemoryPolicy);

impl Workload {
    /// Rejects priorities by I/O that the engine does not support, and placement keys that exclude each other.
    pub(super) fn check_placement(&self) -> Result<(), WorkloadError> {
        let takes_priorities = matches!(self.ioengine, IoEngine::IoUring | IoEngine::Libaio);
        let remedy = "needs ioengine = io_uring or libaio";
        if let Some(split) = &self.cmdprio_bssplit {
            let remedy = if self.cmdprio_percentage.is_some() {
                "cmdprio_percentage is given too; use one of them"
            } else {
                remedy
            };
            if self.cmdprio_percentage.is_some() || !takes_priorities {
                return Err(self.refusal("cmdprio_bssplit", split, remedy));
            }
        }
        match self.cmdprio_percentage {
            Some(percent) if !takes_priorities => {
                return Err(self.refusal("cmdprio_percentage", &percent, remedy));
            }
            None if self.cmdprio_bssplit.is_none() => {
                for (key, value) in [("cmdprio_class", self.cmdprio_class), ("cmdprio", self.cmdprio)] {
                    if let Some(value) = value {
                        return Err(self.refusal(key, &value, "needs cmdprio_percentage or cmdprio_bssplit"));
                    }
                }
            }
            _ => {}
        }
        if let (Some(cpus), Some(_)) = (&self.cpus_allowed, &self.numa_cpu_nodes) {
            let remedy = "numa_cpu_nodes is given too; use one of them";
            return Err(self.refusal("cpus_allowed", cpus, remedy));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_and_policies_read_back() {
        let list: NumberList = "0-2, 7".parse().expect("a list");
        assert_eq!(
            (list.numbers().collect::<Vec<_>>(), list.to_string().as_str()),
            (vec![0, 1, 2, 7], "0-2,7")
        );
        for text in ["default", "local", "prefer:1", "bind:0-1", "interleave:0,2"] {
            assert_eq!(text.parse::<MemoryPolicy>().expect(text).to_string(), text);
        }
        for text in ["", "a", "3-1", "9000", "0-", "1,,2"] {
            assert!(text.parse::<NumberList>().expect_err(text).to_string().contains("such as 0-3,8"));
        }
        for text in ["", "bind", "bind:x", "local:1", "mine"] {
            assert!(text.parse::<MemoryPolicy>().expect_err(text).to_string().contains("prefer:NODE"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(bind:|prefer:)?[0-9,-]{0,9}|.{0,9}") {
            if let Ok(list) = text.parse::<NumberList>() {
                prop_assert_eq!(list.to_string().parse(), Ok(list));
            }
            if let Ok(policy) = text.parse::<MemoryPolicy>() {
                prop_assert_eq!(policy.to_string().parse(), Ok(policy));
            }
        }
    }
}
