//! Options of job files that are accepted without effect.

use super::known::{KnownOption, Support};

const fn noted(names: &'static [&'static str], why: &'static str) -> KnownOption {
    KnownOption { names, alone: false, support: Support::Ignored(why) }
}

const fn alone(names: &'static [&'static str], why: &'static str) -> KnownOption {
    KnownOption { names, alone: true, support: Support::Ignored(why) }
}

const fn switch(names: &'static [&'static str], why: &'static str) -> KnownOption {
    KnownOption { names, alone: true, support: Support::IgnoredSwitch(why) }
}

const WORKERS: &str = "jobs are threads of one process";
const REPORTS: &str = "reports have jobs one by one and together, with all directions and percentiles";
const CLOCK: &str = "every I/O is timed, and what that costs is measured";
const CREATED: &str = "files are created and laid out before anything is measured, and removed afterwards";
const SEED: &str =
    "offsets follow from the run's seed, which is recorded and which --seed sets; every block has its own";
const LOGS: &str = "every interval is in the store and in the JSON";
const FRESH: &str = "every write has new content";
const SLOW: &str = "a job that is slower goes on: the rate of every interval is in the results";
const READ_BACK: &str = "all that was written is read back after the window, and no read of it counts";
const VERIFIED: &str = "every sector is stamped, and a wrong one is reported with its place";

/// Ignored options, each with the reason why it has no effect.
pub(super) const IGNORED: &[KnownOption] = &[
    noted(&["description"], "it is for readers"),
    switch(&["thread", "threads"], WORKERS),
    switch(&["group_reporting"], REPORTS),
    switch(&["new_group"], REPORTS),
    noted(&["unified_rw_reporting"], REPORTS),
    noted(&["clat_percentiles"], REPORTS),
    noted(&["lat_percentiles"], REPORTS),
    noted(&["slat_percentiles"], REPORTS),
    noted(&["percentile_list"], REPORTS),
    noted(&["block_error_percentiles"], REPORTS),
    noted(&["significant_figures"], REPORTS),
    noted(&["unit_base"], REPORTS),
    noted(&["stats"], REPORTS),
    noted(&["error_dump"], REPORTS),
    noted(&["disk_util"], "the layers below the target are always watched"),
    noted(&["clocksource"], CLOCK),
    noted(&["gtod_reduce"], CLOCK),
    noted(&["gtod_cpu"], CLOCK),
    noted(&["disable_lat"], CLOCK),
    noted(&["disable_clat"], CLOCK),
    noted(&["disable_slat"], CLOCK),
    noted(&["disable_bw_measurement", "disable_bw"], CLOCK),
    alone(&["write_bw_log"], LOGS),
    alone(&["write_lat_log"], LOGS),
    alone(&["write_iops_log"], LOGS),
    alone(&["write_hist_log"], LOGS),
    noted(&["per_job_logs"], LOGS),
    noted(&["bwavgtime"], LOGS),
    noted(&["iopsavgtime"], LOGS),
    noted(&["log_avg_msec"], LOGS),
    noted(&["log_entries"], LOGS),
    noted(&["log_hist_msec"], LOGS),
    noted(&["log_hist_coarseness"], LOGS),
    noted(&["log_max_value", "log_window_value"], LOGS),
    noted(&["log_issue_time"], LOGS),
    noted(&["job_start_clock_id"], LOGS),
    noted(&["log_offset"], LOGS),
    noted(&["log_prio"], LOGS),
    noted(&["log_compression"], LOGS),
    alone(&["log_compression_cpus"], LOGS),
    noted(&["log_store_compressed"], LOGS),
    noted(&["log_unix_epoch"], LOGS),
    noted(&["log_alternate_epoch"], LOGS),
    noted(&["log_alternate_epoch_clock_id"], LOGS),
    noted(&["randrepeat"], SEED),
    noted(&["allrandrepeat"], SEED),
    noted(&["random_generator"], SEED),
    noted(&["create_serialize"], CREATED),
    noted(&["create_fsync"], CREATED),
    noted(&["create_on_open"], CREATED),
    noted(&["allow_file_create"], CREATED),
    noted(&["unlink"], CREATED),
    noted(&["filename_format"], "files are areas of one target"),
    noted(&["unique_filename"], "files are areas of one target"),
    noted(&["openfiles"], "files are areas of one target"),
    noted(
        &["allow_mounted_write"],
        "a device is written if --overwrite names it too, and never while it is mounted",
    ),
    noted(&["iomem_align", "mem_align"], "buffers begin at a page, one after the other"),
    noted(&["hugepage-size"], "reserved huge pages are those of 2 MiB"),
    noted(&["fixedbufs"], "io_uring has its buffers and files registered"),
    noted(&["registerfiles"], "io_uring has its buffers and files registered"),
    noted(&["nonvectored"], "io_uring has its buffers and files registered"),
    switch(&["userspace_reap"], "completions are reaped as the engine does it"),
    switch(&["refill_buffers"], FRESH),
    noted(&["verify_interval"], VERIFIED),
    noted(&["verify_offset"], VERIFIED),
    noted(&["verify_dump"], VERIFIED),
    noted(&["verify_fatal"], VERIFIED),
    noted(&["verify_async"], VERIFIED),
    noted(&["verify_async_cpus"], VERIFIED),
    noted(&["verify_state_save"], VERIFIED),
    noted(&["max_open_zones"], "there is no zonemode = zbd"),
    noted(&["job_max_open_zones"], "there is no zonemode = zbd"),
    noted(&["read_beyond_wp"], "there is no zonemode = zbd"),
    noted(&["ignore_zone_limits"], "there is no zonemode = zbd"),
    noted(&["zonecapacity"], "there is no zonemode = zbd"),
    noted(&["zone_reset_threshold"], "there is no zonemode = zbd"),
    noted(&["zone_reset_frequency"], "there is no zonemode = zbd"),
    noted(
        &["exit_what"],
        "exitall ends the jobs of its own group; what a stonewall keeps apart is measured apart",
    ),
    noted(&["rate_cycle", "ratecycle"], "each I/O of a rate has a time of its own"),
    noted(&["rate_min", "ratemin"], SLOW),
    noted(&["rate_iops_min"], SLOW),
    noted(&["iodepth_batch", "iodepth_batch_submit"], "one call begins as many I/Os as are free"),
    noted(&["iodepth_batch_complete_max"], "all I/Os that are done are taken at once"),
    switch(&["softrandommap"], "the map of blocks always fits in memory, or the job is refused"),
    noted(&["comm"], "it is a name for ps"),
    noted(&["flow_watermark"], "it has no effect in fio"),
    noted(&["verifysort"], READ_BACK),
    noted(&["verifysort_nr"], READ_BACK),
    noted(&["verify_pattern_interval"], VERIFIED),
    noted(&["latency_window"], "there is no latency_target"),
    noted(&["latency_percentile"], "there is no latency_target"),
    noted(&["latency_run"], "there is no latency_target"),
    noted(&["io_submit_mode"], "I/Os of a rate begin when they are due, whichever thread submits them"),
    noted(&["verify_pattern"], VERIFIED),
    noted(&["verify_write_sequence"], VERIFIED),
    noted(&["verify_header_seed"], VERIFIED),
    noted(&["verify_backlog"], READ_BACK),
    noted(&["verify_backlog_batch"], READ_BACK),
];
