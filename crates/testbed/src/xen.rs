//! Domains of the Xen hypervisor that runs this machine: what `xl` can start here, its configuration, start, pause and end.

mod config;
mod console;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::target::{DomainType, XenSpec};
use iotax_model::threads;
use iotax_model::wire::AgentHello;
use serde::{Deserialize, Serialize};

use crate::agent_client::{AgentClient, AgentError};
use crate::host_info::{new_uuid, text};
use crate::interrupt::Interrupt;
use crate::lock::ProcessLock;
use crate::program::{Program, ProgramError};
use crate::refusal::Refusal;
pub use config::DomainDisk;
pub(crate) use config::xl_format;
use console::Console;

/// The tool that starts, pauses and ends domains.
pub(crate) const XL: Program = Program { name: "xl", package: "xen-utils-4.17" };
/// The tool that reads the store which domains and the control domain share.
const XENSTORE_READ: Program = Program { name: "xenstore-read", package: "xenstore-utils" };

/// File that names the rights of this machine under Xen.
const CAPABILITIES: &str = "proc/xen/capabilities";
/// Content of that file in the control domain.
const CONTROL: &str = "control_d";
/// Maximum time for a tool that only reads.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for xenconsoled to provide a domain's console, and for a domain to be gone after its destruction.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// Silence of a booting domain after which its CPU time is read as a sign of life, and the interval of further readings.
const ASK_XL: Duration = Duration::from_secs(4);

/// A domain that iotax created, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedDomain {
    /// Name of the domain, which contains the run's tag.
    pub name: String,
    /// UUID of the domain, which iotax chose.
    pub uuid: String,
}

impl CreatedDomain {
    /// Destroys the domain; does nothing if it is gone. Other domains of the same name are left alone.
    pub(crate) fn destroy(&self, lock: &ProcessLock) -> io::Result<()> {
        if !in_control(Path::new("/")) {
            // Domains end with the hypervisor, and under another one there are none.
            return Ok(());
        }
        let end = Instant::now() + PATIENCE;
        while let Some(id) = self.id()? {
            match lock.run(XL, ["destroy", &id]) {
                Err(error) if Instant::now() > end => return Err(io::Error::other(error)),
                Err(_) | Ok(_) => threads::sleep(POLL),
            }
            if Instant::now() > end {
                return Err(io::Error::other("the domain does not end; does its disk hang?"));
            }
        }
        Ok(())
    }

    /// Returns the domain's number; `None` if there is no such domain.
    fn id(&self) -> io::Result<Option<String>> {
        let listed = XL.run(["vm-list"]).map_err(io::Error::other)?;
        Ok(id_in(&String::from_utf8_lossy(&listed), &self.uuid))
    }
}

/// Finds the number of the domain with a UUID in the output of `xl vm-list`: UUID, number and name on a line each. `None` if it is not
/// listed.
fn id_in(listed: &str, uuid: &str) -> Option<String> {
    let rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    rows.filter(|row| row.first() == Some(&uuid)).find_map(|row| row.get(1).map(ToString::to_string))
}

/// Returns whether this machine is the control domain of Xen.
fn in_control(root: &Path) -> bool {
    text(&root.join(CAPABILITIES)).is_some_and(|words| words.split_whitespace().any(|word| word == CONTROL))
}

/// Returns the version of Xen, such as `4.17.7`; `None` if this machine does not run under Xen or hides it.
#[must_use]
pub fn version(root: &Path) -> Option<String> {
    let part = |name: &str| text(&root.join("sys/hypervisor/version").join(name));
    Some(format!("{}.{}{}", part("major")?, part("minor")?, part("extra").unwrap_or_default()))
}

/// Rejects a domain that this machine cannot start.
pub(crate) fn check(root: &Path, spec: &XenSpec) -> Result<(), Refusal> {
    let refused = |reason: String| Err(Refusal::environment(format!("xen: {reason}")));
    if !in_control(root) {
        return refused(format!(
            "this machine is not the control domain of Xen (/{CAPABILITIES} does not say {CONTROL}); boot it under Xen with the \
             packages xen-hypervisor and xen-utils and run iotax in dom0, or leave out targets with xen"
        ));
    }
    if root == Path::new("/") && !rustix::process::geteuid().is_root() {
        return refused("only root may start domains; run iotax as root".into());
    }
    let Some(info) = XL.query_at(root, &["info"], QUERY_TIMEOUT) else {
        let error = XL.run(["info"]).err();
        let reason = error.map_or_else(|| "it says nothing".to_owned(), |error| error.to_string());
        return refused(format!("xl info fails: {reason}; do xenstored and xenconsoled run?"));
    };
    if root == Path::new("/") {
        XENSTORE_READ.find().map_err(|error| Refusal::environment(format!("xen: {error}")))?;
    }
    match missing_capability(&info, spec.domain_type) {
        None => Ok(()),
        Some((word, capabilities)) => refused(format!(
            "type = \"{}\": the hypervisor cannot run it here: virt_caps of xl info are {capabilities:?}, without {word}{}",
            spec.domain_type,
            match spec.domain_type {
                DomainType::Pvh => "; it needs VT-x or AMD-V, enabled in the firmware; use type = \"pv\"",
                DomainType::Pv => "; use type = \"pvh\"",
            }
        )),
    }
}

