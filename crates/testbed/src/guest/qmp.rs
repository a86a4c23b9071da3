//! A QMP client: sends one command at a time to QEMU's monitor socket, each with a deadline.
//!
//! QEMU sends one JSON object per line: the answer to a command, or an event. Events are kept until they are fetched.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::process;
use crate::interrupt::{Interrupt, POLL, SILENCE};

/// Timeout of every command. Pausing a guest flushes its disk, which takes long with a large write cache above a slow disk.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// An error of a QMP command.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The monitor connection failed, usually because QEMU has exited.
    #[error("QEMU ended its monitor during {command}: {source}")]
    Gone {
        /// The command that was pending.
        command: String,
        /// Error of the socket.
        source: io::Error,
    },
    /// QEMU did not answer within the deadline.
    #[error("QEMU did not answer {command} within {} s", waited.as_secs_f32())]
    Deadline {
        /// The command that was pending.
        command: String,
        /// Deadline of the command, counted from its start.
        waited: Duration,
    },
    /// QEMU did not answer, because it was stopped by SIGSTOP or a debugger for 15 s.
    #[error("QEMU was stopped for {} s during {command} and did not answer", SILENCE.as_secs())]
    Stopped {
        /// The command that was pending.
        command: String,
    },
    /// The command was not sent, because QEMU has not answered an earlier one: its late answer could be mistaken for the answer to this
    /// command.
    #[error("{command} was not sent to QEMU: it has not answered {earlier}")]
    Silent {
        /// The command that was not sent.
        command: String,
        /// The earlier command without an answer.
        earlier: String,
    },
    /// The interrupt flag was set, for example by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// QEMU answered the command with an error.
    #[error("QEMU refused {command}: {description}")]
    Refused {
        /// The rejected command.
        command: String,
        /// The error message from QEMU.
        description: String,
    },
    /// QEMU sent a line that is not a QMP message.
    #[error("expected a QMP message after {command} and got {line:?}")]
    Protocol {
        /// The command that was pending.
        command: String,
        /// The first 120 characters of the line.
        line: String,
    },
}

/// A connection to the monitor (QMP) of a QEMU process.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
    deadline: Duration,
    /// Process id of QEMU, to find out whether it is stopped.
    pid: u32,
    stop: Interrupt,
    /// Events received since they were last fetched, up to [`MOST_EVENTS`].
    events: Vec<QmpEvent>,
    /// The command whose answer has not come, after which all further commands fail; `None` if there is none.
    unanswered: Option<Unanswered>,
    /// The part of the next line that has arrived.
    partial: Vec<u8>,
}

/// A command whose answer has not come.
#[derive(Debug)]
struct Unanswered {
    command: String,
    /// True if nobody waited for the answer because of an interrupt; it may still come.
    is_interrupted: bool,
}

/// Maximum number of events to keep until they are fetched; later ones are dropped.
const MOST_EVENTS: usize = 500;

/// An asynchronous event from QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QmpEvent {
    /// Time of the event by the host's wall clock, as QEMU reports it.
    pub at: SystemTime,
    /// Name and data of the event, such as `BLOCK_IO_ERROR: action="stop" device="disk0" operation="write"`.
    pub text: String,
}

impl QmpEvent {
    /// Parses an event; `None` for other messages.
    fn of(message: &Value) -> Option<Self> {
        let name = message.get("event")?.as_str()?;
        let timestamp = |key: &str| message.get("timestamp")?.get(key)?.as_u64();
        let (seconds, micros) = (timestamp("seconds")?, timestamp("microseconds")?);
        let at = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
        let data = message.get("data").and_then(Value::as_object).into_iter().flatten();
        let data = data.filter(|(_, value)| value.as_str() != Some(""));
        let data: Vec<String> = data.map(|(key, value)| format!("{key}={value}")).collect();
        let text = if data.is_empty() { name.to_owned() } else { format!("{name}: {}", data.join(" ")) };
        Some(Self { at: SystemTime::UNIX_EPOCH.checked_add(at)?, text })
    }
}

