//! Kernel settings that are applied while a target is measured.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::words;

/// The kernel files through which a setting is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingScope {
    /// `/sys/block/DEVICE/queue` of the devices whose request queues serve the target.
    Queue,
    /// `/sys/block/DEVICE/queue` of the device whose read-ahead setting applies to the target's files.
    ReadAhead,
    /// `/proc/sys/vm`, for the whole machine.
    Memory,
}

/// Declares the kernel settings: the struct of a plan's table, and the enum of its keys.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $field:ident: $kind:ty, $scope:ident, $accepted:expr;)+) => {
        words! {
            /// A setting of the kernel.
            Setting, "setting" { $($(#[doc = $doc])+ $variant = $word),+ }
        }

        impl Setting {
            /// All settings, in the order in which reports list them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the kernel files through which this setting is changed.
            #[must_use]
            pub const fn scope(self) -> SettingScope {
                match self { $(Self::$variant => SettingScope::$scope),+ }
            }

            /// Returns the smallest and largest accepted number; `None` for a setting whose values are words.
            #[must_use]
            pub const fn range(self) -> Option<(u32, u32)> {
                match self { $(Self::$variant => $accepted),+ }
            }
        }

        /// Settings of the kernel that are applied right before each measurement of the target and restored right after it.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $($(#[doc = $doc])+ #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$kind>,)+
        }

        impl Settings {
            /// Returns the settings that the plan sets, with their values as written to the kernel's files.
            #[must_use]
            pub fn values(&self) -> Vec<(Setting, String)> {
                let mut values = Vec::new();
                $(values.extend(self.$field.as_ref().map(|value| (Setting::$variant, value.to_string())));)+
                values
            }
        }
    };
}

settings! {
    /// I/O scheduler of the request queue: none, mq-deadline, kyber, bfq.
    Scheduler = "scheduler", scheduler: String, Queue, None;
    /// KiB that buffered reads of a file or device are read ahead.
    ReadAheadKb = "read_ahead_kb", read_ahead_kb: u32, ReadAhead, Some((0, 1 << 22));
    /// Number of requests that the queue or its scheduler holds before submitters wait.
    NrRequests = "nr_requests", nr_requests: u32, Queue, Some((4, 1 << 16));
    /// Target latency of reads in microseconds for writeback throttling; 0 turns throttling off.
    WbtLatUsec = "wbt_lat_usec", wbt_lat_usec: u32, Queue, Some((0, 10_000_000));
    /// Merging of requests: 0 all, 1 only simple ones, 2 none.
    Nomerges = "nomerges", nomerges: u32, Queue, Some((0, 2));
    /// CPU that completes a request: 0 any, 1 one that shares a cache with the caller's, 2 the caller's.
    RqAffinity = "rq_affinity", rq_affinity: u32, Queue, Some((0, 2));
    /// Size in KiB of the largest request.
    MaxSectorsKb = "max_sectors_kb", max_sectors_kb: u32, Queue, Some((4, 1 << 22));
    /// Share of available memory in percent that may be dirty before writers must write back themselves.
    DirtyRatio = "dirty_ratio", dirty_ratio: u32, Memory, Some((1, 100));
    /// Share of available memory in percent that is dirty when the kernel begins to write back.
    DirtyBackgroundRatio = "dirty_background_ratio", dirty_background_ratio: u32, Memory, Some((1, 100));
    /// Age in hundredths of a second at which dirty data is written back.
    DirtyExpireCentisecs = "dirty_expire_centisecs", dirty_expire_centisecs: u32, Memory, Some((1, 360_000));
    /// Time in hundredths of a second between two rounds of writeback.
    DirtyWritebackCentisecs = "dirty_writeback_centisecs", dirty_writeback_centisecs: u32, Memory, Some((1, 360_000));
}

impl Setting {
    /// Returns the accepted values for an error message: `0 to 2`.
    #[must_use]
    pub fn accepted(self) -> String {
        match self.range() {
            Some((least, most)) => format!("{least} to {most}"),
            None => "a scheduler that the kernel offers, such as none".into(),
        }
    }
}

/// A value that a kernel setting does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value}: accepted: {}", setting.accepted())]
pub struct SettingError {
    setting: Setting,
    value: String,
}

impl Settings {
    /// Creates settings that set only `setting`, to `value`.
    ///
    /// # Errors
    /// The setting does not accept the value.
    pub fn one(setting: Setting, value: &str) -> Result<Self, SettingError> {
        let refused = || SettingError { setting, value: value.to_owned() };
        let given = match setting.range() {
            Some(_) => Value::from(value.parse::<u32>().map_err(|_| refused())?),
            None => Value::from(value),
        };
        let one = serde_json::json!({ setting.word(): given });
        let one: Self = serde_json::from_value(one).map_err(|_| refused())?;
        one.check().map(|()| one)
    }

    /// Returns whether the plan sets no kernel setting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Rejects numbers outside the accepted range, and texts that cannot be a scheduler's name.
    pub fn check(&self) -> Result<(), SettingError> {
        let bad = self.values().into_iter().find(|(setting, value)| !is_accepted(*setting, value));
        bad.map_or(Ok(()), |(setting, value)| Err(SettingError { setting, value }))
    }
}

/// Returns whether a setting accepts a value: a number within its range, or a word that may be a scheduler's name.
fn is_accepted(setting: Setting, value: &str) -> bool {
    match setting.range() {
        Some((least, most)) => value.parse().is_ok_and(|number: u32| (least..=most).contains(&number)),
        // The value is written to a kernel file, so only a plain word is accepted.
        None => {
            (1..=16).contains(&value.len())
                && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.values().into_iter().map(|(setting, value)| format!("{setting}={value}"));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_kernel_takes_them() {
        for (setting, value, shown) in [
            (Setting::Scheduler, "mq-deadline", "scheduler=mq-deadline"),
            (Setting::ReadAheadKb, "0", "read_ahead_kb=0"),
            (Setting::NrRequests, "64", "nr_requests=64"),
            (Setting::Nomerges, "2", "nomerges=2"),
            (Setting::DirtyRatio, "5", "dirty_ratio=5"),
        ] {
            let one = Settings::one(setting, value).expect(value);
            assert_eq!(one.to_string(), shown);
            assert_eq!(one.values(), [(setting, value.to_owned())]);
        }
        for setting in Setting::ALL {
            let value = setting.range().map_or("none".into(), |(least, _)| least.to_string());
            assert!(Settings::one(*setting, &value).is_ok(), "{setting}");
        }
    }

    #[test]
    fn what_no_kernel_takes_is_quoted_with_what_is_accepted() {
        for (setting, value, accepted) in [
            (Setting::Scheduler, "", "such as none"),
            (Setting::Scheduler, "none\nkyber", "such as none"),
            (Setting::Scheduler, "../x", "such as none"),
            (Setting::NrRequests, "3", "4 to 65536"),
            (Setting::NrRequests, "-1", "4 to 65536"),
            (Setting::NrRequests, "many", "4 to 65536"),
            (Setting::Nomerges, "3", "0 to 2"),
            (Setting::DirtyRatio, "0", "1 to 100"),
            (Setting::DirtyRatio, "101", "1 to 100"),
            (Setting::ReadAheadKb, "4294967296", "0 to 4194304"),
        ] {
            let error = Settings::one(setting, value).expect_err(value).to_string();
            assert!(error.contains(accepted) && error.contains(value), "{error}");
        }
    }
}
