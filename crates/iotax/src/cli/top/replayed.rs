//! `iotax top --replay`: recordings of iotax top.

use std::path::Path;
use std::sync::atomic::Ordering;

use iotax_model::exit::Exit;
use iotax_testbed::interrupt::Interrupt;
use iotax_top::rates::{self, Frame};
use iotax_top::recording::Recording;
use iotax_top::view::{self, Feed};

use super::super::say::say;
use super::super::{Failure, OrExit};
use super::output::Output;

/// Shows a recording on the screen, or writes all its frames.
pub(super) fn main(
    file: &Path,
    is_screen: bool,
    mut output: Output,
    stop: &Interrupt,
) -> Result<Exit, Failure> {
    let mut recording = Recording::open(file).or_exit(Exit::Usage)?;
    if recording.is_cut() {
        say!("{}: what follows reading {} is incomplete and left out", file.display(), recording.count());
    }
    let host = recording.host().to_owned();
    let count = recording.count().saturating_sub(1);
    let mut read = |index: usize| frame(&mut recording, index);
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

fn frame(recording: &mut Recording, index: usize) -> Result<Frame, String> {
    let mut snapshot = |index| {
        let read = recording.snapshot(index).map_err(|error| error.to_string())?;
        read.ok_or_else(|| format!("there is no reading {}", index + 1))
    };
    let (earlier, later) = (snapshot(index)?, snapshot(index + 1)?);
    rates::between(&earlier, &later).ok_or_else(|| format!("no time passed before reading {}", index + 2))
}
