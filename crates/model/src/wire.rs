//! The protocol between the runner and its agents, and the framing of messages.
//!
//! A frame consists of the four bytes `iotx`, the payload's length as a little-endian u32, and the payload: one message in JSON. The marker
//! distinguishes frames from console output; the size limit protects against memory exhaustion. The first exchange is [`Request::Hello`] and
//! [`Event::Hello`], which carry the protocol version.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::net::Peer;
use crate::record::{CacheDrop, Environment, Interface, Outcome, Sample, Timeout};
use crate::survey::Survey;
use crate::target::Layer;
use crate::units::{Bytes, Nanos};
use crate::verify_errors::Recovery;
use crate::workload::{Content, Workload};

/// Version of the protocol; runner and agent must have the same.
pub const PROTOCOL: u16 = 19;
/// Maximum length of a payload in bytes. A sample of two full histograms has less than 200 KiB.
pub const MAX_FRAME: u32 = 8 << 20;

/// Time without a message after which an agent that is working on a request sends [`Event::Alive`].
pub const BEAT: Duration = Duration::from_secs(5);

const MARKER: [u8; 4] = *b"iotx";

/// A message from the runner to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the agent's version and machine. Answered by [`Event::Hello`].
    Hello {
        /// The runner's protocol version, [`PROTOCOL`].
        protocol: u16,
    },
    /// Checks that the agent responds. Answered by [`Event::Pong`].
    Ping,
    /// Writes the whole area once, then flushes. Answered by any number of [`Event::Progress`] and then [`Event::Filled`].
    Fill {
        /// The area of a file or device to fill.
        area: ByteRange,
        /// Content of the data to write: compressibility, duplicates and stamps.
        content: Content,
        /// Seed from which the written data is generated.
        seed: u64,
    },
    /// Writes back dirty data, then drops caches. Answered by [`Event::CachesDropped`].
    DropCaches {
        /// Files and devices whose cached pages are dropped, including the files of loop devices below them. Empty to drop those of the guest's
        /// disk.
        paths: Vec<String>,
        /// True to drop the caches of the whole machine, if the agent has the permission.
        machine: bool,
    },
    /// Sets up a measurement. Answered by [`Event::Ready`]; the next request must be [`Request::Go`].
    Run(Box<Job>),
    /// Ends the measured window of the current load early; the results up to then are kept. Has no answer. Work with a fixed amount of I/O ignores
    /// this request.
    End,
    /// Starts the load. Answered by [`Event::Measuring`], [`Event::Sample`] for each interval, and [`Event::Over`]. The next request must be
    /// [`Request::Conclude`].
    Go {
        /// Start time in nanoseconds of the monotonic clock that runner and agent share; `None` to start immediately. With a start time,
        /// the agent also sends [`Event::Started`].
        at_ns: Option<u64>,
    },
    /// Flushes and verifies what the load wrote; sent after the runner has read its counters. Answered by [`Event::Done`].
    Conclude,
    /// Starts a server for network measurements on a free port, in place of the previous one. It runs while the agent handles other
    /// requests. Answered by [`Event::Serving`].
    Serve {
        /// Address that the server listens on.
        bind: String,
        /// Token that clients must present; `None` to accept all clients.
        token: Option<String>,
    },
    /// Lists the network interfaces of the agent's machine. Answered by [`Event::Interfaces`].
    Interfaces,
    /// Compares a target with the journal of its acknowledged writes, without writing. Answered by [`Event::Audited`].
    Audit {
        /// Path of an existing file or device.
        path: String,
        /// Path of the write journal.
        journal: String,
    },
    /// Measures the load generator's CPU time per I/O. Answered by [`Event::Floor`].
    Floor,
    /// Inspects a path and the machine without writing. Answered by [`Event::Described`], or by [`Event::Failed`] if the path can be neither
    /// measured nor created.
    Describe {
        /// Absolute path to inspect.
        path: String,
        /// Size of the file to create later if nothing exists at the path.
        size: Bytes,
    },
    /// Finds the disk with a serial number, without opening it. Answered by [`Event::DiskFound`].
    FindDisk {
        /// The disk's whole serial number.
        serial: String,
    },
    /// Reads the setup of the machine, or of the storage below a path, without writing. Answered by [`Event::Surveyed`].
    Survey {
        /// Absolute path; `None` to survey the machine with all its disks.
        path: Option<String>,
    },
    /// Creates a file at a path where nothing exists. The agent removes the file on exit. Answered by [`Event::Created`].
    Create {
        /// Absolute path of the new file.
        path: String,
        /// Length of the new file.
        size: Bytes,
    },
    /// Makes the agent keep a created file on exit. Answered by [`Event::Kept`].
    Keep {
        /// The path passed to [`Request::Create`].
        path: String,
    },
    /// Stops the agent. The agent in a guest powers the guest off.
    Shutdown,
}

