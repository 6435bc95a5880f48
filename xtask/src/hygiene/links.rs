//! Links of the documents lead to existing files and headings. Tests: below.

use super::{RuleInput, is, resolve};

/// Returns true for a document for readers of the repository. Pages below `crates` belong to rustdoc.
pub(super) fn is_page(path: &str) -> bool {
    let roots = ["docs/", "bench/", "chaos/", "examples/"];
    is(path, "md") && (!path.contains('/') || roots.iter().any(|root| path.starts_with(root)))
}

/// Every relative link leads to a file or directory, and its anchor to a heading.
pub(super) fn links_lead_somewhere(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for page in tree.files.iter().filter(|file| is_page(&file.path)) {
        for target in targets(&page.text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { Some(page.path.clone()) } else { resolve(page.dir(), path) }
                .unwrap_or_default();
            let file = tree.files.iter().find(|file| file.path == path);
            let found = match file {
                Some(file) => anchor.is_empty() || anchors(&file.text).iter().any(|found| found == anchor),
                None => anchor.is_empty() && tree.files.iter().any(|file| super::is_below(&file.path, &path)),
            };
            if !found {
                breaches.push(format!("{}: links {target}, which does not exist", page.path));
            }
        }
    }
    breaches
}

/// Returns the lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the link targets within the repository.
fn targets(text: &str) -> Vec<&str> {
    let all = prose(text).flat_map(|line| line.split("](").skip(1));
    all.filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// Returns the anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::RepoFile;
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let broken = |text: &str| {
            let other = ("docs/b.md", "# `b`: a page\n\n```sh\n# no heading\n```\n");
            let files = [("docs/a.md", text), other, ("xtask/src/main.rs", "")];
            let files = files.map(|(path, text)| RepoFile { path: path.into(), text: text.into() });
            links_lead_somewhere(&RuleInput { files: &files, members: &[] })
        };
        for good in [
            "[b](b.md), [here](b.md#b-a-page)",
            "# A\n[up](#a) [dir](../xtask/src) [web](https://example.com/x.md)",
            "```rust\nx[0](gone)\n```",
        ] {
            assert!(broken(good).is_empty(), "{good}");
        }
        for bad in ["[c](c.md)", "[b](b.md#gone)", "[b](b.md#no-heading)", "[up](#gone)", "[dir](../src)"] {
            assert_eq!(broken(bad).len(), 1, "{bad}");
        }
    }
}
