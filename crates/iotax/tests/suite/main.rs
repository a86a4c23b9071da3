//! iotax as its users meet it: the binary, real files, real guests.

mod aftermath;
mod cli;
mod compare;
mod device;
mod disk;
mod fallback;
mod faults;
mod files;
mod fio;
mod formats;
mod ground_truth;
mod guests;
mod honesty;
mod jobs;
mod lab;
mod lab_guest;
mod ladder;
mod lvm;
mod many;
mod plan;
mod ssh;
mod sshd;
mod throttle;
mod undo;
mod until;
mod verify;
