//! Rule: a type name is defined once in the workspace, so that a search for it has one result. Tests: below.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Breach, Lexed, Sources};

/// Names that may be defined more than once, with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("Args", "clap arguments of one command; the module names the command"),
    ("Cli", "clap command line of one program"),
    ("Command", "clap commands of one program or group; the module names it"),
    ("Guide", "compiles the guide of one crate; only documentation tests see it"),
    ("Inner", "private contents of a handle; the module names the handle"),
    ("OrderPlaced", "every example is a complete program about the same event"),
    ("Shared", "private contents of a handle that several tasks use"),
];

/// The file of [`ALLOWED`].
const HERE: &str = "xtask/src/hygiene/words/types.rs";

/// Directories outside the workspace: each file of the first is a program that does not compile; the second is a
/// workspace with the programs of other queues.
const OUTSIDE: [&str; 2] = ["crates/oncebox-macros/tests/ui/", "bench/peers/"];

/// A definition of a type.
struct TypeDefinition {
    path: String,
    line: usize,
    keyword: String,
}

type ByName = BTreeMap<String, Vec<TypeDefinition>>;

pub(super) fn are_unique(sources: &Sources) -> Vec<Breach> {
    breaches(sources, ALLOWED)
}

fn breaches(sources: &Sources, allowed: &[(&str, &str)]) -> Vec<Breach> {
    let all = definitions(sources);
    let is_allowed = |name: &str| allowed.iter().any(|(allowed, _)| *allowed == name);
    let mut breaches = Vec::new();
    for (name, places) in repeated(&all).filter(|(name, _)| !is_allowed(name)) {
        for TypeDefinition { path, line, keyword } in places {
            let count = places.len();
            let text =
                format!("{path}:{line}: {keyword} `{name}`: one of {count} types of this name: rename it");
            breaches.push(Breach { path: path.clone(), text });
        }
    }
    for (name, _) in allowed.iter().filter(|(name, _)| all.get(*name).is_none_or(|places| places.len() < 2)) {
        let text =
            format!("{HERE}: `{name}` is no longer defined more than once: remove it from the exceptions");
        breaches.push(Breach { path: HERE.into(), text });
    }
    breaches
}

fn reason(name: &str) -> Option<&'static str> {
    ALLOWED.iter().find(|(allowed, _)| *allowed == name).map(|(_, reason)| *reason)
}

/// Returns the output of `cargo xtask words --types`, and the number of names that are not allowed.
pub(super) fn listed(sources: &Sources, prefix: &str) -> (String, usize) {
    let all = definitions(sources);
    let mut names: Vec<_> = repeated(&all)
        .filter(|(_, places)| places.iter().any(|place| place.path.starts_with(prefix)))
        .collect();
    names.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let mut text = String::new();
    for (name, places) in &names {
        let allowed = reason(name).map_or_else(String::new, |reason| format!("  (allowed: {reason})"));
        _ = writeln!(text, "{:>3}  {name}{allowed}", places.len());
        for TypeDefinition { path, line, keyword } in *places {
            _ = writeln!(text, "       {path}:{line} {keyword}");
        }
    }
    let count = names.iter().filter(|(name, _)| reason(name).is_none()).count();
    let (repeated, allowed) = (names.len(), names.len() - count);
    _ = writeln!(
        text,
        "{repeated} of {} type names are defined more than once, {allowed} with a reason",
        all.len()
    );
    (text, count)
}

fn repeated(all: &ByName) -> impl Iterator<Item = (&str, &[TypeDefinition])> {
    all.iter().filter(|(_, places)| places.len() > 1).map(|(name, places)| (&**name, &**places))
}

/// Returns every type definition of the workspace by name.
fn definitions(sources: &Sources) -> ByName {
    let mut found = ByName::new();
    for file in sources.rust().filter(|file| !OUTSIDE.iter().any(|outside| file.path.starts_with(outside))) {
        let lexed = Lexed::new(file);
        let mut conditional = Vec::new();
        for TypeItem { at, keyword, name, has_cfg } in types(&lexed.code) {
            // Variants of one type for several systems count as one definition.
            if has_cfg && conditional.contains(&name) {
                continue;
            }
            conditional.extend(has_cfg.then_some(name));
            let (path, keyword) = (file.path.clone(), keyword.into());
            let place = TypeDefinition { path, line: lexed.line(at), keyword };
            found.entry(name.into()).or_default().push(place);
        }
    }
    found
}

/// An item that defines a type.
struct TypeItem<'a> {
    at: usize,
    keyword: &'a str,
    name: &'a str,
    has_cfg: bool,
}

/// Returns the types that `code` defines, without associated types of an `impl` or a `trait`.
fn types(code: &str) -> Vec<TypeItem<'_>> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    // Open brackets; for a brace, whether an `impl` or a `trait` opened it.
    let mut open: Vec<(&str, bool)> = Vec::new();
    let mut item = 0;
    for (index, &(at, token)) in tokens.iter().enumerate() {
        match token {
            "{" => open.push((token, has_associated_types(&tokens[item..index]))),
            "[" => open.push((token, false)),
            "}" | "]" => _ = open.pop(),
            "struct" | "enum" | "trait" | "union" | "type" => {
                let after = tokens.get(index + 2).map_or("", |(_, token)| *token);
                let is_union = token != "union" || ["{", "<"].contains(&after);
                let is_associated = token == "type" && open.last() == Some(&("{", true));
                if let Some(&(_, name)) = tokens.get(index + 1)
                    && name.starts_with(char::is_uppercase)
                    && is_union
                    && !is_associated
                {
                    let has_cfg = tokens[item..index].iter().any(|(_, token)| *token == "cfg");
                    found.push(TypeItem { at, keyword: token, name, has_cfg });
                }
            }
            _ => {}
        }
        // `[u8; 4]` ends no item.
        let is_array = open.last().is_some_and(|(bracket, _)| *bracket == "[");
        if ["{", "}"].contains(&token) || (token == ";" && !is_array) {
            item = index + 1;
        }
    }
    found
}

