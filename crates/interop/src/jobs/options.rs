//! The supported job file options, and the lookup of all options.

use super::builder::JobBuilder;
use super::ignored::IGNORED;
use super::known::{KnownOption, Support};
use super::unsupported::UNSUPPORTED;
use super::value::OptionValue;

/// All known options: supported, ignored and rejected ones.
pub(super) const OPTIONS: [&[KnownOption]; 3] = [DONE, IGNORED, UNSUPPORTED];

/// Finds a known option by its name or an alias; `None` if the name is unknown.
pub(super) fn find(name: &str) -> Option<&'static KnownOption> {
    OPTIONS.into_iter().flatten().find(|known| known.names.contains(&name))
}

/// Maximum edit distance between a mistyped name of more than 8 letters and the suggested option. For shorter names the maximum is 1. Options of up
/// to 4 letters are never suggested.
const MISTYPED: usize = 2;

/// Returns the names and aliases of all known options.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().flatten().flat_map(|known| known.names.iter().copied())
}

/// Returns the option whose name is closest to a mistyped one; `None` if none is similar enough.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    let wrong = names().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let most = if name.len() > 8 { MISTYPED } else { 1 };
    wrong.filter(|(wrong, known)| *wrong <= most && known.len() > 4).min().map(|(_, known)| known)
}

const fn done(
    names: &'static [&'static str],
    read: fn(&mut JobBuilder, OptionValue<'_>) -> Result<(), String>,
) -> KnownOption {
    KnownOption { names, alone: false, support: Support::Supported(read) }
}

const fn switch(
    names: &'static [&'static str],
    read: fn(&mut JobBuilder, OptionValue<'_>) -> Result<(), String>,
) -> KnownOption {
    KnownOption { names, alone: true, support: Support::Supported(read) }
}

/// Generates the parser of an option from the field that it sets and the function that parses the value.
macro_rules! into {
    ($($field:ident).+ = $read:ident) => {
        |draft, value| value.$read().map(|value| draft.$($field).+ = Some(value))
    };
}

/// Generates the parser of an option with a text value from the field that it sets.
macro_rules! text {
    ($field:ident) => {
        |draft, value| {
            draft.$field = Some(value.text.to_owned());
            Ok(())
        }
    };
}

