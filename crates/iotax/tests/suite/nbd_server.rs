//! An NBD server for tests that counts flushes and delays each by a given time.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Options and replies of the handshake, see the NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md).
const NBDMAGIC: &[u8; 8] = b"NBDMAGIC";
const IHAVEOPT: &[u8; 8] = b"IHAVEOPT";
const FIXED_NEWSTYLE: u16 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const ACKNOWLEDGED: u32 = 1;
const INFORMATION: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
/// Transmission flags: flags are valid, flushes are supported.
const EXPORT_FLAGS: u16 = 1 | 1 << 2;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

/// A disk in memory with counted and delayed flushes. It exists until the process ends.
pub(crate) struct FlushCounter {
    flushes: Arc<AtomicU64>,
}

impl FlushCounter {
    /// Serves a disk of `size` bytes on a socket.
    pub(crate) fn serve(socket: &Path, size: usize, delay: Duration) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let flushes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&flushes);
        thread::spawn(move || {
            let disk = Arc::new(Mutex::new(vec![0; size]));
            for client in listener.incoming().map_while(Result::ok) {
                let (disk, counted) = (Arc::clone(&disk), Arc::clone(&counted));
                // A client that closes the connection is treated like one that disconnects.
                thread::spawn(move || answer(client, &disk, delay, &counted));
            }
        });
        Self { flushes }
    }

    /// Returns the number of flushes so far.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }
}

fn answer(
    mut client: UnixStream,
    disk: &Mutex<Vec<u8>>,
    delay: Duration,
    flushes: &AtomicU64,
) -> io::Result<()> {
    client.write_all(&[&NBDMAGIC[..], IHAVEOPT, &FIXED_NEWSTYLE.to_be_bytes()].concat())?;
    let _flags: [u8; 4] = take(&mut client)?;
    loop {
        let _magic: [u8; 8] = take(&mut client)?;
        let option = u32::from_be_bytes(take(&mut client)?);
        let length = u32::from_be_bytes(take(&mut client)?);
        io::copy(&mut (&mut client).take(length.into()), &mut io::sink())?;
        let mut reply = |kind: u32, data: &[u8]| {
            let length = u32::try_from(data.len()).expect("short");
            let head = [option.to_be_bytes(), kind.to_be_bytes(), length.to_be_bytes()].concat();
            client.write_all(&[&OPTION_REPLY.to_be_bytes()[..], &head, data].concat())
        };
        match option {
            OPTION_GO => {
                let size = (content(disk).len() as u64).to_be_bytes();
                reply(INFORMATION, &[&[0, 0][..], &size, &EXPORT_FLAGS.to_be_bytes()].concat())?;
                reply(ACKNOWLEDGED, &[])?;
                break;
            }
            OPTION_ABORT => return reply(ACKNOWLEDGED, &[]),
            _ => reply(UNSUPPORTED, &[])?,
        }
    }
    loop {
        let _magic_and_flags: [u8; 6] = take(&mut client)?;
        let kind = u16::from_be_bytes(take(&mut client)?);
        let cookie: [u8; 8] = take(&mut client)?;
        let offset = usize::try_from(u64::from_be_bytes(take(&mut client)?)).expect("in the disk");
        let length = u32::from_be_bytes(take(&mut client)?) as usize;
        let mut data = Vec::new();
        match kind {
            READ => data.extend_from_slice(&content(disk)[offset..][..length]),
            WRITE => client.read_exact(&mut content(disk)[offset..][..length])?,
            FLUSH => {
                thread::sleep(delay);
                flushes.fetch_add(1, Ordering::SeqCst);
            }
            DISCONNECT => return Ok(()),
            other => panic!("a request of kind {other}, which was not offered"),
        }
        let head = [REPLY.to_be_bytes(), [0; 4]].concat();
        client.write_all(&[&head, &cookie[..], &data].concat())?;
    }
}

fn content(disk: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    disk.lock().expect("no other client failed")
}

fn take<const N: usize>(client: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}
