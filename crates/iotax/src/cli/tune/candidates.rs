//! The values to try: those given with `--try`, otherwise those that suit the target and the workloads.

use std::path::Path;

use iotax_analysis::tune::Candidate;
use iotax_model::exit::Exit;
use iotax_model::target::{Aio, Bus, CacheMode, GuestSpec, Setting, Settings, TargetSpec};
use iotax_model::words::WordError;
use iotax_model::workload::Workload;
use iotax_testbed::settings;
use serde_json::{Value, json};

use super::super::{Failure, OrExit, args, usage};

/// Guest keys that can be tried, with their possible values; without values if the key is a number.
pub(super) const GUEST_KEYS: [(&str, &[&str]); 5] = [
    ("cache", CacheMode::WORDS),
    ("aio", Aio::WORDS),
    ("bus", Bus::WORDS),
    ("iothread", &["0", "1"]),
    ("queues", &[]),
];

/// A setting with a value to try, and the target that has this value.
pub(super) type Tryable = (Candidate, TargetSpec);

/// Returns the candidates of `--try`: the given values of each key, or all values but the present one of an enumerated key.
pub(super) fn asked(base: &TargetSpec, list: &[String]) -> Result<Vec<Tryable>, Failure> {
    let mut all = Vec::new();
    for item in list {
        let (key, values) = match item.split_once('=') {
            Some((key, values)) => (key, values.split(':').map(str::to_owned).collect()),
            None => (item.as_str(), all_values(base, item)?),
        };
        let now = key.parse().ok().and_then(|setting| present(base, setting));
        for value in &values {
            if now.as_ref() == Some(value) {
                return Err(usage(format!(
                    "--try {key}={value}: that is the present value; name another one"
                )));
            }
            all.push(candidate(base, key, value)?);
        }
    }
    if let Some(twice) =
        (0..all.len()).find(|index| all[..*index].iter().any(|(one, _)| *one == all[*index].0))
    {
        let Candidate { key, value, .. } = &all[twice].0;
        return Err(usage(format!("--try: {key}={value} is there twice")));
    }
    Ok(all)
}

/// Returns all values of an enumerated key except the present one. Fails if there are none, as for a number, and for an unknown key.
fn all_values(base: &TargetSpec, key: &str) -> Result<Vec<String>, Failure> {
    let guest = GUEST_KEYS.iter().find(|(known, _)| *known == key);
    let now = match (guest, key.parse()) {
        (Some(_), _) => guest_value(base, key),
        (None, Ok(setting)) => present(base, setting),
        (None, Err(_)) => return Err(unknown(key)),
    };
    let words: Vec<String> = match (guest, key.parse()) {
        (Some((_, words)), _) => words.iter().map(ToString::to_string).collect(),
        (None, Ok(setting)) => settings::offered(Path::new("/"), base, setting),
        (None, Err(_)) => Vec::new(),
    };
    let others: Vec<String> = words.into_iter().filter(|word| Some(word) != now.as_ref()).collect();
    if others.is_empty() {
        let now = now.map(|now| format!(" (it is {now})")).unwrap_or_default();
        let small = key.parse::<Setting>().ok().and_then(Setting::range).filter(|(_, most)| *most < 256);
        let (one, other) = small.unwrap_or((64, 256));
        return Err(usage(format!("--try {key}: say which values{now}, such as {key}={one}:{other}")));
    }
    Ok(others)
}

fn unknown(key: &str) -> Failure {
    let known: Vec<&str> = Setting::WORDS.iter().copied().chain(GUEST_KEYS.map(|(key, _)| key)).collect();
    Failure { exit: Exit::Usage, error: WordError::new("setting", key, &known).into() }
}

fn present(base: &TargetSpec, setting: Setting) -> Option<String> {
    settings::changeable(Path::new("/"), base)
        .into_iter()
        .find(|(known, _)| *known == setting)
        .map(|(_, now)| now)
}

