//! A watch: a known load, events that are triggered during the load, and limits on their effect.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::{Action, Operation, PlannedEvent};
use super::{Plan, PlanError};
use crate::number;
use crate::target::{Format, PlannedLayer, TargetSpec, VirtioSpec};
use crate::units::Nanos;
use crate::words::words;
use crate::workload::{Kind, Verify, Workload};

/// Default response time above which an I/O counts as late.
const LATE: Nanos = Nanos::from_secs(1);

/// Triggers events during each measurement, and measures their effect on the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    /// Events during each measurement, except those of the control workload
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub events: Vec<PlannedEvent>,
    /// Requirements: `gap < 30s`, `recovery <= 1m`, `late = 0`, `errors = 0`, `lost = 0`
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub require: Vec<Requirement>,
    /// Response time, counted from when an I/O was due, above which the I/O counts as late [default: 1s]
    #[serde(default = "late")]
    pub late: Nanos,
    /// Name of a workload that runs without events; the cost of an event is measured against the same seconds of this workload
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub control: Option<String>,
    /// Maximum number of I/Os per second on each file to which mirror, backup or backup-fleecing copies [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1))]
    pub copy_iops: Option<u32>,
    /// Measure all targets in one window, so that each event affects all of them at once [default: false, one after another]
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub together: bool,
}

fn late() -> Nanos {
    LATE
}

impl Default for WatchSpec {
    fn default() -> Self {
        let (events, require) = (Vec::new(), Vec::new());
        Self { events, require, late: LATE, control: None, copy_iops: None, together: false }
    }
}

words! {
    /// The figure that a requirement limits.
    WatchFigure, "figure" {
        /// The longest time without a completed I/O or round trip.
        Gap = "gap",
        /// The longest time from an event until the load has recovered.
        Recovery = "recovery",
        /// I/Os or round trips that completed more than `late` after they were due, or not at all.
        Late = "late",
        /// I/Os that failed.
        Errors = "errors",
        /// Blocks that do not hold the data of an acknowledged write.
        Lost = "lost",
    }
}

/// The limit that a requirement sets on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The longest accepted duration.
    Time(Nanos),
    /// The largest accepted number.
    Count(u64),
}

/// A requirement on the effect of events, such as a longest gap without a completed I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requirement {
    /// The figure that the requirement limits.
    pub figure: WatchFigure,
    /// The limit on the figure.
    pub limit: Limit,
    /// True if the figure must be below the limit; false if it may also equal the limit.
    pub below: bool,
}

/// A text that cannot be parsed as a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{input:?} is not a requirement: {reason}; accepted: gap < TIME, recovery < TIME, late <= N, errors = 0, lost = 0"
)]
pub struct RequirementError {
    input: String,
    reason: String,
}

impl Requirement {
    /// Returns whether a value of the figure, in nanoseconds or as a count, meets the requirement.
    #[must_use]
    pub const fn allows(&self, value: u64) -> bool {
        let limit = match self.limit {
            Limit::Time(most) => most.0,
            Limit::Count(most) => most,
        };
        value < limit || (value == limit && !self.below)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.limit {
            Limit::Count(0) => format!("{} = 0", self.figure),
            Limit::Count(most) => format!("{} {} {most}", self.figure, self.sign()),
            Limit::Time(most) => format!("{} {} {most}", self.figure, self.sign()),
        };
        f.pad(&text)
    }
}

impl Requirement {
    const fn sign(&self) -> &'static str {
        if self.below { "<" } else { "<=" }
    }
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let refuse = |reason: String| RequirementError { input: text.to_owned(), reason };
        let at = text.find(['<', '=', '>']).ok_or_else(|| refuse("it has no <, <= or =".into()))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let sign_len = rest.find(|c| !"<=>".contains(c)).unwrap_or(rest.len());
        let (sign, limit) = (&rest[..sign_len], rest[sign_len..].trim());
        let figure: WatchFigure = name.parse().map_err(|error| refuse(format!("{error}")))?;
        if !matches!(sign, "<" | "<=" | "=" | "==") {
            return Err(refuse(format!("{sign:?}: it says the most that passes, by < or <=")));
        }
        let limit = match figure {
            WatchFigure::Gap | WatchFigure::Recovery => {
                Limit::Time(limit.parse().map_err(|error| refuse(format!("{error}")))?)
            }
            _ => Limit::Count(
                number::whole(limit, &(0..=u64::MAX))
                    .map_err(|error| refuse(format!("{figure}: {error}")))?,
            ),
        };
        let (none, below) = (matches!(limit, Limit::Count(0) | Limit::Time(Nanos(0))), sign == "<");
        if below && none {
            return Err(refuse("nothing is below it".into()));
        }
        if sign.starts_with('=') && !none {
            return Err(refuse(format!("only {figure} = 0 is asked by =; of others the most: <=")));
        }
        Ok(Self { figure, limit, below })
    }
}

