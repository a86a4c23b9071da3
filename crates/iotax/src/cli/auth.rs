//! The token that client and server share.

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use iotax_model::plan::Plan;

use super::{Failure, input, usage};

/// The environment's token, as a plan names it.
const VARIABLE: &str = "$IOTAX_TOKEN";

/// How client and server know each other. The token is never an argument: those can be read by everyone on the machine.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Auth {
    /// Have client and server know a token: the first line of FILE, else the environment's IOTAX_TOKEN. It is not sent; iperf3 knows none
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = VARIABLE)]
    auth: Option<String>,
}

impl Auth {
    /// Where the token is, if there is to be one.
    pub(super) fn source(&self) -> Option<String> {
        self.auth.clone()
    }

    /// The token, if there is to be one.
    pub(super) fn token(&self) -> Result<Option<String>, Failure> {
        self.auth.as_deref().map(token).transpose()
    }
}

/// The tokens that a plan's servers ask for, by where the plan says they are.
pub(super) fn tokens(plan: &Plan) -> Result<HashMap<String, String>, Failure> {
    let sources = plan.everything().filter_map(|target| target.network.as_ref()?.auth.as_deref());
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
