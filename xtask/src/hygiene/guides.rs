//! The guides: a program that is shown is compiled, and a page that is there is found.

use super::{File, Tree, is, resolve};
use crate::literals::literals;

const GUIDES: &str = "docs/guides/";
const INDEX: &str = "docs/guides/README.md";

/// Whether a file is a guide, or their index.
pub(super) fn is_page(path: &str) -> bool {
    path.strip_prefix(GUIDES).is_some_and(|name| is(name, "md"))
}

/// The guides, without their index.
fn guides<'a>(tree: &'a Tree<'_>) -> impl Iterator<Item = &'a File> {
    tree.files.iter().filter(|file| is_page(&file.path) && file.path != INDEX)
}

/// A program that nobody compiles is wrong after the next change, and nobody notices.
pub(super) fn programs_are_compiled(tree: &Tree<'_>) -> Vec<String> {
    let pages = tree.files.iter().filter(|file| is_page(&file.path) && shows_rust(&file.text));
    pages
        .filter(|page| !tree.rust().any(|rust| compiles(rust, page)))
        .map(|page| {
            format!(
                "{}: shows Rust that no crate compiles: put `#[doc = include_str!(..)]` of it under `#[cfg(doctest)]` in the lib.rs of one",
                page.path
            )
        })
        .collect()
}

pub(super) fn pages_are_listed(tree: &Tree<'_>) -> Vec<String> {
    let index = tree.files.iter().find(|file| file.path == INDEX).map_or("", |index| &index.text);
    guides(tree)
        .filter(|page| !index.contains(&format!("]({})", &page.path[GUIDES.len()..])))
        .map(|page| format!("{}: is not linked from {INDEX}", page.path))
        .collect()
}

/// Whether the documentation of an item in `rust`, which is part of a library, is the page.
fn compiles(rust: &File, page: &File) -> bool {
    let includes = |literal: &str| rust.text.contains(&format!("#[doc = include_str!(\"{literal}\")]"));
    rust.path.split('/').any(|part| part == "src")
        && literals(&rust.text)
            .into_iter()
            .filter(|literal| is(literal, "md") && includes(literal))
            .any(|literal| resolve(rust.dir(), literal).as_deref() == Some(&*page.path))
}

/// Whether a page has a block that rustdoc takes for Rust: one that says so, or that says nothing.
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
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        let tree = Tree { files: &files, members: &[] };
        programs_are_compiled(&tree).into_iter().chain(pages_are_listed(&tree)).collect()
    }

    #[test]
    fn a_program_must_be_compiled_by_a_crate() {
        let page = |including: (&str, &str)| {
            broken(&[("docs/guides/a.md", RUST), ("docs/guides/README.md", "[a](a.md)"), including])
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
        let breaches = ["docs/guides/a.md: is not linked from docs/guides/README.md"];
        assert_eq!(broken(&[page]), breaches);
        assert_eq!(broken(&[page, ("docs/guides/README.md", "see a.md and [b](b.md)")]), breaches);
        assert!(broken(&[page, ("docs/guides/README.md", "| [a](a.md) | b |")]).is_empty());
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
