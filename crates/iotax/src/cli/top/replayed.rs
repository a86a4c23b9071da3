//! `iotax top --replay`: recordings of iotax top, and intervals of iostat and atop from their text.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Context;
use iotax_interop::import::{self, DeviceInterval, ImportedInterval, Intervals};
use iotax_model::exit::Exit;
use iotax_testbed::interrupt::Interrupt;
use iotax_top::rates::{self, Frame, LayerRates};
use iotax_top::recording::Recording;
use iotax_top::view::{self, Feed};

use super::super::say::say;
use super::super::{Failure, OrExit, usage};
use super::named;
use super::output::Output;

/// Maximum size of a text, in bytes: a day of iostat with 20 devices at 1 s is 250 MB.
const LARGEST_TEXT: usize = 256 << 20;
/// Maximum length of a line, in bytes. Lines of iostat or atop have a few hundred bytes, but a JSON document may be a single line.
const LONGEST_LINE: usize = 16 << 20;
/// Maximum number of bytes per read.
const PART: u64 = 1 << 20;

/// The source of a replay: a recording of iotax top, or text of iostat or atop.
pub(super) enum Replay {
    Recording(Recording),
    Text(Intervals),
}

/// Replays on the screen if `is_screen`, otherwise writes all frames to `output`.
pub(super) fn main(
    mut replay: Replay,
    file: &Path,
    is_screen: bool,
    mut output: Output,
    stop: &Interrupt,
) -> Result<Exit, Failure> {
    let (host, count) = (replay.host().to_owned(), replay.count());
    if count == 0 {
        return Err(usage(format_args!("{}: two readings at least make an interval", named(file))));
    }
    let mut read = |index: usize| replay.frame(index);
    if is_screen {
        let feed = Feed::Replay { read: &mut read, count };
        view::run(feed, &host, stop).or_exit(Exit::Environment)?;
        return Ok(Exit::Fine);
    }
    for index in 0..count {
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        output.put(&read(index).map_err(anyhow::Error::msg).or_exit(Exit::Usage)?)?;
    }
    Ok(Exit::Fine)
}

impl Replay {
    /// Opens a recording of iotax top or a text of iostat or atop; the file's content decides.
    pub(super) fn open(file: &Path) -> Result<Self, Failure> {
        let mut opened = File::open(file).with_context(|| named(file)).or_exit(Exit::Usage)?;
        let mut bytes = Vec::new();
        opened.by_ref().take(16).read_to_end(&mut bytes).with_context(|| named(file)).or_exit(Exit::Usage)?;
        if Recording::begins(&bytes) {
            let recording = Recording::open(file).or_exit(Exit::Usage)?;
            if recording.is_cut() {
                say!(
                    "{}: what follows reading {} is incomplete and left out",
                    named(file),
                    recording.count()
                );
            }
            return Ok(Self::Recording(recording));
        }
        read_text(&mut opened, &mut bytes, file)?;
        let text = import::intervals(&import::decode(bytes)).ok_or_else(|| {
            usage(format_args!(
                "{}: neither a recording of iotax top nor intervals of iostat or atop (two reports of iostat at least: the first of either \
                 is since boot)",
                named(file)
            ))
        })?;
        text.not_understood.iter().for_each(|line| say!("{}", line.of_file(&named(file))));
        Ok(Self::Text(text))
    }

    /// Returns the recorded machine's host name; for another tool's text, the tool's name.
    fn host(&self) -> &str {
        match self {
            Self::Recording(recording) => recording.host(),
            Self::Text(text) => text.tool,
        }
    }

    /// Returns the number of frames.
    fn count(&self) -> usize {
        match self {
            Self::Recording(recording) => recording.count().saturating_sub(1),
            Self::Text(text) => text.intervals.len(),
        }
    }

    fn frame(&mut self, index: usize) -> Result<Frame, String> {
        match self {
            Self::Recording(recording) => recorded(recording, index),
            Self::Text(text) => text
                .intervals
                .get(index)
                .map(frame_of)
                .ok_or_else(|| format!("there is no interval {}", index + 1)),
        }
    }
}

/// Reads the rest of a text. Fails as soon as the text exceeds [`LARGEST_TEXT`] or a line exceeds [`LONGEST_LINE`].
fn read_text(source: &mut impl Read, text: &mut Vec<u8>, file: &Path) -> Result<(), Failure> {
    let mut line = 0;
    loop {
        let before = text.len();
        source.take(PART).read_to_end(text).with_context(|| named(file)).or_exit(Exit::Usage)?;
        let new = &text[before..];
        if new.is_empty() {
            return Ok(());
        }
        line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => line + new.len(),
        };
        if line > LONGEST_LINE {
            return Err(usage(format_args!(
                "{}: a line is longer than {LONGEST_LINE} bytes; accepted: a recording of iotax top, or the text of iostat or atop",
                named(file)
            )));
        }
        if text.len() > LARGEST_TEXT {
            return Err(usage(format_args!(
                "{}: it is larger than {LARGEST_TEXT} bytes; replay it in parts (split -l)",
                named(file)
            )));
        }
    }
}

fn recorded(recording: &mut Recording, index: usize) -> Result<Frame, String> {
    let mut snapshot = |index| {
        let read = recording.snapshot(index).map_err(|error| error.to_string())?;
        read.ok_or_else(|| format!("there is no reading {}", index + 1))
    };
    let (earlier, later) = (snapshot(index)?, snapshot(index + 1)?);
    rates::between(&earlier, &later).ok_or_else(|| format!("no time passed before reading {}", index + 2))
}

/// Converts an interval that another tool printed to a frame.
fn frame_of(interval: &ImportedInterval) -> Frame {
    Frame {
        at_ms: interval.end.map(|end| end.ms),
        interval_ns: interval.length_ns,
        layers: interval.devices.iter().map(layer).collect(),
        ..Frame::default()
    }
}

fn layer(device: &DeviceInterval) -> LayerRates {
    LayerRates {
        name: device.name.clone(),
        title: device.name.clone(),
        read_iops: device.read_iops,
        write_iops: device.write_iops,
        read_bytes_per_s: device.read_bytes_per_s,
        write_bytes_per_s: device.write_bytes_per_s,
        read_latency_ns: device.read_latency_ns,
        write_latency_ns: device.write_latency_ns,
        queue: device.queue,
        busy: device.busy,
        ..LayerRates::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that repeats its bytes without end, and counts those read.
    struct Endless(&'static [u8], usize);

    impl Read for Endless {
        fn read(&mut self, part: &mut [u8]) -> std::io::Result<usize> {
            let given = part.len().min(self.0.len());
            part[..given].copy_from_slice(&self.0[..given]);
            self.1 += given;
            Ok(given)
        }
    }

    #[test]
    fn a_text_without_end_is_refused_at_a_bound() {
        for (part, words, most) in [
            (&[0; 1 << 13][..], "a line is longer than", LONGEST_LINE),
            (&[b'\n'; 1 << 13][..], "it is larger than", LARGEST_TEXT),
        ] {
            let mut source = Endless(part, 0);
            let refused = read_text(&mut source, &mut Vec::new(), Path::new("x")).expect_err(words);
            assert!(refused.error.to_string().contains(words), "{:#}", refused.error);
            assert!(source.1 <= most + (2 << 20), "{words}: {} bytes were read", source.1);
        }
        let mut text = b"begun ".to_vec();
        read_text(&mut &b"and ended"[..], &mut text, Path::new("x")).expect("short");
        assert_eq!(text, b"begun and ended");
    }
}
