//! The string literals of a Rust file, found without a parser: enough to tell what is code from what is said in
//! comments.

/// The contents of every string literal, as written between its quotes.
pub(crate) fn literals(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = source;
    // The character before `rest`: `r` opens a raw string only where it does not end a name.
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            let len = quoted(rest, '"');
            found.push(inner(rest, 1, len, 1));
            len
        } else if let Some(hashes) = raw_string(rest)
            && !is_name(before)
        {
            let (content, len) = raw_content(rest, hashes);
            found.push(content);
            len
        } else if first == '\'' {
            char_or_lifetime(rest)
        } else {
            first.len_utf8()
        };
        before = rest[..skip].chars().next_back().unwrap_or(' ');
        rest = &rest[skip..];
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What lies between the first `open` and the last `close` bytes of `text[..len]`.
fn inner(text: &str, open: usize, len: usize, close: usize) -> &str {
    text.get(open..len.saturating_sub(close)).unwrap_or("")
}

/// The length of a quoted literal that starts here, quotes included.
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

/// The number of hashes, if a raw string starts here.
fn raw_string(text: &str) -> Option<usize> {
    let after =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The content of the raw string that starts here, and its whole length.
fn raw_content(text: &str, hashes: usize) -> (&str, usize) {
    let open = text.find('"').map_or(text.len(), |at| at + 1);
    let end = format!("\"{}", "#".repeat(hashes));
    match text[open..].find(&end) {
        Some(len) => (&text[open..open + len], open + len + end.len()),
        None => (&text[open..], text.len()),
    }
}

/// The length of the block comment that starts here; they nest.
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

/// The length of a character literal, or of the quote of a lifetime.
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
    fn an_unfinished_file_ends() {
        for source in ["\"abc", "r#\"abc", "/* abc", "'", "\"\\", "é\"é"] {
            assert!(literals(source).len() <= 1);
        }
    }
}
