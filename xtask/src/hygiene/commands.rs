//! Checks that the tests of documented commands exist. Tests: below.

use super::links::is_page;
use super::{RepoFile, RuleInput, is};

/// Arguments of `cargo test` that have a value.
const WITH_VALUE: [&str; 5] = ["-p", "--package", "--features", "--test", "--example"];

/// Every `cargo test` of a page names a test file and tests that are there. A name in angle brackets is the reader's.
pub(super) fn documented_tests_exist(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for page in tree.files.iter().filter(|file| is_page(&file.path)) {
        for (_, command) in page.text.lines().filter_map(|line| line.split_once("cargo test ")) {
            for missing in missing(command, tree.files) {
                breaches.push(format!("{}: runs the test {missing}, which does not exist", page.path));
            }
        }
    }
    breaches
}

fn missing<'a>(command: &'a str, files: &[RepoFile]) -> Vec<&'a str> {
    let command = command.split(['#', '`', '|', '&', ';']).next().unwrap_or_default();
    let mut words = command.split_whitespace().filter(|word| !word.starts_with('<'));
    let mut missing = Vec::new();
    while let Some(word) = words.next() {
        let found = match word {
            "--test" => {
                let Some(name) = words.next() else { break };
                let ends = [format!("/tests/{name}.rs"), format!("/tests/{name}/main.rs")];
                let found = files.iter().any(|file| ends.iter().any(|end| file.path.ends_with(end.as_str())));
                if !found {
                    missing.push(name);
                }
                continue;
            }
            _ if WITH_VALUE.contains(&word) => {
                words.next();
                continue;
            }
            _ if word.starts_with('-') => continue,
            name => files.iter().any(|file| is(&file.path, "rs") && has_function(&file.text, name)),
        };
        if !found {
            missing.push(word);
        }
    }
    missing
}

/// Returns true if a function of a text has a name that contains the last part of a path.
fn has_function(text: &str, path: &str) -> bool {
    let part = path.rsplit("::").next().unwrap_or(path);
    let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    names.into_iter().any(|name| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_named() {
        let broken = |text: &str| {
            let test = ("server/tests/serve/main.rs", "async fn both_ports_survive() {}");
            let files = [("docs/a.md", text), test];
            let files = files.map(|(path, text)| RepoFile { path: path.into(), text: text.into() });
            documented_tests_exist(&RuleInput { files: &files, members: &[] })
        };
        for good in [
            "cargo test -p oncebox-server --test serve both_ports -- --nocapture",
            "$ cargo test -p oncebox   # one package",
            "cargo test -p <package> <test>",
            "Run `cargo test --test serve`, then wait for it.",
        ] {
            assert!(broken(good).is_empty(), "{good}");
        }
        assert_eq!(
            broken("X=1 cargo test -p a --test serve neither_port_breaks -- --nocapture"),
            ["docs/a.md: runs the test neither_port_breaks, which does not exist"]
        );
        assert_eq!(
            broken("cargo test --test served"),
            ["docs/a.md: runs the test served, which does not exist"]
        );
    }
}
