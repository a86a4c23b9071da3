//! Records when a block device's requests are issued and completed, from the kernel's tracepoints.

mod page;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

use crate::host_info::monotonic_ns;
use crate::tracefs::{TraceFs, TraceInstance};
use crate::undo::{Effect, UndoLog, UndoLogError};

/// Trace buffer size per CPU in KiB, enough for half a second at 100,000 requests per second.
const BUFFER_KB: u32 = 8192;
/// Maximum size of a page of the kernel's trace buffer, in bytes.
const PAGE: usize = 64 << 10;
const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";

/// An error while recording a disk's requests.
#[derive(Debug, thiserror::Error)]
pub enum BlockTraceError {
    /// The path is not on a block device whose requests can be traced.
    #[error("{path}: {reason}")]
    Device {
        /// The path to trace, as given.
        path: PathBuf,
        /// Reason why requests cannot be traced there.
        reason: String,
    },
    /// The kernel's tracing cannot be used, for example without root.
    #[error(
        "the kernel's tracing cannot be used: {doing}: {error}; it takes root, and a kernel with tracefs that is not locked down"
    )]
    Tracing {
        /// The step that failed, such as `reading a buffer`.
        doing: String,
        /// Error of the system call.
        error: io::Error,
    },
    /// The undo log cannot be written.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
}

/// A disk whose requests the kernel can trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedDisk {
    /// Kernel name of the disk, as in /sys/block.
    pub name: String,
    /// Size of the disk in bytes; `None` if it cannot be read.
    pub size: Option<u64>,
    /// The kernel's device number, `major << 20 | minor`.
    number: u32,
}

impl TracedDisk {
    /// Finds the disk to trace for a path: for a partition, file or directory, the disk that holds it; for any other block device, the
    /// device itself. Rejects a filesystem that is not on one block device, and a device that passes I/O on, such as device-mapper. /sys is
    /// below `root`.
    pub fn of(root: &Path, path: &Path) -> Result<Self, BlockTraceError> {
        let refuse = |reason: String| BlockTraceError::Device { path: path.to_owned(), reason };
        let metadata = path.metadata().map_err(|error| refuse(error.to_string()))?;
        let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let (major, minor) = (major(device), minor(device));
        let link = root.join(format!("sys/dev/block/{major}:{minor}"));
        let found = link.canonicalize().map_err(|_| {
            refuse("its filesystem is not on one block device; name the device to record".into())
        })?;
        let disk = if found.join("partition").exists() {
            found.parent().unwrap_or(&found).to_owned()
        } else {
            found
        };
        let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let below: Vec<String> = fs::read_dir(disk.join("slaves"))
            .into_iter()
            .flatten()
            .filter_map(|slave| Some(slave.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        if !below.is_empty() {
            let names = below.iter().map(|name| format!("/dev/{name}")).collect::<Vec<_>>().join(" or ");
            return Err(refuse(format!(
                "{name} passes I/O on and has no requests of its own; record {names}"
            )));
        }
        let text = |file: &str| fs::read_to_string(disk.join(file)).ok();
        let number = text("dev").and_then(|text| {
            let (major, minor) = text.trim().split_once(':')?;
            Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
        });
        let number = number.ok_or_else(|| refuse(format!("the device number of {name} is not known")))?;
        let size = text("size").and_then(|sectors| sectors.trim().parse::<u64>().ok()?.checked_mul(512));
        Ok(Self { name, size, number })
    }
}

/// A tracepoint event: a request is issued to the disk, or it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRequest {
    /// Time of the event by the monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// True for a completion, false for an issue.
    pub is_completed: bool,
    /// Start of the request on the disk, in sectors of 512 bytes.
    pub sector: u64,
    /// Length of the request in sectors of 512 bytes.
    pub sectors: u32,
    /// Type and flags as the kernel's letters, such as `WFS` for a synchronous FUA write; padded with zero bytes.
    pub kind: [u8; 10],
    /// Id of the thread that issued the request (the tracepoint's `common_pid`); for a completion, of the thread that ran on the CPU at
    /// that moment.
    pub process: u32,
}

/// The id of a trace event and the byte offsets of its fields, which differ between kernels.
#[derive(Debug, Clone, Copy)]
struct Layout {
    id: u16,
    process: usize,
    sector: usize,
    sectors: usize,
    kind: usize,
}

/// A running recording of one disk's requests.
#[derive(Debug)]
pub struct BlockTrace {
    directory: PathBuf,
    buffers: Vec<(u32, File)>,
    issue: Layout,
    complete: Layout,
    /// Events that were read but not returned yet, because the trace buffer of another CPU may still hold earlier ones.
    held: Vec<DiskRequest>,
    page: Vec<u8>,
    /// Keeps the tracing filesystem mounted as long as the trace buffers are open.
    _tracing: TraceFs,
}

impl BlockTrace {
    /// Starts recording a disk's requests, in a trace instance whose name contains the run's `tag`. The instance is recorded in the undo
    /// log, which removes it later.
    pub fn start(disk: &TracedDisk, tag: &str, undo_log: &mut UndoLog) -> Result<Self, BlockTraceError> {
        let failed = |doing: String| move |error| BlockTraceError::Tracing { doing, error };
        let tracing = TraceFs::open().map_err(failed("mounting tracefs".into()))?;
        let instance = TraceInstance { name: format!("iotax-{tag}-record") };
        undo_log.record(Effect::TraceInstance(instance.clone()))?;
        let directory = tracing.instance(&instance);
        fs::create_dir(&directory).map_err(failed("making an instance".into()))?;
        let write = |file: &str, text: &str| {
            fs::write(directory.join(file), text).map_err(failed(format!("writing {text:?} to {file}")))
        };
        write("trace_clock", "mono")?;
        write("buffer_size_kb", &BUFFER_KB.to_string())?;
        // Drop and count new events when a buffer is full, instead of overwriting older ones.
        write("options/overwrite", "0")?;
        let filter = format!("dev == {}", disk.number);
        for event in [ISSUE, COMPLETE] {
            write(&format!("events/block/{event}/filter"), &filter)?;
        }
        let layout = |event: &str| {
            let file = format!("events/block/{event}/format");
            let text =
                fs::read_to_string(directory.join(&file)).map_err(failed(format!("reading {file}")))?;
            let unknown = || io::Error::other("a field is missing");
            Layout::of(&text).ok_or_else(unknown).map_err(failed(format!("reading {file}")))
        };
        let (issue, complete) = (layout(ISSUE)?, layout(COMPLETE)?);
        let buffers = buffers(&directory).map_err(failed("opening the buffers".into()))?;
        for event in [COMPLETE, ISSUE] {
            write(&format!("events/block/{event}/enable"), "1")?;
        }
        let (held, page) = (Vec::new(), vec![0; PAGE]);
        Ok(Self { directory, buffers, issue, complete, held, page, _tracing: tracing })
    }

