//! Rules of this repository beyond the compiler. Tests: below.

mod arrows;
mod commands;
mod facts;
mod frozen;
mod guides;
mod help;
mod links;
mod statements;
mod travel;
mod words;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::literals::literals;
use crate::workspace::{Manifest, Workspace, slashes, value};

pub(crate) use self::words::{WordsOptions, words};

/// Maximum lines of a file. Split longer files by verb or noun.
const MAX_LINES: usize = 500;

/// A file of the repository.
struct RepoFile {
    /// Relative to the root, with forward slashes.
    path: String,
    text: String,
}

impl RepoFile {
    fn dir(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(dir, _)| dir)
    }
}

/// Input of the rules.
struct RuleInput<'a> {
    files: &'a [RepoFile],
    members: &'a [Manifest],
}

/// All rules. A rule returns a sentence for each breach, starting with the file.
const RULES: &[fn(&RuleInput<'_>) -> Vec<String>] = &[
    files_are_short,
    nothing_is_left_undone,
    sql_files_are_used,
    sql_stays_in_files,
    statements::statements_are_described,
    lints_are_inherited,
    planted_bugs_stay_where_they_are,
    arrows::modules_import_downwards,
    arrows::the_core_has_no_io,
    arrows::crates_depend_downwards,
    guides::programs_are_compiled,
    guides::pages_are_listed,
    guides::pages_begin_with_an_example,
    guides::the_glossary_is_short,
    guides::the_front_page_is_short,
    help::texts_fit_a_line,
    links::links_lead_somewhere,
    commands::documented_tests_exist,
    travel::names_exist,
    facts::kills_are_those_on_record,
    facts::speeds_are_those_on_record,
    facts::verbs_are_listed,
    facts::decisions_are_listed,
    frozen::names_are_frozen,
];

/// Makes the test command check [`words::RULES`]. `cargo xtask words` lists their breaches in either case.
const CHECKS_WORDS: bool = true;

/// Fails on any breach, and names all of them.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut files = Vec::new();
    collect(&workspace.root, &workspace.root, &mut files)?;
    let mut breaches = breaches(&RuleInput { files: &files, members: &workspace.members });
    let mut rules = RULES.len();
    if CHECKS_WORDS {
        breaches.extend(words::breaches(&workspace.root)?);
        rules += words::RULES.len();
    }
    if !breaches.is_empty() {
        bail!("rules of the house are broken in {} places:\n  {}", breaches.len(), breaches.join("\n  "));
    }
    println!("{rules} rules hold in {} files of {} packages", files.len(), workspace.members.len());
    Ok(())
}

fn breaches(tree: &RuleInput<'_>) -> Vec<String> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

/// Writes the index of the decisions.
pub(crate) fn write_decisions(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    let index = facts::index_of(&RuleInput { files: &files, members: &[] });
    fs::write(root.join(facts::INDEX), &index).with_context(|| format!("cannot write {}", facts::INDEX))?;
    println!("wrote {}", facts::INDEX);
    files.retain(|file| file.path != facts::INDEX);
    files.push(RepoFile { path: facts::INDEX.into(), text: index });
    match facts::decisions_are_listed(&RuleInput { files: &files, members: &[] }).first() {
        Some(gap) => bail!("{gap}"),
        None => Ok(()),
    }
}

/// Lists every file below `dir` by name, with the text of `.rs` and `.sql` files and of documents.
fn collect(root: &Path, dir: &Path, files: &mut Vec<RepoFile>) -> Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // Skip hidden directories and build directories, which have a tag.
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !hidden && !path.join("CACHEDIR.TAG").exists() {
                collect(root, &path, files)?;
            }
            continue;
        }
        let name = slashes(path.strip_prefix(root).unwrap_or(&path));
        let text = if is(&name, "rs") || is(&name, "sql") || links::is_page(&name) {
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
        } else {
            String::new()
        };
        files.push(RepoFile { path: name, text });
    }
    Ok(())
}

