//! The protocol between runner and agent, and its framing.
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

/// Protocol version; both ends must have the same.
pub const PROTOCOL: u16 = 17;
/// Largest payload in bytes. A sample of two full histograms is under 200 KiB.
pub const MAX_FRAME: u32 = 8 << 20;

/// Maximum time for which an agent that works on a request sends nothing.
pub const BEAT: Duration = Duration::from_secs(5);

const MARKER: [u8; 4] = *b"iotx";

/// A message from the runner to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Answered by [`Event::Hello`].
    Hello {
        /// The runner's [`PROTOCOL`].
        protocol: u16,
    },
    /// Answered by [`Event::Pong`].
    Ping,
    /// Writes the whole area once, then flushes. Answered by [`Event::Progress`] ... [`Event::Filled`].
    Fill {
        /// The area to fill.
        area: ByteRange,
        /// The content to write.
        content: Content,
        /// Seed of the data to write.
        seed: u64,
    },
    /// Writes back dirty data, then drops caches. Answered by [`Event::CachesDropped`].
    DropCaches {
        /// Files and devices whose cached pages are dropped, including the files of loop devices below them. Empty for the guest's disk.
        paths: Vec<String>,
        /// True to drop the caches of the whole machine, if the agent has the permission.
        machine: bool,
    },
    /// Sets up a measurement. Answered by [`Event::Ready`]; the next request must be [`Request::Go`].
    Run(Box<Job>),
    /// Ends the window of the current load early, with the results up to then. Has no answer, and no effect on work with
    /// a fixed amount.
    End,
    /// Starts the load. Answered by [`Event::Measuring`], [`Event::Sample`] ... [`Event::Over`]; the next request must be [`Request::Conclude`].
    Go {
        /// Start time in nanoseconds of the monotonic clock that both ends share; `None` to start at once. If set, [`Event::Started`] is
        /// sent too.
        at_ns: Option<u64>,
    },
    /// Flushes and verifies the writes of the load, after the runner has read its counters. Answered by [`Event::Done`].
    Conclude,
    /// Starts a server for network measurements, in addition to other requests. Answered by [`Event::Serving`].
    Serve {
        /// The address to listen on.
        bind: String,
        /// The token that clients must present.
        token: Option<String>,
    },
    /// Reads this machine's network interfaces. Answered by [`Event::Interfaces`].
    Interfaces,
    /// Compares a target with the journal of its acknowledged writes; read-only. Answered by [`Event::Audited`].
    Audit {
        /// An existing file or device.
        path: String,
        /// Path of the journal.
        journal: String,
    },
    /// Measures the engine's overhead per I/O. Answered by [`Event::Floor`].
    Floor,
    /// Inspects a path and the machine; read-only. Answered by [`Event::Described`], or by [`Event::Failed`] if the path can be neither
    /// measured nor created.
    Describe {
        /// Absolute path.
        path: String,
        /// Size of the file to create if nothing exists at the path.
        size: Bytes,
    },
    /// Reads the setup of the machine, or of the storage below a path; read-only. Answered by [`Event::Surveyed`].
    Survey {
        /// Absolute path; `None` for the machine with all its disks.
        path: Option<String>,
    },
    /// Creates a file at a path where nothing exists. The agent removes it on exit. Answered by [`Event::Created`].
    Create {
        /// Absolute path.
        path: String,
        /// Length of the file.
        size: Bytes,
    },
    /// Keeps a created file on exit. Answered by [`Event::Kept`].
    Keep {
        /// The path passed to [`Request::Create`].
        path: String,
    },
    /// Stops the agent; a guest powers off.
    Shutdown,
}

/// An area of a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// An existing file or device; `None` for the guest's disk.
    pub path: Option<String>,
    /// Start of the area in bytes.
    pub offset: Bytes,
    /// Length of the area.
    pub size: Bytes,
    /// True if a layer that iotax created holds the device, so that an exclusive claim would fail.
    pub shared: bool,
    /// The expected identity of the file or device; anything else at the path is rejected.
    pub identity: Option<Identity>,
}

/// Identifies a block device independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskId {
    /// The device number (`rdev`), which the kernel may reuse once the disk is gone.
    pub number: u64,
    /// The disk's sequence number, unique within a boot (`diskseq`). Absent before Linux 5.15.
    pub sequence: Option<u64>,
}

/// The identity of a target, which survives renames.
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
    /// A block device.
    Disk(DiskId),
}

/// A fill with stamped blocks, which are still on the target wherever no workload of the run has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StampedFill {
    /// The seed of [`Request::Fill`].
    pub seed: u64,
    /// The end of the filled area in bytes.
    pub end: Bytes,
}

