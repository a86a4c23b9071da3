//! Messages between a coordinator and its members. Times are by each machine's monotonic clock; names end in whose clock it is.

use std::path::PathBuf;

use iotax_model::record::{Environment, FleetMode, Measurement, RunPhase, TargetRecord};
use iotax_model::{Histogram, Plan, RunState, Warning};
use serde::{Deserialize, Serialize};

/// The version of these messages. A member with another version is refused; the message names both.
pub const PROTOCOL: u32 = 2;

/// Number of one execution of one cell: equal numbers mean the same cell and round on every member.
pub type StepNumber = u64;

/// A message from the coordinator to a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToMember {
    /// The coordinator does not accept the member.
    Refused {
        /// Why.
        reason: String,
    },
    /// Carry this plan out.
    Assign(Box<Assignment>),
    /// A ping, to be answered at once: the round trip shows the clock offset.
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// Start: every member can carry out its plan.
    Begin,
    /// Begin a step at this moment.
    Go {
        /// The step.
        step: StepNumber,
        /// The start time by the member's clock.
        at_member_ns: u64,
    },
    /// The coordinator has stored the part with this number on disk.
    Acknowledge {
        /// The number in [`FromMember::Kept`].
        number: u64,
    },
    /// Stop, undo everything, and answer [`FromMember::Over`].
    Cancel,
    /// Finish the current measurement, then stop, undo everything, and answer [`FromMember::Over`].
    Drain,
}

/// A plan to carry out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The fleet's id.
    pub fleet: String,
    /// The mode of the fleet. With [`FleetMode::Shared`] each step waits for [`ToMember::Go`].
    pub mode: FleetMode,
    /// The plan of this member: rates are already divided among members, and targets are its own.
    pub plan: Plan,
    /// The seed, the same for all, so that cells come in the same order everywhere.
    pub seed: u64,
    /// Steps to skip, because the coordinator has them from an earlier attempt.
    #[serde(default)]
    pub done: Vec<StepNumber>,
    /// Devices that the user allows to be overwritten.
    #[serde(default)]
    pub overwrite: Vec<PathBuf>,
    /// True to overwrite them even if they have the signature of a filesystem, RAID, LVM or partition table.
    #[serde(default)]
    pub overwrite_signature: bool,
}

/// A message from a member to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromMember {
    /// The first message.
    Hello {
        /// [`PROTOCOL`] of the member.
        protocol: u32,
        /// Version and commit of the member.
        version: String,
        /// Its machine.
        environment: Box<Environment>,
    },
    /// The answer to [`ToMember::Ping`].
    Pong {
        /// The ping's number.
        number: u64,
        /// The time at which the ping was read, by the member's clock.
        received_member_ns: u64,
        /// The time at which this answer was sent, by the member's clock.
        sent_member_ns: u64,
        /// The error bound of this machine's wall clock by chrony, if it runs.
        chrony_error_ns: Option<u64>,
    },
    /// The answer to [`ToMember::Assign`]. Nothing was touched yet.
    Checked {
        /// The resources that the plan claims on this member; empty if it cannot be carried out.
        claims: Claims,
        /// Why the plan cannot be carried out there; absent if it can.
        refusal: Option<String>,
    },
    /// Its current activity in a word or two: provisioning, booting guests, round 3 of 5.
    Doing(String),
    /// A step is set up and can begin.
    Ready {
        /// The step.
        step: StepNumber,
    },
    /// A step has begun.
    Began {
        /// The step.
        step: StepNumber,
        /// The intended start time.
        intended_member_ns: u64,
        /// The actual start time.
        at_member_ns: u64,
    },
    /// An interval of a step.
    Sample(Merged),
    /// A part of the run, kept here until acknowledged.
    Kept {
        /// Counts from 1 for each member.
        number: u64,
        /// The part.
        part: Box<RunPart>,
    },
    /// The assignment has ended and everything was undone.
    Over {
        /// The state that it ended in.
        state: RunState,
        /// Why it failed, and what could not be undone.
        reason: Option<String>,
    },
}

/// The claims of a member's plan on its machine: members on one machine must not claim the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The kernel's boot id, which identifies the running machine. Absent if it cannot be read.
    pub boot_id: Option<String>,
    /// The filesystems on which it creates files.
    pub filesystems: Vec<FilesystemClaim>,
    /// The files that it creates under a name from the plan, and the devices that it writes to.
    pub files: Vec<FileClaim>,
}

impl Claims {
    /// Bytes on all filesystems.
    #[must_use]
    pub fn space_bytes(&self) -> u64 {
        self.filesystems.iter().fold(0, |sum, one| sum.saturating_add(one.need_bytes))
    }
}

/// Space needed on a filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemClaim {
    /// The filesystem's device number on the machine.
    pub device: u64,
    /// A directory on the filesystem.
    pub directory: PathBuf,
    /// Bytes needed.
    pub need_bytes: u64,
    /// Free bytes on the filesystem.
    pub available_bytes: u64,
    /// Size of the filesystem in bytes.
    pub total_bytes: u64,
}

/// A file or device that needs exclusive use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileClaim {
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// Identity of the file within one machine, independent of its path.
    pub identity: FileIdentity,
}

/// The identity of a file or device within one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FileIdentity {
    /// A block device, by its number.
    Device(u64),
    /// A file that does not exist yet: its directory and its name.
    New {
        /// The device number of the directory's filesystem.
        device: u64,
        /// The directory's inode.
        directory: u64,
        /// The name.
        name: PathBuf,
    },
}

/// A part of a member's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "nearly all are measurements, and messages hold them boxed")]
pub enum RunPart {
    /// The machine.
    Environment(Environment),
    /// The plan, with the rates that were determined for it.
    Plan(Plan),
    /// A target as it was built.
    Target(TargetRecord),
    /// A measurement.
    Measurement(Measurement),
    /// A warning.
    Warning(Warning),
    /// Wall time by phase.
    Phases(Vec<RunPhase>),
}

/// An interval of a member, or of several merged in transit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// The step.
    pub step: StepNumber,
    /// The interval's number in the step, from 0.
    pub interval: u32,
    /// Number of members merged into the interval.
    pub members: u32,
    /// I/Os of all merged members.
    pub ios: u64,
    /// Bytes of all merged members.
    pub bytes: u64,
    /// Latencies of all merged members.
    pub latency: Histogram,
}
