//! Streams over TCP.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pace::Pace;
use super::{Counters, PATIENCE, Settings, passes, payload};
use crate::clock;

/// See [`super::send`].
pub(super) fn send(
    mut socket: &TcpStream,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let block = payload(settings.length);
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
        let mut rest = &block[..];
        while !rest.is_empty() && !stop.load(Ordering::Relaxed) {
            match socket.write(rest) {
                Ok(written) => {
                    counters.sent(written as u64, 0);
                    rest = &rest[written..];
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// See [`super::receive`].
pub(super) fn receive(
    mut socket: &TcpStream,
    settings: &Settings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0_u8; settings.length];
    while !stop.load(Ordering::Relaxed) {
        match socket.read(&mut block) {
            Ok(0) => break,
            Ok(read) => counters.arrived(read as u64, clock::now(), 0),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
