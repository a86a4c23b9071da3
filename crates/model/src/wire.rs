//! What the conductor and an agent say to each other, and how it is framed.
//!
//! A frame is the four bytes `iotx`, the payload's length as a little-endian u32, and the payload: one message in
//! JSON. The marker tells a frame from console noise on the same line; the limit keeps a broken peer from
//! exhausting memory. The first exchange is [`Request::Hello`] and [`Event::Hello`], which carry the protocol's version.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::net::Peer;
use crate::record::{CacheDrop, Environment, Interface, Outcome, Sample};
use crate::target::Layer;
use crate::units::{Bytes, Nanos};
use crate::verify_errors::Recovery;
use crate::workload::{Content, Workload};

/// Both ends must speak the same.
pub const PROTOCOL: u16 = 8;
/// Largest payload in bytes. A sample of two full histograms is under 200 KiB.
pub const MAX_FRAME: u32 = 8 << 20;

/// The longest that an agent which works on a request is silent.
pub const BEAT: Duration = Duration::from_secs(5);

const MARKER: [u8; 4] = *b"iotx";

/// What the conductor asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Answered by [`Event::Hello`].
    Hello {
        /// The conductor's [`PROTOCOL`].
        protocol: u16,
    },
    /// Answered by [`Event::Pong`].
    Ping,
    /// Write the area once, then flush. Answered by [`Event::Progress`] ... [`Event::Filled`].
    Fill {
        /// What to fill.
        area: Area,
        /// What to write.
        content: Content,
        /// Decides the data.
        seed: u64,
    },
    /// Sync and drop caches. Answered by [`Event::CachesDropped`].
    DropCaches {
        /// The file whose pages go if the whole cache cannot be dropped; absent: the guest's disk.
        path: Option<String>,
    },
    /// Set a measurement up. Answered by [`Event::Ready`]; [`Request::Go`] must be what comes next.
    Run(Box<Job>),
    /// Start the load that is set up. Answered by [`Event::Measuring`], [`Event::Sample`] ...
    /// [`Event::Over`] and [`Event::Done`].
    Go,
    /// Be the far end of a network's measurements from here on, beside whatever else is asked. Answered by [`Event::Serving`].
    Serve {
        /// The address to listen on.
        bind: String,
        /// What clients must know.
        token: Option<String>,
    },
    /// Look at this machine's network interfaces. Answered by [`Event::Interfaces`].
    Interfaces,
    /// Compare a target with the journal of its acknowledged writes; only reads. Answered by [`Event::Audited`].
    Audit {
        /// An existing file or device.
        path: String,
        /// The journal.
        journal: String,
    },
    /// Measure the engine's own cost. Answered by [`Event::Floor`].
    Floor,
    /// Look at a path and at the machine; touches nothing. Answered by [`Event::Described`], or by [`Event::Failed`] if the path
    /// can be neither measured nor made.
    Describe {
        /// Absolute.
        path: String,
        /// What a new file there would take.
        size: Bytes,
    },
    /// Make a file where nothing is. It goes when the agent does. Answered by [`Event::Created`].
    Create {
        /// Absolute.
        path: String,
        /// Its length.
        size: Bytes,
    },
    /// Let a file that was made stay. Answered by [`Event::Kept`].
    Keep {
        /// As it was made.
        path: String,
    },
    /// End the agent; a guest powers off.
    Shutdown,
}

/// A part of a file or device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// An existing file or device; absent: the guest's disk.
    pub path: Option<String>,
    /// Where it begins.
    pub offset: Bytes,
    /// Its length.
    pub size: Bytes,
    /// Whether a layer that iotax made holds the device, so that it cannot be claimed for this alone.
    pub shared: bool,
    /// What else has come to stand there is not touched.
    pub identity: Option<Identity>,
}

/// A block device by what the kernel knows it by, whatever names lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskId {
    /// As `rdev` has it. Another disk may get it once this one is gone.
    pub number: u64,
    /// The disk's own, of one boot of the kernel (`diskseq`). Absent before Linux 5.15.
    pub sequence: Option<u64>,
}

/// What tells a target from everything else that its name may come to lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Identity {
    /// As stat(2) has them.
    File {
        /// The filesystem's.
        device: u64,
        /// The file's.
        inode: u64,
    },
    /// A block device.
    Disk(DiskId),
}

