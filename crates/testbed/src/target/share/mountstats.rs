//! The requests of a mounted NFS share, from /proc/self/mountstats.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iotax_model::target::ShareProtocol;

use crate::stack::mount::unescape;
use crate::target::counters::Counters;

/// The request counters of the kernel's NFS client for the mount at this path.
#[derive(Debug)]
pub(super) struct NfsCounters(pub(super) PathBuf);

impl Counters for NfsCounters {
    fn layer(&self) -> &'static str {
        ShareProtocol::Nfs.word()
    }

    fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        let mounts = fs::read_to_string("/proc/self/mountstats")?;
        requests(&mounts, &self.0)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no statistics of the mount"))
    }
}

/// Counts the requests of the mount at `point`: reads, writes, commits, all others, and requests that were sent again. `None` if the mount
/// is not listed or has no statistics.
fn requests(mounts: &str, point: &Path) -> Option<BTreeMap<String, u64>> {
    let is_here = |line: &&str| {
        let mounted = line.strip_prefix("device ").and_then(|rest| rest.split_once(" mounted on "));
        let at = mounted.and_then(|(_, rest)| rest.split_once(" with fstype nfs"));
        at.is_some_and(|(at, _)| unescape(at.as_bytes()) == point.as_os_str())
    };
    let of_mount = mounts.lines().skip_while(|line| !is_here(line)).skip(1);
    let of_mount = of_mount.take_while(|line| !line.starts_with("device "));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in of_mount.skip_while(|line| line.trim() != "per-op statistics").skip(1) {
        // Requests, and transmissions; then timeouts, bytes and times.
        let Some((operation, figures)) = line.trim().split_once(": ") else { continue };
        let mut figures = figures.split_whitespace().map_while(|figure| figure.parse::<u64>().ok());
        let (requests, sent) = (figures.next()?, figures.next()?);
        let name = match operation {
            "READ" => "READ requests",
            "WRITE" => "WRITE requests",
            "COMMIT" => "COMMIT requests",
            _ => "other requests",
        };
        *counts.entry(name.into()).or_default() += requests;
        *counts.entry("sent again".into()).or_default() += sent.saturating_sub(requests);
    }
    (!counts.is_empty()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "device proc mounted on /proc with fstype proc
device 10.9.0.1:/a mounted on /srv/other with fstype nfs4 statvers=1.1
\tper-op statistics
\t        READ: 9 9 0 0 0 0 0 0 0

device 10.9.0.1:/a mounted on /srv/my\\040share with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t7
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1200 1203 0 1 2 3 4 5 0
\t       WRITE: 77 77 0 1 2 3 4 5 0
\t      COMMIT: 5 5 0 1 2 3 4 5 0
\t     GETATTR: 3 3 0 1 2 3 4 5 0

device tmpfs mounted on /run with fstype tmpfs
";

    #[test]
    fn requests_of_one_mount_are_counted_by_kind() {
        let found = requests(MOUNTS, Path::new("/srv/my share")).expect("listed");
        let expected = [
            ("READ requests", 1200),
            ("WRITE requests", 77),
            ("COMMIT requests", 5),
            ("other requests", 4),
            ("sent again", 3),
        ];
        assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(requests(MOUNTS, Path::new("/srv")), None);
        assert_eq!(requests(MOUNTS, Path::new("/run")), None);
    }
}
