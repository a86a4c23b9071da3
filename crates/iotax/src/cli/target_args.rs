//! Parses targets that are named on the command line.

use std::path::Path;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::target::{
    DeviceSpec, FileSpec, ImageSpec, NbdExportSpec, PathSpec, Remote, Stack, TargetSpec, VirtioSpec,
};
use iotax_testbed::device::Permission;

use super::args::{target_name, tell_apart};
use super::ladder::{is_rung, rung_in};
use super::{Failure, OrExit, input, usage};

/// Targets on the command line, where they may lie on other machines.
#[derive(Debug, ClapArgs)]
pub(super) struct TargetArgs {
    /// Targets, the first is the baseline: a file, directory or device, ssh://user@host:port/path, podman://container/path or
    /// libvirt://domain, as for iotax bench; RUNG:DIR for a rung of iotax ladder with its image in a directory, such as
    /// vm-qcow2:/srv/images; the line of a stack; PLAN.toml for all targets of a plan
    #[arg(id = "targets", value_name = "TARGET", required = true)]
    pub(super) paths: Vec<String>,
    /// Run the agent under sudo on another machine
    #[arg(long)]
    sudo: bool,
}

impl TargetArgs {
    /// Parses the targets as [`targets`] does.
    pub(super) fn read(&self, permission: &Permission) -> Result<Vec<TargetSpec>, Failure> {
        targets(&self.paths, self.sudo, permission)
    }
}

/// Parses targets: `PATH`, the line of a stack, `ssh://` and containers as in `iotax bench`, `RUNG:DIR` for a rung of the ladder with an
/// image in a directory (`vm-qcow2:/srv/images`), and `PLAN.toml` for all targets of a plan. Makes their names unique.
pub(super) fn targets(
    texts: &[String],
    sudo: bool,
    permission: &Permission,
) -> Result<Vec<TargetSpec>, Failure> {
    let mut found = Vec::new();
    for text in texts {
        let path = Path::new(text);
        if path.extension().is_some_and(|extension| extension == "toml") {
            found.extend(Plan::from_toml(&input::text(path, input::PLAN)?).or_exit(Exit::Usage)?.targets);
        } else {
            found.push(target(path, sudo, false, permission)?);
        }
    }
    tell_apart(found.iter_mut().map(|target| &mut target.name));
    Ok(found)
}

/// Returns whether the text is a stack line, such as `/srv > raw file > virtio`, and not a file name. A single layer counts as a line, so
/// that the user gets an error about missing layers instead of a file with that name.
fn is_line(text: &str) -> bool {
    let is_layer = || match Stack::parse(text) {
        Ok(stack) => !stack.has::<PathSpec>(),
        Err(_) => text.contains(char::is_whitespace) && text.contains('='),
    };
    (text.contains('>') || NbdExportSpec::is_meant(text) || is_layer()) && !Path::new(text).exists()
}

/// Parses a stack line, such as `/srv > raw file > virtio`, into a target that is named by its layers.
fn of_line(line: &str) -> Result<TargetSpec, Failure> {
    let stack = if NbdExportSpec::is_meant(line) && !line.contains(" > ") {
        Stack::from(line.parse::<NbdExportSpec>().map_err(usage)?).with(VirtioSpec::default())
    } else {
        Stack::parse(line).map_err(usage)?
    };
    let layers = line.split_once(" > ").map_or(line, |(_, layers)| layers);
    let image = stack.find::<ImageSpec>().and_then(|image| image.path.file_name());
    let export = stack.find::<NbdExportSpec>().map(|spec| format!("nbd-{}", spec.export));
    let export = export.map(|name| name.trim_end_matches('-').to_owned());
    let image = image.map(|name| name.to_string_lossy().into_owned());
    let name = image.or(export).unwrap_or_else(|| layers.replace(" > ", "-"));
    let target = TargetSpec::new(target_name(&name), stack);
    target.check().or_exit(Exit::Usage)?;
    Ok(target)
}

/// Parses a target: a path, a URL, a stack line, or `RUNG:DIR`.
pub(super) fn target(
    path: &Path,
    sudo: bool,
    keep: bool,
    permission: &Permission,
) -> Result<TargetSpec, Failure> {
    if let Some(line) = path.to_str().filter(|text| is_line(text)) {
        return of_line(line);
    }
    if let Some((rung, dir)) = path.to_str().and_then(|text| text.split_once(':'))
        && !path.exists()
        && !Remote::is_meant(path)
        && (is_rung(rung) || Path::new(dir).is_dir())
    {
        if !Path::new(dir).is_dir() {
            return Err(usage(format!("{rung}:{dir}: {dir:?} is no directory; accepted: {rung}:DIR")));
        }
        return rung_in(rung, Path::new(dir));
    }
    if let Some(rung) = path.to_str().filter(|text| is_rung(text) && !path.exists()) {
        return Err(usage(format!(
            "{rung}: a rung of iotax ladder; accepted: {rung}:DIR with its image in a directory, or ./{rung} for a new file"
        )));
    }
    let absolute = std::path::absolute(path).or_exit(Exit::Environment)?;
    let last = absolute.file_name().unwrap_or(absolute.as_os_str()).to_string_lossy();
    let with = |stack| TargetSpec { sudo, ..TargetSpec::new(target_name(&last), stack) };
    if path.is_dir() {
        if keep {
            return Err(usage(format!(
                "{}: a directory; --keep needs the name of the file that is to stay ({})",
                path.display(),
                path.join("test.dat").display()
            )));
        }
        return Ok(with(Stack::from(FileSpec::in_dir(path))));
    }
    if permission.allows(path) {
        return Ok(with(Stack::from(DeviceSpec(path.to_path_buf()))));
    }
    Ok(with(Stack::from(PathSpec(path.to_path_buf()))))
}
