//! Limits the request rate of each peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Size of a peer's token bucket, in seconds of the permitted rate.
const BURST: f64 = 10.0;
/// Maximum number of peers that are tracked; with more, the peer without requests for the longest time is dropped.
const PEERS: usize = 4096;

/// Returns the address that identifies a peer: the IPv4 address, or the /64 prefix of an IPv6 address.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A token bucket for each peer, which fills at the permitted rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    per_second: f64,
    peers: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Limiter {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), peers: Mutex::default() }
    }

    /// Takes a token from a peer's bucket. Returns false, and takes nothing, if none is left.
    pub(crate) fn take(&self, peer: IpAddr, now: Instant) -> bool {
        self.with_bucket(peer, now, |bucket| {
            let is_enough = bucket.left >= 1.0;
            if is_enough {
                bucket.left -= 1.0;
            }
            is_enough
        })
    }

    /// Takes `requests` tokens from a peer's bucket, even if it has fewer. The peer's requests are then refused until the bucket holds a
    /// token again.
    pub(crate) fn charge(&self, peer: IpAddr, requests: f64, now: Instant) {
        let full = self.per_second * BURST;
        self.with_bucket(peer, now, |bucket| bucket.left = (bucket.left - requests).max(-full));
    }

    fn with_bucket<T>(&self, peer: IpAddr, now: Instant, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let (peer, full) = (network(peer), self.per_second * BURST);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= PEERS && !peers.contains_key(&peer) {
            let oldest = peers.iter().min_by_key(|(_, bucket)| bucket.at).map(|(peer, _)| *peer);
            oldest.map(|peer| peers.remove(&peer));
        }
        let bucket = peers.entry(peer).or_insert(Bucket { left: full, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.per_second).min(full);
        bucket.at = now;
        act(bucket)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_peer_has_its_burst_and_then_its_rate() {
        let (limiter, peer, start) = (Limiter::new(2), IpAddr::from([127, 0, 0, 1]), Instant::now());
        let taken = (0..30).filter(|_| limiter.take(peer, start)).count();
        assert_eq!(taken, 20, "ten seconds' worth");
        assert!(limiter.take(IpAddr::from([127, 0, 0, 2]), start), "another peer has its own");
        assert!(!limiter.take(peer, start + Duration::from_millis(400)));
        assert!(limiter.take(peer, start + Duration::from_millis(600)));
    }

    #[test]
    fn what_is_charged_is_owed_by_a_peer_with_few_tokens_too() {
        let (limiter, peer, start) = (Limiter::new(2), IpAddr::from([127, 0, 0, 1]), Instant::now());
        while limiter.take(peer, start) {}
        limiter.charge(peer, 20.0, start);
        assert!(!limiter.take(peer, start + Duration::from_secs(10)), "20 are owed");
        assert!(limiter.take(peer, start + Duration::from_millis(10_600)));
        (0..100).for_each(|_| limiter.charge(peer, 20.0, start));
        assert!(limiter.take(peer, start + Duration::from_millis(20_600)), "a debt has an end");
    }

    #[test]
    fn a_host_is_one_peer_whichever_of_its_addresses_it_takes() {
        let network = |text: &str| network(text.parse().expect("an address")).to_string();
        assert_eq!(network("2001:db8:1:2:a:b:c:d"), network("2001:db8:1:2::1"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn peers_without_end_take_no_memory_without_end() {
        let (limiter, start) = (Limiter::new(2), Instant::now());
        for i in 0..10_000_u32 {
            limiter.take(Ipv4Addr::from_bits(i).into(), start + Duration::from_micros(i.into()));
        }
        assert_eq!(limiter.peers.lock().expect("sound").len(), PEERS);
    }
}
