//! Tests the statistics on simulated runs with known truth, and writes the page with the results.
//!
//! Every seed is fixed. These tests produce each table of docs/statistics.md; `IOTAX_UPDATE_DOCS=1 cargo test -p iotax-analysis --test
//! statistics` updates them.

mod advice;
mod alarms;
mod coverage;
mod family;
mod judged;
mod moderated;
mod page;
mod power;
mod sequential;
mod simulate;
mod trend;
mod tune;
mod within;
