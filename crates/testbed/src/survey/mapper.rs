//! Surveys device-mapper devices with dmsetup(8).

use std::cell::OnceCell;

use iotax_model::survey::{Fact, Known, Mapped, MapperTarget};

use super::reader::Reader;
use crate::program::Program;

const DMSETUP: Program = Program { name: "dmsetup", package: "dmsetup" };

/// Output of dmsetup for all devices, read once when it is first needed.
#[derive(Default)]
pub(super) struct Mapper {
    table: OnceCell<Known<String>>,
    status: OnceCell<Known<String>>,
}

impl Mapper {
    pub(super) fn mapped(&self, reader: &Reader<'_>, title: Known<String>, uuid: Known<String>) -> Mapped {
        let table = self.table.get_or_init(|| reader.command(DMSETUP, &["table"]));
        // Without --noflush, a status query would commit a pool's metadata.
        let status = self.status.get_or_init(|| reader.command(DMSETUP, &["status", "--noflush"]));
        let of = |all: &Known<String>| {
            all.as_ref().zip(title.as_ref()).map_or_else(Vec::new, |(all, title)| targets(all, &title.value))
        };
        Mapped { table: of(table), status: of(status), title, uuid }
    }
}

/// Returns the targets of one device, from dmsetup's lines `NAME: START LENGTH TARGET WORDS`.
fn targets(all: &Fact<String>, name: &str) -> Vec<MapperTarget> {
    let lines = all.value.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let target = |line: &str| {
        let mut words = line.split_whitespace().skip(2).map(str::to_owned);
        Some(MapperTarget { kind: words.next()?, words: words.collect(), source: all.source.clone() })
    };
    lines.filter_map(target).collect()
}