/// Returns whether an item with these first tokens is an `impl` or a `trait`.
fn has_associated_types(item: &[(usize, &str)]) -> bool {
    let keywords =
        ["impl", "trait", "fn", "struct", "enum", "union", "mod", "const", "static", "let", "match", "if"];
    item.iter()
        .find(|(_, token)| keywords.contains(token))
        .is_some_and(|(_, token)| ["impl", "trait"].contains(token))
}

/// Returns every name and every mark of masked code, with its position.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let at = code.len() - rest.len();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let len =
            if is_name(first) { rest.find(|c| !is_name(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        if !first.is_whitespace() {
            found.push((at, &rest[..len]));
        }
        rest = &rest[len..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{found, sources};
    use super::*;

    fn without_exceptions(sources: &Sources) -> Vec<Breach> {
        breaches(sources, &[])
    }

    fn names(code: &str) -> Vec<&str> {
        types(code).into_iter().map(|item| item.name).collect()
    }

    #[test]
    fn every_kind_of_type_is_found() {
        let code = "pub struct A;\nenum B<T> { C }\npub(crate) trait D: E {}\nunion F { a: u8 }\ntype G = H;\n\
                    fn f() -> impl I { struct J(u8); type K = L; }\nmod m { type N = O; }\nunsafe trait P {}";
        assert_eq!(names(code), ["A", "B", "D", "F", "G", "J", "K", "N", "P"]);
    }

    #[test]
    fn parts_of_other_items_are_not_types_of_their_own() {
        for code in [
            "impl A for B { type C = D; fn f() {} type E = F; }",
            "impl A for B<[u8; 4]> { type C = D; }",
            "pub unsafe impl<T> A for B<T> where T: C { type D = E; }",
            "#[async_trait] impl A for B { fn f() -> C {} type D = E; }",
            "let union = Union; fn union(a: Union) {}",
            "struct $name { a: u8 } enum #name {}",
            "fn f(r#type: Kind) {}",
        ] {
            assert_eq!(names(code), [""; 0], "{code}");
        }
        assert_eq!(names("trait A { type C; fn f() { if a {} } type E: F; }"), ["A"]);
    }

    #[test]
    fn a_name_that_is_defined_twice_is_named_at_each_place() {
        let files = [
            ("a/src/lib.rs", "pub struct Answer;\nstruct Other;"),
            ("b/tests/b.rs", "fn f() {\n    enum Answer {}\n}"),
        ];
        assert_eq!(
            found(without_exceptions, &files),
            [
                "a/src/lib.rs:1: struct `Answer`: one of 2 types of this name: rename it",
                "b/tests/b.rs:2: enum `Answer`: one of 2 types of this name: rename it",
            ]
        );
        let (text, count) = listed(&sources(&files), "b/");
        assert_eq!(count, 1);
        assert_eq!(
            text,
            "  2  Answer\n       a/src/lib.rs:1 struct\n       b/tests/b.rs:2 enum\n\
             1 of 2 type names are defined more than once, 0 with a reason\n"
        );
        assert_eq!(listed(&sources(&files), "c/").1, 0);
    }

    #[test]
    fn text_and_programs_outside_the_workspace_do_not_count() {
        let definition = "struct A;";
        for (path, text) in [
            ("a.rs", "// struct A;\n/* struct A; */ const B: &str = \"struct A;\";"),
            ("crates/oncebox-macros/tests/ui/a.rs", definition),
            ("bench/peers/rust/src/main.rs", definition),
            ("a.md", definition),
        ] {
            assert!(found(without_exceptions, &[("b.rs", definition), (path, text)]).is_empty(), "{path}");
        }
    }

    #[test]
    fn one_type_for_several_systems_is_one_definition() {
        let twins = "#[cfg(unix)]\nstruct A;\n#[cfg(not(unix))]\nstruct A;";
        assert!(found(without_exceptions, &[("a.rs", twins)]).is_empty());
        assert_eq!(found(without_exceptions, &[("a.rs", twins), ("b.rs", "struct A;")]).len(), 2);
        let one_more = twins.replace("#[cfg(not(unix))]", "");
        assert_eq!(found(without_exceptions, &[("a.rs", &one_more)]).len(), 2);
        assert_eq!(
            found(without_exceptions, &[("a.rs", "mod a { struct A; } mod b { struct A; }")]).len(),
            2
        );
    }

    #[test]
    fn an_exception_must_be_needed_and_have_a_reason() {
        let exception = [("A", "a reason")];
        let twice = [("a.rs", "struct A;"), ("b.rs", "struct A;")];
        assert!(breaches(&sources(&twice), &exception).is_empty());
        let stale = breaches(&sources(&twice[..1]), &exception);
        assert_eq!((stale.len(), &*stale[0].path), (1, HERE));
        assert!(ALLOWED.iter().all(|(_, reason)| reason.contains(' ')));
    }

    #[test]
    fn the_exceptions_are_in_this_file() {
        assert!(crate::workspace::root().join(HERE).is_file());
    }
}
