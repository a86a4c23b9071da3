//! Parses points in time as tools print them.
//!
//! Most tools print local time without a zone. Such a time is taken as UTC, and [`Stamp`] records that the zone is unknown.

/// A point in time as printed by a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since 1970-01-01 UTC.
    pub ms: u64,
    /// True if the text gives an offset from UTC; else the zone is unknown.
    pub has_zone: bool,
}

impl Stamp {
    /// Creates a point in time from milliseconds since 1970; `None` for 0, which tools write for an unknown time, and after the year 9999.
    pub(super) fn since_1970(ms: u64) -> Option<Self> {
        (1..=LAST_MS).contains(&ms).then_some(Self { ms, has_zone: true })
    }

    /// Parses a date and a time of day among other words: `Sun Nov 22 03:53:55 2026`, `2023/03/01 10:00:10`, `2026-11-22T03:51:31+0000`,
    /// `11/22/26 03:51:31 PM`. `None` if date or time is missing, or if day and month cannot be told apart.
    pub(super) fn of(text: &str) -> Option<Self> {
        let is_end = |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '[' | ']');
        let mut parts = Parts::default();
        text.split(is_end).filter(|word| !word.is_empty()).for_each(|word| parts.take(word));
        parts.stamp()
    }

    /// Returns the point in time that is `ms` milliseconds earlier.
    pub(super) fn before(self, ms: u64) -> Self {
        Self { ms: self.ms.saturating_sub(ms), ..self }
    }
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The last millisecond of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;

/// Milliseconds in a minute.
const MINUTE: u64 = 60_000;

/// Parts of a time that have been parsed so far.
#[derive(Default)]
struct Parts {
    year: Option<u64>,
    month: Option<u64>,
    day: Option<u64>,
    /// Milliseconds since midnight.
    clock: Option<u64>,
    /// True after `PM`, false after `AM`; `None` for 24-hour times.
    is_afternoon: Option<bool>,
    /// Offset in minutes east of UTC.
    offset: Option<i64>,
}

impl Parts {
    fn take(&mut self, word: &str) {
        let date_and_clock =
            word.split_once('T').filter(|(date, clock)| date.len() > 7 && clock.contains(':'));
        if let Some((date, clock)) = date_and_clock {
            self.take(date);
            self.take(clock);
        } else if word.matches(':').count() == 2 && self.clock.is_none() {
            self.time_of_day(word);
        } else if let Some(month) = month(word) {
            self.month = self.month.or(Some(month));
        } else if let Some([year, month, day]) = date(word) {
            (self.year, self.month, self.day) = (Some(year), Some(month), Some(day));
        } else if let Ok(number) = word.parse::<u64>() {
            match (word.len(), number) {
                (1..=2, 1..=31) => self.day = self.day.or(Some(number)),
                (4, 1970..=9999) => self.year = self.year.or(Some(number)),
                _ => {}
            }
        } else {
            match word {
                "AM" | "PM" => self.is_afternoon = Some(word == "PM"),
                "UTC" | "GMT" => self.offset = Some(0),
                _ => {}
            }
        }
    }

    /// Parses a time of day: `03:53:55`, `16:24:32.018`, `03:51:31+0000`, `03:51:31Z`.
    fn time_of_day(&mut self, word: &str) {
        let end = word.find(['+', '-', 'Z']).unwrap_or(word.len());
        let (clock, zone) = word.split_at(end);
        let mut parts = clock.split(':');
        let mut next = |most: u64| {
            let whole = parts.next()?.split('.').next()?;
            whole.parse::<u64>().ok().filter(|value| *value < most)
        };
        let (Some(hour), Some(minute), Some(second)) = (next(24), next(60), next(61)) else { return };
        self.clock = Some((hour * 60 + minute) * MINUTE + second * 1000);
        self.offset = self.offset.or_else(|| offset(zone));
    }

