//! Documents for programs: iotax's own JSON and CSV, and the formats of others.

pub mod bonnie;
pub mod csv;
pub mod export;
pub mod fio;
pub mod import;
pub mod iozone;
pub mod json;
pub mod parquet;
pub mod prometheus;
mod rows;
mod unfit;
pub mod vdbench;

pub use unfit::Unfit;
