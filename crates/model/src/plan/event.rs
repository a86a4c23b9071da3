//! Events that a plan triggers during a measurement: commands, and operations on a guest's disk.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::visible;
use crate::words::words;

/// Maximum length of an event's name in characters.
const LONGEST: usize = 60;

words! {
    /// An operation on a guest or an exported image, carried out by its QEMU or storage daemon.
    Operation, "operation" {
        /// Stops the virtual CPUs for a second.
        Stop = "stop",
        /// Takes an external snapshot: from then on, writes go to a new qcow2 overlay.
        Snapshot = "snapshot",
        /// Commits the snapshot: copies the overlay's data into the image, which is then used again.
        Commit = "commit",
        /// Adds a new overlay to the disk, and copies all data of its backing chain into it, so that the overlay needs no backing file.
        Stream = "stream",
        /// Doubles the size of the disk.
        Resize = "resize",
        /// Copies the disk to a new raw file, including data written during the copy.
        Mirror = "mirror",
        /// Copies the disk, as it is when the copy starts, to a new raw file.
        Backup = "backup",
        /// Copies the disk as `backup` does, through a fleecing image: a local file that receives data before the guest overwrites it.
        BackupFleecing = "backup-fleecing",
    }
}

impl Operation {
    /// Returns whether the operation copies the disk to another file next to the image.
    #[must_use]
    pub const fn copies(self) -> bool {
        matches!(self, Self::Mirror | Self::Backup | Self::BackupFleecing)
    }

    /// Returns the other operation with the same result, against which reports compare this one's cost; `None` if there is none.
    #[must_use]
    pub const fn alternative(self) -> Option<Self> {
        match self {
            Self::BackupFleecing => Some(Self::Backup),
            _ => None,
        }
    }
}

/// An event that the plan triggers during each measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "EventEntry", into = "EventEntry")]
pub struct PlannedEvent {
    /// Name of the event in reports.
    pub name: String,
    /// The command or operation that the event carries out.
    pub action: Action,
    /// Time of the event from the start of the measured window; `None` for events that are evenly spaced over the window.
    pub at: Option<Nanos>,
}

/// The command or operation that an event consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A command line for `sh -c` on this host.
    Command(String),
    /// An operation on the measured guest or image.
    Operation(Operation),
}

/// An event as written in a plan file, before it is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PlannedEvent")]
struct EventEntry {
    /// Name of the event in reports [default: its operation; a command needs a name]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    name: Option<String>,
    /// A command for `sh -c` on this host, in place of an operation
    #[serde(skip_serializing_if = "Option::is_none", default)]
    command: Option<String>,
    /// Operation on the measured guest or image, in place of a command
    #[serde(skip_serializing_if = "Option::is_none", default)]
    operation: Option<Operation>,
    /// Time of the event from the start of the measured window [default: events without a time are spread evenly over it]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    at: Option<Nanos>,
}

impl TryFrom<EventEntry> for PlannedEvent {
    type Error = String;

    fn try_from(entry: EventEntry) -> Result<Self, String> {
        let EventEntry { name, command, operation, at } = entry;
        let called = name.clone().unwrap_or_default();
        let (name, action) = match (name, command, operation) {
            (Some(name), Some(command), None) => (name, Action::Command(command)),
            (name, None, Some(operation)) => {
                (name.unwrap_or_else(|| operation.word().into()), Action::Operation(operation))
            }
            (_, Some(_), Some(_)) => {
                return Err(format!(
                    "event {called:?} has a command and an operation; accepted: one of them"
                ));
            }
            (None, Some(command), None) => {
                return Err(format!("the event with command {command:?} has no name"));
            }
            (_, None, None) => {
                return Err(format!("event {called:?} has neither a command nor an operation"));
            }
        };
        check_name(&name)?;
        Ok(Self { name, action, at })
    }
}

/// Rejects a name that is empty, contains hidden characters, or is too long for the tables of reports.
fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length <= LONGEST && !name.trim().is_empty() && !name.contains(visible::is_hidden) {
        return Ok(());
    }
    let beginning: String = name.chars().take(20).collect();
    Err(format!(
        "event {beginning:?} cannot be called so: accepted: one line of 1 to {LONGEST} characters, none of them a control character or invisible"
    ))
}

