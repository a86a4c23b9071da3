//! Tests of the export to Parquet files.

use iotax_analysis::judge;
use iotax_interop::parquet::dataset;
use iotax_model::Run;
use iotax_testkit::runs::bench;

#[test]
fn a_data_set_has_a_file_for_each_table_by_month() {
    let run = Run { id: 1, started_at_ms: 1_790_086_400_000, ..bench() };
    let judgement = judge(&run);
    let judged = (run, judgement);
    let files = dataset::files(&judged, &["nightly".into()]);
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths.len(), dataset::table_names().count());
    assert_eq!(
        paths[0],
        format!("runs/year=2026/month=09/run-1-20260922T141320Z-{:x}.parquet", judged.0.seed)
    );
    for file in &files {
        assert!(file.mark.stands_in(&file.bytes), "{}", file.path);
        assert!(files.iter().filter(|other| other.mark.stands_in(&file.bytes)).count() == 1, "{}", file.path);
    }
}
