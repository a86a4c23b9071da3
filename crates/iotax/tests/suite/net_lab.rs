//! Two ends of a network whose faults are known, in a guest whose clock counts its instructions.
//!
//! `near` and `far` are namespaces with a pair of interfaces between them, `near0` and `far0`. What goes wrong on the way is made by the
//! kernel's queueing disciplines, which also count what they did: that is the truth.

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
    /// Its namespace.
    pub(crate) const fn namespace(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// Its interface.
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
    /// Packets that left it.
    pub(crate) packets: u64,
    /// Packets that it dropped.
    pub(crate) drops: u64,
    /// Packets that netem let pass those before them.
    pub(crate) requeues: u64,
}

/// The two ends.
pub(crate) struct NetLab {
    pub(crate) guest: LabGuest,
}

impl NetLab {
    /// Boots the guest and lays the link. `None` after saying why, if this machine cannot.
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

    /// Has iotax be the server at a port, and waits until it is.
    pub(crate) fn serve(&mut self, port: u16) {
        let log = format!("/tmp/served-{port}");
        self.guest.sh(&format!("far iotax net serve --bind 0.0.0.0 --port {port} --tests 8 > {log} 2>&1 &"));
        self.guest
            .sh(&format!("for wait in $(seq 200); do grep -q listening {log} && break; usleep 20000; done"));
        self.guest.sh(&format!("grep listening {log} || {{ cat {log}; false; }}"));
    }

    /// Has iotax measure at the client, and reads its JSON.
    pub(crate) fn json(&mut self, arguments: &str) -> Value {
        self.guest.sh(&format!("{} || {{ cat /tmp/said; false; }}", Self::command(arguments)));
        self.result()
    }

    /// Has iotax measure at the client while a line of shell is executed, and reads its JSON. What the line printed.
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

    /// Has what one of `matches` finds (words of tc's u32) leave an end through netem, and nothing else.
    pub(crate) fn disturb(&mut self, end: End, matches: &[&str], netem: &str) {
        self.divide(end, 2, &matches.iter().map(|one| (2, *one)).collect::<Vec<_>>());
        let (name, interface) = (end.namespace(), end.interface());
        self.guest.sh(&format!(
            "tc -n {name} qdisc add dev {interface} parent 1:2 handle 2: netem limit 100000 {netem}"
        ));
    }

    /// Divides what leaves an end into classes from `1:1` on. What nothing finds is in the first.
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

    /// The counters of netem at an end.
    pub(crate) fn account(&mut self, end: End) -> Account {
        let (name, interface) = (end.namespace(), end.interface());
        let text = self.guest.sh(&format!("tc -n {name} -s -j qdisc show dev {interface}"));
        let all: Vec<Value> = serde_json::from_str(&text).expect("tc's JSON");
        let netem =
            all.iter().find(|each| each["kind"] == "netem").unwrap_or_else(|| panic!("no netem: {text}"));
        let count = |key: &str| netem[key].as_u64().unwrap_or_else(|| panic!("{key}: {netem}"));
        Account { packets: count("packets"), drops: count("drops"), requeues: count("requeues") }
    }

    /// Takes away what was put in an end's way.
    pub(crate) fn clear(&mut self, end: End) {
        let (name, interface) = (end.namespace(), end.interface());
        self.guest.sh(&format!("tc -n {name} qdisc del dev {interface} root"));
    }
}
