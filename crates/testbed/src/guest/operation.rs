//! Operations on the disk of a running guest, or on an image that a storage daemon exports, during a measurement. They use a separate
//! monitor connection, so that they do not block other commands.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::plan::Operation;
use iotax_model::target::{Discard, Format};
use iotax_model::threads;
use iotax_model::units::Bytes;
use serde_json::{Value, json};

use super::disk::{DISK, DiskChain, Drive};
use super::image::ChainImage;
use super::qmp::{Qmp, QmpError};

/// Time for which `Operation::Stop` pauses the virtual CPUs.
const STOPPED: Duration = Duration::from_secs(1);
/// Interval at which a running job's status is polled.
const POLL: Duration = Duration::from_millis(20);
/// QEMU's name for the snapshot's node. The following names are for the nodes of the streamed image, the copy and the
/// fleecing image, and for the job.
const OVERLAY: &str = "watch-overlay";
const STREAMED: &str = "watch-streamed";
const COPY: &str = "watch-copy";
const FLEECING: &str = "watch-fleecing";
const JOB: &str = "watch-job";
/// QEMU's name for the filter that saves data before it is overwritten. The next name is for the node that shows the disk's earlier state.
const FILTER: &str = "watch-filter";
const ACCESS: &str = "watch-access";
/// QEMU's name for the limit on a copy's I/Os.
const LIMIT: &str = "watch-limit";
/// QEMU's name for the node that a storage daemon exports in place of the image, see `filtered`. The next name is for
/// its throttle group, which has no limit.
pub(crate) const FILTERED: &str = "filtered";
const UNLIMITED: &str = "unlimited";

/// An error of an operation on a guest or image, such as a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A command to QEMU's monitor failed.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// A QEMU job, such as a commit or a mirror, ended with an error.
    #[error("QEMU's {operation} failed: {reason}")]
    Job {
        /// The operation that started the job.
        operation: Operation,
        /// The job's error as reported by QEMU, or a note that the job is gone.
        reason: String,
    },
    /// QEMU's description of the disk does not contain its length.
    #[error("QEMU does not tell how long the disk is")]
    Length,
    /// A file for a copy or for fleecing could not be opened or resized.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Files that operations write to. The caller creates and removes them.
#[derive(Debug, Clone, Default)]
pub struct OperationFiles {
    /// An empty qcow2 overlay on the disk's image, for a snapshot; `None` if no snapshot is planned.
    pub overlay: Option<PathBuf>,
    /// A qcow2 overlay into which the data of all images below is copied (block-stream); `None` if that is not planned.
    pub streamed: Option<PathBuf>,
    /// True if the overlays are encrypted.
    pub encrypted: bool,
    /// An empty file for each operation that copies the disk.
    pub copies: Vec<(Operation, PathBuf)>,
    /// Maximum I/Os per second of each copy in `copies`; `None` for no limit.
    pub copy_iops: Option<u32>,
    /// An empty file for the old content of blocks that are overwritten while a backup reads the disk; `None` if no fleecing is planned.
    pub fleecing: Option<PathBuf>,
}

/// The component that uses a disk's topmost node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskUser {
    /// A guest's disk device.
    Guest,
    /// An export of a storage daemon. Its node cannot be exchanged while it exists, so no filter can be put on the disk.
    Export,
    /// An export of the node that [`filtered`] describes.
    FilteredExport,
}

/// Returns a filter node on top of the node `below`: a throttle node without a limit, which has no effect. It can be
/// moved to another node later. QEMU's jobs look through a filter to the node below it, but not through a `raw` node.
pub(crate) fn filtered(below: &str, drive: Drive) -> Value {
    json!({
        "driver": "throttle", "node-name": FILTERED, "throttle-group": UNLIMITED, "discard": drive.discard.word(), "file": below,
    })
}

/// Returns the throttle group without a limit that [`filtered`] refers to.
pub(crate) fn unlimited() -> Value {
    json!({ "qom-type": "throttle-group", "id": UNLIMITED })
}

/// An executor of operations on a guest or an exported image, one at a time.
#[derive(Debug)]
pub struct Operator {
    qmp: Qmp,
    /// Name of the block node of the disk's original image.
    image: String,
    user: DiskUser,
    drive: Drive,
    l2_cache_size: Option<Bytes>,
    files: OperationFiles,
    /// Changes that earlier operations have made to the disk.
    state: DiskState,
}

/// Changes to a disk's block nodes and length.
#[derive(Debug, Default)]
struct DiskState {
    /// Names of the nodes on top of the original image, from the bottom up; the last one is the disk's current node.
    over: Vec<&'static str>,
    /// True if the lowest node of `over` holds all data, after a stream, and no longer uses the original image.
    is_streamed: bool,
    /// The disk's original length, if an operation enlarged the disk; `None` otherwise.
    length: Option<Bytes>,
}

impl Operator {
    pub(crate) fn new(
        qmp: Qmp,
        image: String,
        user: DiskUser,
        drive: Drive,
        l2_cache_size: Option<Bytes>,
        files: OperationFiles,
    ) -> Self {
        Self { qmp, image, user, drive, l2_cache_size, files, state: DiskState::default() }
    }

