//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use iotax_store::Location;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store that it shows.
    pub store: Location,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path under which a reverse proxy passes its requests on: empty, or `/iotax`.
    pub base: String,
    /// Host names, besides those of loopback, under which browsers may reach this server.
    pub hosts: Vec<String>,
    /// The token that every request must bring; absent: none.
    pub token: Option<String>,
    /// Certificates; absent: plain HTTP.
    pub tls: Option<Tls>,
    /// Nobody can change notes or begin runs.
    pub read_only: bool,
    /// The launcher of runs; absent if they cannot be begun.
    pub launch: Option<Launch>,
    /// Requests of one peer per second, over ten seconds.
    pub rate: u32,
}

/// Files of certificates, as PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The server's certificate, and those that lead to its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of the certificates that clients must bring; absent: they need none.
    pub client_ca: Option<PathBuf>,
}

/// The launcher of runs.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program `iotax`.
    pub program: PathBuf,
    /// The directories that a run may make files in. It does nothing elsewhere.
    pub directories: Vec<PathBuf>,
    /// A directory of plans that may be started, besides those of the store's runs.
    pub plans: Option<PathBuf>,
}
