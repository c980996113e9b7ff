//! Dates and timestamps: ISO 8601 text and epoch numbers to days and microseconds, and back to text.

use super::number;

const DAY_US: i64 = 86_400_000_000;

/// Days since 1970-01-01 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

fn two(text: &[u8], at: usize) -> Option<i64> {
    match text.get(at..at + 2)? {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(i64::from(a - b'0') * 10 + i64::from(b - b'0')),
        _ => None,
    }
}

fn leading_date(text: &[u8]) -> Option<i64> {
    let year = two(text, 0)? * 100 + two(text, 2)?;
    let (month, day) = (two(text, 5)?, two(text, 8)?);
    if text[4] != b'-' || text[7] != b'-' || year == 0 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (day <= length).then(|| days(year, month, day))
}

/// `YYYY-MM-DD` as days.
pub fn date(text: &str) -> Option<i32> {
    if text.len() != 10 {
        return None;
    }
    leading_date(text.as_bytes())?.try_into().ok()
}

/// The first and the last microsecond that a captured timestamp can be: of the years 1 and 9999.
pub const FIRST_US: i64 = -62_135_596_800_000_000;
pub const LAST_US: i64 = 253_402_300_799_999_999;

/// Whether a text is a time after (true) or before (false) the years 1 to 9999, as databases write it: `infinity`, or a
/// year with a sign.
pub fn beyond(text: &str) -> Option<bool> {
    match text.as_bytes() {
        b"infinity" | b"Infinity" => Some(true),
        b"-infinity" | b"-Infinity" => Some(false),
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let year = rest.split(|&byte| byte == b'-').next()?;
            let is_year = year.len() >= 4 && year.iter().all(u8::is_ascii_digit);
            is_year.then_some(*sign == b'+')
        }
        [b'0', b'0', b'0', b'0', b'-', ..] => Some(false),
        _ => None,
    }
}

/// A date of a database, which may have a `Z` at its end, or lie beyond the years 1 to 9999.
pub fn database_date(text: &str) -> Option<i32> {
    match beyond(text) {
        Some(after) => ((if after { LAST_US } else { FIRST_US }).div_euclid(DAY_US))
            .try_into()
            .ok(),
        None => date(text.strip_suffix('Z').unwrap_or(text)),
    }
}

