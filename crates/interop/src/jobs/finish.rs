//! Converts the parsed options of a section to a job.

use std::collections::HashMap;

use super::builder::JobBuilder;
use super::ini::{OptionLine, Section};
use super::known::{KnownOption, Support};
use super::layout::{Notes, SectionJob};
use super::options::{find, meant};
use super::steady::steady;
use super::value::OptionValue;
use super::{FileLine, LineErrors, engines};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{
    AccessHint, Distribution, FileLayout, IoEngine, Memory, Rw, Stride, Test, ToleratedErrors, Verify,
    WorkloadKeys,
};

/// Time limit of a job without a runtime, which normally ends when its I/O is done.
pub(super) const LONGEST: Nanos = Nanos::from_secs(3600);

const SECTOR: u64 = 512;

/// Name of an option that conflicts with other options, and the reason.
type Wrong = (&'static str, String);

/// Function that resolves a group of options that depend on each other.
type Step = fn(&mut JobBuilder, &mut Notes) -> Result<(), Wrong>;

/// Converts a section to a job; `None` if any option was rejected. `size` replaces the options `size`, `filesize` and `fill_device` of the
/// section.
pub(super) fn job(
    section: &Section,
    size: Option<Bytes>,
    notes: &mut Notes,
    trouble: &mut LineErrors,
) -> Option<SectionJob> {
    let before = trouble.0.len();
    let mut draft = JobBuilder::default();
    let mut locations: HashMap<&'static str, &OptionLine> = HashMap::new();
    let kb_base = match last(section, "kb_base").and_then(|setting| setting.value.as_deref()) {
        Some("1000") => 1000,
        _ => 1024,
    };
    for (known, setting) in effective(section, trouble) {
        if size.is_some() && matches!(known.names[0], "size" | "filesize") {
            continue;
        }
        locations.insert(known.names[0], setting);
        match read(&mut draft, known, setting, kb_base) {
            Ok(Some(note)) => notes.add(setting, note),
            Ok(None) => {}
            Err(why) => trouble.add(&setting.location, setting.quoted.clone(), why),
        }
    }
    if size.is_some() {
        (draft.size, draft.fill_device) = (size, None);
    }
    let location =
        |option: &str| locations.get(option).map_or(&section.location, |setting| &setting.location);
    for note in std::mem::take(&mut draft.notes) {
        notes.sentences.push(note);
    }
    if trouble.0.len() > before || trouble.is_full() {
        return None;
    }
    let finished = finish(&mut draft, notes);
    for (option, why) in &finished {
        let quoted = locations
            .get(option)
            .map_or_else(|| format!("[{}]", section.name), |setting| setting.quoted.clone());
        trouble.add(location(option), quoted, why.clone());
    }
    if !finished.is_empty() {
        return None;
    }
    let locations =
        locations.into_iter().map(|(option, setting)| (option, setting.location.clone())).collect();
    Some(assemble(draft, section, locations))
}

fn last<'a>(section: &'a Section, name: &str) -> Option<&'a OptionLine> {
    section.options.iter().rev().find(|setting| setting.name == name)
}

/// Returns the options in effect, in file order, each with its definition. Of several synonyms, the last one counts.
fn effective<'a>(
    section: &'a Section,
    trouble: &mut LineErrors,
) -> Vec<(&'static KnownOption, &'a OptionLine)> {
    let mut found: Vec<(&KnownOption, &OptionLine)> = Vec::new();
    for setting in &section.options {
        if trouble.is_full() {
            break;
        }
        let Some(known) = find(&setting.name) else {
            let why = if engines::OPTIONS.contains(&setting.name.as_str()) {
                engines::OF_OTHERS.to_owned()
            } else {
                let near = meant(&setting.name).map(|near| format!("; did you mean {near:?}?"));
                format!("{:?} is not an option that is known{}", setting.name, near.unwrap_or_default())
            };
            trouble.add(&setting.location, setting.quoted.clone(), why);
            continue;
        };
        found.retain(|(other, _)| other.names[0] != known.names[0]);
        found.push((known, setting));
    }
    found
}

