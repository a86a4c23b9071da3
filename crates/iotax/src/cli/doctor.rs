//! `iotax doctor`: reports settings of a machine that endanger data or slow I/O.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, anyhow};
use clap::Args as ClapArgs;
use iotax_doctor::{Finding, Sureness, examine};
use iotax_model::exit::Exit;
use iotax_model::survey::{GuestSetup, Survey};
use iotax_model::target::Machine;
use iotax_report::document;
use iotax_report::json::doctor;
use iotax_testbed::remote::RemoteHost;
use iotax_testbed::undo::UndoLog;
use iotax_testbed::{libvirt, survey};

use super::json_args::JsonArgs;
use super::known_words::known_words;
use super::last_flush;
use super::output::StoreArgs;
use super::say::say;
use super::session::say_not_undone;
use super::signals::watch_signals;
use super::terminal::PageArgs;
use super::{Failure, OrExit, args, input, usage};
use crate::runner::{self, RemoteOptions};

/// Flags of `iotax doctor`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Storage or machine to check: a path, a device, a libvirt domain by its name or XML file, ssh://user@host:port/path,
    /// podman://container/path or libvirt://domain (a running guest from within); a URL without a path means the whole machine [default:
    /// this machine]
    target: Option<String>,
    /// Exit with code 1 if there is a finding at least this sure: fault, cost or depends
    #[arg(long, value_name = "SURENESS", value_parser = known_words(str::parse::<Sureness>, Sureness::ALL.map(Sureness::word)))]
    fail_if: Option<Sureness>,
    #[command(flatten)]
    json: JsonArgs,
    /// List the rules instead of checking a machine
    #[arg(long, conflicts_with_all = ["target", "fail_if", "json"])]
    rules: bool,
    /// Run the agent under sudo on another machine
    #[arg(long)]
    sudo: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    page: PageArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    if args.rules {
        args.page.show(&document::rules(), false);
        return Ok(Exit::Fine);
    }
    let json = args.json.open(doctor::MARK)?;
    let subject = args.target.as_deref().unwrap_or("this machine");
    let mut survey = survey_of(args)?;
    if !is_elsewhere(args) {
        add_swallowed_flushes(args, &mut survey)?;
    }
    let findings = examine(&survey);
    args.page.show(&document::doctor(subject, &survey, &findings), json.is_on_stdout());
    json.write(|| doctor::document(subject, &survey, &findings))?;
    Ok(match survey.subject_unread {
        _ if is_tripped(args.fail_if, &findings) => Exit::Gate,
        Some(_) => Exit::Environment,
        None => Exit::Fine,
    })
}

fn is_elsewhere(args: &Args) -> bool {
    args.target.as_deref().is_some_and(|target| Machine::is_meant(Path::new(target)))
}

/// Adds the layers that swallowed flushes (acknowledged them without passing them on) in this machine's last run of `iotax flush`: on the
/// checked path, or on any storage if the whole machine is checked. Adds nothing for a libvirt domain or a missing path.
fn add_swallowed_flushes(args: &Args, survey: &mut Survey) -> Result<(), Failure> {
    let path = args.target.as_deref().map(Path::new);
    if path.is_some_and(|path| is_domain(path) || !path.exists()) {
        return Ok(());
    }
    let path = path.and_then(|path| path.canonicalize().ok());
    let Some(store) = args.store.open_if_there()? else { return Ok(()) };
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match last_flush::swallowed(&store, &hostname, path.as_deref()) {
        Ok(found) => survey.swallowed_flushes = found,
        Err(error) => survey.unread.push(format!("runs of iotax flush: {error}")),
    }
    Ok(())
}

/// Returns whether any finding is at least as certain as `limit`; false without a limit.
fn is_tripped(limit: Option<Sureness>, findings: &[Finding]) -> bool {
    limit.is_some_and(|limit| findings.iter().any(|finding| finding.rule.sureness <= limit))
}

fn survey_of(args: &Args) -> Result<Survey, Failure> {
    let root = Path::new("/");
    let Some(target) = &args.target else { return Ok(survey::machine(root)) };
    let path = Path::new(target);
    if Machine::is_meant(path) {
        return elsewhere(target, args.sudo);
    }
    survey::answers(root, path)
        .map_err(|reason| anyhow!("{target}: {reason}; its mount may be dead"))
        .or_exit(Exit::Environment)?;
    if path.is_symlink() && !path.exists() {
        let end = path.read_link().unwrap_or_default();
        return Err(usage(format!("{target} is a link to {}, which does not exist", end.display())));
    }
    if path.exists() && is_domain(path) {
        return Ok(survey::definition(domain(&input::text(path, input::DOMAIN)?, target)?));
    }
    if path.exists() || target.contains('/') {
        return survey::path(root, path).map_err(usage);
    }
    let xml = libvirt::dumpxml(target)
        .with_context(|| {
            format!("{target:?} is no path, and libvirt cannot be asked for a domain of this name; accepted: PATH, DEVICE, DOMAIN, FILE.xml, ssh://host/path, podman://container/path, libvirt://domain")
        })
        .or_exit(Exit::Environment)?;
    let mut guest = domain(&xml, &format!("virsh dumpxml {target}"))?;
    libvirt::locate_volumes(&mut guest);
    Ok(survey::guest(root, guest))
}

fn is_domain(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "xml")
}

fn domain(xml: &str, source: &str) -> Result<GuestSetup, Failure> {
    libvirt::setup(xml, source).with_context(|| source.to_owned()).or_exit(Exit::Usage)
}

/// Surveys another machine, a container or a running guest, through an agent started there.
fn elsewhere(target: &str, sudo: bool) -> Result<Survey, Failure> {
    // Without a path, survey the whole machine.
    let (machine, path) = Machine::split(target).map_err(usage)?;
    let host = RemoteHost { machine, sudo };
    let stop = watch_signals().or_exit(Exit::Environment)?;
    let tag = runner::fresh_tag().or_exit(Exit::Environment)?;
    let mut undo_log = UndoLog::create(&args::undo_dir()?, &tag).or_exit(Exit::Environment)?;
    undo_log.set_interrupt(&stop);
    let options = RemoteOptions { leave_agent: false, ask: io::stdin().is_terminal() };
    let found = runner::remote_survey(&host, path.as_deref(), options, &mut undo_log, &stop);
    let (_, failures) = undo_log.undo_all();
    failures.iter().for_each(say_not_undone);
    if stop.load(std::sync::atomic::Ordering::Relaxed) {
        say!("Interrupted.");
        return Err(runner::Interrupted).or_exit(Exit::Interrupted);
    }
    found.or_exit(Exit::Environment)
}