/// A measurement to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// An existing file or device; `None` for the guest's disk.
    pub path: Option<String>,
    /// The workload to run.
    pub workload: Workload,
    /// Length of the area, from the workload's offset.
    pub size: Bytes,
    /// Seed of offsets and payload.
    pub seed: u64,
    /// Length of a sampling interval.
    pub interval: Nanos,
    /// True if the target may be written. Otherwise a workload that writes is rejected.
    pub writable: bool,
    /// True if a layer that iotax created holds the device, so that an exclusive claim would fail.
    #[serde(default)]
    pub shared: bool,
    /// The expected identity of the target; anything else at the path is rejected.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// An empty directory next to the target, for workloads that create files; absent in a guest, whose agent creates it.
    #[serde(default)]
    pub directory: Option<String>,
    /// The server of a network measurement; absent for storage.
    #[serde(default)]
    pub peer: Option<Peer>,
    /// The stamped fill of the target, which workloads that verify also check; absent if unknown or without stamps.
    #[serde(default)]
    pub filled: Option<StampedFill>,
}

impl Job {
    /// A read-only job without path, identity, directory, peer or fill. In a guest, it runs on the guest's disk.
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
            directory: None,
            peer: None,
            filled: None,
        }
    }
}

/// A message from an agent to the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The agent's identity. Answers [`Request::Hello`].
    Hello(AgentHello),
    /// Answers [`Request::Ping`].
    Pong,
    /// Progress of a fill.
    Progress {
        /// Bytes written.
        done: Bytes,
        /// Bytes to write.
        total: Bytes,
    },
    /// The fill is complete and flushed.
    Filled,
    /// The caches that were dropped.
    CachesDropped(CacheDrop),
    /// The measurement is set up. The load starts on [`Request::Go`], so that several agents can start at once.
    Ready,
    /// The load has started. Sent if [`Request::Go`] set a start time.
    Started {
        /// Start time in nanoseconds of the agent's monotonic clock.
        at_ns: u64,
    },
    /// The warm-up is over and the measured window starts.
    Measuring,
    /// The figures of one interval.
    Sample(Box<Sample>),
    /// The measured window is over. A flush, verification and cleanup follow outside of it.
    Over,
    /// The measurement is complete.
    Done(Box<Outcome>),
    /// The engine's overhead, measured on the null backend.
    Floor {
        /// CPU nanoseconds per I/O.
        ns_per_io: u64,
    },
    /// The server is listening.
    Serving {
        /// The port that the server listens on.
        port: u16,
    },
    /// The machine's network interfaces.
    Interfaces(Vec<Interface>),
    /// The result of comparing a target with its journal.
    Audited(Box<Recovery>),
    /// The description of a path.
    Described(Box<Description>),
    /// The survey of the setup.
    Surveyed(Box<Survey>),
    /// The file was created.
    Created,
    /// The file will be kept.
    Kept,
    /// The agent is working and has nothing else to report; sent after [`BEAT`] of silence while a request is open.
    Alive,
    /// The request failed.
    Failed {
        /// The reason, with the path and the system's error.
        message: String,
    },
}

/// An agent's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentHello {
    /// The agent's [`PROTOCOL`].
    pub protocol: u16,
    /// The version of iotax.
    pub version: String,
    /// Kernel release of the agent's machine.
    pub kernel: String,
    /// Clocksource of the agent's machine.
    pub clocksource: Option<String>,
    /// In a guest: the disk found by its serial number, or the test file on it.
    pub disk: Option<String>,
    /// In a guest: the filesystem of the test file, with its mount options.
    pub filesystem: Option<Layer>,
    /// In a guest: the timeouts of the disk and filesystem.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeouts: Vec<Timeout>,
}

/// The description of a path on an agent's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Length of the file or device; absent if nothing exists there and a file of the requested size can be created.
    pub length: Option<Bytes>,
    /// The stack from the bottom up; that of the directory if nothing exists.
    pub layers: Vec<Layer>,
    /// The timeouts of these layers.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeouts: Vec<Timeout>,
    /// The machine of the agent.
    pub environment: Environment,
}

/// A protocol error.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed or ended within a frame.
    #[error("the agent's stream failed: {0}")]
    Stream(#[from] io::Error),
    /// A frame without the marker.
    #[error("expected a frame and got the bytes {0:?}: is the other end an iotax of the same version?")]
    Marker([u8; 4]),
    /// A frame whose payload exceeds the size limit.
    #[error("a frame of {length} bytes is above the limit of {limit}")]
    TooLarge {
        /// Length of the payload in bytes.
        length: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// A payload that is not a valid message.
    #[error("a message that is not understood ({error}): {excerpt}")]
    Message {
        /// The parser's error.
        error: serde_json::Error,
        /// The beginning of the payload.
        excerpt: String,
    },
}

/// Sends one message and flushes.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), WireError> {
    send_up_to(stream, message, MAX_FRAME)
}

/// Like [`send`], with a different limit on the payload in bytes.
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

/// Receives one message; `None` if the stream ended before a frame began.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<Option<T>, WireError> {
    receive_up_to(stream, MAX_FRAME)
}

/// Like [`receive`], with a different limit on the payload in bytes.
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
            ways: Vec::new(),
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
