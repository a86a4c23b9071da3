//! Tests that unsupported options and values are rejected with the right error messages.

use super::tests::{read_with, refused};

#[test]
fn what_is_wrong_is_quoted_with_its_line() {
    for (text, said) in [
        ("", "job.fio:1: the file: no section"),
        ("[global]\nrw=read", "job.fio:1: the file: no section"),
        ("rw=read\n[a]", "job.fio:1: rw=read: it stands before the first section"),
        ("[a", "job.fio:1: [a: accepted: a name in brackets"),
        ("[]", "job.fio:1: []: accepted: a name"),
        ("[a]\nsize", "job.fio:2: size: it needs a value: size = ..."),
        ("[a]\ndirect=yes", "job.fio:2: direct=yes: accepted: 1 or 0"),
        ("[a]\nsize=${NONE}m", "job.fio:2: size=${NONE}m: the environment has no variable \"NONE\""),
        ("[a]\nsize=${SIZE", "\"${\" is not closed"),
        ("[a]\nsize=2k*$pagesize", "\"2k*4096\" has a suffix; accepted beside a keyword"),
        ("[a]\nfilename=x$ncpus", "\"x4\" is not a number"),
        ("[a]\ninclude none", "job.fio:2: include none: none: no such file"),
        ("[a]\ninclude round", "round:1: include round: files include one another"),
        ("[a]\ninclude wide", "wide:50: include wide: more than 100 files are included"),
        ("[a]\ninclude bad", "bad:3: bs=foo: accepted"),
        ("[a]\ninclude bad", "bad:4: [section]: an included file has no sections"),
        ("[a]\nrw=read", "job.fio:1: [a]: size is not given, and is needed"),
        ("[a]\nsize=1m\nrw=randread:8", "job.fio:3: rw=randread:8: a place is drawn for each"),
        ("[a]\nsize=1m\nrw=trimwrite", "trims cannot be mixed"),
        ("[a]\nsize=1m\nnrfiles=4", "job.fio:3: nrfiles=4: sequential I/O"),
        ("[a]\nsize=1m\nfilename=x:y", "job.fio:3: filename=x:y: fio goes through several files"),
        (
            "[a]\nsize=1m\nrw=write\ntime_based\nruntime=1\nend_fsync=1",
            "job.fio:6: end_fsync=1: with time_based what was written is flushed after",
        ),
        ("[a]\nsize=1m\nrw=rw\nrate=1m,0", "job.fio:4: rate=1m,0: in a mix it is accepted for reads and for"),
        (
            "[a]\nsize=1m\nrw=randrw\nrandom_distribution=zoned:50/50:50/50,90/10:10/90",
            "job.fio:4: random_distribution=zoned:50/50:50/50,90/10:10/90: reads and writes of a job have one",
        ),
        ("[a]\nsize=1m\nwait_for=b", "job.fio:3: wait_for of [a]: no job before it is called \"b\""),
        (
            "[a]\nsize=1m\n[b]\nsize=1m\n[c]\nsize=1m\nwait_for=a",
            "job.fio:7: wait_for of [c]: other jobs would go on meanwhile",
        ),
        ("[a]\nsize=1m\nflow=1\n[b]\nsize=1m\nflow=1\nflow_id=2", "job.fio:7: flow_id of [b]: jobs at the"),
        ("[a]\nsize=1m\nignore_error=oops", "\"oops\" is not an error"),
        ("[a]\nsize=1m\ncpus_allowed=x", "job.fio:3: cpus_allowed=x: \"x\" is not a list of numbers"),
        ("[a]\nsize=1m\nprio=9", "prio = 9: accepted: 0 to 7"),
        ("[a]\nsize=1m\nzonemode=strided", "job.fio:3: zonemode=strided: it needs a zonesize"),
        ("[a]\nsize=1m\nverify=sha9", "job.fio:3: verify=sha9: accepted: crc32c"),
        (
            "[a]\nsize=1m\nioengine=rados",
            "ioengine=rados: ioengine = rados is not supported: storage on a network",
        ),
        ("[a]\nioengine=fileoperations", "nearest is ioengine = filecreate, filestat or filedelete"),
        ("[a]\nioengine=filestat\nfilename=x", "job.fio:3: filename=x: the files have names of their own"),
        (
            "[a]\nioengine=filecreate\ntime_based\nruntime=3",
            "job.fio:3: time_based: each file is worked on once",
        ),
        ("[a]\nioengine=filedelete\nloops=2", "loops = 2: test = delete can be done once"),
        ("[a]\nioengine=filestat\nnrfiles=8\nrate_iops=100", "job.fio:4: rate_iops=100: nothing is read"),
        ("[a]\nioengine=filestat\nnrfiles=8\nthinktime=100", "thinktime"),
        (
            "[a]\nioengine=filestat\nnrfiles=8\n[b]\nioengine=filecreate\nnrfiles=8",
            "job.fio:5: ioengine of [b]: [a] does something else at the same time",
        ),
        ("[a]\nioengine=filestat\nnrfiles=8\n[b]\nsize=1m", "job.fio:4: [b]: [a] does something else"),
        ("[a]\nsize=1m\nioengine=io_uring_cmd", "nearest is io_uring on the block device"),
        ("[a]\nsize=1m\nioengine=net", "nearest is iotax net"),
        ("[a]\nsize=1m\nioengine=lbaio", "\"lbaio\" is not a known ioengine; accepted: auto, io_uring"),
        ("[a]\nsize=1m\nioengine=e4defrag", "nearest is falloc, which allocates and frees space"),
        ("[a]\nsize=1m\nioengine=falloc", "ioengine = falloc: space is allocated or freed, not read"),
        (
            "[a]\nsize=1m\nrw=write\nioengine=ftruncate\n[b]\nsize=1m\nrw=write\nioengine=ftruncate",
            "ioengine = ftruncate: a file has one length",
        ),
        (
            "[a]\nsize=1m\nioengine=libblkio\nlibblkio_driver=virtio-blk-vfio-pci",
            "job.fio:4: libblkio_driver=virtio-blk-vfio-pci: devices are not driven past the kernel; accepted: io_uring",
        ),
        (
            "[a]\nsize=1m\nioengine=libblkio\nlibblkio_driver=virtio-blk-vhost-user",
            "is part of a target, such as",
        ),
        (
            "[a]\nsize=1m\nioengine=libblkio\nlibblkio_path=/dev/x",
            "libblkio_path=/dev/x: it needs libblkio_driver",
        ),
        (
            "[a]\nsize=1m\nioengine=libblkio\nlibblkio_driver=io_uring\nlibblkio_path=/dev/x\nfilename=/dev/y",
            "libblkio_path=/dev/x: filename is given too",
        ),
        ("[a]\nsize=1m\nioengine=libaio\ncmdprio_bssplit=4k", "cmdprio_bssplit=4k: \"4k\" has no percentage"),
        ("[a]\nsize=1m\nioengine=libaio\ncmdprio_bssplit=4k/60:4k/60", "the shares of 4k add up to 120"),
        ("[a]\nsize=1m\ncmdprio_bssplit=4k/60", "needs ioengine = io_uring or libaio"),
        (
            "[a]\nsize=1m\nioengine=libaio\ncmdprio_bssplit=4k/60\ncmdprio_percentage=5",
            "cmdprio_percentage is given too; use one of them",
        ),
        ("[a]\nsize=8k\nrw=randread\nrandom_distribution=sequence:0,2", "the area has 2 blocks, from 0"),
        (
            "[a]\nsize=1m\nrw=randrw\nrandom_distribution=sequence:0,2",
            "a sequence is that of reads or of writes",
        ),
        ("[a]\nsize=1m\niodepth_batch_complete_min=8", "a new I/O begins as soon as one is done"),
        ("[a]\nsize=1m\nrw=randwrite\nverify_only", "job.fio:4: verify_only: it needs a verify"),
        ("[a]\nsize=1m\nrw=randrw\nverify=crc32c\nverify_only", "what a mix would write is not known"),
        ("[a]\nsize=1m\nlatency_target=500", "nearest is iotax ask"),
        ("[a]\nsize=1m\ncmdprio_percentage=20", "[a]: cmdprio_percentage = 20: needs ioengine = io_uring or"),
        (
            "[a]\nsize=1m\nrw=randrw\nioengine=libaio\ncmdprio_percentage=20,30",
            "reads and writes of a job have one",
        ),
        (
            "[a]\nfilename=/dev/sdd:/dev/sde\nrw=randread\nsize=8m",
            "job.fio:2: filename=/dev/sdd:/dev/sde: fio goes through several files or devices by turns, and one target does not \
             stand for them",
        ),
        ("[a]\nsize=1m\nmem=mmap:/tmp/x", "job.fio:3: mem=mmap:/tmp/x: accepted: malloc, mmap"),
        ("[a]\nsize=1m\nmem=thp", "job.fio:3: mem=thp: accepted: malloc"),
        ("[a]\nsize=1m\nfallocate=maybe", "job.fio:3: fallocate=maybe: accepted: none"),
        ("[a]\nsize=1m\ndirect=1\nbs=100", "job.fio:4: [a]: bs = 100: accepted: a multiple of 512"),
        ("[a]\nsize=1k", "job.fio:2: [a]: size = 1k: at least one block of 4k"),
        ("[a]\nsize=1m\n[b]\nsize=1m\nramp_time=2", "job.fio:5: ramp_time of [b]: [a] has 0ns"),
        ("[a]\nsize=9000000p", "job.fio:2: size"),
        ("[a]\nsize=8000p\nnumjobs=9", "beyond"),
    ] {
        let error = refused(text);
        assert!(error.contains(said), "{text:?}\n{error}\ninstead of {said}");
    }
    let error = read_with("[a]\nsize=1m", &["b"]).expect_err("no such section").to_string();
    assert_eq!(error, "job.fio:1: --section b: there is no such section; accepted: a");
    assert_eq!(read_with("[a]\nsize=1m\n[b]\nrw=wrong", &["a"]).expect("a is right").workloads.len(), 1);
}