/// An area within a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// Path of an existing file or device; `None` for the guest's disk.
    pub path: Option<String>,
    /// Start of the area, in bytes from the start of the file or device.
    pub offset: Bytes,
    /// Length of the area in bytes.
    pub size: Bytes,
    /// True if a layer that iotax created has the device open, so that opening it exclusively would fail.
    pub shared: bool,
    /// Expected identity of the file or device. A different file or device at the path is rejected. `None` to accept any.
    pub identity: Option<Identity>,
}

/// Identifies a block device independently of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskId {
    /// The device number (`rdev`), which the kernel may reuse once the disk is gone.
    pub number: u64,
    /// The disk's sequence number, unique within a boot (`diskseq`). Absent before Linux 5.15.
    pub sequence: Option<u64>,
}

/// Identity of a file or device, which stays the same under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Identity {
    /// A file, identified by device and inode number.
    File {
        /// Device number of the filesystem.
        device: u64,
        /// The file's inode number.
        inode: u64,
    },
    /// A block device, identified by its numbers.
    Disk(DiskId),
}

/// A completed fill whose blocks carry verification stamps. The stamps remain wherever no workload of the run has written since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StampedFill {
    /// Seed of the [`Request::Fill`] that wrote the blocks.
    pub seed: u64,
    /// End of the filled area, in bytes from the start of the target.
    pub end: Bytes,
}

/// Everything that an agent needs to know for one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Path of an existing file or device; `None` for the guest's disk.
    pub path: Option<String>,
    /// The workload to run, with all keys set.
    pub workload: Workload,
    /// Length of the area in bytes, starting at the workload's offset.
    pub size: Bytes,
    /// Seed from which offsets and payload are generated.
    pub seed: u64,
    /// Length of the intervals for which samples are sent.
    pub interval: Nanos,
    /// True if the target may be written. If false, a workload that writes is rejected.
    pub writable: bool,
    /// True if a layer that iotax created has the device open, so that opening it exclusively would fail.
    #[serde(default)]
    pub shared: bool,
    /// Expected identity of the target. A different file or device at the path is rejected. `None` to accept any.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Entries of each queue of a virtio device without a guest; absent for other targets, and if the device uses its maximum.
    #[serde(default)]
    pub queue_size: Option<u16>,
    /// Path of an empty directory next to the target, for workloads that create files. Absent in a guest, whose agent creates the directory.
    #[serde(default)]
    pub directory: Option<String>,
    /// Directory of PostgreSQL's programs, for `test = pgbench`. Absent in a request; the agent looks for them on its machine.
    #[serde(default)]
    pub postgresql: Option<String>,
    /// Address of the server of a network measurement; absent for storage.
    #[serde(default)]
    pub peer: Option<Peer>,
    /// The target's fill, whose stamps workloads with `verify` also check; absent if the fill is unknown or has no stamps.
    #[serde(default)]
    pub filled: Option<StampedFill>,
}

impl Job {
    /// Creates a job that may not write, without path, identity, directory, peer and fill. In a guest, the job uses the guest's disk.
    #[must_use]
    pub const fn new(workload: Workload, size: Bytes, seed: u64, interval: Nanos) -> Self {
        Self {
            path: None,
            workload,
            size,
            seed,
            interval,
            writable: false,
            shared: false,
            identity: None,
            queue_size: None,
            directory: None,
            postgresql: None,
            peer: None,
            filled: None,
        }
    }
}

