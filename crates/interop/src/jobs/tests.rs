use super::*;
use iotax_model::plan::{Design, Margin, Plan};
use iotax_model::target::{PathSpec, TargetSpec};
use iotax_model::units::{Bytes, Nanos};
use proptest::prelude::*;

const MACHINE: MachineKeywords = MachineKeywords { pagesize: 4096, mb_memory: 8192, ncpus: 4 };

pub(super) fn read_with(text: &str, only: &[&str]) -> Result<Jobs, JobsError> {
    let included = |file: &str, text: &str| Ok(Included { file: file.to_owned(), text: text.to_owned() });
    let include = |_: &str, name: &str| match name {
        "base" => included("dir/base", "direct=1\nbs=8k\n"),
        "round" => included("round", "include round\n"),
        "wide" => included("wide", &"include wide\n".repeat(50)),
        "bad" => included("bad", "rw=read\n\nbs=foo\n[section]"),
        _ => Err(format!("{name}: no such file")),
    };
    let variable = |name: &str| (name == "SIZE").then(|| "16".to_owned());
    let around = Surroundings { include: &include, variable: &variable, machine: MACHINE, size: None };
    let only: Vec<String> = only.iter().map(ToString::to_string).collect();
    read("job.fio", text, &only, &around)
}

fn jobs(text: &str) -> Jobs {
    read_with(text, &[]).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

pub(super) fn refused(text: &str) -> String {
    read_with(text, &[]).expect_err(text).to_string()
}

fn keys(text: &str) -> Workload {
    let mut jobs = jobs(&format!("[a]\nsize=64m\n{text}"));
    assert_eq!(jobs.workloads.len(), 1);
    jobs.workloads.remove(0)
}

#[test]
fn what_is_not_said_is_what_fio_does() {
    let expected = serde_json::json!({
        "name": "a", "rw": "read", "bs": "4k", "iodepth": 1, "numjobs": 1, "direct": false, "ioengine": "psync",
        "ramp_time": "0s", "runtime": "1h", "loops": 1, "size": "64m", "invalidate": true, "max_errors": 1,
    });
    let workload = serde_json::to_value(keys("")).expect("JSON");
    for (key, value) in expected.as_object().expect("keys") {
        let read = if key == "ramp_time" { &serde_json::json!("0ns") } else { value };
        assert_eq!(&workload[key], read, "{key}");
    }
}

#[test]
fn sections_run_at_once_until_a_stonewall() {
    let read = jobs(
        "[global]\nsize=10m\nruntime=5\ntime_based\n[a]\nrw=read\n[b]\nrw=randwrite\nnumjobs=2\n\
         [global]\nbs=64k\n[c]\nstonewall\n[a]\nwait_for_previous\nsize=1m\n",
    );
    let names: Vec<&str> = read.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["a+b", "c", "a"]);
    let [first, c, a] = &read.workloads[..] else { panic!("three") };
    let [b] = &first.beside[..] else { panic!("one beside") };
    assert_eq!((first.bs.0, c.bs.0, b.name.as_str()), (4096, 65536, "b"));
    // Separate files are laid out one after another; each group has the whole target.
    assert_eq!((first.offset.0, b.offset.0, b.offset_increment), (0, 10 << 20, Some(Bytes(10 << 20))));
    assert_eq!((c.offset.0, a.offset.0, a.size), (0, 0, Some(Bytes(1 << 20))));
    assert_eq!((c.loops, c.runtime), (None, Nanos::from_secs(5)));
    assert!(read.own_files && read.filenames.is_empty());
    assert!(read.notes.iter().any(|note| note.starts_with("stonewall:")), "{:?}", read.notes);
    assert!(read.notes.iter().any(|note| note.starts_with("files:")), "{:?}", read.notes);
}

#[test]
fn options_become_keys() {
    for (text, key, value) in OPTIONS_TO_KEYS {
        let workload = serde_json::to_value(keys(text)).expect("JSON");
        let found = workload.get(key).map_or_else(
            || "absent".to_owned(),
            |value| match value.as_str() {
                Some(text) => text.to_owned(),
                None => value.to_string(),
            },
        );
        assert_eq!(&found, value, "{text}: {key}");
    }
}

