//! Published names: the lists in `docs/stability.md` match the code, so a rename fails. Tests: below.

use std::collections::BTreeSet;

use super::{RepoFile, RuleInput, is, is_below};
use crate::literals::literals;

pub(super) const PAGE: &str = "docs/stability.md";

const ROUTES: &str = "server/src/api/routes.rs";
/// Files with the commands, and the command that theirs belong to.
const COMMANDS: [(&str, &str); 4] = [
    ("server/src/cli/mod.rs", ""),
    ("server/src/cli/operate/mod.rs", ""),
    ("server/src/cli/config.rs", "config "),
    ("server/src/cli/migrate.rs", "migrate "),
];
/// Files that name headers of requests, responses and messages.
const HEADERS: [&str; 5] = [
    "server/src/delivery/headers.rs",
    "server/src/delivery/sign.rs",
    "crates/oncebox-tower/src/answer.rs",
    "sources/http/src/endpoint.rs",
    "sources/rabbitmq/src/message.rs",
];
/// Starts of the names of such headers.
const HEADER_STARTS: [&str; 5] = ["oncebox-", "ce-", "webhook-", "message-", "idempotency-"];
/// Starts of the statements that create tables and sequences.
const CREATED_TABLES: &[&str] = &["CREATE TABLE ", "CREATE UNLOGGED TABLE ", "CREATE SEQUENCE "];
const TESTS: &str = "#[cfg(test)]";

/// A list of the page, and the names that the code has for it.
type FrozenList = (&'static str, fn(&RuleInput<'_>) -> BTreeSet<String>);

const LISTS: [FrozenList; 6] = [
    ("headers", headers),
    ("postgres-functions", functions),
    ("postgres-tables", |tree| tables(tree, "stores/postgres")),
    ("sqlite-tables", |tree| tables(tree, "stores/sqlite")),
    ("api-paths", paths),
    ("commands", commands),
];

/// Each list of the page has exactly the names in the code.
pub(super) fn names_are_frozen(tree: &RuleInput<'_>) -> Vec<String> {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let mut breaches = Vec::new();
    for (name, in_code) in LISTS {
        let Some(listed) = listed(&page.text, name) else {
            breaches.push(format!("{PAGE}: has no list below `<!-- frozen: {name} -->`"));
            continue;
        };
        let found = in_code(tree);
        breaches.extend(listed.difference(&found).map(|gone| {
            format!(
                "{PAGE}: the code has no `{gone}` of the list {name}: keep the published name, or add a new one beside it"
            )
        }));
        breaches.extend(found.difference(&listed).map(|new| {
            format!("{PAGE}: the list {name} lacks `{new}`: add it, and from its release on never rename it")
        }));
    }
    breaches
}

