//! The members of a fleet: `--hosts`, as a list or a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use iotax_fleet::nats::{Address, NatsOperator};
use iotax_model::exit::Exit;
use iotax_model::target::Machine;
use iotax_testbed::remote::RemoteHost;

use super::super::enlist::refused;
use super::super::{Failure, OrExit, usage};

/// The accepted forms of `--hosts`, for errors.
const ACCEPTED: &str = "ssh://[USER@]HOST[:PORT], local:N, netns:NAME or a file with one of these a line; or nats://HOST[:PORT] alone";
/// Maximum number of members led from one machine.
const MOST: usize = 1000;

/// A member's machine: its connection, the member's name and its values in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) link: Link,
    /// Values that replace `${KEY}` in the member's plan.
    pub(super) values: BTreeMap<String, String>,
}

/// The connection to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    /// An ssh connection, with the user's ssh configuration.
    Ssh(RemoteHost),
    /// A process on this machine, for trying a fleet out.
    Local,
    /// A process on this machine in the network namespace of this name.
    Namespace(String),
    /// An agent registered at the NATS server with this URL.
    Nats(String),
}

impl Link {
    /// Returns whether the member is a process on this machine.
    pub(super) const fn is_here(&self) -> bool {
        matches!(self, Self::Local | Self::Namespace(_))
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ssh(host) => host.fmt(f),
            Self::Local => f.write_str("local:1"),
            Self::Namespace(name) => write!(f, "netns:{name}"),
            Self::Nats(url) => f.write_str(url),
        }
    }
}

/// Parses `--hosts`: a list, a file, or the URL of a NATS server.
pub(super) fn read(given: &str) -> Result<Vec<Host>, Failure> {
    if is_nats(given) {
        return enlisted(given);
    }
    let is_list = given.contains("://") || given.starts_with("local:") || given.starts_with("netns:");
    let hosts = if is_list {
        let entries = given.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| parse(entry).map_err(|reason| format!("--hosts {given:?}: {reason}"))).collect()
    } else {
        let path = Path::new(given);
        let text = fs::read_to_string(path)
            .with_context(|| format!("--hosts {given:?}: accepted: {ACCEPTED}"))
            .or_exit(Exit::Usage)?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty());
        lines
            .map(|(at, line)| parse(line).map_err(|reason| format!("{given}:{}: {line:?}: {reason}", at + 1)))
            .collect()
    };
    let hosts: Result<Vec<Vec<Host>>, String> = hosts;
    named(hosts.map_err(usage)?.concat()).map_err(|reason| usage(format!("--hosts {given:?}: {reason}")))
}

/// Returns whether an address is the URL of a NATS server.
pub(super) fn is_nats(address: &str) -> bool {
    address.starts_with("nats://") || address.starts_with("tls://")
}

/// Parses a member's address, as stored with its run; `None` if it names no host.
pub(super) fn link(given: &str) -> Result<Option<Link>, Failure> {
    if is_nats(given) {
        return Ok(Some(Link::Nats(given.to_owned())));
    }
    Ok(read(given)?.into_iter().next().map(|host| host.link))
}

/// Waits for free agents at a NATS server, as the URL selects them, and returns them as hosts.
fn enlisted(url: &str) -> Result<Vec<Host>, Failure> {
    let address: Address = url.parse().map_err(|error| usage(format!("--hosts {error}")))?;
    let names =
        NatsOperator::connect(&address).and_then(|mut operator| operator.choose(&address, crate::version()));
    let host = |name| Host { name, link: Link::Nats(url.to_owned()), values: BTreeMap::new() };
    Ok(names.map_err(refused)?.into_iter().map(host).collect())
}

