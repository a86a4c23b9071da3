//! A server on a separate store, and a client that sends arbitrary bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use iotax_model::record::FleetMember;
use iotax_model::{Run, RunState};
use iotax_serve::Config;
use iotax_store::{Location, NewRun, Notes, Store};
use serde_json::Value;
use tempfile::TempDir;

use iotax_testkit::runs;

/// Markup and more that a run's texts may hold.
pub(crate) const HOSTILE: &str =
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}\u{1b}[31m&amp;{{7*7}}";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) base: String,
    dir: TempDir,
}

/// An HTTP response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Stores a run. Returns its number.
pub(crate) fn put(store: &mut Store, run: &Run) -> i64 {
    put_member(store, run, None)
}

/// Stores a run of a fleet member. Returns its number.
pub(crate) fn put_member(store: &mut Store, run: &Run, fleet: Option<&FleetMember>) -> i64 {
    let new = NewRun { plan: &run.plan, seed: run.seed, started_at_ms: run.started_at_ms, fleet };
    let id = store.create_run(&new).expect("created");
    store.set_environment(id, &run.environment).expect("kept");
    run.targets.iter().for_each(|target| store.put_target(id, target).expect("kept"));
    store.put_measurements(id, &run.measurements).expect("kept");
    store.set_state(id, RunState::Complete).expect("kept");
    id
}

/// A run of the ladder on a machine.
pub(crate) fn ladder(kernel: &str) -> Run {
    let mut run = runs::ladder(false);
    run.environment.hostname = Some("db7".into());
    run.environment.kernel = Some(kernel.into());
    run
}

impl Server {
    /// A server on a store with two runs of a ladder, one of a single target, and one whose every text is hostile.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let server = Self::on(|store| {
            put(store, &ladder("6.18.5"));
            put(store, &ladder("6.19.0"));
            put(store, &runs::bench());
            let mut hostile = ladder(HOSTILE);
            hostile.plan.name = HOSTILE.into();
            hostile.environment.hostname = Some(HOSTILE.into());
            let id = put(store, &hostile);
            let notes = Notes { tags: vec!["<b>tag</b>".into()], text: HOSTILE.into() };
            store.set_notes(id, &notes).expect("kept");
        });
        server.serve(change)
    }

    fn on(fill: impl FnOnce(&mut Store)) -> Self {
        let dir = TempDir::new().expect("a directory");
        let server = Self { address: ([127, 0, 0, 1], 0).into(), base: String::new(), dir };
        fill(&mut server.store());
        server
    }

    /// Starts a server on a store filled by a function.
    pub(crate) fn filled(fill: impl FnOnce(&mut Store)) -> Self {
        Self::on(fill).serve(|_| {})
    }

    fn serve(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            store: Location::from(&self.path("runs.db")),
            listen: self.address,
            base: String::new(),
            hosts: vec![],
            token: None,
            tls: None,
            read_only: false,
            launch: None,
            rate: 10_000,
        };
        change(&mut config);
        self.base.clone_from(&config.base);
        let (tell, listening) = mpsc::channel();
        // It ends with the test's process.
        std::thread::spawn(move || {
            let served = iotax_serve::serve(config, |address| tell.send(address).expect("heard"));
            served.expect("served");
        });
        self.address = listening.recv_timeout(Duration::from_mins(1)).expect("an address");
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.path("runs.db")).expect("a store")
    }

    /// Sends bytes and reads until the server closes the connection.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
        // A server that refuses early need not read the rest.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Answer { status, head: head.to_owned(), body }
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let host = if headers.to_lowercase().starts_with("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.raw(
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}{length}Connection: close\r\n\r\n{body}")
                .as_bytes(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "")
    }

    /// Sends a form.
    pub(crate) fn post(&self, path: &str, headers: &str, form: &str) -> Answer {
        let headers = format!("{headers}Content-Type: application/x-www-form-urlencoded\r\n");
        self.send("POST", path, &headers, form)
    }

    /// Returns the form token of a page.
    pub(crate) fn form_token(&self, path: &str) -> String {
        hidden(&self.get(path).body, "form_token")
    }

    /// Returns the hidden fields of the form for a run's notes.
    pub(crate) fn notes_form(&self, run: i64) -> String {
        let page = self.get(&format!("/runs/{run}")).body;
        format!("form_token={}&seen={}", hidden(&page, "form_token"), hidden(&page, "seen"))
    }
}

/// Returns a hidden field from the first form of a page that has it.
pub(crate) fn hidden(page: &str, name: &str) -> String {
    let field = page.split_once(&format!("name=\"{name}\" value=\""));
    let rest = field.unwrap_or_else(|| panic!("no field {name}: {page}")).1;
    rest.split_once('"').expect("a value").0.to_owned()
}

fn unchunked(body: &str) -> String {
    let (mut text, mut rest) = (Vec::new(), body.as_bytes());
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let Some(size @ 1..) = size else { break };
        let from = (end + 2).min(rest.len());
        let to = (from + size).min(rest.len());
        text.extend_from_slice(&rest[from..to]);
        rest = &rest[(to + 2).min(rest.len())..];
    }
    String::from_utf8_lossy(&text).into_owned()
}
