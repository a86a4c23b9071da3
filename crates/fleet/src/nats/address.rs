//! The URL of a NATS server with all settings of the connection.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use async_nats::ConnectOptions;

/// The accepted form of a URL, for error messages.
const FORM: &str = "nats://HOST[:PORT][?KEY=VALUE&...] or tls://..., with the keys group, expect, wait, fleet, prefix, creds, user, \
                    password-file, nkey, ca, cert and key";

/// A URL that was rejected, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?}: {reason}; expected {FORM}")]
pub struct AddressError {
    given: String,
    reason: String,
}

/// A NATS server, the login, and the choice of agents.
///
/// Secrets are given only as names of files, because a URL on the command line is visible to everyone who lists processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `nats://HOST:PORT`, or `tls://HOST:PORT` to require TLS.
    pub server: String,
    /// First part of all NATS subjects; `iotax` by default.
    pub prefix: String,
    /// Group to which the agents must belong; `None` for any.
    pub group: Option<String>,
    /// Number of agents to wait for; `None` to take those that are present, at least one.
    pub expect: Option<usize>,
    /// Maximum time to wait for agents.
    pub wait: Duration,
    /// Id of the fleet to act on; `None` if the command needs none.
    pub fleet: Option<String>,
    /// A credentials file as nsc creates it, with a JWT and an nkey seed; `None` to log in without one.
    pub creds: Option<PathBuf>,
    /// Name of the user to log in as; `None` to log in without one.
    pub user: Option<String>,
    /// A file whose first line is the user's password; `None` without a user.
    pub password_file: Option<PathBuf>,
    /// A file whose first line is the seed of an nkey; `None` to log in without one.
    pub nkey: Option<PathBuf>,
    /// A file with CA certificates to verify the server with; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// A file with the client certificate for TLS; `None` to connect without one.
    pub cert: Option<PathBuf>,
    /// A file with the private key of `cert`; `None` without a certificate.
    pub key: Option<PathBuf>,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(given: &str) -> Result<Self, AddressError> {
        parse(given).map_err(|reason| AddressError { given: given.to_owned(), reason })
    }
}

fn parse(given: &str) -> Result<Address, String> {
    let (server, query) = given.split_once('?').unwrap_or((given, ""));
    let host = server
        .strip_prefix("nats://")
        .or_else(|| server.strip_prefix("tls://"))
        .ok_or("it begins with neither nats:// nor tls://")?
        .trim_end_matches('/');
    if host.contains('@') {
        return Err("a URL is seen by everyone who lists processes: give user=NAME&password-file=FILE".into());
    }
    if host.is_empty() || host.contains(['/', ' ', '#']) {
        return Err(format!("{host:?} is no host"));
    }
    let mut address = Address {
        server: server.trim_end_matches('/').to_owned(),
        prefix: "iotax".into(),
        group: None,
        expect: None,
        wait: Duration::from_secs(10),
        fleet: None,
        creds: None,
        user: None,
        password_file: None,
        nkey: None,
        ca: None,
        cert: None,
        key: None,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no ="))?;
        set(&mut address, key, &decode(value).ok_or_else(|| format!("{value:?}: expected %XX after a %"))?)?;
    }
    if address.cert.is_some() != address.key.is_some() {
        return Err("cert and key belong together".into());
    }
    if address.user.is_some() != address.password_file.is_some() {
        return Err("user and password-file belong together".into());
    }
    let methods = [address.creds.is_some(), address.user.is_some(), address.nkey.is_some()];
    if methods.iter().filter(|is_given| **is_given).count() > 1 {
        return Err("creds, user and nkey exclude each other".into());
    }
    Ok(address)
}

