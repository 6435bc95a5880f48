//! Rule: prose and names have an actor, and no pronoun that hides it. Tests: below.

use super::{Breach, Sources};

/// Files that need one of the words: path and reason.
const EXCEPTIONS: &[(&str, &str)] =
    &[("crates/oncebox-servers/src/user.rs", "Debian has a system user of this name")];

/// Returns the banned words. They are joined, so that this file keeps its own rule.
fn banned() -> [String; 3] {
    [["who", "ever"], ["no", "body"], ["some", "body"]].map(|parts| parts.concat())
}

pub(super) fn are_named(sources: &Sources) -> Vec<Breach> {
    let banned = banned();
    let mut breaches = Vec::new();
    for file in &sources.files {
        if EXCEPTIONS.iter().any(|(path, _)| *path == file.path) {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let lower = line.to_ascii_lowercase();
            for word in &banned {
                for (at, _) in lower.match_indices(word).filter(|(at, _)| is_word(line, *at, word.len())) {
                    let text =
                        format!("{}:{number}: `{word}`: name the actor: {}", file.path, excerpt(line, at));
                    breaches.push(Breach { path: file.path.clone(), text });
                }
            }
        }
    }
    breaches
}

/// Returns whether the letters at `at` are a word of prose, or of a name in snake case or camel case.
fn is_word(line: &str, at: usize, len: usize) -> bool {
    let starts_upper = line[at..].starts_with(char::is_uppercase);
    let before = line[..at].chars().next_back();
    let after = line[at + len..].chars().next();
    before.is_none_or(|c| !c.is_alphabetic() || (c.is_lowercase() && starts_upper))
        && after.is_none_or(|c| !c.is_alphabetic() || c.is_uppercase())
}

/// Returns at most 60 characters around the word.
fn excerpt(line: &str, at: usize) -> &str {
    let before = line[..at].char_indices().rev().take(20).last().map_or(at, |(start, _)| start);
    let end = line[before..].char_indices().nth(60).map_or(line.len(), |(end, _)| before + end);
    line[before..end].trim()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn every_banned_word_is_found_in_every_kind_of_file() {
        for word in ["who-ever", "no-body", "some-body"].map(|word| word.replace('-', "")) {
            let capital = word[..1].to_uppercase() + &word[1..];
            for path in
                ["a.rs", "a/b.sql", "README.md", "Cargo.toml", "a.py", "a.mjs", "docs/a.json", "a.yml"]
            {
                for text in [
                    format!("-- {word} else"),
                    format!("{capital}'s"),
                    format!("fn {word}_knows()"),
                    format!("struct Run{capital}Again"),
                ] {
                    let breaches = found(are_named, &[(path, &format!("\n{text}"))]);
                    assert_eq!(breaches, [format!("{path}:2: `{word}`: name the actor: {text}")]);
                }
            }
        }
    }

    #[test]
    fn other_words_are_left_alone() {
        for text in ["some body", "nobodyish", "the worker", "who ever", "ännobody"] {
            assert!(found(are_named, &[("a.md", text)]).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_long_line_is_cut_at_whole_characters() {
        let line = format!("{}{}{}", "é ".repeat(40), banned()[0], " é".repeat(40));
        let breaches = found(are_named, &[("a.md", &line)]);
        assert!(breaches[0].chars().count() < 110 && breaches[0].contains("é"), "{breaches:?}");
    }

    #[test]
    fn exceptions_have_a_reason_and_are_skipped() {
        for (path, reason) in EXCEPTIONS {
            assert!(reason.contains(' '));
            assert!(found(are_named, &[(path, &banned()[1])]).is_empty());
        }
    }
}