/// A message from an agent to the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// Describes the agent and its machine. Answers [`Request::Hello`].
    Hello(AgentHello),
    /// The agent responds. Answers [`Request::Ping`].
    Pong,
    /// Progress of a fill, sent repeatedly.
    Progress {
        /// Bytes written so far.
        done: Bytes,
        /// Bytes to write in total.
        total: Bytes,
    },
    /// The area is filled and flushed. Answers [`Request::Fill`].
    Filled,
    /// The caches that were actually dropped. Answers [`Request::DropCaches`].
    CachesDropped(CacheDrop),
    /// The measurement is set up; the load starts on [`Request::Go`], so that several agents can start at the same time.
    Ready,
    /// The load has started. Only sent if [`Request::Go`] has a start time.
    Started {
        /// Start time in nanoseconds of the agent's monotonic clock.
        at_ns: u64,
    },
    /// The warm-up is over and the measured window starts.
    Measuring,
    /// Results of one interval, sent at the interval's end.
    Sample(Box<Sample>),
    /// The measured window is over. Flush, verification and cleanup follow, which are not measured.
    Over,
    /// The measurement is complete. Answers [`Request::Conclude`].
    Done(Box<Outcome>),
    /// The load generator's CPU time per I/O, measured without any device. Answers [`Request::Floor`].
    Floor {
        /// CPU time per I/O in nanoseconds.
        ns_per_io: u64,
    },
    /// The server for network measurements is listening. Answers [`Request::Serve`].
    Serving {
        /// The port that the server listens on.
        port: u16,
    },
    /// Network interfaces of the agent's machine. Answers [`Request::Interfaces`].
    Interfaces(Vec<Interface>),
    /// Result of comparing a target with its write journal. Answers [`Request::Audit`].
    Audited(Box<Recovery>),
    /// Description of a path and the machine. Answers [`Request::Describe`].
    Described(Box<Description>),
    /// The disk with the serial number; `None` if there is none. Answers [`Request::FindDisk`].
    DiskFound(Option<FoundDisk>),
    /// Setup of the machine or of its storage. Answers [`Request::Survey`].
    Surveyed(Box<Survey>),
    /// The file has been created. Answers [`Request::Create`].
    Created,
    /// The file will be kept when the agent exits. Answers [`Request::Keep`].
    Kept,
    /// The agent is still working on a request; sent if there was no other message for [`BEAT`].
    Alive,
    /// The request has failed.
    Failed {
        /// Reason of the failure, for example with the path and the system's error.
        message: String,
    },
}

/// The agent and its machine, as described in the first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentHello {
    /// The agent's protocol version, [`PROTOCOL`].
    pub protocol: u16,
    /// The agent's version of iotax.
    pub version: String,
    /// Kernel release of the agent's machine.
    pub kernel: String,
    /// Clocksource of the agent's machine; `None` if unknown.
    pub clocksource: Option<String>,
    /// In a guest: path of the disk under test, or of the test file on that disk. `None` elsewhere, and in a guest without a disk.
    pub disk: Option<String>,
    /// In a guest: the filesystem of the test file, with its mount options. `None` without one.
    pub filesystem: Option<Layer>,
    /// In a guest: timeouts of the disk and filesystem. Otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeouts: Vec<Timeout>,
}

/// A path on an agent's machine: its length, its storage stack, and the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// True if the programs that `test = pgbench` needs are installed.
    pub has_pgbench: bool,
    /// Length of the file or device; absent if nothing exists at the path and a file of the requested size can be created.
    pub length: Option<Bytes>,
    /// The storage stack from the bottom up; that of the parent directory if nothing exists at the path.
    pub layers: Vec<Layer>,
    /// Timeouts of the layers in `layers`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeouts: Vec<Timeout>,
    /// Kernel, CPUs and memory of the agent's machine.
    pub environment: Environment,
}

/// A disk of an agent's machine, found by its serial number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundDisk {
    /// Path of the kernel's device node.
    pub path: String,
    /// Numbers of the disk, by which it is known from then on.
    pub disk: DiskId,
}

/// An error in the protocol between runner and agent.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed or ended within a frame.
    #[error("the agent's stream failed: {0}")]
    Stream(#[from] io::Error),
    /// A frame that does not begin with the marker.
    #[error("expected a frame and got the bytes {0:?}: is the other end an iotax of the same version?")]
    Marker([u8; 4]),
    /// A frame whose payload exceeds the size limit.
    #[error("a frame of {length} bytes is above the limit of {limit}")]
    TooLarge {
        /// Length of the payload in bytes, as stated in the frame.
        length: u32,
        /// Maximum length of a payload in bytes.
        limit: u32,
    },
    /// A payload that cannot be parsed as a message.
    #[error("a message that is not understood ({error}): {excerpt}")]
    Message {
        /// Error of the JSON parser.
        error: serde_json::Error,
        /// Beginning of the payload, for the error message.
        excerpt: String,
    },
}

