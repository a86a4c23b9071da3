//! Exports a directory by NFS or SMB, and mounts it with the kernel's client.

mod mountstats;
mod nfs;
mod smb;

use std::ffi::CString;
use std::fs;
use std::sync::Arc;

use iotax_model::target::{ShareProtocol, ShareSpec};
use rustix::mount::{MountFlags, mount};

use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_direct, check_directory, check_exchange};
use super::sizes::size_on;
use crate::build_error::BuildError;
use crate::filesystem::Mounted;
use crate::netns::{self, IP, Namespace};
use crate::refusal::Refusal;
use crate::share::{POINT, SERVED, client, source};
use crate::undo::Effect;
use mountstats::NfsCounters;

const FILESYSTEMS: &str = "/proc/filesystems";

impl Build for ShareSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment("share: only root may export and mount it; run iotax as root"));
        }
        let filesystems = fs::read_to_string(FILESYSTEMS).unwrap_or_default();
        match self.protocol {
            ShareProtocol::Nfs => nfs::check(&filesystems)?,
            ShareProtocol::Smb => smb::check(&filesystems)?,
        }
        IP.find().map_err(|error| Refusal::environment(error.to_string()))?;
        let work = at.plan.work_on(at.target);
        check_created(at.plan, &work)?;
        let Some(dir) = &self.dir else { return Ok(()) };
        check_directory(dir)?;
        check_direct(dir, &work)?;
        check_exchange(dir)?;
        needs.beside(dir, at.plan);
        *needs.space.entry(dir.clone()).or_default() += size_on(at.above, at.plan.space()).0;
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(self.dir.as_deref(), below)?;
        // The mount table shows paths without symbolic links.
        let directory = fs::canonicalize(&directory).map_err(BuildError::file(&directory))?;
        let name = at.name::<Self>();
        let beside = |extension| directory.join(&name).with_added_extension(extension);
        let tag = format!("iotax-{}-{name}", at.builder.tag);
        let namespace = Namespace::make(format!("{tag}-{SERVED}"), at.undo_log)?;
        let served = beside(SERVED);
        at.undo_log.make_tree(&served)?;
        let options = match self.protocol {
            ShareProtocol::Nfs => nfs::serve(self, &served, &namespace, &tag, at.undo_log)?,
            ShareProtocol::Smb => smb::serve(self, &served, &namespace, at)?,
        };
        let (point, source) = (beside(POINT), source(self.protocol, &namespace.name));
        at.undo_log.make_directory(&point)?;
        at.undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: source.clone() }))?;
        // The options contain no zero byte.
        let options = CString::new(options).unwrap_or_default();
        // A system call instead of mount(8): after a kill, no other process goes on to mount.
        let mounted = netns::within(&namespace.path(), || {
            let kind = client(self.protocol);
            mount(&*source, &point, kind, MountFlags::empty(), &*options).map_err(Into::into)
        });
        mounted.map_err(|error| {
            Refusal::environment(format!(
                "share: cannot mount {source}: {error}; dmesg has the kernel's reason"
            ))
        })?;
        if self.protocol == ShareProtocol::Nfs {
            at.counters.push(Arc::new(NfsCounters(point.clone())));
        }
        Ok(Ground::Directory(point))
    }
}

/// Rejects a kernel that lacks one of the filesystems `needed`, which come with `modules`. `filesystems` is the content of
/// /proc/filesystems.
fn check_kernel(filesystems: &str, needed: &[&str], modules: &str) -> Result<(), Refusal> {
    let has = |name: &str| filesystems.lines().any(|line| line.split_whitespace().last() == Some(name));
    match needed.iter().find(|name| !has(name)) {
        None => Ok(()),
        Some(missing) => Err(Refusal::environment(format!(
            "share: there is no {missing} in {FILESYSTEMS}: modprobe {modules}, or leave out targets with share"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_server_or_client_is_told_what_to_load() {
        let told = |check: fn(&str) -> Result<(), Refusal>, filesystems: &str| {
            check(filesystems).map_err(|refusal| refusal.to_string())
        };
        for (check, filesystems, words) in [
            (
                nfs::check as fn(&str) -> _,
                "nodev\tnfs4\n\text4\n",
                "nfsd in /proc/filesystems: modprobe nfsd nfsv4",
            ),
            (nfs::check, "nodev\tnfsd\nnodev\tnfs\n", "nfs4 in /proc/filesystems: modprobe nfsd nfsv4"),
            (smb::check, "nodev\tnfs4\n\text4\n", "cifs in /proc/filesystems: modprobe cifs"),
        ] {
            let refusal = told(check, filesystems).expect_err("missing");
            assert!(refusal.starts_with(&format!("share: there is no {words}")), "{refusal}");
        }
        let all = "nodev\tnfsd\nnodev\tnfs4\nnodev\tcifs\n";
        assert!(check_kernel(all, &["nfsd", "nfs4", "cifs"], "").is_ok());
    }
}
