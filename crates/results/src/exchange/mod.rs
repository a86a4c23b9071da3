//! Documents for programs: iotax's own JSON, and later the formats of others.

pub mod json;
