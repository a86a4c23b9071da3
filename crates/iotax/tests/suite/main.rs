//! iotax as its users meet it: the binary, real files, real guests.

mod aftermath;
mod cli;
mod fallback;
mod fio;
mod lab;
mod ladder;
mod verify;
