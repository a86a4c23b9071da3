//! Fuzzes job files: each is rejected with a reason, or parsed into valid workloads.
#![no_main]

use iotax_interop::jobs::{
    Included, Jobs, JobsError, MachineKeywords, Surroundings, is_job_file, read, vdbench,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = is_job_file(text);
    let around = Surroundings {
        // What includes itself ends somewhere.
        include: &|_, name| Ok(Included { file: name.to_owned(), text: text.to_owned() }),
        variable: &|name| (name.len() < 9).then(|| name.to_owned()),
        machine: MachineKeywords { pagesize: 4096, mb_memory: 8192, ncpus: 4 },
        size: None,
    };
    check(read("job.fio", text, &[], &around));
    let _ = vdbench::is_meant(text);
    check(vdbench::read("parameters", text));
});

fn check(jobs: Result<Jobs, JobsError>) {
    match jobs {
        Ok(jobs) => jobs.workloads.iter().for_each(|workload| workload.check().expect("it is checked")),
        Err(JobsError(complaints)) => {
            assert!(!complaints.is_empty());
            assert!(complaints.iter().all(|complaint| !complaint.why.is_empty()));
        }
    }
}