impl TryFrom<String> for Requirement {
    type Error = RequirementError;

    fn try_from(text: String) -> Result<Self, RequirementError> {
        text.parse()
    }
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        requirement.to_string()
    }
}

impl JsonSchema for Requirement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Requirement".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "What must hold: `gap < TIME`, `recovery < TIME`, `late <= N`, `errors = 0` or `lost = 0`",
            "examples": ["gap < 30s", "recovery <= 1m", "late = 0", "errors = 0", "lost = 0"]
        })
    }
}

impl WatchSpec {
    /// Returns the events during a workload with their times from the start of its window, in order. Empty for the control workload.
    #[must_use]
    pub fn events_of(&self, workload: &Workload) -> Vec<(Nanos, &PlannedEvent)> {
        if self.is_control(&workload.name) { Vec::new() } else { self.scheduled(workload.runtime) }
    }

    /// Returns the pairs of an event and its alternative, which has the [alternative](Operation::alternative) operation: `backup-fleecing`
    /// and `backup`.
    pub fn alternatives(&self) -> impl Iterator<Item = [&PlannedEvent; 2]> {
        let alternative = |event: &PlannedEvent| match event.action {
            Action::Operation(operation) => operation.alternative().map(Action::Operation),
            Action::Command(_) => None,
        };
        self.events.iter().filter_map(move |event| {
            let other = alternative(event)?;
            Some([event, self.events.iter().find(|event| event.action == other)?])
        })
    }

    /// Returns the pairs of [`Self::alternatives`] in which neither event has a time. The two events swap places at random from round to
    /// round.
    pub fn exchanged(&self) -> impl Iterator<Item = [&PlannedEvent; 2]> {
        self.alternatives().filter(|pair| pair.iter().all(|event| event.at.is_none()))
    }

