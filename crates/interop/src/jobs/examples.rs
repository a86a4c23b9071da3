//! Tests that fio's example files are converted to plans, or rejected with the expected errors.

use super::known::Support;
use super::options::find;
use super::tests::read_with;

/// Options in example files newer than fio 3.33 (commit f5344384), which the test suite does not contain, with their important values.
const NEWER: [(&str, &str); 26] = [
    (
        "atomic-verify",
        "rw=randwrite bs direct ioengine=libaio iodepth verify atomic verify_write_sequence numjobs filename",
    ),
    ("dircreate-ioengine", "create_on_open nrfiles ioengine=dircreate fallocate filesize openfiles"),
    ("dirdelete-ioengine", "ioengine=dirdelete filesize nrfiles unlink"),
    ("dirstat-ioengine", "ioengine=dirstat numjobs filesize nrfiles thread"),
    (
        "example_latency_steadystate",
        "ioengine=libaio iodepth bs direct rw=randread numjobs time_based runtime steadystate steadystate_duration steadystate_ramp_time steadystate_check_interval write_lat_log log_avg_msec filename size",
    ),
    (
        "libblkio-io_uring",
        "ioengine=libblkio libblkio_driver=io_uring libblkio_path rw=randread blocksize direct time_based runtime numjobs thread",
    ),
    (
        "libblkio-virtio-blk-vfio-pci",
        "ioengine=libblkio libblkio_driver=virtio-blk-vfio-pci libblkio_path rw=randread blocksize time_based runtime numjobs thread",
    ),
    (
        "libhipfile-hipfile",
        "ioengine=libhipfile directory gpu_dev_ids rocm_io direct bs size numjobs thread group_reporting rw=read rw=write rw=randread rw=randwrite verify",
    ),
    (
        "libhipfile-posix",
        "ioengine=libhipfile directory gpu_dev_ids rocm_io direct bs size numjobs thread rw=read rw=write rw=randread rw=randwrite verify",
    ),
    ("netio_vsock", "ioengine=net port protocol bs size listen rw=read hostname startdelay rw=write"),
    ("netio_vsock_receiver", "ioengine=net port protocol bs size listen rw=read"),
    ("netio_vsock_sender", "ioengine=net port protocol bs size hostname startdelay rw=write"),
    (
        "page_fault",
        "stonewall ioengine=page_fault size bs rw=write rw=randrw rwmixread numjobs bsrange blockalign rw=read rw=randread rw=randwrite loops",
    ),
    (
        "sequence-distribution",
        "ioengine=null rw=randread bs size io_size random_distribution=sequence:2,0,1 random_sequence_stride stonewall",
    ),
    (
        "sprandom",
        "ioengine=libaio rw=randwrite bs blockalign direct norandommap iodepth sprandom spr_op spr_num_regions",
    ),
    (
        "uring-cmd-bsg",
        "filename ioengine=io_uring_cmd cmd_type size iodepth bs stonewall rw=randwrite rw=randread rw=trimwrite rw=write writefua rw=read readfua fsync",
    ),
    (
        "uring-cmd-fdp",
        "filename ioengine=io_uring_cmd cmd_type iodepth bs fdp time_based runtime rw=randrw rwmixwrite fdp_pli offset size",
    ),
    (
        "uring-cmd-pi-ext",
        "filename ioengine=io_uring_cmd cmd_type size iodepth bs pi_act pi_chk apptag apptag_mask thread stonewall rw=write rw=read",
    ),
    (
        "uring-cmd-pi-sb",
        "filename ioengine=io_uring_cmd cmd_type size iodepth bs md_per_io_size pi_act pi_chk apptag apptag_mask thread stonewall rw=write rw=read",
    ),
    (
        "uring-cmd-trim-multi-range",
        "filename ioengine=io_uring_cmd cmd_type size iodepth thread stonewall bs rw=randtrim num_range bssplit rw=trim",
    ),
    (
        "uring-cmd-write-mode",
        "filename ioengine=io_uring_cmd cmd_type size iodepth bs thread rw=write write_mode",
    ),
    (
        "uring-cmd-zoned-append",
        "filename ioengine=io_uring_cmd cmd_type zonemode=zbd write_mode size bs verify stonewall iodepth rw=randwrite rw=write registerfiles sqthread_poll sqthread_poll_cpu nonvectored",
    ),
    ("xnvme-fdp", "rw=randwrite size iodepth bs thread fdp fdp_pli rw"),
    (
        "xnvme-pi",
        "size iodepth bs md_per_io_size pi_act pi_chk apptag apptag_mask thread stonewall rw=write rw=read",
    ),
    (
        "zbd-rand-write-trim-gc",
        "group_reporting zonemode=zbd zonesize direct time_based runtime filename offset rw=randwrite bs size ioengine=libaio wait_for flow rw=randtrim ioengine=psync",
    ),
    (
        "zbd-rand-write-zone-reset-gc",
        "name group_reporting rw=randwrite zonemode=zbd zonesize bs direct time_based runtime filename size offset ioengine=psync zone_reset_threshold zone_reset_frequency",
    ),
];

#[test]
fn newer_examples_are_taken_if_all_their_options_are() {
    let is_taken = |option: &str| match option.split_once('=') {
        Some(_) => read_with(&format!("[a]\nsize=1m\n{option}\n"), &[]).is_ok(),
        None => find(option).is_some_and(|known| !matches!(known.support, Support::Unsupported { .. })),
    };
    let taken = NEWER.iter().filter(|(_, options)| options.split(' ').all(is_taken)).map(|(name, _)| *name);
    let expected = [
        "dircreate-ioengine",
        "dirdelete-ioengine",
        "dirstat-ioengine",
        "example_latency_steadystate",
        "libblkio-io_uring",
        "sequence-distribution",
    ];
    assert_eq!(taken.collect::<Vec<_>>(), expected);
}
