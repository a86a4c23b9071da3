//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use iotax_store::Location;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store to show.
    pub store: Location,
    /// The address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The path prefix under which a reverse proxy forwards requests, such as `/iotax`; empty without a prefix.
    pub base: String,
    /// Host names under which browsers may reach this server, in addition to those of loopback.
    pub hosts: Vec<String>,
    /// The token that every request must carry; `None` for no token.
    pub token: Option<String>,
    /// Certificates for TLS; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// Rejects requests that change notes or start runs.
    pub read_only: bool,
    /// The launcher of runs; `None` if runs cannot be started.
    pub launch: Option<Launch>,
    /// Maximum requests per second of a client, averaged over ten seconds.
    pub rate: u32,
}

/// Certificate files in PEM format.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The server's certificate, followed by the intermediate certificates up to its authority.
    pub cert: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The authority that must have signed the clients' certificates; `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The settings of the launcher of runs.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Path of the `iotax` binary.
    pub program: PathBuf,
    /// The directories in which a run may create files; a run may write nowhere else.
    pub directories: Vec<PathBuf>,
    /// A directory of plans that may be started, in addition to the plans of stored runs.
    pub plans: Option<PathBuf>,
}
