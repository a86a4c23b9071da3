//! The rows of runs and measurements, with checksums.
//!
//! Databases do not detect flipped bits in their files. So each row has a checksum over its content and its run's number. The row of a run
//! also has the number of its measurements and the sum of their checksums, so that a missing measurement is detected.

use std::io::{self, Read as _};

use iotax_analysis::Metric;
use iotax_model::record::Measurement;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::database::{Columns, Database, Value};
use crate::error::Fault;
use crate::head::{Head, Measured, column, seal};
use crate::summary::Summary;

/// Compression level of zstd: fast, and within a few percent of the best ratio.
const ZSTD_LEVEL: i32 = 3;

/// Maximum ratio of unpacked to packed size; data beyond that is rejected as a decompression bomb.
const MOST_TIMES: usize = 100;
/// Uncompressed bytes per zstd frame for data that compresses better than [`MOST_TIMES`]. Short frames keep the ratio below that limit.
const PIECE: usize = 1024;

pub(crate) fn pack<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, Fault> {
    let text = serde_json::to_vec(value).map_err(|error| Fault::value(what, &error))?;
    let packed =
        |text: &[u8]| zstd::bulk::compress(text, ZSTD_LEVEL).map_err(|error| Fault::value(what, &error));
    let whole = packed(&text)?;
    if text.len() <= most(&whole) {
        return Ok(whole);
    }
    // The text compresses too well: pack it as several frames, which unpack like one.
    let pieces = text.chunks(PIECE).map(packed).collect::<Result<Vec<_>, _>>()?;
    Ok(pieces.concat())
}

pub(crate) fn unpack<T: DeserializeOwned>(content: &[u8]) -> Result<T, String> {
    let to_reason = |error: io::Error| error.to_string();
    let most = most(content);
    let mut text = Vec::new();
    let frames = zstd::stream::Decoder::new(content).map_err(to_reason)?;
    frames.take(most as u64 + 1).read_to_end(&mut text).map_err(to_reason)?;
    if text.len() > most {
        return Err(format!("{} bytes unpack into more than {MOST_TIMES} times as many", content.len()));
    }
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Returns the maximum size in bytes to which packed data may unpack.
fn most(packed: &[u8]) -> usize {
    packed.len().saturating_mul(MOST_TIMES)
}

/// The row of a run, with its head packed.
#[derive(Debug, Clone)]
pub(crate) struct HeadRow {
    summary: Summary,
    pub(crate) content: Vec<u8>,
}

impl HeadRow {
    pub(crate) fn new(head: &Head) -> Result<Self, Fault> {
        Ok(Self { summary: Summary::new(head)?, content: pack("run", head)? })
    }

    /// Reads the row of a run. Returns the unpacked head and the row; `None` if there is no row. `suffix` is appended to the SELECT.
    pub(crate) fn read(
        database: &mut dyn Database,
        run: i64,
        suffix: &str,
    ) -> Result<Option<(Head, Self)>, Fault> {
        let sql = format!("SELECT {}, content, seal FROM run WHERE id = $1{suffix}", Summary::COLUMNS);
        let Some(mut row) = database.query(&sql, &[run.into()])?.pop() else { return Ok(None) };
        let damaged = |reason: String| Fault::Damaged("table run", reason);
        let summary = Summary::read(&mut row, run)?;
        let (content, sealed) = (row.bytes()?, row.int()?);
        if sealed != seal(run, &[&content]) {
            return Err(damaged("its checksum does not fit".into()));
        }
        let head: Head = unpack(&content).map_err(damaged)?;
        if summary != Summary::new(&head)? {
            return Err(damaged("its columns say something else than its content".into()));
        }
        Ok(Some((head, Self { summary, content })))
    }

    /// Inserts the row of a new run.
    pub(crate) fn insert(&self, database: &mut dyn Database, run: i64) -> Result<(), Fault> {
        let sql = format!(
            "INSERT INTO run (id, {}, content, seal) VALUES \
             ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
            Summary::COLUMNS
        );
        database.execute(&sql, &self.values(run))?;
        Ok(())
    }

    /// Replaces the head in the row of a run.
    pub(crate) fn update(&self, database: &mut dyn Database, run: i64) -> Result<(), Fault> {
        // A single assignment to all columns, so that their order is defined in one place.
        let sql = format!(
            "UPDATE run SET ({}, content, seal) = \
             ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) WHERE id = $1",
            Summary::COLUMNS
        );
        database.execute(&sql, &self.values(run))?;
        Ok(())
    }

    fn values(&self, run: i64) -> Vec<Value> {
        let mut values = vec![run.into()];
        values.extend(self.summary.values(run));
        values.push(self.content.as_slice().into());
        values.push(seal(run, &[&self.content]).into());
        values
    }
}

/// The row of a measurement, with its content packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MeasurementRow {
    pub(crate) target: String,
    pub(crate) workload: String,
    pub(crate) round: i64,
    figures: String,
    latency: String,
    content: Vec<u8>,
}

impl MeasurementRow {
    const COLUMNS: &str = "target, workload, round, figures, latency, content, seal";