/// Microseconds since 1970, and whether the text named a zone; UTC if it did not.
///
/// A date, perhaps followed by `T` or a space and a time: `HH:MM`, `HH:MM:SS`, with a fraction (cut after six
/// digits), and `Z`, `+HH`, `+HHMM` or `+HH:MM`.
pub fn timestamp(text: &str) -> Option<(i64, bool)> {
    let text = text.as_bytes();
    let midnight = leading_date(text)? * DAY_US;
    let Some(separator) = text.get(10) else {
        return Some((midnight, false));
    };
    if !matches!(separator, b'T' | b't' | b' ') || *text.get(13)? != b':' {
        return None;
    }
    let (hour, minute) = (two(text, 11)?, two(text, 14)?);
    let (mut second, mut micros, mut at) = (0, 0, 16);
    if text.get(at) == Some(&b':') {
        second = two(text, 17)?;
        at = 19;
        if text.get(at) == Some(&b'.') {
            at += 1;
            let start = at;
            while let Some(digit @ b'0'..=b'9') = text.get(at) {
                if at - start < 6 {
                    micros = micros * 10 + i64::from(digit - b'0');
                }
                at += 1;
            }
            if at == start || at - start > 9 {
                return None;
            }
            micros *= 10_i64.pow(6 - (at - start).min(6) as u32);
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let local = midnight + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    match &text[at..] {
        [] => Some((local, false)),
        [b'Z' | b'z'] => Some((local, true)),
        zone => Some((local - zone_minutes(zone)? * 60_000_000, true)),
    }
}

fn zone_minutes(zone: &[u8]) -> Option<i64> {
    let sign = match zone[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = two(zone, 1)?;
    let minutes = match zone.len() {
        3 => 0,
        5 => two(zone, 3)?,
        6 if zone[3] == b':' => two(zone, 4)?,
        _ => return None,
    };
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

/// An epoch number as microseconds. Its size says the unit: seconds below 10^11 (the year 5138), then milliseconds
/// below 10^14, microseconds below 10^17, nanoseconds.
pub fn epoch(text: &str) -> Option<i64> {
    let whole = match number::small_integer(text) {
        Some(whole) => whole,
        None => i64::try_from(number::scaled(text, 0)?.value).ok()?,
    };
    let size = whole.unsigned_abs();
    let scale = if size < 100_000_000_000 {
        6
    } else if size < 100_000_000_000_000 {
        3
    } else if size < 100_000_000_000_000_000 {
        0
    } else {
        -3
    };
    i64::try_from(number::scaled(text, scale)?.value).ok()
}

/// Write a number without its sign, in at least `width` digits.
pub fn digits(out: &mut Vec<u8>, value: i64, width: usize) {
    let mut text = [b'0'; 20];
    let mut rest = value.unsigned_abs();
    let mut at = text.len();
    while rest > 0 || text.len() - at < width {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&text[at..]);
}

/// Write `YYYY-MM-DD`.
pub fn write_date(out: &mut Vec<u8>, day: i64) {
    let (year, month, day) = civil(day);
    if year < 0 {
        out.push(b'-');
    }
    digits(out, year, 4);
    out.push(b'-');
    digits(out, month, 2);
    out.push(b'-');
    digits(out, day, 2);
}

/// Write `YYYY-MM-DDTHH:MM:SS.ffffff`, with a `Z` if it is a moment and not a reading of some clock.
pub fn write_timestamp(out: &mut Vec<u8>, micros: i64, zoned: bool) {
    write_date(out, micros.div_euclid(DAY_US));
    let of_day = micros.rem_euclid(DAY_US);
    let seconds = of_day / 1_000_000;
    out.push(b'T');
    digits(out, seconds / 3600, 2);
    out.push(b':');
    digits(out, seconds / 60 % 60, 2);
    out.push(b':');
    digits(out, seconds % 60, 2);
    out.push(b'.');
    digits(out, of_day % 1_000_000, 6);
    if zoned {
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_calendar_goes_there_and_back() {
        for day in days(1, 1, 1)..=days(9999, 12, 31) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 3, 1), 11_017);
    }

    #[test]
    fn forms_of_timestamps() {
        let noon = 946_728_000_000_000;
        for text in [
            "2000-01-01T12:00:00Z",
            "2000-01-01 12:00:00.000000999+00:00",
            "2000-01-01T12:00Z",
            "2000-01-01T14:30:00.000+0230",
            "2000-01-01t04:00:00-08",
        ] {
            assert_eq!(timestamp(text), Some((noon, true)), "{text}");
        }
        assert_eq!(timestamp("2000-01-01T12:00:00"), Some((noon, false)));
        assert_eq!(
            timestamp("2000-01-01T12:00:00.5Z"),
            Some((noon + 500_000, true))
        );
        assert_eq!(timestamp("2000-01-01"), Some((noon - DAY_US / 2, false)));
        for text in [
            "",
            "2000",
            "2000-13-01",
            "2001-02-29",
            "2000-01-01T",
            "2000-01-01T24:00",
            "2000-01-01T12:00:00.",
            "2000-01-01T12:00:00X",
            "2000-01-01T12",
            "0000-01-01",
            "2000-01-01T12:00:00+1",
            "2000-01-01é12:00",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn the_size_of_an_epoch_number_says_its_unit() {
        for text in [
            "946728000",
            "946728000.0",
            "946728000000",
            "946728000000000",
            "946728000000000000",
        ] {
            assert_eq!(epoch(text), Some(946_728_000_000_000), "{text}");
        }
        assert_eq!(epoch("1.5"), Some(1_500_000));
        assert_eq!(epoch("-1"), Some(-1_000_000));
        assert_eq!(epoch("1e30"), None);
    }

    #[test]
    fn text_of_timestamps() {
        let mut out = Vec::new();
        write_timestamp(&mut out, -1, true);
        assert_eq!(out, b"1969-12-31T23:59:59.999999Z");
    }
}
