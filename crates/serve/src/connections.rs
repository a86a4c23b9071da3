//! How many connections each peer has open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limiter::network;

/// Connections at one time.
const ALL: usize = 256;
/// The most that one peer has: it cannot shut out the others, and a reverse proxy is one peer.
pub(crate) const OF_ONE: usize = 128;

/// The connections that are open, by peer.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    peer: IpAddr,
}

impl Connections {
    /// A connection more for a peer; absent if it, or all together, have as many as they may.
    pub(crate) fn open(self: &Arc<Self>, peer: IpAddr) -> Option<Connection> {
        let peer = network(peer);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has = open.get(&peer).copied().unwrap_or_default();
        if has >= OF_ONE || open.values().sum::<usize>() >= ALL {
            return None;
        }
        open.insert(peer, has + 1);
        Some(Connection { all: Arc::clone(self), peer })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.peer) {
            Some(has) if *has > 1 => *has -= 1,
            _ => {
                open.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_has_them_all_and_what_ends_is_free_again() {
        let connections = Arc::new(Connections::default());
        let take = |peer: [u8; 4]| std::iter::from_fn(|| connections.open(peer.into())).collect::<Vec<_>>();
        let one = take([10, 0, 0, 1]);
        assert_eq!(one.len(), OF_ONE);
        let other = take([10, 0, 0, 2]);
        assert_eq!(other.len(), ALL - OF_ONE);
        assert!(take([10, 0, 0, 3]).is_empty(), "all are taken");
        drop(one);
        assert_eq!(take([10, 0, 0, 3]).len(), OF_ONE);
        drop(other);
        assert!(connections.0.lock().expect("sound").is_empty(), "nobody is remembered");
    }
}