    pub(crate) fn new(m: &Measurement) -> Result<Self, Fault> {
        let figures: Map<String, Json> = Metric::ALL
            .iter()
            .filter_map(|metric| Some((metric.id_with_unit(), metric.value(m)?.into())))
            .collect();
        let mut latency = Map::new();
        for (direction, tally) in m.outcome.tallies.each() {
            if let Some(tally) = tally {
                let histogram = serde_json::to_value(&tally.latency);
                latency.insert(
                    direction.into(),
                    histogram.map_err(|error| Fault::value("measurement", &error))?,
                );
            }
        }
        Ok(Self {
            target: column(&m.target),
            workload: column(&m.workload),
            round: m.round.into(),
            figures: Json::from(figures).to_string(),
            latency: Json::from(latency).to_string(),
            content: pack("measurement", m)?,
        })
    }

    /// Reads the rows of all measurements of a run, each with true if its checksum is right. Does not unpack them.
    pub(crate) fn all(database: &mut dyn Database, run: i64) -> Result<Vec<(Self, bool)>, Fault> {
        let sql = format!("SELECT {} FROM measurement WHERE run = $1", Self::COLUMNS);
        let rows = database.query(&sql, &[run.into()])?;
        rows.into_iter().map(|row| Self::read(row, run)).collect()
    }

    fn read(mut row: Columns, run: i64) -> Result<(Self, bool), Fault> {
        let read = Self {
            target: row.text()?,
            workload: row.text()?,
            round: row.int()?,
            figures: row.text()?,
            latency: row.text()?,
            content: row.bytes()?,
        };
        let is_sound = row.int()? == read.seal(run);
        Ok((read, is_sound))
    }

    pub(crate) fn insert(&self, database: &mut dyn Database, run: i64) -> Result<(), Fault> {
        let sql = format!(
            "INSERT INTO measurement (run, {}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            Self::COLUMNS
        );
        let values = [
            run.into(),
            self.target.as_str().into(),
            self.workload.as_str().into(),
            self.round.into(),
            self.figures.as_str().into(),
            self.latency.as_str().into(),
            self.content.as_slice().into(),
            self.seal(run).into(),
        ];
        database.execute(&sql, &values)?;
        Ok(())
    }

    fn seal(&self, run: i64) -> i64 {
        let texts = [&self.target, &self.workload, &self.figures, &self.latency].map(String::as_bytes);
        let round = self.round.to_le_bytes();
        seal(run, &[texts[0], texts[1], texts[2], texts[3], &round, &self.content])
    }

    /// Computes a checksum that does not depend on the run's number, so that it is the same in all stores.
    pub(crate) fn identity(&self) -> u64 {
        self.seal(0).cast_unsigned()
    }
}

/// The rows of a run, with the measurements still packed. They can be unpacked after the read transaction, so that writers do not wait for
/// that.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) head: Head,
    pub(crate) head_row: HeadRow,
    pub(crate) rows: Vec<(MeasurementRow, bool)>,
}

impl Sealed {
    /// Reads the rows of a run, in the caller's transaction; `None` if the run has no row.
    pub(crate) fn read(database: &mut dyn Database, run: i64) -> Result<Option<Self>, Fault> {
        let Some((head, head_row)) = HeadRow::read(database, run, "")? else { return Ok(None) };
        let rows = MeasurementRow::all(database, run)?;
        Ok(Some(Self { head, head_row, rows }))
    }

    /// Checks the measurements against their checksums and against the head, without unpacking them.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let mut measured = Measured::default();
        self.rows.iter().for_each(|(row, _)| measured.add(row.identity()));
        let sound = self.rows.iter().filter(|(_, is_sound)| *is_sound).count() as u64;
        if measured == self.head.measured && sound == measured.count {
            return Ok(());
        }
        let why = if sound == self.rows.len() as u64 {
            "of the others no row is found"
        } else {
            "the checksums of the others do not fit"
        };
        let count = self.head.measured.count;
        Err(Fault::Damaged("table measurement", format!("{sound} of {count} measurements are sound; {why}")))
    }

    /// Checks and unpacks the run. Returns its head, and its measurements in the order in which they were measured.
    pub(crate) fn open(self) -> Result<(Head, Vec<Measurement>), Fault> {
        self.check()?;
        let unpacked = self.rows.iter().map(|(row, _)| unpack::<Measurement>(&row.content));
        let mut measurements = unpacked
            .collect::<Result<Vec<_>, String>>()
            .map_err(|reason| Fault::Damaged("table measurement", reason))?;
        measurements.sort_by_key(|m| (m.order, m.started_at_ms));
        Ok((self.head, measurements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks_however_often_it_repeats_itself() {
        for text in ["x".repeat(5_000_000), "a\u{1f4be}b".repeat(100_000), String::new(), "short".into()] {
            let content = pack("text", &text).expect("packed");
            assert!(unpack::<String>(&content).as_ref() == Ok(&text), "{} bytes", text.len());
        }
    }

    #[test]
    fn a_row_that_unpacks_without_end_is_refused_before_it_takes_memory() {
        let bomb = zstd::bulk::compress(&vec![b' '; 1 << 30], 1).expect("packed");
        assert!(bomb.len() < 200 << 10);
        let said = unpack::<Json>(&bomb).expect_err("refused");
        assert!(said.contains("more than 100 times"), "{said}");
    }
}
