//! The messages between a coordinator and its members. Times are nanoseconds of the monotonic clock of one machine; fields named
//! `..._member_ns` are on the member's clock.

use std::path::PathBuf;

use iotax_model::record::{Environment, FleetMode, Measurement, RunPhase, TargetRecord};
use iotax_model::{Histogram, Plan, RunState, Warning};
use serde::{Deserialize, Serialize};

/// Version of the messages. A member with another version is refused, with a message that names both versions.
pub const PROTOCOL: u32 = 2;

/// Number of one measurement in the run. The same number means the same target, workload and round on every member.
pub type StepNumber = u64;

/// A message from the coordinator to a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToMember {
    /// The coordinator does not accept the member, which must leave.
    Refused {
        /// The reason why the member is refused.
        reason: String,
    },
    /// Check whether this plan can be carried out, and answer with [`FromMember::Checked`].
    Assign(Box<Assignment>),
    /// Answer this immediately with [`FromMember::Pong`]. The round trip shows the offset of the clocks.
    Ping {
        /// Number of the ping, which the answer repeats.
        number: u64,
    },
    /// Begin to carry out the plan.
    Begin,
    /// Start a step at a given time.
    Go {
        /// Number of the step to start.
        step: StepNumber,
        /// Start time in nanoseconds of the member's clock.
        at_member_ns: u64,
    },
    /// The coordinator has stored the part with this number on disk.
    Acknowledge {
        /// Number of the part, as in [`FromMember::Kept`].
        number: u64,
    },
    /// Stop immediately, undo all changes, and answer with [`FromMember::Over`]. A member that has not begun leaves without an answer.
    Cancel,
    /// Finish the current measurement, stop, undo all changes, and answer with [`FromMember::Over`]. A member that has not begun leaves
    /// without an answer.
    Drain,
}

/// A plan that a member is to carry out, and its conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Id of the fleet that the member works for.
    pub fleet: String,
    /// Mode of the fleet. With [`FleetMode::Shared`], the member waits for [`ToMember::Go`] before each step.
    pub mode: FleetMode,
    /// The plan for this member. Its rates are the member's share, and its targets are those of the member.
    pub plan: Plan,
    /// Seed of the order of measurements, the same for all members, so that all measure in the same order.
    pub seed: u64,
    /// Steps to skip, because the coordinator has their results from an earlier attempt.
    #[serde(default)]
    pub done: Vec<StepNumber>,
    /// Devices whose content may be overwritten, as the user confirmed.
    #[serde(default)]
    pub overwrite: Vec<PathBuf>,
    /// True to overwrite the devices in `overwrite` even if they hold a filesystem, RAID, LVM, a partition table or other data.
    #[serde(default)]
    pub overwrite_signature: bool,
}

/// A message from a member to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromMember {
    /// The first message after connecting.
    Hello {
        /// Version of the member's messages, its [`PROTOCOL`].
        protocol: u32,
        /// Version and commit of the member's iotax.
        version: String,
        /// Hardware and software of the member's machine.
        environment: Box<Environment>,
    },
    /// The answer to a ping.
    Pong {
        /// Number of the answered ping.
        number: u64,
        /// Time at which the ping was read, in nanoseconds of the member's clock.
        received_member_ns: u64,
        /// Time at which this answer was sent, in nanoseconds of the member's clock.
        sent_member_ns: u64,
        /// Error bound of the member's wall clock in nanoseconds, as chrony reports it; `None` if unknown.
        chrony_error_ns: Option<u64>,
    },
    /// The answer to an assignment. The member has changed nothing yet.
    Checked {
        /// The resources that the plan needs exclusively on this member; empty if it cannot be carried out.
        claims: Claims,
        /// The reason why the member cannot carry out the plan; `None` if it can.
        refusal: Option<String>,
    },
    /// The member's current activity in a few words: provisioning, booting guests, round 3 of 5.
    Doing(String),
    /// A step is set up and waits for its start.
    Ready {
        /// Number of the step that is set up.
        step: StepNumber,
    },
    /// A step has started.
    Began {
        /// Number of the started step.
        step: StepNumber,
        /// Start time that the coordinator had set, in nanoseconds of the member's clock.
        intended_member_ns: u64,
        /// Actual start time in nanoseconds of the member's clock.
        at_member_ns: u64,
    },
    /// The figures of one interval of a step.
    Sample(Merged),
    /// A part of the run. The member keeps it until the coordinator acknowledges it.
    Kept {
        /// Number of the part, from 1 for each member.
        number: u64,
        /// The part of the run to store.
        part: Box<RunPart>,
    },
    /// The member has ended its run and undone its changes, except for those that `reason` names.
    Over {
        /// The state in which the run ended.
        state: RunState,
        /// The reason why the run failed, and changes that could not be undone; `None` if there is nothing to report.
        reason: Option<String>,
    },
}

