//! Explains a row of `iotax top` in words: how busy a device is, and where a guest's or a device's I/Os spend their time.

use iotax_model::units::human;

use crate::rates::{Frame, GuestRates, LayerRates};

/// Explains where the I/Os of a guest's disk spend their time; `None` for the row of a whole guest.
#[must_use]
pub fn guest(row: &GuestRates) -> Option<String> {
    row.disk.as_ref()?;
    let device = row.device.as_deref().unwrap_or("a device that is not known");
    let time = human::time;
    Some(match (row.guest_latency_ns, row.host_latency_ns, row.above_latency_ns) {
        (Some(guest), Some(host), Some(above)) => format!(
            "{} for each I/O of this disk: {} ({:.0}%) at the host's {device}, {} in QEMU and the host's filesystem",
            time(guest),
            time(host),
            100.0 * host / guest,
            time(above)
        ),
        (Some(guest), Some(host), None) => format!(
            "{} for each I/O of this disk, less than the {} at {device}: the host's cache serves it, or others use {device}",
            time(guest),
            time(host)
        ),
        (Some(guest), None, _) => format!(
            "{} for each I/O of this disk, none of which reached {device}: QEMU or the host's cache serves it",
            time(guest)
        ),
        (None, _, _) if row.read_iops.is_some() => "no I/O of this disk in the interval".to_owned(),
        (None, Some(host), _) => {
            format!(
                "{} for each I/O at the host's {device}; --qmp SOCKET shows what the guest sees",
                time(host)
            )
        }
        (None, None, _) => format!("no I/O at the host's {device}; --qmp SOCKET shows what the guest sees"),
    })
}

/// Load level of a row, shown by its colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Heat {
    /// Below the thresholds of the other levels, or the load is unknown.
    #[default]
    Calm,
    /// Busy for at least 60% of the time, but not saturated.
    Warm,
    /// Saturated: I/Os wait for each other, or a network interface loses packets.
    Hot,
}

/// Minimum share of time with I/O in flight for a device to count as [`Heat::Warm`].
const WARM: f64 = 0.6;
/// Minimum share of time with I/O in flight of a saturated device, which also has at least [`WAITING`] I/Os in flight on average.
const HOT: f64 = 0.9;
/// Minimum mean number of I/Os in flight of a saturated device: some of them then wait for others.
const WAITING: f64 = 2.0;
/// Minimum share of time with a task waiting for a CPU for which a shortage of CPU is reported.
const CPU_IS_SHORT: f64 = 0.2;

/// Rates a device's load: saturated if several I/Os are in flight nearly all the time.
#[must_use]
pub fn heat(row: &LayerRates) -> Heat {
    match (row.busy, row.queue) {
        (Some(busy), Some(queue)) if busy >= HOT && queue >= WAITING => Heat::Hot,
        (Some(busy), _) if busy >= WARM => Heat::Warm,
        _ => Heat::Calm,
    }
}

/// Describes a device in one line. With I/O: its load, where its I/Os spend their time, slow flushes, the main source of I/O, and a
/// shortage of CPU. Without I/O: whether it is idle or hangs. Ends with the kind of device, the devices below it and its mount points.
#[must_use]
pub fn layer(frame: &Frame, row: &LayerRates) -> String {
    let said = if row.iops() > 0.0 {
        let parts = [load(row), Some(time(frame, row)), flushes(row), causes(frame, row), cpu(frame)];
        parts.into_iter().flatten().collect()
    } else {
        vec![silence(row)]
    };
    format!("{}: {}. ({})", row.title, said.join("; "), described(row))
}

/// Describes a device that completed no I/O: counters unknown, idle, or hanging with I/Os in flight.
fn silence(row: &LayerRates) -> String {
    match (row.read_iops.or(row.write_iops), row.in_flight) {
        (None, _) => "not known: the device or its counters are new".to_owned(),
        (_, Some(now)) if now > 0.0 => {
            format!("no I/O came to an end, {} in flight: the device hangs or waits", human::count(now))
        }
        _ => "idle".to_owned(),
    }
}

