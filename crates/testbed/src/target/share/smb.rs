//! Exports a directory with Samba's server.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

use iotax_model::target::{ShareProtocol, ShareSpec};

use super::check_kernel;
use crate::build_error::BuildError;
use crate::host_info;
use crate::netns::{self, Namespace};
use crate::program::{self, Program};
use crate::refusal::Refusal;
use crate::share::{self, SMB_PORT, client};
use crate::target::export::launch;
use crate::target::layer::LayerSite;
use crate::undo::Effect;

/// Samba's server.
const SMBD: Program = Program { name: "smbd", package: "samba" };
/// The tool that writes the server's file of passwords.
const SMBPASSWD: Program = Program { name: "smbpasswd", package: "samba-common-bin" };
/// The tool that mounts the exported directory where only the server sees it.
const MOUNT: Program = Program { name: "mount", package: "mount" };
/// Environment variable with the password, which only root can read.
const PASSWORD: &str = "IOTAX_SMB_PASSWORD";
/// Interval of the client's echo requests in seconds. If the server answers none of three, the connection counts as
/// lost, and requests fail.
const ECHO_INTERVAL: u32 = 10;

/// Shell script that starts the server. ip(8) runs it in a separate mount namespace, in which the server's files are
/// on a private /run that disappears with the server.
const START: &str = r#"
set -e
"$1" -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/samba/private /run/export
"$1" --bind "$2" /run/export
printf '%s' "$3" > "/run/$4.conf"
printf '%s\n%s\n' "$IOTAX_SMB_PASSWORD" "$IOTAX_SMB_PASSWORD" | "$5" -c "/run/$4.conf" -s -a root
unset IOTAX_SMB_PASSWORD
exec "$6" --foreground --no-process-group --debug-stdout -s "/run/$4.conf" >&2
"#;

/// Rejects a machine without Samba, the kernel's SMB client or mount(8). `filesystems` is the content of /proc/filesystems.
pub(super) fn check(filesystems: &str) -> Result<(), Refusal> {
    check_kernel(filesystems, &[client(ShareProtocol::Smb)], "cifs")?;
    for program in [SMBD, SMBPASSWD, MOUNT] {
        program.find().map_err(|error| Refusal::environment(error.to_string()))?;
    }
    Ok(())
}

/// Exports the directory `served` in a network namespace. Returns the client's mount options.
pub(super) fn serve(
    share: &ShareSpec,
    served: &Path,
    namespace: &Namespace,
    at: &mut LayerSite<'_>,
) -> Result<String, BuildError> {
    let marker = &namespace.name;
    let password = host_info::new_uuid().map_err(BuildError::file(served))?;
    at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
    let mut command = netns::command_in(Some(marker), Path::new("/bin/sh"));
    command.args(["-c", START, "sh"]).arg(MOUNT.path()?).arg(served);
    command.args([&settings(share, marker), marker]).arg(SMBPASSWD.path()?).arg(SMBD.path()?);
    command.env("PATH", program::search_path()).env(PASSWORD, &password).stdout(Stdio::null());
    let is_there = || Ok(share::is_listening(marker));
    at.servers.push(launch(command, SMBD.name, served, at.undo_log, is_there)?);
    Ok(options(share, &password))
}

/// Returns the content of smb.conf: the settings that isolate the server, and those of the plan. All other settings have Samba's defaults.
/// The client opens several channels only to an interface that announces RSS, as most network cards do.
fn settings(share: &ShareSpec, name: &str) -> String {
    let (address, sync) = (Ipv4Addr::LOCALHOST, if share.sync { "yes" } else { "no" });
    format!(
        "[global]
server role = standalone server
server min protocol = SMB3_11
interfaces = \"{address};capability=RSS\"
bind interfaces only = yes
smb ports = {SMB_PORT}
disable netbios = yes
multicast dns register = no
passdb backend = smbpasswd:/run/samba/private/passwd
private dir = /run/samba/private
lock directory = /run/samba
state directory = /run/samba
cache directory = /run/samba
pid directory = /run/samba
ncalrpc dir = /run/samba/ncalrpc
log file = /run/samba/log
load printers = no
disable spoolss = yes
[{name}]
path = /run/export
read only = no
valid users = root
strict sync = {sync}
"
    )
}

/// Returns the client's mount options. A request on a lost connection fails after 10 s, the time for which the client tries to reconnect.
/// The client does not pass locks on to the server (`nobrl`): Samba's locks are mandatory, so QEMU's lock would block QEMU's own writes.
/// Nothing is cached (`cache=none`): the kernel would wait forever to write a page back to a server that is gone.
fn options(share: &ShareSpec, password: &str) -> String {
    let ShareSpec { max_channels, seal, .. } = share;
    let address = Ipv4Addr::LOCALHOST;
    let multichannel = if *max_channels > 1 { ",multichannel" } else { "" };
    let seal = if *seal { ",seal" } else { "" };
    format!(
        "ip={address},vers=3.1.1,username=root,password={password},soft,cache=none,nobrl,echo_interval={ECHO_INTERVAL}{multichannel},max_channels={max_channels}{seal}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_plan() {
        let share = ShareSpec { protocol: ShareProtocol::Smb, ..ShareSpec::default() };
        assert!(
            settings(&share, "iotax-1a2b-t-share").contains("\n[iotax-1a2b-t-share]\npath = /run/export\n")
        );
        assert!(settings(&share, "t").ends_with("strict sync = yes\n"));
        assert!(options(&share, "x").ends_with("echo_interval=10,max_channels=1"));
        let share = ShareSpec { max_channels: 4, seal: true, sync: false, ..share };
        assert!(settings(&share, "t").ends_with("strict sync = no\n"));
        assert!(options(&share, "x").ends_with("multichannel,max_channels=4,seal"));
    }
}
