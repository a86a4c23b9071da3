//! Programs that people run: a database that commits, a mail server that stores messages, a source tree that is unpacked and searched.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named};
use crate::crash::{JournalMode, Synchronous};
use crate::units::{Bytes, Nanos};
use crate::workload::{Rw, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "applications",
    help: "transactions of SQLite with both of its journals and of PostgreSQL, messages stored durably, and a source tree unpacked and searched",
    shape: SuiteShape::Each,
    remarks: &[
        SuiteRemark {
            tests: &["sqlite-wal", "sqlite-rollback"],
            text: "SQLite itself, with synchronous = full: each transaction is durable before the next begins",
        },
        SuiteRemark {
            tests: &["pgbench"],
            text: "PostgreSQL itself, with the defaults of its settings: each transaction is durable before its client begins the next",
        },
        SuiteRemark {
            tests: &["mail"],
            text: "no mail server's program: each message is a new file, written and flushed (fsync) as one delivers it",
        },
        SuiteRemark {
            tests: &["unpack", "walk"],
            text: "no program of its own: the system calls of an unpacking tar, flushed at the end, and of a search for changed files with cold caches",
        },
    ],
    repeat: 5,
    workloads,
};

/// Default maximum duration of a test that ends by itself, for slow targets.
const RUNTIME: Nanos = Nanos::from_secs(60);
/// Default number of files: of the messages in `mail`, and of the source tree in `unpack` and `walk`.
const FILES: u64 = 2000;

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let whole = WorkloadKeys {
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: Some(Nanos(0)),
        nrfiles: Some(options.files.unwrap_or(FILES)),
        direct: Some(false),
        ..WorkloadKeys::default()
    };
    let sqlite = |name: &str, journal_mode| WorkloadKeys {
        test: Some(Test::Sqlite),
        journal_mode: Some(journal_mode),
        synchronous: Some(Synchronous::Full),
        size: options.size,
        runtime: Some(options.runtime.unwrap_or(Nanos::from_secs(2))),
        ramp_time: Some(options.ramp_time.unwrap_or(Nanos::from_millis(500))),
        direct: Some(false),
        ..named(name)
    };
    let pgbench = WorkloadKeys {
        test: Some(Test::Pgbench),
        runtime: Some(options.runtime.unwrap_or(Nanos::from_secs(2))),
        ramp_time: Some(options.ramp_time.unwrap_or(Nanos::from_secs(1))),
        direct: Some(false),
        ..named("pgbench")
    };
    let mail = WorkloadKeys {
        test: Some(Test::Create),
        rw: Some(Rw::RandWrite),
        filesize: "2k-32k".parse().ok(),
        fsync: Some(1),
        ..named("mail")
    };
    let tree = |name: &str, test, end_fsync| WorkloadKeys {
        test: Some(test),
        bs: Some(Bytes(64 << 10)),
        end_fsync,
        ..named(name)
    };
    let nothing = WorkloadKeys::default();
    vec![
        sqlite("sqlite-wal", JournalMode::Wal).complete(&nothing),
        sqlite("sqlite-rollback", JournalMode::Delete).complete(&nothing),
        pgbench.complete(&nothing),
        mail.complete(&whole),
        tree("unpack", Test::Unpack, Some(true)).complete(&whole),
        tree("walk", Test::Walk, None).complete(&whole),
    ]
}