/// Parses an option into the builder. Returns the text of a note on it, if there is one.
fn read(
    draft: &mut JobBuilder,
    known: &KnownOption,
    setting: &OptionLine,
    kb_base: u64,
) -> Result<Option<&'static str>, String> {
    let text = match &setting.value {
        Some(text) => text.as_str(),
        None if known.alone => "",
        None => return Err(format!("it needs a value: {} = ...", setting.name)),
    };
    match known.support {
        Support::Supported(read) => read(draft, OptionValue { text, kb_base }).map(|()| None),
        Support::Ignored(why) => Ok(Some(why)),
        Support::IgnoredSwitch(why) => OptionValue { text, kb_base }.flag().map(|_| Some(why)),
        Support::Unsupported { unless, .. } if unless.contains(&text) => Ok(None),
        Support::Unsupported { why, .. } => Err(why.into()),
    }
}

/// Resolves all options that depend on each other. Returns the rejected options, each with the reason.
fn finish(draft: &mut JobBuilder, notes: &mut Notes) -> Vec<Wrong> {
    let keys = &mut draft.keys;
    keys.rw.get_or_insert(Rw::Read);
    keys.direct.get_or_insert(false);
    keys.ioengine.get_or_insert(IoEngine::Psync);
    keys.mem.get_or_insert(Memory::Malloc);
    keys.ramp_time.get_or_insert(Nanos(0));
    if !draft.goes_on {
        keys.max_errors = Some(1);
        let tolerated = std::mem::take(&mut draft.tolerated);
        keys.tolerated_errors = (!tolerated.is_empty()).then_some(ToleratedErrors(tolerated));
    }
    if let Some(test) = draft.keys.test {
        return on_files(draft, test, notes).err().into_iter().collect();
    }
    depth(draft, notes);
    steady(draft, notes);
    let steps: [Step; 9] =
        [libblkio, checking, lengths, per_direction, sequence, zones, amount, files, around];
    let wrong = steps.into_iter().filter_map(|step| step(draft, notes).err()).collect();
    file_state(draft);
    wrong
}

/// Converts a job whose engine does one operation per file. fio measures nothing else in such a job.
fn on_files(draft: &mut JobBuilder, test: Test, notes: &mut Notes) -> Result<(), Wrong> {
    if draft.filename.is_some() {
        return Err((
            "filename",
            "the files have names of their own; leave it out, and say where with directory".into(),
        ));
    }
    if draft.time_based == Some(true) {
        return Err(("time_based", "each file is worked on once; leave it out".into()));
    }
    let of_ios = [
        ("rate", draft.rate.iter().any(Option::is_some)),
        ("rate_iops", draft.rate_iops.iter().any(Option::is_some)),
        ("io_size", draft.io_size.is_some()),
        ("number_ios", draft.number_ios.is_some()),
    ];
    if let Some((option, _)) = of_ios.into_iter().find(|(_, is_given)| *is_given) {
        return Err((option, "nothing is read from these files or written to them; leave it out".into()));
    }
    let files = draft.nrfiles.unwrap_or(1).max(1);
    let size = draft.filesize.or(draft.size.map(|size| Bytes(size.0 / files)));
    if let Some(size) = size.filter(|_| test != Test::Create && !test.is_on_directories()) {
        draft.keys.set("filesize", &size.to_string()).map_err(|why| ("filesize", why))?;
    }
    notes.sentences.push(format!(
        "test = {test}: each file once, without content that is read or written, in an order drawn at random; names are iotax's own"
    ));
    let keys = &mut draft.keys;
    (keys.rw, keys.direct, keys.mem) = (Some(Rw::RandRead), Some(false), None);
    // fio drops cached data but not cached names.
    keys.invalidate = Some(false);
    keys.nrfiles = Some(files);
    keys.loops = draft.loops.filter(|loops| *loops > 1);
    keys.runtime = Some(draft.runtime.filter(|time| time.0 > 0).unwrap_or(LONGEST));
    (draft.size, draft.offset_increment) = (None, None);
    Ok(())
}

fn rw(draft: &JobBuilder) -> Rw {
    draft.keys.rw.unwrap_or(Rw::Read)
}