/// Options after a size of 64m, and the resulting value of one key.
const OPTIONS_TO_KEYS: &[(&str, &str, &str)] = &[
    ("rw=randread", "rw", "randread"),
    ("readwrite=readwrite", "rw", "rw"),
    ("rw=randread:1", "percentage_random", "100"),
    ("rw=read:8k\nbs=4k", "stride", "12k"),
    ("rw=write:-8k\nblocksize=4k", "stride", "-4k"),
    ("zonemode=strided\nzonesize=4k\nzoneskip=12k", "stride", "16k"),
    ("zonemode=strided\nzonesize=64k\nzoneskip=1m", "zoneskip", "1m"),
    ("rw=randread\nzonemode=strided\nzonesize=64k", "zonerange", "64k"),
    ("bs=8k", "bs", "8k"),
    ("bs=8k,16k", "bs", "8k"),
    ("rw=write\nbs=8k,16k", "bs", "16k"),
    ("rw=randrw\nbs=8k,16k", "bssplit", "8k,16k"),
    ("rw=randrw\nbs=,16k", "bssplit", "4k,16k"),
    ("bsrange=4k-16k", "bsrange", "4k-16k"),
    ("blocksize_range=16k-4k/8k:8k", "bsrange", "4k-16k,8k-8k"),
    ("bssplit=4k/10:64k/50:32k/40", "bssplit", "4k/10:64k/50:32k/40"),
    ("size=(4*8m)", "size", "32m"),
    ("size=2*$pagesize", "size", "8k"),
    ("size=${SIZE}m", "size", "16m"),
    ("kb_base=1000\nsize=512k", "size", "500k"),
    ("size=512kib", "size", "500k"),
    ("io_size=1g", "io_size", "1GiB"),
    ("number_ios=10\nbs=8k", "io_size", "80k"),
    ("loops=3", "loops", "3"),
    ("loops=3\nruntime=9", "runtime", "9s"),
    ("time_based\nruntime=300ms", "loops", "absent"),
    ("timeout=2m", "runtime", "2m"),
    ("ramp_time=500ms", "ramp_time", "500ms"),
    ("startdelay=3", "startdelay", "3s"),
    ("startdelay=0", "startdelay", "absent"),
    ("offset=1m", "offset", "1m"),
    ("numjobs=4", "offset_increment", "64m"),
    ("numjobs=4\noffset=512k", "offset_increment", "65m"),
    ("numjobs=4\noffset_increment=1m", "offset_increment", "68m"),
    ("numjobs=4\nfilename=x", "offset_increment", "0"),
    ("numjobs=4\nfilename=x\nrw=randread", "offset_increment", "absent"),
    ("numjobs=4\nfilename=x\noffset_increment=1m", "offset_increment", "1m"),
    ("nrfiles=4\nrw=randread\nfilesize=1m\nsize=4m", "size", "4m"),
    ("ioengine=io_uring\niodepth=32", "iodepth", "32"),
    ("ioengine=libaio", "ioengine", "libaio"),
    ("iodepth=32", "iodepth", "1"),
    ("ioengine=sync", "ioengine", "psync"),
    ("ioengine=pvsync", "ioengine", "pvsync2"),
    ("ioengine=io_uring\nsqthread_poll\nsqthread_poll_cpu=1", "sqthread_poll_cpu", "1"),
    ("buffered=0", "direct", "true"),
    ("direct=1\nbuffered=1", "direct", "false"),
    ("sync=dsync", "sync", "dsync"),
    ("sync=1", "sync", "sync"),
    ("fsync=8", "fsync", "8"),
    ("sync_file_range=wait_before,write:8", "sync_file_range", "wait_before,write:8"),
    ("fsync=0", "fsync", "absent"),
    ("rw=write\nend_fsync=1", "end_fsync", "true"),
    ("rw=write\nfsync_on_close=1\nruntime=9", "end_fsync", "true"),
    ("rw=write\nend_fsync=1\ndirect=1\ntime_based\nruntime=9", "end_fsync", "false"),
    ("end_fsync=1", "end_fsync", "false"),
    ("pre_read=1", "pre_read", "true"),
    ("pre_read=1\ndirect=1", "pre_read", "false"),
    ("bs=100", "bs", "100"),
    ("rw=write\nbs=3000\nnumber_ios=64", "io_size", "192000"),
    ("rw=rw\nrwmixread=70", "rwmixread", "70"),
    ("rw=rw\nrwmixread=70\nrwmixwrite=90", "rwmixread", "10"),
    ("rw=randread\npercentage_random=40", "percentage_random", "40"),
    ("rw=randwrite\npercentage_random=40,60", "percentage_random", "60"),
    ("rw=randread\nrandom_distribution=zipf", "random_distribution", "zipf:1.1"),
    ("rw=randread\nrandom_distribution=zoned:50/5:50/95", "random_distribution", "zoned:50/5:50/95"),
    ("norandommap", "norandommap", "true"),
    ("norandommap=0", "norandommap", "false"),
    ("rate=1m,9m", "rate", "1m"),
    ("rate_iops=500\nrate_process=poisson", "rate_iops", "500"),
    ("rate=0", "rate", "absent"),
    ("thinktime=500", "thinktime", "500us"),
    ("thinktime=5ms\nthinktime_blocks=4", "thinktime_blocks", "4"),
    ("zero_buffers", "zero_buffers", "true"),
    ("buffer_compress_percentage=50\nbuffer_compress_chunk=4k", "buffer_compress_chunk", "4k"),
    ("dedupe_percentage=30", "dedupe_percentage", "30"),
    ("buffer_pattern=\"abc\"", "buffer_pattern", "\"abc\""),
    ("verify=crc32c-intel", "verify", "crc32c"),
    ("verify=xxhash", "verify", "xxh3"),
    ("invalidate=0", "invalidate", "false"),
    ("", "invalidate_each_pass", "true"),
    ("invalidate=0", "invalidate_each_pass", "false"),
    ("direct=1", "invalidate_each_pass", "false"),
    ("pre_read=1", "invalidate_each_pass", "false"),
    ("rw=randread\ntime_based\nruntime=1", "invalidate_each_pass", "true"),
    ("rw=randread\ntime_based\nruntime=1\nnorandommap", "invalidate_each_pass", "false"),
    ("rw=randread\nnorandommap", "invalidate_each_pass", "true"),
    ("", "fadvise_hint", "1"),
    ("fadvise_hint=0", "fadvise_hint", "0"),
    ("fadvise_hint=random", "fadvise_hint", "random"),
    ("direct=1", "fadvise_hint", "0"),
    ("", "mem", "malloc"),
    ("iomem=shmhuge", "mem", "shmhuge"),
    ("rw=read", "layout", "filled"),
    ("rw=randrw", "layout", "filled"),
    ("rw=write", "layout", "allocated"),
    ("rw=write\noverwrite=1", "layout", "filled"),
    ("rw=write\nfallocate=none", "layout", "empty"),
    ("rw=write\nfallocate=keep", "layout", "keep"),
    ("rw=write\nfallocate=truncate", "layout", "sparse"),
    ("rw=write\nioengine=mmap", "layout", "filled"),
    ("rw=write\nioengine=null", "layout", "filled"),
    ("rw=randtrim", "layout", "filled"),
    ("ioengine=posixaio\niodepth=4", "ioengine", "io_uring"),
    ("filesize=256m", "io_size", "64m"),
    ("filesize=32m", "size", "32m"),
    ("continue_on_error=all", "max_errors", "absent"),
    ("max_latency=2s", "stall_timeout", "2s"),
    ("continue_on_error=write", "tolerated_errors", "write"),
    ("continue_on_error=write", "max_errors", "1"),
    ("ignore_error=,ENOSPC:122", "tolerated_errors", "write:ENOSPC,write:122"),
    ("rw=randread\nblockalign=16k\nbs=512", "blockalign", "16k"),
    ("rw=randread\nblockalign=16k", "norandommap", "true"),
    (
        "rw=randread\nrandom_distribution=zoned:50/5:30/15:20/",
        "random_distribution",
        "zoned:50/5:30/15:20/80",
    ),
    ("rw=randread\nrandom_distribution=zoned:50/5:20:30/", "random_distribution", "zoned:50/5:20/47:30/47"),
    (
        "rw=randwrite\nrandom_distribution=zoned:50/50:50/50,90/10:10/90",
        "random_distribution",
        "zoned:90/10:10/90",
    ),
    (
        "rw=randread\nrandom_distribution=zoned_abs:60/20G:40/1g",
        "random_distribution",
        "zoned_abs:60/20GiB:40/1GiB",
    ),
    ("rw=randrw\nrate=300,100", "rate", "400"),
    ("rw=randrw\nrate=300,100", "rwmixread", "75"),
    ("rw=randrw\nrate_iops=30\nrwmixread=90", "rwmixread", "50"),
    ("rw=write\nverify=md5", "verify", "xxh3"),
    ("rw=write\nverify=meta\ndo_verify=0", "do_verify", "false"),
    ("verify=meta\ndo_verify=0", "verify", "none"),
    ("exitall", "exitall", "true"),
    ("flow=8", "flow", "8"),
    ("cpus_allowed=0-2,5", "cpus_allowed", "0-2,5"),
    ("cpus_allowed_policy=split", "cpus_allowed_policy", "split"),
    ("numa_cpu_nodes=0\nnuma_mem_policy=bind:0", "numa_mem_policy", "bind:0"),
    ("prioclass=3\nprio=2", "prioclass", "3"),
    ("rw=write\ndedupe_percentage=50\ndedupe_mode=working_set", "dedupe_mode", "working_set"),
    // fio 3.33 does 245 I/Os of 4k for an io_size of 1000000, and 123 for 500000.
    ("rw=randwrite\nfilesize=4000000\nsize=1000000", "io_size", "980k"),
    ("rw=randwrite\nfilesize=4000000\nsize=1000000", "size", "4000000"),
    ("rw=write\nio_size=500000", "io_size", "492k"),
    ("rw=rw\nbssplit=4k/50:8k/50\nio_size=500000", "io_size", "500224"),
    ("filename=/dev/bsg/0\\:0", "rw", "read"),
    ("rw=randwrite\nverify=crc32c\nverify_only", "rw", "randread"),
    ("rw=write\nverify=crc32c\nverify_only=1", "rw", "read"),
    ("rw=write\nverify=crc32c\nverify_only=0", "rw", "write"),
    (
        "rw=randread\nioengine=libaio\niodepth=8\ncmdprio_percentage=20\ncmdprio_class=2",
        "cmdprio_percentage",
        "20",
    ),
    ("rw=randread\nioengine=libaio\ncmdprio_percentage=20,0\ncmdprio_class=2,1", "cmdprio_class", "2"),
    ("rw=randread\nioengine=libaio\ncmdprio_percentage=0\ncmdprio_class=2", "cmdprio_class", "absent"),
    ("io_submit_mode=offload\nrate_iops=9", "rate_iops", "9"),
    ("ioengine=filecreate\nnrfiles=8\nfilesize=4k", "test", "create"),
    ("ioengine=filecreate\nnrfiles=8\nfilesize=4k", "filesize", "absent"),
    ("ioengine=filedelete\nnrfiles=8\nfilesize=4k", "filesize", "4k"),
    ("ioengine=filestat\nnrfiles=8\nsize=80k", "filesize", "10k"),
    ("ioengine=dircreate\nnrfiles=8\nfilesize=4k", "test", "mkdir"),
    ("ioengine=dirdelete\nnrfiles=8\nfilesize=4k", "filesize", "absent"),
    ("ioengine=dirstat\nnrfiles=8\nloops=3", "loops", "3"),
    ("ioengine=cpp_null", "ioengine", "null"),
    ("ioengine=libblkio\nlibblkio_driver=io_uring\nlibblkio_path=/dev/x\niodepth=4", "ioengine", "io_uring"),
    ("ioengine=falloc\nrw=randwrite\ndirect=1", "ioengine", "falloc"),
    ("ioengine=falloc\nrw=randtrim", "rw", "randtrim"),
    ("ioengine=ftruncate\nrw=write\niodepth=8", "iodepth", "1"),
    ("rw=randread\nrandom_distribution=sequence:2,0,1", "random_distribution", "sequence:2,0,1"),
    (
        "rw=randread\nrandom_distribution=sequence:2,0\nrandom_sequence_stride=1",
        "random_distribution",
        "sequence_stride:2,0",
    ),
    ("rw=randread\nrandom_sequence_stride=1", "random_distribution", "random"),
    (
        "rw=randrw\nioengine=libaio\nbssplit=64k/40:1m/60,1m/100\ncmdprio_bssplit=64k/100:1024k/0,1024k/0",
        "cmdprio_bssplit",
        "64k/100:1m/0,1m/0",
    ),
    (
        "rw=randread\nioengine=io_uring\ncmdprio_bssplit=4k/10/2/0/1:4k/90/3/7",
        "cmdprio_bssplit",
        "4k/10/2/0/1:4k/90/3/7",
    ),
    ("rw=randread\nioengine=libaio\ncmdprio_bssplit=4k/9\ncmdprio_class=2", "cmdprio_class", "2"),
    ("include base", "bs", "8k"),
    ("name=other", "name", "other"),
];

