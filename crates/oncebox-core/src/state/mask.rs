//! Masks credentials in text. The input may be long and hostile, so a scanner reads it once or a few times, in linear time.

/// Replacement of a credential.
const MASK: &str = "***";

/// Suffixes of names whose values are secret, in lower case, without `_`, `-` and `.`.
const SECRET_NAMES: [&str; 12] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "credentials",
    "authorization",
];

/// Words that stand before a credential: `Authorization: Basic dXNlcjpwYXNz`.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "token", "negotiate"];

/// Maximum passes over a text.
const PASSES: usize = 8;

/// Masks what looks like a credential. Masking again changes nothing.
pub(super) fn mask(text: &str) -> String {
    let mut masked = pass(text);
    // The first pass may have uncovered more: `://token=/x&@`.
    for _ in 1..PASSES {
        let again = pass(&masked);
        if again == masked {
            break;
        }
        masked = again;
    }
    masked
}

fn pass(text: &str) -> String {
    let mut scanner = Scanner { bytes: text.as_bytes(), run: UrlSpan::default() };
    let mut masked = String::with_capacity(text.len());
    let (mut at, mut kept) = (0, 0);
    while at < text.len() {
        match scanner.secret_at(at) {
            Some((start, end)) => {
                masked.push_str(&text[kept..start]);
                masked.push_str(MASK);
                (at, kept) = (end, end);
            }
            None => at += 1,
        }
    }
    masked.push_str(&text[kept..]);
    masked
}

/// Text without blanks and quotes, at whose end a URL ends at the latest.
#[derive(Default)]
struct UrlSpan {
    end: usize,
    /// Position of its last `@`.
    at: Option<usize>,
}

/// Scanner of one pass. It matches only ASCII, so each match starts and ends between characters.
struct Scanner<'a> {
    bytes: &'a [u8],
    run: UrlSpan,
}

