//! An export of an existing NBD server, on this or another machine.

use std::fmt::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, word,
};

/// Maximum length in bytes of a Unix socket's path.
const ADDRESS: usize = 107;
/// Default port of NBD.
const PORT: u16 = 10809;
const TCP: &str = "nbd://";
const UNIX: &str = "nbd+unix://";
const ACCEPTED: &str = "accepted: nbd://HOST[:PORT][/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH";

/// An export of an NBD server, given by its URI. iotax only writes to the export if the command line repeats the URI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NbdExportSpec {
    /// Address of the NBD server.
    pub server: NbdAddress,
    /// Name of the export; empty for the server's default export.
    pub export: String,
}

/// The address of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdAddress {
    /// A host name or IP address, and the TCP port.
    Tcp(String, u16),
    /// Path of a Unix domain socket.
    Unix(PathBuf),
}

impl NbdExportSpec {
    /// Returns whether a text starts like the URI of an NBD export, valid or not.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("nbd:") || text.starts_with("nbd+") || text.starts_with("nbds")
    }
}

impl fmt::Display for NbdExportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encoded(&self.export);
        match &self.server {
            NbdAddress::Tcp(host, port) => {
                let host = if host.contains(':') { format!("[{host}]") } else { encoded(host) };
                let port = if *port == PORT { String::new() } else { format!(":{port}") };
                let export = if export.is_empty() { export } else { format!("/{export}") };
                write!(f, "{TCP}{host}{port}{export}")
            }
            NbdAddress::Unix(socket) => {
                write!(f, "{UNIX}/{export}?socket={}", encoded(&socket.to_string_lossy()))
            }
        }
    }
}

impl FromStr for NbdExportSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| format!("{text:?}: {why}; {ACCEPTED}");
        if text.starts_with("nbds") {
            return Err(refuse("TLS is not spoken"));
        }
        let decode = |part: &str| {
            decoded(part).ok_or_else(|| refuse("a % is not followed by two hexadecimal digits of UTF-8"))
        };
        if let Some(rest) = text.strip_prefix(UNIX) {
            let (path, query) = rest.split_once('?').ok_or_else(|| refuse("it has no socket"))?;
            let socket = query.strip_prefix("socket=").filter(|socket| !socket.contains('&'));
            let socket = socket.ok_or_else(|| refuse("after the ? only socket= is known"))?;
            let export = path.strip_prefix('/').ok_or_else(|| refuse("a unix socket has no host"))?;
            let socket = PathBuf::from(decode(socket)?);
            if !socket.is_absolute() {
                return Err(refuse("the socket is no absolute path"));
            }
            let length = socket.as_os_str().len();
            if length > ADDRESS {
                return Err(refuse(&format!(
                    "the socket's path has {length} bytes, and an address takes {ADDRESS}"
                )));
            }
            return Ok(Self { server: NbdAddress::Unix(socket), export: decode(export)? });
        }
        let rest = text.strip_prefix(TCP).ok_or_else(|| refuse("it is no URI of NBD"))?;
        if rest.contains(['?', '#', '@']) {
            return Err(refuse("?, # and @ stand for nothing here"));
        }
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = if let Some((host, port)) = bracketed {
            (host.to_owned(), port)
        } else {
            let end = authority.find(':').unwrap_or(authority.len());
            (decode(&authority[..end])?, &authority[end..])
        };
        if host.is_empty() {
            return Err(refuse("it has no host"));
        }
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0),
            None => Some(PORT).filter(|_| port.is_empty()),
        };
        let port = port.ok_or_else(|| refuse("the port is no number from 1 to 65535"))?;
        Ok(Self { server: NbdAddress::Tcp(host, port), export: decode(export)? })
    }
}

/// Percent-encodes characters that have a special meaning in a URI or in the line of a stack.
fn encoded(text: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            all.push(char::from(byte));
        } else {
            let _ = write!(all, "%{byte:02X}");
        }
    }
    all
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl TryFrom<String> for NbdExportSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NbdExportSpec> for String {
    fn from(spec: NbdExportSpec) -> Self {
        spec.to_string()
    }
}

impl JsonSchema for NbdExportSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NbdExportSpec".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "An export of an NBD server by its URI; it is only read unless the command line names it again: --overwrite URI",
            "examples": ["nbd://storage:10809/vm1", "nbd+unix:///vm1?socket=/run/nbd.sock"]
        })
    }
}

impl LayerType for NbdExportSpec {
    fn key(&self) -> &'static str {
        "nbd_export"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn client_flushes(&self) -> bool {
        true
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err(format!("{self} leads to a server"))
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![word(&self.to_string())]
    }
}

impl FromLine for NbdExportSpec {
    const FORMS: &[&str] = &["nbd://HOST/EXPORT"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [uri] = segments.next_words()? else { return None };
        let uri = Some(uri.clone()).filter(|uri| Self::is_meant(uri))?;
        Some(segments.take().without_keys().and_then(|()| uri.parse()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_named_by_its_uri() {
        let tcp = |host: &str, port| NbdAddress::Tcp(host.into(), port);
        for (text, server, export, shown) in [
            ("nbd://box", tcp("box", 10809), "", "nbd://box"),
            ("nbd://box:10809/", tcp("box", 10809), "", "nbd://box"),
            ("nbd://127.0.0.1:9/a/b", tcp("127.0.0.1", 9), "a/b", "nbd://127.0.0.1:9/a/b"),
            ("nbd://[::1]:9/x%20y", tcp("::1", 9), "x y", "nbd://[::1]:9/x%20y"),
            (
                "nbd+unix:///vm?socket=/run/a%3Db",
                NbdAddress::Unix("/run/a=b".into()),
                "vm",
                "nbd+unix:///vm?socket=/run/a%3Db",
            ),
        ] {
            let spec: NbdExportSpec = text.parse().expect(text);
            assert_eq!(spec, NbdExportSpec { server, export: export.into() });
            assert_eq!(spec.to_string(), shown);
            assert_eq!(shown.parse().as_ref(), Ok(&spec));
        }
        let long = format!("nbd+unix:///x?socket=/{}", "a".repeat(107));
        for (text, why) in [
            (long.as_str(), "the socket's path has 108 bytes, and an address takes 107"),
            ("nbds://box/x", "TLS is not spoken"),
            ("nbd:box:1", "it is no URI of NBD"),
            ("nbd:///x", "it has no host"),
            ("nbd://box:0/x", "the port is no number"),
            ("nbd://box:x", "the port is no number"),
            ("nbd://box/x?y=1", "stand for nothing"),
            ("nbd://box/%zz", "two hexadecimal digits"),
            ("nbd+unix:///x", "it has no socket"),
            ("nbd+unix://?socket=/x", "has no host"),
            ("nbd+unix:///x?path=/y", "only socket= is known"),
            ("nbd+unix:///x?socket=y", "no absolute path"),
            ("nbd+unix://host/x?socket=/y", "has no host"),
        ] {
            let error = text.parse::<NbdExportSpec>().expect_err(text);
            assert!(error.contains(why) && error.contains(ACCEPTED) && error.contains(text), "{error}");
        }
    }
}
