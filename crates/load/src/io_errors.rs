//! I/Os that failed, counted by kind.

use std::collections::BTreeMap;

use iotax_model::record::ErrorCount;
use rustix::io::Errno;

/// The cause of a failed I/O: an errno, a transfer of fewer bytes than requested, or one of 0 bytes, as at the end of a
/// truncated file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Errno(i32),
    Short,
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failures {
    kind: ErrorKind,
    /// The I/O's kind as named in records, such as `read` or `sync`.
    direction: &'static str,
    ios: u64,
    in_ramp: u64,
    first_offset: u64,
    first_at: u64,
    last_offset: u64,
    last_at: u64,
}

/// The failed I/Os of one worker, grouped by cause and kind of I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoErrors {
    /// Start of the window, in nanoseconds of the engine's clock. I/Os that fail earlier are counted as failures of the warm-up.
    window_begin: u64,
    kinds: Vec<Failures>,
}

impl IoErrors {
    /// Creates an empty count for a worker whose window begins at `window_begin`.
    #[must_use]
    pub const fn new(window_begin: u64) -> Self {
        Self { window_begin, kinds: Vec::new() }
    }

    /// Counts an I/O that failed at `at` nanoseconds of the engine's clock. `result` is a negative errno, or the number of bytes moved,
    /// which is less than requested. `direction` names the kind of I/O.
    #[cold]
    pub fn add(&mut self, result: i32, direction: &'static str, offset: u64, at: u64) {
        let kind = match result {
            ..0 => ErrorKind::Errno(-result),
            0 => ErrorKind::Empty,
            _ => ErrorKind::Short,
        };
        let in_ramp = u64::from(at < self.window_begin);
        match self.kinds.iter_mut().find(|known| (known.kind, known.direction) == (kind, direction)) {
            Some(known) => {
                known.ios += 1;
                known.in_ramp += in_ramp;
                (known.last_offset, known.last_at) = (offset, at);
            }
            None => self.kinds.push(Failures {
                kind,
                direction,
                ios: 1,
                in_ramp,
                first_offset: offset,
                first_at: at,
                last_offset: offset,
                last_at: at,
            }),
        }
    }

    /// Merges the failures of all workers into one entry per cause and kind of I/O.
    pub(crate) fn merge(all: Vec<Self>) -> Vec<ErrorCount> {
        let mut merged: BTreeMap<(String, &str), Failures> = BTreeMap::new();
        for failures in all.into_iter().flat_map(|errors| errors.kinds) {
            merged
                .entry((failures.name(), failures.direction))
                .and_modify(|sum| {
                    if failures.first_at < sum.first_at {
                        (sum.first_at, sum.first_offset) = (failures.first_at, failures.first_offset);
                    }
                    if failures.last_at > sum.last_at {
                        (sum.last_at, sum.last_offset) = (failures.last_at, failures.last_offset);
                    }
                    sum.ios += failures.ios;
                    sum.in_ramp += failures.in_ramp;
                })
                .or_insert(failures);
        }
        merged
            .into_iter()
            .map(|((error, direction), sum)| ErrorCount {
                error,
                direction: direction.to_owned(),
                count: sum.ios,
                in_ramp: sum.in_ramp,
                first_offset: sum.first_offset,
                last_offset: Some(sum.last_offset),
            })
            .collect()
    }
}

impl Failures {
    fn name(&self) -> String {
        match self.kind {
            ErrorKind::Errno(number) => errno_name(number),
            ErrorKind::Short => format!("short {}", self.direction),
            ErrorKind::Empty => format!("empty {}", self.direction),
        }
    }
}

/// Returns the symbolic name of an errno that I/O can return, such as `EIO`; for others its number.
pub fn errno_name(number: i32) -> String {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::ACCESS, "EACCES"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::BADF, "EBADF"),
        (Errno::BADMSG, "EBADMSG"),
        (Errno::BUSY, "EBUSY"),
        (Errno::CANCELED, "ECANCELED"),
        (Errno::CONNABORTED, "ECONNABORTED"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::CONNRESET, "ECONNRESET"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::EXIST, "EEXIST"),
        (Errno::FAULT, "EFAULT"),
        (Errno::FBIG, "EFBIG"),
        (Errno::ILSEQ, "EILSEQ"),
        (Errno::HOSTUNREACH, "EHOSTUNREACH"),
        (Errno::INTR, "EINTR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::IO, "EIO"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::MFILE, "EMFILE"),
        (Errno::MLINK, "EMLINK"),
        (Errno::MSGSIZE, "EMSGSIZE"),
        (Errno::NETDOWN, "ENETDOWN"),
        (Errno::NETUNREACH, "ENETUNREACH"),
        (Errno::NOBUFS, "ENOBUFS"),
        (Errno::NODATA, "ENODATA"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOLINK, "ENOLINK"),
        (Errno::NOMEDIUM, "ENOMEDIUM"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOTCONN, "ENOTCONN"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NXIO, "ENXIO"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::PERM, "EPERM"),
        (Errno::REMOTEIO, "EREMOTEIO"),
        (Errno::ROFS, "EROFS"),
        (Errno::STALE, "ESTALE"),
        (Errno::TIME, "ETIME"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
    ];
    NAMES
        .iter()
        .find(|(errno, _)| errno.raw_os_error() == number)
        .map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_failures_add_up_by_kind_with_the_first_and_last_offset_of_all() {
        let mut one = IoErrors::new(30);
        one.add(-libc::EIO, "read", 4096, 20);
        one.add(-libc::EIO, "read", 0, 30);
        one.add(-libc::EIO, "write", 512, 40);
        let mut two = IoErrors::default();
        two.add(-libc::EIO, "read", 8192, 10);
        two.add(904, "read", 12288, 11);
        two.add(0, "read", 16384, 11);
        two.add(-4095, "read", 1, 12);
        let row = |error: &str, direction: &str, count, in_ramp, first_offset, last_offset| ErrorCount {
            error: error.into(),
            direction: direction.into(),
            count,
            in_ramp,
            first_offset,
            last_offset: Some(last_offset),
        };
        assert_eq!(
            IoErrors::merge(vec![one, two]),
            [
                row("EIO", "read", 3, 1, 8192, 0),
                row("EIO", "write", 1, 0, 512, 512),
                row("empty read", "read", 1, 0, 16384, 16384),
                row("errno 4095", "read", 1, 0, 1, 1),
                row("short read", "read", 1, 0, 12288, 12288),
            ]
        );
    }
}
