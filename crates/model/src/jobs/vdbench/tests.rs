//! Parameter files and the resulting workloads.

use super::*;
use crate::units::{Bytes, Nanos};
use crate::workload::{RateProcess, Rw, Workload};
use proptest::prelude::*;

fn good(text: &str) -> Jobs {
    read("test.vdb", text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn names(jobs: &Jobs) -> Vec<&str> {
    jobs.workloads.iter().map(|workload| workload.name.as_str()).collect()
}

#[test]
fn a_plain_file_becomes_one_workload() {
    let text = "* a remark\n# another\n/ and another\n\
        sd=sd1,lun=/dev/sdx,size=10g,threads=16,openflags=o_direct  a remark\n\
        wd=wd1,sd=sd1,xfersize=8k,rdpct=70,\n  seekpct=100\n\
        rd=rd1,wd=wd1,iorate=max,elapsed=2m,warmup=10,interval=1\n";
    assert!(is_meant(text) && !is_meant("[job]\nrd=x") && !is_meant("name = \"x\""));
    let jobs = good(text);
    assert_eq!(
        jobs.filenames.iter().map(|(place, lun)| (place.line, lun.as_str())).collect::<Vec<_>>(),
        [(4, "/dev/sdx")]
    );
    assert_eq!(jobs.notes, ["test.vdb:7: interval=1: figures come in intervals of their own here"]);
    let [
        Workload {
            name,
            rw,
            bs,
            iodepth,
            rwmixread,
            size,
            direct,
            runtime,
            ramp_time,
            rate_iops,
            beside,
            ..
        },
    ] = jobs.workloads.as_slice()
    else {
        panic!("{jobs:?}")
    };
    assert_eq!((name.as_str(), *rw, *bs, *iodepth, *rwmixread), ("rd1", Rw::RandRw, Bytes(8192), 16, 70));
    assert_eq!((*size, *direct, *rate_iops), (Some(Bytes(10 << 30)), true, None));
    assert_eq!((*runtime, *ramp_time), (Nanos::from_secs(120), Nanos::from_secs(10)));
    assert_eq!(beside, &[]);
}

#[test]
fn loops_and_rates_are_workloads_each() {
    let jobs = good(
        "sd=sd1,lun=/x,size=1g\nwd=default,xfersize=4k\nwd=wd1,sd=sd*\n\
         rd=rd1,wd=wd1,iorate=(100-300,100),forthreads=(1-4,d),forxfersize=(4k,64k),distribution=deterministic\n",
    );
    assert_eq!(jobs.workloads.len(), 3 * 3 * 2);
    assert_eq!(
        names(&jobs)[..4],
        [
            "rd1-threads1-xfersize4k-iorate100",
            "rd1-threads1-xfersize4k-iorate200",
            "rd1-threads1-xfersize4k-iorate300",
            "rd1-threads1-xfersize64k-iorate100",
        ]
    );
    let last = jobs.workloads.last().expect("some");
    assert_eq!((last.iodepth, last.bs, last.rate_iops), (4, Bytes(65536), Some(300)));
    assert_eq!(last.rate_process, RateProcess::Linear);
    let sparse = good("sd=s,lun=/x\nwd=w,sd=s\nrd=r,wd=w,iorate=(10,max)\n");
    let rates: Vec<_> = sparse.workloads.iter().map(|w| (w.rate_iops, w.rate_process)).collect();
    assert_eq!(rates, [(Some(10), RateProcess::Poisson), (None, RateProcess::Linear)]);
}

#[test]
fn what_runs_at_once_is_beside_and_shares_the_rate() {
    let jobs = good(
        "sd=sd1,lun=/a,size=1g\nsd=sd2,lun=/b,size=2g\n\
         wd=wd1,sd=sd1,skew=25,rdpct=0\nwd=wd2,sd=(sd1,sd2),skew=75,seekpct=eof\n\
         rd=rd1,wd=wd*,iorate=1000\n",
    );
    let [workload] = jobs.workloads.as_slice() else { panic!("{jobs:?}") };
    let parts: Vec<_> = std::iter::once(workload)
        .chain(&workload.beside)
        .map(|part| (part.name.as_str(), part.rw, part.rate_iops, part.offset.0 >> 30, part.loops))
        .collect();
    assert_eq!(
        parts,
        [
            ("rd1: wd1-sd1+wd2-sd1+wd2-sd2", Rw::RandWrite, Some(250), 0, None),
            ("wd2-sd1", Rw::Read, Some(375), 0, Some(1)),
            ("wd2-sd2", Rw::Read, Some(375), 1, Some(1)),
        ]
    );
    assert_eq!(jobs.notes, ["2 storages are laid out one behind the other on the target"]);
}

#[test]
fn areas_lengths_and_hits_have_their_keys() {
    let jobs = good(
        "sd=sd1,lun=/a,size=100m,range=(50,60),hitarea=1m,openflags=(o_direct,o_sync)\n\
         sd=sd2,lun=/a,range=(1m,3m)\n\
         wd=wd1,sd=sd1,xfersize=(4k,30,8k,70),rhpct=40\n\
         wd=wd2,sd=sd2,xfersize=(4k,64k,4k),seekpct=0,rdpct=100\n\
         wd=wd3,sd=sd2,seekpct=0,stride=(64k,64k)\n\
         rd=rd1,wd=wd1\nrd=rd2,wd=wd2\nrd=rd3,wd=wd3\n",
    );
    let text = |w: &Workload| {
        let value = serde_json::to_value(w).expect("serializes");
        let shown = |key: &str| value.get(key).map(|v| v.to_string().replace('"', "")).unwrap_or_default();
        ["offset", "size", "sync", "random_distribution", "bssplit", "bsrange", "stride"].map(shown).join(" ")
    };
    assert_eq!(
        jobs.workloads.iter().map(text).collect::<Vec<_>>(),
        [
            "50m 10m sync zoned:40/10:60/90 4k/30:8k/70  ",
            "1m 2m none random  4k-64k ",
            "1m 2m none random   64k",
        ]
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = "sd=sd1,lun=/a,sise=1g,threads=0\n\
        hd=host2\n\
        wd=wd1,sd=sd9,rdpct=101,hotband=(10,20)\n\
        wd=wd2,sd=sd1,rhpct=10,whpct=20,rdpct=50,xfersize=(4k,8k)\n\
        rd=rd1,wd=wd1,iorate=curve,elapsed=abc,distribution=uniform\n\
        rd=rd2,wd=other,forthreads=(1-9,0)\n\
        wd=wd1,sd=sd1\n";
    let error = read("t", text).expect_err("wrong").to_string();
    for words in [
        "t:1: sise=1g: accepted for sd: lun, size, threads",
        "(did you mean \"size\"?)",
        "t:1: threads=0: accepted: 1 and more",
        "t:2: hd=host2: hosts are targets here",
        "t:3: sd=sd9: \"sd9\" is none that is defined above; accepted: sd1",
        "t:3: rdpct=101: \"101\" is not a whole number from 0 to 100",
        "t:3: hotband=(10,20): bands",
        "t:4: whpct=20: rhpct and whpct are one figure here",
        "t:4: xfersize=(4k,8k): \"8k\" is not a whole number",
        "t:5: iorate=curve: the rates of a curve follow from what iorate=max comes to",
        "t:5: elapsed=abc: \"abc\" is not a time",
        "t:5: distribution=uniform: \"uniform\" is not known here",
        "t:6: wd=other: \"other\" is none that is defined above; accepted: wd1, wd2",
        "t:6: forthreads=(1-9,0): a step of 0",
        "t:7: wd=wd1: it is defined in line 3 already",
    ] {
        assert!(error.contains(words), "{words}\n---\n{error}");
    }
    let lines: Vec<usize> = read("t", text).expect_err("wrong").0.iter().map(|c| c.place.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_cannot_be_done_names_the_way_out() {
    for (text, words) in [
        ("", "no line says where: sd=NAME"),
        ("sd=a,lun=/a\nsd=b,lun=/b\nwd=w,sd=(a,b)\nrd=r,wd=w\n", "1: sd=a: several storages are laid out"),
        ("sd=a\nwd=w,sd=a,align=4k\nrd=r,wd=w\n", "2: align=4k: accepted for wd"),
        ("sd=a,align=8k\nwd=w,sd=a\nrd=r,wd=w\n", "align=8k of a: I/Os lie on multiples of their length"),
        ("sd=a\nwd=w,sd=a,rhpct=10\nrd=r,wd=w\n", "need a size of a larger than its hitarea"),
        (
            "sd=a,openflags=o_direct\nwd=w,sd=a,xfersize=100\nrd=r,wd=w\n",
            "bs = 100: accepted: a multiple of 512",
        ),
        ("sd=a\nwd=v,sd=a,skew=10\nwd=w,sd=a\nrd=r,wd=*\n", "iorate=max with skew"),
        ("sd=a\nwd=v,sd=a,skew=10\nwd=w,sd=a,skew=20\nrd=r,wd=*,iorate=9\n", "adds up to 30, not 100"),
        ("sd=a,range=(1,2)\nwd=w,sd=a\nrd=r,wd=w\n", "percent of what?"),
        ("sd=a,lun=(x\nwd=w,sd=a\nrd=r,wd=w\n", "a bracket is not closed"),
        ("fsd=f,anchor=/x\n", "fsd=f: files as such"),
        ("sd=a\nwd=w\nrd=r,wd=w,forthreads=(1-999,1),forrdpct=(0-99,1)\n", "more than 1000 runs"),
    ] {
        let error = read("t", text).expect_err(words).to_string();
        assert!(error.contains(words), "{words}\n---\n{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused(
        text in "((sd|wd|rd|hd)=[a-z*]{0,3}(,(sd|wd|lun|size|range|xfersize|rdpct|seekpct|iorate|forthreads|stride|skew)\
                 =[(]?[0-9a-z*-]{0,6}(,[0-9a-z-]{0,4}){0,3}[)]?){0,4}\n){0,5}|.{0,40}",
    ) {
        if let Ok(jobs) = read("t", &text) {
            prop_assert!(jobs.workloads.iter().all(|workload| workload.check().is_ok()));
        }
    }
}
