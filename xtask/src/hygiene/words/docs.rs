//! Rule: a doc comment begins with a verb or a noun, not with a question. Tests: below.

use super::{Breach, Lexed, Sources};
use crate::literals::LexemeKind;

const QUESTIONS: [&str; 9] = ["how", "what", "whether", "where", "which", "who", "whose", "why", "those"];

pub(super) fn begin_with_a_verb(sources: &Sources) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in sources.rust() {
        let lexed = Lexed::new(file);
        // Marker of the comment on the previous line, and the next line number.
        let mut before = ("", 0);
        for comment in lexed.of_kind(LexemeKind::Comment) {
            let text = &file.text[comment.whole.clone()];
            let Some((marker, text)) = doc(text) else { continue };
            let line = lexed.line(comment.whole.start);
            let text = text.trim();
            if before != (marker, line) {
                let word: String = text.chars().take_while(|c| c.is_alphabetic()).collect();
                if QUESTIONS.contains(&&*word.to_lowercase()) {
                    let text: String = text.chars().take(60).collect();
                    let text = format!("begins with `{word}`: begin with a verb or a noun: {text}");
                    breaches.push(lexed.breach(comment.whole.start, &text));
                }
            }
            // The first line with words counts.
            before = if text.is_empty() && before != (marker, line) { ("", 0) } else { (marker, line + 1) };
        }
    }
    breaches
}

/// Returns the marker and the text of a doc comment.
fn doc(comment: &str) -> Option<(&'static str, &str)> {
    let plain = ["////", "/***", "/**/"].iter().any(|start| comment.starts_with(start));
    let of = |marker: &'static str| Some((marker, comment.strip_prefix(marker)?));
    if plain { None } else { of("///").or_else(|| of("//!")).or_else(|| of("/**")).or_else(|| of("/*!")) }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn broken(text: &str) -> usize {
        found(begin_with_a_verb, &[("a.rs", text)]).len()
    }

    #[test]
    fn questions_are_named_with_their_line() {
        assert_eq!(
            found(begin_with_a_verb, &[("a.rs", "//! Tests.\n\n    /// Whether it is on.\n    fn on() {}")]),
            ["a.rs:3: begins with `Whether`: begin with a verb or a noun: Whether it is on."]
        );
        for word in
            ["How", "What", "Whether", "Who", "Where", "Which", "Why", "Whose", "Those", "what", "What's"]
        {
            for marker in ["///", "//!", "/**", "/*!"] {
                assert_eq!(broken(&format!("{marker} {word} a thing")), 1, "{marker} {word}");
            }
        }
    }

    #[test]
    fn only_the_first_line_of_a_block_counts() {
        assert_eq!(broken("/// Returns\n/// what is left.\n"), 0);
        assert_eq!(broken("///\n/// What is left.\n"), 1);
        assert_eq!(broken("/// Returns.\n\n/// What is left.\n"), 1);
        assert_eq!(broken("/// Returns.\nfn a() {}\n/// What is left.\nfn b() {}"), 1);
        assert_eq!(broken("//! Module.\n/// What is left.\nfn b() {}"), 1);
    }

    #[test]
    fn other_text_is_left_alone() {
        for text in ["// What", "//// What", "/// Whatever", "/// `what`", "let a = \"\n/// What\n\";"] {
            assert_eq!(broken(text), 0, "{text}");
        }
    }
}
