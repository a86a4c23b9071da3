//! Operations on a running guest and its disk, or on a storage daemon's export. A separate monitor connection keeps them from waiting for
//! other commands.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::plan::Operation;
use iotax_model::target::Format;
use iotax_model::threads;
use iotax_model::units::Bytes;
use serde_json::{Value, json};

use super::disk::{DiskChain, Drive};
use super::image::ChainImage;
use super::qmp::{Qmp, QmpError};

/// Time for which `Operation::Stop` halts the virtual CPUs.
const STOPPED: Duration = Duration::from_secs(1);
/// Polling interval for a job's status.
const LOOK: Duration = Duration::from_millis(20);
/// QEMU's names of the snapshot's node, the node that a chain is streamed into, the copy's node, and the job.
const OVERLAY: &str = "watch-overlay";
const STREAMED: &str = "watch-streamed";
const COPY: &str = "watch-copy";
const JOB: &str = "watch-job";

/// An error of an operation.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// QEMU rejected a command, or has exited.
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
    /// QEMU does not report the disk's length.
    #[error("QEMU does not tell how long the disk is")]
    Length,
    /// A system call on the copy's file failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The copy's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Files that operations write; the caller creates and removes them.
#[derive(Debug, Clone, Default)]
pub struct OperationFiles {
    /// An empty overlay on the image, for a snapshot.
    pub overlay: Option<PathBuf>,
    /// An image that the chain is streamed into.
    pub streamed: Option<PathBuf>,
    /// An empty file for each copy.
    pub copies: Vec<(Operation, PathBuf)>,
}

/// Carries out operations on a guest or export, one at a time.
#[derive(Debug)]
pub struct Operator {
    qmp: Qmp,
    /// Name of the block node of the disk's image.
    image: String,
    drive: Drive,
    l2_cache_size: Option<Bytes>,
    files: OperationFiles,
    /// Changes that the operations have made to the disk.
    state: DiskState,
}

/// The state of a disk after operations.
#[derive(Debug, Default)]
struct DiskState {
    /// Nodes above the image, from the bottom up; the last is the disk's current node.
    over: Vec<&'static str>,
    /// True if the lowest of `over` no longer depends on the image, because the chain was streamed into it.
    is_streamed: bool,
    /// The original length, if the disk was enlarged.
    length: Option<Bytes>,
}

impl Operator {
    pub(crate) fn new(
        qmp: Qmp,
        image: String,
        drive: Drive,
        l2_cache_size: Option<Bytes>,
        files: OperationFiles,
    ) -> Self {
        Self { qmp, image, drive, l2_cache_size, files, state: DiskState::default() }
    }

    /// Performs an operation and waits for its end.
    pub fn perform(&mut self, operation: Operation) -> Result<(), OperationError> {
        match operation {
            Operation::Stop => self.stop(),
            Operation::Snapshot => self.cover(OVERLAY, self.files.overlay.clone()),
            Operation::Commit => self.commit(),
            Operation::Stream => self.stream(),
            Operation::Resize => self.resize(),
            Operation::Mirror | Operation::Backup => self.copy(operation),
        }
    }

    /// Restores the disk's original image and length. Commits everything written during the operations into that image.
    pub fn restore(&mut self) -> Result<(), OperationError> {
        if self.state.is_streamed {
            // Beneath it again, the image takes what is committed.
            let mut node =
                self.node(STREAMED, &self.files.streamed.clone().unwrap_or_default(), Format::Qcow2);
            node["backing"] = json!(self.image);
            self.execute("blockdev-reopen", &json!({ "options": [node] }))?;
            self.state.is_streamed = false;
        }
        if !self.state.over.is_empty() {
            // All of them at once.
            self.commit_into(0)?;
        }
        if let Some(Bytes(size)) = self.state.length.take() {
            self.execute("block_resize", &json!({ "node-name": self.image, "size": size }))?;
        }
        Ok(())
    }

    /// The name of the disk's topmost node.
    fn top(&self) -> &str {
        self.state.over.last().copied().unwrap_or(&self.image)
    }

    fn stop(&mut self) -> Result<(), OperationError> {
        let begun = Instant::now();
        self.execute("stop", &json!({}))?;
        threads::sleep(STOPPED.saturating_sub(begun.elapsed()));
        self.execute("cont", &json!({}))
    }

