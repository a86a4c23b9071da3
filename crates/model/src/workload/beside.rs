//! Concurrent jobs of a workload, which access one target at the same time.

use std::collections::HashSet;

use super::{ASSUMED, Verify, Workload, WorkloadError};
use crate::units::{Bytes, Nanos};

impl Workload {
    /// Returns all concurrent jobs of the workload, this one first.
    pub fn jobs(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.beside)
    }

    /// Returns the name of this job alone. A workload with several jobs is named after all of them: `a+b`. Also leaves out the prefix (up
    /// to `: `) or suffix that makes the name of such a workload unique.
    #[must_use]
    pub fn own_name(&self) -> &str {
        let others: String = self.beside.iter().flat_map(|job| ["+", &job.name]).collect();
        if others.is_empty() {
            return &self.name;
        }
        let own = self.name.rfind(&others).map(|end| &self.name[..end]);
        own.map_or(self.name.as_str(), |own| own.rsplit_once(": ").map_or(own, |(_, own)| own))
    }

    /// Returns the time from the start of the load to the end of the measured window: warm-up, runtime, and the start delays of jobs.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        // With several jobs, the delay is part of the window.
        let delay = self.startdelay.filter(|_| self.beside.is_empty()).map_or(0, |delay| delay.0);
        Nanos(delay.saturating_add(self.ramp_time.0).saturating_add(self.window().0))
    }

    /// Returns the length of the measured window, up to the end of the last job. Start delays count if there are several jobs.
    #[must_use]
    pub fn window(&self) -> Nanos {
        let end = |job: &Self| job.startdelay.map_or(0, |delay| delay.0).saturating_add(job.runtime.0);
        if self.beside.is_empty() { self.runtime } else { Nanos(self.jobs().map(end).max().unwrap_or(0)) }
    }

    /// Estimates [`Self::duration`], including the creation of files. The time of a job that ends by itself is estimated from its rate,
    /// from its number of system calls, or at [`ASSUMED`] bytes per second, which concurrent jobs share.
    #[must_use]
    pub fn expected_time(&self) -> Nanos {
        let longest = self.duration();
        let before = longest.0.saturating_sub(self.window().0).saturating_add(self.time_of_set_up());
        let delay =
            |job: &Self| job.startdelay.filter(|_| !self.beside.is_empty()).map_or(0, |delay| delay.0);
        let ends = self.jobs().map(|job| delay(job).saturating_add(job.own_time()));
        let last = ends.max().unwrap_or(0);
        let shared = self.jobs().filter(|job| !job.is_open_loop() && job.amount().is_some());
        let shared = shared.map(Self::own_time).fold(0, u64::saturating_add);
        Nanos(before.saturating_add(last.max(shared).min(self.window().0)))
    }

    /// Estimates the time of this job without its concurrent jobs, in nanoseconds; at most its runtime.
    fn own_time(&self) -> u64 {
        if let Some(calls) = self.time_of_calls() {
            return calls.min(self.runtime.0);
        }
        let Some(Bytes(bytes)) = self.amount() else { return self.runtime.0 };
        let jobs = u64::from(self.numjobs);
        let rate =
            self.rate.map(|rate| rate.0).or(self.rate_iops.map(|ios| ios.saturating_mul(self.min_bs().0)));
        let speed = rate.map_or(ASSUMED, |rate| rate.saturating_mul(jobs).max(1));
        let work = u128::from(bytes) * 1_000_000_000 / u128::from(speed);
        u64::try_from(work).map_or(self.runtime.0, |work| work.min(self.runtime.0))
    }

    /// Returns the length of the range that the areas of all `numjobs` workers cover: `size`, or more with `offset_increment`, by which
    /// each worker's area of `size` bytes is shifted. `None` on overflow.
    #[must_use]
    pub fn span(&self, size: Bytes) -> Option<Bytes> {
        let step = self.offset_increment.map_or(0, |increment| increment.0);
        step.checked_mul(u64::from(self.numjobs.max(1)) - 1)?.checked_add(size.0).map(Bytes)
    }

    /// Returns the highest end of the areas of all concurrent jobs, from the start of the target. Jobs without a size are ignored; `None`
    /// if no job has one.
    #[must_use]
    pub fn end(&self) -> Option<Bytes> {
        let end = |job: &Self| job.span(job.size?)?.0.checked_add(job.offset.0).map(Bytes);
        self.jobs().filter_map(end).max()
    }

    /// Rejects concurrent jobs that exclude each other, several jobs if any of them has no `size`, and an invalid `offset_increment`.
    pub(super) fn check_beside(&self) -> Result<(), WorkloadError> {
        if let Some(increment) = self.offset_increment {
            let refuse = |accepted: &str| Err(self.refusal("offset_increment", &increment, accepted));
            if !increment.0.is_multiple_of(512) {
                return refuse("accepted: a multiple of 512");
            }
            if self.size.is_none() {
                return refuse("it needs a size: that of each job's area");
            }
            if self.verify != Verify::None && self.numjobs > 1 {
                return refuse(
                    "jobs with areas of their own cannot verify; use numjobs = 1 with others beside it",
                );
            }
        }
        let mut names = HashSet::from([self.name.as_str()]);
        for job in &self.beside {
            let refuse = |key, value: &dyn std::fmt::Display, accepted: &str| {
                Err(self.refusal("beside", &format!("{:?} with {key} = {value}", job.name), accepted))
            };
            if !names.insert(&job.name) {
                return refuse("name", &job.name, "jobs are told apart by name");
            }
            if !job.beside.is_empty() {
                return refuse("beside", &job.beside[0].name, "put all of them beside the first");
            }
            if let Some(path) = self.write_journal.as_ref().or(job.write_journal.as_ref()) {
                return refuse("write_journal", path, "a journal is kept by one job alone");
            }
            if job.size.is_none() {
                return refuse("size", &"nothing", "each of several jobs needs a size");
            }
            if let Some(test) = self.kind.test().or(job.kind.test()) {
                return refuse("test", &test, "tests run alone");
            }
            job.check()
                .map_err(|error| self.refusal("beside", &format!("{:?}", job.name), &error.reason()))?;
        }
        if !self.beside.is_empty() && self.size.is_none() {
            return Err(self.refusal("size", &"nothing", "each of several jobs needs a size"));
        }
        self.check_apart()
    }

    /// Rejects jobs that write to an area that another job verifies.
    fn check_apart(&self) -> Result<(), WorkloadError> {
        let area = |job: &Self| {
            let length = job.size.and_then(|size| job.span(size)).map_or(0, |span| span.0);
            job.offset.0..job.offset.0.saturating_add(length)
        };
        for job in self.jobs().filter(|job| job.verify != Verify::None) {
            let own = area(job);
            let meets = |other: &&Self| {
                let theirs = area(other);
                other.name != job.name && other.modifies() && own.start < theirs.end && theirs.start < own.end
            };
            if let Some(other) = self.jobs().find(meets) {
                let accepted = format!(
                    "{:?} writes to the same area; give each an area of its own by offset",
                    other.name
                );
                return Err(job.refusal("verify", &job.verify, &accepted));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;

    fn keys(name: &str, pairs: &[(&str, &str)]) -> WorkloadKeys {
        let mut keys = WorkloadKeys { name: Some(name.into()), ..WorkloadKeys::default() };
        pairs.iter().for_each(|(key, text)| keys.set(key, text).expect(text));
        keys
    }

    fn workload(first: &[(&str, &str)], second: &[(&str, &str)]) -> Workload {
        let mut all = keys("a", first);
        all.beside = vec![keys("b", second)];
        all.complete(&WorkloadKeys::default())
    }

    #[test]
    fn areas_and_windows_are_those_of_all_jobs() {
        let one = workload(
            &[("size", "8m"), ("runtime", "2s"), ("ramp_time", "1s")],
            &[
                ("size", "4m"),
                ("offset", "8m"),
                ("numjobs", "3"),
                ("offset_increment", "4m"),
                ("startdelay", "1s"),
                ("runtime", "3s"),
                ("rw", "write"),
            ],
        );
        assert_eq!(one.check(), Ok(()));
        assert_eq!(one.end(), Some(Bytes(20 << 20)));
        assert_eq!((one.window(), one.duration()), (Nanos::from_secs(4), Nanos::from_secs(5)));
        assert!(one.modifies() && !one.rw.modifies());
        assert_eq!(one.own_name(), "a");
        assert_eq!(Workload { name: "a+b".into(), ..one }.own_name(), "a");
        let alone = keys("a", &[("size", "8m"), ("startdelay", "1s"), ("runtime", "2s")]);
        assert_eq!(alone.complete(&WorkloadKeys::default()).window(), Nanos::from_secs(2));
    }

    #[test]
    fn jobs_that_end_by_themselves_are_not_priced_by_their_cap() {
        let cap = [("size", "200m"), ("loops", "1"), ("runtime", "1h"), ("ramp_time", "1s")];
        let with = |more: &[(&'static str, &'static str)]| [&cap[..], more].concat();
        let seconds = |first: &[_], second: &[_]| workload(first, second).expected_time().as_secs_f64();
        // 200 MiB at 200 MB/s are 1.05 s, and both jobs move as much.
        assert!((seconds(&cap, &cap) - 3.097).abs() < 0.001, "{}", seconds(&cap, &cap));
        let timed = [("size", "200m"), ("runtime", "9s"), ("ramp_time", "1s")];
        assert!((seconds(&cap, &timed) - 10.0).abs() < 0.001);
        let late = with(&[("startdelay", "5s")]);
        assert!((seconds(&cap, &late) - 7.049).abs() < 0.001, "{}", seconds(&cap, &late));
        let slow = with(&[("rate_iops", "5120"), ("bs", "4k"), ("numjobs", "2"), ("rw", "randread")]);
        assert!((seconds(&cap, &slow) - 11.0).abs() < 0.001, "{}", seconds(&cap, &slow));
        let short = with(&[("io_size", "800g")]);
        assert_eq!(workload(&short, &timed).expected_time(), workload(&short, &timed).duration());
    }

    #[test]
    fn the_first_job_has_a_name_of_its_own() {
        for (name, own) in [
            ("a+b", "a"),
            ("a+b-2", "a"),
            ("rd1: a+b", "a"),
            ("rd1", "rd1"),
            ("b+b", "b"),
            ("mixed", "mixed"),
        ] {
            let mut all = workload(&[("size", "8m")], &[("size", "8m")]);
            all.name = name.into();
            assert_eq!(all.own_name(), own, "{name}");
        }
    }

    #[test]
    fn jobs_that_cannot_run_beside_one_another_are_refused() {
        for (first, second, refusal) in [
            (&[("size", "8m")][..], &[][..], "each of several jobs needs a size"),
            (&[], &[("size", "8m")], "size = nothing: each of several jobs"),
            (&[("size", "8m")], &[("size", "8m"), ("bs", "100")], "beside = \"b\": bs = 100"),
            (&[("size", "8m")], &[("size", "8m"), ("test", "getc")], "tests run alone"),
            (&[("size", "8m")], &[("size", "8m"), ("offset_increment", "100")], "a multiple of 512"),
            (
                &[("size", "8m"), ("verify", "crc32c")],
                &[("size", "8m"), ("rw", "write")],
                "\"b\" writes to the same area",
            ),
        ] {
            let error = workload(first, second).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        let apart = workload(
            &[("size", "8m"), ("rw", "write"), ("verify", "crc32c")],
            &[("size", "8m"), ("rw", "write"), ("offset", "8m")],
        );
        assert_eq!(apart.check(), Ok(()));
    }
}