#[test]
fn everything_that_cannot_be_taken_is_said_at_once() {
    let error =
        refused("[global]\nzonemode=zbd\nnice=1\n[a]\nsize=1x\nbogus=1\nrate_iop=5\n[b]\nthread\nrw=raed\n");
    let lines: Vec<&str> = error.lines().collect();
    for (line, begins) in lines.iter().zip([
        "job.fio:2: zonemode=zbd: zones of a zoned device",
        "job.fio:3: nice=1: use nice(1)",
        "job.fio:5: size=1x: accepted: a whole number",
        "job.fio:6: bogus=1: \"bogus\" is not an option",
        "job.fio:7: rate_iop=5: \"rate_iop\" is not an option that is known; did you mean \"rate_iops\"?",
        "job.fio:10: rw=raed: \"raed\" is not a known rw; accepted: read",
    ]) {
        assert!(line.starts_with(begins), "{line:?} instead of {begins:?}");
    }
    assert_eq!(lines.len(), 6, "{error}");
}

#[test]
fn what_changes_nothing_is_said_in_one_line_a_reason() {
    let read = jobs("[global]\nthread\ngroup_reporting=1\n[a]\nsize=1m\nnew_group\n[b]\nsize=1m\n");
    let line = "group_reporting (line 3), new_group (line 6): changes nothing here: reports have jobs";
    assert!(read.notes.iter().any(|note| note.starts_with(line)), "{:?}", read.notes);
    assert_eq!(read.notes.iter().filter(|note| note.contains("thread (line 2)")).count(), 1);
}

