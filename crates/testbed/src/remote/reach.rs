//! Programs that start a shell on another machine or in a container, and explanations of their errors.

use std::os::unix::process::CommandExt;
use std::process::Command;

use iotax_model::target::{ContainerEngine, Machine};

use crate::program::Program;
use crate::virsh::{GuestPort, VIRSH};

pub(super) const SSH: Program = Program { name: "ssh", package: "openssh-client" };
const DOCKER: Program = Program { name: "docker", package: "docker.io" };
const PODMAN: Program = Program { name: "podman", package: "podman" };
const LXC: Program = Program { name: "lxc-attach", package: "lxc" };
const INCUS: Program = Program { name: "incus", package: "incus" };
const LXD: Program = Program { name: "lxc", package: "lxd" };
const KUBECTL: Program = Program { name: "kubectl", package: "kubernetes-client" };

/// Returns the local program that connects to a machine or container, such as ssh or docker.
pub(super) const fn program(machine: &Machine) -> Program {
    match machine {
        Machine::Ssh { .. } => SSH,
        Machine::Container { engine: ContainerEngine::Docker, .. } => DOCKER,
        Machine::Container { engine: ContainerEngine::Podman, .. } => PODMAN,
        Machine::Container { engine: ContainerEngine::Lxc, .. } => LXC,
        Machine::Container { engine: ContainerEngine::Incus, .. } => INCUS,
        Machine::Container { engine: ContainerEngine::Lxd, .. } => LXD,
        Machine::Pod { .. } => KUBECTL,
        Machine::Domain { .. } => VIRSH,
    }
}

/// Returns the connecting command line, for error messages; for ssh, without its options.
pub(super) fn shown(machine: &Machine) -> String {
    match machine {
        Machine::Ssh { destination, .. } => format!("ssh {destination} sh"),
        _ => format!("{} {}", program(machine).name, container_arguments(machine).join(" ")),
    }
}

/// Prepares the command that starts a shell on a machine or in a container. The shell reads its script from stdin. `ask` allows ssh to
/// prompt.
pub(super) fn shell(machine: &Machine, ask: bool) -> Command {
    if let Machine::Ssh { destination, port } = machine {
        return ssh(destination, *port, ask);
    }
    let mut command = Command::new(program(machine).name);
    // Nothing here asks on the terminal, and the runner handles Ctrl-C.
    command.args(container_arguments(machine)).process_group(0);
    command
}

/// Prepares the command that runs this program as the relay between its stdin and stdout and a shell in a guest.
pub(super) fn relay(port: &GuestPort) -> Command {
    let GuestPort { domain, name, socket } = port;
    let mut command = Command::new("/proc/self/exe");
    command.args(["relay", "--connect", &domain.uri, "--domain", &domain.uuid, "--port", name]);
    // The runner handles Ctrl-C.
    command.arg(socket).process_group(0);
    command
}

/// Prepares ssh with the user's configuration, keys and known hosts. Host key checking is unchanged. Without `ask`, ssh never prompts.
fn ssh(destination: &str, port: Option<u16>, ask: bool) -> Command {
    // ssh inherits ignored signals. To prompt, it must stay in the terminal's foreground, where Ctrl-C would otherwise end it before the
    // runner handles it.
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap '' HUP INT QUIT; exec "$@""#, "sh", SSH.name, "-T"]);
    // A connection master would outlive this one. Forwarded ports may be taken.
    for option in [
        "ControlMaster=no",
        "ClearAllForwardings=yes",
        "RemoteCommand=none",
        "ConnectTimeout=20",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
    ] {
        command.args(["-o", option]);
    }
    if !ask {
        command.args(["-o", "BatchMode=yes"]);
    }
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["--", destination, "sh"]);
    command
}

fn container_arguments(machine: &Machine) -> Vec<&str> {
    match machine {
        Machine::Ssh { .. } => Vec::new(),
        Machine::Container { engine, user, name } => match engine {
            ContainerEngine::Docker | ContainerEngine::Podman => {
                let user = user.iter().flat_map(|user| ["--user", user]);
                ["exec", "-i"].into_iter().chain(user).chain([name, "sh"]).collect()
            }
            // Paths of this machine's environment mean nothing there.
            ContainerEngine::Lxc => vec!["--name", name, "--clear-env", "--", "sh"],
            ContainerEngine::Incus | ContainerEngine::Lxd => vec!["exec", "-T", name, "--", "sh"],
        },
        Machine::Pod { namespace, name, container } => {
            let container = container.iter().flat_map(|container| ["-c", container]);
            let start = ["exec", "-i", "-n", namespace, name].into_iter().chain(container);
            start.chain(["--", "sh"]).collect()
        }
        Machine::Domain { name, .. } => vec!["qemu-agent-command", name],
    }
}

/// Fragments of ssh's error messages, with remedies.
const OF_SSH: [(&str, &str); 7] = [
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is not the one that is known: find out why before you accept it",
    ),
    ("Host key verification failed", "connect to it once with ssh to see and accept its key"),
    (
        "Permission denied",
        "give ssh a key that is accepted there, or run this on a terminal without --yes, where ssh can ask",
    ),
    ("Could not resolve", "check the name, or describe the host in ~/.ssh/config"),
    ("Connection refused", "does sshd run there, on this port? Accepted: ssh://[user@]host[:port]/path"),
    ("timed out", "is the machine up, and is there a way to it?"),
    ("not available", "the account there needs a POSIX shell"),
];

const NO_SHELL: &str =
    "iotax needs a POSIX shell (sh) in the container: measure from one that has it and the same volumes";