/// Replaces the engine libblkio with io_uring.
fn libblkio(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    let path = draft.libblkio_path.take();
    if draft.keys.ioengine != Some(IoEngine::Libblkio) {
        return Ok(());
    }
    if !draft.is_ring_of_libblkio {
        return path.map_or(Ok(()), |_| Err(("libblkio_path", "it needs libblkio_driver = io_uring".into())));
    }
    if draft.filename.is_some() && path.is_some() && draft.filename != path {
        return Err(("libblkio_path", "filename is given too; use one of them".into()));
    }
    draft.keys.ioengine = Some(IoEngine::IoUring);
    draft.filename = draft.filename.take().or(path);
    notes
        .sentences
        .push("libblkio_driver = io_uring: io_uring itself, without the library in between".into());
    Ok(())
}

/// Resolves `verify_only`: the job reads and verifies the data that it would otherwise write.
fn checking(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    if draft.verify_only != Some(true) {
        return Ok(());
    }
    if matches!(draft.keys.verify, None | Some(Verify::None)) {
        return Err(("verify_only", "it needs a verify, such as verify = crc32c".into()));
    }
    draft.keys.rw = match rw(draft) {
        Rw::Write => Some(Rw::Read),
        Rw::RandWrite => Some(Rw::RandRead),
        rw if rw.writes() || rw.trims() => {
            let why =
                "what a mix would write is not known without doing it; accepted: rw = write or randwrite";
            return Err(("verify_only", why.into()));
        }
        reads => Some(reads),
    };
    notes.sentences.push(
        "verify_only: nothing is written, and what iotax wrote there before is read and checked; a new file is filled first"
            .into(),
    );
    Ok(())
}

/// Sets the depth of synchronous engines to 1: fio accepts any depth for them, but runs them at depth 1.
fn depth(draft: &mut JobBuilder, notes: &mut Notes) {
    let keys = &mut draft.keys;
    if let (Some(engine), Some(depth @ 2..)) = (keys.ioengine, keys.iodepth)
        && engine.is_synchronous()
    {
        notes.sentences.push(format!("iodepth = {depth}: {engine} does one I/O at a time, as in fio"));
        keys.iodepth = Some(1);
    }
}

/// Resolves block sizes: one size for all directions, a range, or a split.
fn lengths(draft: &mut JobBuilder, _: &mut Notes) -> Result<(), Wrong> {
    let default = Bytes(4096);
    let [read, write, trim] = draft.bs.map(|length| length.unwrap_or(default));
    if draft.bsrange.iter().any(Option::is_some) {
        if draft.bssplit.is_some() {
            return Err(("bssplit", "bsrange is given too; use one of them".into()));
        }
        let ends = [read, write, trim].into_iter().zip(&draft.bsrange);
        let text = ends.map(|(bs, range)| range.unwrap_or((bs, bs))).map(|(min, max)| format!("{min}-{max}"));
        let text = text.collect::<Vec<_>>().join(",");
        return draft.keys.set("bsrange", &text).map_err(|why| ("bsrange", why));
    }
    if let Some(split) = &draft.bssplit {
        return draft.keys.set("bssplit", split).map_err(|why| ("bssplit", why));
    }
    let used = used(rw(draft), [read, write, trim]);
    if used.iter().all(|length| *length == used[0]) {
        draft.keys.bs = Some(used[0]);
        return Ok(());
    }
    let text = format!("{read},{write},{trim}");
    draft.keys.set("bssplit", &text).map_err(|why| ("bs", why))
}

/// Returns the values of those directions that the pattern `rw` uses.
fn used<T: Copy>(rw: Rw, [read, write, trim]: [T; 3]) -> Vec<T> {
    let all = [(rw.reads(), read), (rw.writes(), write), (rw.trims(), trim)];
    all.into_iter().filter(|(has, _)| *has).map(|(_, value)| value).collect()
}