fn set(address: &mut Address, key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{key} has no value"));
    }
    let path = Some(PathBuf::from(value));
    match key {
        "group" => address.group = Some(value.to_owned()),
        "fleet" => address.fleet = Some(value.to_owned()),
        "expect" => {
            let count = value.parse().ok().filter(|count| *count > 0);
            address.expect = Some(count.ok_or_else(|| format!("expect={value}: expected a number from 1"))?);
        }
        "wait" => {
            address.wait =
                duration(value).ok_or_else(|| format!("wait={value}: expected 30s, 500ms or 5m"))?;
        }
        "prefix" => {
            if !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                || value.split('.').any(str::is_empty)
            {
                return Err(format!("prefix={value}: expected letters, digits, - and _, with dots between"));
            }
            value.clone_into(&mut address.prefix);
        }
        "creds" => address.creds = path,
        "user" => address.user = Some(value.to_owned()),
        "password-file" => address.password_file = path,
        "nkey" => address.nkey = path,
        "ca" => address.ca = path,
        "cert" => address.cert = path,
        "key" => address.key = path,
        _ => return Err(format!("unknown key {key:?}")),
    }
    Ok(())
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    })
}

/// Decodes `%XX` escapes; `None` if an escape is malformed or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns the first line of a file that holds a secret, without surrounding spaces.
fn first_line(path: &PathBuf) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

impl Address {
    /// Returns the options with which the client connects to the server. Fails if a file that the URL names cannot be read.
    pub(super) fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = match (&self.creds, &self.user, &self.password_file, &self.nkey) {
            (Some(creds), ..) => {
                let text = std::fs::read_to_string(creds)
                    .map_err(|error| format!("{}: {error}", creds.display()))?;
                ConnectOptions::with_credentials(&text)
                    .map_err(|error| format!("{}: {error}", creds.display()))?
            }
            (_, Some(user), Some(file), _) => {
                ConnectOptions::with_user_and_password(user.clone(), first_line(file)?)
            }
            (_, _, _, Some(seed)) => ConnectOptions::with_nkey(first_line(seed)?),
            _ => ConnectOptions::new(),
        };
        for file in [&self.ca, &self.cert, &self.key].into_iter().flatten() {
            std::fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything() {
        let url = "tls://hub.example:4443?group=rack%201&expect=64&wait=2m&prefix=lab.iotax&ca=/etc/ca.pem&cert=c&key=k&user=u&password-file=/p";
        let address: Address = url.parse().unwrap();
        assert_eq!(address.server, "tls://hub.example:4443");
        assert_eq!(address.group.as_deref(), Some("rack 1"));
        assert_eq!((address.expect, address.wait), (Some(64), Duration::from_mins(2)));
        assert_eq!(address.prefix, "lab.iotax");
        assert_eq!(address.ca, Some("/etc/ca.pem".into()));
        let plain: Address = "nats://[::1]:4222/".parse().unwrap();
        assert_eq!((plain.server.as_str(), plain.group), ("nats://[::1]:4222", None));
    }

    #[test]
    fn what_is_wrong_is_quoted_with_the_form() {
        for (url, reason) in [
            ("http://a", "neither nats://"),
            ("nats://", "no host"),
            ("nats://me:secret@a", "password-file=FILE"),
            ("nats://a?expect=0", "expect=0: expected a number from 1"),
            ("nats://a?wait=soon", "wait=soon: expected 30s"),
            ("nats://a?colour=red", "unknown key \"colour\""),
            ("nats://a?group", "has no ="),
            ("nats://a?group=%4", "expected %XX"),
            ("nats://a?prefix=a..b", "with dots between"),
            ("nats://a?prefix=a.*", "with dots between"),
            ("nats://a?cert=c", "cert and key belong together"),
            ("nats://a?user=u", "password-file belong together"),
            ("nats://a?creds=c&nkey=n", "exclude each other"),
        ] {
            let refusal = url.parse::<Address>().unwrap_err().to_string();
            assert!(refusal.contains(reason) && refusal.contains("nats://HOST"), "{url}: {refusal}");
        }
    }
}
