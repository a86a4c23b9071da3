//! Checks the keys that define an access pattern.

use std::fmt::Display;

use super::lengths::{LENGTH, is_buffered_length, is_length};
use super::{Distribution, Test, Verify, Workload, WorkloadError};
use crate::units::Bytes;

const SECTORS: &str = "accepted: a multiple of 512";

impl Workload {
    /// Rejects combinations of pattern keys that no engine can run.
    pub(super) fn check_pattern(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        let is_free = !self.direct && self.verify == Verify::None && is_buffered_length(self.bs);
        if !is_length(self.bs) && !is_free {
            let accepted = format!("accepted: {LENGTH}; with direct = false and no verify any from 1");
            return refuse("bs", &self.bs, &accepted);
        }
        if let (Some(_), Some(split)) = (&self.bsrange, &self.bssplit) {
            return refuse("bssplit", split, "bsrange is given too; use one of them");
        }
        if let Some(stride) = self.stride.filter(|_| self.rw.is_random()) {
            return refuse("stride", &stride, &format!("rw = {} is random; use a sequential one", self.rw));
        }
        if let Some(align) = self.blockalign.filter(|align| align.0 == 0 || !align.0.is_multiple_of(512)) {
            return refuse("blockalign", &align, "accepted: a multiple of 512, above 0");
        }
        if !self.offset.0.is_multiple_of(512) {
            return refuse("offset", &self.offset, SECTORS);
        }
        if let Some(bytes) = self.io_size.filter(|bytes| bytes.0 == 0 || !bytes.0.is_multiple_of(512)) {
            return refuse(
                "io_size",
                &bytes,
                "accepted: a multiple of 512, above 0; left out, there is no end",
            );
        }
        if let (Some(_), Some(writes)) = (self.fsync, self.fdatasync) {
            return refuse("fdatasync", &writes, "fsync is given too, and does more; use one of them");
        }
        if let Some(range) = self.sync_file_range.filter(|_| self.fsync.or(self.fdatasync).is_some()) {
            return refuse(
                "sync_file_range",
                &range,
                "a flush is asked for too, and does more; use one of them",
            );
        }
        self.check_zones()?;
        self.check_sequence()?;
        self.check_size()
    }