fn is(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

impl RuleInput<'_> {
    fn rust(&self) -> impl Iterator<Item = &RepoFile> {
        self.files.iter().filter(|file| is(&file.path, "rs"))
    }

    /// Returns the directory of the member that a file belongs to.
    fn member_of(&self, path: &str) -> Option<&str> {
        let dirs = self.members.iter().map(|member| member.dir.as_str());
        dirs.filter(|dir| is_below(path, dir)).max_by_key(|dir| dir.len())
    }
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

fn files_are_short(tree: &RuleInput<'_>) -> Vec<String> {
    let lines = tree.rust().map(|file| (file, file.text.lines().count()));
    lines
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{}: has {lines} lines, the limit is {MAX_LINES}: split it", file.path))
        .collect()
}

fn nothing_is_left_undone(tree: &RuleInput<'_>) -> Vec<String> {
    // Joined, so that this file does not break its own rule.
    let words = [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["#[", "ignore"].concat()];
    let mut breaches = Vec::new();
    for file in tree.rust() {
        for (number, line) in (1..).zip(file.text.lines()) {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                breaches.push(format!("{}:{number}: `{word}`: finish it, or leave it out", file.path));
            }
        }
    }
    breaches
}

/// Every SQL file is used: a reader would trust an unused statement. Migrations are found by their directory. A file
/// outside of every crate belongs to all of them.
fn sql_files_are_used(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for sql in tree.files.iter().filter(|file| is(&file.path, "sql")) {
        if sql.path.split('/').any(|part| part == "migrations") {
            continue;
        }
        let member = tree.member_of(&sql.path);
        let named = tree
            .rust()
            .filter(|rust| member.is_none() || tree.member_of(&rust.path) == member)
            .any(|rust| names(rust, sql, member));
        if !named {
            breaches.push(format!("{}: no .rs file of its crate names it: use it, or delete it", sql.path));
        }
    }
    breaches
}

/// Returns true if a string in `rust` is the path of `sql`, from the directory of `rust` or of the package.
fn names(rust: &RepoFile, sql: &RepoFile, member: Option<&str>) -> bool {
    let from = |dir: &str, literal: &str| resolve(dir, literal).as_deref() == Some(&*sql.path);
    literals(&rust.text)
        .into_iter()
        .filter(|literal| is(literal, "sql"))
        .any(|literal| from(rust.dir(), literal) || from(member.unwrap_or(""), literal))
}

