//! Two ends of a network whose faults are known, in a guest whose clock counts its instructions.
//!
//! `near` and `far` are namespaces with a pair of interfaces between them, `near0` and `far0`. What goes wrong on the way is made by the
//! kernel's queueing disciplines, which also count what they did: that is the truth.

use iotax_model::record::Carried;
use serde_json::Value;

use crate::lab_guest::{Extras, LabGuest};

/// What paths and their faults are made of.
const MODULES: [&str; 6] = ["veth", "sch_netem", "sch_tbf", "sch_prio", "cls_u32", "bonding"];

/// Address of the far end.
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

/// What a queueing discipline says that it did.
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
        Some(Self { guest })
    }
}
