//! Tests of readings of recorded machines and of this one.

mod cost;
mod live;
mod recorded;