/// One measurement to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// An existing file or device; absent: the guest's disk.
    pub path: Option<String>,
    /// What to do.
    pub workload: Workload,
    /// Length of the area, from the workload's offset on.
    pub size: Bytes,
    /// Decides offsets and payload.
    pub seed: u64,
    /// A sample is sent each.
    pub interval: Nanos,
    /// Whether the target may be written. A workload that writes is refused without it.
    pub writable: bool,
    /// Whether a layer that iotax made holds the device, so that it cannot be claimed for this alone.
    #[serde(default)]
    pub shared: bool,
    /// What else has come to stand there is not touched.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// An empty directory that iotax made beside the target, for a test that makes files of its own; absent in a guest, whose
    /// agent makes one itself.
    #[serde(default)]
    pub directory: Option<String>,
    /// The far end of a network's measurement; absent for storage.
    #[serde(default)]
    pub peer: Option<Peer>,
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// Who answers.
    Hello(AgentHello),
    /// The answer to a ping.
    Pong,
    /// So much of a fill is done.
    Progress {
        /// Bytes written.
        done: Bytes,
        /// Bytes to write.
        total: Bytes,
    },
    /// The fill is done and flushed.
    Filled,
    /// How far caches were dropped.
    CachesDropped(CacheDrop),
    /// Everything is set up: the load starts when the conductor says [`Request::Go`], so that several can start at once.
    Ready,
    /// The warm-up is over: the measured window begins.
    Measuring,
    /// One interval.
    Sample(Box<Sample>),
    /// The measured window is over; what follows is no part of it: a flush, verification, the removal of what a test made.
    Over,
    /// The measurement is complete.
    Done(Box<Outcome>),
    /// CPU nanoseconds per I/O on the null backend.
    Floor {
        /// The figure.
        ns_per_io: u64,
    },
    /// It listens.
    Serving {
        /// On this port.
        port: u16,
    },
    /// The network interfaces that are there.
    Interfaces(Vec<Interface>),
    /// What the target holds of what the journal tells.
    Audited(Recovery),
    /// What is at a path.
    Described(Box<Description>),
    /// The file is there.
    Created,
    /// It will stay.
    Kept,
    /// The agent is at work and has nothing else to say; said every [`BEAT`] of silence while a request is open.
    Alive,
    /// The request could not be carried out.
    Failed {
        /// Why, with the path and the system's error.
        message: String,
    },
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentHello {
    /// The agent's [`PROTOCOL`].
    pub protocol: u16,
    /// The tool's version.
    pub version: String,
    /// Kernel release where it runs.
    pub kernel: String,
    /// Clocksource where it runs.
    pub clocksource: Option<String>,
    /// In a guest: the disk found by its serial, or the file on it that is measured.
    pub disk: Option<String>,
    /// In a guest: the filesystem that this file lies on, with its mount options.
    pub filesystem: Option<Layer>,
}

/// What is at a path of an agent's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Length of the file or device; absent: nothing is there, and a file of the size that was asked for can be made.
    pub length: Option<Bytes>,
    /// Its stack from the bottom up; of its directory if nothing is there.
    pub layers: Vec<Layer>,
    /// The machine.
    pub environment: Environment,
}

/// A stream that does not carry what it should.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed or ended within a frame.
    #[error("the agent's stream failed: {0}")]
    Stream(#[from] io::Error),
    /// Bytes that are no frame.
    #[error("expected a frame and got the bytes {0:?}: is the other end an iotax of the same version?")]
    Marker([u8; 4]),
    /// A frame above the limit.
    #[error("a frame of {0} bytes is above the limit of {MAX_FRAME}")]
    TooLarge(u32),
    /// A payload that is no message.
    #[error("a message that is not understood ({error}): {excerpt}")]
    Message {
        /// The parser's words.
        error: serde_json::Error,
        /// The payload's beginning.
        excerpt: String,
    },
}

/// Sends one message and flushes.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), WireError> {
    let mut frame = Vec::with_capacity(256);
    frame.extend_from_slice(&MARKER);
    frame.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
    let length = u32::try_from(frame.len() - 8).unwrap_or(u32::MAX);
    if length > MAX_FRAME {
        return Err(WireError::TooLarge(length));
    }
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)?;
    stream.flush()?;
    Ok(())
}

/// Receives one message; `None` if the stream ended before a frame began.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<Option<T>, WireError> {
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
        // Refuse foreign bytes at once: a short greeting of something else would otherwise be waited on for ever.
        if filled >= 4 && head[..4] != MARKER {
            return Err(WireError::Marker([head[0], head[1], head[2], head[3]]));
        }
    }
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length > MAX_FRAME {
        return Err(WireError::TooLarge(length));
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
            // Must neither panic nor allocate what a forged length asks for.
            let _ = receive::<Event>(&mut bytes.as_slice());
            let framed = [b"iotx".as_slice(), &(u32::try_from(bytes.len()).unwrap()).to_le_bytes(), &bytes].concat();
            let _ = receive::<Request>(&mut framed.as_slice());
        }
    }
}
