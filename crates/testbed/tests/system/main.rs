//! Readers of the system, on recorded trees and on the live machine.

mod device;
mod facts;
mod kernel_threads;
mod libvirt;
mod monitor;
mod network;
mod stack;
mod tree;
mod users;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serializes searches for a free loop device with the test that needs one number twice.
fn finding() -> MutexGuard<'static, ()> {
    static FINDING: Mutex<()> = Mutex::new(());
    FINDING.lock().unwrap_or_else(PoisonError::into_inner)
}
