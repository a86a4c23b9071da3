//! Reads the setup of a machine, of the layers below a path, or of a libvirt domain, as [`Survey`]s.
//!
//! Changes nothing: no device is opened for writing, and each program has a time limit. In a recorded directory tree, the output of
//! programs is read from files.

mod disk;
mod file_head;
mod filesystem;
mod image;
mod image_format;
mod machine;
mod mapper;
mod network;
mod qcow2;
mod qemu;
mod reader;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use iotax_model::survey::{Disk, GuestSetup, Image, Survey};

use crate::stack::{self, StackError, mount};
use reader::Reader;

/// Surveys the whole machine with its disks, filesystems, network interfaces and running guests.
#[must_use]
pub fn machine(root: &Path) -> Survey {
    let reader = Reader::new(root);
    let mut survey = Survey { guests: qemu::running(&reader), ..Survey::default() };
    for path in guest_paths(&survey.guests) {
        let declared = declared(&survey.guests, &path);
        survey.images.extend(image::image(&reader, &path, declared.as_deref()));
    }
    let names = disk::all(&reader);
    survey.disks = disk::disks(&reader, &names);
    let mounts = mount::table(&reader.full_path("proc/self")).unwrap_or_default();
    survey.filesystems = filesystem::on_disks(&reader, &mounts);
    survey.interfaces = network::interfaces(&reader);
    finish(reader, survey)
}

/// Surveys the layers below an existing file, directory or block device, the partitions and volumes above a block device, and the guests
/// that use it. If accessing the path takes more than 3 s, the survey holds only that fact and the machine's settings.
pub fn path(root: &Path, path: &Path) -> Result<Survey, StackError> {
    let reader = Reader::new(root);
    let mut survey = Survey::default();
    if let Err(reason) = answers(root, path) {
        survey.subject_unread = Some(reason);
        return Ok(finish(reader, survey));
    }
    let inside = inside(root, path);
    survey.guests = qemu::running(&reader);
    survey.guests.retain_mut(|guest| {
        guest.disks.retain_mut(|disk| {
            let Some(used) = &mut disk.path else { return false };
            let used_path = Path::new(&used.value);
            let is_this = answers(root, used_path).is_ok() && self::inside(root, used_path) == inside;
            if is_this {
                // The guest may refer to the file by a symbolic link.
                used.value = inside.to_string_lossy().into_owned();
            }
            is_this
        });
        guest.nics.clear();
        !guest.disks.is_empty()
    });
    add_path(&reader, &mut survey, path)?;
    if reader
        .full_path(&inside.to_string_lossy())
        .metadata()
        .is_ok_and(|found| found.file_type().is_block_device())
    {
        add_above(&reader, &mut survey);
    }
    survey.subject_unread = survey.images.iter().find_map(|image| image.unread.clone());
    Ok(finish(reader, survey))
}

/// Fails if accessing a path takes more than 3 s, as on a dead mount. A missing path is no error.
pub fn answers(root: &Path, path: &Path) -> Result<(), String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    match file_head::answers(&root.join(path.strip_prefix("/").unwrap_or(&path))) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Returns a survey of a guest's definition alone, without facts about this machine, because the guest may run on another one.
#[must_use]
pub fn definition(guest: GuestSetup) -> Survey {
    Survey { unread: unlocated(&guest).collect(), guests: vec![guest], ..Survey::default() }
}

/// Returns a message for each of the guest's disks whose location is unknown.
fn unlocated(guest: &GuestSetup) -> impl Iterator<Item = String> {
    let disks = guest.disks.iter().filter(|disk| disk.path.is_none() && disk.protocol.is_none());
    disks.map(|disk| match &disk.volume {
        Some(volume) => {
            format!(
                "{} {} is the volume {}, and only its host's libvirt knows where that is",
                guest.name, disk.name, volume.value
            )
        }
        None => format!("the definition does not say where {} {} is", guest.name, disk.name),
    })
}

