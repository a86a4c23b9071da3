//! Lists of the crates and rooms that each crate and room may use.

/// The workspace crates that each crate may depend on.
pub(crate) const WALLS: &[(&str, &[&str])] = &[
    ("iotax-model", &[]),
    ("iotax-testkit", &["iotax-model"]),
    ("iotax-load", &["iotax-model", "iotax-testkit"]),
    ("iotax-engine", &["iotax-model", "iotax-load", "iotax-testkit"]),
    ("iotax-netperf", &["iotax-model", "iotax-load", "iotax-testkit"]),
    ("iotax-testbed", &["iotax-model", "iotax-testkit"]),
    ("iotax-analysis", &["iotax-model", "iotax-testkit"]),
    ("iotax-store", &["iotax-model", "iotax-analysis", "iotax-testkit"]),
    ("iotax-fleet", &["iotax-model", "iotax-testkit"]),
    ("iotax-serve", &["iotax-model", "iotax-analysis", "iotax-report", "iotax-store", "iotax-testkit"]),
    // Its tests read recorded trees by the testbed's readers.
    ("iotax-doctor", &["iotax-model", "iotax-testbed", "iotax-testkit"]),
    ("iotax-report", &["iotax-model", "iotax-analysis", "iotax-doctor", "iotax-testkit"]),
    ("iotax-top", &["iotax-model", "iotax-testbed", "iotax-testkit"]),
    // Its tests keep runs.
    ("iotax-interop", &["iotax-model", "iotax-analysis", "iotax-report", "iotax-store", "iotax-testkit"]),
    (
        "iotax",
        &[
            "iotax-model",
            "iotax-engine",
            "iotax-netperf",
            "iotax-testbed",
            "iotax-analysis",
            "iotax-doctor",
            "iotax-report",
            "iotax-interop",
            "iotax-top",
            "iotax-store",
            "iotax-serve",
            "iotax-fleet",
            "iotax-testkit",
        ],
    ),
];

/// The crates or modules that parts of the binary, matched by the beginning of their names, may use. A part that is not
/// listed may use everything.
pub(crate) const ROOMS: [(&str, &[&str]); 3] = [
    (
        "agent",
        &[
            "iotax_model",
            "iotax_engine",
            "iotax_netperf",
            "iotax_interop::trace",
            "iotax_testbed::monitor",
            "iotax_testbed::stack",
            "iotax_testbed::host_info",
            "iotax_testbed::postgresql",
            "iotax_testbed::undo",
            "iotax_testbed::target",
            "iotax_testbed::device",
            "iotax_testbed::refusal",
            "iotax_testbed::build_error",
            "iotax_testbed::interfaces",
            "iotax_testbed::survey",
        ],
    ),
    (
        "init",
        &[
            "iotax_model",
            "iotax_engine",
            "iotax_testbed::monitor",
            "iotax_testbed::interfaces",
            "iotax_testbed::device",
        ],
    ),
    ("runner", &["iotax_model", "iotax_testbed", "iotax_analysis", "iotax_store"]),
];

/// The crates that rooms are held to.
pub(crate) const CRATES: [&str; 13] = [
    "iotax_model",
    "iotax_load",
    "iotax_engine",
    "iotax_netperf",
    "iotax_testbed",
    "iotax_analysis",
    "iotax_doctor",
    "iotax_report",
    "iotax_interop",
    "iotax_top",
    "iotax_store",
    "iotax_serve",
    "iotax_fleet",
];
