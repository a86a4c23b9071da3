//! Out of the tables.

use iotax_model::record::{
    Environment, HostActivity, Measurement, Outcome, Phase, Sample, Tallies, Tally, TargetRecord,
};
use iotax_model::{Histogram, Plan};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;

use super::{Fault, Run, RunState, RunSummary};

/// A histogram's text at its largest: every bucket filled, with counts and indices at full length.
const MOST_TEXT: usize = iotax_model::histogram::BUCKETS * 32 + 256;

pub(super) fn exists(connection: &Connection, run: i64) -> Result<bool, Fault> {
    Ok(connection.query_row("SELECT EXISTS (SELECT 1 FROM run WHERE id = ?)", [run], |row| row.get(0))?)
}

pub(super) fn first_and_last(connection: &Connection) -> Result<Option<(i64, i64)>, Fault> {
    let ends: (Option<i64>, Option<i64>) =
        connection.query_row("SELECT min(id), max(id) FROM run", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(ends.0.zip(ends.1))
}

pub(super) fn plan(connection: &Connection, run: i64) -> Result<Option<Plan>, Fault> {
    let text: Option<String> =
        connection.query_row("SELECT plan FROM run WHERE id = ?", [run], |row| row.get(0)).optional()?;
    text.map(|text| parsed("plan", &text)).transpose()
}

pub(super) fn phases(connection: &Connection, run: i64) -> Result<Vec<Phase>, Fault> {
    let text: Option<String> =
        connection.query_row("SELECT phases FROM run WHERE id = ?", [run], |row| row.get(0)).optional()?;
    text.map_or(Ok(Vec::new()), |text| parsed("phases", &text))
}

pub(super) fn summaries(connection: &Connection) -> Result<Vec<RunSummary>, Fault> {
    let mut query = connection.prepare(
        "SELECT id, name, state, started_at_ms, plan, source IS NOT NULL,
             (SELECT count(*) FROM measurement WHERE measurement.run = run.id) FROM run ORDER BY id",
    )?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let plan: Plan = parsed("plan", &row.get::<_, String>(4)?)?;
        let (state, measured) = (state(&row.get::<_, String>(2)?)?, row.get(6)?);
        // What is complete and adds blocks until all is decided has all that it was to have, and so has what was imported.
        let all = u64::from(plan.most_blocks()) * plan.cells() as u64;
        let is_open = plan.until_decided.is_some() || row.get(5)?;
        let ended = is_open && state == RunState::Complete;
        found.push(RunSummary {
            id: row.get(0)?,
            name: row.get(1)?,
            state,
            started_at_ms: row.get(3)?,
            measured,
            planned: if ended { measured } else { all },
            targets: plan.targets.into_iter().map(|target| target.name).collect(),
        });
    }
    Ok(found)
}

pub(super) fn run(connection: &Connection, id: i64) -> Result<Option<Run>, Fault> {
    // One transaction: a run that is being written meanwhile is seen as it was at one moment.
    let snapshot = connection.unchecked_transaction()?;
    let head: Option<(String, u64, String, String, String, Option<String>)> = snapshot
        .query_row(
            "SELECT state, started_at_ms, seed, plan, environment, source FROM run WHERE id = ?",
            [id],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)),
        )
        .optional()?;
    let Some((word, started_at_ms, seed, plan, environment, source)) = head else { return Ok(None) };
    let plan: Plan = parsed("plan", &plan)?;
    Ok(Some(Run {
        id,
        state: state(&word)?,
        seed: seed.parse().map_err(|error| Fault::value("seed", &error))?,
        started_at_ms,
        environment: parsed::<Environment>("environment", &environment)?,
        targets: targets(&snapshot, id, &plan)?,
        measurements: measurements(&snapshot, id)?,
        phases: phases(&snapshot, id)?,
        source: source.map(|text| parsed("source", &text)).transpose()?,
        warnings: column("warning", &snapshot, "SELECT warning FROM warning WHERE run = ? ORDER BY id", id)?,
        plan,
    }))
}

fn targets(connection: &Connection, run: i64, plan: &Plan) -> Result<Vec<TargetRecord>, Fault> {
    let mut found: Vec<TargetRecord> =
        column("target", connection, "SELECT record FROM target WHERE run = ?", run)?;
    found.sort_by_key(|record| plan.targets.iter().position(|spec| spec.name == record.name));
    Ok(found)
}

