//! Options that are rejected because they change the workload and are not supported.

use super::known::{KnownOption, Support};

const OFF: &[&str] = &["0"];

const fn refused(
    names: &'static [&'static str],
    unless: &'static [&'static str],
    why: &'static str,
) -> KnownOption {
    KnownOption { names, alone: false, support: Support::Unsupported { unless, why } }
}

/// Defines an unsupported option that may be given without a value.
const fn alone(names: &'static [&'static str], why: &'static str) -> KnownOption {
    KnownOption { names, alone: true, support: Support::Unsupported { unless: OFF, why } }
}

const REPLAY: &str =
    "jobs replay no traces; use iotax run TRACE --target TARGET, or the keys of docs/record.md in a plan";
const BATCHES: &str =
    "a new I/O begins as soon as one is done, so that iodepth are in flight; accepted: 1, or nothing";
const TRIMS: &str = "trims cannot be mixed with other I/O; use rw = trim or randtrim in a job of its own";
const ONCE: &str = "jobs of a group are measured within one window; use runtime";
const VERIFYING: &str =
    "verify = crc32c or xxhash checks what is read, and at the end what was written; use it alone";
const PRIVILEGES: &str = "jobs run as the user who started iotax; leave it out";
const COMMANDS: &str = "iotax runs no commands of others; run it before or after";

/// Unsupported options, each with the reason and the alternative.
pub(super) const UNSUPPORTED: &[KnownOption] = &[
    refused(&["lockfile"], &["none"], "files are not locked; leave it out"),
    refused(&["opendir"], &[], "a job works on one target; name a file with filename"),
    alone(
        &["bs_unaligned", "blocksize_unaligned"],
        "lengths of a range are multiples of the shortest; leave it out",
    ),
    refused(&["offset_align"], OFF, "write the aligned offset"),
    refused(&["iodepth_batch_complete_min", "iodepth_batch_complete"], &["1"], BATCHES),
    refused(&["iodepth_low"], OFF, "the queue is filled up after each completion; leave it out"),
    refused(
        &["serialize_overlap"],
        OFF,
        "only verified writes are kept from overlapping; add verify, or leave it out",
    ),
    refused(&["file_append"], OFF, "an area is given beforehand; use offset"),
    refused(
        &["file_service_type"],
        &["roundrobin"],
        "files are areas of one target, which random offsets visit alike",
    ),
    refused(&["write_barrier"], OFF, "use fsync or fdatasync"),
    refused(&["atomic"], OFF, "writes are not atomic beyond what the target gives; use direct = 1"),
    refused(&["write_hint"], &["none"], "no lifetime is passed with writes; leave it out"),
    refused(&["experimental_verify"], OFF, VERIFYING),
    refused(&["verify_state_load"], OFF, VERIFYING),
    refused(&["trim_percentage"], OFF, TRIMS),
    refused(&["trim_verify_zero"], OFF, TRIMS),
    refused(&["trim_backlog"], OFF, TRIMS),
    refused(&["trim_backlog_batch"], OFF, TRIMS),
    refused(&["write_iolog"], &[], "jobs record no traces; iotax record does, of a disk"),
    refused(&["read_iolog"], &[], REPLAY),
    refused(&["read_iolog_chunked"], OFF, REPLAY),
    refused(&["replay_no_stall"], OFF, REPLAY),
    refused(&["replay_redirect"], &[], REPLAY),
    refused(
        &["replay_scale"],
        &["1"],
        "jobs replay no traces; replay_offsets = compress in a plan scales offsets to the target's size",
    ),
    refused(&["replay_align"], &["0"], REPLAY),
    refused(&["replay_time_scale"], &["100"], REPLAY),
    KnownOption {
        names: &["replay_skip"],
        alone: true,
        support: Support::Unsupported { unless: &[], why: REPLAY },
    },
    refused(&["merge_blktrace_file"], &[], REPLAY),
    refused(&["merge_blktrace_scalars"], &[], REPLAY),
    refused(&["merge_blktrace_iters"], &[], REPLAY),
    refused(&["exec_prerun"], &[], COMMANDS),
    refused(&["exec_postrun"], &[], COMMANDS),
    refused(
        &["ioscheduler"],
        &[],
        "write it to /sys/block/DEVICE/queue/scheduler before; the report says which one it was",
    ),
    refused(&["lockmem"], OFF, "memory is left alone; use direct = 1 to go without the page cache"),
    refused(&["nice"], OFF, "use nice(1) on iotax, whose workers inherit it"),
    refused(&["cmdprio_hint"], OFF, "use cmdprio_bssplit, which has a hint for each length: 64k/100/2/0/1"),
    refused(&["hipri_percentage"], &["100"], "all I/Os are polled with hipri, or none"),
    alone(&["uncached"], "what the page cache holds is not arranged; use direct = 1"),
    refused(&["force_async"], OFF, "the kernel decides what it does at once; leave it out"),
    refused(&["cmd_type"], &[], "commands of NVMe are not sent; use ioengine = io_uring"),
    refused(&["thp"], OFF, "mappings are as the kernel makes them; leave it out"),
    refused(&["thinktime_spin"], OFF, "a job sleeps between I/Os; use thinktime alone"),
    refused(&["thinktime_blocks_type"], &["complete"], "I/Os are counted when they are completed"),
    refused(&["thinktime_iotime"], OFF, "use thinktime_blocks"),
    refused(&["rate_ignore_thinktime"], OFF, "a rate and a thinktime exclude one another"),
    refused(
        &["latency_target"],
        OFF,
        "a job's depth stays as it is given; nearest is iotax ask, which searches the rate at which a latency holds",
    ),
    refused(&["create_only"], OFF, "what is created is removed; leave it out, or use --keep of iotax bench"),
    alone(
        &["bs_is_seq_rand"],
        "lengths of random and of sequential I/Os are the same; give each a job of its own",
    ),
    refused(&["ramp_size"], OFF, "use ramp_time"),
    refused(&["thinkcycles"], OFF, "a job sleeps between I/Os; use thinktime"),
    refused(&["priohint"], OFF, "no hint is passed with I/Os; leave it out"),
    alone(&["end_syncfs"], "use end_fsync"),
    refused(&["verify_policy"], &[], VERIFYING),
    refused(
        &["sprandom", "spr_num_regions", "spr_op", "spr_cs"],
        OFF,
        "an SSD is not brought into a steady state by one pass; nearest is rw = randwrite with loops, before what is measured",
    ),
    refused(
        &["recover_zbd_write_error", "write_zone_remainder", "write_zone_remainders"],
        OFF,
        "zones of a zoned device are not managed",
    ),
    refused(&["unlink_each_loop"], OFF, "a target stays until its run ends; leave it out"),
    refused(&["cpumask"], &[], "name the CPUs with cpus_allowed"),
    alone(&["exitall_on_error"], ONCE),
    refused(
        &["scramble_buffers"],
        &["1"],
        "every write has new content; use dedupe_percentage or buffer_pattern",
    ),
    refused(&["profile"], &[], "use iotax suite"),
    refused(&["cgroup"], &[], "start iotax within the group, which its workers inherit"),
    refused(&["cgroup_nodelete"], OFF, "start iotax within the group, which its workers inherit"),
    refused(&["cgroup_weight"], &[], "start iotax within the group, which its workers inherit"),
    refused(&["uid"], &[], PRIVILEGES),
    refused(&["gid"], &[], PRIVILEGES),
];
