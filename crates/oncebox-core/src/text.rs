//! Durations and numbers as operators read them.

use std::fmt;
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Formats a duration in the largest unit with a useful value.
#[derive(Clone, Copy, Debug)]
pub struct ShortDuration(pub Duration);

impl ShortDuration {
    /// Rounds a duration up to the unit in which it is shown.
    pub fn rounded_up(span: Duration) -> Self {
        let unit = match span.as_secs() {
            0..MINUTE => 1,
            MINUTE..HOUR => MINUTE,
            HOUR..DAY => HOUR,
            _ => DAY,
        };
        let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
        Self(Duration::from_secs(seconds.div_ceil(unit).saturating_mul(unit)))
    }
}

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            u64::MAX => f.write_str("any time"),
            0 => write!(f, "{} ms", self.0.as_millis()),
            1..120 => write!(f, "{seconds} s"),
            120..7200 => write!(f, "{} min", seconds / MINUTE),
            7200..172_800 => write!(f, "{} h", seconds / HOUR),
            _ => write!(f, "{} days", Grouped(seconds / DAY)),
        }
    }
}

/// Formats a number with commas between the thousands.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                write!(f, ",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_windows_are_whole_units() {
        for (span, text) in [
            (Duration::from_millis(1_500), "2 s"),
            (Duration::from_secs(3_599), "60 min"),
            (Duration::from_mins(250), "5 h"),
            (Duration::from_hours(49), "3 days"),
        ] {
            assert_eq!(ShortDuration::rounded_up(span).to_string(), text);
        }
    }
}
