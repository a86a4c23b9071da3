//! Parses times on the command line. A plain number has the unit of the tool that the flag imitates, such as fio.

use std::borrow::Cow;

use iotax_model::units::Nanos;

/// fio's units for plain numbers, by key.
const FIO_UNITS: [(&str, &str); 4] =
    [("runtime", "s"), ("ramp_time", "s"), ("startdelay", "s"), ("thinktime", "us")];

/// Returns the value of a workload key, with fio's unit added if it is a plain number.
pub(super) fn with_unit<'a>(key: &str, text: &'a str) -> Cow<'a, str> {
    match FIO_UNITS.iter().find(|(known, _)| *known == key) {
        Some((_, unit)) if is_plain(text) => Cow::Owned(format!("{text}{unit}")),
        _ => Cow::Borrowed(text),
    }
}

/// Parses seconds, as in fio and iperf3, or a time with a unit.
pub(super) fn seconds(text: &str) -> Result<Nanos, String> {
    let with_unit = if is_plain(text) { format!("{text}s") } else { text.to_owned() };
    with_unit.parse().map_err(|_| format!("{text:?} is not a time; accepted: seconds, or 500ms, 30s, 2m"))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        assert_eq!((seconds("10"), seconds("0.5")), (Ok(Nanos::from_secs(10)), Ok(Nanos::from_millis(500))));
        assert_eq!(seconds("250ms"), Ok(Nanos::from_millis(250)));
        for text in ["soon", "", ".", "1.2.3", "-1"] {
            assert!(seconds(text).expect_err("refused").contains(&format!("{text:?}")), "{text}");
        }
    }

    #[test]
    fn a_plain_number_has_the_unit_that_fio_gives_it() {
        for (key, text, with) in [
            ("runtime", "2", "2s"),
            ("ramp_time", "0.5", "0.5s"),
            ("startdelay", "3", "3s"),
            ("thinktime", "20", "20us"),
            ("runtime", "300ms", "300ms"),
            ("runtime", "", ""),
            // fio has no such key.
            ("stall_timeout", "5", "5"),
            ("bs", "512", "512"),
        ] {
            assert_eq!(with_unit(key, text), with, "{key}={text}");
        }
    }
}