/// Returns the capability that a type of domain needs and the hypervisor lacks, with all that `xl info` lists; `None` if it has it or lists
/// none.
fn missing_capability(info: &str, domain_type: DomainType) -> Option<(&'static str, String)> {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, capabilities) = lines.into_iter().find(|(key, _)| key.trim() == "virt_caps")?;
    let word = match domain_type {
        DomainType::Pv => "pv",
        DomainType::Pvh => "hvm",
    };
    let has = capabilities.split_whitespace().any(|capability| capability == word);
    (!has).then(|| (word, capabilities.trim().to_owned()))
}

/// An error while starting or controlling a domain.
#[derive(Debug, thiserror::Error)]
pub enum XenDomainError {
    /// A tool failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The agent in the domain failed or does not answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An operation on a file, on the console or by xl failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file or console, or the name of the tool.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The domain cannot be described to xl, or ended as soon as it was started.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The kernel, disk and identity of a domain to start.
#[derive(Debug)]
pub struct DomainConfig<'a> {
    /// Type, CPUs and memory.
    pub spec: &'a XenSpec,
    /// The domain's identity, which must be in the undo log.
    pub created: &'a CreatedDomain,
    /// Path of the kernel image.
    pub kernel: &'a Path,
    /// Path of the initramfs.
    pub initramfs: &'a Path,
    /// The disk that is measured.
    pub disk: DomainDisk<'a>,
    /// Path of the file that describes the domain to xl.
    pub file: &'a Path,
}

/// Chooses the identity of a new domain. `name` contains the run's tag.
pub fn identity(name: String) -> io::Result<CreatedDomain> {
    Ok(CreatedDomain { name, uuid: new_uuid()? })
}

/// A running domain. [`CreatedDomain`] in the undo log ends it.
pub struct XenDomain {
    created: CreatedDomain,
    agent: AgentClient,
    console: Console,
    begun: Instant,
    /// Length of the console's text, and the moment at which the domain last showed a sign of life or was asked for one.
    heard: (usize, Instant),
    /// CPU seconds of the domain as xl last showed them; `None` if it has not.
    cpu: Option<String>,
}

