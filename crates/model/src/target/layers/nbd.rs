//! A network block device: an image that an NBD server on this machine serves, accessed by QEMU's client or the kernel's.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::guest::check_aio;
use super::{
    Aio, Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::{Bytes, Nanos};
use crate::words::words;

words! {
    /// The program that serves an image by NBD.
    NbdServer, "server" {
        /// QEMU's storage daemon.
        StorageDaemon = "qemu-storage-daemon",
        /// QEMU's own server for single images.
        QemuNbd = "qemu-nbd",
        /// nbdkit, with its file plugin.
        Nbdkit = "nbdkit",
    }
}

words! {
    /// The client of an NBD server.
    NbdClient, "client" {
        /// QEMU's, which a storage daemon or a guest's QEMU runs.
        Qemu = "qemu",
        /// The kernel's, which provides a block device (`/dev/nbd0`).
        Kernel = "kernel",
    }
}

/// Nanoseconds per millisecond.
const MILLISECOND: u64 = 1_000_000;
/// Maximum rate in bytes per second: nbdkit stores the rate in bits per second, as a signed 64-bit number.
const MOST_BYTES: u64 = 1 << 59;
/// An error rate at which every read fails, in millionths.
const ALL: u32 = 1_000_000;

/// Share of reads that fail, in millionths; above 0. Text form: `0.01` or `1%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRate(u32);

impl ErrorRate {
    /// Returns the rate as a fraction, from 0.000001 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(ALL)
    }
}

impl TryFrom<f64> for ErrorRate {
    type Error = String;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "range and sign are checked before the cast"
    )]
    fn try_from(fraction: f64) -> Result<Self, String> {
        let millionths = (fraction * f64::from(ALL)).round();
        if (1.0..=f64::from(ALL)).contains(&millionths) {
            Ok(Self(millionths as u32))
        } else {
            Err(format!("{fraction} is no error rate; accepted: 0.000001 to 1, or 0.0001% to 100%"))
        }
    }
}

impl FromStr for ErrorRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
        let number: f64 = number.trim().parse().map_err(|_| {
            format!(
                "{text:?} is no error rate; accepted: a fraction such as 0.01, or a percentage such as 1%"
            )
        })?;
        Self::try_from(number / unit)
    }
}

impl fmt::Display for ErrorRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / f64::from(ALL / 100))
    }
}

impl Serialize for ErrorRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ErrorRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        let rate = match Form::deserialize(deserializer)? {
            Form::Number(fraction) => Self::try_from(fraction),
            Form::Text(text) => text.parse(),
        };
        rate.map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ErrorRate {
    fn schema_name() -> Cow<'static, str> {
        "ErrorRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "maximum": 1,
            "pattern": r"^(\d+\.?\d*|\.\d+)\s*%?$",
        })
    }
}

/// An image served by NBD over a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NbdSpec {
    /// The server.
    pub server: NbdServer,
    /// The client.
    pub client: NbdClient,
    /// QEMU's servers: cache mode of the drive.
    pub cache: CacheMode,
    /// QEMU's servers: I/O backend of the drive.
    pub aio: Aio,
    /// nbdkit: delay of whole milliseconds before each request, like a network's round trip (nbdkit's delay filter) [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// nbdkit: highest number of bytes per second, of reads and of writes each (nbdkit's rate filter) [default: no limit]. After a pause,
    /// two seconds' worth passes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bytes>,
    /// nbdkit: share of reads that fail with EIO, at random (nbdkit's error filter) [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<ErrorRate>,
}

impl Default for NbdSpec {
    fn default() -> Self {
        Self {
            server: NbdServer::StorageDaemon,
            client: NbdClient::Qemu,
            cache: CacheMode::None,
            aio: Aio::IoUring,
            delay: None,
            rate: None,
            error_rate: None,
        }
    }
}

