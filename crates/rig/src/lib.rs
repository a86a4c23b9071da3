//! Touches machines: builds targets and undoes it, boots guests, talks to agents, watches the host, reads facts.
//!
//! Readers of /proc and /sys take the root they read from, so that tests run on recorded trees.

pub mod facts;
pub mod guest;
pub mod interfaces;
pub mod ledger;
pub mod libvirt;
pub mod link;
pub mod lock;
pub mod lvm;
pub mod monitor;
mod netlink;
pub mod network;
pub mod program;
pub mod remote;
pub mod stack;
pub mod target;
mod users;
