//! Rules for the guides: their programs are compiled, and every page is linked. Tests: below.

use super::{RepoFile, RuleInput, is, resolve};
use crate::literals::literals;

const GUIDES: &str = "docs/guides/";
const INDEX: &str = "docs/README.md";
const DOCS: &str = "docs/";
const DECISIONS: &str = "docs/adr/";
const DECISIONS_INDEX: &str = "docs/adr/README.md";
const GLOSSARY: &str = "docs/glossary.md";

/// Start of every guide.
const NEED: &str = "**You need this if** ";
/// Maximum visible lines of the first example of a guide. rustdoc hides lines of Rust that begin with `#`.
const EXAMPLE: usize = 10;
/// Maximum lines of the README.
const FRONT_PAGE: usize = 100;
/// Maximum entries of the glossary.
const WORDS: usize = 25;

/// Returns the pages below a directory.
fn pages<'a>(tree: &'a RuleInput<'_>, dir: &'a str) -> impl Iterator<Item = &'a RepoFile> {
    tree.files.iter().filter(move |file| file.path.starts_with(dir) && is(&file.path, "md"))
}

/// Programs of the guides are compiled: others break unnoticed.
pub(super) fn programs_are_compiled(tree: &RuleInput<'_>) -> Vec<String> {
    pages(tree, GUIDES)
        .filter(|page| shows_rust(&page.text))
        .filter(|page| !tree.rust().any(|rust| compiles(rust, page)))
        .map(|page| {
            format!(
                "{}: shows Rust that no crate compiles: put `#[doc = include_str!(..)]` of it under `#[cfg(doctest)]` in the lib.rs of one",
                page.path
            )
        })
        .collect()
}

/// The front page links every page except the decisions, which have their own index.
pub(super) fn pages_are_listed(tree: &RuleInput<'_>) -> Vec<String> {
    let index = tree.files.iter().find(|file| file.path == INDEX).map_or("", |index| &index.text);
    let decision = |path: &str| path.starts_with(DECISIONS) && path != DECISIONS_INDEX;
    pages(tree, DOCS)
        .filter(|page| page.path != INDEX && !decision(&page.path))
        .filter(|page| !index.contains(&format!("]({})", &page.path[DOCS.len()..])))
        .map(|page| format!("{}: is not linked from {INDEX}", page.path))
        .collect()
}

/// A guide begins with its readers, then shows a short example.
pub(super) fn pages_begin_with_an_example(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for page in pages(tree, GUIDES) {
        let mut lines = page.text.lines().skip(1).skip_while(|line| line.is_empty());
        if !lines.next().is_some_and(|line| line.starts_with(NEED)) {
            breaches.push(format!("{}: does not begin with \"{NEED}\"", page.path));
        }
        let before =
            lines.take_while(|line| !line.starts_with("## ")).skip_while(|line| !line.starts_with("```"));
        let mut block = before.take_while(|line| *line != "```");
        let rust = block.next().is_some_and(|fence| is_rust(fence.trim_start_matches('`')));
        let example = block.filter(|line| !(rust && line.starts_with("# "))).count();
        if !(1..=EXAMPLE).contains(&example) {
            breaches.push(format!(
                "{}: has an example of {example} lines before its first section, where 1 to {EXAMPLE} are asked for",
                page.path
            ));
        }
    }
    breaches
}

/// The glossary is short.
pub(super) fn the_glossary_is_short(tree: &RuleInput<'_>) -> Vec<String> {
    let glossary = tree.files.iter().find(|file| file.path == GLOSSARY).map_or("", |page| &page.text);
    let words = glossary.lines().filter(|line| line.starts_with("### ")).count();
    let breach = format!("{GLOSSARY}: has {words} words, the limit is {WORDS}: use a word of the field");
    if words > WORDS { vec![breach] } else { Vec::new() }
}

/// The front page is short.
pub(super) fn the_front_page_is_short(tree: &RuleInput<'_>) -> Vec<String> {
    let lines =
        tree.files.iter().find(|file| file.path == "README.md").map_or(0, |page| page.text.lines().count());
    let breach =
        format!("README.md: has {lines} lines, the limit is {FRONT_PAGE}: move a part to a page of docs/");
    if lines > FRONT_PAGE { vec![breach] } else { Vec::new() }
}

/// Returns true if the page is the documentation of an item in `rust`, a file of a library.
fn compiles(rust: &RepoFile, page: &RepoFile) -> bool {
    let includes = |literal: &str| rust.text.contains(&format!("#[doc = include_str!(\"{literal}\")]"));
    rust.path.split('/').any(|part| part == "src")
        && literals(&rust.text)
            .into_iter()
            .filter(|literal| is(literal, "md") && includes(literal))
            .any(|literal| resolve(rust.dir(), literal).as_deref() == Some(&*page.path))
}

/// Returns true if a page has a block that rustdoc takes for Rust: marked as Rust, or unmarked.
fn shows_rust(text: &str) -> bool {
    let mut open: Option<&str> = None;
    for line in text.lines().map(str::trim) {
        match open {
            Some(fence) if line.starts_with(fence) && line.trim_matches(['`', '~']).is_empty() => open = None,
            Some(_) => {}
            None => {
                let Some(fence) = ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence)) else {
                    continue;
                };
                open = Some(fence);
                if is_rust(line.trim_start_matches(['`', '~'])) {
                    return true;
                }
            }
        }
    }
    false
}