    fn check_sequence(&self) -> Result<(), WorkloadError> {
        let Distribution::Sequence(sequence) = &self.random_distribution else { return Ok(()) };
        let refuse =
            |accepted: &str| Err(self.refusal("random_distribution", &self.random_distribution, accepted));
        if self.rw.is_random() && self.rw.reads() && self.rw.writes() {
            return refuse("a sequence is that of reads or of writes; give each a job of its own");
        }
        if self.min_bs() != self.max_bs() {
            return refuse("a sequence is of blocks of one length; use bs");
        }
        if self.percentage_random < 100 || self.zone().is_some() {
            return refuse("a sequence goes with neither percentage_random nor zones");
        }
        let unit = self.blockalign.unwrap_or(self.min_bs()).0.max(1);
        match self.size.map(|size| size.0 / unit) {
            Some(blocks) if blocks < sequence.blocks_needed() => {
                refuse(&format!("the area has {blocks} blocks, from 0; enlarge size"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the length of each zone and of the gap after it; `None` if the area is not divided into zones.
    #[must_use]
    pub fn zone(&self) -> Option<(Bytes, Bytes)> {
        let range = self.zonerange.or(self.zonesize).filter(|_| self.zonesize.is_some())?;
        Some((range, self.zoneskip.unwrap_or_default()))
    }

    fn check_zones(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        let keys = [("zonesize", self.zonesize), ("zonerange", self.zonerange), ("zoneskip", self.zoneskip)];
        for (key, value) in keys {
            match value {
                Some(_) if self.zonesize.is_none() => {
                    return refuse(key, &value.unwrap_or_default(), "needs a zonesize");
                }
                Some(value) if !value.0.is_multiple_of(512) => return refuse(key, &value, SECTORS),
                _ => {}
            }
        }
        let Some((range, _)) = self.zone() else { return Ok(()) };
        if range < self.max_bs() {
            return refuse(
                "zonerange",
                &range,
                &format!("a zone holds at least one block of {}", self.max_bs()),
            );
        }
        if self.size.is_some_and(|size| size < range) {
            return refuse("zonerange", &range, "it is longer than the area");
        }
        if self.stride.is_some() || self.percentage_random < 100 && self.rw.is_random() {
            return refuse(
                "zonesize",
                &self.zonesize.unwrap_or_default(),
                "zones go with neither stride nor percentage_random",
            );
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), WorkloadError> {
        let Some(size) = self.size else { return Ok(()) };
        // Sequential jobs and tests divide their area or file among the workers.
        let divided =
            self.test.map_or(!self.rw.is_random(), |test| !test.is_on_files() && test != Test::Seeks);
        let jobs = if divided && self.offset_increment.is_none() { u64::from(self.numjobs) } else { 1 };
        if self.test.is_none_or(|test| !test.is_on_files()) && size.0 / self.max_bs().0 < jobs {
            let accepted = format!("at least one block of {} for each job is needed", self.max_bs());
            return Err(self.refusal("size", &size.with_unit(), &accepted));
        }
        if let Some(bytes) = self.io_size.filter(|bytes| self.test.is_some() && *bytes < self.bs) {
            return Err(self.refusal(
                "io_size",
                &bytes.with_unit(),
                &format!("at least one block of {} is needed", self.bs),
            ));
        }
        if self.end().is_none_or(|end| i64::try_from(end.0).is_err()) {
            let accepted =
                format!("with offset = {} it ends beyond any file; lower one of them", self.offset);
            return Err(self.refusal("size", &size, &accepted));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::WorkloadKeys;

    #[test]
    fn what_no_pattern_can_do_is_refused() {
        for (keys, refusal) in [
            (&[("bs", "100")][..], "bs = 100: accepted: a multiple of 512"),
            (&[("bs", "0")], "bs = 0: accepted"),
            (
                &[("rw", "trim"), ("libblkio_write_zeroes_on_trim", "1")],
                "libblkio_write_zeroes_on_trim = true: needs rw = trim or randtrim, and ioengine = libblkio",
            ),
            (
                &[("rw", "write"), ("ioengine", "libblkio"), ("libblkio_write_zeroes_on_trim", "1")],
                "libblkio_write_zeroes_on_trim = true: needs rw = trim",
            ),
            (
                &[("rw", "randrw"), ("random_distribution", "sequence:1")],
                "random_distribution = sequence:1: a sequence is that of reads or of writes",
            ),
            (
                &[("size", "8k"), ("random_distribution", "sequence:0,2")],
                "sequence:0,2: the area has 2 blocks, from 0; enlarge size",
            ),
            (&[("bsrange", "4k-8k"), ("random_distribution", "sequence:1")], "of blocks of one length"),
            (
                &[("percentage_random", "50"), ("random_distribution", "sequence:1")],
                "goes with neither percentage_random nor zones",
            ),
            (&[("bsrange", "4k-8k"), ("bssplit", "4k/60:8k")], "bssplit = 4k/60:8k: bsrange is given too"),
            (&[("rwmixread", "101")], "rwmixread = 101: accepted: 0 to 100"),
            (&[("percentage_random", "101")], "percentage_random = 101: accepted: 0 to 100"),
            (&[("stride", "-4k")], "stride = -4k: rw = randread is random"),
            (&[("offset", "100")], "offset = 100: accepted: a multiple of 512"),
            (&[("io_size", "0")], "io_size = 0: accepted"),
            (&[("io_size", "4000")], "io_size = 4000: accepted"),
            (&[("loops", "0")], "loops = 0: accepted: 1 and more"),
            (&[("fsync", "0")], "fsync = 0: accepted: 1 and more"),
            (&[("fsync", "1"), ("fdatasync", "2")], "fdatasync = 2: fsync is given too"),
            (
                &[("fdatasync", "1"), ("sync_file_range", "write:1")],
                "sync_file_range = write:1: a flush is asked",
            ),
            (&[("size", "1k")], "size = 1k: at least one block of 4k"),
            (&[("size", "4k"), ("bssplit", "4k/90:8k")], "size = 4k: at least one block of 8k"),
            (
                &[("size", "8k"), ("numjobs", "3"), ("rw", "read")],
                "size = 8k: at least one block of 4k for each job",
            ),
            (&[("size", "8000p"), ("offset", "8000p")], "it ends beyond any file"),
        ] {
            let mut own = WorkloadKeys::default();
            keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
            let error = own.complete(&WorkloadKeys::default()).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
