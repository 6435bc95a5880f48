//! Rule: a log message names an event in at most six words; fields have the details. Tests: below.

use super::{Breach, Lexed, Sources};
use crate::literals::LexemeKind;

/// Maximum words of a message.
const MAX_WORDS: usize = 6;

const MACROS: [&str; 6] = ["error!", "warn!", "info!", "debug!", "trace!", "event!"];

pub(super) fn are_short(sources: &Sources) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in sources.rust() {
        let lexed = Lexed::new(file);
        for (at, message) in messages(&lexed) {
            let words =
                message.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > MAX_WORDS {
                let message =
                    message.split_whitespace().filter(|word| *word != "\\").collect::<Vec<_>>().join(" ");
                let text = format!("{words} words in a log message, at most {MAX_WORDS}: {message}");
                breaches.push(lexed.breach(at, &text));
            }
        }
    }
    breaches
}

/// Returns the message of every log macro, and the position of its literal.
fn messages<'a>(lexed: &Lexed<'a>) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for name in MACROS {
        for (at, _) in lexed.code.match_indices(name) {
            let named = lexed.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let open = at + name.len();
            let after = lexed.code[open..].trim_start();
            if named || !after.starts_with(['(', '[', '{']) {
                continue;
            }
            let open = lexed.code.len() - after.len();
            if let Some(start) = message(&lexed.code[open..]).map(|start| open + start) {
                let mut texts = lexed.of_kind(LexemeKind::Text);
                let text = texts.find(|text| text.whole.start == start);
                found.extend(text.map(|text| (start, text.content(&lexed.file.text))));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Returns the position of the message among the arguments at the start of `code`: the first string, or the value of
/// `message`.
fn message(code: &str) -> Option<usize> {
    let (mut depth, mut first, mut is_argument) = (0_usize, 0, false);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let end = depth == 0;
        if end || (depth == 1 && (c == ',' || at == 0)) {
            if is_argument && let Some(start) = message_at(code, first, at) {
                return Some(start);
            }
            (first, is_argument) = (at + 1, true);
        }
        if end {
            return None;
        }
    }
    None
}

/// Returns the position of the string if the argument `code[from..to]` is the message.
fn message_at(code: &str, from: usize, to: usize) -> Option<usize> {
    let argument = code[from..to].trim();
    let value = argument.strip_prefix("message").map(str::trim_start).and_then(|rest| rest.strip_prefix('='));
    let text = value.unwrap_or(argument).trim();
    let is_text = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    let masked = is_text && text[1..text.len() - 1].chars().all(char::is_whitespace);
    masked.then(|| from + code[from..to].find('"').unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const LONG: &str = "one two three four five six seven";

    fn broken(code: &str) -> usize {
        found(are_short, &[("a.rs", code)]).len()
    }

    #[test]
    fn a_long_message_is_named_with_its_line() {
        let code = format!("fn a() {{\n    tracing::warn!(\n        %key,\n        \"{LONG}\"\n    );\n}}");
        assert_eq!(
            found(are_short, &[("a.rs", &code)]),
            [format!("a.rs:4: 7 words in a log message, at most 6: {LONG}")]
        );
        assert_eq!(broken(&code.replace(" seven", "")), 0);
    }

    #[test]
    fn a_message_is_found_among_other_arguments() {
        for arguments in [
            format!("\"{LONG}\""),
            format!("\"{LONG}\", a, b"),
            format!("r#\"{LONG}\"#"),
            format!("target: \"t\", a = f(1, \"x\"), ?b, \"{LONG}\""),
            format!("target: T, {{ a = 1 }}, \"{LONG}\",\n"),
            format!("name: \"t\", \"a.b\" = 1, \"{LONG}\""),
            format!("message = \"{LONG}\""),
            "\"one two three \\\n four five {six} {seven:?}\"".into(),
        ] {
            for name in ["error", "tracing::warn", "info", "debug", "tracing::trace"] {
                assert_eq!(broken(&format!("{name}!({arguments});")), 1, "{name} {arguments}");
            }
            assert_eq!(broken(&format!("event!(Level::INFO, {arguments});")), 1, "{arguments}");
        }
        assert_eq!(broken(&format!("info! {{ \"{LONG}\" }}")), 1);
    }

    #[test]
    fn other_strings_are_left_alone() {
        for code in [
            format!("println!(\"{LONG}\")"),
            format!("my_error!(\"{LONG}\")"),
            format!("error(\"{LONG}\")"),
            format!("error!(\"short\", \"a {LONG}\".len())"),
            format!("error!(a = \"{LONG}\", \"short\")"),
            format!("error!(\"{LONG}\" = 1, \"short\")"),
            format!("error!(target: \"{LONG}\", \"short\")"),
            format!("error!(a = f(\"{LONG}\"), \"short\")"),
            format!("// error!(\"{LONG}\")"),
            "error!(\"one - two : three / four, five = six\")".into(),
        ] {
            assert_eq!(broken(&code), 0, "{code}");
        }
        assert_eq!(broken("error!("), 0);
    }
}