#[test]
fn options_that_change_no_io_are_noted() {
    for (text, why) in [
        (
            "steadystate=lat:5%\nsteadystate_check_interval=10",
            "without a steadystate_duration it has no effect",
        ),
        ("rate=1m\nratemin=512k", "a job that is slower goes on"),
        ("iodepth_batch=16\niodepth_batch_complete_max=32", "all I/Os that are done are taken at once"),
        ("log_window_value=1\nlog_issue_time=1\nlog_prio=1", "every interval is in the store"),
        ("softrandommap=1", "the map of blocks always fits"),
    ] {
        let read = jobs(&format!("[a]\nsize=64m\n{text}\n"));
        assert!(read.notes.iter().any(|note| note.contains(why)), "{text}: {:?}", read.notes);
        let plain = if text.contains("rate=") { "rate=1m" } else { "" };
        assert_eq!(read.workloads, jobs(&format!("[a]\nsize=64m\n{plain}\n")).workloads, "{text}");
    }
}

#[test]
fn a_steady_state_ends_a_job_as_in_fio() {
    let keys = |text: &str| {
        let read = jobs(&format!("[a]\nrw=randwrite\nsize=64m\nruntime=60\ntime_based\n{text}\n"));
        let workload = read.workloads.into_iter().next().expect("a job");
        workload.check().expect(text);
        let times = [
            workload.steadystate_duration,
            workload.steadystate_ramp_time,
            workload.steadystate_check_interval,
        ];
        let seconds = times.map(|time| time.map(|time| time.0 / 1_000_000_000));
        (workload.steadystate.map(|criterion| criterion.to_string()), seconds, read.notes)
    };
    let (criterion, seconds, _) = keys("ss=iops:10%\nss_dur=30s\nss_ramp=10");
    assert_eq!((criterion.as_deref(), seconds), (Some("iops:10%"), [Some(30), Some(10), None]));
    let (criterion, seconds, _) = keys("steadystate=bw_slope:1m\nsteadystate_duration=5m\nss_interval=10\n");
    assert_eq!((criterion.as_deref(), seconds), (Some("bw_slope:1m"), [Some(300), None, Some(10)]));
    let (criterion, _, notes) = keys("ss_dur=10\nnumjobs=4");
    assert_eq!(criterion.as_deref(), Some("iops_slope:0.01%"), "fio's default");
    assert!(notes.iter().any(|note| note.contains("as with fio's group_reporting")), "{notes:?}");
    assert!(refused("[a]\nsize=1m\nss=lat:5us\nss_dur=5").contains("\"5us\" is no limit of lat"));
    assert!(refused("[a]\nsize=1m\nss=iops\nss_dur=5").contains("a limit is missing"));
}