    /// Puts an empty overlay on top of the disk's nodes.
    fn cover(&mut self, node: &'static str, path: Option<PathBuf>) -> Result<(), OperationError> {
        self.open(node, &path.unwrap_or_default(), Format::Qcow2)?;
        if self.state.length.is_some() {
            // It was made before the disk became longer.
            let size = self.disk_size()?.0;
            self.execute("block_resize", &json!({ "node-name": node, "size": size }))?;
        }
        self.execute("blockdev-snapshot", &json!({ "node": self.top(), "overlay": node }))?;
        self.state.over.push(node);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), OperationError> {
        self.commit_into(self.state.over.len().saturating_sub(1))
    }

    /// Commits all nodes from index `height` of `over` upward into the node directly below them.
    fn commit_into(&mut self, height: usize) -> Result<(), OperationError> {
        let base = height.checked_sub(1).map_or(self.image.as_str(), |below| self.state.over[below]);
        self.begin("block-commit", &json!({ "device": self.top(), "base-node": base }))?;
        self.job(Operation::Commit)?;
        let committed = self.state.over.split_off(height);
        committed.into_iter().rev().try_for_each(|node| self.close(node))
    }

    fn stream(&mut self) -> Result<(), OperationError> {
        self.cover(STREAMED, self.files.streamed.clone())?;
        self.begin("block-stream", &json!({ "device": STREAMED }))?;
        self.job(Operation::Stream)?;
        self.state.is_streamed = true;
        // It reads none of those below it any more.
        let below = self.state.over.len() - 1;
        let apart: Vec<&str> = self.state.over.drain(..below).collect();
        apart.into_iter().rev().try_for_each(|node| self.close(node))
    }

    fn resize(&mut self) -> Result<(), OperationError> {
        let length = self.disk_size()?;
        let size = length.0.saturating_mul(2);
        self.execute("block_resize", &json!({ "node-name": self.top(), "size": size }))?;
        self.state.length = Some(length);
        Ok(())
    }

    fn copy(&mut self, operation: Operation) -> Result<(), OperationError> {
        let path = self.files.copies.iter().find(|(of, _)| *of == operation);
        let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
        let length = self.disk_size()?;
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|file| file.set_len(length.0))
            .map_err(|source| OperationError::File { path: path.clone(), source })?;
        self.open(COPY, &path, Format::Raw)?;
        let from = self.top();
        let command = if operation == Operation::Mirror { "blockdev-mirror" } else { "blockdev-backup" };
        let arguments = json!({ "device": from, "target": COPY, "sync": "full" });
        let done = self.begin(command, &arguments);
        let done = done.and_then(|()| self.job(operation));
        let closed = self.close(COPY);
        done.and(closed)
    }

    /// The length of the disk as the guest sees it.
    fn disk_size(&mut self) -> Result<Bytes, OperationError> {
        let nodes = self.qmp.execute("query-named-block-nodes", &json!({ "flat": true }))?;
        let is_top = |node: &&Value| node["node-name"].as_str() == Some(self.top());
        let node = nodes.as_array().and_then(|nodes| nodes.iter().find(is_top));
        let size = node.and_then(|node| node["image"]["virtual-size"].as_u64());
        size.map(Bytes).ok_or(OperationError::Length)
    }

    /// Starts a job, which is kept after its end so that its error can be read.
    fn begin(&mut self, command: &str, arguments: &Value) -> Result<(), OperationError> {
        let mut arguments = arguments.clone();
        arguments["job-id"] = json!(JOB);
        arguments["auto-dismiss"] = json!(false);
        self.execute(command, &arguments)
    }

    /// Waits for the job's end, and completes a job that would otherwise run indefinitely.
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
        let node = self.node(node, path, format);
        self.execute("blockdev-add", &node)
    }

    /// A block node for another image, with the options of the disk's drive.
    fn node(&self, node: &str, path: &Path, format: Format) -> Value {
        let chain = [ChainImage::new(path.to_owned(), format)];
        let disk = DiskChain { chain: &chain, l2_cache_size: self.l2_cache_size };
        disk.node_of(node, self.drive)
    }

    fn close(&mut self, node: &str) -> Result<(), OperationError> {
        self.execute("blockdev-del", &json!({ "node-name": node }))
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<(), OperationError> {
        Ok(self.qmp.execute(command, arguments).map(drop)?)
    }
}
