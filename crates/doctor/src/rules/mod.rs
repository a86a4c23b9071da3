//! All rules, by subject.

mod disk;
mod filesystem;
mod guest;
mod image;
mod layer;
mod machine;
mod network;

use crate::rule::Rule;

/// Returns all rules in the order of their subjects: from disks up the stack, then machine and network.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [disk::RULES, layer::RULES, filesystem::RULES, image::RULES, guest::RULES, machine::RULES, network::RULES]
        .into_iter()
        .flatten()
}
