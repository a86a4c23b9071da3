//! The open connections, and the choice of the one to close when a limit is reached.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::net::{Shutdown, shutdown};

use crate::limiter::network;

/// Maximum number of open connections.
const ALL: usize = 256;
/// Maximum number of open connections per peer. All clients of a reverse proxy count as one peer.
pub(crate) const OF_ONE: usize = 128;

/// The open connections. At the limit, a new connection replaces an older one, so that slow clients cannot lock others out: of the peer
/// with the most connections, the one that has waited longest for its client. A peer at its own limit replaces one of its own connections.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Number of connections opened so far, used to number the next one.
    count: u64,
    by_number: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    /// Number of this connection's requests that are received and being answered.
    busy: usize,
    /// Time at which the connection began to wait for its client.
    since: Instant,
    socket: OwnedFd,
}

/// An open connection. Dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    number: u64,
}

/// A request that is being answered. As long as it exists, its connection is not closed to make room.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Connections {
    /// Adds a connection of a peer. `None` if a limit is reached and all connections that could be closed have a request being answered.
    pub(crate) fn open(self: &Arc<Self>, peer: IpAddr, socket: impl AsFd) -> io::Result<Option<Connection>> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let peer = peer_of(peer);
        let mut open = self.lock();
        let mut peers = HashMap::<IpAddr, usize>::new();
        open.by_number.values().for_each(|entry| *peers.entry(entry.peer).or_default() += 1);
        let is_full = peers.get(&peer).is_some_and(|has| *has >= OF_ONE);
        if (is_full || open.by_number.len() >= ALL)
            && !open.close_one(|entry| (entry.peer == peer || !is_full).then(|| peers[&entry.peer]))
        {
            return Ok(None);
        }
        open.count += 1;
        let number = open.count;
        open.by_number.insert(number, Entry { peer, busy: 0, since: Instant::now(), socket });
        Ok(Some(Connection { all: Arc::clone(self), number }))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes a connection of which no request is being answered: among those with the highest `rank`, the one that has waited longest.
    /// Connections without a rank stay open. Returns false if no connection could be closed.
    fn close_one(&mut self, rank: impl Fn(&Entry) -> Option<usize>) -> bool {
        let waiting = self.by_number.iter().filter(|(_, entry)| entry.busy == 0);
        let ranked =
            waiting.filter_map(|(number, entry)| Some((rank(entry)?, Reverse(entry.since), *number)));
        let Some((_, _, number)) = ranked.max() else { return false };
        if let Some(entry) = self.by_number.remove(&number) {
            // Ends the connection's reads, and so its task.
            let _ = shutdown(&entry.socket, Shutdown::Both);
        }
        true
    }
}

impl Connection {
    /// Marks that a request is being answered, until the result is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        if let Some(entry) = self.all.lock().by_number.get_mut(&self.number) {
            entry.busy += 1;
        }
        Busy(Arc::clone(self))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(entry) = self.0.all.lock().by_number.get_mut(&self.0.number) {
            entry.busy -= 1;
            entry.since = Instant::now();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().by_number.remove(&self.number);
    }
}

/// Returns the address that identifies a peer, as [`network`] does, except that all loopback addresses are the same peer.
fn peer_of(peer: IpAddr) -> IpAddr {
    if peer.to_canonical().is_loopback() { Ipv4Addr::LOCALHOST.into() } else { network(peer) }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Opens `count` connections of a peer, each with its client's end.
    fn some(all: &Arc<Connections>, peer: [u8; 4], count: usize) -> Vec<(Arc<Connection>, UnixStream)> {
        let one = |_| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            theirs.set_nonblocking(true).expect("set");
            let open = all.open(peer.into(), ours).expect("a descriptor");
            open.map(|open| (Arc::new(open), theirs))
        };
        (0..count).filter_map(one).collect()
    }

    fn closed(clients: &[(Arc<Connection>, UnixStream)]) -> usize {
        clients.iter().filter(|(_, client)| matches!((&*client).read(&mut [0]), Ok(0))).count()
    }

    #[test]
    fn who_waits_longest_of_the_largest_peer_gives_way() {
        let all = Arc::new(Connections::default());
        let (first, second) =
            (some(&all, [10, 0, 0, 1], OF_ONE), some(&all, [10, 0, 0, 2], ALL - OF_ONE - 1));
        let quiet = some(&all, [10, 0, 0, 3], 1);
        assert_eq!((first.len(), second.len(), quiet.len()), (OF_ONE, ALL - OF_ONE - 1, 1));
        let busy = first[0].0.busy();
        let late = some(&all, [10, 0, 0, 4], 1);
        assert_eq!((late.len(), closed(&first), closed(&second), closed(&quiet)), (1, 1, 0, 0));
        assert_eq!(closed(&first[..1]), 0, "it is being answered");
        drop(busy);
        // A peer at its own limit replaces one of its own connections.
        drop(late);
        let more = some(&all, [10, 0, 0, 1], 2);
        assert_eq!((more.len(), closed(&second), closed(&quiet)), (2, 0, 0));
        drop((first, second, quiet, more));
        assert!(all.lock().by_number.is_empty(), "nobody is remembered");
    }

    #[test]
    fn all_addresses_of_this_machine_are_one_peer() {
        let all = Arc::new(Connections::default());
        let clients: Vec<_> = (1..=200).flat_map(|last| some(&all, [127, 0, 0, last], 1)).collect();
        assert_eq!((clients.len(), closed(&clients)), (200, 200 - OF_ONE));
        let busy: Vec<Busy> = clients.iter().map(|(connection, _)| connection.busy()).collect();
        assert!(some(&all, [127, 0, 0, 1], 1).is_empty(), "all are being answered");
        drop(busy);
        assert_eq!(some(&all, [127, 0, 0, 1], 1).len(), 1);
    }
}