/// Merges options that fio has per direction into iotax's single value; rejects them if the values differ.
fn per_direction(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    let rw = rw(draft);
    let same = |option, values: [Option<u64>; 3]| {
        let used = used(rw, values);
        if used.iter().all(|value| *value == used[0]) {
            return Ok(used[0]);
        }
        let why = "reads and writes of a job have one figure here; give each a job of its own";
        Err((option, why.to_owned()))
    };
    let distribution = used_alike(rw, "random_distribution", &draft.distribution)?;
    draft.keys.random_distribution = distribution.or(draft.keys.random_distribution.take());
    if let (Some(Distribution::Sequence(sequence)), Some(is_strided)) =
        (&mut draft.keys.random_distribution, draft.sequence_stride)
    {
        sequence.is_strided = is_strided;
    }
    draft.keys.blockalign = used_alike(rw, "blockalign", &draft.blockalign)?.filter(|_| rw.is_random());
    if draft.keys.blockalign.is_some() {
        // As in fio, no map of blocks is kept, because blocks could overlap.
        draft.keys.norandommap = Some(true);
    }
    let percent = same("percentage_random", draft.percentage_random.map(|percent| percent.map(u64::from)))?;
    draft.keys.percentage_random = percent.and_then(|percent| u8::try_from(percent).ok());
    draft.keys.cmdprio_percentage =
        used_alike(rw, "cmdprio_percentage", &draft.cmdprio)?.filter(|percent| *percent > 0);
    draft.keys.cmdprio_bssplit = draft.cmdprio_split.take();
    if draft.keys.cmdprio_percentage.is_some() || draft.keys.cmdprio_bssplit.is_some() {
        draft.keys.cmdprio_class = used_alike(rw, "cmdprio_class", &draft.cmdprio_class)?;
        draft.keys.cmdprio = used_alike(rw, "cmdprio", &draft.cmdprio_level)?;
    }
    let rate = rate_of(draft, "rate", draft.rate, notes)?;
    let rate_iops = rate_of(draft, "rate_iops", draft.rate_iops, notes)?;
    draft.keys.rate = rate.map(Bytes);
    draft.keys.rate_iops = rate_iops;
    if rate.or(rate_iops).is_some() {
        notes.sentences.push(
            "rate: I/Os begin when they are due, whether or not earlier ones are done, and what waits counts as waiting".into(),
        );
    }
    Ok(())
}

/// Returns the value that all directions of a pattern share, `None` if it is not set; an error if the values differ.
fn used_alike<T: Clone + PartialEq>(
    rw: Rw,
    option: &'static str,
    values: &[Option<T>; 3],
) -> Result<Option<T>, Wrong> {
    let used = used(rw, [&values[0], &values[1], &values[2]]);
    if used.iter().all(|value| *value == used[0]) {
        return Ok(used[0].clone());
    }
    Err((option, "reads and writes of a job have one here; give each a job of its own".into()))
}

/// Combines rates per direction into the job's total rate; `None` for no limit. In a mix, also derives the percentage of reads from them,
/// because in fio they override `rwmixread`.
fn rate_of(
    draft: &mut JobBuilder,
    option: &'static str,
    [read, write, trim]: [Option<u64>; 3],
    notes: &mut Notes,
) -> Result<Option<u64>, Wrong> {
    let rw = rw(draft);
    if !(rw.reads() && rw.writes()) {
        return Ok(used(rw, [read, write, trim])[0].filter(|rate| *rate > 0));
    }
    match (read.unwrap_or(0), write.unwrap_or(0)) {
        (0, 0) => Ok(None),
        (read, write) if read > 0 && write > 0 && one_length(draft).is_some() => {
            let sum = read.checked_add(write).ok_or((option, "it is too large".to_owned()))?;
            let percent = (u128::from(read) * 100 + u128::from(sum) / 2) / u128::from(sum);
            draft.keys.rwmixread = u8::try_from(percent).ok();
            notes.sentences.push(format!(
                "{option}: {read} for reads and {write} for writes are {sum} together, of which {percent}% are reads"
            ));
            Ok(Some(sum))
        }
        _ => Err((
            option,
            "in a mix it is accepted for reads and for writes alike, with I/Os of one length; give each a job of its own"
                .into(),
        )),
    }
}

/// Resolves the number after `rw`: `rw = read:8k` leaves a gap of 8 KiB after each I/O. Random patterns accept only 1.
fn sequence(draft: &mut JobBuilder, _: &mut Notes) -> Result<(), Wrong> {
    let Some(step) = draft.step else { return Ok(()) };
    if rw(draft).is_random() {
        return if step == 1 {
            Ok(())
        } else {
            Err(("rw", "a place is drawn for each random I/O; use percentage_random to have some follow the one before".into()))
        };
    }
    if draft.is_identical {
        return Err(("rw_sequencer", "I/Os are not repeated in their place; accepted: sequential".into()));
    }
    let length = one_length(draft).ok_or(("rw", "a gap needs I/Os of one length; use bs".to_owned()))?;
    let stride = i64::try_from(length.0).ok().and_then(|length| length.checked_add(step));
    draft.keys.stride = stride.map(Stride);
    Ok(())
}

