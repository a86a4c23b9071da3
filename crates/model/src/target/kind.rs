//! Kinds of targets, by how iotax reaches them: a path, another machine, storage to build, or a network.

use std::path::Path;

use super::{Machine, NetworkEnds, NetworkStack, PathSpec, Remote, TargetError, TargetSpec};

/// The kind of a checked target, by how iotax reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind<'a> {
    /// An existing file or device on this machine, or a file that iotax creates at this path.
    Path(&'a Path),
    /// A file or device on another machine or in a container, measured by an agent there.
    Remote(Remote),
    /// Storage that iotax builds on this machine from layers.
    Storage,
    /// A network path between a client and a server, instead of storage.
    Network(NetworkStack<'a>),
}

impl TargetSpec {
    /// Returns the target's kind.
    ///
    /// # Errors
    /// The target cannot be built; the error gives the reason. The name is not checked.
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
    /// Returns the number of instances that are built and measured together: one per guest or network server, otherwise one.
    #[must_use]
    pub fn instances(&self, spec: &TargetSpec) -> usize {
        match self {
            Self::Network(NetworkStack { ends: NetworkEnds::Servers(servers), .. }) => servers.len(),
            _ => spec.guest().map_or(1, |guest| guest.count as usize),
        }
    }
}