/// Sends one message as a frame and flushes the stream.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), WireError> {
    send_up_to(stream, message, MAX_FRAME)
}

/// Sends a message like [`send`], with `limit` as the maximum length of the payload in bytes.
pub fn send_up_to<T: Serialize>(stream: &mut impl Write, message: &T, limit: u32) -> Result<(), WireError> {
    let mut frame = Vec::with_capacity(256);
    frame.extend_from_slice(&MARKER);
    frame.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
    let length = u32::try_from(frame.len() - 8).unwrap_or(u32::MAX);
    if length > limit {
        return Err(WireError::TooLarge { length, limit });
    }
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)?;
    stream.flush()?;
    Ok(())
}

/// Receives one message; blocks until it is complete. `None` if the stream ended before a frame began.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<Option<T>, WireError> {
    receive_up_to(stream, MAX_FRAME)
}

/// Receives a message like [`receive`], with `limit` as the maximum length of the payload in bytes.
pub fn receive_up_to<T: DeserializeOwned>(
    stream: &mut impl Read,
    limit: u32,
) -> Result<Option<T>, WireError> {
    let mut head = [0; 8];
    let mut filled = 0;
    while filled < head.len() {
        match stream.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        // Reject foreign bytes at once: waiting for the rest of a short greeting could block forever.
        if filled >= 4 && head[..4] != MARKER {
            return Err(WireError::Marker([head[0], head[1], head[2], head[3]]));
        }
    }
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length > limit {
        return Err(WireError::TooLarge { length, limit });
    }
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload)?;
    serde_json::from_slice(&payload).map(Some).map_err(|error| WireError::Message {
        error,
        excerpt: String::from_utf8_lossy(&payload[..payload.len().min(120)]).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::record::{Tallies, Tally};
    use proptest::prelude::*;

    fn sample() -> Event {
        let mut latency = Histogram::new();
        (1..50_000).for_each(|n| latency.add(n * 1000));
        Event::Sample(Box::new(Sample {
            at_ns: 1,
            duration_ns: 1,
            tallies: Tallies {
                read: Some(Tally {
                    ios: latency.count(),
                    bytes: 4096 * latency.count(),
                    latency,
                    response: None,
                }),
                ..Tallies::default()
            },
            oldest_ns: None,
            failed: 0,
            directions: Vec::new(),
        }))
    }

    #[test]
    fn messages_pass_through_a_stream_in_order() {
        let mut stream = Vec::new();
        let messages = [Event::Measuring, sample(), Event::Failed { message: "no such disk".into() }];
        messages.iter().for_each(|m| send(&mut stream, m).expect("written"));
        let mut stream = stream.as_slice();
        for message in &messages {
            assert_eq!(receive::<Event>(&mut stream).expect("read").as_ref(), Some(message));
        }
        assert!(receive::<Event>(&mut stream).expect("ended").is_none());
    }

    #[test]
    fn a_full_sample_is_far_below_the_limit() {
        let mut stream = Vec::new();
        send(&mut stream, &sample()).expect("written");
        assert!(stream.len() < MAX_FRAME as usize / 20, "{}", stream.len());
    }

    #[test]
    fn a_broken_peer_is_refused_with_a_reason() {
        let refuse = |bytes: &[u8]| receive::<Event>(&mut &*bytes).expect_err("refused").to_string();
        assert!(refuse(b"SSH-2.0-").contains("expected a frame"));
        assert!(refuse(b"iotx\xff\xff\xff\xff").contains("above the limit"));
        assert!(refuse(b"iotx\x02\0\0\0{}").contains("not understood"));
        assert!(refuse(b"iotx\x09\0\0\0{").contains("stream failed"));
        assert!(refuse(b"iot").contains("stream failed"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            // Must neither panic nor allocate the length that a forged frame claims.
            let _ = receive::<Event>(&mut bytes.as_slice());
            let framed = [b"iotx".as_slice(), &(u32::try_from(bytes.len()).unwrap()).to_le_bytes(), &bytes].concat();
            let _ = receive::<Request>(&mut framed.as_slice());
        }
    }
}