/// The resources that a member's plan needs exclusively. Two members on one machine must not claim the same ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The kernel's boot id, which shows that two members run on the same machine; `None` if it cannot be read.
    pub boot_id: Option<String>,
    /// The filesystems on which the plan creates files.
    pub filesystems: Vec<FilesystemClaim>,
    /// The files that the plan creates under given names, and the devices that it writes to.
    pub files: Vec<FileClaim>,
}

impl Claims {
    /// Returns the bytes that the plan needs on all filesystems together.
    #[must_use]
    pub fn space_bytes(&self) -> u64 {
        self.filesystems.iter().fold(0, |sum, one| sum.saturating_add(one.need_bytes))
    }
}

/// Space that a plan needs on one filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemClaim {
    /// Device number of the filesystem on the member's machine.
    pub device: u64,
    /// A directory on the filesystem in which files are created.
    pub directory: PathBuf,
    /// Bytes that the plan needs on the filesystem.
    pub need_bytes: u64,
    /// Free bytes of the filesystem before the run.
    pub available_bytes: u64,
    /// Size of the filesystem in bytes.
    pub total_bytes: u64,
}

/// A file or device that no other member may use at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileClaim {
    /// Path of the file or device, without symbolic links.
    pub path: PathBuf,
    /// Identity of the file or device, which is the same under every path to it.
    pub identity: FileIdentity,
}

/// The identity of a file or device on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FileIdentity {
    /// A block device, by its device number, from stat(2).
    Device(u64),
    /// A file that does not exist yet, by its directory and name.
    New {
        /// The device number of the directory's filesystem, from stat(2).
        device: u64,
        /// Inode number of the directory.
        directory: u64,
        /// Name of the file in the directory.
        name: PathBuf,
    },
}

/// A part of a member's run, which the coordinator stores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "nearly all are measurements, and messages hold them boxed")]
pub enum RunPart {
    /// Hardware and software of the member's machine.
    Environment(Environment),
    /// The plan, including the rates that were determined during the run.
    Plan(Plan),
    /// A target, with its layers as the member built them.
    Target(TargetRecord),
    /// A finished measurement.
    Measurement(Measurement),
    /// A warning about the run, such as a setting that had no effect.
    Warning(Warning),
    /// Wall-clock time of the run's phases.
    Phases(Vec<RunPhase>),
}

/// The figures of one interval of a step, of one member or merged from several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// Number of the step that the figures belong to.
    pub step: StepNumber,
    /// Number of the interval in the step, from 0.
    pub interval: u32,
    /// Number of members whose figures are merged.
    pub members: u32,
    /// Number of I/Os that these members completed in the interval.
    pub ios: u64,
    /// Bytes that these members read and wrote in the interval.
    pub bytes: u64,
    /// Latencies of these members' I/Os in the interval.
    pub latency: Histogram,
}

impl Merged {
    /// Adds the figures of other members in the same interval. Sums do not overflow, because members send them.
    pub fn merge(&mut self, other: &Self) {
        let Self { step: _, interval: _, members, ios, bytes, latency } = other;
        self.members = self.members.saturating_add(*members);
        self.ios = self.ios.saturating_add(*ios);
        self.bytes = self.bytes.saturating_add(*bytes);
        self.latency.merge(latency);
    }
}