const NOT_RUNNING: &str = "start the container first, or check its name if it runs";
const UNKNOWN: &str = "check the container's name, and whose it is: each user has containers of his own";
const FORBIDDEN: &str = "this user may not start commands there: run iotax as one who may, such as root";
const NO_DAEMON: &str = "is its service running, and does this user's configuration lead to it?";

/// Fragments of error messages of container engines and kubectl in lower case, with remedies. The first fragment that matches is used.
const OF_CONTAINERS: [(&str, &str); 18] = [
    ("executable file", NO_SHELL),
    ("failed to exec", NO_SHELL),
    ("command not found", NO_SHELL),
    ("no such container", UNKNOWN),
    ("no container with name", UNKNOWN),
    ("notfound", UNKNOWN),
    ("instance not found", UNKNOWN),
    ("is not defined", UNKNOWN),
    ("not running", NOT_RUNNING),
    ("running containers", NOT_RUNNING),
    ("failed to get init pid", NOT_RUNNING),
    ("is paused", "let the container go on first"),
    ("permission denied", FORBIDDEN),
    ("forbidden", FORBIDDEN),
    ("operation not permitted", FORBIDDEN),
    ("cannot connect", NO_DAEMON),
    ("refused", NO_DAEMON),
    ("unable to connect", NO_DAEMON),
];

/// Fragments of libvirt's and the guest agent's error messages, with remedies.
const OF_DOMAINS: [(&str, &str); 4] = [
    ("has been disabled", "let the guest agent run commands (guest-exec) in its configuration in the guest"),
    ("/bin/sh", "iotax needs Linux with a POSIX shell in the guest"),
    ("not connected", "start qemu-guest-agent in the guest"),
    ("not responding", "is the guest up, and does qemu-guest-agent run in it?"),
];

/// Returns the remedy for a failed connection, chosen by the output `said`.
pub(super) fn remedy(machine: &Machine, said: &str) -> String {
    let known = match machine {
        Machine::Ssh { .. } => OF_SSH.iter().find(|(words, _)| said.contains(words)),
        Machine::Container { .. } | Machine::Pod { .. } => {
            let said = said.to_lowercase();
            OF_CONTAINERS.iter().find(|(words, _)| said.contains(words))
        }
        Machine::Domain { .. } => OF_DOMAINS.iter().find(|(words, _)| said.contains(words)),
    };
    known.map_or_else(
        || format!("it needs a POSIX shell that {} can start", shown(machine)),
        |(_, remedy)| (*remedy).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(url: &str) -> String {
        let command = shell(&url.parse().expect(url), false);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_is_reached_by_its_own_program() {
        for (url, expected) in [
            ("docker://web", "docker exec -i web sh"),
            ("docker://root@web", "docker exec -i --user root web sh"),
            ("podman://web", "podman exec -i web sh"),
            ("lxc://c1", "lxc-attach --name c1 --clear-env -- sh"),
            ("incus://c1", "incus exec -T c1 -- sh"),
            ("lxd://c1", "lxc exec -T c1 -- sh"),
            ("kubectl://default/web-0", "kubectl exec -i -n default web-0 -- sh"),
            ("kubectl://default/web-0:db", "kubectl exec -i -n default web-0 -c db -- sh"),
        ] {
            assert_eq!(words(url), expected);
        }
        let ssh = words("ssh://me@box:2222");
        assert!(ssh.contains("BatchMode=yes -p 2222 -- me@box sh"), "{ssh}");
    }

    #[test]
    fn failures_that_are_known_have_a_remedy() {
        for (url, said, remedy) in [
            ("docker://web", "Error response from daemon: No such container: web", UNKNOWN),
            ("docker://web", "Error response from daemon: Container 3f2a is not running", NOT_RUNNING),
            (
                "docker://web",
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
                NO_DAEMON,
            ),
            (
                "docker://web",
                "permission denied while trying to connect to the Docker daemon socket",
                FORBIDDEN,
            ),
            ("docker://web", "exec: \"sh\": executable file not found in $PATH: unknown", NO_SHELL),
            ("podman://web", "Error: no container with name or ID \"web\" found: no such container", UNKNOWN),
            ("podman://web", "Error: can only create exec sessions on running containers", NOT_RUNNING),
            (
                "lxc://c1",
                "lxc-attach: c1: attach.c: get_attach_context: 477 Connection refused - Failed to get init pid",
                NOT_RUNNING,
            ),
            ("incus://c1", "Error: Instance not found", UNKNOWN),
            ("kubectl://a/b", "Error from server (NotFound): pods \"b\" not found", UNKNOWN),
            ("kubectl://a/b", "The connection to the server localhost:8080 was refused", NO_DAEMON),
            ("ssh://box", "me@box: Permission denied (publickey).", OF_SSH[2].1),
            (
                "libvirt://web1",
                "error: internal error: unable to execute QEMU agent command 'guest-exec': The command guest-exec has been disabled",
                OF_DOMAINS[0].1,
            ),
            (
                "libvirt://win",
                "Guest agent command failed, error was 'Failed to execute child process \u{201c}/bin/sh\u{201d}'",
                OF_DOMAINS[1].1,
            ),
            (
                "libvirt://web1",
                "Guest agent is not responding: QEMU guest agent is not connected",
                OF_DOMAINS[2].1,
            ),
            (
                "libvirt://web1",
                "Guest agent is not responding: Guest agent not available for now",
                OF_DOMAINS[3].1,
            ),
        ] {
            assert_eq!(super::remedy(&url.parse().expect(url), said), remedy, "{said}");
        }
        let unknown = super::remedy(&"lxd://c1".parse().expect("a container"), "it ended without a word");
        assert_eq!(unknown, "it needs a POSIX shell that lxc exec -T c1 -- sh can start");
    }
}