impl LayerType for NbdSpec {
    fn key(&self) -> &'static str {
        "nbd"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        match (self.server, self.client) {
            (NbdServer::StorageDaemon, NbdClient::Qemu) => super::BENEATH_A_DAEMON,
            // A filesystem on the kernel's device must lie in a file that iotax removes, not on a device of the user's.
            (NbdServer::StorageDaemon, NbdClient::Kernel) | (NbdServer::QemuNbd, _) => {
                &[LayerInterface::RawFile, LayerInterface::Image]
            }
            (NbdServer::Nbdkit, _) => &[LayerInterface::RawFile],
        }
    }

    fn offers(&self) -> LayerInterface {
        match self.client {
            NbdClient::Qemu => LayerInterface::BlockNode,
            NbdClient::Kernel => LayerInterface::Block,
        }
    }

    fn cache(&self) -> Option<CacheMode> {
        // nbdkit reads and writes the file through the page cache.
        let mode = if self.server == NbdServer::Nbdkit { CacheMode::Writeback } else { self.cache };
        Some(mode)
    }

    fn aio(&self) -> Option<Aio> {
        Some(self.aio)
    }

    fn client_flushes(&self) -> bool {
        self.client == NbdClient::Qemu
    }

    fn failing_reads(&self) -> Option<String> {
        self.error_rate.map(|rate| format!("error_rate = {rate}"))
    }

    fn check(&self) -> Result<(), String> {
        let of_nbdkit = [
            ("delay", self.delay.is_some()),
            ("rate", self.rate.is_some()),
            ("error_rate", self.error_rate.is_some()),
        ];
        let given = of_nbdkit.iter().find(|(_, given)| *given);
        if let Some((key, _)) = given.filter(|_| self.server != NbdServer::Nbdkit) {
            return Err(format!("nbd: {key} needs server = \"nbdkit\", not {}", self.server));
        }
        if let Some(rate) = self.rate.filter(|rate| !(1..=MOST_BYTES).contains(&rate.0)) {
            return Err(format!("nbd: rate = {rate}: accepted: 1 byte to {} per second", Bytes(MOST_BYTES)));
        }
        if let Some(delay) = self.delay.filter(|delay| delay.0 == 0 || delay.0 % MILLISECOND != 0) {
            return Err(format!(
                "nbd: delay = {delay}: accepted: whole milliseconds, which are what nbdkit takes"
            ));
        }
        check_aio(self.aio, self.cache)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { server: _, client, cache: _, aio: _, delay: _, rate: _, error_rate: _ } = self;
        match client {
            NbdClient::Qemu => Ok(()),
            NbdClient::Kernel => Err("nbd with client = \"kernel\" connects a device of the kernel's".into()),
        }
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("nbd", "NBD", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("nbd{}", keys(self, Some(&Self::default()), &[]))]
    }
}

impl FromLine for NbdSpec {
    const FORMS: &[&str] = &["nbd"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "nbd").then(|| segments.take().spec([]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_rate_is_a_fraction_or_a_percentage() {
        for (text, shown) in
            [("0.01", "1%"), ("1%", "1%"), ("0.0001 %", "0.0001%"), ("1", "100%"), ("12.5%", "12.5%")]
        {
            let rate: ErrorRate = text.parse().expect(text);
            assert_eq!(rate.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
        for text in ["0", "0.0000001", "101%", "1.5", "-1", "nan", "inf", "", "%", "many"] {
            let refused = text.parse::<ErrorRate>().expect_err(text);
            assert!(refused.contains("accepted: "), "{refused}");
        }
        for keys in ["error_rate = 0.01", "error_rate = '1%'", "error_rate = '0.01'"] {
            let spec: NbdSpec = toml::from_str(keys).expect(keys);
            assert_eq!(spec.error_rate, "1%".parse().ok(), "{keys}");
        }
        assert_eq!(
            toml::from_str::<NbdSpec>("error_rate = 1").expect("whole").error_rate,
            "100%".parse().ok()
        );
    }

    #[test]
    fn what_only_nbdkit_has_is_refused_for_others() {
        for (keys, words) in [
            ("rate = '10m'", "rate needs server = \"nbdkit\""),
            ("error_rate = 0.5", "error_rate needs server = \"nbdkit\""),
            ("server = 'nbdkit'\nrate = '0'", "accepted: 1 byte to 512PiB per second"),
            ("server = 'nbdkit'\nrate = '1024PiB'", "accepted: 1 byte to 512PiB per second"),
        ] {
            let refused = toml::from_str::<NbdSpec>(keys).expect(keys).check().expect_err(keys);
            assert!(refused.contains(words), "{keys}: {refused}");
        }
    }
}
