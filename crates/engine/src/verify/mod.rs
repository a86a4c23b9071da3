//! Proves that what the target acknowledged is what it holds.

mod judge;
mod stamp;
mod table;
