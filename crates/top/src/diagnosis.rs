//! Sentences about one row: where the time of a guest's or a device's I/O goes.

use iotax_model::units::human;

use crate::rates::{Frame, GuestRates, LayerRates};

/// Where the time of a guest disk's I/O goes; `None` for a whole guest.
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

/// What a device is, and how its time divides into queue and device.
#[must_use]
pub fn layer(row: &LayerRates) -> String {
    let time = split(row).map_or_else(String::new, |(queue, device)| {
        format!("; {} in the queue, {} in the device for each I/O", human::time(queue), human::time(device))
    });
    format!("{}: {}{time}", row.name, described(row))
}

fn described(row: &LayerRates) -> String {
    let kind = row.kind.map_or_else(|| "device".to_owned(), |kind| kind.to_string());
    let on = (!row.on.is_empty()).then(|| format!("on {}", row.on.join(" ")));
    let mounts = (!row.mounts.is_empty()).then(|| format!("mounted at {}", row.mounts.join(" ")));
    [Some(kind), on, mounts].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// I/O time per second from which a counter of milliseconds tells queue and device apart.
const LEAST_WAIT_NS: f64 = 20e6;

/// Mean times in the kernel's queue and in the device.
fn split(row: &LayerRates) -> Option<(f64, f64)> {
    let device = row.device_latency_ns?;
    let (reads, writes) = (row.read_iops?, row.write_iops?);
    let wait = |iops: f64, latency: Option<f64>| if iops > 0.0 { Some(iops * latency?) } else { Some(0.0) };
    let per_second = wait(reads, row.read_latency_ns)? + wait(writes, row.write_latency_ns)?;
    let mean = per_second / (reads + writes);
    // diskstats counts in milliseconds, so the difference of short times is noise.
    (per_second >= LEAST_WAIT_NS && mean.is_finite()).then(|| ((mean - device).max(0.0), device))
}

/// A sentence for each guest's disk that had I/O.
#[must_use]
pub fn guests(frame: &Frame) -> Vec<String> {
    let has_figures = |row: &&GuestRates| row.guest_latency_ns.is_some();
    let rows = frame.guests.iter().filter(has_figures);
    rows.filter_map(|row| Some(format!("{}: {}", row.guest, guest(row)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_device_divides_into_queue_and_device() {
        let row = LayerRates {
            name: "sda".into(),
            read_iops: Some(100.0),
            write_iops: Some(0.0),
            read_latency_ns: Some(3e6),
            device_latency_ns: Some(1e6),
            ..LayerRates::default()
        };
        assert_eq!(layer(&row), "sda: device; 2.00 ms in the queue, 1.00 ms in the device for each I/O");
    }
}