/// Returns the lines of the first code block below the marker of a list.
fn listed(page: &str, name: &str) -> Option<BTreeSet<String>> {
    let below = page.split_once(&format!("<!-- frozen: {name} -->"))?.1;
    let block = below.split("```").nth(1)?;
    Some(block.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn file<'a>(tree: &'a RuleInput<'_>, path: &str) -> Option<&'a RepoFile> {
    tree.files.iter().find(|file| file.path == path)
}

/// Returns the part of a Rust file before its tests.
fn before_tests(file: &RepoFile) -> &str {
    file.text.split(TESTS).next().unwrap_or_default()
}

fn headers(tree: &RuleInput<'_>) -> BTreeSet<String> {
    let files = HEADERS.iter().filter_map(|path| file(tree, path));
    let is_header = |text: &&str| {
        let named = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        named && HEADER_STARTS.iter().any(|start| text.len() > start.len() && text.starts_with(start))
    };
    files.flat_map(|file| literals(before_tests(file))).filter(is_header).map(str::to_owned).collect()
}

/// Returns the names that a directory's SQL creates with one of the given statements.
fn created(tree: &RuleInput<'_>, dir: &str, statements: &[&str]) -> BTreeSet<String> {
    let files = tree.files.iter().filter(|file| is(&file.path, "sql") && is_below(&file.path, dir));
    let mut names = BTreeSet::new();
    for line in files.flat_map(|file| file.text.lines()) {
        let Some(rest) = statements.iter().find_map(|statement| line.trim_start().strip_prefix(statement))
        else {
            continue;
        };
        let rest = rest.strip_prefix("IF NOT EXISTS ").unwrap_or(rest);
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !name.is_empty() {
            names.insert(name);
        }
    }
    names
}

fn functions(tree: &RuleInput<'_>) -> BTreeSet<String> {
    created(tree, "stores/postgres/functions", &["CREATE FUNCTION ", "CREATE OR REPLACE FUNCTION "])
}

fn tables(tree: &RuleInput<'_>, store: &str) -> BTreeSet<String> {
    ["migrations", "sql"]
        .iter()
        .flat_map(|dir| created(tree, &format!("{store}/{dir}"), CREATED_TABLES))
        .collect()
}

/// Returns method and path of each row in the table of routes.
fn paths(tree: &RuleInput<'_>) -> BTreeSet<String> {
    let Some(routes) = file(tree, ROUTES) else { return BTreeSet::new() };
    let code = before_tests(routes);
    let prefix = code
        .split_once("const PREFIX: &str = \"")
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or_default();
    let row = |line: &str| {
        let mut words = line.strip_prefix("    ")?.split(' ');
        let (_, method, path) = (words.next()?, words.next()?, words.next()?);
        let path = path.strip_prefix('"')?.strip_suffix('"')?;
        Some(format!("{} {prefix}{path}", method.to_uppercase())).filter(|_| path.starts_with('/'))
    };
    code.lines().filter_map(row).collect()
}

/// Returns the visible commands, in the words of the command line.
fn commands(tree: &RuleInput<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, parent) in COMMANDS {
        let Some(file) = file(tree, path) else { continue };
        let body = file.text.split_once("enum Command {").map_or("", |(_, rest)| rest);
        let mut shown = true;
        for line in body.lines().take_while(|line| *line != "}") {
            let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with(' ')) else {
                continue;
            };
            if line.starts_with("#[command(hide") || line.starts_with("#[command(flatten") {
                shown = false;
            }
            let variant = line.split(['(', ' ', ',']).next().unwrap_or_default();
            if variant.starts_with(|c: char| c.is_ascii_uppercase()) {
                if shown {
                    names.insert(format!("{parent}{}", kebab(variant)));
                }
                shown = true;
            }
        }
    }
    names
}

