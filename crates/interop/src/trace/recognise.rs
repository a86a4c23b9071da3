//! Recognises the format of a trace by its content.

use iotax_model::trace::TraceFormat as Format;

use super::{blkparse, blktrace, csv, fiu, iolog, oracle, tencent, vscsi};

/// Number of bytes at the start of a file that are examined to recognise its format.
pub(super) const HEAD: usize = 64 << 10;

/// Recognises the format of a trace by its first bytes.
///
/// # Errors
/// The file is empty or its format is not supported; the message gives the reason.
pub(super) fn format(head: &[u8]) -> Result<Format, String> {
    if head.is_empty() {
        return Err("the file is empty".into());
    }
    if head.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if blktrace::is_meant(head) {
        return Ok(Format::Blktrace);
    }
    let text = String::from_utf8_lossy(head);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if first.starts_with(iolog::MARK) {
        return Ok(Format::Iolog);
    }
    if first == csv::HEADER {
        return Ok(Format::Csv);
    }
    if let Some(format) = of_columns(first) {
        return Ok(format);
    }
    if tencent::is_line(first) {
        return Ok(Format::Tencent);
    }
    if fiu::is_line(first) {
        return Ok(Format::Fiu);
    }
    if text.lines().take(200).any(|line| blkparse::is_line(line.trim())) {
        return Ok(Format::Blkparse);
    }
    if vscsi::is_meant(head) {
        return Ok(Format::Vscsi);
    }
    if oracle::is_meant(head) {
        return Ok(Format::OracleGeneral);
    }
    if is_iolog_1(first) {
        return Err("this looks like version 1 of fio's iolog, which has no times; record it with fio 2 or later, or with blktrace".into());
    }
    Err("its format is not known; accepted: Parquet of iotax record, fio's iolog (2, 3), blktrace, blkparse, and traces of MSR Cambridge, \
         Alibaba, Tencent, SPC, vSCSI, FIU and libCacheSim (oracleGeneral), all but Parquet and blktrace also with zstd"
        .into())
}

/// Recognises the format of a comma-separated line by its columns; `None` if it is none of the known formats.
fn of_columns(line: &str) -> Option<Format> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_number = |index: usize| fields[index].parse::<u64>().is_ok();
    let is_direction = |index: usize| super::volumes::direction(fields[index]).is_ok();
    match fields.len() {
        7 if is_number(0) && is_direction(3) => Some(Format::Msr),
        5 if is_direction(1) && is_number(2) && is_number(4) => Some(Format::Alibaba),
        5.. if is_number(0) && is_number(1) && is_direction(3) => Some(Format::Spc),
        _ => None,
    }
}

/// Returns whether a line is of fio's iolog version 1, which has direction, offset and length: `rw, 4096, 4096`.
fn is_iolog_1(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    matches!(fields[..], [direction, offset, length]
        if direction.len() <= 2 && [direction, offset, length].iter().all(|field| field.parse::<u64>().is_ok()))
}
