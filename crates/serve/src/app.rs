//! What a server is told, and what its requests share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iotax_store::Location;
use tokio::sync::Semaphore;

use crate::auth::Secrets;
use crate::judged::Cache;
use crate::launcher::Launcher;
use crate::limiter::Limiter;
use crate::pool::Pool;

/// Followers of live runs at one time; each has a connection of its own.
const FOLLOWERS: usize = 64;

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store that it shows.
    pub store: Location,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path under which a reverse proxy passes its requests on: empty, or `/iotax`.
    pub base: String,
    /// Names beside those of the loopback interface that browsers may call this server by.
    pub hosts: Vec<String>,
    /// The token that every request must bring; absent: none.
    pub token: Option<String>,
    /// Certificates; absent: plain HTTP.
    pub tls: Option<Tls>,
    /// Nobody can change notes or begin runs.
    pub read_only: bool,
    /// How runs are begun; absent: they cannot be.
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

/// How runs are begun.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program `iotax`.
    pub program: PathBuf,
    /// A directory whose plans can be begun, beside those of the store's runs.
    pub plans: Option<PathBuf>,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) cache: Cache,
    pub(crate) secrets: Secrets,
    pub(crate) limiter: Limiter,
    pub(crate) launcher: Option<Launcher>,
    pub(crate) followers: Arc<Semaphore>,
    pub(crate) counters: Counters,
}

/// A handle on it.
pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(config: Config) -> std::io::Result<Shared> {
        Ok(Arc::new(Self {
            pool: Pool::new(config.store.clone()),
            cache: Cache::default(),
            secrets: Secrets::new(config.token.as_deref())?,
            limiter: Limiter::new(config.rate),
            launcher: config.launch.clone().map(|launch| Launcher::new(launch, config.store.clone())),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            counters: Counters::default(),
            config,
        }))
    }

    /// A link to a page of this server: its path from the root, as browsers see it.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.config.base)
    }
}

/// The server's own counters, for Prometheus.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Answers by the first digit of their status, from 1.
    answers: [AtomicU64; 5],
    /// Microseconds until all of them began, together.
    micros: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, status: u16, micros: u64) {
        if let Some(counter) = self.answers.get(usize::from(status / 100).wrapping_sub(1)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Answers by class, `2xx`, and the seconds until all of them began.
    pub(crate) fn read(&self) -> (Vec<(String, u64)>, f64) {
        let answers = self.answers.iter().zip(1..);
        let answers = answers.map(|(count, class)| (format!("{class}xx"), count.load(Ordering::Relaxed)));
        (answers.collect(), self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}
