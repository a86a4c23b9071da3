//! Tests of reading the system's state, on recorded trees and on the live machine.

mod device;
mod facts;
mod kernel_threads;
mod libvirt;
mod monitor;
mod network;
mod settings;
mod stack;
mod timeouts;
mod users;