impl XenDomain {
    /// Starts a domain with `xl`, which holds the run's lock. Returns while it is still booting; see [`Self::wait_ready`].
    pub fn start(
        config: &DomainConfig<'_>,
        lock: &ProcessLock,
        interrupt: &Interrupt,
    ) -> Result<Self, XenDomainError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| XenDomainError::Io { path, source }
        };
        fs::write(config.file, config.text()?).map_err(failed(config.file))?;
        let begun = Instant::now();
        // Without `-e` xl stays and waits for the end of the domain.
        lock.run(
            XL,
            ["create".as_ref(), "-q".as_ref(), "-e".as_ref(), "-p".as_ref(), config.file.as_os_str()],
        )?;
        let created = config.created.clone();
        let id = created.id().map_err(failed(Path::new(XL.name)))?.ok_or_else(|| {
            Refusal::environment(format!("the domain {} ended as soon as it was started", created.name))
        })?;
        let tty = console_of(&id)?;
        let (console, stream) = Console::open(&tty).map_err(failed(&tty))?;
        let diagnostics = console.clone();
        let agent = AgentClient::over(
            stream,
            format!("the domain {}", created.name),
            Box::new(move || diagnostics.tail()),
            interrupt,
        )
        .map_err(failed(&tty))?;
        let domain = Self { created, agent, console, begun, heard: (0, begun), cpu: None };
        domain.resume()?;
        Ok(domain)
    }

    /// Waits until the domain's agent answers, and returns its answer and the time since the start in nanoseconds. Gives up after
    /// `deadline`, after 15 s without a sign of life from the domain, or on an interrupt.
    pub fn wait_ready(&mut self, deadline: Duration) -> Result<(AgentHello, u64), XenDomainError> {
        let Self { created, agent, console, heard, cpu, .. } = self;
        let mut lives = || {
            let length = console.length();
            if length > heard.0 {
                *heard = (length, Instant::now());
                return true;
            }
            if heard.1.elapsed() < ASK_XL {
                return false;
            }
            heard.1 = Instant::now();
            let now = cpu_seconds(&created.name);
            let computes = now.is_some() && now != *cpu;
            *cpu = now;
            computes
        };
        let hello = agent.hello_while(&mut lives, deadline)?;
        Ok((hello, u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the client of the domain's agent. While the domain is paused, the agent does not answer.
    pub const fn agent(&mut self) -> &mut AgentClient {
        &mut self.agent
    }

    /// Pauses the virtual CPUs.
    pub fn pause(&self) -> Result<(), ProgramError> {
        XL.run(["pause", &self.created.name]).map(drop)
    }

    /// Resumes the virtual CPUs.
    pub fn resume(&self) -> Result<(), ProgramError> {
        XL.run(["unpause", &self.created.name]).map(drop)
    }
}

/// Returns the path of a domain's console, which xenconsoled provides soon after the start.
fn console_of(id: &str) -> Result<PathBuf, XenDomainError> {
    let key = format!("/local/domain/{id}/console/tty");
    let end = Instant::now() + PATIENCE;
    loop {
        match XENSTORE_READ.run([&key]) {
            Ok(path) => return Ok(PathBuf::from(String::from_utf8_lossy(&path).trim())),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => threads::sleep(POLL),
        }
    }
}

/// Returns the CPU time that `xl list` shows for a domain, as text; `None` if it shows none.
fn cpu_seconds(name: &str) -> Option<String> {
    let listed = XL.query(["list", name], QUERY_TIMEOUT).ok()?;
    let listed = String::from_utf8_lossy(&listed);
    listed.lines().last()?.split_whitespace().last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a machine as iotax sees it: whether it is the control domain, and what `xl info` prints.
    fn machine(capabilities: &str, info: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in [("proc/xen/capabilities", capabilities), ("commands/xl info", info)] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, content).expect("written");
        }
        root
    }

    #[test]
    fn a_domain_is_refused_where_it_cannot_start() {
        let (pv, pvh) = (XenSpec::new(DomainType::Pv), XenSpec::new(DomainType::Pvh));
        let info = "xen_version            : 4.17.7\nvirt_caps              : pv gnttab-v1 gnttab-v2\n";
        let without_hvm = machine("control_d\n", info);
        assert!(check(without_hvm.path(), &pv).is_ok());
        let refused = check(without_hvm.path(), &pvh).expect_err("no hvm").to_string();
        for words in ["type = \"pvh\"", "\"pv gnttab-v1 gnttab-v2\"", "without hvm", "use type = \"pv\""] {
            assert!(refused.contains(words), "{refused}");
        }
        let with_hvm = machine("control_d\n", "virt_caps : hvm hap\n");
        assert!(check(with_hvm.path(), &pvh).is_ok());
        let refused = check(with_hvm.path(), &pv).expect_err("no pv").to_string();
        assert!(refused.contains("without pv; use type = \"pvh\""), "{refused}");
        // Older versions list nothing; xl create decides.
        assert!(check(machine("control_d\n", "xen_major : 4\n").path(), &pvh).is_ok());
        for capabilities in ["", "other"] {
            let refused = check(machine(capabilities, info).path(), &pv).expect_err("no dom0").to_string();
            assert!(refused.contains("not the control domain") && refused.contains("leave out"), "{refused}");
        }
    }

    #[test]
    fn a_domain_is_found_by_its_uuid_alone() {
        let listed = "UUID                                  ID    name\n\
                      00000000-0000-0000-0000-000000000000  0    Domain-0                      \n\
                      01234567-89ab-cdef-0123-456789abcdef  7    iotax-1a2b3c4d-pv             \n";
        assert_eq!(id_in(listed, "01234567-89ab-cdef-0123-456789abcdef").as_deref(), Some("7"));
        assert_eq!(id_in(listed, "01234567-89ab-cdef-0123-456789abcdee"), None);
        assert_eq!(id_in("", "01234567-89ab-cdef-0123-456789abcdef"), None);
    }

    #[test]
    fn the_version_is_that_of_the_hypervisor() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(version(root.path()), None);
        let dir = root.path().join("sys/hypervisor/version");
        fs::create_dir_all(&dir).expect("directories");
        for (name, content) in [("major", "4\n"), ("minor", "17\n"), ("extra", ".7\n")] {
            fs::write(dir.join(name), content).expect("written");
        }
        assert_eq!(version(root.path()).as_deref(), Some("4.17.7"));
    }
}