/// Surveys a guest of this machine by its definition, with the layers below its disks.
#[must_use]
pub fn guest(root: &Path, guest: GuestSetup) -> Survey {
    let reader = Reader::new(root);
    unlocated(&guest).for_each(|reason| reader.leave_out(reason));
    let mut survey = Survey { guests: vec![guest], ..Survey::default() };
    for path in guest_paths(&survey.guests) {
        if let Err(reason) = answers(root, Path::new(&path)) {
            reader.leave_out(format!("{path}: {reason}"));
            survey.images.push(Image { path, unread: Some(reason), ..Image::default() });
        } else if let Err(error) = add_path(&reader, &mut survey, Path::new(&path)) {
            reader.leave_out(error.to_string());
            survey.images.push(Image { path, unread: Some(error.to_string()), ..Image::default() });
        }
    }
    finish(reader, survey)
}

/// Returns the paths of the local files and devices that the guests' disks use.
fn guest_paths(guests: &[GuestSetup]) -> Vec<String> {
    let disks = guests.iter().flat_map(|guest| &guest.disks);
    disks.filter_map(|disk| Some(disk.path.as_ref()?.value.clone())).collect()
}

/// Returns the image format in which guests use a file; `None` if no guest states one. Raw if any guest uses it as raw, because that guest
/// can write the header.
fn declared(guests: &[GuestSetup], path: &str) -> Option<String> {
    let disks = guests.iter().flat_map(|guest| &guest.disks);
    let own = disks.filter(|disk| disk.path.as_ref().is_some_and(|used| used.value == path));
    let formats: Vec<&String> = own.filter_map(|disk| Some(&disk.format.as_ref()?.value)).collect();
    formats.iter().find(|format| **format == "raw").or(formats.first()).map(|format| (*format).clone())
}

/// Adds the layers below a path to a survey and, if the path is a file, describes the file as an image.
fn add_path(reader: &Reader<'_>, survey: &mut Survey, path: &Path) -> Result<(), StackError> {
    let stack = stack::of_path(reader.root(), path)?;
    for disk in disk::disks(reader, &stack.disks) {
        if survey.disk(&disk.name).is_none() {
            survey.disks.push(disk);
        }
    }
    for filesystem in stack.mounts.iter().map(|mount| filesystem::filesystem(reader, mount)) {
        if !survey.filesystems.contains(&filesystem) {
            survey.filesystems.push(filesystem);
        }
    }
    let inside = inside(reader.root(), path);
    let inside = inside.to_string_lossy();
    // A definition may refer to the file by a symbolic link.
    let declared =
        declared(&survey.guests, &inside).or_else(|| declared(&survey.guests, &path.to_string_lossy()));
    survey.images.extend(image::image(reader, &inside, declared.as_deref()));
    Ok(())
}

/// Adds the partitions and volumes above the last device of a survey.
fn add_above(reader: &Reader<'_>, survey: &mut Survey) {
    let mut names: Vec<String> = survey.disks.last().map(|top| top.name.clone()).into_iter().collect();
    let mut others = disk::disks(reader, &disk::all(reader));
    loop {
        let is_above = |disk: &Disk| disk.below.iter().any(|name| names.contains(name));
        let (above, rest): (Vec<Disk>, Vec<Disk>) = others.into_iter().partition(is_above);
        if above.is_empty() {
            return;
        }
        names.extend(above.iter().map(|disk| disk.name.clone()));
        survey.disks.extend(above);
        others = rest;
    }
}

/// Returns a path without symbolic links, as an absolute path below the root; the given path, made absolute, if it cannot be accessed.
fn inside(root: &Path, path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    let found = fs::canonicalize(root.join(path.strip_prefix("/").unwrap_or(&path)));
    let (Ok(found), Ok(root)) = (found, fs::canonicalize(root)) else { return path };
    Path::new("/").join(found.strip_prefix(root).unwrap_or(&found))
}

fn finish(reader: Reader<'_>, survey: Survey) -> Survey {
    let machine = machine::machine(&reader, &survey.guests);
    Survey { machine, unread: reader.into_unread(), ..survey }
}