    /// Reads new events from the trace buffers and returns them sorted by time. Without `all`, holds back events until the next call if
    /// unread events of another CPU may precede them.
    pub fn read(&mut self, all: bool) -> Result<Vec<DiskRequest>, BlockTraceError> {
        // Events after this time may still be preceded by unread ones on a CPU whose buffer was read earlier.
        let settled = monotonic_ns();
        for (_, buffer) in &mut self.buffers {
            loop {
                let length = match buffer.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        return Err(BlockTraceError::Tracing { doing: "reading a buffer".into(), error });
                    }
                };
                let (issue, complete, held) = (self.issue, self.complete, &mut self.held);
                page::events(&self.page[..length], |at_ns, event| {
                    held.extend(DiskRequest::of(at_ns, event, issue, complete));
                })
                .map_err(|reason| BlockTraceError::Tracing {
                    doing: "reading a buffer".into(),
                    error: io::Error::other(reason),
                })?;
            }
        }
        self.held.sort_by_key(|request| request.at_ns);
        let ready =
            if all { self.held.len() } else { self.held.partition_point(|request| request.at_ns < settled) };
        Ok(self.held.drain(..ready).collect())
    }

    /// Stops the recording. Events that are still in the buffers can be read afterwards.
    pub fn stop(&self) -> Result<(), BlockTraceError> {
        fs::write(self.directory.join("tracing_on"), "0")
            .map_err(|error| BlockTraceError::Tracing { doing: "stopping".into(), error })
    }

    /// Returns the number of events lost because a buffer was full; `None` if the kernel does not report it.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        let of = |cpu: u32| {
            let text = fs::read_to_string(self.directory.join(format!("per_cpu/cpu{cpu}/stats"))).ok()?;
            lost(&text)
        };
        self.buffers.iter().map(|(cpu, _)| of(*cpu)).sum()
    }
}