#[test]
fn only_what_was_mistyped_is_guessed_at() {
    for (text, meant) in [
        ("iodepht", Some("iodepth")),
        ("numjob", Some("numjobs")),
        ("buffer_compress_precentage", Some("buffer_compress_percentage")),
        ("httpx", None),
        ("donor", None),
        ("cpuspeed", None),
        ("volumes", None),
        ("rbdnames", None),
        ("poolsize", None),
    ] {
        let said = refused(&format!("[a]\nsize=1m\n{text}=1"));
        let hint = meant.map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
        assert_eq!(said, format!("job.fio:3: {text}=1: {text:?} is not an option that is known{hint}"));
    }
    for option in ["https=on", "clientname=admin", "pool=rbd", "cpumode=noop", "donorname=x", "http_s3_key=k"]
    {
        let said = refused(&format!("[a]\nsize=1m\n{option}"));
        assert_eq!(said, format!("job.fio:3: {option}: {}", engines::OF_OTHERS));
    }
}

#[test]
fn every_engine_of_fio_is_done_or_has_a_nearest_one() {
    const ENGINES: &str = "sync psync vsync pvsync pvsync2 libaio io_uring posixaio mmap null splice net netsplice rdma cpuio exec \
         falloc ftruncate e4defrag fileoperations dircreate dirdelete dirstat rbd rados gfapi gfapi_async nbd nfs \
         libiscsi http libhdfs dfs ime_psync ime_psyncv ime_aio dev-dax libpmem page_fault libcufile libhipfile io_uring_cmd sg \
         xnvme libzbc mtd libblkio cpp_null external:./a.so windowsaio solarisaio";
    for engine in ENGINES.split_whitespace() {
        let read = read_with(&format!("[a]\nsize=1m\nrw=write\nioengine={engine}"), &[]);
        let Err(error) = read else { continue };
        let said = error.to_string();
        assert!(said.contains("is not supported: ") && said.contains("nearest is"), "{engine}: {said}");
    }
}

