//! Network interfaces as they are.

use std::path::Path;

use iotax_model::record::Interface;

/// The interfaces of the network namespace that this process is in.
///
/// # Errors
/// A system that does not list them.
pub fn interfaces(root: &Path) -> std::io::Result<Vec<Interface>> {
    let names = std::fs::read_dir(root.join("sys/class/net"))?;
    let named = names.map(|entry| {
        let name = entry?.file_name().to_string_lossy().into_owned();
        Ok(Interface { name, ..Interface::default() })
    });
    named.collect()
}
