//! Documents for programs: iotax's own JSON and CSV, and the formats of others.

pub mod csv;
pub mod import;
pub mod iozone;
pub mod json;