impl Scanner<'_> {
    /// Returns start and end of the credential that is announced at a position.
    fn secret_at(&mut self, at: usize) -> Option<(usize, usize)> {
        if self.bytes[at..].starts_with(b"://") {
            return self.user_of_url(at + 3);
        }
        let begins = is_word(self.bytes[at]) && (at == 0 || !is_word(self.bytes[at - 1]));
        if !begins {
            return None;
        }
        let end = self.skip(at, is_word);
        let word = &self.bytes[at..end];
        let start = if word.eq_ignore_ascii_case(b"bearer") {
            let start = self.skip(end, is_blank);
            (start > end).then_some(start)?
        } else if is_secret_name(word) {
            self.after_separator(end)?
        } else {
            return None;
        };
        let end = self.value_end(start);
        (end > start).then_some((start, end))
    }

    /// Returns the text before the `@` of a URL.
    fn user_of_url(&mut self, start: usize) -> Option<(usize, usize)> {
        if start >= self.run.end {
            let end = self.skip(start, |byte| !ends_url(byte));
            let last = self.bytes[start..end].iter().rposition(|byte| *byte == b'@');
            self.run = UrlSpan { end, at: last.map(|last| start + last) };
        }
        let last = self.run.at.filter(|last| *last > start)?;
        let host_end = self.skip(start, |byte| !ends_url(byte) && !matches!(byte, b'/' | b'?' | b'#'));
        let host = &self.bytes[start..host_end];
        // A port is a number. Anything else is the start of a password that contains a slash.
        let odd_port = host.rsplit(|byte| *byte == b':').next().is_some_and(|port| {
            port.len() < host.len() && !port.iter().all(|byte| byte.is_ascii_digit() || *byte == b']')
        });
        (host.contains(&b'@') || odd_port).then_some((start, last))
    }

    /// Returns the start of the value of a name that ends at a position.
    fn after_separator(&self, end: usize) -> Option<usize> {
        let mut at = self.skip(end, |byte| byte == b'\\');
        if self.bytes.get(at).is_some_and(|byte| is_quote(*byte)) {
            at += 1;
        } else {
            at = end;
        }
        at = self.skip(at, is_blank);
        match self.bytes.get(at..)? {
            [b'=', b'>', ..] | [b':', b'=', ..] => at += 2,
            // The scheme of a URL is no name.
            [b':', b'/', b'/', ..] | [b':', b'/'] => return None,
            [b'=' | b':', ..] => at += 1,
            _ => return None,
        }
        Some(self.skip(at, is_blank))
    }

    /// Returns the end of a value: a blank or a separator outside of quotes.
    fn value_end(&self, start: usize) -> usize {
        let first = self.skip(start, |byte| byte.is_ascii_alphabetic());
        let word = &self.bytes[start..first];
        if SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes())) {
            let next = self.skip(first, is_blank);
            if next > first && next < self.bytes.len() {
                return self.plain_end(next).max(first);
            }
        }
        self.plain_end(start)
    }

    fn plain_end(&self, start: usize) -> usize {
        let mut at = start;
        while let Some(byte) = self.bytes.get(at) {
            match byte {
                quote if is_quote(*quote) => at = self.quote_end(at, *quote),
                // A quote inside of a quoted text.
                b'\\' if self.bytes.get(at + 1).is_some_and(|next| is_quote(*next)) => {
                    at = self.escaped_quote_end(at + 1);
                }
                b'&' | b',' | b';' | b')' | b']' | b'}' => break,
                blank if blank.is_ascii_whitespace() => break,
                _ => at += 1,
            }
        }
        at
    }

    /// Returns the end of a quoted text, behind its last quote.
    fn quote_end(&self, start: usize, quote: u8) -> usize {
        let mut at = start + 1;
        while let Some(byte) = self.bytes.get(at) {
            at += match byte {
                b'\\' => 2,
                byte if *byte == quote => return at + 1,
                _ => 1,
            };
        }
        self.bytes.len()
    }

    /// Returns the end of a quoted text within a quoted text. `start` is its first quote, behind a backslash.
    fn escaped_quote_end(&self, start: usize) -> usize {
        let quote = self.bytes[start];
        let mut at = start + 1;
        while let Some(byte) = self.bytes.get(at) {
            at += 1;
            if *byte == quote {
                return at;
            }
        }
        self.bytes.len()
    }

    /// Returns the first position from `start` on whose byte does not match.
    fn skip(&self, start: usize, of: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes.get(start..).unwrap_or_default();
        start + rest.iter().position(|byte| !of(*byte)).unwrap_or(rest.len())
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

const fn ends_url(byte: u8) -> bool {
    byte.is_ascii_whitespace() || is_quote(byte) || matches!(byte, b'<' | b'>')
}

fn is_secret_name(word: &[u8]) -> bool {
    let letters = || word.iter().rev().filter(|byte| !matches!(**byte, b'_' | b'-' | b'.'));
    SECRET_NAMES.iter().any(|name| {
        let mut letters = letters();
        name.bytes()
            .rev()
            .all(|of_name| letters.next().is_some_and(|byte| byte.eq_ignore_ascii_case(&of_name)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::ErrorText;

    // FAULTS C11
    #[test]
    fn credentials_are_masked() {
        for (text, masked) in [
            (
                "cannot reach postgres://app:hunter2@db:5432/orders",
                "cannot reach postgres://***@db:5432/orders",
            ),
            ("https://ghp_abc@github.com/x: 403", "https://***@github.com/x: 403"),
            ("amqp://u:p@ss/w@rd@mq/v, again", "amqp://***@mq/v, again"),
            ("redis://:pa/ss@cache", "redis://***@cache"),
            ("<https://u:p@h> \"ftp://u:p@h\"", "<https://***@h> \"ftp://***@h\""),
            ("https://proxy/?to=postgres://u:p@h", "https://proxy/?to=postgres://***@h"),
            ("401 for Bearer eyJh.bGci-OiJ_ now", "401 for Bearer *** now"),
            ("authorization: bearer  x", "authorization: ***"),
            ("Authorization: Basic dXNlcjpw, next", "Authorization: ***, next"),
            ("token: Bearer abc.def", "token: ***"),
            ("password=hunter2", "password=***"),
            ("PGPASSWORD='hunter 2' psql", "PGPASSWORD=*** psql"),
            ("GET /?user=a&api_key=12345&x=1", "GET /?user=a&api_key=***&x=1"),
            ("X-Api-Key: 12345; retry", "X-Api-Key: ***; retry"),
            ("client_secret = s3cret)", "client_secret = ***)"),
            (r#"{"access_token": "a\"b", "n": 1}"#, r#"{"access_token": ***, "n": 1}"#),
            (r#"body: "{\"token\":\"abc\",\"n\":1}""#, r#"body: "{\"token\":***,\"n\":1}""#),
            (r#"Config { password: Some("hunter2"), n: 1 }"#, "Config { password: ***), n: 1 }"),
            ("aws_secret_access_key=>wJalr", "aws_secret_access_key=>***"),
            ("passwd:=x pwd=y", "passwd:=*** pwd=***"),
            ("db://token=/x&@host", "db://***@host"),
            ("pass\u{e9}token=\u{e9}\u{e9} x", "pass\u{e9}token=*** x"),
        ] {
            assert_eq!(mask(text), masked, "{text}");
        }
    }

    #[test]
    fn other_text_is_left_as_it_is() {
        for text in [
            "",
            "connection refused",
            "https://registry.npmjs.org/@scope/package",
            "http://[::1]:8080/@me",
            "https://example.com:8080/a?b=c@d",
            "someone@example.com wrote",
            "tokens=5, secretary: Ann, passwords",
            "the password is wrong",
            "token://host, bearer",
            "password= ",
            "naïve \u{1f980} text",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    // A hostile error text must not cost more than linear time.
    #[test]
    fn long_text_is_scanned_in_a_few_passes() {
        for part in ["://", "://a:", "password=", "a", "token\"", "bearer ", "\\\"", "password='"] {
            let text = part.repeat((1 << 18) / part.len());
            assert!(mask(&text).len() <= text.len() + MASK.len());
        }
    }

    /// Text that combines the parts of credentials in every way.
    fn parts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(vec![
                "://", "user", ":", "@", "/", "?", "#", "Bearer", "Basic", "password", "token", "api_key",
                "=", ">", " ", "\t", "\n", "\"", "'", "`", "\\", "&", ",", ";", ")", "}", "***", "secret",
                "5432", "é", "\0",
            ])
            .prop_map(str::to_owned),
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn never_panics_and_masking_again_changes_nothing(text in parts()) {
            let once = mask(&text);
            prop_assert_eq!(mask(&once), once);
        }

        #[test]
        fn error_text_is_bounded_and_settled(text in parts(), filling in 1_950usize..2_010) {
            let text = format!("{}{text}", "x ".repeat(filling / 2));
            let once = ErrorText::new(&text);
            prop_assert!(once.as_str().chars().count() <= ErrorText::MAX_CHARS);
            prop_assert_eq!(ErrorText::new(once.as_str()), once);
        }

        #[test]
        fn what_stands_before_the_host_is_never_kept(user in "[a-z]{1,8}", secret in "[A-Z][A-Z0-9/@?#]{5,11}") {
            let masked = mask(&format!("cannot reach db://{user}:{secret}@host/x now"));
            prop_assert_eq!(masked, "cannot reach db://***@host/x now");
        }

        #[test]
        fn the_value_of_a_secret_name_is_never_kept(
            name in prop::sample::select(SECRET_NAMES.to_vec()),
            separator in prop::sample::select(vec!["=", ": ", " = ", "\": \""]),
            secret in "Q[A-Z0-9]{6,12}Q",
        ) {
            let masked = mask(&format!("x {name}{separator}{secret}\" y"));
            prop_assert!(!masked.contains(&secret), "{}", masked);
        }
    }
}
