//! Definitions of rules and violations.

use iotax_model::survey::{
    Disk, Fact, Filesystem, GuestDisk, GuestNic, GuestSetup, Image, NetworkInterface, Survey,
};
use iotax_model::words::WordError;
use schemars::JsonSchema;
use serde::Serialize;

/// The part of a machine that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A disk or partition.
    Disk,
    /// A layer between disk and filesystem: LVM, RAID, encryption, loop, multipath, bcache.
    Layer,
    /// A filesystem.
    Filesystem,
    /// A disk image.
    Image,
    /// A guest's definition.
    Guest,
    /// The machine as a whole.
    Machine,
    /// A network interface, or TCP.
    Network,
}

impl Subject {
    /// Returns the subject's name in JSON and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Layer => "layer",
            Self::Filesystem => "filesystem",
            Self::Image => "image",
            Self::Guest => "guest",
            Self::Machine => "machine",
            Self::Network => "network",
        }
    }
}

/// A rule's confidence that its findings matter on the examined machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sureness {
    /// Data is at risk, or a setting is plainly wrong.
    Fault,
    /// The setting slows down I/O, according to documentation or published measurements.
    Cost,
    /// The effect depends on the workload; measure it.
    Depends,
}

impl Sureness {
    /// All levels, the most certain first.
    pub const ALL: [Self; 3] = [Self::Fault, Self::Cost, Self::Depends];

    /// Returns the level's name in JSON and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Cost => "cost",
            Self::Depends => "depends",
        }
    }

    /// Returns the level's heading for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Fault => "known fault",
            Self::Cost => "costs",
            Self::Depends => "depends",
        }
    }
}

impl std::str::FromStr for Sureness {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let found = Self::ALL.into_iter().find(|sureness| sureness.word() == text);
        found.ok_or_else(|| WordError::new("sureness", text, &Self::ALL.map(Self::word)))
    }
}

/// A rule: a problem, the reason why it matters and the check that finds it.
#[derive(Debug)]
pub struct Rule {
    /// Unique name of the rule, such as `disk-offline`.
    pub id: &'static str,
    /// Part of the machine that the rule is about.
    pub subject: Subject,
    /// Level of certainty of the rule's findings.
    pub sureness: Sureness,
    /// Short description of the problem, as a headline.
    pub title: &'static str,
    /// Reason why the problem matters, in one or two sentences.
    pub why: &'static str,
    /// Documentation or source file that confirms the reason.
    pub source: &'static str,
    /// Returns all violations in a survey.
    pub check: fn(&Survey) -> Vec<Violation>,
}

/// An object that violates a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The affected object, such as `sda1` or a guest's name.
    pub component: String,
    /// The value found, as text.
    pub observed: String,
    /// File or command that shows the value.
    pub source: String,
    /// A command that solves the problem, or the next step.
    pub remedy: String,
}

/// Builds a violation that cites the source of `fact`; always `Some`, so that checks can return it as their result.
#[expect(clippy::unnecessary_wraps, reason = "checks end with it, and have nothing to report otherwise")]
pub(crate) fn violation<T>(
    component: impl Into<String>,
    observed: impl Into<String>,
    fact: &Fact<T>,
    remedy: impl Into<String>,
) -> Option<Violation> {
    Some(Violation {
        component: component.into(),
        observed: observed.into(),
        source: fact.source.clone(),
        remedy: remedy.into(),
    })
}

/// Quotes a word for a POSIX shell if it needs quotes.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if !word.is_empty() && !word.starts_with('-') && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub(crate) fn disks(survey: &Survey, check: impl Fn(&Disk) -> Option<Violation>) -> Vec<Violation> {
    survey.disks.iter().filter_map(check).collect()
}

pub(crate) fn filesystems(
    survey: &Survey,
    check: impl Fn(&Filesystem) -> Option<Violation>,
) -> Vec<Violation> {
    survey.filesystems.iter().filter_map(check).collect()
}

pub(crate) fn images(survey: &Survey, check: impl Fn(&Image) -> Option<Violation>) -> Vec<Violation> {
    survey.images.iter().filter_map(check).collect()
}

pub(crate) fn guest_disks(
    survey: &Survey,
    check: impl Fn(&GuestSetup, &GuestDisk) -> Option<Violation>,
) -> Vec<Violation> {
    let all = survey.guests.iter().flat_map(|guest| guest.disks.iter().map(move |disk| (guest, disk)));
    all.filter_map(|(guest, disk)| check(guest, disk)).collect()
}

pub(crate) fn guest_nics(
    survey: &Survey,
    check: impl Fn(&GuestSetup, &GuestNic) -> Option<Violation>,
) -> Vec<Violation> {
    let all = survey.guests.iter().flat_map(|guest| guest.nics.iter().map(move |nic| (guest, nic)));
    all.filter_map(|(guest, nic)| check(guest, nic)).collect()
}

pub(crate) fn interfaces(
    survey: &Survey,
    check: impl Fn(&NetworkInterface) -> Option<Violation>,
) -> Vec<Violation> {
    survey.interfaces.iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/srv/a-1.img"), "/srv/a-1.img");
        assert_eq!(quoted("/srv/a b"), "'/srv/a b'");
        assert_eq!(quoted("$(id)'x"), r"'$(id)'\''x'");
    }
}