/// Opens the trace buffers of all CPUs. Returns each with its CPU number.
fn buffers(directory: &Path) -> io::Result<Vec<(u32, File)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.join("per_cpu"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(cpu) = name.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok()) else { continue };
        #[expect(clippy::cast_possible_wrap, reason = "a bit of a flag")]
        let flags = OFlags::NONBLOCK.bits() as i32;
        let buffer =
            OpenOptions::new().read(true).custom_flags(flags).open(entry.path().join("trace_pipe_raw"))?;
        found.push((cpu, buffer));
    }
    found.sort_by_key(|(cpu, _)| *cpu);
    Ok(found)
}

/// Parses the number of lost events in a CPU's `stats` file: overruns, commit overruns and dropped events; `None` if one of them is
/// missing.
fn lost(stats: &str) -> Option<u64> {
    let number = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    Some(number("overrun")? + number("commit overrun")? + number("dropped events")?)
}

impl Layout {
    /// Parses an event's `format` file; `None` if a field is missing.
    fn of(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| {
                let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
                let declared = declared.split('[').next().unwrap_or(declared);
                (declared.split_whitespace().last() == Some(name)).then_some(rest)
            })?;
            line.trim().strip_prefix("offset:")?.split(';').next()?.parse().ok()
        };
        Some(Self {
            id,
            process: field("common_pid")?,
            sector: field("sector")?,
            sectors: field("nr_sector")?,
            kind: field("rwbs")?,
        })
    }
}

impl DiskRequest {
    /// Decodes an event; `None` if it is neither an issue nor a completion, or is too short.
    fn of(at_ns: u64, event: &[u8], issue: Layout, complete: Layout) -> Option<Self> {
        let id = u16::from_ne_bytes(*event.first_chunk()?);
        let layout = [issue, complete].into_iter().find(|layout| layout.id == id)?;
        let short =
            |at: usize| event.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
        let wide =
            |at: usize| event.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_ne_bytes);
        let mut kind = [0; 10];
        let letters = event.get(layout.kind..)?.iter().take(kind.len()).take_while(|letter| **letter > 0);
        kind.iter_mut().zip(letters).for_each(|(to, letter)| *to = *letter);
        Some(Self {
            at_ns,
            is_completed: id == complete.id,
            sector: wide(layout.sector)?,
            sectors: short(layout.sectors)?,
            kind,
            process: short(layout.process)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue\nID: 2104\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";

    #[test]
    fn an_event_is_read_by_the_kernel_s_own_description() {
        let issue = Layout::of(FORMAT).expect("understood");
        let complete = Layout { id: 2107, ..issue };
        let mut event = vec![0; 44];
        event[..2].copy_from_slice(&2107_u16.to_ne_bytes());
        event[4..8].copy_from_slice(&77_u32.to_ne_bytes());
        event[16..24].copy_from_slice(&2048_u64.to_ne_bytes());
        event[24..28].copy_from_slice(&8_u32.to_ne_bytes());
        event[34..37].copy_from_slice(b"WFS");
        let request = DiskRequest::of(5, &event, issue, complete).expect("a request");
        assert_eq!(
            (request.is_completed, request.sector, request.sectors, request.process),
            (true, 2048, 8, 77)
        );
        assert_eq!(&request.kind[..4], b"WFS\0");
        assert_eq!(DiskRequest::of(5, &event[..40], issue, complete).map(|request| request.kind[3]), Some(0));
        assert_eq!(DiskRequest::of(5, &[1, 0], issue, complete), None);
        assert!(Layout::of("ID: 7\n").is_none());
    }

    #[test]
    fn losses_are_those_of_the_kernel_s_statistics() {
        let stats = "entries: 12\noverrun: 3\ncommit overrun: 1\nbytes: 640\noldest event ts: 1.0\nnow ts: 2.0\ndropped events: 5\nread events: 9\n";
        assert_eq!(lost(stats), Some(9));
        assert_eq!(lost("entries: 12\n"), None);
    }

    #[test]
    fn a_path_is_traced_on_the_disk_beneath_it() {
        let here = TracedDisk::of(Path::new("/"), Path::new("/proc"));
        assert!(here.expect_err("no disk").to_string().contains("not on one block device"));
    }
}
