//! The statistics tested on simulated runs whose truth is known, and the page that reports the results.
//!
//! Every seed is fixed. Each table of docs/statistics.md is made here; `IOTAX_UPDATE_DOCS=1 cargo test -p iotax-analysis
//! --test statistics` writes them anew.

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
