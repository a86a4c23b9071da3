//! A directory on NFS or SMB: a server on this machine, and the kernel's client.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};
use crate::words::words;

words! {
    /// The protocol of a share.
    ShareProtocol, "protocol" {
        /// NFS 4.2, served by the kernel (nfsd).
        Nfs = "nfs",
        /// SMB 3.1.1, served by Samba (smbd).
        Smb = "smb",
    }
}

impl ShareProtocol {
    /// Returns the protocol's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nfs => "NFS",
            Self::Smb => "SMB",
        }
    }
}

/// A directory that a server exports over TCP in a private network namespace. The kernel's client mounts it, as for images on NFS or SMB
/// storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShareSpec {
    /// An existing directory, in which iotax creates the directory to export [default: the target's own filesystem]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// The protocol, which also determines the server.
    pub protocol: ShareProtocol,
    /// NFS: number of TCP connections of the mount, 1 to 16, as in nfs(5).
    #[schemars(range(min = 1, max = 16))]
    pub nconnect: u8,
    /// SMB: number of channels of the session (multichannel), each a TCP connection, 1 to 16, as in mount.cifs(8).
    #[schemars(range(min = 1, max = 16))]
    pub max_channels: u8,
    /// SMB: encrypt the session, as with `seal` of mount.cifs(8).
    pub seal: bool,
    /// The server acknowledges durable writes and flushes only when its disk has the data, as with `sync` of exports(5) or `strict sync` of
    /// smb.conf(5). With `false` it acknowledges them immediately, and a crash of the server loses data.
    pub sync: bool,
}

impl ShareSpec {
    /// Maximum number of connections for one mount in the kernel's clients (`NFS_MAX_CONNECTIONS`, `CIFS_MAX_CHANNELS`).
    const MOST: u8 = 16;
}

impl Default for ShareSpec {
    fn default() -> Self {
        Self {
            dir: None,
            protocol: ShareProtocol::Nfs,
            nconnect: 1,
            max_channels: 1,
            seal: false,
            sync: true,
        }
    }
}

impl LayerType for ShareSpec {
    fn key(&self) -> &'static str {
        "share"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        // The server keeps the files in its page cache.
        Some(if self.sync { CacheMode::Writeback } else { CacheMode::Unsafe })
    }

    fn check(&self) -> Result<(), String> {
        for (key, connections) in [("nconnect", self.nconnect), ("max_channels", self.max_channels)] {
            if !(1..=Self::MOST).contains(&connections) {
                return Err(format!("share: {key} = {connections}: accepted: 1 to {}", Self::MOST));
            }
        }
        match self.protocol {
            ShareProtocol::Nfs if self.max_channels > 1 || self.seal => {
                Err("share: max_channels and seal need protocol = \"smb\"; nfs has nconnect".into())
            }
            ShareProtocol::Smb if self.nconnect > 1 => {
                Err("share: nconnect needs protocol = \"nfs\"; smb has max_channels".into())
            }
            _ => Ok(()),
        }
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        let Some(below) = below.last().map(PlannedLayer::kind).filter(|below| !below.is_exported_by_nfs())
        else {
            return Ok(());
        };
        if self.protocol != ShareProtocol::Nfs {
            return Ok(());
        }
        let key = below.key();
        Err(format!(
            "share: the kernel's NFS server does not export what {key} makes; put share on a directory of a filesystem of its own, or {key} on the share"
        ))
    }

    fn is_exported_by_nfs(&self) -> bool {
        false
    }

    fn needed_at_bottom(&self) -> Option<&'static str> {
        Some(super::DIR_OR_FILESYSTEM)
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.dir.as_deref().map(BottomLocation::Directory)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("share exports and mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part {
            aside: true,
            ..Part::new("share", format!("{} share", self.protocol.name()), self, &["dir"])
        }]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir", "protocol"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("{} share{more}", self.protocol)]).collect()
    }
}

impl FromLine for ShareSpec {
    const FORMS: &[&str] = &["nfs share", "smb share"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [protocol, share] = segments.next_words()? else { return None };
        let protocol: ShareProtocol = protocol.parse().ok().filter(|_| share == "share")?;
        let dir = below.place.map(|dir| ("dir", dir.into()));
        Some(segments.take().spec([("protocol", protocol.word().into())].into_iter().chain(dir)))
    }
}
