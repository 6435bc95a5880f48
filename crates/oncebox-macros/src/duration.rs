//! Durations such as `30s`.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::{Error, LitStr};

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// A valid duration of the attribute.
pub(crate) struct TimeLiteral {
    pub(crate) millis: u64,
    text: LitStr,
}

impl TimeLiteral {
    pub(crate) fn parse(text: &LitStr) -> Result<Self, Error> {
        match millis(&text.value()) {
            Some(millis) => Ok(Self { millis, text: text.clone() }),
            None => Err(Error::new(
                text.span(),
                format!(
                    "{:?} is not a time: write a whole number and a unit, as in \"500ms\", \"30s\", \"5m\", \"2h\" or \"1d\"",
                    text.value()
                ),
            )),
        }
    }

    /// Parses a duration that must not be 0.
    pub(crate) fn parse_positive(text: &LitStr, why: &str) -> Result<Self, Error> {
        let time = Self::parse(text)?;
        if time.millis == 0 {
            return Err(time.error(format!("{:?} is no time at all: {why}", text.value())));
        }
        Ok(time)
    }

    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::new(self.text.span(), what)
    }

    pub(crate) fn written(&self) -> String {
        self.text.value()
    }

    /// Returns it as an expression.
    pub(crate) fn tokens(&self) -> TokenStream {
        let millis = self.millis;
        quote_spanned!(self.text.span()=> ::core::time::Duration::from_millis(#millis))
    }
}

fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::millis;

    #[test]
    fn every_unit_is_known() {
        for (text, expected) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_could_be_mistaken_is_no_time() {
        for text in ["", "30", "s", "30 s", " 30s", "-1s", "1.5s", "1w", "1S", "1h30m", "99999999999999999d"]
        {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