impl From<PlannedEvent> for EventEntry {
    fn from(event: PlannedEvent) -> Self {
        let PlannedEvent { name, action, at } = event;
        let (command, operation) = match action {
            Action::Command(command) => (Some(command), None),
            Action::Operation(operation) => (None, Some(operation)),
        };
        let name = Some(name).filter(|name| operation.is_none_or(|operation| operation.word() != name));
        Self { name, command, operation, at }
    }
}

impl JsonSchema for PlannedEvent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        EventEntry::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        EventEntry::json_schema(generator)
    }
}

/// Parses `NAME = COMMAND` or `OPERATION`, each optionally with `@TIME` after the name or operation: the time from the start of the window.
impl FromStr for PlannedEvent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!(
                "{text:?} is not an event: {why}; accepted: NAME = COMMAND or NAME@TIME = COMMAND, such as \"pull@20s = ip link set eth1 down\", or an operation on a guest or image ({}), such as commit@20s",
                Operation::WORDS.join(", ")
            )
        };
        let (head, command) =
            text.split_once('=').map_or((text, None), |(head, command)| (head, Some(command)));
        let (name, at) = match head.split_once('@') {
            Some((name, at)) => {
                let at = at.trim().parse().map_err(|error| refuse(&format!("{error}")))?;
                (name, Some(at))
            }
            None => (head, None),
        };
        let name = name.trim().to_owned();
        let action = match command.map(str::trim) {
            Some("") => return Err(refuse("it has no command")),
            Some(command) => Action::Command(command.to_owned()),
            None => Action::Operation(name.parse().map_err(|_| refuse("it has no = and is no operation"))?),
        };
        if name.is_empty() {
            return Err(refuse("it has no name"));
        }
        check_name(&name)?;
        Ok(Self { name, action, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_name_a_command_and_perhaps_a_time() {
        let event: PlannedEvent = "pull @ 20s = ip link set x down; a=b".parse().expect("an event");
        let command = Action::Command("ip link set x down; a=b".into());
        assert_eq!((event.name.as_str(), &event.action), ("pull", &command));
        assert_eq!(event.at, Some(Nanos::from_secs(20)));
        let event: PlannedEvent = "commit@20s".parse().expect("an operation");
        assert_eq!((event.name.as_str(), event.action), ("commit", Action::Operation(Operation::Commit)));
        for (text, why) in [
            ("pull", "it has no = and is no operation"),
            ("=x", "it has no name"),
            ("x=", "it has no command"),
            ("x@5=y", "unit"),
            ("", "it has no ="),
        ] {
            let error = text.parse::<PlannedEvent>().expect_err(text);
            assert!(error.contains(&format!("{text:?}")) && error.contains(why), "{error}");
            assert!(
                error.contains("stop, snapshot, commit, stream, resize, mirror, backup, backup-fleecing"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plan_gives_an_event_a_command_or_an_operation() {
        let read = |text: &str| toml::from_str::<PlannedEvent>(text).map_err(|error| error.to_string());
        let backup = read("operation = 'backup'\nat = '2s'").expect("an event");
        assert_eq!(backup, "backup@2s".parse().expect("an event"));
        for event in ["backup@2s", "a = true", "b@1s = false"] {
            let event: PlannedEvent = event.parse().expect(event);
            let written = toml::to_string(&event).expect("written");
            assert_eq!(read(&written).as_ref(), Ok(&event), "{written}");
        }
        for (text, why) in [
            ("name = 'a'", "event \"a\" has neither a command nor an operation"),
            ("name = 'a'\ncommand = 'x'\noperation = 'stop'", "accepted: one of them"),
            ("command = 'x'", "the event with command \"x\" has no name"),
            ("operation = 'x'", "stop, snapshot, commit, stream, resize, mirror, backup"),
            ("name = \"a\\nb\"\ncommand = 'x'", "event \"a\\nb\" cannot be called so"),
            (&format!("name = '{}'\ncommand = 'x'", "n".repeat(61)), "1 to 60 characters"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