/// Supported options, each with its parser.
const DONE: &[KnownOption] = &[
    // Access pattern.
    done(&["rw", "readwrite"], JobBuilder::rw),
    done(&["rw_sequencer"], JobBuilder::sequencer),
    done(&["bs", "blocksize"], |draft, value| {
        value.triple(OptionValue::bytes).map(|lengths| draft.bs = lengths)
    }),
    done(&["bsrange", "blocksize_range"], JobBuilder::bsrange),
    done(&["bssplit"], text!(bssplit)),
    done(&["rwmixread"], into!(keys.rwmixread = percent)),
    done(&["rwmixwrite"], |draft, value| {
        value.percent().map(|percent| draft.keys.rwmixread = Some(100 - percent))
    }),
    done(&["percentage_random"], |draft, value| {
        value.triple(OptionValue::percent).map(|percent| draft.percentage_random = percent)
    }),
    done(&["blockalign", "ba"], |draft, value| {
        value.triple(OptionValue::bytes).map(|aligned| draft.blockalign = aligned)
    }),
    done(&["random_distribution"], JobBuilder::distribution),
    done(&["random_sequence_stride"], into!(sequence_stride = bool)),
    switch(&["norandommap"], into!(keys.norandommap = flag)),
    done(&["randseed"], into!(seed = whole)),
    done(&["zonemode"], JobBuilder::zonemode),
    done(&["zonesize"], into!(zonesize = bytes)),
    done(&["zonerange"], into!(zonerange = bytes)),
    done(&["zoneskip"], into!(zoneskip = bytes)),
    // Location.
    done(&["filename"], text!(filename)),
    done(&["directory"], text!(directory)),
    done(&["nrfiles", "nr_files"], into!(nrfiles = whole)),
    done(&["filesize"], into!(filesize = bytes)),
    done(&["offset", "fileoffset"], into!(keys.offset = bytes)),
    done(&["offset_increment"], into!(offset_increment = bytes)),
    // Amount and duration.
    done(&["size"], |draft, value| match value.text {
        "100%" => {
            draft.size = None;
            Ok(())
        }
        _ => value.bytes().map(|bytes| draft.size = Some(bytes)),
    }),
    done(&["fill_device", "fill_fs"], into!(fill_device = bool)),
    done(&["io_size", "io_limit"], into!(io_size = bytes)),
    done(&["number_ios"], into!(number_ios = whole)),
    done(&["loops"], into!(loops = whole)),
    done(&["runtime", "timeout"], into!(runtime = seconds)),
    switch(&["time_based"], into!(time_based = flag)),
    done(&["ramp_time"], into!(keys.ramp_time = seconds)),
    done(&["startdelay"], into!(startdelay = seconds)),
    done(&["steadystate", "ss"], into!(keys.steadystate = word)),
    done(&["steadystate_duration", "ss_dur"], into!(keys.steadystate_duration = seconds)),
    done(&["steadystate_ramp_time", "ss_ramp"], into!(keys.steadystate_ramp_time = seconds)),
    done(&["steadystate_check_interval", "ss_interval"], into!(keys.steadystate_check_interval = seconds)),
    // Jobs and engine.
    done(&["name"], text!(name)),
    done(&["ioengine"], JobBuilder::engine),
    done(&["libblkio_driver"], JobBuilder::libblkio_driver),
    done(&["libblkio_path"], text!(libblkio_path)),
    done(&["iodepth"], into!(keys.iodepth = number)),
    done(&["mem", "iomem"], JobBuilder::mem),
    done(&["numjobs"], into!(keys.numjobs = number)),
    switch(&["stonewall", "wait_for_previous"], into!(stonewall = flag)),
    done(&["wait_for"], text!(wait_for)),
    switch(&["exitall"], into!(keys.exitall = flag)),
    done(&["flow"], |draft, value| value.unless_zero().map(|weight| draft.keys.flow = weight)),
    done(&["flow_id"], into!(flow_id = whole)),
    done(&["flow_sleep"], into!(keys.flow_sleep = microseconds)),
    done(&["cpus_allowed"], into!(keys.cpus_allowed = word)),
    done(&["cpus_allowed_policy"], into!(keys.cpus_allowed_policy = word)),
    done(&["numa_cpu_nodes"], into!(keys.numa_cpu_nodes = word)),
    done(&["numa_mem_policy"], into!(keys.numa_mem_policy = word)),
    done(&["prio"], into!(keys.prio = number)),
    done(&["prioclass"], into!(keys.prioclass = number)),
    done(&["cmdprio_percentage"], |draft, value| {
        value.triple(OptionValue::percent).map(|percent| draft.cmdprio = percent)
    }),
    done(&["cmdprio_bssplit"], JobBuilder::cmdprio_bssplit),
    done(&["cmdprio_class"], |draft, value| {
        value.triple(OptionValue::number).map(|class| draft.cmdprio_class = class)
    }),
    done(&["cmdprio"], |draft, value| {
        value.triple(OptionValue::number).map(|level| draft.cmdprio_level = level)
    }),
    switch(&["hipri"], into!(keys.hipri = flag)),
    done(&["libblkio_write_zeroes_on_trim"], into!(keys.libblkio_write_zeroes_on_trim = bool)),
    switch(&["nowait"], into!(keys.nowait = flag)),
    switch(&["sqthread_poll"], into!(keys.sqthread_poll = flag)),
    done(&["sqthread_poll_cpu"], into!(keys.sqthread_poll_cpu = number)),
    // Caches and durability.
    done(&["direct"], into!(keys.direct = bool)),
    done(&["buffered"], |draft, value| value.bool().map(|buffered| draft.keys.direct = Some(!buffered))),
    done(&["invalidate"], into!(keys.invalidate = bool)),
    done(&["pre_read"], into!(keys.pre_read = bool)),
    done(&["fadvise_hint"], into!(keys.fadvise_hint = word)),
    done(&["overwrite"], into!(overwrite = bool)),
    done(&["fallocate"], JobBuilder::fallocate),
    done(&["sync"], into!(keys.sync = word)),
    done(&["fsync"], |draft, value| value.unless_zero().map(|writes| draft.keys.fsync = writes)),
    done(&["fdatasync"], |draft, value| value.unless_zero().map(|writes| draft.keys.fdatasync = writes)),
    done(&["sync_file_range"], into!(keys.sync_file_range = word)),
    done(&["end_fsync"], into!(end_fsync = bool)),
    done(&["fsync_on_close"], into!(end_fsync = bool)),
    // Rate.
    done(&["rate"], |draft, value| value.triple(OptionValue::whole).map(|rate| draft.rate = rate)),
    done(&["rate_iops"], |draft, value| value.triple(OptionValue::whole).map(|rate| draft.rate_iops = rate)),
    done(&["rate_process"], into!(keys.rate_process = word)),
    done(&["thinktime"], |draft, value| {
        value.microseconds().map(|pause| draft.keys.thinktime = Some(pause).filter(|pause| pause.0 > 0))
    }),
    done(&["thinktime_blocks"], into!(keys.thinktime_blocks = whole)),
    // Payload.
    switch(&["zero_buffers"], into!(keys.zero_buffers = flag)),
    done(&["buffer_pattern"], into!(keys.buffer_pattern = word)),
    done(&["buffer_compress_percentage"], into!(keys.buffer_compress_percentage = percent)),
    done(&["buffer_compress_chunk"], into!(keys.buffer_compress_chunk = bytes)),
    done(&["dedupe_percentage"], into!(keys.dedupe_percentage = percent)),
    done(&["dedupe_mode"], into!(keys.dedupe_mode = word)),
    done(&["dedupe_working_set_percentage"], into!(keys.dedupe_working_set_percentage = percent)),
    done(&["dedupe_global"], into!(keys.dedupe_global = bool)),
    done(&["verify"], JobBuilder::verify),
    done(&["do_verify"], into!(keys.do_verify = bool)),
    switch(&["verify_only"], into!(verify_only = flag)),
    // End conditions.
    done(&["max_latency"], |draft, value| {
        value.microseconds().map(|limit| draft.keys.stall_timeout = Some(limit).filter(|limit| limit.0 > 0))
    }),
    done(&["continue_on_error"], JobBuilder::continue_on_error),
    done(&["ignore_error"], JobBuilder::ignore_error),
    // Parsing of other options.
    done(&["kb_base"], |_, value| match value.text {
        "1024" | "1000" => Ok(()),
        _ => Err("accepted: 1024 or 1000".into()),
    }),
];
