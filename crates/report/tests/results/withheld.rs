//! Tests that each check fires in its own case and only there.

use iotax_analysis::judge;
use iotax_report::{document, html, terminal};

use iotax_testkit::runs::ladder;

const QD1: &str = "randread-4k-qd1";

#[test]
fn every_report_says_what_is_withheld_and_what_iotax_itself_costs() {
    let mut run = ladder(false);
    for m in &mut run.measurements {
        m.host.as_mut().expect("observed").watching_ns = Some(18_000_000);
    }
    let honest = judge(&run);
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.workload == QD1) {
        m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").read_bytes = 0;
    }
    let judgement = judge(&run);
    // Without the breaks between lines.
    let lines = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let reports = |judgement| {
        [
            lines(&terminal::set(&document::run(&run, judgement), 100, false)),
            lines(&html::render(&run, judgement)),
        ]
    };
    let (before, after) = (reports(&honest), reports(&judgement));
    for (before, after) in before.iter().zip(&after) {
        for report in [before, after] {
            assert!(report.contains("the engine's own code takes 20.0 ns of CPU per I/O"), "{report}");
            assert!(report.contains("watching cost 0.3% of one CPU"), "{report}");
        }
        assert!(!before.contains("withheld") && after.contains("withheld"), "{after}");
    }
}
