//! Documents for programs: iotax's own JSON and CSV, and later the formats of others.

pub mod csv;
pub mod json;