impl Qmp {
    /// Reads QEMU's greeting and enables commands. `deadline` applies to each command; setting `stop` aborts a pending one. `pid` is QEMU's
    /// process id.
    pub fn start(
        stream: UnixStream,
        deadline: Duration,
        pid: u32,
        stop: &Interrupt,
    ) -> Result<Self, QmpError> {
        let stream = BufReader::new(stream);
        let mut qmp = Self {
            stream,
            deadline,
            pid,
            stop: Interrupt::clone(stop),
            events: Vec::new(),
            unanswered: None,
            partial: Vec::new(),
        };
        let end = Instant::now() + deadline;
        let greeting = qmp.line("the greeting", end)?;
        if greeting.get("QMP").is_none() {
            return Err(not_qmp("the greeting", &greeting.to_string()));
        }
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sends a command and returns QEMU's answer.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        if let Some(Unanswered { command: earlier, is_interrupted }) = &self.unanswered {
            let is_still = *is_interrupted && self.stop.load(Ordering::Relaxed);
            return Err(if is_still {
                QmpError::Interrupted
            } else {
                QmpError::Silent { command: command.into(), earlier: earlier.clone() }
            });
        }
        let answer = self.ask(command, arguments);
        let is_interrupted = matches!(answer, Err(QmpError::Interrupted));
        if is_interrupted || matches!(answer, Err(QmpError::Deadline { .. } | QmpError::Stopped { .. })) {
            self.unanswered = Some(Unanswered { command: command.into(), is_interrupted });
        }
        answer
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let gone = |source| QmpError::Gone { command: command.into(), source };
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        let end = Instant::now() + self.deadline;
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(self.deadline)).map_err(gone)?;
        stream.write_all(line.as_bytes()).map_err(gone)?;
        self.answer(command, end)
    }

    /// Reads the answer to the last command; keeps the events before it.
    fn answer(&mut self, command: &str, end: Instant) -> Result<Value, QmpError> {
        loop {
            let mut message = self.line(command, end)?;
            if let Some(error) = message.get("error") {
                let description =
                    error.get("desc").and_then(Value::as_str).unwrap_or("without a reason").to_owned();
                return Err(QmpError::Refused { command: command.into(), description });
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
            if message.get("event").is_none() {
                return Err(not_qmp(command, &message.to_string()));
            }
            self.keep(&message);
        }
    }

    fn keep(&mut self, message: &Value) {
        self.events.extend(QmpEvent::of(message).filter(|_| self.events.len() < MOST_EVENTS));
    }

    /// Returns the events since the last call. Fails if QEMU does not answer.
    pub fn events(&mut self) -> Result<Vec<QmpEvent>, QmpError> {
        // Events that QEMU sent before its answer to this command have arrived by then.
        self.execute("query-status", &json!({}))?;
        Ok(std::mem::take(&mut self.events))
    }

    /// Sends `quit` to QEMU, even after an interrupt.
    pub fn quit(&mut self) -> Result<(), QmpError> {
        self.stop = Interrupt::default();
        // The answer to an interrupted command comes before that to `quit`.
        if let Some(earlier) = self.unanswered.take_if(|earlier| earlier.is_interrupted) {
            match self.answer(&earlier.command, Instant::now() + self.deadline) {
                Ok(_) | Err(QmpError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.execute("quit", &json!({})).map(drop)
    }

    /// Reads and parses one line from QEMU. Fails if it is not complete at `end`, on an interrupt, or if QEMU is stopped for 15 s.
    fn line(&mut self, command: &str, end: Instant) -> Result<Value, QmpError> {
        let gone = |source| QmpError::Gone { command: command.into(), source };
        let mut stopped = Duration::ZERO;
        while self.partial.last() != Some(&b'\n') {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QmpError::Deadline { command: command.into(), waited: self.deadline });
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(QmpError::Interrupted);
            }
            if stopped >= SILENCE {
                return Err(QmpError::Stopped { command: command.into() });
            }
            self.stream.get_ref().set_read_timeout(Some(left.min(POLL))).map_err(gone)?;
            match self.stream.read_until(b'\n', &mut self.partial) {
                // A line without a newline is the end of the stream.
                Ok(_) if self.partial.last() != Some(&b'\n') => {
                    return Err(gone(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(_) => {}
                // The bytes read so far stay in the line.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stopped = if process::is_stopped(self.pid) { stopped + POLL } else { Duration::ZERO };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(error)),
            }
        }
        let line = std::mem::take(&mut self.partial);
        serde_json::from_slice(&line).map_err(|_| not_qmp(command, &String::from_utf8_lossy(&line)))
    }
}

fn not_qmp(command: &str, line: &str) -> QmpError {
    QmpError::Protocol { command: command.into(), line: line.chars().take(120).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;
    const LONG: Duration = Duration::from_secs(20);

    fn start(stream: UnixStream, deadline: Duration) -> Result<Qmp, QmpError> {
        Qmp::start(stream, deadline, std::process::id(), &Interrupt::default())
    }

    /// Returns a monitor that sends the first line at once and each further one after receiving a line, and then hangs or closes.
    fn monitor(lines: &'static [&'static str], hang: bool) -> (UnixStream, thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let server = thread::spawn(move || {
            let mut reader = BufReader::new(theirs.try_clone().expect("cloned"));
            let mut got = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                if index > 0 {
                    let mut request = String::new();
                    if reader.read_line(&mut request).unwrap_or(0) == 0 {
                        return got;
                    }
                    got.push(request.trim().to_owned());
                }
                writeln!(&theirs, "{line}").expect("sent");
            }
            if hang {
                // Until the client disconnects.
                let _ = io::copy(&mut reader, &mut io::sink());
            }
            got
        });
        (ours, server)
    }

    #[test]
    fn a_command_gets_its_answer_past_events() {
        let (stream, server) = monitor(
            &[
                GREETING,
                r#"{"return": {}}"#,
                "{\"event\": \"STOP\"}\n{\"event\": \"RESUME\"}\n{\"return\": {\"status\": \"paused\"}}",
            ],
            true,
        );
        let mut qmp = start(stream, LONG).expect("ready");
        assert_eq!(
            qmp.execute("query-status", &json!({ "a": 1 })).expect("answered"),
            json!({ "status": "paused" })
        );
        drop(qmp);
        let got = server.join().expect("ended");
        assert_eq!(
            serde_json::from_str::<Value>(&got[1]).expect("JSON"),
            json!({ "execute": "query-status", "arguments": { "a": 1 } })
        );
    }

    #[test]
    fn events_are_kept_with_their_times_until_somebody_asks() {
        let (stream, _server) = monitor(
            &[
                GREETING,
                r#"{"return": {}}"#,
                "{\"timestamp\": {\"seconds\": 1267020223, \"microseconds\": 435656}, \"event\": \"BLOCK_IO_ERROR\", \
                 \"data\": {\"device\": \"disk\", \"reason\": \"\", \"nospace\": true}}\n{\"event\": \"STOP\"}\n{\"return\": {}}",
                r#"{"return": {}}"#,
            ],
            true,
        );
        let mut qmp = start(stream, LONG).expect("ready");
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_267_020_223_435_656);
        let text = r#"BLOCK_IO_ERROR: device="disk" nospace=true"#.to_owned();
        assert_eq!(qmp.events().expect("answered"), [QmpEvent { at, text }], "one without a time is none");
        assert_eq!(qmp.events().expect("answered"), []);
    }

    #[test]
    fn a_refusal_quotes_command_and_reason() {
        let (stream, _server) = monitor(
            &[
                GREETING,
                r#"{"return": {}}"#,
                r#"{"error": {"class": "GenericError", "desc": "node is in use"}}"#,
                r#"{"return": 1}"#,
            ],
            true,
        );
        let mut qmp = start(stream, LONG).expect("ready");
        let error = qmp.execute("blockdev-del", &json!({})).expect_err("refused").to_string();
        assert_eq!(error, "QEMU refused blockdev-del: node is in use");
        assert_eq!(qmp.execute("query", &json!({})).expect("goes on"), json!(1));
    }

    #[test]
    fn a_command_is_given_up_on_an_interrupt_and_quit_is_not() {
        let (stream, server) = monitor(
            &[GREETING, r#"{"return": {}}"#, r#"{"error": {"desc": "late"}}"#, r#"{"return": {}}"#],
            true,
        );
        let stop = Interrupt::default();
        let mut qmp = Qmp::start(stream, LONG, std::process::id(), &stop).expect("ready");
        stop.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            assert!(matches!(qmp.execute("stop", &json!({})), Err(QmpError::Interrupted)));
        }
        stop.store(false, Ordering::Relaxed);
        let next = qmp.execute("cont", &json!({})).expect_err("an answer now would be of stop");
        assert_eq!(next.to_string(), "cont was not sent to QEMU: it has not answered stop");
        stop.store(true, Ordering::Relaxed);
        qmp.quit().expect("answered, after the late answer to stop");
        drop(qmp);
        let got = server.join().expect("ended");
        assert_eq!(got.len(), 3, "{got:?}");
    }

    #[test]
    fn a_hang_an_end_and_garbage_are_told_apart() {
        let (stream, _server) = monitor(&[GREETING, r#"{"return": {}}"#], true);
        let mut qmp = start(stream, Duration::from_millis(300)).expect("ready");
        let began = Instant::now();
        assert!(matches!(qmp.execute("stop", &json!({})), Err(QmpError::Deadline { .. })));
        assert!(began.elapsed() >= Duration::from_millis(290));
        let next = qmp.execute("cont", &json!({})).expect_err("an answer now would be of stop");
        assert_eq!(next.to_string(), "cont was not sent to QEMU: it has not answered stop");

        let (stream, _server) = monitor(&[GREETING, r#"{"return": {}}"#], false);
        let mut qmp = start(stream, LONG).expect("ready");
        assert!(matches!(qmp.execute("stop", &json!({})), Err(QmpError::Gone { .. })));

        let (stream, _server) = monitor(&["SSH-2.0-OpenSSH"], true);
        assert!(start(stream, LONG).expect_err("no QMP").to_string().contains("SSH-2.0"));
        let (stream, _server) = monitor(&["{}"], true);
        assert!(matches!(start(stream, LONG), Err(QmpError::Protocol { .. })));
    }
}
