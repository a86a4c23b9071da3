//! The undo ledger: what was done to this machine and how to undo it.
