//! Engines of fio and their options: the supported ones, and the closest substitutes for the others.

use iotax_model::workload::{IoEngine, Test};

const FILES: &str = "nearest is ioengine = filecreate, filestat or filedelete";
const NETWORK: &str = "nearest is iotax net, which measures TCP, UDP and round trips";
const NVME: &str = "commands of NVMe or SCSI are not sent past the block layer; nearest is io_uring on the block device, such as /dev/nvme0n1";
const REMOTE: &str = "storage on a network is reached through a device or a mount here; nearest is its block device or filesystem with io_uring";
const MAPPED: &str = "nearest is mmap, on a file of a filesystem that is mounted with dax";
const GPU: &str = "memory of a GPU is not read or written; nearest is io_uring with direct = 1";
const SPACE: &str = "blocks of files are not exchanged; nearest is falloc, which allocates and frees space";
const CPU: &str =
    "work without I/O is not made; nearest is another program beside iotax, with cpus_allowed for both";

/// Returns the iotax engine that replaces an fio engine, and a note on the difference; `None` for an unsupported engine.
pub(super) fn done_by(engine: &str) -> Option<(IoEngine, &'static str)> {
    Some(match engine {
        "sync" => (IoEngine::Psync, "sync: pread and pwrite instead of lseek, read and write"),
        "vsync" => (
            IoEngine::Psync,
            "vsync: pread and pwrite, each I/O by itself, instead of readv and writev of neighbours",
        ),
        "pvsync" => {
            (IoEngine::Pvsync2, "pvsync: preadv2 and pwritev2, without flags, instead of preadv and pwritev")
        }
        "posixaio" => (
            IoEngine::IoUring,
            "posixaio: io_uring instead of threads of the C library, each of which does one I/O",
        ),
        "cpp_null" => (IoEngine::Null, "cpp_null: null, which does as little and is compiled in"),
        _ => return None,
    })
}

/// Returns the iotax test for an fio engine that performs one operation per file, such as `filecreate`; `None` for other engines.
pub(super) fn operation(engine: &str) -> Option<Test> {
    Some(match engine {
        "filecreate" => Test::Create,
        "filestat" => Test::Stat,
        "filedelete" => Test::Delete,
        "dircreate" => Test::MakeDirectory,
        "dirstat" => Test::StatDirectory,
        "dirdelete" => Test::RemoveDirectory,
        _ => return None,
    })
}

/// Returns the closest substitute for an unsupported fio engine, as a hint for the error message; `None` for an unknown engine.
pub(super) fn nearest(engine: &str) -> Option<&'static str> {
    Some(match engine {
        "fileoperations" => FILES,
        "e4defrag" => SPACE,
        "net" | "netsplice" | "rdma" => NETWORK,
        "io_uring_cmd" | "sg" | "bsg" | "xnvme" | "libzbc" | "mtd" => NVME,
        "rbd" | "rados" | "gfapi" | "gfapi_async" | "nbd" | "nfs" | "libiscsi" | "http" | "libhdfs"
        | "hdfs" | "dfs" | "ime_psync" | "ime_psyncv" | "ime_aio" => REMOTE,
        "dev-dax" | "libpmem" | "pmemblk" | "page_fault" => MAPPED,
        "libcufile" | "libhipfile" => GPU,
        "cpuio" | "exec" => CPU,
        "splice" => "nearest is psync",
        "external" => "no code of others is loaded; nearest is null",
        "windowsaio" | "solarisaio" | "guasi" => "nearest is libaio",
        _ => return None,
    })
}

/// Options that only unsupported engines have.
pub(super) const OPTIONS: &[&str] = &[
    "cdb_len",
    "fdp",
    "fdp_pli",
    "fdp_pli_select",
    "dataplacement",
    "data_placement",
    "plid_select",
    "plids",
    "dp_scheme",
    "md_per_io_size",
    "pi_act",
    "pi_chk",
    "apptag",
    "apptag_mask",
    "num_range",
    "readfua",
    "writefua",
    "write_mode",
    "read_mode",
    "verify_mode",
    "verify_bytchk",
    "sg_write_mode",
    "stream_id",
    "skip_bad",
    "cpuload",
    "cpuchunks",
    "cpumode",
    "exit_on_io_done",
    "namenode",
    "hdfsdirectory",
    "port",
    "hostname",
    "interface",
    "ttl",
    "nodelay",
    "protocol",
    "proto",
    "listen",
    "pingpong",
    "window_size",
    "mss",
    "bindname",
    "verb",
    "donorname",
    "inplace",
    "clustername",
    "rbdname",
    "clientname",
    "conf",
    "busy_poll",
    "touch_objects",
    "rbd_encryption_format",
    "rbd_encryption_passphrase",
    "pool",
    "cont",
    "svcl",
    "chunk_size",
    "object_class",
    "stat_type",
    "http_host",
    "http_user",
    "http_pass",
    "https",
    "http_mode",
    "http_s3_region",
    "http_s3_key",
    "http_s3_keyid",
    "http_s3_security_token",
    "http_s3_sse_customer_key",
    "http_s3_sse_customer_algorithm",
    "http_s3_storage_class",
    "http_swift_auth_token",
    "http_verbose",
    "http_object_mode",
    "uri",
    "nfs_url",
    "gpu_dev_id",
    "gpu_dev_ids",
    "cuda_io",
    "rocm_io",
    "program",
    "arguments",
    "grace_time",
    "std_redirect",
    "volume",
    "brick",
    "single-instance",
    "xnvme_async",
    "xnvme_sync",
    "xnvme_admin",
    "xnvme_be",
    "xnvme_dev_nsid",
    "xnvme_dev_subnqn",
    "xnvme_mem",
    "xnvme_iovec",
    "libblkio_pre_connect_props",
    "libblkio_num_entries",
    "libblkio_queue_size",
    "libblkio_pre_start_props",
    "libblkio_vectored",
    "libblkio_wait_mode",
    "libblkio_force_enable_completion_eventfd",
    "no_completion_thread",
];

/// The reason for rejecting options of unsupported engines.
pub(super) const OF_OTHERS: &str =
    "it is an option of an engine that is not supported; leave it out with that engine";
