//! Access to machines: builds and removes targets, boots guests, connects to agents, monitors the host.
//!
//! Readers of /proc and /sys take a root path, so that tests can run on recorded directory trees.

pub mod agent_client;
pub mod block_trace;
pub mod build_error;
pub mod cgroup;
mod cryptsetup;
pub mod device;
pub mod export;
mod filesystem;
pub mod fua_writes;
pub mod guest;
mod holders;
pub mod host_info;
pub mod interfaces;
pub mod interrupt;
pub mod issuers;
mod kernel_file;
pub mod libvirt;
pub mod lock;
mod losetup;
pub mod lvm;
mod mapper;
mod mdadm;
pub mod monitor;
mod netlink;
pub mod netns;
pub mod network;
mod nvme_tcp;
mod own_file;
pub mod postgresql;
pub mod program;
pub mod refusal;
pub mod remote;
pub mod settings;
mod share;
pub mod stack;
pub mod survey;
pub mod target;
mod tracefs;
pub mod undo;
pub mod virsh;
pub mod volatile;
pub mod xen;
mod zfs;
