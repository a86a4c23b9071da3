//! Files with tests that have the machine to themselves ([`crate::lab::Lab::alone`]). Tests run by name, so these are the first: among
//! the others each would wait for the longest that runs, and all that come after it for this one.

mod fio;
mod formats;
mod honesty;
mod many;
mod net_ladder;
mod net_ping;
mod throttle;
mod until;