#[test]
fn a_job_file_is_told_from_a_plan() {
    for text in ["[global]\nbs=4k\n[a]", "; first\n\n[a]\nrw=read"] {
        assert!(is_job_file(text), "{text}");
    }
    for text in
        ["", "name = 'x'\n[[target]]", "[defaults]\nbs = '4k'\n[[target]]\n", "[[workload]]\nrw = 'read'"]
    {
        assert!(!is_job_file(text), "{text}");
    }
}

#[test]
fn no_option_is_known_twice() {
    let mut seen = std::collections::HashSet::new();
    for name in options::names() {
        assert!(seen.insert(name), "{name}");
    }
    assert!(seen.len() > 200, "{}", seen.len());
}

#[test]
fn clones_that_verify_have_a_job_each() {
    let read = jobs("[a]\nsize=4m\nrw=write\nverify=crc32c\nnumjobs=3\n");
    let [workload] = &read.workloads[..] else { panic!("one") };
    let offsets: Vec<_> =
        workload.jobs().map(|job| (job.own_name(), job.offset.0 >> 20, job.numjobs)).collect();
    assert_eq!(offsets, [("a", 0, 1), ("a-2", 4, 1), ("a-3", 8, 1)]);
    let shared = refused(
        "[a]\nsize=4m\nrw=randwrite\nverify=crc32c\n[b]\nrw=randwrite\nfilename=x\nsize=4m\n[c]\nrw=read\nverify=crc32c\nfilename=x\nsize=4m\n",
    );
    assert!(shared.contains("writes to the same area"), "{shared}");
}

