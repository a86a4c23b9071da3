//! Tests that tell repeated results from results that only look like repetitions.

use iotax_interop::import::{Imported, recognise, runs};

use super::data;

fn imported(text: &str, label: Option<&str>) -> Vec<Imported> {
    runs(vec![("f".to_owned(), recognise(text))], label)
}

/// Targets with the number of their rounds.
fn targets(run: &Imported) -> Vec<(String, u32)> {
    let mut targets: Vec<(String, u32)> = Vec::new();
    for one in run.measurements() {
        match targets.iter_mut().find(|(name, _)| *name == one.target) {
            Some((_, rounds)) => *rounds = one.round.max(*rounds),
            None => targets.push((one.target.clone(), one.round)),
        }
    }
    targets
}

fn named(all: &[(&str, u32)]) -> Vec<(String, u32)> {
    all.iter().map(|(name, rounds)| ((*name).to_owned(), *rounds)).collect()
}

#[test]
fn two_systems_are_no_rounds_of_one_unless_a_label_says_so() {
    let scores = |calls: f64| {
        format!(
            "Execl Throughput                               1534.1 lps   (29.9 s, 2 samples)\n\
             System Call Overhead                         {calls:.1} lps   (10.0 s, 7 samples)\n"
        )
    };
    let text = format!("Native\n{}\nXen PV\n{}", scores(1_203_456.7), scores(503_456.7));
    let run = imported(&text, None).remove(0);
    assert_eq!(targets(&run), named(&[("Native", 1), ("Xen-PV", 1)]));
    assert_eq!((run.labels(), run.plan.workloads.len()), (vec!["Native", "Xen PV"], 2));
    let one = imported(&text, Some("both")).remove(0);
    assert_eq!((targets(&one), one.labels()), (named(&[("both", 2)]), vec!["both"]));
}

#[test]
fn runs_below_one_heading_repeat_and_below_another_they_do_not() {
    let client = "------------------------------------------------------------\nClient connecting to 10.0.0.7, TCP port 5001\n\
        TCP window size: 45.0 KByte (default)\n------------------------------------------------------------\n\
        [  3] local 10.0.0.6 port 40000 connected with 10.0.0.7 port 5001\n[ ID] ImportedInterval       Transfer     Bandwidth\n\
        [  3]  0.0-10.0 sec  1.10 GBytes   941 Mbits/sec\n";
    let loaded = client.replace("941 Mbits", "692 Mbits").replace("1.10 GBytes", "825 MBytes");
    let run =
        imported(&format!("alone:\n{}\nwith another load:\n{}", client.repeat(3), loaded.repeat(2)), None);
    let found: Vec<u32> = targets(&run[0]).into_iter().map(|(_, rounds)| rounds).collect();
    assert_eq!(found, [3, 2], "{:?}", targets(&run[0]));
    let run = imported(&format!("Run 1:\n{client}\nRun 2:\n{client}\nRun 3:\n{client}"), None);
    assert_eq!(targets(&run[0]).iter().map(|(_, rounds)| *rounds).collect::<Vec<_>>(), [3]);
}

#[test]
fn outputs_that_follow_one_another_are_repetitions_whatever_stands_in_them() {
    let directory = format!("{}/tests/data/import", env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for file in std::fs::read_dir(directory).expect("there") {
        let name = file.expect("there").file_name().into_string().expect("text");
        let text = data(&name);
        for run in imported(&format!("{}\n\n{text}", text.trim_end()), None) {
            if !run.labels().is_empty() {
                wrong.push(format!("{name}: {:?}", run.labels()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
