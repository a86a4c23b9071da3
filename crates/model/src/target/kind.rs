//! The kinds of targets, by the way they are reached.

use std::path::Path;

use super::{Machine, NetworkEnds, NetworkStack, PathSpec, Remote, TargetError, TargetSpec};

/// A checked target, by the way it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind<'a> {
    /// An existing file or device on this machine, or the path of a file to create.
    Path(&'a Path),
    /// A file or device on another machine or in a container.
    Remote(Remote),
    /// Storage that iotax builds on this machine.
    Storage,
    /// A network path between client and server.
    Network(NetworkStack<'a>),
}

impl TargetSpec {
    /// The kind of the target, or the reason why it cannot be built. The name is not checked.
    pub fn kind(&self) -> Result<TargetKind<'_>, TargetError> {
        self.checked_kind().map_err(|reason| self.refused(reason))
    }

    fn checked_kind(&self) -> Result<TargetKind<'_>, String> {
        let kind = if let Some(network) = self.network() {
            TargetKind::Network(network.stack(self.guest())?)
        } else if let Some(PathSpec(path)) = self.stack.find() {
            if Remote::is_meant(path) {
                TargetKind::Remote(Remote::parse(&path.to_string_lossy())?)
            } else {
                TargetKind::Path(path)
            }
        } else {
            TargetKind::Storage
        };
        self.stack.check()?;
        if self.sudo && !matches!(kind, TargetKind::Remote(Remote { machine: Machine::Ssh { .. }, .. })) {
            return Err(
                "sudo is for a path on another machine, ssh://[user@]host[:port]/path; the user in a container is that of \
                 docker://USER@CONTAINER/path"
                    .into(),
            );
        }
        if let Some(settings) = &self.settings {
            settings.check().map_err(|error| format!("settings: {error}"))?;
            if matches!(kind, TargetKind::Remote(_) | TargetKind::Network(_)) {
                return Err(
                    "settings belong to storage on this machine: a path, device, lvm or file here".into()
                );
            }
        }
        Ok(kind)
    }
}

impl TargetKind<'_> {
    /// Number of parts that are built and measured together: one, or one per guest or server.
    #[must_use]
    pub fn instances(&self, spec: &TargetSpec) -> usize {
        match self {
            Self::Network(NetworkStack { ends: NetworkEnds::Servers(servers), .. }) => servers.len(),
            _ => spec.guest().map_or(1, |guest| guest.count as usize),
        }
    }
}
