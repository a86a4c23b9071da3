//! Machines and containers reached through another program: `ssh://user@host:port`, `podman://name`, `kubectl://namespace/pod`,
//! `libvirt://domain`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words::words;

words! {
    /// A program that runs containers and starts commands in them.
    ContainerEngine, "container engine" {
        /// Docker, or a program that provides the command `docker`.
        Docker = "docker",
        /// Podman, through the command `podman`.
        Podman = "podman",
        /// LXC, through lxc-attach.
        Lxc = "lxc",
        /// Incus, through the command `incus`.
        Incus = "incus",
        /// LXD, through the command `lxc`.
        Lxd = "lxd",
    }
}

/// Another machine or a container, on which iotax runs its agent through a program such as ssh or podman.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// Another machine, reached by ssh with the user's configuration.
    Ssh {
        /// `HOST` or `USER@HOST`, as ssh accepts; the host may be an alias of the user's ssh configuration.
        destination: String,
        /// Port of the ssh server; `None` for that of the user's ssh configuration.
        port: Option<u16>,
    },
    /// A container, reached by the program of its container engine.
    Container {
        /// The program that runs the container.
        engine: ContainerEngine,
        /// The user in the container; `None` for the container's default. Docker and Podman only.
        user: Option<String>,
        /// The container's name or id.
        name: String,
    },
    /// A container of a Kubernetes pod, reached by kubectl with its current context.
    Pod {
        /// The pod's namespace.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// The container in the pod; `None` for kubectl's default, usually the pod's first.
        container: Option<String>,
    },
    /// A running guest of libvirt on this machine, reached by virsh and the guest's QEMU guest agent.
    Domain {
        /// Name or UUID of the domain.
        name: String,
        /// Target name of the domain's disk that a scratch disk resembles, such as `vda`; `None` for the first disk.
        disk: Option<String>,
    },
}

/// The accepted URL schemes, each with the form of its URLs.
const FORMS: [(&str, &str); 8] = [
    ("ssh", "ssh://[user@]host[:port]/path"),
    ("docker", "docker://[user@]container/path"),
    ("podman", "podman://[user@]container/path"),
    ("lxc", "lxc://container/path"),
    ("incus", "incus://container/path"),
    ("lxd", "lxd://container/path"),
    ("kubectl", "kubectl://namespace/pod[:container]/path"),
    ("libvirt", "libvirt://domain[:disk]"),
];

/// Splits a URL into its scheme, the accepted form for that scheme, and the rest; `None` if the scheme is not known.
fn scheme(text: &str) -> Option<(&'static str, &'static str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    FORMS.into_iter().find(|(known, _)| *known == scheme).map(|(known, form)| (known, form, rest))
}

impl Machine {
    /// Returns whether a path starts with the scheme of a machine or container, valid or not.
    #[must_use]
    pub fn is_meant(path: &Path) -> bool {
        scheme(&path.to_string_lossy()).is_some()
    }

    /// Parses the URL of a machine or container. The path on that machine is optional.
    ///
    /// # Errors
    /// The URL is not valid. The message quotes it and names the accepted form.
    pub fn split(text: &str) -> Result<(Self, Option<PathBuf>), String> {
        let Some((scheme, form, rest)) = scheme(text) else {
            let forms: Vec<&str> = FORMS.iter().map(|(_, form)| *form).collect();
            return Err(format!("{text:?}: no known machine; accepted: {}", forms.join(", ")));
        };
        let refused = |reason: &str| format!("{text:?}: {reason}; accepted: {form}");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (machine, path) = match scheme.parse::<ContainerEngine>() {
            Ok(engine) => (container(engine, authority).map_err(refused)?, path),
            Err(_) if scheme == "ssh" => (ssh(authority).map_err(refused)?, path),
            Err(_) if scheme == "libvirt" && !path.is_empty() => {
                return Err(refused("a disk is attached to the guest, and no path in it is measured"));
            }
            Err(_) if scheme == "libvirt" => (domain(authority).map_err(refused)?, ""),
            Err(_) => {
                let (pod_name, path) = path.split_once('/').unwrap_or((path, ""));
                (pod(authority, pod_name).map_err(refused)?, path)
            }
        };
        Ok((machine, (!path.is_empty()).then(|| Path::new("/").join(path))))
    }

