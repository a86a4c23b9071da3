//! The crate from outside: synthetic runs in, answers out.

mod browser;
mod html;
mod json;
mod judge;
mod store;
mod synthetic;
mod terminal;
