//! Work that is more than plain I/O.

use crate::words::words;

words! {
    /// What is done where a workload is not plain I/O.
    Test, "test" {
        /// A new file written byte by byte, by a system call each, as bonnie++ has done it since 1.97.
        Putc = "putc",
        /// The area read byte by byte, by a system call each.
        Getc = "getc",
        /// Each record read, changed and written back in its place.
        Rewrite = "rewrite",
        /// Records read at random, every tenth changed and written back.
        Seeks = "seeks",
        /// A new file written record by record, so that the filesystem allocates.
        WriteNew = "write-new",
        /// A new file written record by record through a buffer, as stdio's fwrite does; what counts are the system calls.
        StdioWrite = "stdio-write",
        /// The area read record by record through a buffer, as stdio's fread does.
        StdioRead = "stdio-read",
        /// One new file copied to another over and over, record by record.
        Copy = "copy",
        /// Files created, with content if they have a size.
        Create = "create",
        /// Files opened and closed.
        Open = "open",
        /// Files asked for their attributes.
        Stat = "stat",
        /// Files renamed.
        Rename = "rename",
        /// Files deleted.
        Delete = "delete",
        /// A tree of files read into one archive.
        Pack = "pack",
        /// A tree of files made from an archive.
        Unpack = "unpack",
        /// A tree walked, every entry asked for its attributes.
        Walk = "walk",
        /// A tree deleted.
        RemoveTree = "remove-tree",
        /// Whatever another tool did: the workload's name is what is known of it, and keys hold only what its record says.
        Foreign = "foreign",
    }
}

impl Test {
    /// Whether it is operations on files as such, beside what they hold.
    #[must_use]
    pub const fn is_on_files(self) -> bool {
        use Test::{Create, Delete, Open, Pack, RemoveTree, Rename, Stat, Unpack, Walk};
        matches!(self, Create | Open | Stat | Rename | Delete | Pack | Unpack | Walk | RemoveTree)
    }

    /// Whether it reads what files hold.
    #[must_use]
    pub const fn reads(self) -> bool {
        use Test::{Copy, Getc, Pack, Rewrite, Seeks, StdioRead, Unpack};
        matches!(self, Getc | Rewrite | Seeks | StdioRead | Copy | Pack | Unpack)
    }

    /// Whether it writes what files hold, those of its own among them.
    #[must_use]
    pub const fn writes(self) -> bool {
        use Test::{Copy, Create, Pack, Putc, Rewrite, Seeks, StdioWrite, Unpack, WriteNew};
        matches!(self, Putc | Rewrite | Seeks | WriteNew | StdioWrite | Copy | Create | Pack | Unpack)
    }

    /// Whether it makes files of its own, so that it needs a directory and not just an area.
    #[must_use]
    pub const fn needs_directory(self) -> bool {
        !matches!(self, Self::Getc | Self::Rewrite | Self::Seeks | Self::StdioRead | Self::Foreign)
    }

    /// Whether its files are a tree.
    #[must_use]
    pub const fn is_on_trees(self) -> bool {
        matches!(self, Self::Pack | Self::Unpack | Self::Walk | Self::RemoveTree)
    }

    /// Whether it changes what is on the target's area itself.
    #[must_use]
    pub const fn modifies_area(self) -> bool {
        matches!(self, Self::Rewrite | Self::Seeks)
    }
}
