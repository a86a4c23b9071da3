//! A network block device: an image that an NBD server on this machine serves, accessed by QEMU's client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guest::check_aio;
use super::{
    Aio, Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Nanos;
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

/// Nanoseconds per millisecond.
const MILLISECOND: u64 = 1_000_000;

/// An image served by NBD over a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NbdSpec {
    /// The server.
    pub server: NbdServer,
    /// QEMU's servers: cache mode of the drive.
    pub cache: CacheMode,
    /// QEMU's servers: I/O backend of the drive.
    pub aio: Aio,
    /// nbdkit: a pause of whole milliseconds before each request, as a network's round trip (its delay filter).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
}

impl Default for NbdSpec {
    fn default() -> Self {
        Self { server: NbdServer::StorageDaemon, cache: CacheMode::None, aio: Aio::IoUring, delay: None }
    }
}

impl LayerType for NbdSpec {
    fn key(&self) -> &'static str {
        "nbd"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        match self.server {
            NbdServer::StorageDaemon => super::BENEATH_A_DAEMON,
            NbdServer::QemuNbd => &[LayerInterface::RawFile, LayerInterface::Image],
            NbdServer::Nbdkit => &[LayerInterface::RawFile],
        }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
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
        true
    }

    fn check(&self) -> Result<(), String> {
        if self.server != NbdServer::Nbdkit && self.delay.is_some() {
            return Err(format!("nbd: delay needs server = \"nbdkit\", not {}", self.server));
        }
        if let Some(delay) = self.delay.filter(|delay| delay.0 == 0 || delay.0 % MILLISECOND != 0) {
            return Err(format!(
                "nbd: delay = {delay}: accepted: whole milliseconds, which are what nbdkit takes"
            ));
        }
        check_aio(self.aio, self.cache)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { server: _, cache: _, aio: _, delay: _ } = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("nbd", "NBD", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("nbd{}", keys(self, Some(&Self::default()), &[]))]
    }
}

impl FromLine for NbdSpec {
    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "nbd").then(|| segments.take().spec([]))
    }
}
