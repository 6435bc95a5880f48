//! Rule: help texts of the rig, the benchmarks and these commands fit one line. Tests: below.

use super::{RepoFile, RuleInput};

/// Maximum characters of a help text.
const MAX: usize = 80;

const DERIVES: [&str; 4] = ["Parser", "Args", "Subcommand", "ValueEnum"];

/// A help text is one line, begins with a capital letter and ends without a period.
pub(super) fn texts_fit_a_line(tree: &RuleInput<'_>) -> Vec<String> {
    let programs =
        |file: &&RepoFile| ["chaos/", "bench/", "xtask/"].iter().any(|dir| file.path.starts_with(dir));
    tree.rust().filter(programs).flat_map(breaches).collect()
}

fn breaches(file: &RepoFile) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    // The indent of the command line that the line belongs to.
    let (mut indent, mut number) = (None, 0);
    while let Some(line) = lines.get(number) {
        if derives(line, &DERIVES) {
            indent = Some(&line[..line.len() - line.trim_start().len()]);
        } else if indent
            .is_some_and(|indent| line.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}')))
        {
            indent = None;
        }
        let length = lines[number..].iter().take_while(|line| line.trim_start().starts_with("/// ")).count();
        let about = lines.get(number + length).is_some_and(|next| derives(next, &["Parser"]));
        if length > 0 && (indent.is_some() || about) {
            let text = line.trim_start().trim_start_matches("/// ");
            let fits = text.chars().count() <= MAX && text.starts_with(|c: char| !c.is_lowercase());
            if length > 1 || !fits || text.ends_with('.') {
                found.push(format!(
                    "{}:{}: a help text is one line of at most {MAX} characters, with a capital and without a period: {text}",
                    file.path,
                    number + 1
                ));
            }
        }
        number += length.max(1);
    }
    found
}

/// Returns true for a derive of one of these traits.
fn derives(line: &str, traits: &[&str]) -> bool {
    let names = line.trim_start().strip_prefix("#[derive(").unwrap_or("");
    names.split([',', ' ', ')']).any(|name| traits.contains(&name.rsplit("::").next().unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> usize {
        breaches(&RepoFile { path: "bench/src/main.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn a_help_text_that_does_not_fit_is_named() {
        let option = |doc: &str| {
            format!("#[derive(Debug, clap::Args)]\nstruct A {{\n{doc}\n    #[arg(long)]\n    a: u8,\n}}\n")
        };
        assert_eq!(broken(&option(&format!("    /// {}", "A".repeat(MAX)))), 0);
        assert_eq!(broken(&option(&format!("    /// {}", "A".repeat(MAX + 1)))), 1);
        for doc in ["    /// Two\n    /// lines", "    /// Ends with a period.", "    /// lower case"] {
            assert_eq!(broken(&option(doc)), 1, "{doc}");
        }
        assert_eq!(broken("/// The program.\n#[derive(Parser)]\nstruct A;\n"), 1);
    }

    #[test]
    fn other_comments_are_left_alone() {
        assert_eq!(
            broken("#[derive(Args)]\nstruct A {\n    /// A\n    a: u8,\n}\n/// Runs.\nfn run() {}\n"),
            0
        );
        assert_eq!(
            broken("/// Two\n/// lines.\n#[derive(Debug)]\nstruct A {\n    /// Text.\n    a: u8,\n}\n"),
            0
        );
    }
}
