//! Parses query strings. Keys may occur several times and in any order. Errors name the accepted values.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use iotax_model::RunState;
use iotax_store::Filter;

use crate::problem::Problem;

/// Maximum length in bytes of a key's value.
pub(crate) const LONGEST: usize = 1000;
/// Default number of runs in the list of runs.
pub(crate) const PAGE: u32 = 100;
/// Maximum number of runs in the list of runs.
pub(crate) const MOST: u32 = 1000;

/// The number of a run, taken from the URL path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunId(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for RunId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = Path::<String>::from_request_parts(parts, state).await;
        let text = text.map_err(|error| Problem::bad_request(error.body_text()))?.0;
        let number = text.parse().map(Self);
        number.map_err(|_| {
            Problem::bad_request(format!("{text:?} is no run; accepted: its number, as in /runs/12"))
        })
    }
}

/// The keys and values of a query in order. Pairs with an empty value are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Pairs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let pairs = query
            .map_err(|_| Problem::bad_request("the query is not a form's: key=value&key=value, in UTF-8"))?
            .0;
        let pairs: Vec<_> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        match pairs.iter().find(|(_, value)| value.len() > LONGEST) {
            Some((key, _)) => Err(Problem::bad_request(format!("{key:?} has more than {LONGEST} bytes"))),
            None => Ok(Self(pairs)),
        }
    }
}

impl Pairs {
    /// Returns the error for the first key that is not accepted; `None` if all keys are.
    pub(crate) fn beyond(&self, accepted: impl Iterator<Item = &'static str> + Clone) -> Option<Problem> {
        let (key, _) = self.0.iter().find(|(key, _)| !accepted.clone().any(|known| known == key))?;
        let accepted: Vec<&str> = accepted.collect();
        let accepted = if accepted.is_empty() { "no parameters".into() } else { accepted.join(", ") };
        Some(Problem::bad_request(format!("{key:?} is no parameter of this; accepted: {accepted}")))
    }

    /// Returns all values of a key, in order.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a key; `None` if the query lacks the key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Parses the first value of a key; `None` if the query lacks the key.
    pub(crate) fn parsed<T: std::str::FromStr>(
        &self,
        key: &str,
        accepted: &str,
    ) -> Result<Option<T>, Problem> {
        let read = |text: &str| {
            text.parse().map_err(|_| Problem::bad_request(format!("{key}={text:?}; accepted: {accepted}")))
        };
        self.get(key).map(read).transpose()
    }

    /// Converts the query to a filter for the list of runs.
    pub(crate) fn filter(&self) -> Result<Filter, Problem> {
        let state = self.get("state").map(state).transpose()?;
        let limit = self.parsed("limit", "a number from 1 to 1000")?.unwrap_or(PAGE);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::bad_request(format!("limit={limit}; accepted: a number from 1 to {MOST}")));
        }
        let before: Option<i64> = self.parsed("before", "the number of a run")?;
        if let Some(before) = before.filter(|before| *before < 1) {
            return Err(Problem::bad_request(format!("before={before}; accepted: the number of a run")));
        }
        Ok(Filter {
            text: self.get("text").unwrap_or_default().trim().to_owned(),
            tags: self.all("tag").map(|tag| tag.trim().to_owned()).collect(),
            state,
            machine: self.get("machine").map(str::to_owned),
            fleet: self.get("fleet").map(str::to_owned),
            before,
            limit: Some(limit),
        })
    }

    /// Returns the query with the value of one key replaced, or with the key removed for `None`.
    pub(crate) fn with(&self, key: &str, value: Option<&str>) -> String {
        let kept = self.0.iter().filter(|(known, _)| known != key);
        let kept = kept.map(|(known, value)| (known.as_str(), value.as_str()));
        let pairs: Vec<String> = kept.chain(value.map(|value| (key, value))).map(pair).collect();
        pairs.join("&")
    }
}

fn pair((key, value): (&str, &str)) -> String {
    format!("{}={}", encoded(key), encoded(value))
}

/// Percent-encodes a text for use in a path or query.
pub(crate) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;

    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~,:".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The states of runs that a query can name.
pub(crate) const STATES: [RunState; 4] =
    [RunState::Running, RunState::Complete, RunState::Interrupted, RunState::Failed];

fn state(text: &str) -> Result<RunState, Problem> {
    let found = STATES.into_iter().find(|state| state.word() == text);
    found.ok_or_else(|| {
        Problem::bad_request(format!("state={text:?}; accepted: running, complete, interrupted or failed"))
    })
}