#[test]
fn a_shared_file_is_one_area_and_may_be_as_long_as_it_is() {
    let read = jobs("[global]\nfilename=x\nsize=8m\n[a]\n[b]\noffset=4m\n[c]\nfilename=y\n");
    let offsets: Vec<u64> = read.workloads[0].jobs().map(|job| job.offset.0 >> 20).collect();
    assert_eq!(offsets, [0, 4, 12]);
    let names: Vec<String> =
        read.filenames.iter().map(|(location, name)| format!("{location} {name}")).collect();
    assert_eq!((names, read.own_files), (vec!["job.fio:2 x".into(), "job.fio:8 y".into()], false));
    let whole = jobs("[a]\nfilename=/dev/x\nnumjobs=2\nrw=randread\nsize=100%");
    assert_eq!((whole.workloads[0].size, whole.workloads[0].offset_increment), (None, None));
    assert!(refused("[a]\nfilename=x\n[b]\nfilename=x\n").contains("job.fio:1: [a]: size is not given"));
    assert!(refused("[a]\nfilename=x\nnumjobs=2").contains("size is not given"));
}

#[test]
fn a_file_is_new_to_its_first_writers_alone() {
    let layouts = |text: &str| -> Vec<(String, &'static str)> {
        let read = jobs(&format!("[global]\nsize=4m\nfilename=x\n{text}"));
        let all = read.workloads.iter().flat_map(Workload::jobs);
        all.map(|job| (job.own_name().to_owned(), job.layout.word())).collect()
    };
    let expect = |text: &str, expected: &[(&str, &str)]| {
        let found = layouts(text);
        let found: Vec<_> = found.iter().map(|(name, layout)| (name.as_str(), *layout)).collect();
        assert_eq!(found, expected, "{text}");
    };
    expect(
        "[a]\nrw=write\n[b]\nstonewall\nrw=randwrite\n[c]\nrw=write\nfilename=y\n",
        &[("a", "allocated"), ("b", "filled"), ("c", "allocated")],
    );
    expect("[a]\nrw=read\n[b]\nstonewall\nrw=write\n", &[("a", "filled"), ("b", "filled")]);
    expect("[a]\nrw=write\n[b]\nrw=randread\n", &[("a", "filled"), ("b", "filled")]);
    expect("[a]\nrw=write\n[b]\nrw=randwrite\n", &[("a", "allocated"), ("b", "allocated")]);
}

#[test]
fn who_waits_for_a_job_runs_after_it() {
    let read = jobs("[global]\nsize=1m\n[a]\n[b]\nwait_for=a\n[c]\nwait_for=a\n[d]\nstonewall\n");
    let names: Vec<&str> = read.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["a", "b+c", "d"]);
}