fn one_length(draft: &JobBuilder) -> Option<Bytes> {
    draft.keys.bs.filter(|_| draft.keys.bsrange.is_none() && draft.keys.bssplit.is_none())
}

/// Converts zones: sequential zones of a single I/O each to a stride, all others to zone keys.
fn zones(draft: &mut JobBuilder, _: &mut Notes) -> Result<(), Wrong> {
    if !draft.is_strided {
        return Ok(());
    }
    let size = draft.zonesize.unwrap_or_default();
    let range = draft.zonerange.filter(|range| range.0 > 0).unwrap_or(size);
    let skip = draft.zoneskip.unwrap_or_default();
    if draft.step.is_some() {
        return Err(("zonemode", "zones and a gap after each I/O exclude one another".into()));
    }
    if size.0 == 0 {
        return Err(("zonemode", "it needs a zonesize".into()));
    }
    if rw(draft).is_random() || one_length(draft) != Some(size) || range != size {
        let keys = &mut draft.keys;
        (keys.zonesize, keys.zonerange, keys.zoneskip) = (Some(size), Some(range), Some(skip));
        return Ok(());
    }
    let stride = size.0.checked_add(skip.0).and_then(|stride| i64::try_from(stride).ok());
    let stride = stride.ok_or(("zoneskip", "it is too large".to_owned()))?;
    draft.keys.stride = Some(Stride(stride));
    Ok(())
}

/// Resolves runtime, loops and limits on the amount of I/O.
fn amount(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    let keys = &mut draft.keys;
    keys.runtime = draft.runtime.filter(|time| time.0 > 0);
    if draft.time_based == Some(true) && keys.runtime.is_some() {
        return Ok(());
    }
    if draft.time_based == Some(true) {
        notes
            .sentences
            .push("time_based: without a runtime a job ends when its size is done, as in fio".into());
    }
    let number = draft.number_ios.filter(|number| *number > 0);
    if number.is_some() && draft.io_size.is_some() {
        return Err(("number_ios", "io_size is given too; use one of them".into()));
    }
    let loops = draft.loops.unwrap_or(1).max(1);
    let length = one_length(draft);
    let bytes = match number {
        None => draft.io_size.filter(|bytes| bytes.0 > 0),
        Some(number) => {
            let length =
                length.ok_or(("number_ios", "it needs I/Os of one length; use io_size".to_owned()))?;
            Some(Bytes(number.checked_mul(length.0).ok_or(("number_ios", "it is too large".to_owned()))?))
        }
    };
    let keys = &mut draft.keys;
    keys.io_size = bytes;
    keys.loops = Some(loops);
    if keys.runtime.is_none() {
        keys.runtime = Some(LONGEST);
        notes.sentences.push(format!(
            "without a runtime: a job ends when its size is done, or after {LONGEST} at the latest (--runtime)"
        ));
    }
    Ok(())
}

/// Treats the several files of a job as one area of their total size. Rejects sequential I/O on several files.
fn files(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    if draft.fill_device == Some(true) {
        (draft.size, draft.filesize) = (None, None);
        notes
            .sentences
            .push("fill_device: all of the target is written; of a new file, --size or 1GiB".into());
    }
    let number = draft.nrfiles.unwrap_or(1).max(1);
    if let Some(one) = draft.filesize {
        let all = one.0.checked_mul(number).ok_or(("filesize", "it is too large".to_owned()))?;
        // File sizes are fixed: a smaller `size` only limits the amount of I/O, a larger one is never reached.
        if draft.size.is_some_and(|size| size.0 < all) && draft.keys.loops.is_some() {
            draft.keys.io_size = draft.keys.io_size.or(draft.size);
        }
        draft.size = Some(Bytes(all));
    }
    whole_ios(draft);
    one_file(draft)?;
    if number > 1 && !rw(draft).is_random() {
        let why = "sequential I/O would go through one area instead of several files in turns; use nrfiles = 1, or numjobs";
        return Err(("nrfiles", why.into()));
    }
    if number > 1 {
        notes.sentences.push(format!("nrfiles = {number}: one area as long as all of them"));
    }
    Ok(())
}

