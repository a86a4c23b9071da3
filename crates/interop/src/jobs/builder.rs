//! Builds a job while its options are parsed.

use super::engines::{done_by, nearest, operation};
use super::value::OptionValue;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::words::WordError;
use iotax_model::workload::{
    ByDirection, Distribution, FileLayout, Memory, PrioritySplit, Rw, TextError, Tolerated, Verify,
    WorkloadKeys,
};

/// fio's checksums that iotax replaces with another one.
const SUMS: [&str; 19] = [
    "xxhash",
    "crc7",
    "crc16",
    "crc32",
    "crc64",
    "md5",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "murmur3",
    "meta",
    "pattern",
    "null",
    "pattern_hdr",
    "crc32c-arm64",
];

/// Options parsed so far from a section of a job file. `keys` holds options that map to a single workload key. The other fields hold values that can
/// be converted only once several options are known.
#[derive(Debug, Clone, Default)]
pub(super) struct JobBuilder {
    pub(super) keys: WorkloadKeys,
    pub(super) name: Option<String>,
    /// Number after the colon in `rw`, if given.
    pub(super) step: Option<i64>,
    pub(super) is_identical: bool,
    pub(super) bs: [Option<Bytes>; 3],
    pub(super) bsrange: [Option<(Bytes, Bytes)>; 3],
    pub(super) bssplit: Option<String>,
    pub(super) percentage_random: [Option<u8>; 3],
    pub(super) cmdprio: [Option<u8>; 3],
    pub(super) cmdprio_class: [Option<u16>; 3],
    pub(super) cmdprio_level: [Option<u16>; 3],
    /// Value of `cmdprio_bssplit`, by direction.
    pub(super) cmdprio_split: Option<ByDirection<PrioritySplit>>,
    pub(super) rate: [Option<u64>; 3],
    pub(super) rate_iops: [Option<u64>; 3],
    /// Value of `random_distribution`, by direction.
    pub(super) distribution: [Option<Distribution>; 3],
    pub(super) sequence_stride: Option<bool>,
    pub(super) blockalign: [Option<Bytes>; 3],
    pub(super) is_strided: bool,
    pub(super) zonesize: Option<Bytes>,
    pub(super) zonerange: Option<Bytes>,
    pub(super) zoneskip: Option<Bytes>,
    pub(super) filename: Option<String>,
    pub(super) directory: Option<String>,
    /// True if the engine is libblkio with its io_uring driver.
    pub(super) is_ring_of_libblkio: bool,
    pub(super) libblkio_path: Option<String>,
    pub(super) nrfiles: Option<u64>,
    pub(super) filesize: Option<Bytes>,
    pub(super) offset_increment: Option<Bytes>,
    pub(super) size: Option<Bytes>,
    pub(super) io_size: Option<Bytes>,
    pub(super) number_ios: Option<u64>,
    pub(super) loops: Option<u64>,
    pub(super) runtime: Option<Nanos>,
    pub(super) time_based: Option<bool>,
    pub(super) startdelay: Option<Nanos>,
    pub(super) stonewall: Option<bool>,
    pub(super) end_fsync: Option<bool>,
    pub(super) overwrite: Option<bool>,
    pub(super) fallocate: Option<FileLayout>,
    pub(super) goes_on: bool,
    pub(super) verify_only: Option<bool>,
    /// Errors that do not end the job, from `ignore_error` and from `continue_on_error` with `read` or `write`.
    pub(super) tolerated: Vec<Tolerated>,
    pub(super) wait_for: Option<String>,
    pub(super) flow_id: Option<u64>,
    pub(super) fill_device: Option<bool>,
    pub(super) seed: Option<u64>,
    /// Notes for the user on values that mean something else in iotax than in fio.
    pub(super) notes: Vec<String>,
}

impl JobBuilder {
    pub(super) fn rw(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let (word, step) =
            value.text.split_once(':').map_or((value.text, None), |(word, step)| (word, Some(step)));
        if matches!(word, "trimwrite" | "randtrimwrite") {
            return Err(
                "trims cannot be mixed with writes; use rw = trim or randtrim in a job of its own".into()
            );
        }
        self.keys.rw = Some(word.parse::<Rw>().map_err(|error| error.to_string())?);
        self.step = step.map(|step| Self::step(OptionValue { text: step, ..value })).transpose()?;
        Ok(())
    }

    fn step(value: OptionValue<'_>) -> Result<i64, String> {
        let (sign, text) = value.text.strip_prefix('-').map_or((1, value.text), |text| (-1, text));
        let bytes = OptionValue { text, ..value }.bytes()?;
        i64::try_from(bytes.0).map(|bytes| sign * bytes).map_err(|_| "the step is too large".into())
    }

    pub(super) fn sequencer(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        self.is_identical = match value.text {
            "sequential" => false,
            "identical" => true,
            _ => return Err("accepted: sequential or identical".into()),
        };
        Ok(())
    }

    /// Parses ranges of block sizes for reads, writes and trims, separated by commas or slashes.
    pub(super) fn bsrange(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let text = value.text.replace('/', ",");
        self.bsrange = OptionValue { text: &text, ..value }.triple(OptionValue::range)?;
        Ok(())
    }

