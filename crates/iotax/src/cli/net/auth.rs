//! The token that two ends share.

use std::path::Path;

use clap::Args;

use crate::cli::{Failure, input, usage};

/// Where the token is if no file is named.
const VARIABLE: &str = "IOTAX_TOKEN";

/// How two ends know each other. The token is never an argument: those can be read by everyone on the machine.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Auth {
    /// Have both ends know a token: the first line of FILE, else the environment's IOTAX_TOKEN. It is not sent; iperf3 knows none
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    auth: Option<String>,
}

impl Auth {
    /// The token, if there is to be one.
    pub(super) fn token(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.auth else { return Ok(None) };
        let text = if file.is_empty() {
            std::env::var(VARIABLE).map_err(|_| {
                usage(format!("--auth: {VARIABLE} is not set; set it, or name a file: --auth=FILE"))
            })?
        } else {
            input::text(Path::new(file), input::TOKEN)?
        };
        let token = text.lines().next().unwrap_or_default().trim();
        if token.is_empty() {
            return Err(usage("--auth: the token is empty"));
        }
        Ok(Some(token.to_owned()))
    }
}
