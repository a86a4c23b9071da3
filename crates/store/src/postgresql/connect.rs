//! Parses PostgreSQL URLs and connects, as libpq does.

use std::env;
use std::time::Duration;

use ::postgres::config::{Config, SslMode};
use ::postgres::{Client, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{pgpass, tls};

/// Maximum time to wait for a connection, unless the URL sets another (`connect_timeout`).
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens connections to the database of one URL.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    /// Parses a URL. A user that the URL lacks comes from PGUSER, USER or LOGNAME, a password from PGPASSWORD or the password file. An
    /// `Err` holds the reason why the URL is rejected.
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for parameter in parameters.split('&').filter(|one| !one.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)),
                _ => rest.push(parameter),
            }
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config = url
            .parse()
            .map_err(|error| format!("{}; accepted: postgres://USER@HOST:PORT/DATABASE", cause(&error)))?;
        let (ssl, trust) = match mode.unwrap_or("prefer") {
            "disable" => (SslMode::Disable, None),
            "prefer" => (SslMode::Prefer, Some(tls::Trust::Anyone)),
            "require" if roots.is_none() => (SslMode::Require, Some(tls::Trust::Anyone)),
            "require" | "verify-full" => (SslMode::Require, Some(tls::Trust::Roots(roots))),
            other => {
                return Err(format!("sslmode={other}: accepted: disable, prefer, require, verify-full"));
            }
        };
        config.ssl_mode(ssl);
        let tls = trust.map(|trust| tls::connect(&trust)).transpose()?;
        complete(&mut config);
        Ok(Self { config, tls })
    }

    pub(super) fn connect(&self) -> Result<Client, Error> {
        match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        }
    }
}

/// Sets the defaults of parts that the URL lacks.
fn complete(config: &mut Config) {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    if config.get_user().is_none()
        && let Some(user) = ["PGUSER", "USER", "LOGNAME"].into_iter().find_map(variable)
    {
        config.user(&user);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD").or_else(|| pgpass::password(config))
    {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_application_name().is_none() {
        config.application_name("iotax");
    }
    config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(Duration::from_mins(1));
}

/// Decodes `%XX` escapes in the value of a parameter.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = (*byte == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cause(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
