//! The guest's network: its loopback interface, and the NIC with the host's settings.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iotax_model::guest_abi;
use iotax_testbed::interfaces;

/// The NIC's address and MTU, from the kernel parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    /// The address and the length of its prefix.
    address: (Ipv4Addr, u8),
    mtu: Option<u32>,
}

/// Sets up loopback and the NIC if the kernel parameters have an address for the NIC.
pub(super) fn set_up(parameters: &str) -> Result<()> {
    let Some(wanted) = wanted(parameters)? else { return Ok(()) };
    interfaces::set_up_loopback().context("lo could not be brought up")?;
    let net = "/sys/class/net";
    let card =
        super::appearing(|| interfaces::card(Path::new("/")).map(|name| PathBuf::from(net).join(name)));
    let card = card.with_context(|| format!("no network card; {}", super::present(net)))?;
    let name = card.file_name().unwrap_or_default().to_string_lossy();
    interfaces::set_up(&name, wanted.address, wanted.mtu)
        .with_context(|| format!("{name} could not be set up as {wanted:?}"))?;
    let running = super::appearing(|| carrier(&card).then(|| card.clone()));
    running.map(drop).with_context(|| format!("{name} has no link"))
}

/// Returns whether the NIC reports a link.
fn carrier(card: &Path) -> bool {
    std::fs::read_to_string(card.join("carrier")).is_ok_and(|carrier| carrier.trim() == "1")
}

fn wanted(parameters: &str) -> Result<Option<Wanted>> {
    let key = guest_abi::NET_PARAMETER;
    let Some(word) = parameters.split_whitespace().find_map(|word| word.strip_prefix(key)) else {
        return Ok(None);
    };
    let read = || {
        let (address, mtu) = word.split_once(',').map_or((word, None), |(address, mtu)| (address, Some(mtu)));
        let (address, prefix) = address.split_once('/')?;
        let address = (address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?);
        let mtu = mtu.map(str::parse).transpose().ok()?;
        Some(Wanted { address, mtu })
    };
    read()
        .map(Some)
        .with_context(|| format!("{key}{word}: accepted: {key}ADDRESS/PREFIX or {key}ADDRESS/PREFIX,MTU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_read_or_quoted() {
        let address = (Ipv4Addr::new(10, 91, 0, 2), 30);
        for (word, mtu) in [("iotax.net=10.91.0.2/30", None), ("iotax.net=10.91.0.2/30,9000", Some(9000))] {
            let read = wanted(&format!("quiet {word} panic=-1")).expect("understood");
            assert_eq!(read, Some(Wanted { address, mtu }));
        }
        assert_eq!(wanted("quiet").expect("nothing asked"), None);
        for bad in ["", "10.91.0.2", "10.91.0.2/33", "10.91.0.2/24,x", "box/24", "10.91.0.2/24,"] {
            let error = wanted(&format!("iotax.net={bad}")).expect_err(bad).to_string();
            assert!(error.contains(&format!("iotax.net={bad}: accepted")), "{error}");
        }
    }
}
