//! The journal of acknowledged writes.
//!
//! A record means that the target had acknowledged the write before the record was written. A missing record proves nothing: the machine may
//! have stopped between the two. Records are written in batches, each as soon as the previous batch is synced; so the journal lags behind by
//! about two syncs of the storage that it lies on.
//!
//! An acknowledged flush has a record too, with the number of records before the flush began: their writes are durable if the target honours
//! flushes.
//!
//! The records of one block are in the order in which its writes were acknowledged.
//!
//! A journal may also be a pipe or a serial line (`sink`) to another machine, which survives the power cut.

mod format;
mod read;
mod sink;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use iotax_load::request::Io;
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::verify_errors::IncompleteJournal;

use self::format::{Content, Frame, LENGTH};
pub(super) use self::format::{Header, Record};
pub(super) use self::read::read;
use self::sink::Sink;

/// A journal that is being written by a thread.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    sink: Arc<Sink>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

#[derive(Debug)]
struct Shared {
    /// Number of the measurement that the journal belongs to.
    run: u64,
    began: Instant,
    /// Number of queued bytes from which workers wait for the writer.
    most_pending: usize,
    state: Mutex<State>,
    /// Condition variable that is notified when records are queued, or when the journal is being closed.
    filled: Condvar,
    /// Condition variable that is notified when the queue has room again.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    /// Number of records so far.
    records: u64,
    /// Number of acknowledged writes so far, with or without a record.
    writes: u64,
    /// Number of writes that have a record.
    recorded_writes: u64,
    /// Number of writes whose record is synced.
    synced_writes: u64,
    /// True once flushes prove nothing any more, because a flush or a synchronous write has failed.
    distrusted: bool,
    /// True once the journal accepts no more records, because it is finished or cannot be written.
    closed: bool,
}

impl Journal {
    /// Creates a journal in a new file, or on an existing pipe or character device. When this returns, its header is on disk, or sent.
    ///
    /// # Errors
    /// The path is an existing file, or the journal cannot be created, opened or written.
    pub(crate) fn create(path: &Path, header: Header) -> io::Result<Self> {
        let sink = Arc::new(Sink::create(path)?);
        sink.append(&header.frame(0))?;
        sink.append(&total(header.run, 0))?;
        sink.sync_name(path)?;
        let shared = Arc::new(Shared {
            run: header.run,
            began: Instant::now(),
            most_pending: sink.most_pending(),
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        });
        let writer = threads::spawn("journal", {
            let (shared, sink) = (Arc::clone(&shared), Arc::clone(&sink));
            move || {
                let written = shared.write_all(&sink, header);
                if written.is_err() {
                    // At once, because the end may never be reached. finish() also reports an error of this.
                    let _ = shared.mark_incomplete(&sink);
                }
                shared.lock().closed = true;
                shared.drained.notify_all();
                written
            }
        })?;
        Ok(Self { shared, sink, writer: Mutex::new(Some(writer)) })
    }

    /// Returns whether the journal lies on the same filesystem as the file `other`, or on a filesystem whose device is `other`.
    pub(super) fn shares_filesystem(&self, other: &File) -> bool {
        other.metadata().is_ok_and(|of| {
            self.sink.filesystem()
                == Some(if of.file_type().is_block_device() { of.rdev() } else { of.dev() })
        })
    }

    /// Adds a record of an acknowledged write; waits if the queue is full. Returns false if the journal is closed and takes no record.
    pub(super) fn write(&self, io: &Io, generation: u64) -> bool {
        self.shared.add(Record::Write { offset: io.offset, length: io.length, generation })
    }

    /// Returns the number of records so far. A flush that begins now makes the writes of these records durable.
    pub(super) fn records(&self) -> u64 {
        self.shared.lock().records
    }

    /// Records an acknowledged flush that began when there were `records` records, unless flushes are distrusted.
    pub(super) fn flush(&self, records: u64) {
        if !self.shared.lock().distrusted {
            let after = Nanos(u64::try_from(self.shared.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
            self.shared.add(Record::Flush { records, after });
        }
    }

    /// Stops the recording of flushes, because a flush or a synchronous write failed. The kernel drops the pages that it could not write (see
    /// fsync(2)), so a later flush succeeds without them.
    pub(super) fn distrust_flushes(&self) {
        self.shared.lock().distrusted = true;
    }

    /// Closes the journal: waits until all records so far and the end frames are on disk; later records are dropped. If records are missing,
    /// marks the journal as incomplete, if its storage still works, and returns an error.
    pub(super) fn finish(&self) -> Result<(), IncompleteJournal> {
        self.shared.lock().closed = true;
        self.shared.filled.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let error = match writer.map(JoinHandle::join) {
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(_)) => "its writer panicked".to_owned(),
            Some(Ok(Ok(()))) | None => return Ok(()),
        };
        let marked = self.shared.mark_incomplete(&self.sink).err();
        let unmarked = marked.map(|marked| format!("; nor does it say so itself: {marked}"));
        let State { synced_writes, writes, .. } = *self.shared.lock();
        let error = format!("{error}{}", unmarked.unwrap_or_default());
        Err(IncompleteJournal { recorded: synced_writes, acknowledged: writes, error })
    }
}

impl Drop for Journal {
    /// Ends the writer's thread, which would otherwise wait for records forever.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a record. Returns false if the journal is closed.
    fn add(&self, record: Record) -> bool {
        let mut state = self.lock();
        let writes = u64::from(matches!(record, Record::Write { .. }));
        state.writes += writes;
        while state.pending.len() >= self.most_pending && !state.closed {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        let frame = Frame { number: state.records, content: Content::Record(record) };
        state.pending.extend_from_slice(&frame.encode(self.run));
        state.records += 1;
        state.recorded_writes += writes;
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Writes and syncs the queued records in batches, each after a header, until the journal is closed.
    fn write_all(&self, sink: &Sink, header: Header) -> io::Result<()> {
        let (mut batch, mut synced) = (Vec::new(), 0);
        loop {
            let mut state = self.lock();
            while state.pending.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut batch, &mut state.pending);
            let (records, writes, last) = (state.records, state.recorded_writes, state.closed);
            drop(state);
            self.drained.notify_all();
            let mut frames = header.frame(synced).to_vec();
            frames.append(&mut batch);
            if last {
                // Twice, so that a damaged end frame does not look like a machine that stopped.
                frames.extend(Frame { number: records, content: Content::End }.encode(self.run).repeat(2));
            }
            sink.append(&frames)?;
            self.lock().synced_writes = writes;
            if last {
                return Ok(());
            }
            synced = records;
        }
    }

    /// Overwrites the journal's total with the number of acknowledged writes, which marks it as incomplete.
    fn mark_incomplete(&self, sink: &Sink) -> io::Result<()> {
        let writes = self.lock().writes;
        sink.write_over(&total(self.run, writes), LENGTH as u64)
    }
}

/// Encodes the frame with the total number of writes, which follows the first header.
fn total(run: u64, writes: u64) -> format::Bytes {
    Frame { number: 0, content: Content::Total(writes) }.encode(run)
}

impl Header {
    /// Encodes the header; `number` is the number of the next record.
    fn frame(self, number: u64) -> format::Bytes {
        Frame { number, content: Content::Header(self) }.encode(self.run)
    }
}

#[cfg(test)]
mod tests;
