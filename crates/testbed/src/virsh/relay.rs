//! Connects stdin and stdout to a shell in a guest, through a virtio-serial port that iotax attached to the domain.
//!
//! The guest agent starts the shell and reports its end. The shell's input and output pass through the port, because the guest agent cannot
//! stream them.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use iotax_model::threads;
use roxmltree::Document;

use super::DomainAddress;

/// Maximum time for the shell in the guest to exit after its port was closed. It removes the agent's files first.
const FAREWELL: Duration = Duration::from_secs(25);
/// Maximum time for QEMU to listen on a new port's socket.
const LISTENING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Shell script that opens the port named `$1` in the guest and runs a shell on it. Reads return end of file until the guest knows that the
/// host is connected, so the script waits for the line `begin`. A write after the host has disconnected blocks until the port is removed,
/// so the last line is written in the background.
const SHELL: &str = r#"attempt=0
wait_again() {
    attempt=$((attempt + 1))
    [ "$attempt" -lt 150 ] && sleep 0.1
}
while wait_again; do
    for name in /sys/class/virtio-ports/*/name; do
        read -r found 2>/dev/null <"$name" && [ "$found" = "$1" ] || continue
        name=${name%/name}
        exec <>"/dev/${name##*/}" >&0 || exit 3
        until read -r word && [ "$word" = begin ]; do
            wait_again || { echo "the port $1 stays silent" >&2; exit 3; }
        done
        sh
        status=$?
        (echo "$1 over") 2>/dev/null &
        exit "$status"
    done
done
echo "the port $1 does not appear in the guest (module virtio_console)" >&2
exit 3
"#;

/// A virtio-serial port of a domain, attached by iotax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPort {
    /// Address of the domain.
    pub domain: DomainAddress,
    /// Name of the port in the guest.
    pub name: String,
    /// Path of the Unix socket on the host at which QEMU listens for the port.
    pub socket: PathBuf,
}

impl GuestPort {
    /// Finds the attached port with this name in the domain's XML; `None` if the domain has no such port with a socket.
    #[must_use]
    pub fn in_xml(domain: &DomainAddress, xml: &str, name: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let channel = document.descendants().find(|node| {
            let is_it = |target: roxmltree::Node<'_, '_>| {
                target.has_tag_name("target") && target.attribute("name") == Some(name)
            };
            node.has_tag_name("channel") && node.children().any(is_it)
        })?;
        let source = channel.children().find(|node| node.has_tag_name("source"))?;
        let socket = source.attribute("path")?.into();
        Some(Self { domain: domain.clone(), name: name.to_owned(), socket })
    }
}

/// Runs a shell in the guest on stdin and stdout until it exits or stdin ends. Its stderr is printed after its end. Returns its exit
/// status; 1 if a signal ended it.
///
/// # Errors
/// The port's socket or the guest agent cannot be reached, or the shell does not exit after the connection has ended.
pub fn relay(port: &GuestPort) -> io::Result<i32> {
    let mut socket = connect(port)?;
    let shell = port.domain.start_script(SHELL, &[&port.name]).map_err(io::Error::other)?;
    socket.write_all(b"begin\n")?;
    let mut to_guest = socket.try_clone()?;
    threads::spawn("to guest", move || {
        let _ = io::copy(&mut io::stdin(), &mut to_guest);
        // The shell, or the program that it became, reads an end.
        let _ = to_guest.shutdown(Shutdown::Both);
    })?;
    // The other end of stdout may have gone: the shell's end counts all the same.
    let _ = pass_on(&mut socket, &mut io::stdout().lock(), format!("{} over\n", port.name).as_bytes());
    drop(socket);
    let exit = port.domain.wait_for(shell, FAREWELL).map_err(io::Error::other)?;
    io::stderr().write_all(exit.said.as_bytes())?;
    Ok(exit.status.unwrap_or(1))
}

fn connect(port: &GuestPort) -> io::Result<UnixStream> {
    let end = Instant::now() + LISTENING;
    loop {
        match UnixStream::connect(&port.socket) {
            Err(error) if Instant::now() > end || error.kind() == io::ErrorKind::PermissionDenied => {
                let path = port.socket.display();
                return Err(io::Error::new(error.kind(), format!("{path}: {error}; run iotax as root")));
            }
            Err(_) => threads::sleep(POLL),
            connected => return connected,
        }
    }
}

/// Copies a stream until it ends, or until the received data ends with `last`, which is not copied.
fn pass_on(from: &mut impl Read, to: &mut impl Write, last: &[u8]) -> io::Result<()> {
    let mut pending = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let count = match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        pending.extend_from_slice(&chunk[..count]);
        if count == 0 || pending.ends_with(last) {
            let rest = pending.strip_suffix(last).unwrap_or(&pending);
            to.write_all(rest)?;
            return to.flush();
        }
        // The beginning of `last` may have arrived, and its rest not yet.
        let longest = last.len().min(pending.len());
        let kept = (0..=longest).rev().find(|kept| pending.ends_with(&last[..*kept])).unwrap_or(0);
        to.write_all(&pending[..pending.len() - kept])?;
        to.flush()?;
        pending.drain(..pending.len() - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields its pieces one by one.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn everything_passes_but_the_line_of_the_end() {
        for (pieces, passed) in [
            (vec![&b"here\n"[..], b"p over\n"], &b"here\n"[..]),
            (vec![b"frame}p", b" over", b"\n", b"not read"], b"frame}"),
            (vec![b"frame}p", b" overture", b"p ov"], b"frame}p overturep ov"),
            (vec![b"p over\nmore", b"p over\n"], b"p over\nmore"),
            (vec![], b""),
        ] {
            let mut out = Vec::new();
            pass_on(&mut Pieces(pieces), &mut out, b"p over\n").expect("passed");
            assert_eq!(out, passed);
        }
    }

    #[test]
    fn a_port_is_found_by_its_name() {
        let domain = DomainAddress { uri: "qemu:///system".into(), uuid: "u".into() };
        let xml = "<domain><devices><channel type='unix'><source mode='bind' path='/run/agent'/>\
                   <target type='virtio' name='org.qemu.guest_agent.0'/></channel>\
                   <channel type='unix'><source mode='bind' path='/run/own'/><target type='virtio' name='iotax-1a2b'/>\
                   </channel></devices></domain>";
        let port = GuestPort::in_xml(&domain, xml, "iotax-1a2b").expect("there");
        assert_eq!(port.socket, PathBuf::from("/run/own"));
        assert_eq!(GuestPort::in_xml(&domain, xml, "iotax-3c4d"), None);
    }
}
