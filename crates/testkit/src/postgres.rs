//! Starts a PostgreSQL 15 server for one test, from Debian's package, with a private directory, a port on 127.0.0.1 and a Unix socket.
//!
//! The server ends with the test, even if the test is killed: a shell script stops it when the pipe from the test closes.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Directory of Debian's PostgreSQL programs. [`PostgresServer::start`] needs `require!(file postgres::PROGRAM)` first.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Path of the server program; a test requires this file.
pub const PROGRAM: &str = "/usr/lib/postgresql/15/bin/postgres";
/// Name of the database superuser.
const SUPERUSER: &str = "iotax";
/// Maximum time for the server to accept connections after its start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Shell script that runs the server until a line arrives on stdin or the test closes the pipe. The line `crash` stops the server without a
/// checkpoint, anything else stops it cleanly. Removes the directory unless the line is `crash` or `keep`.
const KEEPER: &str = r#"
trap '' INT TERM HUP
directory=$1 && shift
(trap - INT TERM HUP; exec "$@") </dev/null >>"$directory/log" 2>&1 &
server=$!
read -r ending
if [ "$ending" = crash ]; then kill -QUIT $server; else kill -INT $server; fi
wait $server
[ "$ending" = keep ] || [ "$ending" = crash ] || rm -rf "$directory"
"#;

/// Options of a test server; the defaults suit most tests.
#[derive(Debug, Default)]
pub struct PostgresOptions<'a> {
    /// Names and values of server settings, as in postgresql.conf.
    pub settings: &'a [(&'a str, &'a str)],
    /// Lines to insert at the top of pg_hba.conf. Local connections that match none of them need no password.
    pub access: &'a str,
    /// Files to create in the data directory, readable by the server only: name and content.
    pub files: &'a [(&'a str, &'a [u8])],
}

/// A running PostgreSQL server. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub struct PostgresServer {
    directory: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    arguments: Vec<String>,
    keeper: Option<Child>,
}

impl PostgresServer {
    /// Starts a server with `fsync=off`, which is faster and does not survive a power failure.
    pub fn start() -> Self {
        Self::with(&PostgresOptions { settings: &[("fsync", "off")], ..PostgresOptions::default() })
    }

    /// Initializes a cluster and starts a server with these options. Panics if the server does not accept connections within 1 minute.
    pub fn with(options: &PostgresOptions<'_>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("iotax-pg-{}-{count}", std::process::id()));
        fs::create_dir(&directory).expect("a directory of its own");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("private");
        let user = super::is_root().then(unprivileged);
        let own = |path: &Path| {
            if let Some((user, group)) = user {
                chown(path, Some(user), Some(group)).expect("given to the server's user");
            }
        };
        own(&directory);
        let mut server = Self { port: free_port(), user, arguments: Vec::new(), keeper: None, directory };
        let data = server.directory.join("data");
        let (data, sockets) = (data.to_str().expect("text"), server.directory.to_str().expect("text"));
        let args = ["-D", data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
        server.run("initdb", &args);
        let port = server.port.to_string();
        let mut arguments = vec![PROGRAM.to_owned(), "-D".into(), data.into(), "-p".into(), port];
        for (name, value) in [("listen_addresses", "127.0.0.1"), ("unix_socket_directories", sockets)]
            .iter()
            .chain(options.settings)
        {
            arguments.extend(["-c".into(), format!("{name}={value}")]);
        }
        for (name, contents) in options.files {
            let path = Path::new(data).join(name);
            fs::write(&path, contents).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("private");
            own(&path);
        }
        let access = Path::new(data).join("pg_hba.conf");
        let default = fs::read_to_string(&access).expect("made by initdb");
        fs::write(&access, format!("{}\n{default}", options.access)).expect("written");
        server.arguments = arguments;
        server.start_again();
        server
    }

    /// Starts the server again after [`Self::stop`] or [`Self::crash`], on the same port and with the same data. Panics if it does not
    /// accept connections within 1 minute.
    pub fn start_again(&mut self) {
        let mut command = self.command("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&self.directory).args(&self.arguments);
        // A separate process group, so that the keeper outlives a killed test and cleans up.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.keeper = Some(command.spawn().expect("sh starts"));
        let begun = Instant::now();
        let port = self.port.to_string();
        let ready = ["-q", "-h", "127.0.0.1", "-p", &port, "-U", SUPERUSER];
        while !self.output("pg_isready", &ready).status.success() {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the server does not answer: {}", log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Disconnects all clients, stops the server cleanly and keeps its data.
    pub fn stop(&mut self) {
        self.end("keep");
    }

    /// Stops the server immediately, without a checkpoint, and keeps its data. The next start needs crash recovery.
    pub fn crash(&mut self) {
        self.end("crash");
    }

    fn end(&mut self, how: &str) {
        let Some(mut keeper) = self.keeper.take() else { return };
        let pipe = keeper.stdin.take();
        io::Write::write_all(&mut pipe.expect("piped"), format!("{how}\n").as_bytes()).expect("it reads");
        keeper.wait().expect("it ends");
    }

    /// Creates an empty database with a unique name. Returns its URL for the superuser.
    pub fn database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(SUPERUSER, &name)
    }

    /// Returns the URL of a database on this server for a user, without a password.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the directory of the server's Unix socket.
    pub fn socket_directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the TCP port on 127.0.0.1, which is also part of the Unix socket's name.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Executes SQL as the superuser. Returns one line per row, with columns separated by `|`. Panics on an error.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let (port, name) = (self.port.to_string(), format!("--dbname={database}"));
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", SUPERUSER, &name];
        let args = [&args[..], &["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]].concat();
        self.run("psql", &args)
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {args:?}: {error}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn output(&self, program: &str, args: &[&str]) -> Output {
        let program = Path::new(PROGRAMS).join(program);
        self.command(program).args(args).output().expect("the program starts")
    }

    /// Prepares a command in the server's directory. If this process is root, the command runs as an unprivileged user, because PostgreSQL
    /// refuses to run as root.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).env("LC_ALL", "C").env_remove("PGPASSWORD");
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            self.end("remove");
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns user and group id of the user `postgres` or, without one, of `nobody`.
fn unprivileged() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("the users");
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|id| id.parse::<u32>().ok());
        Some((fields.next()??, fields.next()??))
    };
    of("postgres").or_else(|| of("nobody")).expect("the user postgres or nobody")
}

/// Finds an unused TCP port on 127.0.0.1.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// Returns true if a process listens on this port of 127.0.0.1.
pub fn is_listening(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
