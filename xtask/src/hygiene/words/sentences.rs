//! Rule: a sentence of a comment or a page begins with its actor, and not with a pronoun for it. Tests: below.

use super::{Allowance, Breach, Lexed, Sources, beyond, is};
use crate::hygiene::RepoFile;
use crate::literals::LexemeKind;

/// Paths that are not converted yet.
const ALLOWANCES: &[Allowance] =
    &[("crates/oncebox/", 25, "not converted yet"), ("crates/oncebox-core/", 1, "not converted yet")];

/// The pronouns that a sentence must not begin with.
const STARTS: [&str; 10] = [
    "what ",
    "one that ",
    "one who ",
    "one which ",
    "those that ",
    "those who ",
    "those which ",
    "those of ",
    "whatever ",
    "who ",
];

/// Returns the pronouns that no sentence contains. They are joined, so that this file keeps its own rule.
fn pronouns() -> [String; 3] {
    [["every", "body"], ["any", "body"], ["some", "one"]].map(|parts| parts.concat())
}

pub(super) fn name_the_actor(sources: &Sources) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in &sources.files {
        let lines = if is(&file.path, "rs") {
            comments(file)
        } else if is(&file.path, "md") {
            prose(file)
        } else {
            continue;
        };
        let mut previous: Option<&ProseLine> = None;
        for line in &lines {
            let continues = previous.is_some_and(|before| before.number + 1 == line.number && !before.ends());
            if let Some(word) = pronoun(&line.text, continues) {
                let text: String = line.text.chars().take(60).collect();
                let text =
                    format!("{}:{}: `{}`: name the actor: {text}", file.path, line.number, word.trim());
                breaches.push(Breach { path: file.path.clone(), text });
            }
            previous = Some(line);
        }
    }
    beyond(breaches, ALLOWANCES)
}

/// A line of a comment or a page, without its marker.
struct ProseLine {
    number: usize,
    text: String,
}

impl ProseLine {
    fn ends(&self) -> bool {
        self.text.is_empty() || self.text.ends_with(['.', ':', '?', '!', '`'])
    }
}

fn comments(file: &RepoFile) -> Vec<ProseLine> {
    let lexed = Lexed::new(file);
    let comments = lexed.of_kind(LexemeKind::Comment).map(|comment| {
        let text = file.text[comment.whole.clone()].trim_start_matches(['/', '!', '*']).trim();
        ProseLine { number: lexed.line(comment.whole.start), text: unmarked(text) }
    });
    comments.collect()
}

/// The lines of a page outside of code blocks, headings and tables.
fn prose(file: &RepoFile) -> Vec<ProseLine> {
    let (mut lines, mut code) = (Vec::new(), false);
    for (number, line) in (1..).zip(file.text.lines().map(str::trim)) {
        let fence = line.starts_with("```") || line.starts_with("~~~");
        code ^= fence;
        if !fence && !code && !line.starts_with(['|', '#', '<']) {
            lines.push(ProseLine { number, text: unmarked(line) });
        }
    }
    lines
}

fn unmarked(text: &str) -> String {
    text.trim_start_matches("- ").trim_start_matches("> ").trim_start_matches("**").to_owned()
}

/// Returns the pronoun of a sentence that begins in the line; `continues` if the line begins within a sentence.
fn pronoun(line: &str, continues: bool) -> Option<String> {
    let lower = line.to_lowercase();
    let marks = [". ", "? ", "! "].into_iter().flat_map(|mark| lower.match_indices(mark));
    let starts = marks.map(|(at, mark)| at + mark.len());
    let mut starts = starts.chain((!continues).then_some(0));
    let begins = starts.find_map(|at| {
        let sentence = &lower[at..];
        let question = sentence.find(['.', '?']).is_some_and(|end| sentence[end..].starts_with('?'));
        STARTS.into_iter().find(|start| sentence.starts_with(start) && !question)
    });
    let words = || lower.split(|c: char| !c.is_alphanumeric());
    begins
        .map(str::to_owned)
        .or_else(|| pronouns().into_iter().find(|word| words().any(|other| other == word)))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_sentence_without_an_actor_is_named() {
        for start in STARTS {
            for (path, text) in [
                ("a.rs", format!("// {start}is left stays.\n")),
                (
                    "a.rs",
                    format!(
                        "/// Returns it. {}is left stays.\n",
                        start.replacen(&start[..1], &start[..1].to_uppercase(), 1)
                    ),
                ),
                ("a.md", format!("# A\n\n- {start}is left stays.\n")),
            ] {
                assert_eq!(found(name_the_actor, &[(path, &text)]).len(), 1, "{text}");
            }
        }
        for word in pronouns() {
            assert_eq!(found(name_the_actor, &[("a.md", &format!("It lets {word} in."))]).len(), 1, "{word}");
        }
    }

    #[test]
    fn other_text_is_left_alone() {
        for (path, text) in [
            (
                "a.md",
                "## What is promised\n\nIt returns\nwhat is left.\n\n```text\nWhat is left\n```\n| What a row | is |\n",
            ),
            ("a.md", "What is an inbox? A table.\n"),
            ("a.rs", "/// Returns\n/// what is left.\nfn what() { let a = \"What is left.\"; }\n"),
            ("a.sql", "-- What is left.\n"),
        ] {
            assert!(found(name_the_actor, &[(path, text)]).is_empty(), "{text}");
        }
    }
}
