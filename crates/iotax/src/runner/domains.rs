//! Prepares the Xen domains of a plan, and starts them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use iotax_model::Plan;
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::{initramfs, modules};
use iotax_testbed::undo::{Effect, UndoLog};
use iotax_testbed::xen::{self, DomainConfig, XenDomain, XenDomainError};

use super::guests::{find_kernel, private_dir};
use super::target::{DomainSite, RunningDomain, Target};
use super::{GuestOptions, RunContext, interrupted, own_program};

/// Time limit for a domain to boot while it shows signs of life.
const BOOT_PATIENCE: Duration = Duration::from_mins(5);

/// The kernel and initramfs of all domains of a run.
pub(crate) struct Domains {
    kernel: Kernel,
    initramfs: PathBuf,
    /// A private directory for initramfs and configurations.
    run_dir: PathBuf,
    /// Part of the names of all domains.
    tag: String,
}

impl Domains {
    /// Finds a kernel and builds the initramfs; `None` for a plan without domains.
    pub(crate) fn prepare(
        options: &GuestOptions,
        plan: &Plan,
        tag: &str,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<Option<Self>> {
        if !plan.everything().any(|target| target.xen().is_some()) {
            return Ok(None);
        }
        let kernel = find_kernel(options, None, &modules::IN_DOMAIN)?;
        let run_dir = private_dir("xen", tag, undo_log)?;
        let initramfs = run_dir.join("initramfs");
        initramfs::write_for_domain(&initramfs, own_program(), &kernel)?;
        Ok(Some(Self { kernel, initramfs, run_dir, tag: tag.to_owned() }))
    }

    /// Starts the domains of all groups, one after the other, and pauses each when its agent answers. Returns the index of each group with a
    /// domain that did not boot, and the reason.
    pub(super) fn boot(
        &self,
        groups: &mut [Vec<Target>],
        context: &mut RunContext<'_>,
    ) -> Vec<(usize, anyhow::Error)> {
        let mut lost = Vec::new();
        for (group, targets) in groups.iter_mut().enumerate() {
            for (name, site) in targets.iter_mut().filter_map(Target::domain) {
                if let Err(error) = self.start(name, site, context) {
                    lost.push((group, error));
                }
            }
        }
        lost
    }

    /// Restarts a target's failed domain, if it has one.
    pub(super) fn reboot(&self, target: &mut Target, context: &mut RunContext<'_>) -> anyhow::Result<()> {
        target.domain().map_or(Ok(()), |(name, site)| self.start(name, site, context))
    }

    fn start(&self, name: &str, site: &mut DomainSite, context: &mut RunContext<'_>) -> anyhow::Result<()> {
        site.end(context.undo_log)?;
        let created = xen::identity(format!("iotax-{}-{name}", self.tag))?;
        let entry = context.undo_log.record(Effect::Domain(created.clone()))?;
        let config = DomainConfig {
            spec: site.spec(),
            created: &created,
            kernel: &self.kernel.image,
            initramfs: &self.initramfs,
            disk: site.disk(),
            file: &self.run_dir.join(format!("{name}.cfg")),
        };
        let started = XenDomain::start(&config, context.undo_log.lock(), context.stop);
        let mut domain =
            started.with_context(|| format!("the domain of target {name:?} could not be started"))?;
        let (hello, boot_ns) = domain
            .wait_ready(BOOT_PATIENCE)
            .map_err(|error| match error {
                XenDomainError::Agent(error) => interrupted(error),
                other => other.into(),
            })
            .with_context(|| format!("the domain of target {name:?} did not come up"))?;
        domain.pause()?;
        let version = xen::version(Path::new("/"));
        site.running = Some(RunningDomain { domain, hello, boot_ns, version, entry });
        Ok(())
    }
}