/// Rounds the job's `io_size` up to a multiple of the block size, as in fio; with several block sizes to 512 bytes.
fn whole_ios(draft: &mut JobBuilder) {
    let Some(amount) = draft.keys.io_size else { return };
    let rounded = one_length(draft).and_then(|length| amount.0.checked_next_multiple_of(length.0.max(1)));
    draft.keys.io_size = rounded.or(amount.0.checked_next_multiple_of(SECTOR)).map(Bytes);
}

/// Rejects several file names separated by colons; removes the backslash from an escaped colon.
fn one_file(draft: &mut JobBuilder) -> Result<(), Wrong> {
    const COLON: &str = "\\:";
    let Some(names) = &mut draft.filename else { return Ok(()) };
    if names.replace(COLON, "").contains(':') {
        let why = "fio goes through several files or devices by turns, and one target does not stand for them, also not with \
                   --target; give each a section of its own";
        return Err(("filename", why.into()));
    }
    *names = names.replace(COLON, ":");
    Ok(())
}

/// Resolves options that act before or after the job's I/O, such as `pre_read` and `end_fsync`.
fn around(draft: &mut JobBuilder, notes: &mut Notes) -> Result<(), Wrong> {
    let is_direct = draft.keys.direct == Some(true);
    if draft.keys.pre_read == Some(true) && is_direct {
        notes
            .sentences
            .push("pre_read: direct I/O does not look into the page cache, which is left alone".into());
        draft.keys.pre_read = Some(false);
    }
    if draft.end_fsync != Some(true) || !rw(draft).writes() {
        return Ok(());
    }
    let option = "end_fsync";
    // Without `loops`, the runtime always ends the job.
    if draft.keys.loops.is_some() {
        draft.keys.end_fsync = Some(true);
        if draft.runtime.is_some() {
            notes.sentences.push(format!("{option}: it counts if the job ends before its runtime does"));
        }
    } else if is_direct {
        notes.sentences.push(format!("{option}: what was written is flushed after the window"));
    } else {
        let why = "with time_based what was written is flushed after the window, which does not count here; use fsync = N, \
                   sync = 1 or direct = 1, or leave time_based out";
        return Err((option, why.into()));
    }
    Ok(())
}

/// Resolves the state of a file before the job: whether the page cache is dropped, and how a new file is laid out.
fn file_state(draft: &mut JobBuilder) {
    let rw = rw(draft);
    let endless = draft.keys.loops.is_none();
    let keys = &mut draft.keys;
    if keys.do_verify == Some(false) && !rw.writes() {
        keys.verify = Some(Verify::None);
    }
    if keys.direct != Some(true) {
        keys.fadvise_hint.get_or_insert(AccessHint::Pattern);
        // For an endless random job, fio recognises the end of a pass only by its map of blocks.
        let has_map = keys.norandommap != Some(true)
            && matches!(keys.random_distribution, None | Some(Distribution::Random));
        let has_passes = !endless || !rw.is_random() || has_map;
        let drops = keys.invalidate != Some(false) && keys.pre_read != Some(true);
        keys.invalidate_each_pass = Some(has_passes && drops);
    }
    let takes_layout = !matches!(keys.ioengine, Some(IoEngine::Mmap | IoEngine::Null));
    if rw.writes() && !rw.reads() && draft.overwrite != Some(true) && takes_layout {
        draft.keys.layout = Some(draft.fallocate.unwrap_or(FileLayout::Allocated));
    }
}

fn assemble(draft: JobBuilder, section: &Section, locations: HashMap<&'static str, FileLine>) -> SectionJob {
    let name = draft.name.unwrap_or_else(|| section.name.clone());
    let keys = WorkloadKeys { name: Some(name.clone()), ..draft.keys };
    SectionJob {
        workload: keys.complete(&WorkloadKeys::default()),
        location: section.location.clone(),
        locations,
        name,
        filename: draft.filename,
        directory: draft.directory,
        size: draft.size,
        increment: draft.offset_increment,
        delay: draft.startdelay.filter(|delay| delay.0 > 0),
        stonewall: draft.stonewall == Some(true),
        wait_for: draft.wait_for,
        flow_id: draft.flow_id.unwrap_or(0),
        seed: draft.seed,
    }
}
