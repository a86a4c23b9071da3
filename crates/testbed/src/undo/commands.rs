//! Kills commands that a measurement's events started. They and their children are found by an environment variable, which children
//! inherit.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};

/// Environment variable of commands that events start; its value is a marker of the measurement window.
pub const EVENT_OF: &str = "IOTAX_EVENT_OF";

/// Kills all processes with this marker, and the process groups that they lead, whose members may have cleared their environment. Returns
/// the ids of the processes with the marker.
pub(super) fn kill(marker: &str) -> io::Result<Vec<u32>> {
    let (own, own_group) = (getpid(), getpgrp());
    let found = marked(Path::new("/proc"), marker)?;
    let mut killed = Vec::new();
    for pid in found.iter().filter_map(|pid| Pid::from_raw(*pid)).filter(|pid| *pid != own) {
        // A process that leads no group has none of this number.
        if pid != own_group {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = kill_process(pid, Signal::KILL);
        killed.push(pid.as_raw_nonzero().get().unsigned_abs());
    }
    Ok(killed)
}

/// Returns the ids of processes with the marker in their environment. Finds neither zombies, which have no environment, nor other users'
/// processes.
fn marked(proc: &Path, marker: &str) -> io::Result<BTreeSet<i32>> {
    let variable = format!("{EVENT_OF}={marker}");
    let is_marked = |pid: &i32| {
        let environment = fs::read(proc.join(pid.to_string()).join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    let pids = fs::read_dir(proc)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter(is_marked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_with_the_whole_marker_is_marked() {
        let temp = tempfile::tempdir().expect("temp dir");
        for (pid, environment) in [
            (10, "PATH=/bin\0IOTAX_EVENT_OF=iotax-abcd-event-1\0"),
            (11, "IOTAX_EVENT_OF=iotax-abcd-event-12\0"),
            (12, "NOTE=IOTAX_EVENT_OF=iotax-abcd-event-1\0"),
            (13, ""),
        ] {
            let dir = temp.path().join(pid.to_string());
            fs::create_dir(&dir).expect("dir");
            fs::write(dir.join("environ"), environment).expect("written");
        }
        let found = marked(temp.path(), "iotax-abcd-event-1").expect("there");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [10]);
    }
}
