//! `iotax relay`: connects stdin and stdout to a shell in a guest of libvirt. A run starts this process.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_testbed::virsh::{self, DomainAddress, GuestPort};

use super::{Failure, OrExit};

/// Flags of `iotax relay`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// URI of the libvirt daemon
    #[arg(long, value_name = "URI")]
    connect: String,
    /// UUID of the domain
    #[arg(long, value_name = "UUID")]
    domain: String,
    /// Name of the virtio-serial port in the guest
    #[arg(long, value_name = "NAME")]
    port: String,
    /// Socket at which QEMU serves the port
    socket: PathBuf,
}

pub(super) fn main(args: Args) -> Result<Exit, Failure> {
    let Args { connect: uri, domain: uuid, port: name, socket } = args;
    let port = GuestPort { domain: DomainAddress { uri, uuid }, name, socket };
    let status = virsh::relay(&port).or_exit(Exit::Environment)?;
    // The runner needs to know whether the agent left nothing.
    Ok(if status == 0 { Exit::Fine } else { Exit::Environment })
}
