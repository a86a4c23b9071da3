//! Formats of other tools: exports runs to them, and imports results and traces from them.

pub mod bonnie;
pub mod export;
pub mod fio;
pub mod import;
pub mod iozone;
pub mod jobs;
pub mod parquet;
pub mod prometheus;
pub mod trace;
mod unfit;
pub mod vdbench;

pub use unfit::Unfit;