/// Returns the name that clap gives to a variant.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 10] = [
        (
            "server/src/delivery/headers.rs",
            "set(\"oncebox-key\", k); set(\"ce-id\", i); // \"oncebox-no\"\nset(\"other\", \"ce-\");\n#[cfg(test)]\nset(\"oncebox-test\")",
        ),
        (
            "stores/postgres/functions/settle_v1.sql",
            "-- CREATE FUNCTION no(\nCREATE FUNCTION oncebox_settle_v1(\n",
        ),
        (
            "stores/postgres/migrations/0002_inbox.sql",
            "CREATE TABLE oncebox_entry (\nCREATE SEQUENCE oncebox_token AS bigint;\nCREATE INDEX i ON oncebox_entry (a);\n",
        ),
        ("stores/postgres/schema.sql", "CREATE TABLE \"public\".\"oncebox_entry\" (\n"),
        ("stores/sqlite/migrations/0002_inbox.sql", "CREATE TABLE oncebox_line (\n"),
        ("stores/sqlite/sql/writer.sql", "CREATE TABLE IF NOT EXISTS oncebox_schema (version);\n"),
        (
            ROUTES,
            "const PREFIX: &str = \"/api/v1\";\nroutes! {\n    Me Get \"/me\" Viewer ((), ()) 200 wire::CallerInfo,\n        \"Caller\";\n}\n",
        ),
        (
            "server/src/cli/mod.rs",
            "enum Command {\n    /// Serve\n    Serve(serve::Args),\n    #[command(hide = true)]\n    DemoWorker(A),\n    \
             #[command(flatten)]\n    Operate(Box<O>),\n    #[command(after_help = \"x\")]\n    Man(M),\n}\nenum Exit {\n    Usage = 2,\n}\n",
        ),
        ("server/src/cli/operate/mod.rs", "enum Command {\n    Retry(\n        Args,\n    ),\n}\n"),
        (
            "server/src/cli/migrate.rs",
            "enum Command {\n    DryRun {\n        /// A\n        Flag: bool,\n    },\n    Apply,\n}\n",
        ),
    ];

    const LISTED: [(&str, &str); 6] = [
        ("headers", "ce-id\noncebox-key"),
        ("postgres-functions", "oncebox_settle_v1"),
        ("postgres-tables", "oncebox_entry\noncebox_token"),
        ("sqlite-tables", "oncebox_line\noncebox_schema"),
        ("api-paths", "GET /api/v1/me"),
        ("commands", "man\nmigrate apply\nmigrate dry-run\nretry\nserve"),
    ];

    fn page(lists: &[(&str, &str)]) -> String {
        let list =
            |(name, names): &(&str, &str)| format!("<!-- frozen: {name} -->\n\n```text\n{names}\n```\n\n");
        lists.iter().map(list).collect::<Vec<_>>().concat()
    }

    fn broken(page: &str, renamed: Option<(&str, &str)>) -> Vec<String> {
        let listed = (PAGE, page);
        let files = FILES.iter().chain([&listed]);
        let text = |text: &str| renamed.map_or(text.to_owned(), |(old, new)| text.replace(old, new));
        let files: Vec<RepoFile> = files
            .map(|(path, of)| RepoFile {
                path: (*path).into(),
                text: if *path == PAGE { (*of).to_owned() } else { text(of) },
            })
            .collect();
        names_are_frozen(&RuleInput { files: &files, members: &[] })
    }

    #[test]
    fn a_renamed_name_is_named_with_its_list() {
        let page = page(&LISTED);
        assert!(broken(&page, None).is_empty(), "{:?}", broken(&page, None));
        for (list, old, new, from, to) in [
            ("headers", "oncebox-key", "oncebox-digest", "oncebox-key", "oncebox-digest"),
            (
                "postgres-functions",
                "oncebox_settle_v1",
                "oncebox_end_v1",
                "oncebox_settle_v1",
                "oncebox_end_v1",
            ),
            ("postgres-tables", "oncebox_entry", "oncebox_work", "oncebox_entry", "oncebox_work"),
            ("sqlite-tables", "oncebox_line", "oncebox_queue", "oncebox_line", "oncebox_queue"),
            ("api-paths", "GET /api/v1/me", "GET /api/v2/me", "/api/v1", "/api/v2"),
            ("commands", "retry", "again", "Retry", "Again"),
            ("commands", "migrate dry-run", "migrate plan", "DryRun", "Plan"),
        ] {
            let breaches = broken(&page, Some((from, to)));
            assert_eq!(breaches.len(), 2, "{breaches:?}");
            assert!(breaches[0].contains(&format!("has no `{old}` of the list {list}")), "{breaches:?}");
            assert!(breaches[1].contains(&format!("the list {list} lacks `{new}`")), "{breaches:?}");
        }
    }

    #[test]
    fn a_name_or_list_that_is_missing_is_named() {
        let without = LISTED.map(|(name, names)| (name, if name == "headers" { "ce-id" } else { names }));
        assert_eq!(
            broken(&page(&without), None),
            [
                "docs/stability.md: the list headers lacks `oncebox-key`: add it, and from its release on never rename it"
            ]
        );
        let breaches = broken(&page(&LISTED[..5]), None);
        assert_eq!(breaches, ["docs/stability.md: has no list below `<!-- frozen: commands -->`"]);
        assert_eq!(broken("", None).len(), LISTS.len());
    }
}
