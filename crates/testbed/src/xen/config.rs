//! The configuration of a domain in the syntax of xl.cfg(5) and xl-disk-configuration(5).

use std::path::Path;

use iotax_model::guest_abi;
use iotax_model::target::{Format, XenBackend};

use super::DomainConfig;
use crate::refusal::Refusal;

/// The storage behind a domain's disk.
#[derive(Debug, Clone, Copy)]
pub struct DomainDisk<'a> {
    /// Path of the file or block device.
    pub path: &'a Path,
    /// Format of its content.
    pub format: Format,
    /// The backend that serves it.
    pub backend: XenBackend,
}

impl DomainConfig<'_> {
    /// Returns the text of the configuration file.
    pub(super) fn text(&self) -> Result<String, Refusal> {
        let Self { spec, created, kernel, initramfs, disk, .. } = self;
        let DomainDisk { path, format, backend } = disk;
        let format = xl_format(*format)?;
        Ok(format!(
            "name = \"{}\"\nuuid = \"{}\"\ntype = \"{}\"\nvcpus = {}\nmemory = {}\nkernel = \"{}\"\nramdisk = \"{}\"\n\
             extra = \"console=hvc0 loglevel=6 panic=-1 {}\"\n\
             disk = [\"format={format},vdev={},access=rw,backendtype={backend},target={}\"]\n",
            created.name,
            created.uuid,
            spec.domain_type,
            spec.vcpus,
            spec.memory.0 >> 20,
            quoted(kernel)?,
            quoted(initramfs)?,
            guest_abi::XEN_PARAMETER,
            guest_abi::XEN_DISK,
            quoted(path)?,
        ))
    }
}

/// Returns xl's word for an image format. Rejects formats other than raw and qcow2.
pub(crate) fn xl_format(format: Format) -> Result<&'static str, Refusal> {
    match format {
        Format::Raw => Ok("raw"),
        Format::Qcow2 => Ok("qcow2"),
        other => Err(Refusal::input(format!("xen: format = \"{other}\": accepted: raw and qcow2"))),
    }
}

/// Returns a path as text to be quoted in xl's configuration. Rejects characters that xl does not accept there.
fn quoted(path: &Path) -> Result<&str, Refusal> {
    let text = path.to_str().filter(|text| !text.chars().any(|c| c.is_control() || "\"\\'".contains(c)));
    text.ok_or_else(|| {
        Refusal::input(format!(
            "{}: xl takes no quotes, backslashes or control characters in a path; use another",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use iotax_model::target::{DomainType, XenSpec};

    use super::super::CreatedDomain;
    use super::*;

    #[test]
    fn xl_is_told_each_setting() {
        let spec = XenSpec::new(DomainType::Pvh);
        let created = CreatedDomain { name: "iotax-1a2b-x".into(), uuid: "0123".into() };
        let of = |path: &'static str, format, backend| DomainConfig {
            spec: &spec,
            created: &created,
            kernel: Path::new("/boot/vmlinuz"),
            initramfs: Path::new("/tmp/initramfs"),
            disk: DomainDisk { path: Path::new(path), format, backend },
            file: Path::new("/tmp/x.cfg"),
        };
        let text = of("/srv/a b.qcow2", Format::Qcow2, XenBackend::Qdisk).text().expect("a configuration");
        for line in [
            "name = \"iotax-1a2b-x\"",
            "uuid = \"0123\"",
            "type = \"pvh\"",
            "vcpus = 1",
            "memory = 512",
            "kernel = \"/boot/vmlinuz\"",
            "ramdisk = \"/tmp/initramfs\"",
            "extra = \"console=hvc0 loglevel=6 panic=-1 iotax.xen\"",
            "disk = [\"format=qcow2,vdev=xvda,access=rw,backendtype=qdisk,target=/srv/a b.qcow2\"]",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        let text = of("/dev/loop0", Format::Raw, XenBackend::Phy).text().expect("a configuration");
        assert!(
            text.contains("\"format=raw,vdev=xvda,access=rw,backendtype=phy,target=/dev/loop0\""),
            "{text}"
        );
        for (path, format, words) in [
            ("/srv/a\".raw", Format::Raw, "no quotes"),
            ("/srv/a.vmdk", Format::Vmdk, "accepted: raw and qcow2"),
        ] {
            let refused = of(path, format, XenBackend::Qdisk).text().expect_err(path).to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
