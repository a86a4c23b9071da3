//! Starts a NATS server for a test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A NATS server with a private directory and port. Dropping it kills the server.
#[derive(Debug)]
pub struct NatsServer {
    directory: tempfile::TempDir,
    host: String,
    port: u16,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server on 127.0.0.1 that accepts every client without a password.
    pub fn start() -> Self {
        Self::start_with(|_| String::new())
    }

    /// Starts a server on 127.0.0.1. `prepare` gets the server's directory, may create files there, and returns the content of nats.conf.
    pub fn start_with(prepare: impl FnOnce(&Path) -> String) -> Self {
        Self::start_on(&Ipv4Addr::LOCALHOST.to_string(), prepare)
    }

    /// Starts a server as [`Self::start_with`] does, on the address `host` of this machine.
    pub fn start_on(host: &str, prepare: impl FnOnce(&Path) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a directory for nats-server");
        let lines = prepare(directory.path());
        fs::write(directory.path().join("nats.conf"), lines).expect("nats.conf");
        // The server could choose a port itself, but a restarted one needs the same again.
        let port =
            TcpListener::bind((host, 0)).and_then(|free| free.local_addr()).expect("a free port").port();
        let mut server = Self { directory, host: host.to_owned(), port, child: None };
        server.run();
        server
    }

    /// Returns the address and port of the server as `HOST:PORT`.
    pub fn host(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the URL of the server: `nats://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.host())
    }

    /// Returns the path of a file in the server's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the process id of the server; `None` after [`Self::kill`].
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the server with SIGKILL, as in a crash. Its directory is kept.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server on its port, again after [`Self::kill`]. Waits until it accepts connections, and panics after 30 s.
    pub fn run(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.file("log")).expect("a log");
        let child = Command::new(crate::program("nats-server"))
            .args(["-a", &self.host, "-p", &self.port.to_string(), "-c"])
            .arg(self.file("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server");
        self.child = Some(child);
        let until = Instant::now() + Duration::from_secs(30);
        while !self.greets() {
            assert!(Instant::now() < until, "nats-server does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the content of the server's log; empty if it cannot be read.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    fn greets(&self) -> bool {
        let Ok(stream) = TcpStream::connect((self.host.as_str(), self.port)) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
