//! Frames for Prometheus: its text format, and a server for it.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::figure::{self, Figure, Unit};
use crate::rates::Frame;
use iotax_model::threads;

/// The time that a client has for its request and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients that are answered at once.
const MOST_CLIENTS: usize = 64;
/// The longest request, in bytes.
const LONGEST_REQUEST: u64 = 8192;

/// A frame in Prometheus' text format: a gauge for each figure. What is not known has no sample.
#[must_use]
pub fn text(frame: &Frame) -> String {
    let mut out = String::new();
    group(&mut out, "layer", figure::LAYERS, &frame.layers, |layer| {
        vec![("device", layer.name.clone()), ("name", layer.title.clone())]
    });
    group(&mut out, "guest", figure::GUESTS, &frame.guests, |row| {
        vec![
            ("guest", row.guest.clone()),
            ("disk", row.disk.clone().unwrap_or_default()),
            ("device", row.device.clone().unwrap_or_default()),
        ]
    });
    group(&mut out, "cgroup", figure::CGROUPS, &frame.cgroups, |group| {
        vec![("cgroup", group.path.clone()), ("device", group.device.clone())]
    });
    group(&mut out, "interface", figure::INTERFACES, &frame.interfaces, |interface| {
        vec![("interface", interface.name.clone())]
    });
    let pressure: Vec<_> = frame.pressure.into_iter().collect();
    group(&mut out, "stalled", figure::PRESSURE, &pressure, |_| Vec::new());
    out
}

/// The gauges of one kind of rows.
fn group<R>(
    out: &mut String,
    kind: &str,
    figures: &[Figure<R>],
    rows: &[R],
    labels: fn(&R) -> Vec<(&'static str, String)>,
) {
    for figure in figures {
        let samples: Vec<String> = rows
            .iter()
            .filter_map(|row| {
                let value = (figure.get)(row).filter(|value| value.is_finite())?;
                let value = if figure.unit == Unit::Nanos { value / 1e9 } else { value };
                let labels = labels(row);
                let pairs: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
                let labels =
                    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
                Some(format!("{labels} {value}"))
            })
            .collect();
        if samples.is_empty() {
            continue;
        }
        let name = name(kind, figure.id, figure.unit);
        let _ = writeln!(out, "# HELP {name} {}.\n# TYPE {name} gauge", figure.help);
        for sample in samples {
            let _ = writeln!(out, "{name}{sample}");
        }
    }
}

/// `iotax_top_layer_read_latency_seconds`: the base unit last.
fn name(kind: &str, id: &str, unit: Unit) -> String {
    let base = id.trim_end_matches("_ns").trim_end_matches("_per_s").replace("_iops", "_operations");
    let suffix = match unit {
        Unit::PerSecond | Unit::BytesPerSecond => "_per_second",
        Unit::Nanos => "_seconds",
        Unit::Share => "_ratio",
        Unit::Count => "",
    };
    format!("iotax_top_{kind}_{base}{suffix}")
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Answers every GET of /metrics with the last frame.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    last: Arc<Mutex<String>>,
}

impl Server {
    /// Listens on an address and answers in a thread, until the process ends.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let server = Self { address: listener.local_addr()?, last: Arc::default() };
        let last = Arc::clone(&server.last);
        threads::spawn("prometheus", move || {
            for stream in listener.incoming().flatten() {
                // A client that says nothing holds up no other; beyond the limit it is hung up on.
                if Arc::strong_count(&last) > MOST_CLIENTS {
                    continue;
                }
                let last = Arc::clone(&last);
                let answer = move || answer(&stream, &last);
                // One client's error is no other's, and neither is a thread that cannot be had.
                let _ = threads::spawn("prometheus-client", answer);
            }
        })?;
        Ok(server)
    }

    /// The address, with the port that was chosen if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with this frame from now on.
    pub fn show(&self, frame: &Frame) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = text(frame);
    }
}

fn answer(mut stream: &TcpStream, last: &Mutex<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(LONGEST_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics" | "/")) => {
            ("200 OK", last.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
        (Some("GET"), _) => ("404 Not Found", "GET /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
