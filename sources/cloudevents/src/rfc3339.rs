//! Times in RFC 3339. Tests: below.

use oncebox_core::time::Timestamp;

/// Parses a time to the millisecond. Returns `None` for other text. A leap second is the second after it.
pub fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let (date, rest) = bytes.split_at_checked(10)?;
    let (time, rest) = rest.split_at_checked(9)?;
    let [y1, y2, y3, y4, b'-', mo1, mo2, b'-', d1, d2] = *date else { return None };
    let [b'T' | b't' | b' ', h1, h2, b':', mi1, mi2, b':', s1, s2] = *time else { return None };
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[mo1, mo2])?, number(&[d1, d2])?);
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[mi1, mi2])?, number(&[s1, s2])?);
    let (millis, rest) = fraction(rest)?;
    let offset = offset(rest)?;
    let valid = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let minutes = days(year, month, day) * 1_440 + hour * 60 + minute - offset;
    Some(Timestamp::from_millis((minutes * 60 + second) * 1_000 + millis))
}

fn number(digits: &[u8]) -> Option<i64> {
    let step = |sum: i64, digit: &u8| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'));
    digits.iter().try_fold(0, step)
}

/// Parses a fraction of any length to milliseconds; returns the rest.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let padded: Vec<u8> = digits.iter().copied().chain(*b"000").take(3).collect();
    if len == 0 { None } else { Some((number(&padded)?, rest)) }
}

/// Parses an offset in minutes east of Greenwich.
fn offset(text: &[u8]) -> Option<i64> {
    match *text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
            let sum = hours * 60 + minutes;
            (hours <= 23 && minutes <= 59).then_some(if sign == b'-' { -sum } else { sum })
        }
        _ => None,
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01. Years begin with March, so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.5Z", -500),
            ("2000-02-29T12:00:00+01:00", 951_822_000_000),
            ("2018-04-05T17:31:00.1239Z", 1_522_949_460_123),
            ("2018-04-05t17:31:00-05:30", 1_522_969_260_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "now",
            "2018-04-05",
            "2018-04-05T17:31:00",
            "2018-13-05T17:31:00Z",
            "2018-02-29T17:31:00Z",
            "2018-04-05T24:00:00Z",
            "2018-04-05T17:31:00.Z",
            "2018-04-05T17:31:00+1:00",
            "2018-04-05T17:31:00ZZ",
            "1900-02-29T00:00:00Z",
            "2018-04-05T17:61:00Z",
            "+018-04-05T17:31:00Z",
            "2018-04-05T17:31:00+24:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn untrusted_input_cannot_make_it_panic(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn agrees_with_another_reader(seconds in 0_u64..253_402_300_799) {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let text = humantime::format_rfc3339(time).to_string();
            prop_assert_eq!(parse(&text), Some(time.into()));
        }
    }
}
