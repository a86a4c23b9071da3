//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use iotax_store::Location;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store to show.
    pub store: Location,
    /// The address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Path prefix under which a reverse proxy forwards requests to this server, such as `/iotax`; empty without a prefix.
    pub base: String,
    /// Host names under which browsers may reach this server, in addition to `localhost` and loopback addresses. Ignored unless the server
    /// listens on loopback.
    pub hosts: Vec<String>,
    /// Token that clients must present, in each request or once to log in; `None` to require none.
    pub token: Option<String>,
    /// Certificates for HTTPS; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// True to reject requests that change notes. Does not affect `launch`.
    pub read_only: bool,
    /// Settings for starting runs from the browser; `None` if that is not permitted.
    pub launch: Option<Launch>,
    /// Maximum number of requests per second and peer (an IPv4 address or a /64 network of IPv6), averaged over ten seconds.
    pub rate: u32,
}

/// Certificate files in PEM format.
#[derive(Debug, Clone)]
pub struct Tls {
    /// File with the server's certificate, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// File with the private key of the server's certificate.
    pub key: PathBuf,
    /// File with the authority that must have signed the client's certificate; `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The settings for starting runs from the browser.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Path of the `iotax` binary.
    pub program: PathBuf,
    /// Directories in which a started run may create files. Plans that write elsewhere are rejected.
    pub directories: Vec<PathBuf>,
    /// Directory with plans that may be started, in addition to the plans of stored runs; `None` to permit only plans of stored runs.
    pub plans: Option<PathBuf>,
}