    fn stamp(self) -> Option<Stamp> {
        let (year, month, day, mut clock) = (self.year?, self.month?, self.day?, self.clock?);
        let hours = clock / (60 * MINUTE);
        match self.is_afternoon {
            Some(true) if hours < 12 => clock += 12 * 60 * MINUTE,
            Some(false) if hours == 12 => clock -= 12 * 60 * MINUTE,
            _ => {}
        }
        let ms = days(year, month, day)?.checked_mul(24 * 60 * MINUTE)?.checked_add(clock)?;
        let east = self.offset.unwrap_or(0).checked_mul(i64::try_from(MINUTE).ok()?)?;
        Some(Stamp { ms: ms.checked_add_signed(-east)?, has_zone: self.offset.is_some() })
    }
}

/// Returns the number of a month by its English name: 1 for `Jan`; `None` for other words.
fn month(word: &str) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    (1..).zip(MONTHS).find(|(_, name)| *name == word).map(|(number, _)| number)
}

/// Parses a date into year, month and day: `2026-11-22`, `2023/03/01`, `11/22/26`. If the year is last, a number above 12 must show which of the
/// other two is the day; otherwise `None`, unless both are equal.
fn date(word: &str) -> Option<[u64; 3]> {
    let parts: Vec<u64> = word.split(['/', '-']).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [first, second, third] = parts[..] else { return None };
    if first > 31 {
        return Some([first, second, third]);
    }
    let year = if third < 100 { 2000 + third } else { third };
    match (first, second) {
        (1..=12, 13..=31) => Some([year, first, second]),
        (13..=31, 1..=12) => Some([year, second, first]),
        (1..=12, _) if first == second => Some([year, first, second]),
        _ => None,
    }
}

/// Parses an offset from UTC into minutes: `+0130`, `-07:00`, `Z`.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let digits: String = zone.get(1..)?.chars().filter(|c| *c != ':').collect();
    let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    let minutes = number / 100 * 60 + number % 100;
    Some(if zone.starts_with('-') { -minutes } else { minutes })
}

/// Returns the days from 1970-01-01 to a date; `None` for an invalid date, and for years before 1970 or after 9999.
pub(super) fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    if !(1970..=9999).contains(&year) || day == 0 || day > *lengths.get(index)? {
        return None;
    }
    let before = year - 1;
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(before) - leap_days(1969);
    Some(years + lengths[..index].iter().sum::<u64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_analysis::time::utc;

    #[test]
    fn the_clocks_of_tools_are_read_and_what_may_be_another_day_is_not() {
        for (text, time, has_zone) in [
            ("Sun Nov 22 03:53:55 2026", "2026-11-22T03:53:55Z", false),
            ("Wed Mar 01 2023 10:00:00 - 10:28:00", "2023-03-01T10:00:00Z", false),
            ("Sun, 22 Nov 2026 04:51:38 GMT", "2026-11-22T04:51:38Z", true),
            ("2023/03/01  10:00:10", "2023-03-01T10:00:10Z", false),
            ("2026-11-22T03:51:31+0130", "2026-11-22T02:21:31Z", true),
            ("2026-11-22 03:51:31.123 (UTC)", "2026-11-22T03:51:31Z", true),
            ("11/22/26 03:51:31", "2026-11-22T03:51:31Z", false),
            ("22/11/2026 03:51:31 PM", "2026-11-22T15:51:31Z", false),
            ("02/29/2024 12:00:01 AM", "2024-02-29T00:00:01Z", false),
            ("Jan 24, 2019 16:24:31.001", "2019-01-24T16:24:31Z", false),
        ] {
            let stamp = Stamp::of(text).expect(text);
            assert_eq!((utc(stamp.ms).as_str(), stamp.has_zone), (time, has_zone), "{text}");
        }
        for text in
            ["03/01/17 10:00:00", "02/30/2024 10:00:00", "10:00:00", "2023/03/01", "2023/03/01 25:00:00"]
        {
            assert_eq!(Stamp::of(text), None, "{text}");
        }
        assert_eq!(
            [days(1970, 1, 1), days(2000, 3, 1), days(2023, 2, 29), days(1969, 12, 31)],
            [Some(0), Some(11_017), None, None]
        );
    }
}
