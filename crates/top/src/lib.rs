//! Live activity of a machine: block devices and the layers above them, processes, control groups, guests, networks.
//!
//! [`collect`] reads counters ([`raw`]), [`rates`] derives a [`rates::Frame`] from two readings, [`figure`] defines each figure once, and
//! [`table`], [`json`], [`prometheus`] and [`view`] show frames. [`recording`] keeps readings in a file.

mod blk_latency;
pub mod buckets;
pub mod collect;
pub mod diagnosis;
pub mod figure;
pub mod json;
pub mod prometheus;
pub mod rates;
pub mod raw;
pub mod recording;
pub mod table;
pub mod view;
