//! State shared by all requests of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iotax_analysis::trend::PastRun;
use tokio::sync::Semaphore;

use crate::auth::Secrets;
use crate::config::Config;
use crate::judged::{Cache, Recent};
use crate::launcher::Launcher;
use crate::limiter::Limiter;
use crate::pool::Pool;

/// Maximum number of clients that receive updates on runs in progress, because each one keeps a connection open.
const FOLLOWERS: usize = 64;
/// Number of runs whose trend figures are cached; each typically takes a few kilobytes.
const PAST: usize = 2000;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) cache: Cache,
    pub(crate) past: Recent<PastRun>,
    pub(crate) secrets: Secrets,
    pub(crate) limiter: Limiter,
    pub(crate) launcher: Option<Launcher>,
    pub(crate) followers: Arc<Semaphore>,
    pub(crate) counters: Counters,
}

/// A reference-counted [`App`], as handlers receive it.
pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(config: Config) -> std::io::Result<Shared> {
        Ok(Arc::new(Self {
            pool: Pool::new(config.store.clone()),
            cache: Cache::default(),
            past: Recent::new(PAST),
            secrets: Secrets::new(config.token.as_deref())?,
            limiter: Limiter::new(config.rate),
            launcher: config.launch.clone().map(|launch| Launcher::new(launch, config.store.clone())),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            counters: Counters::default(),
            config,
        }))
    }

    /// Returns the path of a page as browsers see it, with the prefix of the reverse proxy.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.config.base)
    }
}

/// Counters of the server's responses, exported to Prometheus.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Number of responses by the first digit of their status code, 1 to 5.
    answers: [AtomicU64; 5],
    /// Sum over all requests of the microseconds from receiving the request to starting the response.
    micros: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, status: u16, micros: u64) {
        if let Some(counter) = self.answers.get(usize::from(status / 100).wrapping_sub(1)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the number of responses of each class, such as `2xx`, and the total time from receiving the
    /// requests to starting the responses, in seconds.
    pub(crate) fn read(&self) -> (Vec<(String, u64)>, f64) {
        let answers = self.answers.iter().zip(1..);
        let answers = answers.map(|(count, class)| (format!("{class}xx"), count.load(Ordering::Relaxed)));
        (answers.collect(), self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}
