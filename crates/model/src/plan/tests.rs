use super::*;
use crate::target::{CacheMode, Format};
use crate::units::Nanos;
use proptest::prelude::*;

const GOOD: &str = r#"
name = "which disk format for our VMs"
repeat = 3
baseline = "host"

[defaults]
size = "8GiB"
runtime = "30s"
ramp_time = "5s"
direct = true

[[target]]
name = "host"
file = { dir = "/srv/images" }

[[target]]
name = "vm-qcow2"
file = { dir = "/srv/images", format = "qcow2", preallocation = "metadata" }
guest = { bus = "virtio-blk", cache = "none", aio = "io_uring", vcpus = 2, memory = "1GiB", iothread = true }

[[workload]]
name = "randread-4k-qd16"
rw = "randread"
bs = "4k"
iodepth = 16
"#;

#[test]
fn the_documented_plan_reads() {
    let plan = Plan::from_toml(GOOD).expect("valid");
    assert_eq!((plan.repeat, plan.size(), plan.directories().len()), (3, Bytes(8 << 30), 1));
    assert_eq!(plan.workloads[0].runtime, Nanos::from_secs(30));
    assert_eq!(plan.targets[1].file().map(|f| f.format), Some(Format::Qcow2));
    assert_eq!(plan.targets[1].guest().map(|g| g.cache), Some(CacheMode::None));
    let json = serde_json::to_string(&plan).expect("serializes");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("reads back"), plan);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Tests the property of the fuzz target with the same name: any text in place of any part of a valid plan.
    #[test]
    fn plan(from in 0..GOOD.len(), length in 0_usize..12, text in "[0-9a-z\"=\\[\\]{}.\n-]{0,12}|.{0,8}") {
        let to = (from + length).min(GOOD.len());
        if let Ok(plan) = Plan::from_toml(&format!("{}{text}{}", &GOOD[..from], &GOOD[to..])) {
            let json = serde_json::to_string(&plan).expect("a plan has a text form");
            prop_assert_eq!(serde_json::from_str::<Plan>(&json).expect(&json), plan.clone());
            let text = plan.to_toml().expect("a plan has the form of a file");
            prop_assert_eq!(Plan::from_toml(&text).expect(&text), plan);
        }
    }
}

proptest! {
    /// Tests that a printed plan parses back to the same plan, whatever the names.
    #[test]
    fn a_printed_plan_keeps_every_name(
        names in prop::array::uniform4("[a-z{}\"'\\\\ .#=\n-]{1,12}|.{1,12}|[a-z]{0,3}\\{(bs|rw|iodepth|name|size)\\}[{}]{0,2}")
    ) {
        let mut plan = Plan::from_toml(GOOD).expect("valid");
        let [whole, name, beside, noise] = names;
        plan.name = whole;
        let neighbour = TargetSpec::new("noise", crate::target::PathSpec("/n".into()));
        plan.neighbours = vec![Neighbour { target: neighbour, workload: plan.workloads[0].clone() }];
        plan.neighbours[0].workload.name = noise;
        let job = Workload { name: beside, ..plan.workloads[0].clone() };
        plan.workloads[0].beside = vec![job];
        plan.workloads[0].name = name;
        prop_assume!(plan.check().is_ok());
        let text = plan.to_toml().expect("a plan has the form of a file");
        prop_assert_eq!(Plan::from_toml(&text).expect(&text), plan);
    }
}

#[test]
fn numbers_of_a_workload_are_read_as_flags_read_them() {
    let with = |keys: &str| {
        let text = format!("[[target]]\nname = \"x\"\npath = \"/x\"\n[[workload]]\n{keys}");
        Plan::from_toml(&text).expect(keys).workloads.remove(0)
    };
    let quoted = with("iodepth = \"32\"\nrate_iops = \"10k\"\nrw = \"randrw\"\nrwmixread = \"70%\"");
    assert_eq!((quoted.iodepth, quoted.rate_iops, quoted.rwmixread), (32, Some(10_000), 70));
    assert_eq!(quoted, with("iodepth = 32\nrate_iops = 10000\nrw = \"randrw\"\nrwmixread = 70"));
}

