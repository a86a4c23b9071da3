//! Readers of the system, on recorded trees and on the live machine.

mod device;
mod facts;
mod kernel_threads;
mod libvirt;
mod monitor;
mod network;
mod stack;
mod timeouts;
mod users;