    /// Performs an operation and waits until it is complete.
    pub fn perform(&mut self, operation: Operation) -> Result<(), OperationError> {
        match operation {
            Operation::Stop => self.stop(),
            Operation::Snapshot => self.cover(OVERLAY, self.files.overlay.clone()),
            Operation::Commit => self.commit(),
            Operation::Stream => self.stream(),
            Operation::Resize => self.resize(),
            Operation::Mirror | Operation::Backup => {
                let root = self.root().to_owned();
                self.copy(operation, &root)
            }
            Operation::BackupFleecing => self.fleece(),
        }
    }

    /// Restores the disk's original image and length. Commits everything that was written meanwhile into the original image.
    pub fn restore(&mut self) -> Result<(), OperationError> {
        if self.state.is_streamed {
            // Put the original image below the overlay again, so that the commit writes to it.
            let mut node =
                self.node(STREAMED, &self.files.streamed.clone().unwrap_or_default(), Format::Qcow2);
            node["backing"] = json!(self.image);
            self.execute("blockdev-reopen", &json!({ "options": [node] }))?;
            self.state.is_streamed = false;
        }
        if !self.state.over.is_empty() {
            // Commit all overlays at once.
            self.commit_into(0)?;
        }
        if let Some(Bytes(size)) = self.state.length.take() {
            self.execute("block_resize", &json!({ "node-name": self.image, "size": size }))?;
        }
        Ok(())
    }

    /// Returns the name of the node of the disk's topmost image, below any filter.
    fn top(&self) -> &str {
        self.state.over.last().copied().unwrap_or(&self.image)
    }

    /// Returns the name of the disk's topmost node: the filter of a filtered export, otherwise the topmost image. Most jobs start from it.
    fn root(&self) -> &str {
        if self.user == DiskUser::FilteredExport { FILTERED } else { self.top() }
    }

    fn stop(&mut self) -> Result<(), OperationError> {
        let begun = Instant::now();
        self.execute("stop", &json!({}))?;
        threads::sleep(STOPPED.saturating_sub(begun.elapsed()));
        self.execute("cont", &json!({}))
    }

