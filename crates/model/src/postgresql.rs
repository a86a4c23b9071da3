//! The parts of PostgreSQL's command lines that all of iotax's servers have in common.

/// Name of the database superuser.
pub const USER: &str = "iotax";
/// Arguments of initdb, besides the cluster's directory.
pub const INITDB: [&str; 5] = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C"];
/// Settings of every server. It has no port, and keeps dynamic shared memory in the cluster: in /dev/shm, a killed server would leave it
/// behind.
pub const SETTINGS: [&str; 3] =
    ["listen_addresses=", "restart_after_crash=off", "dynamic_shared_memory_type=mmap"];
/// Flags of unshare(1) for a user namespace in which root appears as an unprivileged user that still owns its files: PostgreSQL refuses to
/// run as root. The separate IPC namespace removes the segment of System V shared memory that a killed server leaves.
pub const UNPRIVILEGED: [&str; 4] = ["--user", "--map-user=65534", "--map-group=65534", "--ipc"];
/// Name of the socket's file in its directory.
pub const SOCKET: &str = ".s.PGSQL.5432";