    /// Returns the accepted form of URLs with the scheme of this machine: `ssh://[user@]host[:port]/path`.
    #[must_use]
    pub fn form(&self) -> &'static str {
        scheme(&self.to_string()).map_or("", |(_, form, _)| form)
    }

    /// Returns the name of the host, container, pod or domain. For ssh, this includes the user if one is given.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Ssh { destination, .. } => destination,
            Self::Container { name, .. } | Self::Pod { name, .. } | Self::Domain { name, .. } => name,
        }
    }

    /// Returns whether this is a container or pod, which shares the kernel (and so CPUs, caches and counters) of the machine it runs on.
    #[must_use]
    pub const fn shares_kernel(&self) -> bool {
        match self {
            Self::Ssh { .. } | Self::Domain { .. } => false,
            Self::Container { .. } | Self::Pod { .. } => true,
        }
    }
}

fn ssh(authority: &str) -> Result<Machine, &'static str> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    // An IPv6 address is in brackets.
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, rest)) => (address, rest.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(str::parse).transpose().map_err(|_| "the port is no number up to 65535")?;
    // ssh would take a destination that starts with a dash as an option.
    let is_broken =
        authority.starts_with('-') || host.starts_with('-') || authority.contains(char::is_control);
    if host.is_empty() || user == Some("") || is_broken {
        return Err("no host");
    }
    let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    Ok(Machine::Ssh { destination, port })
}

fn container(engine: ContainerEngine, authority: &str) -> Result<Machine, &'static str> {
    let (user, name) = match authority.split_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, authority),
    };
    if user.is_some() && !matches!(engine, ContainerEngine::Docker | ContainerEngine::Podman) {
        return Err("only Docker and Podman take a user here");
    }
    if !user.is_none_or(is_name) {
        return Err("no user");
    }
    if !is_name(name) {
        return Err("no container's name");
    }
    Ok(Machine::Container { engine, user: user.map(str::to_owned), name: name.to_owned() })
}

fn pod(namespace: &str, pod: &str) -> Result<Machine, &'static str> {
    let (name, container) = match pod.split_once(':') {
        Some((name, container)) => (name, Some(container)),
        None => (pod, None),
    };
    if !is_name(namespace) || !is_name(name) {
        return Err("no namespace and pod");
    }
    if !container.is_none_or(is_name) {
        return Err("no container's name");
    }
    let container = container.map(str::to_owned);
    Ok(Machine::Pod { namespace: namespace.to_owned(), name: name.to_owned(), container })
}

fn domain(authority: &str) -> Result<Machine, &'static str> {
    let (name, disk) = match authority.split_once(':') {
        Some((name, disk)) => (name, Some(disk)),
        None => (authority, None),
    };
    // virsh would take a name that starts with a dash as an option.
    if name.is_empty() || name.starts_with('-') || name.contains(char::is_control) {
        return Err("no domain's name");
    }
    if !disk.is_none_or(|disk| !disk.is_empty() && disk.chars().all(|c| c.is_ascii_alphanumeric())) {
        return Err("no disk's name, such as vda");
    }
    Ok(Machine::Domain { name: name.to_owned(), disk: disk.map(str::to_owned) })
}

/// Returns whether a word is a valid name of a container, pod or user. Words that start with a dash are rejected, because programs take them for
/// options.
fn is_name(word: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && word.chars().all(is_fine)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh { destination, port } => {
                // An IPv6 address goes back into its brackets.
                let (user, host) = match destination.rsplit_once('@') {
                    Some((user, host)) => (format!("{user}@"), host),
                    None => (String::new(), destination.as_str()),
                };
                if host.contains(':') {
                    write!(f, "ssh://{user}[{host}]")?;
                } else {
                    write!(f, "ssh://{user}{host}")?;
                }
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
            Self::Container { engine, user, name } => {
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                write!(f, "{}://{user}{name}", engine.word())
            }
            Self::Pod { namespace, name, container } => {
                write!(f, "kubectl://{namespace}/{name}")?;
                container.as_ref().map_or(Ok(()), |container| write!(f, ":{container}"))
            }
            Self::Domain { name, disk } => {
                write!(f, "libvirt://{name}")?;
                disk.as_ref().map_or(Ok(()), |disk| write!(f, ":{disk}"))
            }
        }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Self::split(text)? {
            (machine, None) => Ok(machine),
            (machine, Some(_)) => Err(format!("{text:?}: a path; accepted: {machine}")),
        }
    }
}

