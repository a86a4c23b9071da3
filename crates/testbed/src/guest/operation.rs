//! Operations on a running guest and its disk, or on what a storage daemon exports, over a monitor of their own, so that they do not wait for anything else.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::plan::Operation;
use iotax_model::target::Format;
use iotax_model::threads;
use iotax_model::units::Bytes;
use serde_json::{Value, json};

use super::disk::{Drive, GuestDisk};
use super::image::Image;
use super::qmp::{Qmp, QmpError};

/// How long the virtual CPUs are stopped.
const STOPPED: Duration = Duration::from_secs(1);
/// Time between two looks at a job.
const LOOK: Duration = Duration::from_millis(20);
/// QEMU's names of the overlay's node, the copy's node and the job.
const OVERLAY: &str = "watch-overlay";
const COPY: &str = "watch-copy";
const JOB: &str = "watch-job";

/// An error of an operation.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// QEMU refused a command, or is gone.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// A job ended with an error.
    #[error("QEMU's {operation} failed: {reason}")]
    Job {
        /// The operation.
        operation: Operation,
        /// QEMU's message.
        reason: String,
    },
    /// The copy's file.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Files that operations write; the caller creates and removes them.
#[derive(Debug, Clone, Default)]
pub struct OperationFiles {
    /// An empty overlay on the image.
    pub overlay: Option<PathBuf>,
    /// An empty file for each copy.
    pub copies: Vec<(Operation, PathBuf)>,
}

/// Carries out operations on one guest or export, one at a time.
#[derive(Debug)]
pub struct Operator {
    pub(crate) qmp: Qmp,
    /// The node of the disk's image.
    pub(crate) image: String,
    pub(crate) drive: Drive,
    pub(crate) l2_cache_size: Option<Bytes>,
    pub(crate) files: OperationFiles,
    pub(crate) has_snapshot: bool,
}

impl Operator {
    /// Carries out an operation to its end.
    pub fn perform(&mut self, operation: Operation) -> Result<(), OperationError> {
        match operation {
            Operation::Stop => self.stop(),
            Operation::Snapshot => self.snapshot(),
            Operation::Commit => self.commit(),
            Operation::Mirror | Operation::Backup => self.copy(operation),
        }
    }

    /// Commits a snapshot that is left, so that the disk is as it was built.
    pub fn restore(&mut self) -> Result<(), OperationError> {
        if self.has_snapshot { self.commit() } else { Ok(()) }
    }

    fn stop(&mut self) -> Result<(), OperationError> {
        let begun = Instant::now();
        self.execute("stop", &json!({}))?;
        threads::sleep(STOPPED.saturating_sub(begun.elapsed()));
        self.execute("cont", &json!({}))
    }

    fn snapshot(&mut self) -> Result<(), OperationError> {
        let path = self.files.overlay.clone().unwrap_or_default();
        self.open(OVERLAY, &path, Format::Qcow2)?;
        self.execute("blockdev-snapshot", &json!({ "node": self.image, "overlay": OVERLAY }))?;
        self.has_snapshot = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), OperationError> {
        // Into the image itself, not into what that has beneath it.
        self.begin("block-commit", &json!({ "device": OVERLAY, "base-node": self.image }))?;
        self.job(Operation::Commit)?;
        self.has_snapshot = false;
        self.close(OVERLAY)
    }

    fn copy(&mut self, operation: Operation) -> Result<(), OperationError> {
        let path = self.files.copies.iter().find(|(of, _)| *of == operation);
        let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|file| file.set_len(self.disk_size()?.0))
            .map_err(|source| OperationError::File { path: path.clone(), source })?;
        self.open(COPY, &path, Format::Raw)?;
        let from = if self.has_snapshot { OVERLAY } else { &self.image };
        let command = if operation == Operation::Mirror { "blockdev-mirror" } else { "blockdev-backup" };
        let arguments = json!({ "device": from, "target": COPY, "sync": "full" });
        let done = self.begin(command, &arguments);
        let done = done.and_then(|()| self.job(operation));
        let closed = self.close(COPY);
        done.and(closed)
    }

    /// The length of the disk as the guest sees it.
    fn disk_size(&mut self) -> io::Result<Bytes> {
        let nodes = self.qmp.execute("query-named-block-nodes", &json!({ "flat": true }));
        let nodes = nodes.map_err(io::Error::other)?;
        let of_image = |node: &&Value| node["node-name"].as_str() == Some(&self.image);
        let node = nodes.as_array().and_then(|nodes| nodes.iter().find(of_image));
        let size = node.and_then(|node| node["image"]["virtual-size"].as_u64());
        size.map(Bytes).ok_or_else(|| io::Error::other("QEMU does not tell how long the disk is"))
    }

    /// Begins a job, which stays after its end, so that its error can be read.
    fn begin(&mut self, command: &str, arguments: &Value) -> Result<(), OperationError> {
        let mut arguments = arguments.clone();
        arguments["job-id"] = json!(JOB);
        arguments["auto-dismiss"] = json!(false);
        self.execute(command, &arguments)
    }

    /// Waits for the job's end, and ends one that would go on until it is told to.
    fn job(&mut self, operation: Operation) -> Result<(), OperationError> {
        let mut told = false;
        loop {
            let jobs = self.qmp.execute("query-jobs", &json!({}))?;
            let ours = |job: &&Value| job["id"].as_str() == Some(JOB);
            let job = jobs.as_array().and_then(|jobs| jobs.iter().find(ours));
            let failed = |reason: &str| OperationError::Job { operation, reason: reason.to_owned() };
            let job = job.ok_or_else(|| failed("the job is gone"))?;
            match job["status"].as_str() {
                Some("ready") if !told => {
                    if operation == Operation::Mirror {
                        // Completed, the copy would become the disk; cancelled when it is ready, it is whole and stays a copy.
                        self.execute("block-job-cancel", &json!({ "device": JOB, "force": false }))?;
                    } else {
                        self.execute("job-complete", &json!({ "id": JOB }))?;
                    }
                    told = true;
                }
                Some("concluded") => {
                    let error = job["error"].as_str().map(failed);
                    self.execute("job-dismiss", &json!({ "id": JOB }))?;
                    return error.map_or(Ok(()), Err);
                }
                _ => threads::sleep(LOOK),
            }
        }
    }

    fn open(&mut self, node: &str, path: &Path, format: Format) -> Result<(), OperationError> {
        let chain = [Image::new(path.to_owned(), format)];
        let disk = GuestDisk { chain: &chain, l2_cache_size: self.l2_cache_size };
        self.execute("blockdev-add", &disk.node_of(node, self.drive))
    }

    fn close(&mut self, node: &str) -> Result<(), OperationError> {
        self.execute("blockdev-del", &json!({ "node-name": node }))
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<(), OperationError> {
        Ok(self.qmp.execute(command, arguments).map(drop)?)
    }
}