/// Edits of the valid plan, and the start of the expected error.
#[test]
fn errors_name_line_and_key_and_the_accepted_form() {
    for (from, to, said) in [
        (
            "iodepth = 16",
            "iodpth = 16",
            "line 25, column 1: `iodpth` is not a key here; did you mean `iodepth`?\n   |\n25 | iodpth = 16\n   | ^^^^^^",
        ),
        (
            "bs = \"4k\"",
            "block_size = \"4k\"",
            "line 24, column 1: `block_size` is not a key here; did you mean `bs`?",
        ),
        (
            "rw = \"randread\"",
            "rw = \"randraed\"",
            "line 23, column 6: \"randraed\" is not a known rw; accepted: read, write, randread, randwrite, rw, randrw, trim, randtrim (did you mean \"randread\"?)\n   |\n23 | rw = \"randraed\"\n   |      ^^^^^^^^^^",
        ),
        (
            "runtime = \"30s\"",
            "runtime = \"30\"",
            "line 8, column 11: \"30\" is not a time; accepted: a number with a unit",
        ),
        (
            "runtime = \"30s\"",
            "runtime = 30",
            "line 8, column 11: integer `30` does not belong here; accepted: a time such as \"30s\"",
        ),
        (
            "iodepth = 16",
            "iodepth = \"16x\"",
            "line 25, column 11: \"16x\" is not a whole number; accepted: 1 to 4096",
        ),
        (
            "iodepth = 16",
            "iodepth = 0",
            "line 25, column 1: workload \"randread-4k-qd16\": iodepth = 0: accepted: 1 to 4096",
        ),
        (
            "baseline = \"host\"",
            "baseline = \"hst\"",
            "line 4, column 1: baseline = \"hst\" is not a target; accepted: host, vm-qcow2",
        ),
        ("repeat = 3", "repeat = 0", "line 3, column 1: repeat = 0: accepted: 1 to 1000"),
        ("name = \"vm-qcow2\"", "name = \"host\"", "line 17, column 1: two targets are named \"host\""),
        (
            "cache = \"none\"",
            "cache = \"nonne\"",
            "line 19, column 39: \"nonne\" is not a known cache; accepted: none, writeback",
        ),
        (
            "cache = \"none\"",
            "chace = \"none\"",
            "line 19, column 31: `chace` is not a key here; did you mean `cache`?",
        ),
        (
            "cache = \"none\", aio = \"io_uring\"",
            "cache = \"unsafe\", aio = \"native\"",
            "line 19, column 49: target \"vm-qcow2\": aio = \"native\" needs cache",
        ),
        (
            "vcpus = 2",
            "vcpus = -2",
            "line 19, column 73: integer `-2` does not belong here; accepted: a whole number",
        ),
        (
            "vcpus = 2",
            "vcpus = \"2\"",
            "line 19, column 73: string \"2\" does not belong here; accepted: a whole number, without quotes",
        ),
        (
            "iodepth = 16",
            "iodepth = 16\nrwmixread = 300",
            "line 26, column 13: \"300\" is not a whole percentage; accepted: 0 to 100",
        ),
        ("vcpus = 2", "vcpus = 99", "line 19, column 65: target \"vm-qcow2\": vcpus = 99: accepted: 1 to 64"),
        (
            "iothread = true",
            "iothread = \"yes\"",
            "line 19, column 104: string \"yes\" does not belong here; accepted: true, false or a number",
        ),
        (
            "[defaults]",
            "[default]",
            "line 6, column 2: `default` is not a key here; did you mean `defaults`?",
        ),
        ("[defaults]", "[defaults]\nname = \"x\"", "line 7, column 1: name belongs to a [[workload]]"),
        (
            "direct = true",
            "direct = 1",
            "line 10, column 10: integer `1` does not belong here; accepted: true or false",
        ),
        (
            "direct = true",
            "direct = true\nioengine = \"psync\"",
            "line 26, column 1: workload \"randread-4k-qd16\": iodepth = 16: psync does one",
        ),
        ("[[workload]]", "[workload]", "line 21, column 2: workload is a list of tables; write [[workload]]"),
        ("name = \"host\"\n", "", "line 12, column 1: `name` is missing"),
        (
            "memory = \"1GiB\", iothread = true }",
            "memory = \"1GiB\" },",
            "line 19, column 93: unexpected key or value",
        ),
        ("repeat = 3", "repeat = ", "line 3, column 10"),
        ("repeat = 3", "repeat = 3\nrepeat = 4", "line 4, column 1: duplicate key"),
        (
            "guest = { bus",
            "neighbour = \"noisy\"\nguest = { bus",
            "line 19, column 1: target \"vm-qcow2\": neighbour = \"noisy\" is not there",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = Plan::from_toml(&GOOD.replace(from, to)).expect_err(to).to_string();
        assert!(error.starts_with(said), "{to}:\n{error}\nand not\n{said}");
    }
}

#[test]
fn created_targets_are_filled_with_what_is_written_to_them() {
    let plan = |first: &str, second: &str| {
        let text = format!(
            "repeat = 1\n[[target]]\nname = \"a\"\nfile = {{ dir = \"/srv\" }}\n\
             [[workload]]\nname = \"one\"\n{first}\n[[workload]]\nname = \"two\"\n{second}"
        );
        Plan::from_toml(&text).expect("valid").content()
    };
    let compressible = "buffer_compress_percentage = 40";
    assert_eq!(plan(compressible, compressible).filler_percentage, 40);
    assert_eq!(plan(compressible, ""), Content::default());
}

#[test]
fn a_journal_is_one_measurements() {
    let journal = "iodepth = 16\nverify = \"xxh3\"\nwrite_journal = \"/mnt/j\"";
    let text = GOOD.replace("rw = \"randread\"", "rw = \"write\"").replace("iodepth = 16", journal);
    let refused = |text: &str| Plan::from_toml(text).expect_err("refused").to_string();
    assert!(refused(&text).contains("write_journal = /mnt/j: a guest has no storage"), "{}", refused(&text));
    let host = "[[target]]\nname = \"a\"\nfile = { dir = \"/srv\" }\n[[workload]]\nrw = \"write\"\n";
    let remote = host.replace("file = { dir = \"/srv\" }", "path = \"ssh://host/x\"");
    assert!(refused(&format!("{remote}{journal}")).contains("on the other machine"));
    let text = format!("repeat = 2\n{host}{journal}");
    assert!(refused(&text).contains("repeat = 1"), "{}", refused(&text));
    assert!(Plan::from_toml(&format!("repeat = 1\n{host}{journal}")).is_ok());
}

#[test]
fn a_plan_without_cells_is_refused() {
    assert!(Plan::from_toml("").expect_err("empty").to_string().contains("[[target]]"));
    assert!(
        Plan::from_toml("[[target]]\nname='a'\npath='/a'")
            .expect_err("no work")
            .to_string()
            .contains("[[workload]]")
    );
}

const NOISY: &str = r#"
repeat = 2
seed = 7

[defaults]
runtime = "2s"
ramp_time = "500ms"

[[target]]
name = "quiet"
lvm = { vg = "vg0", kind = "thin" }

[[target]]
name = "vm-{cache}"
file = { dir = "/srv/\"a\"" }
neighbour = "noisy"
guest = { cache = ["none", "unsafe"], aio = "threads", iothread = 2, queues = 2 }

[[workload]]
name = "mixed"
rw = "randrw"
bssplit = "4k/60:64k"
size = "64m"

[[workload]]
size = "64m"
iodepth = 16

[[neighbour]]
target = { name = "noisy", file = { dir = "/srv" }, guest = {} }
workload = { rw = "randwrite", rate_iops = 500 }
"#;

#[test]
fn a_plan_is_written_as_a_file_that_reads_as_the_same_plan() {
    let plan = Plan::from_toml(NOISY).expect("valid");
    let text = plan.to_toml().expect("written");
    assert_eq!(Plan::from_toml(&text).expect(&text), plan);
    // A key is written once if all workloads share it. The neighbour has no size, so each of the other workloads has its own.
    for (words, times) in
        [("runtime = ", 1), ("ramp_time = ", 1), ("size = \"64m\"", 2), ("direct", 0), ("\niodepth = 16", 1)]
    {
        assert_eq!(text.matches(words).count(), times, "{words} in\n{text}");
    }
    assert!(text.contains("# Length of the measurement\nruntime = \"2s\"\n"), "{text}");
    assert!(
        text.contains(" > raw file > virtio-blk cache=unsafe aio=threads iothread=2 queues=2 > guest, beside noisy\n[[target]]"),
        "{text}"
    );
    let too_large = Plan { seed: Some(u64::MAX), ..plan };
    assert!(too_large.to_toml().is_err());
}

#[test]
fn a_time_is_divided_into_rounds_and_looks() {
    let two = "[[target]]\nname='a'\npath='/a'\n[[target]]\nname='b'\npath='/b'\n";
    let work = "[[workload]]\nrw='read'\nruntime='400ms'\nramp_time='0s'\n";
    let plan = Plan::from_toml(&format!("time = '3m'\n{two}{work}")).expect("a plan");
    // A round takes a second: two measurements of 400 ms, with 100 ms after each.
    let until = plan.until_decided().cloned().expect("rounds are added");
    assert_eq!((plan.repeat, until.max_rounds, until.max_time), (30, 180, Some(Nanos::from_secs(180))));
    assert_eq!(Plan::from_toml(&plan.to_toml().expect("written")), Ok(plan));
    // Fewer rounds fit into 6 s than into half a minute, so the first evaluation is one round before the last.
    let plan = Plan::from_toml(&format!("time = '6s'\n{two}{work}")).expect("a plan");
    assert_eq!((plan.repeat, plan.looks()), (5, vec![5, 6]));
    // A single target has no comparisons: the plan gets the rounds that fit into half a minute.
    let alone = "[[target]]\nname='a'\npath='/a'\n";
    let plan = Plan::from_toml(&format!("time = '3m'\n{alone}{work}")).expect("a plan");
    assert_eq!((plan.repeat, plan.until_decided()), (60, None));
    for (head, said) in [
        (
            "time = '3s'",
            "time = 3s: too short; it needs 4 rounds of 2 measurements, a look at the last and one before, which take about 4",
        ),
        ("time = '3m'\nrepeat = 5", "time: it takes the place of repeat and until_decided"),
    ] {
        let error = Plan::from_toml(&format!("{head}\n{two}{work}")).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_plan_has_one_design() {
    for (tables, said) in [
        ("[curve]\n[until_decided]\n", "curve: the plan has [until_decided] too"),
        ("[ask]\nslo = ['p99 <= 1ms']\n[curve]\n", "ask: the plan has [curve] too"),
        ("[watch]\n[ask]\nslo = ['p99 <= 1ms']\n", "watch: the plan has [ask] too"),
    ] {
        let error = Plan::from_toml(&format!("{GOOD}{tables}")).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    for table in ["[until_decided]\n", "[curve]\n", "[ask]\nslo = ['p99 <= 1ms']\n", "[watch]\n"] {
        let error = Plan::from_toml(&format!("time = '3m'\n{GOOD}{table}")).expect_err(table).to_string();
        assert!(error.contains("time: "), "{table}: {error}");
    }
}

#[test]
fn adding_rounds_until_decided_reads_both_ways() {
    let sequential = format!("margin = \"1.5%\"\n{GOOD}[until_decided]\nmax_time = \"2h\"\n");
    let plan = Plan::from_toml(&sequential).expect("valid");
    let until = plan.until_decided().cloned().expect("asked for");
    assert_eq!((until.max_rounds, until.max_time), (DEFAULT_MAX_ROUNDS, Some(Nanos::from_secs(7200))));
    assert_eq!((plan.margin.share(), plan.most_rounds(), plan.looks()[0]), (0.015, 15, 3));
    let text = plan.to_toml().expect("written");
    assert_eq!(Plan::from_toml(&text).expect(&text), plan);
    // A plan stored before `margin` existed gets the margin of that time.
    let mut old = serde_json::to_value(Plan::from_toml(GOOD).expect("valid")).expect("JSON");
    assert!(old.as_object_mut().expect("an object").remove("margin").is_some());
    let old: Plan = serde_json::from_value(old).expect("reads");
    assert_eq!((old.margin, old.until_decided().cloned(), old.looks()), (Margin::default(), None, vec![3]));
}

#[test]
fn what_cannot_be_decided_is_refused() {
    for (head, tail, said) in [
        (
            "margin = \"2\"",
            "",
            "line 1, column 10: \"2\" is not a margin; accepted: a percentage such as 2% or 0.5%",
        ),
        (
            "margin = 0.02",
            "",
            "line 1, column 10: floating point `0.02` does not belong here; accepted: text",
        ),
        ("", "max_rounds = 3", "line 27, column 1: max_rounds = 3: accepted: 4 to 1000"),
        ("", "max_rounds = 1001", "line 27, column 1: max_rounds = 1001: accepted: 4 to 1000"),
        ("", "max_time = \"1m\"", "line 27, column 1: max_time = 1m: too short; the first 3 rounds take"),
        ("", "max_round = 3", "line 27, column 1: `max_round` is not a key here; did you mean `max_rounds`?"),
    ] {
        let text = format!("{head}{GOOD}[until_decided]\n{tail}\n");
        let error = Plan::from_toml(&text).expect_err(tail).to_string();
        assert!(error.starts_with(said), "{error}");
    }
    let twice = GOOD.replace("repeat = 3", "repeat = 2") + "[until_decided]\n";
    let error = Plan::from_toml(&twice).expect_err("too early").to_string();
    assert!(
        error.starts_with("line 3, column 1: repeat = 2: with until_decided it is the first look"),
        "{error}"
    );
    let alone = "[until_decided]\n[[target]]\nname='a'\npath='/a'\n[[workload]]\nrw='read'";
    let error = Plan::from_toml(alone).expect_err("nothing to compare").to_string();
    assert!(error.starts_with("line 1, column 2: until_decided: one target"), "{error}");
}

#[test]
fn a_target_is_described_by_what_it_has_otherwise_than_the_nearest() {
    let plan = Plan::from_toml(NOISY).expect("valid");
    let said = |target| {
        let (other, differences) = plan.most_like(target)?;
        let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Some((other.name.as_str(), differences.join(", ")))
    };
    assert_eq!(said(0), None);
    assert_eq!(said(1), Some(("quiet", "with file, with guest, neighbour = \"noisy\", no lvm".into())));
    assert_eq!(said(2), Some(("vm-none", "guest.cache = \"unsafe\"".into())));
}

#[test]
fn jobs_beside_a_workload_inherit_and_are_written_and_read_back() {
    let text = "[defaults]\nsize = \"8m\"\ndirect = false\n[[target]]\nname = \"t\"\npath = \"/t\"\n\
                [[workload]]\nname = \"db\"\niodepth = [1, 4]\n\
                [[workload.beside]]\nname = \"log\"\nrw = \"read\"\noffset = \"8m\"\nbs = \"64k\"\n";
    let plan = Plan::from_toml(text).expect("a plan");
    assert_eq!(plan.workloads.len(), 2);
    for workload in &plan.workloads {
        let [log] = workload.beside.as_slice() else { panic!("{workload:?}") };
        assert_eq!((log.size, log.direct, log.bs, log.iodepth), (workload.size, false, Bytes(64 << 10), 1));
    }
    assert_eq!(plan.size(), Bytes(16 << 20));
    let written = plan.to_toml().expect("written");
    assert_eq!(written.matches("direct = false").count(), 1, "{written}");
    assert_eq!(Plan::from_toml(&written).expect(&written), plan, "{written}");
    let error =
        Plan::from_toml(&text.replace("bs = \"64k\"", "bs = \"0\"")).expect_err("refused").to_string();
    assert!(error.contains("beside = \"log\": bs = 0"), "{error}");
}

#[test]
fn a_test_that_makes_files_needs_a_filesystem_where_it_is_measured() {
    let keys = "direct = false\nramp_time = \"0s\"";
    let plan = |target: &str, test: &str| {
        Plan::from_toml(&format!(
            "[defaults]\nsize = \"1m\"\n[[target]]\nname = \"it\"\n{target}\n[[workload]]\nname = \"w\"\ntest = \"{test}\"\n{keys}"
        ))
        .map_err(|error| error.to_string())
    };
    for (target, remedy) in [
        ("file = { dir = '/srv' }\nguest = {}", Some("filesystem = \"ext4\"")),
        ("file = { dir = '/srv' }\nloop = {}", Some("leave loop out")),
        ("lvm = { vg = 'fast' }", Some("filesystem = { type = \"ext4\" }")),
        ("device = '/dev/sdb'", Some("filesystem = { type = \"ext4\" }")),
        ("file = { dir = '/srv' }\nguest = { filesystem = 'ext4' }", None),
        ("device = '/dev/sdb'\nfilesystem = { type = 'xfs' }\nfile = {}", None),
        ("file = { dir = '/srv' }", None),
        ("path = '/srv/file'", None),
    ] {
        match (plan(target, "create"), remedy) {
            (Ok(_), None) => {}
            (Err(error), Some(remedy)) => {
                assert!(error.contains(remedy) && error.contains("create"), "{error}");
            }
            (got, _) => panic!("{target}: {got:?}"),
        }
        assert!(plan(target, "getc").is_ok(), "{target}: it reads what is there");
    }
}

#[test]
fn a_network_carries_its_own_work_and_nothing_else() {
    let target = "[[target]]\nname = 'veth'\nnetwork = { via = 'veth' }\n";
    let work = "[[workload]]\nruntime = '2s'\nnet = { test = 'udp', direction = 'download', length = '64', bitrate = '10M' }\n";
    let plan = Plan::from_toml(&format!("{target}{work}")).expect("valid plan");
    assert_eq!(plan.workloads[0].name, "udp-download-64");
    let text = plan.to_toml().expect("a plan file");
    assert_eq!(Plan::from_toml(&text).expect("its own text"), plan);
    assert!(!text.contains("rw =") && !text.contains("direct ="), "{text}");
    let gaps = "[[workload]]\nnet = { test = 'tcp-rtt', rate = 100 }\nblackout = '20ms'\n";
    let plan = Plan::from_toml(&format!("{target}{gaps}")).expect("valid plan");
    assert_eq!(Plan::from_toml(&plan.to_toml().expect("a plan file")).expect("its own text"), plan);
    let disk = "[[target]]\nname = 'disk'\npath = '/x'\n";
    for (text, words) in [
        (format!("{target}[[workload]]\nrw = 'read'\n"), "a network carries workloads with net"),
        (format!("{disk}{work}"), "it needs a target with network"),
        (
            format!("{target}{work}bs = '4k'\nrw = 'write'\n"),
            "beside net only name, runtime, ramp_time and blackout",
        ),
        (format!("[defaults]\nsize = '1m'\n{target}{work}"), "also of [defaults]"),
        (format!("{target}[[workload]]\nnet = {{ test = 'tpc' }}\n"), "accepted: tcp, udp"),
        (format!("{target}path = '/x'\n{work}"), "network stands at the bottom, which path excludes"),
        (
            format!("{target}[[workload]]\ntest = 'stat'\nnet = {{ test = 'tcp' }}\n"),
            "net has a test of its own",
        ),
    ] {
        let error = Plan::from_toml(&text).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn plans_that_nobody_wrote_are_refused_before_they_take_memory() {
    let all = |text: &str, times: usize| text.repeat(times);
    let lists = (0..300).map(|number| format!("k{number} = [1]\n")).collect::<Vec<_>>().concat();
    for (text, words) in [
        (format!("a = [{}]\n", all("0,", 5 << 20)), "more than 524288 words and signs"),
        (all("a ", 5 << 20), "more than 524288 words and signs"),
        (
            format!("[[target]]\nname = \"t\"\npath = \"/x\"\n[[workload]]\n{lists}"),
            "300 lists in one table; accepted: up to 200",
        ),
        (
            format!(
                "[[target]]\nname = \"t\"\npath = \"/x\"\n[[workload]]\nname = \"w\"\nbeside = [{}]\n",
                all("{},", 1000)
            ),
            "1000 jobs beside a workload; accepted: up to 200",
        ),
    ] {
        let refusal = Plan::from_toml(&text).expect_err(words).to_string();
        assert!(refusal.contains(words), "{words}: {}", refusal.chars().take(500).collect::<String>());
    }
}
