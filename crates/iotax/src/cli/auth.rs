//! The token that authenticates client and server to each other.

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use iotax_model::plan::Plan;

use super::{Failure, input, usage};

/// Value of `auth` in a plan that refers to the environment variable `IOTAX_TOKEN`.
const VARIABLE: &str = "$IOTAX_TOKEN";

/// Authentication of client and server. The token is never an argument, which everyone on the machine could read.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct AuthArgs {
    /// Authenticate client and server by a token: the first line of FILE, else IOTAX_TOKEN. It is never sent; iperf3 has none
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = VARIABLE)]
    auth: Option<String>,
}

impl AuthArgs {
    /// Returns the source of the token, a file or `$IOTAX_TOKEN`; `None` without `--auth`.
    pub(super) fn source(&self) -> Option<String> {
        self.auth.clone()
    }

    /// Reads the token; `None` without `--auth`. Fails if the variable is not set, if the file cannot be read, or if the token is empty.
    pub(super) fn token(&self) -> Result<Option<String>, Failure> {
        self.auth.as_deref().map(token).transpose()
    }
}

/// Reads the tokens of a plan's servers. Keys are the values of `auth` in the plan: file names, or `$IOTAX_TOKEN`.
pub(super) fn tokens(plan: &Plan) -> Result<HashMap<String, String>, Failure> {
    let sources = plan.everything().filter_map(|target| target.network()?.auth.as_deref());
    sources.map(|source| Ok((source.to_owned(), token(source)?))).collect()
}

fn token(source: &str) -> Result<String, Failure> {
    let text = if source == VARIABLE {
        let name = VARIABLE.trim_start_matches('$');
        std::env::var(name)
            .map_err(|_| usage(format!("--auth: {name} is not set; set it, or name a file: --auth=FILE")))?
    } else {
        input::text(Path::new(source), input::TOKEN)?
    };
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(usage("--auth: the token is empty"));
    }
    Ok(token.to_owned())
}
