//! The password file: lines of `host:port:database:user:password`.
//! <https://www.postgresql.org/docs/15/libpq-pgpass.html>

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ::postgres::config::{Config, Host};

/// Returns this database's password from the password file; `None` if there is none. As in libpq, a file to which the group or others have
/// any access is ignored.
pub(super) fn password(config: &Config) -> Option<String> {
    let path = env::var_os("PGPASSFILE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass")))?;
    let mode = fs::metadata(&path).ok()?.permissions().mode();
    if mode & 0o077 != 0 {
        return None;
    }
    let user = config.get_user()?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        _ => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    find(&fs::read_to_string(path).ok()?, [&host, &port, config.get_dbname().unwrap_or(user), user])
}

/// Returns the password of the first line that matches host, port, database and user; `None` if none matches.
pub(super) fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (fields, password) = split(line)?;
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        fits.then_some(password)
    })
}

/// Splits a line into four fields and the password; a backslash escapes the next character. `None` if fields are missing.
fn split(line: &str) -> Option<(Vec<String>, String)> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let is_last = fields.len() == 5;
        let field = fields.last_mut()?;
        match character {
            '\\' => field.push(characters.next()?),
            ':' if !is_last => fields.push(String::new()),
            other => field.push(other),
        }
    }
    let password = fields.pop()?;
    (fields.len() == 4).then_some((fields, password))
}
