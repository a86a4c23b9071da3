//! Tests: operations of the classic benchmarks, other than plain reads, writes and trims.

use crate::words::words;

words! {
    /// The operation of a workload that is not plain I/O.
    Test, "test" {
        /// Writes a new file byte by byte, one system call each, like bonnie++ since 1.97.
        Putc = "putc",
        /// Reads the area byte by byte, one system call each.
        Getc = "getc",
        /// Reads, changes and writes back each record in place.
        Rewrite = "rewrite",
        /// Reads random records; changes and writes back every tenth.
        Seeks = "seeks",
        /// Writes a new file record by record, so that the filesystem allocates.
        WriteNew = "write-new",
        /// Writes a new file record by record through a buffer, like stdio's fwrite; each system call counts as an I/O.
        StdioWrite = "stdio-write",
        /// Reads the area record by record through a buffer, like stdio's fread.
        StdioRead = "stdio-read",
        /// Copies one new file to another repeatedly, record by record.
        Copy = "copy",
        /// Creates files, with content if they have a size.
        Create = "create",
        /// Opens and closes files.
        Open = "open",
        /// Reads the attributes of files (stat).
        Stat = "stat",
        /// Renames files.
        Rename = "rename",
        /// Deletes files.
        Delete = "delete",
        /// Creates directories.
        MakeDirectory = "mkdir",
        /// Reads the attributes of directories (stat).
        StatDirectory = "stat-dir",
        /// Removes empty directories.
        RemoveDirectory = "rmdir",
        /// Reads a tree of files into one archive.
        Pack = "pack",
        /// Creates a tree of files from an archive.
        Unpack = "unpack",
        /// Walks a tree, reading the attributes of every entry.
        Walk = "walk",
        /// Deletes a tree of files and directories.
        RemoveTree = "remove-tree",
        /// Commits transactions to SQLite, each job to its own database, like pgbench's `simple-update`.
        Sqlite = "sqlite",
        /// Runs pgbench against a PostgreSQL server that is started for the measurement, on a new cluster; numjobs is the number of clients.
        Pgbench = "pgbench",
    }
}

words! {
    /// The script of pgbench, under its own names.
    PgbenchScript, "builtin" {
        /// Three updates, a query and an insertion, like TPC-B: clients wait for each other's rows in small tables.
        TpcbLike = "tpcb-like",
        /// An update of an account, a query of its balance and an insertion.
        SimpleUpdate = "simple-update",
        /// A query of an account's balance.
        SelectOnly = "select-only",
    }
}

words! {
    /// The setting of PostgreSQL by which a commit waits until it is durable.
    SynchronousCommit, "synchronous_commit" {
        /// A commit returns when it is durable.
        On = "on",
        /// A commit returns immediately; the server flushes several times a second, and a crash loses the last commits.
        Off = "off",
    }
}

impl Test {
    /// Returns whether the test measures metadata operations: on files, directories or trees.
    #[must_use]
    pub const fn is_on_files(self) -> bool {
        use Test::{Create, Delete, Open, Pack, RemoveTree, Rename, Stat, Unpack, Walk};
        self.is_on_directories()
            || matches!(self, Create | Open | Stat | Rename | Delete | Pack | Unpack | Walk | RemoveTree)
    }

    /// Returns whether the test counts operations of several system calls each, or on names, instead of single reads and writes.
    #[must_use]
    pub const fn counts_operations(self) -> bool {
        self.is_on_files() || self.is_of_transactions()
    }

    /// Returns whether the test counts the transactions of a database, whose reads, writes and flushes are its own.
    #[must_use]
    pub const fn is_of_transactions(self) -> bool {
        matches!(self, Self::Sqlite | Self::Pgbench)
    }

    /// Returns whether the test works on empty directories instead of files.
    #[must_use]
    pub const fn is_on_directories(self) -> bool {
        matches!(self, Self::MakeDirectory | Self::StatDirectory | Self::RemoveDirectory)
    }

    /// Returns whether the test reads file contents.
    #[must_use]
    pub const fn reads(self) -> bool {
        use Test::{Copy, Getc, Pack, Rewrite, Seeks, StdioRead, Unpack};
        self.is_of_transactions() || matches!(self, Getc | Rewrite | Seeks | StdioRead | Copy | Pack | Unpack)
    }

    /// Returns whether the test writes file contents, in the area or in files that it creates.
    #[must_use]
    pub const fn writes(self) -> bool {
        use Test::{Copy, Create, Pack, Putc, Rewrite, Seeks, StdioWrite, Unpack, WriteNew};
        self.is_of_transactions()
            || matches!(self, Putc | Rewrite | Seeks | WriteNew | StdioWrite | Copy | Create | Pack | Unpack)
    }

    /// Returns whether the test works on files that it creates, and so needs a directory instead of an area.
    #[must_use]
    pub const fn needs_directory(self) -> bool {
        !matches!(self, Self::Getc | Self::Rewrite | Self::Seeks | Self::StdioRead)
    }

    /// Returns whether the test works on a directory tree with files.
    #[must_use]
    pub const fn is_on_trees(self) -> bool {
        matches!(self, Self::Pack | Self::Unpack | Self::Walk | Self::RemoveTree)
    }

    /// Returns whether the test writes to the target's area.
    #[must_use]
    pub const fn modifies_area(self) -> bool {
        matches!(self, Self::Rewrite | Self::Seeks)
    }
}