    /// Puts an empty overlay on top of the disk's current node.
    fn cover(&mut self, node: &'static str, path: Option<PathBuf>) -> Result<(), OperationError> {
        self.open(node, &path.unwrap_or_default(), Format::Qcow2)?;
        if self.state.length.is_some() {
            // The overlay was created before the disk was enlarged.
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

    /// Commits the nodes of `over` from index `height` upward into the node below them, and removes them.
    fn commit_into(&mut self, height: usize) -> Result<(), OperationError> {
        let base = height.checked_sub(1).map_or(self.image.as_str(), |below| self.state.over[below]);
        let arguments = json!({ "device": self.root(), "top-node": self.top(), "base-node": base });
        self.begin("block-commit", &arguments)?;
        self.job(Operation::Commit)?;
        let committed = self.state.over.split_off(height);
        committed.into_iter().rev().try_for_each(|node| self.close(node))
    }

    fn stream(&mut self) -> Result<(), OperationError> {
        self.cover(STREAMED, self.files.streamed.clone())?;
        self.begin("block-stream", &json!({ "device": STREAMED }))?;
        self.job(Operation::Stream)?;
        self.state.is_streamed = true;
        // The streamed image no longer reads the images below it.
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

    /// Copies the data of the node `from` to the operation's file. The node must be as long as the disk.
    fn copy(&mut self, operation: Operation, from: &str) -> Result<(), OperationError> {
        let path = self.files.copies.iter().find(|(of, _)| *of == operation);
        let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
        self.lengthen(&path)?;
        let command = if operation == Operation::Mirror { "blockdev-mirror" } else { "blockdev-backup" };
        let mut arguments = json!({ "device": from, "target": COPY, "sync": "full" });
        if operation == Operation::BackupFleecing {
            // Data that has been copied need not be saved any more.
            arguments["discard-source"] = json!(true);
        }
        let done = self.open_copy(&path);
        let done = done.and_then(|()| self.begin(command, &arguments));
        let done = done.and_then(|()| self.job(operation));
        let closed = self.close(COPY);
        let unlimited = match self.files.copy_iops {
            Some(_) => self.execute("object-del", &json!({ "id": LIMIT })),
            None => Ok(()),
        };
        done.and(closed).and(unlimited)
    }

    /// Opens the file that a copy is written to, with a limit on its I/Os if there is one.
    fn open_copy(&mut self, path: &Path) -> Result<(), OperationError> {
        let Some(iops) = self.files.copy_iops else { return self.open(COPY, path, Format::Raw) };
        let limits = json!({ "iops-total": iops });
        self.execute("object-add", &json!({ "qom-type": "throttle-group", "id": LIMIT, "limits": limits }))?;
        let mut file = self.node(COPY, path, Format::Raw);
        if let Some(file) = file.as_object_mut() {
            file.remove("node-name");
        }
        let copy = json!({ "driver": "throttle", "node-name": COPY, "throttle-group": LIMIT, "file": file });
        self.execute("blockdev-add", &copy)
    }

    /// Copies the disk's state at the start of the operation. Before a write to the disk, QEMU saves the old data to
    /// the fleecing image; the copy reads such data from there.
    fn fleece(&mut self) -> Result<(), OperationError> {
        let path = self.files.fleecing.clone().unwrap_or_default();
        self.lengthen(&path)?;
        let below = self.top().to_owned();
        let filter = json!({
            "driver": "copy-before-write", "node-name": FILTER, "file": below, "target": FLEECING,
            "discard": self.drive.discard.word(),
        });
        let access = json!({
            "driver": "snapshot-access", "node-name": ACCESS, "file": FILTER, "discard": Discard::Unmap.word(),
        });
        let done = self.open(FLEECING, &path, Format::Raw);
        let done = done.and_then(|()| self.execute("blockdev-add", &filter));
        let done = done.and_then(|()| self.put_on(FILTER));
        let done = done.and_then(|()| self.execute("blockdev-add", &access));
        let done = done.and_then(|()| self.copy(Operation::BackupFleecing, ACCESS));
        // Try each step, whatever was set up.
        let ended = [self.close(ACCESS), self.put_on(&below), self.close(FILTER), self.close(FLEECING)];
        ended.into_iter().fold(done, Result::and)
    }

    /// Connects the user of the disk to the node `node`.
    fn put_on(&mut self, node: &str) -> Result<(), OperationError> {
        match self.user {
            DiskUser::Guest => {
                let path = format!("/machine/peripheral/{DISK}");
                self.execute("qom-set", &json!({ "path": path, "property": "drive", "value": node }))
            }
            DiskUser::Export | DiskUser::FilteredExport => {
                let options = [filtered(node, self.drive)];
                self.execute("blockdev-reopen", &json!({ "options": options }))
            }
        }
    }

    /// Extends an empty file to the length of the disk.
    fn lengthen(&mut self, path: &Path) -> Result<(), OperationError> {
        let length = self.disk_size()?;
        let file = OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.set_len(length.0))
            .map_err(|source| OperationError::File { path: path.to_owned(), source })
    }

    /// Returns the current length of the disk, as the guest sees it.
    fn disk_size(&mut self) -> Result<Bytes, OperationError> {
        let nodes = self.qmp.execute("query-named-block-nodes", &json!({ "flat": true }))?;
        let is_top = |node: &&Value| node["node-name"].as_str() == Some(self.top());
        let node = nodes.as_array().and_then(|nodes| nodes.iter().find(is_top));
        let size = node.and_then(|node| node["image"]["virtual-size"].as_u64());
        size.map(Bytes).ok_or(OperationError::Length)
    }

    /// Starts a QEMU job. The finished job is kept until its error has been read.
    fn begin(&mut self, command: &str, arguments: &Value) -> Result<(), OperationError> {
        let mut arguments = arguments.clone();
        arguments["job-id"] = json!(JOB);
        arguments["auto-dismiss"] = json!(false);
        self.execute(command, &arguments)
    }

    /// Waits until the job ends. Once the job is ready, cancels a mirror, which then leaves a complete copy, and completes any other job.
    fn job(&mut self, operation: Operation) -> Result<(), OperationError> {
        let mut has_begun = false;
        loop {
            let jobs = self.qmp.execute("query-jobs", &json!({}))?;
            let ours = |job: &&Value| job["id"].as_str() == Some(JOB);
            let job = jobs.as_array().and_then(|jobs| jobs.iter().find(ours));
            let failed = |reason: &str| OperationError::Job { operation, reason: reason.to_owned() };
            let job = job.ok_or_else(|| failed("the job is gone"))?;
            match job["status"].as_str() {
                Some("ready") if !has_begun => {
                    if operation == Operation::Mirror {
                        // Completing the mirror would make the copy the guest's disk. Cancelling it once it is ready leaves a complete copy.
                        self.execute("block-job-cancel", &json!({ "device": JOB, "force": false }))?;
                    } else {
                        self.execute("job-complete", &json!({ "id": JOB }))?;
                    }
                    has_begun = true;
                }
                Some("concluded") => {
                    let error = job["error"].as_str().map(failed);
                    self.execute("job-dismiss", &json!({ "id": JOB }))?;
                    return error.map_or(Ok(()), Err);
                }
                _ => threads::sleep(POLL),
            }
        }
    }

    fn open(&mut self, node: &str, path: &Path, format: Format) -> Result<(), OperationError> {
        let node = self.node(node, path, format);
        self.execute("blockdev-add", &node)
    }

    /// Returns a block node for the image `path`, with the same cache mode and I/O backend as the disk.
    fn node(&self, node: &str, path: &Path, format: Format) -> Value {
        let encrypted = self.files.encrypted && format == Format::Qcow2;
        let chain = [ChainImage { encrypted, ..ChainImage::new(path.to_owned(), format) }];
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
