//! Writes tables as CSV files into a directory.

use std::fs;
use std::path::Path;

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_report::csv::CsvTable;

use super::destination::Destination;
use super::say::note;
use super::{Failure, OrExit, links};

/// Writes each table as a CSV file. Fails, and writes none, if any file would replace one that iotax did not write.
pub(super) fn write(dir: &Path, tables: &[CsvTable]) -> Result<(), Failure> {
    links::check(dir)
        .and_then(|()| fs::create_dir_all(dir))
        .with_context(|| format!("cannot make {}", dir.display()))
        .or_exit(if dir.exists() { Exit::Usage } else { Exit::Environment })?;
    let opened = tables.iter().map(|table| Destination::open(&dir.join(table.name), table.mark()));
    let destinations = opened.collect::<Result<Vec<_>, _>>()?;
    for (destination, table) in destinations.iter().zip(tables) {
        destination.write(table.text.as_bytes())?;
    }
    let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    note!("CSV: {} in {}", names.join(", "), dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_files_and_iotaxs_own_are_written() {
        let temp = tempfile::tempdir().expect("directory");
        let table = |name, text: &str| CsvTable { name, header: "run,target".into(), text: text.into() };
        let dir = temp.path().join("new/dir");
        write(&dir, &[table("a.csv", "run,target\n1,x\n")]).expect("new");
        write(&dir, &[table("a.csv", "run,target\n2,x\n")]).expect("ours");
        assert_eq!(fs::read_to_string(dir.join("a.csv")).expect("written"), "run,target\n2,x\n");
        fs::write(dir.join("b.csv"), "run,target,precious\n").expect("written");
        let failure =
            write(&dir, &[table("a.csv", "run,target\n3,x\n"), table("b.csv", "")]).expect_err("foreign");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.error.to_string().contains("b.csv: it exists"), "{:#}", failure.error);
        assert_eq!(
            fs::read_to_string(dir.join("a.csv")).expect("there"),
            "run,target\n2,x\n",
            "none is written"
        );
        assert!(write(&dir.join("a.csv"), &[]).is_err_and(|failure| failure.exit == Exit::Usage));
    }
}
