//! Into the tables.

use iotax_model::record::{
    Environment, HostActivity, Measurement, Outcome, Phase, Sample, Source, Tallies, TargetRecord,
};
use iotax_model::{Histogram, Warning};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{Fault, NewRun, RunState, read};

/// Fast, and within a few percent of the best on a few hundred bytes.
const ZSTD_LEVEL: i32 = 3;

pub(super) fn create_run(connection: &Connection, run: &NewRun<'_>) -> Result<i64, Fault> {
    connection.execute(
        "INSERT INTO run (name, started_at_ms, seed, plan, state, environment) VALUES (?, ?, ?, ?, ?, ?)",
        params![
            run.plan.name,
            run.started_at_ms,
            run.seed.to_string(),
            json("plan", run.plan)?,
            RunState::Running.word(),
            json("environment", &Environment::default())?,
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

pub(super) fn set_environment(
    connection: &Connection,
    run: i64,
    environment: &Environment,
) -> Result<usize, Fault> {
    let text = json("environment", environment)?;
    Ok(connection.execute("UPDATE run SET environment = ? WHERE id = ?", params![text, run])?)
}

pub(super) fn set_source(connection: &Connection, run: i64, source: &Source) -> Result<usize, Fault> {
    let text = json("source", source)?;
    Ok(connection.execute("UPDATE run SET source = ? WHERE id = ?", params![text, run])?)
}

/// Adds to what earlier parts of the run took.
pub(super) fn add_phases(connection: &mut Connection, run: i64, phases: &[Phase]) -> Result<usize, Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut all = read::phases(&transaction, run)?;
    for phase in phases {
        match all.iter_mut().find(|known| known.name == phase.name) {
            Some(known) => known.duration_ns += phase.duration_ns,
            None => all.push(phase.clone()),
        }
    }
    let text = json("phases", &all)?;
    let changed = transaction.execute("UPDATE run SET phases = ? WHERE id = ?", params![text, run])?;
    transaction.commit()?;
    Ok(changed)
}

pub(super) fn set_state(connection: &Connection, run: i64, state: RunState) -> Result<usize, Fault> {
    Ok(connection.execute("UPDATE run SET state = ? WHERE id = ?", params![state.word(), run])?)
}

pub(super) fn set_repeat(connection: &mut Connection, run: i64, repeat: u32) -> Result<usize, Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Some(mut plan) = read::plan(&transaction, run)? else { return Ok(0) };
    plan.repeat = repeat;
    plan.check().map_err(|error| Fault::value("plan", &error))?;
    let changed =
        transaction.execute("UPDATE run SET plan = ? WHERE id = ?", params![json("plan", &plan)?, run])?;
    transaction.commit()?;
    Ok(changed)
}

pub(super) fn put_target(connection: &Connection, run: i64, target: &TargetRecord) -> Result<(), Fault> {
    connection.execute(
        "INSERT INTO target (run, name, record) VALUES (?1, ?2, ?3)
         ON CONFLICT (run, name) DO UPDATE SET record = ?3",
        params![run, target.name, json("target", target)?],
    )?;
    Ok(())
}

pub(super) fn put_warning(connection: &Connection, run: i64, warning: &Warning) -> Result<(), Fault> {
    connection.execute(
        "INSERT INTO warning (run, warning) VALUES (?, ?) ON CONFLICT DO NOTHING",
        params![run, json("warning", warning)?],
    )?;
    Ok(())
}

pub(super) fn put_measurement(connection: &mut Connection, run: i64, m: &Measurement) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let cache = |drop: &Option<_>| drop.as_ref().map(|drop| json("cache", drop)).transpose();
    let outcome = Outcome { tallies: Tallies::default(), ..m.outcome.clone() };
    transaction.execute(
        "INSERT INTO measurement (run, target, workload, block, place, started_at_ms, host_duration_ns, outcome,
             host_cache, guest_cache, shares, neighbour, qemu, stated)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            run,
            m.target,
            m.workload,
            m.block,
            m.order,
            m.started_at_ms,
            m.host_duration_ns,
            json("outcome", &outcome)?,
            cache(&m.host_cache)?,
            cache(&m.guest_cache)?,
            json("shares", &m.shares)?,
            m.neighbour.as_ref().map(|share| json("neighbour", share)).transpose()?,
            m.qemu.as_ref().map(|stats| json("qemu", stats)).transpose()?,
            m.stated.as_ref().map(|stated| json("stated", stated)).transpose()?,
        ],
    )?;
    let id = transaction.last_insert_rowid();
    put_tallies(&transaction, id, 0, &m.outcome.tallies)?;
    put_samples(&transaction, id, &m.samples)?;
    put_activity(&transaction, id, m.host.as_ref(), &m.host_samples)?;
    // What an earlier attempt at this cell failed with is history now.
    transaction.execute(
        "DELETE FROM warning WHERE run = ? AND warning ->> 'kind' = 'incomplete'
         AND warning ->> 'target' = ? AND warning ->> 'workload' = ? AND warning ->> 'block' = ?",
        params![run, m.target, m.workload, m.block],
    )?;
    transaction.commit()?;
    Ok(())
}

/// Place 0 is the whole window.
fn put_tallies(
    transaction: &Transaction<'_>,
    measurement: i64,
    place: u64,
    tallies: &Tallies,
) -> Result<(), Fault> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO tally (measurement, place, direction, ios, bytes, latency, response)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )?;
    for (direction, tally) in tallies.each() {
        let Some(tally) = tally else { continue };
        let response = tally.response.as_ref().map(packed).transpose()?;
        insert.execute(params![
            measurement,
            place,
            direction,
            tally.ios,
            tally.bytes,
            packed(&tally.latency)?,
            response
        ])?;
    }
    Ok(())
}

fn put_samples(transaction: &Transaction<'_>, measurement: i64, samples: &[Sample]) -> Result<(), Fault> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO sample (measurement, place, at_ns, duration_ns, oldest_ns) VALUES (?, ?, ?, ?, ?)",
    )?;
    for (place, sample) in (1_u64..).zip(samples) {
        insert.execute(params![measurement, place, sample.at_ns, sample.duration_ns, sample.oldest_ns])?;
        put_tallies(transaction, measurement, place, &sample.tallies)?;
    }
    Ok(())
}

fn put_activity(
    transaction: &Transaction<'_>,
    measurement: i64,
    whole: Option<&HostActivity>,
    intervals: &[HostActivity],
) -> Result<(), Fault> {
    let mut insert = transaction
        .prepare_cached("INSERT INTO host_activity (measurement, place, activity) VALUES (?, ?, ?)")?;
    let whole = whole.map(|activity| (0_u64, activity));
    for (place, activity) in whole.into_iter().chain((1..).zip(intervals)) {
        insert.execute(params![measurement, place, json("host activity", activity)?])?;
    }
    Ok(())
}

fn json(what: &'static str, value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Fault::value(what, &error))
}

fn packed(histogram: &Histogram) -> Result<Vec<u8>, Fault> {
    let text = json("histogram", histogram)?;
    zstd::bulk::compress(text.as_bytes(), ZSTD_LEVEL).map_err(|error| Fault::value("histogram", &error))
}
