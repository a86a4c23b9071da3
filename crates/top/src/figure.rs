//! Defines each figure of `iotax top` once; tables, the screen, JSON and Prometheus iterate over these lists.

use iotax_model::units::human;

use crate::rates::{CgroupRates, GuestRates, InterfaceRates, LayerRates, PressureRates, ProcessRates};

/// Unit of a figure, which decides its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Events per second, such as I/Os or packets.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Nanoseconds, shown in the unit that fits, such as us or ms.
    Nanos,
    /// A share of time from 0 to 1, shown in percent.
    Share,
    /// A number without a unit.
    Count,
}

impl FigureUnit {
    /// Formats a value in at most [`Self::width`] characters.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Nanos => human::time(value).replace(' ', ""),
            Self::Share => format!("{:.0}%", value * 100.0),
            Self::PerSecond | Self::Count if value > 0.0 && value < 0.995 => format!("{value:.2}"),
            Self::PerSecond | Self::BytesPerSecond | Self::Count => human::count(value),
        }
    }

    /// Returns the maximum width of a formatted value in characters.
    pub const fn width(self) -> usize {
        match self {
            Self::Nanos => 6,
            Self::Share => 4,
            Self::PerSecond | Self::BytesPerSecond | Self::Count => 5,
        }
    }
}

/// A figure of rows of type `R`, such as the busy share of a block device.
#[derive(Debug)]
pub struct Figure<R> {
    /// Key in JSON; ends in the unit if the figure has one, such as `read_latency_ns`.
    pub id: &'static str,
    /// Heading of the figure's column in tables.
    pub title: &'static str,
    /// Unit of the value that `get` returns.
    pub unit: FigureUnit,
    /// Definition in one clause, for the help on screen.
    pub help: &'static str,
    /// Returns the value in a row; `None` if unknown.
    pub get: fn(&R) -> Option<f64>,
}

impl<R> Figure<R> {
    /// Formats the row's value; a dash if unknown.
    pub fn text(&self, row: &R) -> String {
        (self.get)(row).map_or_else(|| "-".to_owned(), |value| self.unit.text(value))
    }

    /// Returns the width of the figure's column in characters: enough for its values and its heading.
    pub fn width(&self) -> usize {
        self.unit.width().max(self.title.len())
    }
}

macro_rules! figures {
    ($(#[$doc:meta])* $name:ident: $row:ty { $($id:ident $title:literal $unit:ident $help:literal)* }) => {
        $(#[$doc])*
        pub const $name: &[Figure<$row>] = &[
            $(Figure { id: stringify!($id), title: $title, unit: FigureUnit::$unit, help: $help, get: |row| row.$id },)*
        ];
    };
}

figures! {
    /// Figures of block devices, the most important first: narrow screens leave out the last figures.
    LAYERS: LayerRates {
        busy "busy" Share "share of time with I/O in flight"
        read_iops "r/s" PerSecond "reads completed per second"
        write_iops "w/s" PerSecond "writes completed per second"
        read_latency_ns "r-mean" Nanos "mean time of a read, with queue"
        write_latency_ns "w-mean" Nanos "mean time of a write, with queue"
        read_bytes_per_s "rB/s" BytesPerSecond "bytes read per second"
        write_bytes_per_s "wB/s" BytesPerSecond "bytes written per second"
        queue "queue" Count "mean number of I/Os in flight"
        read_p99_ns "r-p99" Nanos "99% of the reads took no longer"
        write_p99_ns "w-p99" Nanos "99% of the writes took no longer"
        device_latency_ns "device" Nanos "from dispatch to completion"
        in_flight "now" Count "I/Os in flight at the end"
        read_merges_per_s "rmrg/s" PerSecond "reads merged per second"
        write_merges_per_s "wmrg/s" PerSecond "writes merged per second"
        flush_iops "f/s" PerSecond "flushes per second"
        flush_latency_ns "f-mean" Nanos "mean time of a flush"
        discard_iops "d/s" PerSecond "discards per second"
        discard_bytes_per_s "dB/s" BytesPerSecond "bytes discarded per second"
    }
}

figures! {
    /// Figures of processes, from their I/O counters.
    PROCESSES: ProcessRates {
        read_bytes_per_s "rB/s" BytesPerSecond "bytes read from storage per second"
        write_bytes_per_s "wB/s" BytesPerSecond "bytes written to storage per second, or to the page cache to be written later"
        read_calls_per_s "rcall/s" PerSecond "calls per second that read, files and pipes alike"
        write_calls_per_s "wcall/s" PerSecond "calls per second that write, files and pipes alike"
    }
}

figures! {
    /// Figures of control groups on one device.
    CGROUPS: CgroupRates {
        read_iops "r/s" PerSecond "reads per second"
        write_iops "w/s" PerSecond "writes per second"
        read_bytes_per_s "rB/s" BytesPerSecond "bytes read per second"
        write_bytes_per_s "wB/s" BytesPerSecond "bytes written per second"
    }
}

figures! {
    /// Figures of guests and their disks, from QEMU and from the host.
    GUESTS: GuestRates {
        read_iops "r/s" PerSecond "reads per second, as QEMU counts them"
        write_iops "w/s" PerSecond "writes per second, as QEMU counts them"
        read_bytes_per_s "rB/s" BytesPerSecond "bytes read per second"
        write_bytes_per_s "wB/s" BytesPerSecond "bytes written per second"
        guest_latency_ns "guest" Nanos "mean time of I/Os as the guest's disk gives them"
        host_latency_ns "host" Nanos "mean time of I/Os at the host's device"
        above_latency_ns "QEMU+" Nanos "mean time in QEMU and the host's filesystem: the difference"
    }
}

figures! {
    /// Figures of network interfaces, from their packet counters.
    INTERFACES: InterfaceRates {
        rx_bytes_per_s "rxB/s" BytesPerSecond "bytes received per second"
        tx_bytes_per_s "txB/s" BytesPerSecond "bytes sent per second"
        rx_packets_per_s "rxp/s" PerSecond "packets received per second"
        tx_packets_per_s "txp/s" PerSecond "packets sent per second"
        rx_drops_per_s "rxd/s" PerSecond "packets lost on receipt per second"
        tx_drops_per_s "txd/s" PerSecond "packets lost on sending per second"
    }
}

figures! {
    /// Figures of the whole machine: shares of time in which tasks waited for I/O, a CPU or memory.
    PRESSURE: PressureRates {
        io_some "io" Share "share of time in which some task waited for I/O"
        io_full "io all" Share "share of time in which all busy tasks waited for I/O"
        cpu_some "cpu" Share "share of time in which some task waited for a CPU"
        memory_some "memory" Share "share of time in which some task waited for memory"
    }
}