impl Serialize for Machine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Machine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(destination: &str, port: Option<u16>) -> Machine {
        Machine::Ssh { destination: destination.into(), port }
    }

    fn container(engine: ContainerEngine, user: Option<&str>, name: &str) -> Machine {
        Machine::Container { engine, user: user.map(str::to_owned), name: name.into() }
    }

    #[test]
    fn the_documented_forms_are_read_and_printed_as_they_were() {
        let pod = |container: Option<&str>| Machine::Pod {
            namespace: "default".into(),
            name: "web-0".into(),
            container: container.map(str::to_owned),
        };
        let domain = |disk: Option<&str>| Machine::Domain {
            name: "Windows 11 (2)".into(),
            disk: disk.map(str::to_owned),
        };
        for (text, machine, path) in [
            ("ssh://host/a/b", ssh("host", None), Some("/a/b")),
            ("ssh://me@host:2222/dev/sdb", ssh("me@host", Some(2222)), Some("/dev/sdb")),
            ("ssh://me@[fe80::1]:22/x", ssh("me@fe80::1", Some(22)), Some("/x")),
            ("ssh://host", ssh("host", None), None),
            ("ssh://host/", ssh("host", None), None),
            (
                "docker://web/data/new.dat",
                container(ContainerEngine::Docker, None, "web"),
                Some("/data/new.dat"),
            ),
            ("podman://root@3f2a/x", container(ContainerEngine::Podman, Some("root"), "3f2a"), Some("/x")),
            ("lxc://c1/x", container(ContainerEngine::Lxc, None, "c1"), Some("/x")),
            ("incus://c1", container(ContainerEngine::Incus, None, "c1"), None),
            ("lxd://c1/x", container(ContainerEngine::Lxd, None, "c1"), Some("/x")),
            ("kubectl://default/web-0/data/x", pod(None), Some("/data/x")),
            ("kubectl://default/web-0:db/data", pod(Some("db")), Some("/data")),
            ("kubectl://default/web-0", pod(None), None),
            ("libvirt://Windows 11 (2)", domain(None), None),
            ("libvirt://Windows 11 (2):vdb", domain(Some("vdb")), None),
            ("libvirt://Windows 11 (2)/", domain(None), None),
        ] {
            assert_eq!(Machine::split(text), Ok((machine.clone(), path.map(PathBuf::from))), "{text}");
            let whole = format!("{machine}{}", path.unwrap_or_default());
            assert_eq!(whole, text.trim_end_matches('/'), "{machine:?}");
            assert_eq!(machine.to_string().parse(), Ok(machine), "{text}");
        }
    }

    #[test]
    fn others_are_refused_with_the_form_that_is_meant() {
        for (bad, words) in [
            ("ssh:///x", "no host; accepted: ssh://[user@]host[:port]/path"),
            ("ssh://@h/x", "no host"),
            ("ssh://-oProxyCommand=x/y", "no host"),
            ("ssh://me@-h/y", "no host"),
            ("ssh://a\nb/y", "no host"),
            ("ssh://h:99999/x", "no number up to 65535"),
            ("docker:///x", "no container's name; accepted: docker://[user@]container/path"),
            ("docker://--privileged/x", "no container's name"),
            ("docker://a b/x", "no container's name"),
            ("podman://@web/x", "no user"),
            ("podman://-u@web/x", "no user"),
            ("lxc://root@c1/x", "only Docker and Podman take a user here; accepted: lxc://container/path"),
            ("kubectl://web-0", "no namespace and pod; accepted: kubectl://namespace/pod[:container]/path"),
            ("kubectl://default/-f/x", "no namespace and pod"),
            ("kubectl://default/web:/x", "no container's name"),
            ("libvirt://", "no domain's name; accepted: libvirt://domain[:disk]"),
            ("libvirt://--all", "no domain's name"),
            ("libvirt://web1:", "no disk's name, such as vda"),
            ("libvirt://web1:../vda", "no path in it is measured"),
            ("libvirt://web1/srv/x", "no path in it is measured; accepted: libvirt://domain[:disk]"),
            ("qemu://x/y", "accepted: ssh://[user@]host[:port]/path, docker://"),
        ] {
            let refusal = Machine::split(bad).expect_err(bad);
            assert!(refusal.contains(words) && refusal.starts_with(&format!("{bad:?}")), "{refusal}");
        }
        let refusal = "docker://web/x".parse::<Machine>().expect_err("a path");
        assert!(refusal.contains("accepted: docker://web"), "{refusal}");
    }
}