    /// Returns the operations on guests or images during a workload. Empty for the control workload.
    pub fn operations_of(&self, workload: &Workload) -> impl Iterator<Item = Operation> + '_ {
        let happens = !self.is_control(&workload.name);
        self.operations().filter(move |_| happens)
    }

    /// Returns whether the workload with this name is the control, during which no events are triggered.
    #[must_use]
    pub fn is_control(&self, workload: &str) -> bool {
        self.control.as_deref() == Some(workload)
    }

    /// Returns the events of a window of this length with their times from its start, in order. Events without a time are evenly spaced.
    #[must_use]
    pub fn scheduled(&self, window: Nanos) -> Vec<(Nanos, &PlannedEvent)> {
        let spread = self.events.iter().filter(|event| event.at.is_none()).count() as u64 + 1;
        let mut number = 0;
        let time = |event: &PlannedEvent| {
            event.at.unwrap_or_else(|| {
                number += 1;
                Nanos(window.0 / spread * number)
            })
        };
        let times: Vec<Nanos> = self.events.iter().map(time).collect();
        let mut all: Vec<(Nanos, &PlannedEvent)> = times.into_iter().zip(&self.events).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    pub(super) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("watch: {text}")));
        if self.late == Nanos(0) {
            return refuse("late = 0s: accepted: more than that".into());
        }
        self.check_control(plan)?;
        self.check_operations(plan)?;
        self.check_together(plan)?;
        for workload in &plan.workloads {
            let name = &workload.name;
            let (is_plain, has_rate, key) = match &workload.kind {
                Kind::Block => (true, workload.is_open_loop(), "rate_iops"),
                Kind::RoundTrips(net) => (!net.loaded, net.rate.is_some(), "net.rate"),
                Kind::Files(_) | Kind::Foreign | Kind::Streams(_) => (false, true, ""),
            };
            if !is_plain {
                return refuse(format!(
                    "workload {name:?}: accepted: plain reads and writes, and round trips of a network"
                ));
            }
            if !has_rate {
                return refuse(format!(
                    "workload {name:?}: without a rate I/Os wait for one another and hide what waits; add {key}"
                ));
            }
            if workload.loops.is_some() || workload.io_size.is_some() || workload.steadystate.is_some() {
                return refuse(format!(
                    "workload {name:?}: it may end before the events; leave out loops, io_size and steadystate"
                ));
            }
            if workload.blackout.is_none() {
                return refuse(format!(
                    "workload {name:?}: add blackout = \"100ms\", the shortest gap that counts"
                ));
            }
            let shortest = workload.blackout.unwrap_or_default();
            let short = |one: &&Requirement| {
                one.figure == WatchFigure::Gap && matches!(one.limit, Limit::Time(most) if most < shortest)
            };
            if let Some(short) = self.require.iter().find(short) {
                return refuse(format!(
                    "require {:?}: workload {name:?} records gaps from {shortest} on; give it a shorter one (blackout, --blackout)",
                    short.to_string()
                ));
            }
            let lost = self.require.iter().find(|one| one.figure == WatchFigure::Lost);
            if let (Some(lost), Verify::None, None) = (lost, workload.verify, workload.kind.traffic()) {
                return refuse(format!(
                    "require {:?}: workload {name:?} does not verify; add verify = \"xxh3\"",
                    lost.to_string()
                ));
            }
            let late = self.events.iter().find(|event| event.at.is_some_and(|at| at >= workload.runtime));
            if let Some((event, at)) = late.and_then(|event| Some((event, event.at?))) {
                return refuse(format!(
                    "event {:?} at {at}: accepted: before {}, the end of workload {name:?}",
                    event.name, workload.runtime
                ));
            }
        }
        Ok(())
    }

    /// Rejects a control that is not one of at least two workloads, and a control in a plan without events.
    fn check_control(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("watch: {text}")));
        let Some(control) = &self.control else { return Ok(()) };
        if !plan.workloads.iter().any(|workload| workload.name == *control) || plan.workloads.len() < 2 {
            let names: Vec<&str> = plan.workloads.iter().map(|workload| workload.name.as_str()).collect();
            return refuse(format!(
                "control = {control:?}: accepted: the name of one of several workloads; there are {}",
                names.join(", ")
            ));
        }
        if self.events.is_empty() {
            return refuse(format!(
                "control = {control:?}: without an event there is nothing to hold against it"
            ));
        }
        Ok(())
    }

    /// Rejects operations that occur twice or that a target's QEMU does not support, and a limit on copies if there are none. Also rejects
    /// a commit without an earlier snapshot or with a stream in between, and an I/O thread in a storage daemon, which would lose I/Os
    /// during operations.
    fn check_operations(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("watch: {text}")));
        let operations: Vec<Operation> = self.operations().collect();
        match self.copy_iops {
            Some(0) => return refuse("copy_iops = 0: accepted: 1 and more".into()),
            Some(iops) if !operations.iter().any(|operation| operation.copies()) => {
                return refuse(format!(
                    "copy_iops = {iops}: accepted: with an event mirror, backup or backup-fleecing"
                ));
            }
            _ => {}
        }
        for (place, operation) in operations.iter().enumerate() {
            if operations[..place].contains(operation) {
                return refuse(format!("event {operation}: accepted: once in a window"));
            }
            if let Some(target) = plan.targets.iter().find(|target| !can(target, *operation)) {
                let wants = match operation {
                    Operation::Stop => "guest, such as vm-qcow2:DIR",
                    // QEMU 10.0's storage daemon exits when its export grows.
                    Operation::Resize => {
                        "guest over a raw or qcow2 file that iotax creates, such as vm-qcow2:DIR"
                    }
                    _ => {
                        "guest or virtio device over a file that iotax creates, such as vm-qcow2:DIR or virtio-qcow2:DIR"
                    }
                };
                return refuse(format!(
                    "event {operation} on target {:?}: accepted: one {wants}; for others give a command",
                    target.name
                ));
            }
        }
        let has_iothread = |target: &&TargetSpec| {
            target.stack.find::<VirtioSpec>().is_some_and(|virtio| virtio.has_iothread(true))
        };
        if let (Some(operation), Some(target)) = (operations.first(), plan.targets.iter().find(has_iothread))
        {
            return refuse(format!(
                "event {operation} on target {:?}: accepted: iothread = false, because QEMU's storage daemon loses I/Os of an I/O thread meanwhile",
                target.name
            ));
        }
        for workload in &plan.workloads {
            let events = self.events_of(workload);
            let place =
                |operation| events.iter().position(|(_, event)| event.action == Action::Operation(operation));
            let (snapshot, stream) = (place(Operation::Snapshot), place(Operation::Stream));
            let is_there = |commit: usize| {
                snapshot.is_some_and(|at| {
                    at < commit && stream.is_none_or(|stream| stream < at || stream > commit)
                })
            };
            if place(Operation::Commit).is_some_and(|commit| !is_there(commit)) {
                return refuse(
                    "event commit: accepted: after the event snapshot, without stream between them".into(),
                );
            }
        }
        Ok(())
    }

    /// Rejects plans whose targets cannot all be measured in one window.
    fn check_together(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("watch: together: {text}")));
        if !self.together {
            return Ok(());
        }
        if plan.targets.len() < 2 {
            return refuse("accepted: two targets or more".into());
        }
        if let Some(target) = plan.targets.iter().find(|target| target.neighbour.is_some()) {
            return refuse(format!("target {:?} has a neighbour; measure that as a target too", target.name));
        }
        if let Some(operation) = self.operations().next() {
            return refuse(format!(
                "event {operation} is carried out on one guest alone; give a command, or measure the targets one after another"
            ));
        }
        let loads: Vec<&Workload> =
            plan.workloads.iter().filter(|workload| !self.is_control(&workload.name)).collect();
        for (place, workload) in loads.iter().enumerate() {
            let name = &workload.name;
            if loads[..place].iter().any(|other| other.kind.is_network() == workload.kind.is_network()) {
                return refuse(format!(
                    "workload {name:?}: accepted: one for storage, one for networks, and a control; add its work to the first with jobs"
                ));
            }
            let times = |workload: &Workload| (workload.ramp_time, workload.runtime);
            if let Some(other) = loads[..place].iter().find(|other| times(other) != times(workload)) {
                return refuse(format!(
                    "workload {name:?}: its ramp_time and runtime are {} and {}, those of {:?} {} and {}; accepted: the same",
                    workload.ramp_time, workload.runtime, other.name, other.ramp_time, other.runtime
                ));
            }
        }
        Ok(())
    }

    /// Returns the operations on guests or images among the events.
    pub fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        self.events.iter().filter_map(|event| match event.action {
            Action::Operation(operation) => Some(operation),
            Action::Command(_) => None,
        })
    }
}

