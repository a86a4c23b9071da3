//! Tests that boot guests, as in all modules called `guests`: `scripts/test --guests` runs them all, `scripts/test` a few.

mod aftermath;
mod applications;
mod blktrace;
mod cgroup;
mod directories;
mod durable;
mod faults;
mod ground_truth;
mod libvirt;
mod lost;
mod lvm;
mod lvm_on_layers;
mod many;
mod mapped;
mod nbd_client;
mod net_truth;
mod nvme_tcp;
mod on_disks;
mod settings;
mod share;
mod watch_faults;
mod watch_manual;
mod xen;
mod zfs;
