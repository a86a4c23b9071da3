//! Tests of fio's job files: run by iotax, and parsed like fio.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

const JOBS: &str = "; Two at the same time, then one.
[global]
size=4m
runtime=300ms
time_based
direct=1
include common.inc

[reader]
rw=randread
iodepth=4
ioengine=io_uring

[writer]
rw=write
bs=64k
numjobs=2

[after]
stonewall
rw=randrw
rwmixread=70
";

fn file(lab: &Lab, name: &str, content: &str) -> PathBuf {
    let path = lab.path(name);
    fs::write(&path, content).expect("written");
    path
}

fn named<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter().find(|one| one[key] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn sections_are_measured_at_once_and_after_one_another() {
    let lab = Lab::new();
    file(&lab, "common.inc", "thread\ngroup_reporting=1\n");
    let path = file(&lab, "job.fio", JOBS);
    let (path, work) = (path.to_str().expect("utf-8"), lab.work().display().to_string());
    let output = lab.run(&["run", path, "--target", &work, "--yes", "--repeat", "1", "--json", "-"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["note: stonewall:", "note: files:", "thread (", "changes nothing here"] {
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&run);
    let measured = &run["measurements"];
    let together = named(measured, "workload", "reader+writer");
    for (name, direction) in [("reader", "read"), ("writer", "write")] {
        let share = named(&together["jobs"], "name", name);
        assert!(share[direction]["ios"].as_u64() > Some(0), "{share}");
    }
    let after = named(measured, "workload", "after");
    assert!(after["metrics"]["iops"].as_f64() > Some(0.0), "{after}");
    lab.assert_nothing_left();
}

#[test]
fn a_bench_takes_its_work_from_a_job_file() {
    let lab = Lab::new();
    let path = file(&lab, "job.fio", JOBS.replace("include common.inc\n", "").as_str());
    let (path, work) = (path.to_str().expect("utf-8"), lab.work().display().to_string());
    let run = lab.json(&["bench", &work, "--job", path, "--section", "after", "--json", "-"]);
    let workloads = run["workloads"].as_array().expect("workloads");
    assert_eq!(workloads.len(), 1, "{workloads:?}");
    assert_eq!((&workloads[0]["rwmixread"], &workloads[0]["direct"]), (&70.into(), &true.into()));
    let refused = lab.run(&["bench", &work, "--job", path, "--bs", "8k"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--job says what is done"), "{}", text(&refused.stderr));
}

#[test]
fn a_parameter_file_of_vdbench_is_carried_out() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let path = file(
        &lab,
        "params.vdb",
        &format!(
            "* two lengths\nsd=sd1,lun={work}/vdb,size=4m,threads=2\nwd=wd1,sd=sd1,rdpct=70\n\
             rd=rd1,wd=wd1,iorate=max,elapsed=1,forxfersize=(4k,64k)\n"
        ),
    );
    let path = path.to_str().expect("utf-8");
    let output = lab.run(&["run", path, "--yes", "--repeat", "1", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&run);
    for name in ["rd1-xfersize4k", "rd1-xfersize64k"] {
        let measured = named(&run["measurements"], "workload", name);
        assert!(measured["metrics"]["iops"].as_f64() > Some(0.0), "{measured}");
    }
    let refused = lab.run(&["plan", "show", path, "--section", "rd1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--section rd1: it is for job files of fio"));
    let apart = "[a]\nfilename=one/x\nsize=1m\n[b]\nfilename=two/y\nsize=1m\n";
    let apart = file(&lab, "apart.fio", apart);
    let refused = lab.run(&["plan", "show", apart.to_str().expect("utf-8")]);
    assert!(text(&refused.stderr).contains("two/y: it is in ./two"), "{}", text(&refused.stderr));
    lab.assert_nothing_left();
}

#[test]
fn a_curve_of_vdbench_is_carried_out() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let text_of = format!(
        "sd=sd1,lun={work}/vdb,size=4m,threads=4\nwd=wd1,sd=sd1,rdpct=100\n\
         rd=rd1,wd=wd1,iorate=curve,curve=(10-50,20),elapsed=2\n"
    );
    let path = file(&lab, "curve.vdb", &text_of);
    let output = lab.run(&["run", path.to_str().expect("utf-8"), "--yes", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&run);
    let points = run["curves"][0]["points"].as_array().expect("points");
    let offered: Vec<f64> = points.iter().map(|point| point["offered"].as_f64().expect("a rate")).collect();
    assert_eq!(offered.len(), 3, "{points:?}");
    // Rates are rounded up by as much as 100.
    assert!((offered[1] / offered[0] - 3.0).abs() < 0.5 && (offered[2] / offered[0] - 5.0).abs() < 0.9);
    let lines = lab.run(&["export", "1", "--format", "vdbench", "--output", "-"]);
    let lines = text(&lines.stdout);
    assert!(lines.contains("Starting RD=rd1; I/O rate: Uncontrolled curve;"), "{lines}");
    for (share, rate) in ["10", "30", "50"].into_iter().zip(offered) {
        let line = format!("Starting RD=rd1_({share}%); I/O rate: {rate:.0};");
        assert!(lines.contains(&line), "{line}\n{lines}");
    }
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_taken_is_refused_with_every_line() {
    let lab = Lab::new();
    let path = file(&lab, "bad.job", "[a]\nsize=1m\nrw=raed\nbogus=1\nnice=1\n");
    let output = lab.run(&["plan", "show", path.to_str().expect("utf-8")]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    for words in ["bad.job:3: rw=raed", "bad.job:4: bogus=1", "bad.job:5: nice=1: use nice(1)"] {
        assert!(said.contains(words), "{words:?} is not in\n{said}");
    }
    // A plan has its targets in it, and a file that exists is not written.
    let plan = lab.plan("[[target]]\nname = 'a'\nfile = { dir = 'WORK' }\n[[workload]]\nrw = 'read'");
    let plan = lab.run(&["plan", "show", plan.to_str().expect("utf-8"), "--target", "x"]);
    assert!(text(&plan.stderr).contains("--target x: it is for job files"), "{}", text(&plan.stderr));
    file(&lab, "mine", &"x".repeat(1 << 20));
    let path = file(&lab, "write.fio", "[a]\nrw=write\nsize=1m\nfilename=mine\n");
    let output = lab.run(&["run", path.to_str().expect("utf-8"), "--yes"]);
    assert!(!output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(lab.path("mine")).expect("still there").iter().all(|byte| *byte == b'x'));
}

/// Job files without a size that fio accepts, because a null engine moves no data.
const TAKEN: &[&str] = &[
    "[a]\nrw=read",
    "[a]\nreadwrite=randrw\nrwmixwrite=30",
    "  [a]\n  bs = 4k ; a comment\n# another",
    "[global]\nbs=8k\n[a]\n[global]\nbs=16k\n[b]\nstonewall",
    "[a]\nnorandommap\ntime_based\nruntime=300ms\nzero_buffers",
    "[a]\nbs=4k,8k,16k",
    "[a]\nblocksize_range=4k-8k/8k-16k",
    "[a]\nrw=randread\nbssplit=4k/50:8k/50,64k",
    "[a]\nrw=read:4k",
    "[a]\nruntime=1d\nramp_time=500ms\nstartdelay=1",
    "[a]\nthinktime=500\nthinktime_blocks=4",
    "[a]\nrate=1m,2m,3m\nrate_process=poisson",
    "[a]\nbuffer_pattern=\"abc\"",
    "[a]\nrandom_distribution=zoned:50/5:50/95\nrw=randread",
    "[a]\nwait_for_previous\nthread=0\ngroup_reporting",
    "[a]\nwrite_bw_log\nwrite_lat_log=name",
    "[a]\nioengine=libaio\niodepth=0x10\ndirect=1",
    "[a]\nrwmixread=60%",
    "[a]\nbs=$pagesize*2",
    "[a]\nverify=crc32c\nrw=write",
    "[a]\ndescription=a = b",
    "[a]\nkb_base=1000\nbs=4096",
    "[a]\nmem=mmapshared",
    "[a]\nrw=write\nfallocate=keep\nfadvise_hint=sequential",
    "[a]\nsize=1m\n[b]\nwait_for=a\nsize=1m\nexitall",
    "[a]\ncpus_allowed=0\ncpus_allowed_policy=split\nprio=2\nprioclass=2",
    "[a]\nnuma_cpu_nodes=0",
    "[a]\nflow=2\nignore_error=,ENOSPC:122",
    "[a]\ncontinue_on_error=write\nthreads=1",
    "[a]\nrw=randread\nblockalign=8k",
    "[a]\nrw=randread\nrandom_distribution=zoned:50/5:30/15:20/",
    "[a]\nrw=randread\nrandom_distribution=zoned_abs:50/1m:50/2m",
    "[a]\nrw=randrw\nrate=300,100",
    "[a]\nzonemode=strided\nzonesize=64k\nzoneskip=1m",
    "[a]\nverify=md5\nrw=write\nverify_backlog=4",
    "[a]\nverify=meta\ndo_verify=0",
    "[a]\nio_submit_mode=offload",
    "[a]\nrw=write\ndedupe_percentage=50\ndedupe_mode=working_set",
    "[a]\nioengine=posixaio",
    "[a]\nss=iops:10%\nss_dur=30s\nss_ramp=10s",
    "[a]\niodepth_batch=4\niodepth_batch_complete_max=8",
    "[a]\nioengine=libaio\ncmdprio_percentage=20\ncmdprio_class=2",
    "[a]\nrw=randwrite\nverify=crc32c\nverify_only",
    "[a]\nrate=1m\nratemin=512k",
    "[a]\nrw=randwrite\nfilename=x\nio_size=500000",
    "[]",
];

/// Job files that fio refuses.
const NOT_TAKEN: &[&str] = &[
    "rw=read\n[a]",
    "[a]\nrw=readd",
    "[a]\nbogus=1",
    "[a]\nSIZE=1m",
    "[a]\ndirect",
    "[a]\ndirect=yes",
    "[a]\ndirect=2",
    "[a]\ngroup_reporting=yes",
    "[a]\nrwmixread=101",
    "[a]\niodepth=0",
    "[a]\nbs=0",
    "[a]\nbs=$ncpus*2k",
    "[a]\nverify=foo",
    "[a]\nsync=2",
    "[a]\nbuffer_pattern=abc",
    "[a]\ndedupe_percentage=101",
    "[a]\nbuffer_compress_percentage=150",
    "[a]\nkb_base=10",
    "[a]\nzonemode=bad",
    "[a]\nmem=foo",
    "[a]\nfallocate=maybe",
    "[a]\nfadvise_hint=maybe",
    "[a]\nprio=9",
    "[a]\nrw=randread\nrandom_distribution=zoned:50/5",
    "[a]\nrate_process=foo",
    "[a]\nrandseed=x",
    "[a]\nfilename=${NONE_SUCH}",
    "[a]\nend_fsync",
];

#[test]
fn fio_takes_what_is_taken_and_refuses_what_is_refused() {
    require!(program "fio");
    let lab = Lab::new();
    let (work, takes) = (lab.work().display().to_string(), |path: &PathBuf| {
        let fio = Command::new("fio").arg("--parse-only").arg(path).current_dir(lab.work()).output();
        fio.expect("fio starts").status.success()
    });
    for (jobs, taken) in
        TAKEN.iter().map(|jobs| (jobs, true)).chain(NOT_TAKEN.iter().map(|jobs| (jobs, false)))
    {
        // The one difference: a job without a name.
        let by_us = taken && *jobs != "[]";
        let sized = jobs.replacen("]\n", "]\nsize=64m\n", 1);
        let path = file(&lab, "job.fio", &if sized == *jobs { format!("{jobs}\nsize=64m") } else { sized });
        assert_eq!(takes(&path), taken, "fio:\n{jobs}");
        let shown = lab.run(&["plan", "show", path.to_str().expect("utf-8"), "--target", &work]);
        assert_eq!(shown.status.success(), by_us, "{jobs}\n{}", text(&shown.stderr));
    }
}

#[test]
fn sizes_are_what_fio_makes_of_them() {
    require!(program "fio");
    let lab = Lab::new();
    for size in
        ["size=1000k", "size=1000kb", "size=1000ki", "size=1000KiB", "size=1mib", "size=512*$pagesize"]
    {
        for base in ["", "kb_base=1000\n"] {
            let path = file(&lab, "job.fio", &format!("[a]\nioengine=null\nbs=512\nthread\n{base}{size}\n"));
            let path = path.to_str().expect("utf-8");
            let fio = Command::new("fio").args(["--minimal", path]).current_dir(lab.work()).output();
            let terse = text(&fio.expect("fio starts").stdout);
            // KiB that were read, rounded down, are the first figure of terse output.
            let read: u64 = terse.split(';').nth(5).and_then(|field| field.parse().ok()).expect("a figure");
            let work = lab.work().display().to_string();
            let plan = text(&lab.run(&["plan", "show", path, "--toml", "--target", &work]).stdout);
            let plan = iotax_model::Plan::from_toml(&plan).expect(&plan);
            let ours = plan.workloads[0].size.expect("a size").0;
            assert_eq!(ours / 512 * 512 / 1024, read, "{base}{size}");
        }
    }
}

#[test]
fn a_confined_job_file_includes_nothing_from_elsewhere() {
    let lab = Lab::new();
    let work = lab.work();
    let secret = file(&lab, "secret.txt", "[global]\npassword=swordfish\n");
    std::os::unix::fs::symlink(&secret, work.join("link.inc")).expect("linked");
    fs::write(work.join("own.inc"), "password=mine\n").expect("written");
    let path = work.join("inc.fio");
    let (job, confine) = (path.to_str().expect("utf-8"), work.to_str().expect("utf-8"));
    let said = |included: &str| {
        fs::write(&path, format!("[a]\nrw=read\nsize=1m\ninclude {included}\n")).expect("written");
        let output = lab.run(&["run", job, "--confine", confine, "--yes"]);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    for included in [secret.to_str().expect("utf-8"), "../secret.txt", "link.inc", "/none"] {
        let said = said(included);
        assert!(said.contains(&format!("inc.fio:4: include {included}: --confine {confine}: ")), "{said}");
        assert!(said.contains("a file elsewhere is not read") && !said.contains("swordfish"), "{said}");
    }
    assert!(said("own.inc").contains("password=mine"));
}

#[test]
fn a_job_file_may_begin_with_a_byte_order_mark() {
    let lab = Lab::new();
    let vdbench =
        "sd=sd1,size=1m\nwd=wd1,sd=sd1,xfersize=4k\nrd=rd1,wd=wd1,iorate=max,elapsed=1,interval=1\n";
    for (name, text) in [("mark.fio", "[a]\nrw=read\nsize=1m\n"), ("mark.vdb", vdbench)] {
        let path = file(&lab, name, &format!("\u{feff}{text}"));
        let output = lab.run(&["plan", "show", path.to_str().expect("utf-8")]);
        assert!(output.status.success(), "{name}: {}", crate::lab::text(&output.stderr));
    }
}
