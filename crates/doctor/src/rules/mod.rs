//! The rules, by subject.

mod disk;
mod filesystem;
mod guest;
mod image;
mod layer;
mod machine;
mod network;

use crate::rule::Rule;

/// All rules by subject, from the bottom of a stack to the machine and its network.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [disk::RULES, layer::RULES, filesystem::RULES, image::RULES, guest::RULES, machine::RULES, network::RULES]
        .into_iter()
        .flatten()
}
