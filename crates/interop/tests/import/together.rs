//! Tests of several tools' results in one text: each is read as if alone, or listed with its line.

use std::collections::HashSet;

use iotax_interop::import::{Entry, Found, recognise};

use super::{data, metric, only};

/// Every file of the test data.
fn files() -> Vec<String> {
    let directory = format!("{}/tests/data/import", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(directory).expect("there").map(|entry| entry.expect("there").file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
    names.retain(|name| name != "README.md");
    names.sort();
    names
}

/// The results of a text with the tool and the line of each.
fn results(found: &[Found]) -> Vec<(&'static str, Entry)> {
    found.iter().flat_map(|found| found.entries.iter().map(|entry| (found.tool, entry.clone()))).collect()
}

/// Tolerance for figures that two formats round differently.
const ROUNDING: f64 = 0.06;

/// True if two results are of one run: in another format, or the same lines once more.
fn is_copy((tool, one): &(&str, Entry), (other_tool, other): &(&str, Entry)) -> bool {
    let figure = |entry: &Entry, word: &str| metric(entry, word);
    let close = |word: &str| match (figure(one, word), figure(other, word)) {
        (Some(a), Some(b)) => (a / b - 1.0).abs() < ROUNDING,
        _ => true,
    };
    tool == other_tool
        && one.workload == other.workload
        && ["iops", "bytes_per_s", "latency_mean"].into_iter().all(close)
}

/// Returns the results that are neither read nor listed if the second text follows the first.
fn lost(first: &str, second: &str) -> Vec<String> {
    let (mut text, mut expected) = (first.to_owned(), results(&recognise(first)));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let before = text.lines().count();
    expected.extend(results(&recognise(second)).into_iter().map(|(tool, entry)| {
        let line = entry.line + before;
        (tool, Entry { line, ..entry })
    }));
    text.push_str(second);
    let found = recognise(&text);
    let read = results(&found);
    let listed: HashSet<usize> =
        found.iter().flat_map(|found| &found.not_understood).map(|line| line.number).collect();
    let is_lost = |one: &(&str, Entry)| {
        !listed.contains(&one.1.line) && !read.contains(one) && !read.iter().any(|other| is_copy(one, other))
    };
    expected.into_iter().filter(is_lost).map(|one| format!("{one:?}")).collect()
}

#[test]
fn nothing_is_lost_where_two_outputs_stand_together() {
    let files: Vec<(String, String)> = files().into_iter().map(|name| (name.clone(), data(&name))).collect();
    let mut wrong = Vec::new();
    let every = if iotax_testkit::thorough() { 1 } else { 12 };
    for (at, (first_name, first)) in files.iter().enumerate() {
        for (second_name, second) in files.iter().skip(at % every).step_by(every) {
            let lost = lost(first, second);
            if let Some(one) = lost.first() {
                wrong.push(format!("{first_name} + {second_name}: {} lost, such as {one}", lost.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
}

/// The numbers of the lines that were not understood.
fn listed(found: &[Found]) -> Vec<usize> {
    found.iter().flat_map(|found| &found.not_understood).map(|line| line.number).collect()
}

#[test]
fn a_tool_of_which_nothing_is_read_is_listed_beside_others() {
    let fio = data("fio-3.33.json");
    let before = fio.lines().count();
    let without = |name: &str, is_head: fn(&str) -> bool| -> String {
        data(name).lines().filter(|line| !is_head(line)).map(|line| line.to_owned() + "\n").collect()
    };
    let numbers = |text: &str, is_result: fn(&str) -> bool| -> Vec<usize> {
        (before + 1..)
            .zip(text.lines())
            .filter(|(_, line)| is_result(line))
            .map(|(number, _)| number)
            .collect()
    };
    // atop's disks without the heads of their screens.
    let atop = without("atop-2.x.txt", |line| line.starts_with("ATOP"));
    let disks = numbers(&atop, |line| line.starts_with("DSK") || line.starts_with("LVM"));
    // Three runs of vdbench without the heads of their columns.
    let vdbench =
        without("vdbench-5.04.07.txt", |line| line.contains("interval") || line.contains("1024**2"));
    let vdbench =
        vdbench + &without("vdbench-5.02.txt", |line| line.contains("interval") || line.contains("1024**2"));
    let averages = numbers(&vdbench, |line| line.contains("avg_"));
    // Six scores of UnixBench in a unit that it does not have.
    let unixbench: String = data("unixbench-5.1.3.txt")
        .lines()
        .filter(|line| line.ends_with("samples)"))
        .take(6)
        .map(|line| {
            line.replace(" lps ", " furlongs ")
                .replace(" KBps ", " furlongs ")
                .replace(" MWIPS ", " furlongs ")
                + "\n"
        })
        .collect();
    let scores = numbers(&unixbench, |line| line.ends_with("samples)"));
    assert_eq!((disks.len(), averages.len(), scores.len()), (7, 3, 6));
    for (text, tool, wanted) in
        [(atop, "atop", disks), (vdbench, "vdbench", averages), (unixbench, "UnixBench", scores)]
    {
        let found = recognise(&format!("{}\n{text}", fio.trim_end()));
        assert_eq!(found.len(), 1, "{tool}");
        assert_eq!(listed(&found), wanted, "{tool}");
        let why = &found[0].not_understood[0].reason;
        assert!(why.starts_with(&format!("{tool}: ")), "{why}");
    }
}

#[test]
fn the_same_rate_later_is_a_repetition_and_at_once_another_form() {
    let once = data("vdbench-5.02.txt");
    let later = once.replace("10:11:", "10:12:");
    assert_eq!(only(&format!("{once}{later}")).entries.len(), 2);
    assert_eq!(only(&format!("{once}{once}")).entries.len(), 1);
    // A repeated header starts a new result.
    assert_eq!(only(&format!("{0}{0}", data("atop-P-DSK.txt"))).entries.len(), 2);
    assert_eq!(only(&format!("{0}\n{0}", data("iozone-3.506.txt"))).entries.len(), 16);
}

#[test]
fn rows_of_unixbench_are_known_by_their_names_and_by_what_they_say_twice() {
    let rows: Vec<String> = data("unixbench-5.1.3.txt")
        .lines()
        .skip_while(|line| !line.contains("BASELINE"))
        .skip(1)
        .take(6)
        .map(str::to_owned)
        .collect();
    let found = only(&(rows.join("\n") + "\n"));
    assert_eq!((found.entries.len(), found.not_understood.len()), (6, 0), "{found:?}");
    let cut = only(&(rows.join("\n").replace("1546.3", "154.3") + "\n"));
    assert_eq!((cut.entries.len(), listed(&[cut])), (5, vec![4]));
}

#[test]
fn what_looks_like_a_result_is_listed_whatever_is_missing_of_it() {
    let fio = data("fio-3.33.json");
    let before = fio.lines().count();
    let iperf3 = data("iperf3-reverse.txt");
    let cut = &iperf3[..iperf3.find("- - - -").expect("there")];
    let torn = |name: &str, mark: &str| {
        let text = data(name);
        text[..text.rfind(mark).expect("there")].to_owned()
    };
    for (text, tool) in [
        ("  read: IOPS=7575, BW=29.6MiB/s (31.0MB/s)(29.6MiB/1001msec)\n".to_owned(), ""),
        ("1.93c,1.93c,box,1,1100000000,300M,,1,2,3,4,5,6,7,8,9,10,11,12,16,,,,,1,2,3,4,5,6,7,8,9,10,11,12\n".to_owned(), "bonnie++"),
        ("\tChildren see throughput for  4 initial writers \t=\n".to_owned(), "iozone"),
        ("rtt min/avg/max/mdev = 0.200/0.300\n".to_owned(), "ping"),
        ("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 529 MB/s\n".to_owned(), "dd"),
        ("  Time (mean \u{b1} \u{3c3}):      11.3 ms \u{b1}   0.2 ms    [User: 0.9 ms, System: 0.2 ms]\n".to_owned(), "hyperfine"),
        (cut.to_owned(), "iperf3"),
        (torn("hyperfine-1.15.json", "]"), "hyperfine"),
        (torn("iperf3-tcp.json", "}"), "iperf3"),
        (torn("iostat-12.6-x.json", "}"), "iostat"),
        (data("iostat-10.txt").lines().take(9).map(|line| line.to_owned() + "\n").collect(), "iostat"),
        ("Dhrystone 2 using register variables         116700.0   38123456.7   3266\n".to_owned(), "UnixBench"),
    ] {
        let found = recognise(&format!("{}\n{text}", fio.trim_end()));
        let refused = found.iter().flat_map(|found| &found.not_understood).find(|line| line.number > before);
        let refused = refused.unwrap_or_else(|| panic!("{tool}: {text}"));
        assert!(refused.reason.starts_with(tool), "{refused:?}");
    }
}
