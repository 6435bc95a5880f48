//! The walk of a message through the code: its files and functions exist. Tests: below.

use super::{RepoFile, RuleInput, is, resolve};

pub(super) const PAGE: &str = "docs/how-a-message-travels.md";

/// Every linked file defines the functions that the page names after the link, as in `Type::function()`. Ignores calls
/// on a value, as in `value.function()`.
pub(super) fn names_exist(tree: &RuleInput<'_>) -> Vec<String> {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let mut breaches = Vec::new();
    let mut file: Option<&RepoFile> = None;
    for (at, part) in page.text.split('`').enumerate() {
        if let Some(target) = part.strip_prefix("](") {
            // If the link text was code, it is a path: the following functions belong to that file.
            let target = target.split(')').next().unwrap_or_default();
            let path = resolve(page.dir(), target).unwrap_or_default();
            file = tree.files.iter().find(|file| file.path == path);
        } else if let Some(name) = part.strip_suffix("()").filter(|name| at % 2 == 1 && !name.contains('.')) {
            match file {
                Some(file) if defines(file, name) => {}
                Some(file) => breaches.push(format!("{PAGE}: {} does not define `{name}()`", file.path)),
                None => breaches.push(format!("{PAGE}: `{name}()` stands below no file that exists")),
            }
        }
    }
    breaches
}

/// Returns true if a file has a function of this name; for `Type::function`, also the type.
fn defines(file: &RepoFile, name: &str) -> bool {
    let (owner, name) = name.rsplit_once("::").map_or((None, name), |(owner, name)| (Some(owner), name));
    let starts = ["(", "<"].map(|next| format!("fn {name}{next}"));
    is(&file.path, "rs")
        && starts.iter().any(|start| file.text.contains(start.as_str()))
        && owner.is_none_or(|owner| file.text.contains(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_function_that_is_gone_is_named() {
        let broken = |page: &str| {
            let code = ("crates/a/src/b.rs", "impl Receiver {\n    pub async fn run<S>(self) {}\n}\n");
            let files =
                [(PAGE, page), code].map(|(path, text)| RepoFile { path: path.into(), text: text.into() });
            names_exist(&RuleInput { files: &files, members: &[] })
        };
        let link = "[`b.rs`](../crates/a/src/b.rs)";
        assert!(
            broken(&format!("In {link} `Receiver::run()` takes a `Slot`, then `run()` ends.")).is_empty()
        );
        assert_eq!(
            broken(&format!("In {link} `Receiver::stop()`")),
            [format!("{PAGE}: crates/a/src/b.rs does not define `Receiver::stop()`")]
        );
        assert_eq!(broken(&format!("In {link} `Sender::run()`")).len(), 1, "another type");
        for gone in ["`run()`", "[`c.rs`](../crates/a/src/c.rs) `run()`"] {
            assert_eq!(broken(gone), [format!("{PAGE}: `run()` stands below no file that exists")]);
        }
    }
}
