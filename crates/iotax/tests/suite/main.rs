//! iotax as its users meet it: the binary, real files, real guests.

mod aftermath;
mod cli;
mod fio;
mod lab;
mod ladder;
mod verify;