fn measurements(connection: &Connection, run: i64) -> Result<Vec<Measurement>, Fault> {
    let mut query = connection.prepare(
        "SELECT id, target, workload, block, place, started_at_ms, host_duration_ns, outcome, host_cache, guest_cache,
             shares, neighbour, qemu, stated
         FROM measurement WHERE run = ? ORDER BY place, id",
    )?;
    let mut rows = query.query([run])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(measurement(connection, row)?);
    }
    Ok(found)
}

fn measurement(connection: &Connection, row: &Row<'_>) -> Result<Measurement, Fault> {
    let id = row.get(0)?;
    let cache = |column| -> Result<_, Fault> { optional("cache", row.get(column)?) };
    let activity: Vec<HostActivity> = column(
        "host activity",
        connection,
        "SELECT activity FROM host_activity WHERE measurement = ? AND place = 0",
        id,
    )?;
    Ok(Measurement {
        target: row.get(1)?,
        workload: row.get(2)?,
        block: row.get(3)?,
        order: row.get(4)?,
        started_at_ms: row.get(5)?,
        host_duration_ns: row.get(6)?,
        outcome: Outcome {
            tallies: tallies(connection, id, 0)?,
            ..parsed("outcome", &row.get::<_, String>(7)?)?
        },
        samples: samples(connection, id)?,
        host: activity.into_iter().next(),
        host_samples: column(
            "host activity",
            connection,
            "SELECT activity FROM host_activity WHERE measurement = ? AND place > 0 ORDER BY place",
            id,
        )?,
        host_cache: cache(8)?,
        guest_cache: cache(9)?,
        shares: parsed("shares", &row.get::<_, String>(10)?)?,
        neighbour: optional("neighbour", row.get(11)?)?,
        qemu: optional("qemu", row.get(12)?)?,
        stated: optional("stated", row.get(13)?)?,
    })
}

fn optional<T: DeserializeOwned>(what: &'static str, text: Option<String>) -> Result<Option<T>, Fault> {
    text.map(|text| parsed(what, &text)).transpose()
}

/// Place 0 is the whole window.
fn tallies(connection: &Connection, measurement: i64, place: u64) -> Result<Tallies, Fault> {
    let mut query = connection.prepare_cached(
        "SELECT direction, ios, bytes, latency, response FROM tally WHERE measurement = ? AND place = ?",
    )?;
    let mut rows = query.query(params![measurement, place])?;
    let mut found = Tallies::default();
    while let Some(row) = rows.next()? {
        let direction: String = row.get(0)?;
        let tally = found
            .of_mut(&direction)
            .ok_or_else(|| Fault::value("direction", &format_args!("{direction:?} is not known")))?;
        let response: Option<Vec<u8>> = row.get(4)?;
        *tally = Some(Tally {
            ios: row.get(1)?,
            bytes: row.get(2)?,
            latency: unpacked(&row.get::<_, Vec<u8>>(3)?)?,
            response: response.map(|bytes| unpacked(&bytes)).transpose()?,
        });
    }
    Ok(found)
}

fn samples(connection: &Connection, measurement: i64) -> Result<Vec<Sample>, Fault> {
    let mut query = connection.prepare_cached(
        "SELECT place, at_ns, duration_ns, oldest_ns FROM sample WHERE measurement = ? ORDER BY place",
    )?;
    let mut rows = query.query([measurement])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Sample {
            at_ns: row.get(1)?,
            duration_ns: row.get(2)?,
            tallies: tallies(connection, measurement, row.get(0)?)?,
            oldest_ns: row.get(3)?,
        });
    }
    Ok(found)
}

fn unpacked(bytes: &[u8]) -> Result<Histogram, Fault> {
    let text = zstd::bulk::decompress(bytes, MOST_TEXT).map_err(|error| Fault::value("histogram", &error))?;
    serde_json::from_slice(&text).map_err(|error| Fault::value("histogram", &error))
}

/// Every row's first column, read as JSON.
fn column<T: DeserializeOwned>(
    what: &'static str,
    connection: &Connection,
    sql: &str,
    id: i64,
) -> Result<Vec<T>, Fault> {
    let mut query = connection.prepare_cached(sql)?;
    let mut rows = query.query([id])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parsed(what, &row.get::<_, String>(0)?)?);
    }
    Ok(found)
}

fn parsed<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::value(what, &error))
}

fn state(word: &str) -> Result<RunState, Fault> {
    RunState::ALL
        .into_iter()
        .find(|state| state.word() == word)
        .ok_or_else(|| Fault::value("state", &format_args!("{word:?} is not known")))
}
