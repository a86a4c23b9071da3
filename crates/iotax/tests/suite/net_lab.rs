//! Two ends of a network with known faults, in a guest whose clock counts instructions.
//!
//! The namespaces `near` and `far` are connected by a pair of interfaces, `near0` and `far0`. The kernel's queueing disciplines cause the
//! faults and count them; these counts are the expected values.

use serde_json::Value;

use crate::lab_guest::{Extras, LabGuest};

/// The kernel modules for paths and their faults.
const MODULES: [&str; 7] = ["veth", "bridge", "sch_netem", "sch_tbf", "sch_prio", "cls_u32", "bonding"];

/// Address of the server.
pub(crate) const FAR: &str = "10.9.0.2";

/// An end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Near,
    Far,
}

impl End {
    /// Name of its namespace.
    pub(crate) const fn namespace(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// Name of its interface.
    pub(crate) const fn interface(self) -> &'static str {
        match self {
            Self::Near => "near0",
            Self::Far => "far0",
        }
    }
}

/// The counters of a queueing discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// Packets sent.
    pub(crate) packets: u64,
    /// Packets dropped.
    pub(crate) drops: u64,
    /// Packets that netem reordered.
    pub(crate) requeues: u64,
}

/// The two ends.
pub(crate) struct NetLab {
    pub(crate) guest: LabGuest,
}

impl NetLab {
    /// Boots the guest and creates the link. Returns `None` and prints the reason if this machine cannot run it.
    pub(crate) fn boot() -> Option<Self> {
        let extras =
            Extras { programs: &["ip", "tc"], modules: &MODULES, exact_time: true, ..Extras::default() };
        let mut guest = LabGuest::boot_with(&extras)?;
        for end in [End::Near, End::Far] {
            let name = end.namespace();
            guest.sh(&format!("ip netns add {name} && ip -n {name} link set dev lo up"));
            guest.sh(&format!("{name}() {{ ip netns exec {name} \"$@\"; }}"));
        }
        guest.sh("ip link add near0 netns near type veth peer name far0 netns far");
        for (end, address) in [(End::Near, "10.9.0.1"), (End::Far, FAR)] {
            let (name, interface) = (end.namespace(), end.interface());
            guest.sh(&format!("ip -n {name} address add {address}/24 dev {interface}"));
            guest.sh(&format!("ip -n {name} link set dev {interface} up"));
        }
        guest.sh("mkdir -p /tmp");
        Some(Self { guest })
    }

    /// Starts `iotax net serve` on a port and waits until it listens.
    pub(crate) fn serve(&mut self, port: u16) {
        let log = format!("/tmp/served-{port}");
        self.guest.sh(&format!("far iotax net serve --bind 0.0.0.0 --port {port} --tests 8 > {log} 2>&1 &"));
        self.guest
            .sh(&format!("for wait in $(seq 200); do grep -q listening {log} && break; usleep 20000; done"));
        self.guest.sh(&format!("grep listening {log} || {{ cat {log}; false; }}"));
    }

    /// Runs iotax at the client. Returns its JSON.
    pub(crate) fn json(&mut self, arguments: &str) -> Value {
        self.guest.sh(&format!("{} || {{ cat /tmp/said; false; }}", Self::command(arguments)));
        self.result()
    }

    /// Runs iotax at the client and a shell command at the same time. Returns the JSON of iotax and the output of the command.
    pub(crate) fn json_while(&mut self, arguments: &str, line: &str) -> (Value, String) {
        let printed = self.guest.sh(&format!(
            "{{ {} || cp /tmp/said /tmp/failed; }} & measuring=$!; {line}; wait $measuring; ! cat /tmp/failed 2> /dev/null",
            Self::command(arguments)
        ));
        (self.result(), printed)
    }

    fn command(arguments: &str) -> String {
        format!("near iotax net {arguments} --db /tmp/iotax.db --json /tmp/result.json > /tmp/said 2>&1")
    }

    fn result(&mut self) -> Value {
        let text = self.guest.sh("cat /tmp/result.json; rm /tmp/result.json");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Sends packets selected by one of `matches` (u32 matches of tc) through netem at an end, and no others.
    pub(crate) fn disturb(&mut self, end: End, matches: &[&str], netem: &str) {
        self.divide(end, 2, &matches.iter().map(|one| (2, *one)).collect::<Vec<_>>());
        let (name, interface) = (end.namespace(), end.interface());
        self.guest.sh(&format!(
            "tc -n {name} qdisc add dev {interface} parent 1:2 handle 2: netem limit 100000 {netem}"
        ));
    }

    /// Divides packets sent by an end into classes from `1:1` on. Packets without a match go to the first.
    pub(crate) fn divide(&mut self, end: End, classes: usize, matches: &[(usize, &str)]) {
        let (name, interface) = (end.namespace(), end.interface());
        let first = ["0"; 16].join(" ");
        self.guest.sh(&format!(
            "tc -n {name} qdisc add dev {interface} root handle 1: prio bands {classes} priomap {first}"
        ));
        for (class, words) in matches {
            self.guest.sh(&format!(
                "tc -n {name} filter add dev {interface} parent 1: protocol ip u32 {words} flowid 1:{class}"
            ));
        }
    }

    /// Adds a queueing discipline at an end, at `root` or `parent CLASS`.
    pub(crate) fn shape(&mut self, end: End, parent: &str, discipline: &str) {
        let (name, interface) = (end.namespace(), end.interface());
        self.guest.sh(&format!("tc -n {name} qdisc add dev {interface} {parent} {discipline}"));
    }

    /// Returns the counters of netem at an end.
    pub(crate) fn account(&mut self, end: End) -> Account {
        let (name, interface) = (end.namespace(), end.interface());
        let text = self.guest.sh(&format!("tc -n {name} -s -j qdisc show dev {interface}"));
        let all: Vec<Value> = serde_json::from_str(&text).expect("tc's JSON");
        let netem =
            all.iter().find(|each| each["kind"] == "netem").unwrap_or_else(|| panic!("no netem: {text}"));
        let count = |key: &str| netem[key].as_u64().unwrap_or_else(|| panic!("{key}: {netem}"));
        Account { packets: count("packets"), drops: count("drops"), requeues: count("requeues") }
    }

    /// Removes the queueing disciplines of an end.
    pub(crate) fn clear(&mut self, end: End) {
        let (name, interface) = (end.namespace(), end.interface());
        self.guest.sh(&format!("tc -n {name} qdisc del dev {interface} root"));
    }
}
