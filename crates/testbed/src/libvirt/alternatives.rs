//! Suggests alternatives to a libvirt domain's disk settings, for comparison.

use iotax_model::TargetSpec;
use iotax_model::target::{Aio, Bus, CacheMode, FileSpec, Format, GuestSpec, Preallocation};

/// Returns targets that differ from `like` in one setting each: cache mode, I/O backend, bus, I/O thread or image format. For native I/O,
/// the cache mode changes too if it does not use direct I/O. With another image format, all options of the image but directory and
/// encryption get their defaults. Leaves out targets that equal `like` or cannot be built.
#[must_use]
pub fn alternatives(like: &TargetSpec) -> Vec<TargetSpec> {
    let Some(own) = like.guest() else { return Vec::new() };
    let with = |name: &str, change: &dyn Fn(&mut GuestSpec)| {
        let mut other = TargetSpec { name: name.to_owned(), ..like.clone() };
        other.stack.find_mut().into_iter().for_each(change);
        other
    };
    let mut others = vec![
        with("cache-none", &|guest| guest.cache = CacheMode::None),
        with("aio-io_uring", &|guest| guest.aio = Aio::IoUring),
        // Native I/O requires direct I/O: if the domain has neither, both change.
        if own.cache.direct() {
            with("aio-native", &|guest| guest.aio = Aio::Native)
        } else {
            with("cache-none-aio-native", &|guest| (guest.cache, guest.aio) = (CacheMode::None, Aio::Native))
        },
        with("bus-virtio-blk", &|guest| guest.bus = Bus::VirtioBlk),
    ];
    if matches!(own.bus, Bus::VirtioBlk | Bus::VirtioScsi) {
        others.push(if own.iothreads() == 0 {
            with("iothread", &|guest| guest.iothread = Some(1))
        } else {
            with("no-iothread", &|guest| guest.iothread = Some(0))
        });
    }
    let dir = like.file().and_then(|file| file.dir.clone());
    let is_encrypted = like.file().is_some_and(|file| file.encrypt.is_some());
    let format = if is_encrypted { Format::Luks } else { Format::Raw };
    let raw = FileSpec { dir, format, preallocation: Preallocation::Off, ..FileSpec::default() };
    let mut other = TargetSpec { name: format!("format-{format}"), ..like.clone() };
    other.stack.find_mut().into_iter().for_each(|file| *file = raw.clone());
    others.push(other);
    others.retain(|other| {
        let differs = other.guest() != like.guest()
            || other.file().map(|file| file.format) != like.file().map(|file| file.format);
        differs && other.check().is_ok()
    });
    others
}
