//! Streams over TCP.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::{RecvFlags, recv};

use super::pace::Pace;
use super::{Counters, Memory, PATIENCE, Settings, passes, payload};
use iotax_load::clock;

/// The block of bytes that is sent repeatedly, and the call that sends it.
enum Block {
    /// Sent from this memory by write calls, which copy it.
    Copied(Memory),
    /// Sent from this memory file by sendfile, without copying; with its length in bytes.
    Shared(OwnedFd, usize),
}

impl Block {
    fn new(settings: &Settings) -> io::Result<Self> {
        let mut memory = payload(settings.length)?;
        if !settings.zerocopy {
            return Ok(Self::Copied(memory));
        }
        let mut file = std::fs::File::from(memfd_create("iotax", MemfdFlags::CLOEXEC)?);
        file.write_all(memory.bytes())?;
        Ok(Self::Shared(file.into(), settings.length))
    }

    /// Sends the part of the block after the first `done` bytes. Returns the number of bytes sent.
    fn send(&mut self, mut socket: &TcpStream, done: usize) -> io::Result<usize> {
        match self {
            Self::Copied(memory) => socket.write(&memory.bytes()[done..]),
            Self::Shared(file, length) => {
                Ok(sendfile(socket, file, Some(&mut (done as u64)), *length - done)?)
            }
        }
    }
}

/// Sends blocks until `stop` is set or the amount in `settings` is used up.
pub(super) fn send(
    socket: &TcpStream,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut block = Block::new(settings)?;
    let mut pace = settings.bitrate.map(|bitrate| Pace::new(bitrate, settings.length, clock::now()));
    while !stop.load(Ordering::Relaxed) {
        if let Some(pace) = &mut pace
            && pace.take(clock::now(), 1) == 0
        {
            pace.rest(PATIENCE);
            continue;
        }
        if let Some(amount) = &settings.amount
            && amount.take(1, settings.length) == 0
        {
            break;
        }
        let mut done = 0;
        while done < settings.length && !stop.load(Ordering::Relaxed) {
            match block.send(socket, done) {
                Ok(sent) => {
                    counters.sent(sent as u64, 0);
                    done += sent;
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Receives and drops bytes until `stop` is set or the connection ends.
pub(super) fn receive(
    socket: &TcpStream,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    counters.expect_blocks(settings);
    let mut memory = Memory::new(settings.length)?;
    let block = memory.bytes();
    let flags = if settings.skip_copy { RecvFlags::TRUNC } else { RecvFlags::empty() };
    while !stop.load(Ordering::Relaxed) {
        match recv(socket, &mut *block, flags).map_err(io::Error::from) {
            Ok((_, 0)) => break,
            Ok((_, read)) => counters.arrived(read as u64, clock::now(), 0),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
