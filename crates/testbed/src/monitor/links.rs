//! Watches network interfaces going up or down.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use crate::netlink::{LinkNews, Multicast, link_news};

/// A watch on the network interfaces in this process's network namespace.
#[derive(Debug)]
pub struct Links {
    kernel: Multicast,
    states: LinkStates,
}

impl Links {
    /// Subscribes to interface changes. The kernel first describes each current interface, which sets its initial state.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self { kernel: Multicast::links()?, states: LinkStates::default() })
    }

    /// Returns the changes since the last call, such as `eth1: down`, `eth1: up`, `eth1: removed`. Waits at most `patience` for one. An
    /// interface counts as up only with a carrier.
    pub fn next(&mut self, patience: Duration) -> Vec<String> {
        let datagrams = self.kernel.next(patience);
        datagrams
            .iter()
            .flat_map(|bytes| link_news(bytes))
            .filter_map(|news| self.states.hear(news))
            .collect()
    }
}

/// Last known state of each interface (true for up), by interface index.
#[derive(Debug, Default)]
struct LinkStates(HashMap<[u8; 4], bool>);

impl LinkStates {
    /// Updates an interface's state. Returns the change as text; `None` if there is no change, or if this is the first message about the
    /// interface.
    fn hear(&mut self, news: LinkNews) -> Option<String> {
        let LinkNews { index, name, is_up } = news;
        let Some(is_up) = is_up else {
            return self.0.remove(&index).map(|_| format!("{name}: removed"));
        };
        let before = self.0.insert(index, is_up)?;
        (before != is_up).then(|| format!("{name}: {}", if is_up { "up" } else { "down" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_is_told() {
        let mut states = LinkStates::default();
        let mut hear = |is_up| states.hear(LinkNews { index: [2, 0, 0, 0], name: "eth1".into(), is_up });
        let lines: Vec<Option<String>> =
            [Some(true), Some(true), Some(false), Some(false), Some(true), None, None].map(&mut hear).into();
        let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
        let expected = [None, None, Some("eth1: down"), None, Some("eth1: up"), Some("eth1: removed"), None];
        assert_eq!(lines, expected);
    }
}