/// Returns `path` relative to `dir`, with `.` and `..` resolved. Ignores a leading slash, as after a `concat!`.
fn resolve(dir: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// All SQL is in files, so that database operators find it in one place.
fn sql_stays_in_files(tree: &RuleInput<'_>) -> Vec<String> {
    let is_store_source = |file: &&RepoFile| {
        let mut parts = file.path.split('/');
        parts.next() == Some("stores") && parts.nth(1) == Some("src")
    };
    let mut breaches = Vec::new();
    for file in tree.rust().filter(is_store_source) {
        for literal in literals(&file.text).into_iter().filter(|literal| is_sql(literal)) {
            let start: String = literal.trim().chars().take(40).collect();
            breaches.push(format!("{}: SQL in a string ({start:?}): put it into a .sql file", file.path));
        }
    }
    breaches
}

/// Returns true if a text starts like a statement. Prose with the same verb lacks the second word. Transaction keywords
/// are also verbs of the store, so only capitals count.
fn is_sql(text: &str) -> bool {
    let transaction = ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"];
    if text.split_whitespace().next().is_some_and(|first| transaction.contains(&first.trim_end_matches(';')))
    {
        return true;
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    let (Some(first), second) = (words.first(), words.get(1).copied().unwrap_or("")) else { return false };
    let has = |word: &str| words.contains(&word);
    match *first {
        "select" | "pragma" => !second.is_empty(),
        "insert" | "replace" => has("into"),
        "update" => has("set"),
        "delete" => second == "from",
        "with" => has("as") && ["select", "insert", "update", "delete"].into_iter().any(has),
        "create" | "drop" | "alter" => ["table", "index", "view", "trigger"].into_iter().any(has),
        _ => false,
    }
}

fn lints_are_inherited(tree: &RuleInput<'_>) -> Vec<String> {
    let own = tree.members.iter().filter(|member| value(&member.text, "lints", "workspace") != Some("true"));
    own.map(|member| format!("{}/Cargo.toml: lacks `[lints] workspace = true`", member.dir)).collect()
}

/// Keeps the rig's planted bugs inside it: no crate may depend on the rig or enable its feature.
fn planted_bugs_stay_where_they_are(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for member in tree.members {
        let rig = value(&member.text, "package", "name") == Some("\"oncebox-chaos\"");
        let code = |line: &&str| !line.trim_start().starts_with('#');
        for line in member.text.lines().filter(code) {
            // The feature itself enables nothing, so no other crate has it.
            let named = line.contains("sabotage") && !(rig && line.trim() == "sabotage = []");
            if named || (line.contains("oncebox-chaos") && !rig) {
                breaches.push(format!(
                    "{}/Cargo.toml: `{line}`: planted bugs belong to the rig alone",
                    member.dir
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n";

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<RepoFile> = files
            .iter()
            .map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() })
            .collect();
        let members =
            ["crates/a", "crates/s", "stores/s"].map(|dir| Manifest { dir: dir.into(), text: LINTS.into() });
        breaches(&RuleInput { files: &files, members: &members })
    }

    #[test]
    fn a_long_file_is_named_with_its_length() {
        assert!(broken(&[("crates/a/src/lib.rs", &"\n".repeat(MAX_LINES))]).is_empty());
        let breaches = broken(&[("crates/a/src/lib.rs", &"\n".repeat(MAX_LINES + 1))]);
        assert_eq!(breaches, ["crates/a/src/lib.rs: has 501 lines, the limit is 500: split it"]);
    }

    #[test]
    fn unfinished_work_is_named_with_its_line() {
        for word in ["todo", "unimplemented"] {
            let breaches = broken(&[("crates/a/src/lib.rs", &format!("fn a() {{\n    {word}!()\n}}\n"))]);
            assert_eq!(breaches, [format!("crates/a/src/lib.rs:2: `{word}!(`: finish it, or leave it out")]);
        }
        for attribute in ["ignore", "ignore = \"slow\""] {
            assert_eq!(
                broken(&[("crates/a/tests/a.rs", &format!("#[test]\n#[{attribute}]\nfn a() {{}}\n"))]).len(),
                1
            );
        }
        assert!(broken(&[("crates/a/src/lib.rs", "fn todo() {} // ignored")]).is_empty());
    }

    #[test]
    fn a_sql_file_must_be_named_by_its_own_crate() {
        let sql = ("crates/s/sql/claim.sql", "select 1");
        let unused = ["crates/s/sql/claim.sql: no .rs file of its crate names it: use it, or delete it"];
        assert_eq!(broken(&[sql]), unused);
        for (path, text) in [
            ("crates/s/src/lib.rs", "include_str!(\"../sql/claim.sql\")"),
            ("crates/s/src/admin/mod.rs", "include_str!(\"../../sql/claim.sql\")"),
            ("crates/s/src/lib.rs", "query_file!(\"sql/claim.sql\")"),
            ("crates/s/src/lib.rs", "concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/sql/claim.sql\")"),
        ] {
            assert!(broken(&[sql, (path, text)]).is_empty(), "{text}");
        }
        for (path, text) in [
            ("crates/s/src/lib.rs", "// \"../sql/claim.sql\""),
            ("crates/s/src/lib.rs", "include_str!(\"../sql/unclaim.sql\")"),
            ("crates/s/src/lib.rs", "include_str!(\"../sql/admin/claim.sql\")"),
            ("crates/a/src/lib.rs", "include_str!(\"../../../crates/s/sql/claim.sql\")"),
        ] {
            assert_eq!(broken(&[sql, (path, text)]), unused, "{text}");
        }
    }

    #[test]
    fn a_sql_file_of_no_crate_may_be_named_by_any() {
        let sql = ("docs/compute.sql", "select 1");
        assert_eq!(broken(&[sql]).len(), 1);
        let test = ("stores/s/tests/a.rs", "include_str!(\"../../../docs/compute.sql\")");
        assert!(broken(&[sql, test]).is_empty());
    }

    #[test]
    fn migrations_need_no_mention() {
        assert!(broken(&[("stores/s/migrations/0001_start.sql", "create table t (a)")]).is_empty());
    }

    #[test]
    fn sql_in_a_store_s_source_is_found() {
        for sql in [
            "select 1",
            "\\n    SELECT *\\n    FROM t",
            "insert or ignore into t values (?)",
            "replace into t values (1)",
            "update t set a = ?",
            "delete from {table}",
            "with x as (select 1) select * from x",
            "create unique index i on t (a)",
            "drop table t",
            "pragma user_version",
            "BEGIN IMMEDIATE",
            "COMMIT",
            "ROLLBACK; BEGIN",
        ] {
            let source = format!("conn.execute(\"{}\");", sql.replace("\\n", "\n"));
            assert_eq!(broken(&[("stores/s/src/deep/verb.rs", &source)]).len(), 1, "{sql}");
            assert_eq!(broken(&[("stores/s/src/deep/tests.rs", &source)]).len(), 1, "{sql}");
            assert!(broken(&[("stores/s/tests/verb.rs", &source)]).is_empty(), "{sql}");
            assert!(broken(&[("crates/a/src/verb.rs", &source)]).is_empty(), "{sql}");
        }
    }

    #[test]
    fn what_hides_no_statement_is_left_alone() {
        for prose in [
            "",
            "select",
            "begin",
            "commit",
            "update of the lease failed",
            "delete the file first",
            "insert failed",
            "create the database file",
            "with the same key",
            "the statement select is slow",
        ] {
            assert!(!is_sql(prose), "{prose}");
        }
        assert!(broken(&[("stores/s/src/lib.rs", "/// Runs `select 1`.\n// delete from t\n")]).is_empty());
    }

    #[test]
    fn a_member_with_its_own_lints_is_named() {
        for text in ["[package]\n", "[lints.clippy]\npedantic = \"allow\"\n", "[lints]\nworkspace = false\n"]
        {
            let members = [Manifest { dir: "a".into(), text: text.into() }];
            let breaches = breaches(&RuleInput { files: &[], members: &members });
            assert_eq!(breaches, ["a/Cargo.toml: lacks `[lints] workspace = true`"]);
        }
    }

    #[test]
    fn no_crate_turns_planted_bugs_on() {
        let broken = |dir: &str, text: &str| {
            let members =
                [Manifest { dir: dir.into(), text: format!("{text}\n[lints]\nworkspace = true\n") }];
            breaches(&RuleInput { files: &[], members: &members }).len()
        };
        let rig = "[package]\nname = \"oncebox-chaos\"\n[features]\n";
        assert_eq!(broken("chaos", &format!("{rig}# sabotage, why\nsabotage = []")), 0);
        assert_eq!(broken("chaos", &format!("{rig}default = [\"sabotage\"]\nsabotage = []")), 1);
        assert_eq!(broken("chaos", &format!("{rig}sabotage = [\"oncebox/sabotage\"]")), 1);
        assert_eq!(broken("server", "[dependencies]\noncebox-chaos.workspace = true"), 1);
        assert_eq!(broken("stores/s", "[features]\nsabotage = []"), 1);
    }
}