fn is_rust(info: &str) -> bool {
    let mut words = info.split([',', ' ']).filter(|word| !word.is_empty());
    words.all(|word| {
        ["rust", "no_run", "should_panic", "compile_fail", "test_harness", "standalone_crate"].contains(&word)
            || word.starts_with("ignore")
            || word.starts_with("edition")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = "# A\n\n```rust\nfn main() {}\n```\n";

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<RepoFile> = files
            .iter()
            .map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() })
            .collect();
        let tree = RuleInput { files: &files, members: &[] };
        programs_are_compiled(&tree).into_iter().chain(pages_are_listed(&tree)).collect()
    }

    #[test]
    fn a_program_must_be_compiled_by_a_crate() {
        let page = |including: (&str, &str)| {
            broken(&[("docs/guides/a.md", RUST), ("docs/README.md", "[a](guides/a.md)"), including])
        };
        let include = "#[cfg(doctest)]\n#[doc = include_str!(\"../../../docs/guides/a.md\")]\nstruct A;";
        assert!(page(("crates/a/src/lib.rs", include)).is_empty());
        for (path, text) in [
            ("crates/a/src/lib.rs", ""),
            ("crates/a/tests/lib.rs", include),
            ("crates/a/src/lib.rs", "#[doc = include_str!(\"../../docs/guides/a.md\")]"),
            ("crates/a/src/lib.rs", "#[doc = include_str!(\"../../../docs/guides/b.md\")]"),
            ("crates/a/src/lib.rs", "const A: &str = include_str!(\"../../../docs/guides/a.md\");"),
            ("crates/a/src/lib.rs", "// #[doc = include_str!(\"../../../docs/guides/a.md\")]"),
        ] {
            let breaches = page((path, text));
            assert_eq!(breaches.len(), 1, "{text}");
            assert!(
                breaches[0].starts_with("docs/guides/a.md: shows Rust that no crate compiles"),
                "{breaches:?}"
            );
        }
    }

    #[test]
    fn a_page_must_be_linked_from_the_index() {
        let page = ("docs/guides/a.md", "# A\n");
        let breaches = ["docs/guides/a.md: is not linked from docs/README.md"];
        assert_eq!(broken(&[page]), breaches);
        assert_eq!(broken(&[page, ("docs/README.md", "see guides/a.md and [b](guides/b.md)")]), breaches);
        assert!(broken(&[page, ("docs/README.md", "| [a](guides/a.md) | b |")]).is_empty());
    }

    #[test]
    fn a_guide_begins_with_its_readers_and_a_short_example() {
        let broken = |text: &str| {
            let files = [RepoFile { path: "docs/guides/a.md".into(), text: text.into() }];
            pages_begin_with_an_example(&RuleInput { files: &files, members: &[] }).len()
        };
        let need = "# A\n\n**You need this if** you do.\n";
        assert_eq!(broken(&format!("{need}\n```rust\nfn main() {{}}\n```\n\n## B\n")), 0);
        assert_eq!(broken("# A\n\nText.\n\n```rust\nfn main() {}\n```\n"), 1);
        assert_eq!(broken(&format!("{need}\n## B\n\n```rust\nfn main() {{}}\n```\n")), 1, "an example below");
        assert_eq!(broken(&format!("{need}\n```rust\n{}```\n", "a();\n".repeat(EXAMPLE + 1))), 1);
        let hidden = "# a();\n".repeat(EXAMPLE);
        assert_eq!(broken(&format!("{need}\n```rust\na();\n{hidden}```\n")), 0, "hidden lines");
        assert_eq!(broken(&format!("{need}\n```toml\na = 1\n{hidden}```\n")), 1, "comments are visible");
    }

    #[test]
    fn a_glossary_that_grows_is_named() {
        let broken = |words| {
            let files = [RepoFile { path: GLOSSARY.into(), text: "### word\n\nText.\n".repeat(words) }];
            the_glossary_is_short(&RuleInput { files: &files, members: &[] }).len()
        };
        assert_eq!([broken(WORDS), broken(WORDS + 1)], [0, 1]);
    }

    #[test]
    fn a_front_page_that_grows_is_named() {
        let broken = |lines| {
            let files = [RepoFile { path: "README.md".into(), text: "a\n".repeat(lines) }];
            the_front_page_is_short(&RuleInput { files: &files, members: &[] }).len()
        };
        assert_eq!([broken(FRONT_PAGE), broken(FRONT_PAGE + 1)], [0, 1]);
    }

    #[test]
    fn rust_is_told_from_other_languages_as_rustdoc_does() {
        for rust in [
            "```\n",
            "```rust\n",
            "```rust,no_run\n",
            "``` rust\n",
            "```no_run\n",
            "~~~\n",
            "```edition2024\n",
        ] {
            assert!(shows_rust(&format!("a\n\n{rust}fn main() {{}}\n```\n")), "{rust}");
        }
        for other in ["```console\n", "```toml\n", "```text\n", "```sql\n", "```rust-like\n"] {
            assert!(!shows_rust(&format!("a\n\n{other}x\n```\n\nmore\n")), "{other}");
        }
        assert!(!shows_rust("a `rust`\n"));
    }
}
