//! Tests of network figures in formats of other tools.

use iotax_analysis::judge;
use iotax_interop::prometheus;
use iotax_report::csv;
use iotax_testkit::runs::network::alone;

#[test]
fn other_tools_are_told_of_streams_losses_and_interfaces() {
    let mut run = alone();
    let carried = run.measurements[1].outcome.carried.as_mut().expect("a network's");
    carried.flows[0].lost = Some(17);
    let host = run.measurements[1].host.clone().expect("observed");
    run.measurements[1].host_samples = vec![host];
    let judged = [(run.clone(), judge(&run))];
    let text = prometheus::measurements(&judged);
    let udp = "workload=\"udp-upload-1470\",round=\"1\"";
    for (name, value) in [("iotax_lost", 17.0), ("iotax_jitter_seconds", 11e-6)] {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(udp));
        let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect(name);
        assert!((number / value - 1.0).abs() < 1e-9, "{name} {number}");
    }
    assert!(text.contains("iotax_cpu_per_gib_seconds{"), "{text}");
    let tables = csv::tables(&judged);
    let lines = |name: &str| -> Vec<String> {
        let table = tables.iter().find(|table| table.name == name).expect(name);
        table.text.lines().map(str::to_owned).collect()
    };
    let streams = lines("streams.csv");
    assert_eq!(streams.len(), 1 + 4 + 1, "two each way, one of datagrams, none of round trips: {streams:?}");
    assert!(
        streams[5].starts_with("21,veth,udp-upload-1470,1,1,upload,")
            && streams[5].contains(",17,0,0,11000,"),
        "{}",
        streams[5]
    );
    assert!(
        lines("nics.csv")[1].starts_with("21,veth,udp-upload-1470,1,6,6,far0,"),
        "{:?}",
        lines("nics.csv")
    );
    let head: Vec<String> = lines("measurements.csv")[0].split(',').map(str::to_owned).collect();
    let at = head.iter().position(|name| name == "lost").expect("a column");
    assert_eq!(lines("measurements.csv")[2].split(',').nth(at), Some("17"));
}