fn load(row: &LayerRates) -> Option<String> {
    let (busy, queue) = (row.busy?, row.queue.unwrap_or(0.0));
    let busy = format!("{:.0}% busy", busy * 100.0);
    Some(match heat(row) {
        Heat::Hot => format!("saturated, {busy}: {} I/Os in flight wait for each other", human::count(queue)),
        Heat::Warm if row.busy? >= HOT => {
            format!("{busy} with one I/O after another: more at once may be faster")
        }
        Heat::Warm => busy,
        Heat::Calm => format!("{busy}, not at its limit"),
    })
}

/// Describes the mean time of an I/O and, if known, how it divides: between the slowest device below and this one, else between the
/// kernel's queue and the device.
fn time(frame: &Frame, row: &LayerRates) -> String {
    let Some(mean) = mean(row) else { return "the time of its I/Os is not known".to_owned() };
    let each = format!("{} for each I/O", human::time(mean));
    let below = frame.layers.iter().filter(|layer| row.on.contains(&layer.name));
    let slowest =
        below.filter_map(|layer| Some((layer, self::mean(layer)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    match (slowest, split(row)) {
        (Some((layer, time)), _) if time <= mean => format!(
            "{each}: {} ({:.0}%) in {} below, {} here",
            human::time(time),
            100.0 * time / mean,
            layer.title,
            human::time(mean - time)
        ),
        (Some((layer, time)), _) => {
            format!(
                "{each}, less than {} in {} below, which others use or which gets other sizes",
                human::time(time),
                layer.title
            )
        }
        (None, Some((queue, device))) => {
            format!("{each}: {} in the queue, {} in the device", human::time(queue), human::time(device))
        }
        (None, None) => each,
    }
}

/// Describes the flushes. `None` if there are none, if their latency is unknown, or if they take no longer than the mean read or write.
fn flushes(row: &LayerRates) -> Option<String> {
    let (rate, time) = (row.flush_iops.filter(|rate| *rate > 0.0)?, row.flush_latency_ns?);
    let is_slow = mean(row).is_none_or(|mean| time > mean);
    is_slow.then(|| format!("{} flushes a second take {} each", human::count(rate), human::time(time)))
}

/// Names the control group with the most I/O on the device; if none is known, the program with the most I/O on the
/// machine. `None` if no program has I/O.
fn causes(frame: &Frame, row: &LayerRates) -> Option<String> {
    let rate = |read: Option<f64>, write: Option<f64>| read.unwrap_or(0.0) + write.unwrap_or(0.0);
    let said = |name: &str, rate: f64| format!("{name} ({}B/s)", human::count(rate));
    if let Some(group) = frame.cgroups.iter().find(|group| group.device == row.title) {
        let rate = rate(group.read_bytes_per_s, group.write_bytes_per_s);
        return Some(format!("most of it by {}", said(&group.path, rate)));
    }
    let process = frame.processes.first()?;
    let rate = rate(process.read_bytes_per_s, process.write_bytes_per_s);
    (rate > 0.0).then(|| format!("the busiest program is {}", said(&process.name, rate)))
}

fn cpu(frame: &Frame) -> Option<String> {
    let share = frame.pressure?.cpu_some.filter(|share| *share >= CPU_IS_SHORT)?;
    Some(format!("programs wait for a CPU {:.0}% of the time", share * 100.0))
}

fn described(row: &LayerRates) -> String {
    let kind = row.kind.map_or_else(|| "device".to_owned(), |kind| kind.to_string());
    let alias = (row.title != row.name).then(|| row.name.clone());
    let on = (!row.on.is_empty()).then(|| format!("on {}", row.on.join(" ")));
    let mounts = (!row.mounts.is_empty()).then(|| format!("mounted at {}", row.mounts.join(" ")));
    [Some(kind), alias, on, mounts].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the mean latency in nanoseconds over reads and writes; `None` if unknown or without I/O.
fn mean(row: &LayerRates) -> Option<f64> {
    let wait = |iops: f64, latency: Option<f64>| if iops > 0.0 { Some(iops * latency?) } else { Some(0.0) };
    let (reads, writes) = (row.read_iops?, row.write_iops?);
    let per_second = wait(reads, row.read_latency_ns)? + wait(writes, row.write_latency_ns)?;
    Some(per_second / (reads + writes)).filter(|mean| mean.is_finite())
}

/// Smallest sum of I/O latencies per second (20 ms) that is split into queue and device: diskstats counts in milliseconds, so less is noise.
const LEAST_WAIT_NS: f64 = 20e6;

/// Returns the mean times in the kernel's queue and in the device, in nanoseconds; `None` if unknown, or if the I/Os' latencies add up to
/// less than [`LEAST_WAIT_NS`] per second.
fn split(row: &LayerRates) -> Option<(f64, f64)> {
    let (device, mean) = (row.device_latency_ns?, mean(row)?);
    // diskstats counts in milliseconds, so the difference of short times is noise.
    (mean * row.iops() >= LEAST_WAIT_NS).then(|| ((mean - device).max(0.0), device))
}

/// Returns a sentence for each guest disk whose latency QEMU reported in the interval.
#[must_use]
pub fn guests(frame: &Frame) -> Vec<String> {
    let has_figures = |row: &&GuestRates| row.guest_latency_ns.is_some();
    let rows = frame.guests.iter().filter(has_figures);
    rows.filter_map(|row| Some(format!("{}: {}", row.guest, guest(row)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::ProcessRates;

    #[test]
    fn a_guests_time_is_divided_where_both_ends_are_known() {
        let row = |guest_latency_ns, host_latency_ns: Option<f64>, above_latency_ns| GuestRates {
            disk: Some("/srv/a".to_owned()),
            device: Some("dm-0".to_owned()),
            read_iops: Some(1.0),
            guest_latency_ns,
            host_latency_ns,
            above_latency_ns,
            ..GuestRates::default()
        };
        let said = |row: GuestRates| guest(&row).expect("a disk");
        let whole = said(row(Some(5e6), Some(4e6), Some(1e6)));
        assert_eq!(
            whole,
            "5.00 ms for each I/O of this disk: 4.00 ms (80%) at the host's dm-0, 1.00 ms in QEMU and the host's filesystem"
        );
        assert!(said(row(Some(1e6), Some(4e6), None)).contains("less than the 4.00 ms"));
        assert!(said(row(Some(1e6), None, None)).contains("none of which reached dm-0"));
        assert!(said(row(None, Some(1e6), None)).contains("no I/O of this disk"));
        assert_eq!(guest(&GuestRates::default()), None, "a whole guest");
    }

    #[test]
    fn a_device_says_how_full_it_is_where_the_time_goes_and_who_makes_it() {
        let sda = LayerRates {
            name: "sda".into(),
            title: "sda".into(),
            read_iops: Some(100.0),
            write_iops: Some(0.0),
            read_latency_ns: Some(3e6),
            device_latency_ns: Some(1e6),
            busy: Some(0.42),
            queue: Some(0.3),
            ..LayerRates::default()
        };
        let full = LayerRates { busy: Some(0.99), queue: Some(12.0), ..sda.clone() };
        let above = LayerRates {
            name: "dm-0".into(),
            title: "vg/a".into(),
            on: vec!["sda".into()],
            read_latency_ns: Some(4e6),
            device_latency_ns: None,
            ..sda.clone()
        };
        let process =
            ProcessRates { name: "dd".into(), read_bytes_per_s: Some(22e6), ..ProcessRates::default() };
        let alone = |row: &LayerRates| layer(&Frame::default(), row);
        let frame = Frame { layers: vec![sda.clone()], processes: vec![process], ..Frame::default() };
        for (said, expected) in [
            (
                alone(&sda),
                "sda: 42% busy, not at its limit; 3.00 ms for each I/O: 2.00 ms in the queue, 1.00 ms in the device. (device)",
            ),
            (
                alone(&full),
                "sda: saturated, 99% busy: 12.0 I/Os in flight wait for each other; 3.00 ms for each I/O: 2.00 ms in the queue, \
                 1.00 ms in the device. (device)",
            ),
            (
                layer(&frame, &above),
                "vg/a: 42% busy, not at its limit; 4.00 ms for each I/O: 3.00 ms (75%) in sda below, 1.00 ms here; the busiest program \
                 is dd (22.0MB/s). (device, dm-0, on sda)",
            ),
            (
                alone(&LayerRates { read_iops: Some(0.0), in_flight: Some(2.0), ..sda.clone() }),
                "sda: no I/O came to an end, 2.00 in flight: the device hangs or waits. (device)",
            ),
            (alone(&LayerRates { read_iops: Some(0.0), ..sda }), "sda: idle. (device)"),
        ] {
            assert_eq!(said, expected);
        }
        assert_eq!(heat(&full), Heat::Hot);
    }
}
