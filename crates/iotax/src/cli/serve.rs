//! `iotax serve`: shows the store in a browser.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_serve::{Config, Launch, ServeError, Tls};
use iotax_store::StoreError;

use super::number;
use super::output::StoreArgs;
use super::say::say;
use super::{Failure, OrExit, usage};
use crate::runner;

/// Environment variable that holds the token.
const TOKEN: &str = "IOTAX_TOKEN";
/// Minimum length of a token in characters: 16 hexadecimal digits have 64 bits.
const SHORTEST: usize = 16;

/// Flags of `iotax serve`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Address and port to listen on; port 0 picks a free one. Addresses other than loopback need --token-file or --client-ca
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Path under which a reverse proxy serves iotax, such as /iotax
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true, value_parser = base_path)]
    base_path: String,
    /// Host name that browsers use for this server, if a reverse proxy passes it on; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// File with the token that clients must present; the variable IOTAX_TOKEN may hold it instead
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the server, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA that signs the certificates of clients, as PEM; clients must present one
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Change nothing: no notes, no runs; implied if the store cannot be written
    #[arg(long, conflicts_with = "allow_run")]
    read_only: bool,
    /// Let browsers start and stop runs on this machine, of plans that create files below this directory and change nothing elsewhere
    /// (iotax run --confine); may be repeated
    #[arg(long, value_name = "DIR")]
    allow_run: Vec<PathBuf>,
    /// Directory with plans that browsers can start too
    #[arg(long, value_name = "DIR", requires = "allow_run")]
    plans: Option<PathBuf>,
    /// Requests per second that each peer may make, averaged over ten seconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::positive::<u32>)]
    rate_limit: u32,
    #[command(flatten)]
    store: StoreArgs,
}

fn base_path(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    let fits = path.is_empty() || (path.starts_with('/') && !path.contains("//"));
    if fits && path.chars().all(is_plain) {
        return Ok(path.to_owned());
    }
    Err("accepted: a path of letters and digits, such as /iotax".into())
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = tls.map(|(cert, key)| Tls { cert, key, client_ca: args.client_ca.clone() });
    let launch = (!args.allow_run.is_empty()).then(|| launch(args)).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (base, has_launch) = (args.base_path.clone(), launch.is_some());
    let config = Config {
        read_only: !is_writable(args)?,
        store: args.store.location()?,
        listen: args.listen,
        base: args.base_path.clone(),
        hosts: args.host.clone(),
        token: token(args)?,
        tls,
        launch,
        rate: args.rate_limit,
    };
    if config.token.is_some() && config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()) {
        return Err(usage(
            "with --client-ca every client has a certificate and none needs a token: give one of the two",
        ));
    }
    if config.token.is_some() && config.tls.is_none() && !args.listen.ip().is_loopback() {
        say!("Without --tls-cert and --tls-key the token can be read on the way.");
    }
    let read_only = config.read_only;
    let listening = |address: SocketAddr| {
        let access_mode = if read_only { " (read only)" } else { "" };
        say!("Serving {} at {scheme}://{address}{base}/{access_mode}; Ctrl-C ends it", config.store);
        if has_launch {
            say!("Anyone who reaches it can start runs on this machine.");
        }
    };
    iotax_serve::serve(config.clone(), listening).map_err(|error| Failure {
        exit: if matches!(error, ServeError::System(_)) { Exit::Environment } else { Exit::Usage },
        error: error.into(),
    })?;
    Ok(Exit::Fine)
}

fn launch(args: &Args) -> Result<Launch, Failure> {
    let named = args.allow_run.iter().map(|dir| ("--allow-run", dir));
    for (flag, dir) in named.chain(args.plans.iter().map(|dir| ("--plans", dir))) {
        if !dir.is_dir() {
            return Err(usage(format!("{flag} {}: this is not a directory", dir.display())));
        }
    }
    let program = runner::own_program().to_owned();
    Ok(Launch { program, directories: args.allow_run.clone(), plans: args.plans.clone() })
}

/// Returns whether the store can be written; false with `--read-only`. With `--allow-run`, creates a missing store; otherwise fails if it
/// is missing.
fn is_writable(args: &Args) -> Result<bool, Failure> {
    if args.allow_run.is_empty() {
        args.store.open_existing()?;
    }
    if args.read_only {
        return Ok(false);
    }
    match args.store.open() {
        Ok(_) => Ok(true),
        Err(failure) if args.allow_run.is_empty() && is_unwritable(&failure) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn is_unwritable(failure: &Failure) -> bool {
    matches!(
        failure.error.downcast_ref(),
        Some(
            StoreError::Unwritable { .. }
                | StoreError::Planted { .. }
                | StoreError::Sql { .. }
                | StoreError::Damaged { .. }
        )
    )
}

/// Reads the token from its file or from the environment; `None` without either. Fails if other users have access to the file, or if the
/// token is too short or not one line of visible ASCII characters.
fn token(args: &Args) -> Result<Option<String>, Failure> {
    let (token, source) = match &args.token_file {
        Some(path) => {
            let source = path.display().to_string();
            let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
            if mode.is_ok_and(|mode| mode & 0o077 != 0) {
                return Err(usage(format!("--token-file {source}: others can read it; chmod 600 {source}")));
            }
            let text = fs::read_to_string(path)
                .with_context(|| format!("--token-file {source}"))
                .or_exit(Exit::Usage)?;
            (text, source)
        }
        None => match std::env::var(TOKEN) {
            Ok(text) => (text, TOKEN.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let token = token.trim();
    if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(usage(format!(
            "{source}: the token is {} bytes; accepted: one line of at least {SHORTEST} visible ASCII characters, such as \
             openssl rand -hex 32 prints",
            token.len()
        )));
    }
    Ok(Some(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::base_path;

    #[test]
    fn a_base_path_begins_with_a_slash_and_ends_without() {
        assert_eq!(base_path("/iotax/").as_deref(), Ok("/iotax"));
        assert_eq!(base_path("/").as_deref(), Ok(""));
        for wrong in ["iotax", "//x", "/a b", "/<x>", "/a?b"] {
            assert!(base_path(wrong).is_err(), "{wrong}");
        }
    }
}
