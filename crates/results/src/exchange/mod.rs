//! Documents for programs: iotax's own JSON and CSV, and the formats of others.

pub mod bonnie;
pub mod csv;
pub mod filecopy;
pub mod import;
pub mod json;