/// Parses one entry of `--hosts` or one line of its file: the address, then KEY=VALUE words. `local:N` gives N members. `name=` sets the
/// member's name; other keys are values for its plan.
fn parse(line: &str) -> Result<Vec<Host>, String> {
    let mut words = line.split_whitespace();
    let address = words.next().unwrap_or_default();
    let mut values = BTreeMap::new();
    for word in words {
        let (key, value) =
            word.split_once('=').ok_or(format!("{word:?} is not KEY=VALUE, such as disk=/dev/sdb"))?;
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("{key:?} is no key; accepted: letters, digits and _"));
        }
        values.insert(key.to_owned(), value.to_owned());
    }
    let name = values.remove("name");
    if let Some(name) = name.as_ref().filter(|name| !is_name(name)) {
        return Err(format!("name={name:?}: accepted: letters, digits and .-_@, up to 64"));
    }
    let host = |link, otherwise: &str| Host {
        name: name.clone().unwrap_or_else(|| otherwise.to_owned()),
        link,
        values: values.clone(),
    };
    if let Some(count) = address.strip_prefix("local:") {
        let count: usize = count
            .parse()
            .ok()
            .filter(|count| (1..=MOST).contains(count))
            .ok_or_else(|| format!("{address:?}: accepted: local:N with N from 1 to {MOST}"))?;
        return match (&name, count) {
            (Some(_), 2..) => Err("one name for several members".into()),
            (Some(_), _) => Ok(vec![host(Link::Local, "")]),
            (None, _) => Ok((1..=count).map(|n| host(Link::Local, &format!("local-{n}"))).collect()),
        };
    }
    if let Some(space) = address.strip_prefix("netns:").filter(|space| is_name(space)) {
        return Ok(vec![host(Link::Namespace(space.to_owned()), space)]);
    }
    let Some(rest) = address.strip_prefix("ssh://") else {
        return Err(format!("{address:?} is no address of a member; accepted: {ACCEPTED}"));
    };
    let rest = rest.trim_end_matches('/');
    let (destination, port) = match rest.rsplit_once(':') {
        Some((destination, port)) if !port.contains(']') => {
            let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
            (destination, Some(port))
        }
        _ => (rest, None),
    };
    // ssh would take a word that begins with - for an option. A path belongs in the plan.
    if destination.is_empty() || destination.starts_with('-') || destination.contains(['/', '\'', '"']) {
        return Err(format!("{address:?}: accepted: ssh://[USER@]HOST[:PORT]"));
    }
    let short = destination.rsplit('@').next().unwrap_or(destination);
    let machine = Machine::Ssh { destination: destination.to_owned(), port };
    let link = RemoteHost { machine, sudo: false };
    Ok(vec![host(Link::Ssh(link), short)])
}

fn is_name(name: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_fit) && !name.starts_with(['.', '-'])
}

/// Checks the list of members and returns it. Fails for duplicate names, for an empty list, and for more than 1,000 hosts.
fn named(hosts: Vec<Host>) -> Result<Vec<Host>, String> {
    if hosts.is_empty() || hosts.len() > MOST {
        return Err(format!("{} members; accepted: 1 to {MOST}", hosts.len()));
    }
    let twice =
        hosts.iter().enumerate().find(|(at, host)| hosts[..*at].iter().any(|it| it.name == host.name));
    match twice {
        Some((_, Host { name, .. })) => {
            Err(format!("two members are named {name:?}; give one another name: ssh://HOST name=NAME"))
        }
        None => Ok(hosts),
    }
}

impl Host {
    /// Returns the plan's text with each `${KEY}` replaced by this member's value. `${member}` is its name, `${number}` its number from 1.
    /// Fails if a key has no value or a `${` no `}`.
    pub(super) fn fill_in(&self, text: &str, number: usize) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (key, behind) =
                after.split_once('}').ok_or_else(|| "a ${ in the plan has no }".to_owned())?;
            filled.push_str(before);
            match (self.values.get(key), key) {
                (Some(value), _) => filled.push_str(value),
                (None, "member") => filled.push_str(&self.name),
                (None, "number") => filled.push_str(&number.to_string()),
                (None, _) => {
                    let known: Vec<&str> = self.values.keys().map(String::as_str).collect();
                    return Err(format!(
                        "${{{key}}} in the plan has no value for {}; known: member, number{}{}",
                        self.name,
                        if known.is_empty() { "" } else { ", " },
                        known.join(", ")
                    ));
                }
            }
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &str) -> Vec<String> {
        read(given).expect("hosts").into_iter().map(|host| host.name).collect()
    }

    fn refusal(given: &str) -> String {
        format!("{:#}", read(given).expect_err("refused").error)
    }

    #[test]
    fn a_list_or_a_file_names_members() {
        assert_eq!(names("ssh://root@a,ssh://b:2222"), ["a", "b"]);
        assert_eq!(names("local:3"), ["local-1", "local-2", "local-3"]);
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("hosts");
        fs::write(
            &file,
            "# the rack\nssh://root@a name=first disk=/dev/sdb\n\nlocal:1 name=here # this one\n",
        )
        .expect("written");
        let hosts = read(&file.display().to_string()).expect("hosts");
        assert_eq!(hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["first", "here"]);
        assert_eq!(
            hosts[0].fill_in("device = \"${disk}\" # ${number}", 1).expect("known"),
            "device = \"/dev/sdb\" # 1"
        );
        let unknown = hosts[1].fill_in("${disk}", 2).expect_err("has none");
        assert!(unknown.contains("${disk}") && unknown.contains("here"), "{unknown}");
        fs::write(&file, "ssh://a\nftp://b\n").expect("written");
        let refused = refusal(&file.display().to_string());
        assert!(
            refused.contains(":2:") && refused.contains("ftp://b") && refused.contains("accepted"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_member_is_refused_with_what_is() {
        for (given, reason) in [
            ("ssh://a,ssh://root@a", "two members are named \"a\""),
            ("local:0", "N from 1"),
            ("ssh://-oProxyCommand=x", "accepted: ssh://"),
            ("ssh://a disk", "KEY=VALUE"),
            ("nowhere.txt", "accepted: ssh://"),
        ] {
            let refused = refusal(given);
            assert!(refused.contains(reason), "{given}: {refused}");
        }
    }
}