/// Returns the value of a key in the target's guest settings; `None` without a guest, and for a key that the settings do not have.
fn guest_value(base: &TargetSpec, key: &str) -> Option<String> {
    let guest = serde_json::to_value(base.guest()?).ok()?;
    match guest.get(key)? {
        Value::String(word) => Some(word.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the candidate for one value of a key, with its target.
fn candidate(base: &TargetSpec, key: &str, value: &str) -> Result<Tryable, Failure> {
    let target = with(base, key, value)?;
    let name = args::target_name(&format!("{key}-{value}"));
    let candidate = Candidate { target: name.clone(), key: key.to_owned(), value: value.to_owned() };
    Ok((candidate, TargetSpec { name, ..target }))
}

/// Returns the target with one key changed.
pub(super) fn with(base: &TargetSpec, key: &str, value: &str) -> Result<TargetSpec, Failure> {
    let target = if GUEST_KEYS.iter().any(|(known, _)| *known == key) {
        let mut target = base.clone();
        let Some(guest) = target.stack.find_mut::<GuestSpec>() else {
            return Err(usage(format!(
                "--try {key}: it is a guest's; name the target as RUNG:DIR, such as vm-raw:/srv"
            )));
        };
        *guest = guest_with(guest, key, value)?;
        target
    } else {
        let setting: Setting = key.parse().map_err(|_| unknown(key))?;
        let one = Settings::one(setting, value).map_err(|error| usage(format!("--try {error}")))?;
        let (mut all, one) = (json!(base.settings.clone().unwrap_or_default()), json!(one));
        if let (Some(all), Value::Object(one)) = (all.as_object_mut(), one) {
            all.extend(one);
        }
        TargetSpec { settings: Some(serde_json::from_value(all).or_exit(Exit::Usage)?), ..base.clone() }
    };
    target.check().or_exit(Exit::Usage)?;
    Ok(target)
}

fn guest_with(guest: &GuestSpec, key: &str, value: &str) -> Result<GuestSpec, Failure> {
    let mut table = serde_json::to_value(guest).or_exit(Exit::Usage)?;
    table[key] = value.parse::<u32>().map_or_else(|_| Value::from(value), Value::from);
    serde_json::from_value(table).map_err(|error| usage(format!("--try {key}={value}: {error}")))
}

/// Returns the candidates that suit a target and its workloads: settings that the target has, that are cheap to change, and that can affect
/// these workloads.
pub(super) fn suitable(base: &TargetSpec, workloads: &[Workload]) -> Result<Vec<Tryable>, Failure> {
    let mut all = Vec::new();
    let is_buffered = |writes: bool| {
        workloads.iter().any(|work| !work.direct && if writes { work.modifies() } else { work.rw.reads() })
    };
    for (setting, now) in settings::changeable(Path::new("/"), base) {
        let number: u32 = now.parse().unwrap_or_default();
        let values: Vec<String> = match setting {
            Setting::Scheduler => settings::offered(Path::new("/"), base, setting),
            Setting::NrRequests => [number / 4, number.saturating_mul(4)].map(|n| n.to_string()).into(),
            Setting::Nomerges | Setting::RqAffinity => vec!["2".into()],
            Setting::ReadAheadKb if is_buffered(false) => ["128", "1024", "8192"].map(Into::into).into(),
            Setting::WbtLatUsec if is_buffered(true) => vec!["0".into()],
            Setting::DirtyRatio if is_buffered(true) => ["5", "40"].map(Into::into).into(),
            Setting::DirtyBackgroundRatio if is_buffered(true) => ["1", "20"].map(Into::into).into(),
            _ => Vec::new(),
        };
        for value in values.iter().filter(|value| **value != now) {
            all.extend(candidate(base, setting.word(), value).ok());
        }
    }
    let guest: &[(&str, &str)] =
        &[("cache", "writeback"), ("aio", "threads"), ("aio", "native"), ("iothread", "0")];
    for (key, value) in guest.iter().filter(|_| base.guest().is_some()) {
        if guest_value(base, key).as_deref() != Some(value) {
            all.extend(candidate(base, key, value).ok());
        }
    }
    if all.is_empty() {
        return Err(Failure {
            exit: Exit::Environment,
            error: anyhow::anyhow!(
                "{}: nothing can be changed here; settings of the kernel need root and a writable /sys, a guest's settings a target \
                 such as vm-raw:/srv",
                base.description()
            ),
        });
    }
    Ok(all)
}