/// Returns whether the QEMU of a target, in a guest or as a storage daemon, supports an operation.
fn can(target: &TargetSpec, operation: Operation) -> bool {
    let Some((top, below)) = target.stack.layers().split_last() else { return false };
    let is_image = match below.last() {
        // QEMU cannot shrink images of other formats, so their size could not be restored.
        Some(PlannedLayer::File(file)) if operation == Operation::Resize => {
            matches!(file.format, Format::Raw | Format::Qcow2)
        }
        below => matches!(below, Some(PlannedLayer::File(_))),
    };
    match top {
        PlannedLayer::Guest(guest) if target.network().is_none() => {
            guest.count == 1 && (is_image || operation == Operation::Stop)
        }
        // A FUSE export blocks resizing of its image, and with it most operations.
        PlannedLayer::Virtio(_) => is_image && !matches!(operation, Operation::Stop | Operation::Resize),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_time_are_spread() {
        let events = ["a = x", "b@1s = x", "c = x"].map(|text| text.parse().expect("an event"));
        let watch = WatchSpec { events: events.into(), ..WatchSpec::default() };
        let scheduled = watch.scheduled(Nanos::from_secs(30));
        let times: Vec<(u64, &str)> =
            scheduled.iter().map(|(at, event)| (at.0 / 1_000_000_000, event.name.as_str())).collect();
        assert_eq!(times, [(1, "b"), (10, "a"), (20, "c")]);
    }

    /// Returns the error for a plan with these events on a guest's image and a second workload; `None` if the plan is valid.
    fn refusal(target: &str, watch: &str) -> Option<String> {
        let plan = format!(
            "[watch]\n{watch}\n[[target]]\nname = 't'\n{target}\n[defaults]\nrw = 'randwrite'\nruntime = '30s'\nrate_iops = 100\nblackout = '100ms'\n\
             [[workload]]\nname = 'w'\n[[workload]]\nname = 'control'\n"
        );
        Plan::from_toml(&plan).err().map(|error| error.to_string())
    }

    #[test]
    fn operations_are_for_an_image_that_a_qemu_has_and_once_each() {
        let image = "file = { dir = '/srv', format = 'qcow2' }\nguest = {}";
        let events = |all: &str| format!("control = 'control'\nevents = [{all}]");
        let fine = events("{ operation = 'snapshot', at = '1s' }, { operation = 'commit', at = '2s' }");
        assert_eq!(refusal(image, &fine), None);
        assert_eq!(refusal("device = '/dev/sdz'\nguest = {}", &events("{ operation = 'stop' }")), None);
        for (layer, operation, is_fine) in [
            ("virtio", "backup", true),
            ("fuse", "mirror", false),
            ("virtio", "stop", false),
            ("nbd = {}\nvirtio", "backup", false),
            ("virtio", "resize", false),
            ("guest", "resize", true),
            ("virtio", "stream", true),
            ("virtio", "backup-fleecing", true),
            ("fuse", "backup-fleecing", false),
        ] {
            let target = format!("file = {{ dir = '/srv' }}\n{layer} = {{}}");
            let refused = refusal(&target, &events(&format!("{{ operation = '{operation}' }}")));
            assert_eq!(refused.is_none(), is_fine, "{layer}, {operation}: {refused:?}");
        }
        for (target, watch, why) in [
            (
                image,
                events("{ operation = 'commit', at = '1s' }, { operation = 'snapshot', at = '2s' }"),
                "accepted: after the event snapshot",
            ),
            (
                image,
                events(
                    "{ operation = 'snapshot', at = '1s' }, { operation = 'stream', at = '2s' }, { operation = 'commit', at = '3s' }",
                ),
                "without stream between them",
            ),
            (
                "file = { dir = '/srv', format = 'vmdk' }\nguest = {}",
                events("{ operation = 'resize' }"),
                "over a raw or qcow2 file",
            ),
            (image, events("{ operation = 'stop' }, { operation = 'stop' }"), "accepted: once"),
            (
                "device = '/dev/sdz'\nguest = {}",
                events("{ operation = 'backup' }"),
                "over a file that iotax creates",
            ),
            ("file = { dir = '/srv' }", events("{ operation = 'stop' }"), "accepted: one guest"),
            (
                "file = { dir = '/srv' }\nvirtio = { iothread = true }",
                events("{ operation = 'backup' }"),
                "accepted: iothread = false",
            ),
            (
                image,
                format!("copy_iops = 0\n{}", events("{ operation = 'backup' }")),
                "copy_iops = 0: accepted: 1 and more",
            ),
            (
                image,
                format!("copy_iops = 20\n{}", events("{ operation = 'snapshot' }")),
                "accepted: with an event mirror, backup or backup-fleecing",
            ),
            (image, "control = 'x'\nevents = [{ operation = 'stop' }]".into(), "there are w, control"),
            (image, "control = 'control'".into(), "without an event"),
        ] {
            let error = refusal(target, &watch).unwrap_or_default();
            assert!(error.contains(why), "{watch}: {error}");
        }
    }

    #[test]
    fn a_requirement_says_the_most_that_passes() {
        for (text, passes, fails) in [
            ("gap < 30s", 29_999_999_999, 30_000_000_000),
            ("recovery <= 1m", 60_000_000_000, 60_000_000_001),
            ("late <= 5", 5, 6),
            ("errors = 0", 0, 1),
        ] {
            let requirement: Requirement = text.parse().expect(text);
            assert!(requirement.allows(passes) && !requirement.allows(fails), "{text}");
            assert_eq!(requirement.to_string().parse(), Ok(requirement), "{text}");
        }
        for (text, why) in [
            ("gap", "it has no <"),
            ("gap > 3s", "the most that passes"),
            ("gap < 30", "unit"),
            ("gap = 3s", "only gap = 0"),
            ("late < 0", "nothing is below it"),
            ("lost = x", "lost: \"x\" is not a whole number"),
            ("speed < 3", "is not a known figure"),
            ("gaps < 3s", "(did you mean \"gap\"?)"),
        ] {
            let error = text.parse::<Requirement>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains(why), "{error}");
        }
    }
}