#[test]
fn a_size_from_outside_lays_out_the_areas() {
    let around = Surroundings {
        include: &|_, name| Err(name.to_owned()),
        variable: &|_| None,
        machine: MACHINE,
        size: Some(Bytes(2 << 20)),
    };
    let text = "[global]\nsize=50%\nfilesize=1t\n[a]\nnumjobs=3\n[b]\nrw=write\nfill_device=1\n";
    let read = read("job.fio", text, &[], &around).expect("its own sizes do not matter");
    let areas: Vec<_> = read.workloads[0]
        .jobs()
        .map(|job| (job.offset.0 >> 20, job.size, job.offset_increment.map(|step| step.0 >> 20)))
        .collect();
    assert_eq!(areas, [(0, Some(Bytes(2 << 20)), Some(2)), (6, Some(Bytes(2 << 20)), None)]);
}

/// Generates a line of a job file: mostly an option with a value, sometimes a section header, an include, a comment or arbitrary text.
fn line() -> impl Strategy<Value = String> {
    let names = prop::sample::select(options::names().collect::<Vec<_>>());
    let value = "[0-9]{1,4}[kmg%]?|[a-z_0-9]{0,8}:?[0-9./]{0,6}|(read|randread|rw|write)(:[0-9]k)?|\\([0-9k+*/^ ()-]{0,9}\\)|\\$pagesize\\*[0-9]|.{0,9}";
    prop_oneof![
        8 => (names, value).prop_map(|(name, value)| format!("{name}={value}")),
        2 => "size=[1-9]{1,3}[kmg]|numjobs=[1-4]|offset=[1-9]m|filename=[xy]|stonewall|runtime=[1-9]",
        1 => "\\[[a-c]\\]|\\[global\\]|include (base|bad|round)|; .{0,8}",
        1 => ".{0,16}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The property that the fuzz target of the same name tests.
    #[test]
    fn any_text_is_read_into_a_plan_or_refused_with_its_lines(
        sound in any::<bool>(),
        lines in prop::collection::vec(line(), 0..8),
    ) {
        let text = format!("{}{}", if sound { "[a]\nsize=64m\n" } else { "" }, lines.join("\n"));
        match read_with(&text, &[]) {
            Err(JobsError(complaints)) => {
                prop_assert!(!complaints.is_empty());
                for complaint in complaints.iter().filter(|complaint| &*complaint.location.file == "job.fio") {
                    let line = text.lines().nth(complaint.location.line - 1).unwrap_or_default();
                    let quoted = line.contains(&complaint.quoted)
                        || complaint.quoted == "the file"
                        || complaint.quoted.starts_with(|c: char| c == '[' || c.is_ascii_lowercase())
                            && complaint.quoted.ends_with(']');
                    prop_assert!(quoted && !complaint.why.is_empty(), "{complaint} of {text}");
                }
            }
            Ok(jobs) => {
                let target = TargetSpec::new("t", PathSpec("/t".into()));
                let plan = Plan {
                    name: "job.fio".into(),
                    repeat: 1,
                    suite: None,
                    design: Design::FixedRounds,
                    margin: Margin::default(),
                    baseline: "t".into(),
                    control: None,
                    seed: None,
                    targets: vec![target],
                    workloads: jobs.workloads,
                    neighbours: Vec::new(),
                    require: Vec::new(),
                };
                prop_assert!(plan.check().is_ok(), "{:?} of {text}", plan.check());
                if let Ok(toml) = plan.to_toml() {
                    prop_assert_eq!(&Plan::from_toml(&toml).expect(&toml), &plan, "{}", toml);
                }
            }
        }
    }
}

/// The table in the documentation lists every option with its support status.
#[test]
fn the_documentation_has_every_option_where_it_belongs() {
    let documentation = include_str!("../../../../docs/jobs.md");
    let listed = |heading: &str| -> Vec<&str> {
        let (_, rest) = documentation.split_once(&format!("\n## {heading}\n")).expect(heading);
        let section = rest.split("\n## ").next().unwrap_or_default();
        let mut names: Vec<&str> =
            section.split('`').skip(1).step_by(2).filter(|name| options::find(name).is_some()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    for (heading, table) in ["Done", "Changes nothing here", "Refused"].into_iter().zip(options::OPTIONS) {
        let mut names: Vec<&str> = table.iter().map(|known| known.names[0]).collect();
        names.sort_unstable();
        assert_eq!(listed(heading), names, "{heading}");
    }
}
