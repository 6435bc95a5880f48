//! Comments and literals of a Rust file, found without a parser: separates code from text. Tests: below.

use std::ops::Range;

/// The kind of a [`Lexeme`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LexemeKind {
    Comment,
    /// A string of any kind.
    Text,
    /// A character, or the quote of a lifetime.
    Quote,
}

/// A part of a file that is not code. The positions are bytes of the file.
#[derive(Debug)]
pub(crate) struct Lexeme {
    pub(crate) kind: LexemeKind,
    pub(crate) whole: Range<usize>,
    content: Range<usize>,
}

impl Lexeme {
    /// Returns the part between the quotes of a string; otherwise all of it. Empty if a string has no end.
    pub(crate) fn content<'a>(&self, source: &'a str) -> &'a str {
        source.get(self.content.clone()).unwrap_or("")
    }
}

/// Returns the contents of every string literal, as written between its quotes.
pub(crate) fn literals(source: &str) -> Vec<&str> {
    let texts = lexemes(source).into_iter().filter(|lexeme| lexeme.kind == LexemeKind::Text);
    texts.map(|text| text.content(source)).collect()
}

/// Masks comments and literals with spaces. Every byte and every line keeps its position, and a string keeps a quote at
/// each end.
pub(crate) fn code(source: &str, lexemes: &[Lexeme]) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut at = 0;
    for Lexeme { kind, whole, .. } in lexemes {
        masked.push_str(&source[at..whole.start]);
        at = whole.end;
        for (index, byte) in source.bytes().enumerate().take(whole.end).skip(whole.start) {
            let end = index == whole.start || index + 1 == whole.end;
            masked.push(match byte {
                b'\n' => '\n',
                _ if end && *kind == LexemeKind::Text => '"',
                _ => ' ',
            });
        }
    }
    masked.push_str(&source[at..]);
    masked
}

/// Returns every comment, string and character of a file, in order.
pub(crate) fn lexemes(source: &str) -> Vec<Lexeme> {
    let mut found = Vec::new();
    let mut at = 0;
    // The character before `at`: `r` opens a raw string unless it ends a name.
    let mut before = ' ';
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let (kind, open, close, len) = if rest.starts_with("//") {
            (Some(LexemeKind::Comment), 0, 0, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Some(LexemeKind::Comment), 0, 0, block_comment(rest))
        } else if first == '"' {
            (Some(LexemeKind::Text), 1, 1, quoted(rest, '"'))
        } else if let Some(hashes) = raw_string(rest)
            && !is_name(before)
        {
            let (open, close, len) = raw_content(rest, hashes);
            (Some(LexemeKind::Text), open, close, len)
        } else if first == '\'' {
            (Some(LexemeKind::Quote), 0, 0, char_or_lifetime(rest))
        } else {
            (None, 0, 0, first.len_utf8())
        };
        if let Some(kind) = kind {
            let (whole, content) = (at..at + len, at + open..at + len - close);
            found.push(Lexeme { kind, whole, content });
        }
        before = rest[..len].chars().next_back().unwrap_or(' ');
        at += len;
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the quoted literal at the start, quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the number of hashes if a raw string starts here.
fn raw_string(text: &str) -> Option<usize> {
    let after =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// Returns the lengths of the raw string at the start: its opening, its end and all of it.
fn raw_content(text: &str, hashes: usize) -> (usize, usize, usize) {
    let open = text.find('"').map_or(text.len(), |at| at + 1);
    let end = format!("\"{}", "#".repeat(hashes));
    match text[open..].find(&end) {
        Some(len) => (open, end.len(), open + len + end.len()),
        None => (open, 0, text.len()),
    }
}

/// Returns the length of the block comment at the start; comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Returns the length of a character literal, or of the quote of a lifetime.
fn char_or_lifetime(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_strings_of_every_kind() {
        let source = [
            r#"f("a", r"b", b"e", c"g", "")"#,
            r##"f(r#"c"d"#, br#"f"g"#)"##,
            r#"f("h\"i", "j
k")"#,
        ]
        .concat();
        assert_eq!(literals(&source), ["a", "b", "e", "g", "", "c\"d", "f\"g", "h\\\"i", "j\nk"]);
    }

    #[test]
    fn is_not_led_astray() {
        let source = r#"
            // "no"
            /// "no"
            /* "no" /* "no" */ "no" */
            fn f<'a>(c: &'a str) -> char { let _ = ('"', '\'', '\u{22}', b'"'); bar("yes"); '"' }
        "#;
        assert_eq!(literals(source), ["yes"]);
    }

    #[test]
    fn code_keeps_its_place() {
        let source = "a(\"é\n\", r#\"x\"#); // no\nlet c = 'y';\n";
        let masked = code(source, &lexemes(source));
        assert_eq!(masked, "a(\"  \n\", \"    \");      \nlet c =    ;\n");
        assert_eq!(masked.len(), source.len());
    }

    #[test]
    fn an_unfinished_file_ends() {
        for source in ["\"abc", "r#\"abc", "/* abc", "'", "\"\\", "é\"é"] {
            assert!(literals(source).len() <= 1);
        }
    }
}