    /// Parses a random distribution. Omitted parameters get fio's defaults. Zones may be given per direction.
    pub(super) fn distribution(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let text = match value.text {
            "zipf" => "zipf:1.1",
            "pareto" => "pareto:0.2",
            text => text,
        };
        let parse = |text: &str| text.parse::<Distribution>().map_err(|error| error.to_string());
        let kind = ["zoned:", "zoned_abs:"].into_iter().find(|kind| text.starts_with(kind));
        self.distribution = if let Some(kind) = kind {
            let zones = OptionValue { text: &text[kind.len()..], ..value };
            zones.triple(|part| parse(&format!("{kind}{}", part.text)))?
        } else {
            let one = parse(text)?;
            [Some(one.clone()), Some(one.clone()), Some(one)]
        };
        Ok(())
    }

    /// Parses I/O priorities by block size; a share of 0 is accepted, as in fio.
    pub(super) fn cmdprio_bssplit(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let entry = |text: &str| {
            let (length, rest) = text.split_once('/').ok_or_else(|| format!("{text:?} has no percentage"))?;
            Ok(format!("{}/{rest}", OptionValue { text: length.trim(), ..value }.bytes()?.0))
        };
        let split = |text: &str| text.split(':').map(entry).collect::<Result<Vec<_>, String>>();
        let splits = value.text.split(',').map(|text| Ok(split(text)?.join(":")));
        let text = splits.collect::<Result<Vec<_>, String>>()?.join(",");
        self.cmdprio_split = Some(text.parse().map_err(|error: TextError| error.to_string())?);
        Ok(())
    }

    /// Accepts only the io_uring driver: the others need a device that is detached from the kernel, or a daemon.
    pub(super) fn libblkio_driver(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        match value.text {
            "io_uring" => self.is_ring_of_libblkio = true,
            "virtio-blk-vhost-user" | "virtio-blk-vhost-vdpa" => {
                return Err("the server of a virtio device is part of a target, such as '/srv > raw file > virtio'; accepted: io_uring".into());
            }
            "nvme-io_uring" => {
                return Err("commands of NVMe are not sent; accepted: io_uring, on the block device".into());
            }
            _ => {
                return Err(
                    "devices are not driven past the kernel; accepted: io_uring, on the block device".into(),
                );
            }
        }
        Ok(())
    }

    pub(super) fn zonemode(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        self.is_strided = match value.text {
            "none" => false,
            "strided" => true,
            "zbd" => return Err("zones of a zoned device are not managed; accepted: none or strided".into()),
            _ => return Err("accepted: none or strided".into()),
        };
        Ok(())
    }

    pub(super) fn engine(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        // After the colon, an external engine has its path; other engines have a suboption.
        let name = value.text.split(':').next().unwrap_or_default();
        self.keys.test = operation(name);
        if self.keys.test.is_some() {
            self.keys.ioengine = None;
            return Ok(());
        }
        let (engine, note) = match (done_by(name), nearest(name)) {
            (Some((engine, note)), _) => (engine, Some(note)),
            (None, Some(nearest)) => return Err(format!("ioengine = {name} is not supported: {nearest}")),
            (None, None) => (value.text.parse().map_err(|error: WordError| error.to_string())?, None),
        };
        self.keys.ioengine = Some(engine);
        self.notes.extend(note.map(Into::into));
        Ok(())
    }

    pub(super) fn verify(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        self.keys.verify = Some(match value.text {
            "0" => Verify::None,
            "crc32c" | "crc32c-intel" => Verify::Crc32c,
            text if SUMS.contains(&text) => {
                self.notes.push(format!("verify = {text}: sectors are stamped with 64 bits of XXH3 instead"));
                Verify::Xxh3
            }
            _ => return Err(format!("accepted: crc32c, {} or 0", SUMS.join(", "))),
        });
        Ok(())
    }

    /// Parses the type of I/O buffers by fio's names; rejects buffers in a file or on a GPU.
    pub(super) fn mem(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let known = value.text.parse::<Memory>().ok().filter(|memory| *memory != Memory::Thp);
        let memory =
            known.ok_or("accepted: malloc, mmap, mmaphuge, shm, shmhuge or mmapshared, without a file")?;
        self.keys.mem = Some(memory);
        Ok(())
    }

    pub(super) fn fallocate(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        self.fallocate = Some(match value.text {
            "none" | "0" => FileLayout::Empty,
            "native" | "posix" | "1" => FileLayout::Allocated,
            "keep" => FileLayout::KeepSize,
            "truncate" => FileLayout::Sparse,
            _ => return Err("accepted: none, native, posix, keep or truncate".into()),
        });
        Ok(())
    }

    pub(super) fn continue_on_error(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        self.goes_on = matches!(value.text, "all" | "1" | "io");
        match value.text {
            "read" | "write" => self.tolerated.push(Tolerated::all(value.text)),
            "none" | "0" | "all" | "1" | "io" => {}
            _ => return Err("accepted: none, read, write, io or all".into()),
        }
        Ok(())
    }

    /// Parses the errors to ignore, as lists for reads, writes and verification. The list for verification has no effect.
    pub(super) fn ignore_error(&mut self, value: OptionValue<'_>) -> Result<(), String> {
        let lists = value.text.split(',').collect::<Vec<_>>();
        if lists.len() > 3 {
            return Err(
                "accepted: errors of reads, of writes and of verification, such as EAGAIN,ENOSPC:122".into(),
            );
        }
        for (direction, list) in ["read", "write"].into_iter().zip(lists) {
            for error in list.split(':').map(str::trim).filter(|error| !error.is_empty()) {
                self.tolerated.push(Tolerated::one(direction, error)?);
            }
        }
        Ok(())
    }
}
