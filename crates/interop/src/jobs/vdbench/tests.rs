//! Tests of the conversion from vdbench's parameter files to workloads.

use super::*;
use iotax_model::target::{PathSpec, TargetSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{RateProcess, Rw, Workload};
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
        jobs.filenames.iter().map(|(location, lun)| (location.line, lun.as_str())).collect::<Vec<_>>(),
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
fn what_two_patterns_name_is_taken_once() {
    let jobs = good("sd=sd1,lun=/a,size=1g\nwd=wd1,sd=(sd1,sd*)\nrd=rd1,wd=(wd1,wd*)\n");
    assert_eq!(jobs.workloads.len(), 1, "{jobs:?}");
    assert!(jobs.workloads[0].beside.is_empty(), "{jobs:?}");
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
        "t:3: sd=sd9: \"sd9\" is not defined above; accepted: sd1",
        "t:3: rdpct=101: \"101\" is not a whole number from 0 to 100",
        "t:3: hotband=(10,20): bands",
        "t:4: whpct=20: rhpct and whpct are one figure here",
        "t:4: xfersize=(4k,8k): \"8k\" is not a whole number",
        "t:6: rd=rd2: rd=rd1 asks for iorate=curve and this one does not",
        "t:5: elapsed=abc: \"abc\" is not a time",
        "t:5: distribution=uniform: \"uniform\" is not known here",
        "t:6: wd=other: \"other\" is not defined above; accepted: wd1, wd2",
        "t:6: forthreads=(1-9,0): a step of 0",
        "t:7: wd=wd1: it is defined in line 3 already",
    ] {
        assert!(error.contains(words), "{words}\n---\n{error}");
    }
    let lines: Vec<usize> = read("t", text).expect_err("wrong").0.iter().map(|c| c.location.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_cannot_be_done_names_the_way_out() {
    for (text, words) in [
        ("", "no line says where: sd=NAME"),
        (
            "data_errors=stop.sh\nsd=a\nwd=w,sd=a\nrd=r,wd=w\n",
            "1: data_errors=stop.sh: accepted: a number of failed I/Os",
        ),
        (
            "sd=a,ra=(90,110),size=1g\nwd=w,sd=a\nrd=r,wd=w\n",
            "1: ra=(90,110): an area does not go on at the start",
        ),
        (
            "sd=a,size=1g\nwd=w,sd=a,range=(1g,2g)\nrd=r,wd=w\n",
            "2: range=(1g,2g): it ends beyond sd=a, whose size is 1GiB",
        ),
        ("sd=a\nwd=w,range=(0,50)\nrd=r,wd=w\n", "2: range=(0,50): percent of what? sd=a has no size"),
        ("sd=a,lun=/a%x,count=(1,2)\nwd=w\nrd=r,wd=w\n", "1: count=(1,2): \"/a%x\" cannot be numbered"),
        (
            "sd=a,count=(1,0)\nwd=w\nrd=r,wd=w\n",
            "1: count=(1,0): accepted: (first,number) with a number of 1",
        ),
        (
            "sd=a1\nsd=a,count=(1,2)\nwd=w\nrd=r,wd=w\n",
            "2: sd=a: with count= another storage is named \"a1\" already",
        ),
        ("sd=a\nwd=w,skew=12.34567\nrd=r,wd=w\n", "2: skew=12.34567: \"12.34567\" is not a percentage"),
        ("sd=a\nwd=w,op=fsync\nrd=r,wd=w\n", "2: op=fsync: \"fsync\" is not known here; accepted: o_direct"),
        ("sd=a\nwd=w\nrd=r,wd=w,sd=single\n", "3: sd=single: one run for each set of storages"),
        (
            "sd=a\nwd=w\nrd=r,wd=w,io=curve,curve=(0,10)\n",
            "3: curve=(0,10): accepted: percentages from 1 to 200",
        ),
        (
            "sd=a\nwd=w\nrd=r,io=curve,dist=det\n",
            "3: dist=det: with iorate=curve I/Os come at random moments",
        ),
        ("sd=a\nwd=w\nrd=r,io=curve\nrd=s,io=curve,curve=(10-90,10)\n", "4: rd=s: its curve= is another"),
        ("sd=a,host=h1\nwd=w\nrd=r,wd=w\n", "1: host=h1: hosts are targets here"),
        ("sd=a\nrd=r,sd=a\nrd=s\n", "3: rd=s: it names neither a workload nor a storage"),
        ("sd=a,replay=g1\nwd=w\nrd=r,wd=w\n", "1: replay=g1: recorded I/O is not replayed"),
        ("rg=g1,devices=(1,2)\nsd=a\nwd=w\nrd=r,wd=w\n", "1: rg=g1: recorded I/O is not replayed"),
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
        ("fsd=f,anchor=/x\n", "no line says how long and how fast: rd=NAME"),
        ("hd=h1,system=box\nsd=a\nwd=w\nrd=r,wd=w\n", "1: hd=h1: hosts are targets here"),
        ("hd=default,clients=4\nsd=a\nwd=w\nrd=r,wd=w\n", "1: hd=default: hosts are targets here"),
        ("sd=a\nwd=w\nrd=r,wd=w,maxdata=2\n", "3: maxdata=2: \"2\" is not an amount of data"),
        ("sd=a\nsd=b\nwd=w\nrd=r,wd=w,maxdata=1g\n", "maxdata is for one workload on one storage"),
        (
            "sd=a,size=1g\nsd=b,size=1g\nwd=w,seekpct=0\nrd=r,wd=w,iorate=curve\n",
            "iorate=curve on several storages: accepted where one workload goes to random places",
        ),
        ("sd=a\nwd=w\nrd=r,wd=w,format=yes\n", "3: format=yes: it is for operations on files"),
        ("fsd=f,sizes=(4k,50,8k,50)\nfwd=g\nrd=r,fwd=g\n", "files of a storage are of one size"),
        ("fsd=f\nfwd=g,operation=mkdir\nrd=r,fwd=g\n", "operation=mkdir: directories alone"),
        ("fsd=f\nfwd=g,operation=copy\nrd=r,fwd=g\n", "nearest is iotax suite filecopy"),
        ("fsd=f\nfwd=g,operation=move\nrd=r,fwd=g\n", "nearest is test = \"rename\""),
        ("fsd=f,sizes=1m\nfwd=g,operation=read\nrd=r,fwd=g\n", "accepted: fileio=random with fileselect"),
        ("fsd=f\nfwd=g,operation=open\nrd=r,fwd=g,fwdrate=100\n", "operations on files have no rate here"),
        ("fsd=f\nfwd=g\nfwd=h\nrd=r,fwd=*\n", "2 workloads on files at the same time"),
        ("fsd=f,width=99,depth=9\nfwd=g\nrd=r,fwd=g\n", "more than 1000000 files"),
        ("fsd=f,anchor=/a\nfsd=g,anchor=/b\nfwd=h,fsd=g\nrd=r,fwd=h\n", "accepted: one anchor"),
        ("fsd=f,sizes=1m\nfwd=g,fileio=random,stopafter=9\nrd=r,fwd=g\n", "stopafter=9: accepted for fwd"),
        (
            "fsd=f,openflags=o_direct\nfwd=g,operation=delete\nrd=r,fwd=g\n",
            "test = delete goes through the page cache",
        ),
        ("sd=a\nwd=w\nrd=r,wd=w,forthreads=(1-999,1),forrdpct=(0-99,1)\n", "more than 1000 runs"),
    ] {
        let error = read("t", text).expect_err(words).to_string();
        assert!(error.contains(words), "{words}\n---\n{error}");
    }
}

#[test]
fn a_refused_definition_is_not_called_missing() {
    let error = read("t", "fs=f,anchor=/x\nrd=r,wd=g,fwdrate=max,format=yes\n").expect_err("files");
    assert!(!error.to_string().contains("missing"), "{error}");
    let quoted: Vec<&str> = error.0.iter().map(|line| line.quoted.as_str()).collect();
    assert_eq!(quoted, ["fs=f", "fwdrate=max", "format=yes", "wd=g"]);
}

#[test]
fn keywords_may_be_shortened_and_a_value_of_a_run_overrides() {
    let short = good(
        "sd=s,lu=/x,si=1g,th=4,op=o_direct\nwd=w,sd=s,xf=8k,re=50,se=0\nrd=r,wd=w,io=max,el=10,wa=2,in=1\n",
    );
    let long = good(
        "sd=s,lun=/x,size=1g,threads=4,openflags=o_direct\nwd=w,sd=s,xfersize=8k,rdpct=50,seekpct=0\n\
         rd=r,wd=w,iorate=max,elapsed=10,warmup=2,interval=1\n",
    );
    assert_eq!(short.workloads, long.workloads);
    assert_eq!(short.notes, ["test.vdb:3: in=1: figures come in intervals of their own here"]);
    let run = good("sd=s,lun=/x,size=1g\nwd=w,sd=s\nrd=r,wd=w,xf=(4k,64k),th=2,rd=0\neof\nnonsense\n");
    let all: Vec<_> =
        run.workloads.iter().map(|w| (w.name.as_str(), w.bs.0 >> 10, w.iodepth, w.rw)).collect();
    assert_eq!(all, [("r-xfersize4k", 4, 2, Rw::RandWrite), ("r-xfersize64k", 64, 2, Rw::RandWrite)]);
}

#[test]
fn a_name_where_none_is_defined_is_refused_without_an_empty_list() {
    let error = read("t", "wd=wd1,sd=sd1\nrd=rd1,wd=wd1\n").expect_err("wrong").to_string();
    assert!(error.contains("t:1: sd=sd1: \"sd1\" is not defined, nor is any other above it"), "{error}");
}

#[test]
fn storages_without_a_size_get_one_and_are_numbered() {
    let jobs = good(
        "sd=sd,lun=/dev/x%02d,count=(8,2)\nsd=log,lun=/dev/log,size=2g\nwd=w,sd=sd*\nwd=v,sd=log\nrd=r,wd=*\n",
    );
    let [workload] = jobs.workloads.as_slice() else { panic!("{jobs:?}") };
    let parts: Vec<_> =
        workload.jobs().map(|part| (part.name.as_str(), part.offset.0 >> 30, part.size)).collect();
    let one = Some(Bytes(1 << 30));
    assert_eq!(parts[1..], [("w-sd9", 1, one), ("v-log", 2, Some(Bytes(2 << 30)))]);
    assert_eq!((workload.name.as_str(), parts[0].1, parts[0].2), ("r: w-sd8+w-sd9+v-log", 0, one));
    let luns: Vec<&str> = jobs.filenames.iter().map(|(_, lun)| lun.as_str()).collect();
    assert_eq!(luns, ["/dev/x08", "/dev/x09", "/dev/log"]);
    assert_eq!(
        jobs.notes,
        [
            "sd=sd8, sd9: no size= is given, so 1GiB of the target is used for each",
            "3 storages are laid out one behind the other on the target"
        ]
    );
}

#[test]
fn a_curve_keeps_its_percentages() {
    let jobs = good("sd=s,lun=/x\nwd=a,sd=s\nrd=r,wd=a,iorate=curve,elapsed=10,forxfersize=(4k,8k)\n");
    let names: Vec<&str> = jobs.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["r-xfersize4k", "r-xfersize8k"]);
    assert!(jobs.workloads.iter().all(|workload| !workload.is_open_loop()), "the highest rate comes first");
    assert_eq!(jobs.curve.expect("a curve").shares, [10, 50, 70, 80, 90, 100]);
    let jobs = good("sd=s,lun=/x\nwd=a,sd=s\nrd=r,wd=a,iorate=curve,curve=(10-120,10),stopcurve=5\n");
    let shares: Vec<u32> = (10..=120).step_by(10).collect();
    assert_eq!(jobs.curve.expect("a curve").shares, shares);
    assert_eq!(jobs.notes, ["test.vdb:3: stopcurve=5: every rate is measured, in random order"]);
}

#[test]
fn workloads_at_once_on_a_storage_without_a_size_share_an_area() {
    let jobs = good("sd=s,lun=/x\nwd=a,sd=s\nwd=b,sd=s,rdpct=0\nrd=r1,wd=*\nrd=r2,wd=a\n");
    let sizes: Vec<Vec<_>> =
        jobs.workloads.iter().map(|workload| workload.jobs().map(|part| part.size).collect()).collect();
    assert_eq!(sizes, [vec![Some(Bytes(1 << 30)); 2], vec![None]]);
    assert_eq!(jobs.notes, ["r1: no size= is given, so 1GiB of the target is used"]);
}

#[test]
fn areas_and_flags_of_a_workload_and_storages_of_a_run_come_first() {
    let jobs = good(
        "data_errors=5\nsd=sd1,lun=/a,size=100m,range=(0,10)\nsd=sd2,lun=/b,size=100m,openflags=o_dsync\n\
         wd=default,xfersize=8k\nwd=w,sd=*,range=(50,60),openflags=directio\n\
         rd=r1,wd=w\nrd=r2,wd=w,sd=sd2\nrd=r3,sd=sd1,openflags=o_sync\n",
    );
    let parts: Vec<_> = jobs
        .workloads
        .iter()
        .flat_map(Workload::jobs)
        .map(|part| (part.name.as_str(), part.offset.0 >> 20, part.size, part.direct, part.sync.word()))
        .collect();
    let area = Some(Bytes(10 << 20));
    assert_eq!(
        parts,
        [
            ("r1: w-sd1+w-sd2", 50, area, true, "none"),
            ("w-sd2", 150, area, true, "none"),
            ("r2", 150, area, true, "none"),
            ("r3", 0, area, false, "sync"),
        ]
    );
    assert!(jobs.workloads.iter().flat_map(Workload::jobs).all(|part| part.max_errors == Some(5)));
    assert_eq!(jobs.workloads[2].bs, Bytes(8192));
}

#[test]
fn a_fractional_skew_divides_a_rate_into_whole_numbers() {
    let rates = |text: &str| {
        let jobs = good(&format!("sd=s1,lun=/a,size=1g\nsd=s2,lun=/b,size=1g\n{text}"));
        let rates = jobs.workloads[0].jobs().map(|part| part.rate_iops).collect::<Option<Vec<_>>>();
        (rates.expect("open loops"), jobs.notes[1..].to_vec())
    };
    let three = "wd=a,sd=s1,skew=0.75\nwd=b,sd=s*,skew=62.5\nwd=c,sd=s*\n";
    assert_eq!(
        rates(&format!("{three}rd=r,wd=*,iorate=10000\n")),
        (vec![75, 3125, 3125, 1838, 1837], vec![])
    );
    let (few, notes) = rates(&format!("{three}rd=r,wd=*,iorate=100\n"));
    assert_eq!((few.iter().sum::<u64>(), few), (100, vec![1, 31, 31, 19, 18]));
    assert_eq!(
        notes,
        [
            "r: rates are whole I/Os a second here: 1 instead of 0.75 for a-s1, 19 instead of 18.38 for c-s1, 18 instead of 18.38 \
             for c-s2"
        ]
    );
    assert_eq!(rates("wd=a,sd=*,io=10\nwd=b,sd=s1\nrd=r,wd=*,iorate=3\n").0, [5, 5, 3]);
}

#[test]
fn lines_that_change_no_workload_are_noted() {
    let plain = "sd=sd1,lun=/dev/sdb\nwd=wd1,sd=sd1,xfersize=4k\nrd=r1,wd=wd1,iorate=max,elapsed=60\n";
    for (line, why) in [
        ("messagescan=no", "the system's log is not read"),
        ("formatsds=yes", "what is read is filled before anything is measured"),
        ("hd=default,jvms=4", "it is this machine"),
        ("hd=localhost,jvms=4", "it is this machine"),
        ("hd=h1,system=localhost", "it is this machine"),
        ("report=(host_detail,slave_detail)", "every interval is recorded"),
        ("histogram=(default,100u,1m)", "all latencies are in the histograms"),
    ] {
        let jobs = good(&format!("{line}\n{plain}"));
        assert_eq!(jobs.workloads, good(plain).workloads, "{line}");
        let [note] = jobs.notes.as_slice() else { panic!("{:?}", jobs.notes) };
        assert!(note.starts_with("test.vdb:1: ") && note.contains(why), "{note}");
    }
    let here = good(&format!("hd=h1,system=localhost\n{}", plain.replace("wd=wd1,", "wd=wd1,host=h1,")));
    assert_eq!(here.workloads, good(plain).workloads);
    assert!(here.notes.iter().any(|note| note.ends_with("host=h1: it is this machine")), "{:?}", here.notes);
}

#[test]
fn words_are_read_whatever_their_case() {
    let upper = good(
        "SD=sd1,LUN=/dev/sdb\nWD=wd1,SD=sd1,XFERSIZE=4K,RDPCT=100,SEEKPCT=RANDOM\nRD=r1,WD=wd1,IORATE=MAX,ELAPSED=2H\n",
    );
    let lower = good(
        "sd=sd1,lun=/dev/sdb\nwd=wd1,sd=sd1,xfersize=4k,rdpct=100,seekpct=random\nrd=r1,wd=wd1,iorate=max,elapsed=7200\n",
    );
    assert_eq!(upper.workloads, lower.workloads);
    assert!(good("sd=s,lun=/x\nwd=w\nrd=r,wd=w,iorate=Curve,dist=EXP\n").curve.is_some());
}

#[test]
fn an_amount_of_data_ends_a_run() {
    let jobs = good("sd=s,lun=/x,size=1g\nwd=w,sd=s\nrd=r,wd=w,elapsed=1h,maxdata=200g\n");
    let only = &jobs.workloads[0];
    assert_eq!((only.io_size, only.loops), (Some(Bytes(200 << 30)), Some(1)));
    assert_eq!(only.runtime, Nanos::from_secs(3600));
}

#[test]
fn a_curve_on_several_storages_is_one_of_all_together() {
    let jobs = good(
        "sd=default,threads=4,size=1g\nsd=a,lun=/a\nsd=b,lun=/b\nsd=c,lun=/c\nwd=w,sd=*,rdpct=70\nrd=r,wd=w,iorate=curve\n",
    );
    let [workload] = jobs.workloads.as_slice() else { panic!("{jobs:?}") };
    assert!(workload.beside.is_empty());
    assert_eq!(
        (workload.name.as_str(), workload.offset.0, workload.size, workload.iodepth),
        ("r", 0, Some(Bytes(3 << 30)), 12)
    );
    assert!(jobs.notes.iter().any(|note| note.contains("w-a, w-b, w-c are one area")), "{:?}", jobs.notes);
    let plan = iotax_model::plan::Plan {
        design: iotax_model::plan::Design::Curve(jobs.curve.expect("a curve")),
        ..iotax_model::plan::Plan::new(
            "curve".into(),
            vec![TargetSpec::new("t", PathSpec("/x".into()))],
            jobs.workloads,
        )
    };
    assert_eq!(plan.check().map_err(|error| error.to_string()), Ok(()));
}

#[test]
fn operations_on_files_become_tests_of_files() {
    let jobs = good(
        "fsd=f,anchor=/srv/x,depth=2,width=4,files=100,sizes=64k\nfwd=default,xfersize=16k\nfwd=g,fsd=f,fileselect=seq,threads=4\n\
         rd=r,fwd=g,fwdrate=max,format=yes,elapsed=20,interval=1,foroperations=(create,open,getattr,delete)\n",
    );
    let all: Vec<_> = jobs
        .workloads
        .iter()
        .map(|w| {
            (
                w.name.as_str(),
                w.kind.test().map(iotax_model::workload::Test::word),
                w.nrfiles,
                w.nrdirs,
                w.numjobs,
            )
        })
        .collect();
    let of = |name, test| (name, Some(test), Some(400), Some(4), 4);
    assert_eq!(
        all,
        [of("r-create", "create"), of("r-open", "open"), of("r-getattr", "stat"), of("r-delete", "delete")]
    );
    assert!(jobs.workloads.iter().all(|workload| workload.runtime == Nanos::from_secs(20)));
    assert_eq!(jobs.workloads[0].filesize.map(|size| size.to_string()), Some("64k".to_owned()));
    assert_eq!((jobs.workloads[0].bs.0, jobs.workloads[0].loops), (16 << 10, None));
    assert_eq!((jobs.directory.as_deref(), jobs.own_files), (Some("/srv/x"), true));
    assert!(jobs.notes.iter().any(|note| note == "fsd=f: its directories are side by side, not 2 deep"));
    let jobs = good(
        "fsd=f,anchor=/srv/x,width=4,files=100,sizes=64k\nfwd=g,fsd=f,operation=read,rdpct=70,fileio=random,threads=8,openflags=o_direct,xfersize=4k\n\
         rd=r,fwd=g,fwdrate=max\n",
    );
    let area = &jobs.workloads[0];
    assert_eq!((area.rw, area.rwmixread, area.bs.0, area.iodepth), (Rw::RandRw, 70, 4096, 8));
    assert_eq!((area.size, area.direct, area.kind.test()), (Some(Bytes(25 << 20)), true, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused(
        text in "((sd|wd|rd|hd|fsd|fwd)=[a-z*]{0,3}(,(sd|wd|fsd|fwd|operation|fileio|files|sizes|maxdata|lun|size|count|range|xf|rdpct|seekpct|iorate|forthreads|stride|skew)\
                 =[(]?[0-9a-z*-]{0,6}(,[0-9a-z-]{0,4}){0,3}[)]?){0,4}\n){0,5}|.{0,40}",
    ) {
        if let Ok(jobs) = read("t", &text) {
            prop_assert!(jobs.workloads.iter().all(|workload| workload.check().is_ok()));
        }
    }
}
