//! Rule: a type name is defined once in the workspace, so that a search for it has one result. The tests are below.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Breach, Lexed, Sources};

/// Names that may be defined more than once, and the reason.
const ALLOWED: &[(&str, &str)] = &[];

/// Directories outside the workspace: each file of the first is a program that does not compile, and the second has a
/// workspace of its own with the programs of other queues.
const OUTSIDE: [&str; 2] = ["crates/oncebox-macros/tests/ui/", "bench/peers/"];

/// A place that defines a type.
struct TypeDefinition {
    path: String,
    line: usize,
    keyword: String,
}

type ByName = BTreeMap<String, Vec<TypeDefinition>>;

pub(super) fn are_unique(sources: &Sources) -> Vec<Breach> {
    let all = definitions(sources);
    let mut breaches = Vec::new();
    for (name, places) in repeated(&all).filter(|(name, _)| reason(name).is_none()) {
        for place in places {
            let text = format!(
                "{}:{}: {} `{name}`: one of {} types of this name: rename it",
                place.path,
                place.line,
                place.keyword,
                places.len()
            );
            breaches.push(Breach { path: place.path.clone(), text });
        }
    }
    breaches
}

fn reason(name: &str) -> Option<&'static str> {
    ALLOWED.iter().find(|(allowed, _)| *allowed == name).map(|(_, reason)| *reason)
}

/// The text of `cargo xtask words --types`, and the number of names that are not allowed.
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
    _ = writeln!(text, "{} of {} type names are defined more than once", names.len(), all.len());
    (text, count)
}

fn repeated(all: &ByName) -> impl Iterator<Item = (&str, &[TypeDefinition])> {
    all.iter().filter(|(_, places)| places.len() > 1).map(|(name, places)| (&**name, &**places))
}

/// Every type definition of the workspace by its name.
fn definitions(sources: &Sources) -> ByName {
    let mut found = ByName::new();
    for file in sources.rust().filter(|file| !OUTSIDE.iter().any(|outside| file.path.starts_with(outside))) {
        let lexed = Lexed::new(file);
        for (at, keyword, name) in types(&lexed.code) {
            let (path, keyword) = (file.path.clone(), keyword.into());
            let place = TypeDefinition { path, line: lexed.line(at), keyword };
            found.entry(name.into()).or_default().push(place);
        }
    }
    found
}

/// The position, keyword and name of each type that `code` defines. A `type` in an `impl` or a `trait` is part of it.
fn types(code: &str) -> Vec<(usize, &str, &str)> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    // For each open brace, whether it is that of an `impl` or a `trait`.
    let mut braces: Vec<bool> = Vec::new();
    let mut item = 0;
    for (index, (at, token)) in tokens.iter().enumerate() {
        match *token {
            "{" => braces.push(has_associated_types(&tokens[item..index])),
            "}" => _ = braces.pop(),
            "struct" | "enum" | "trait" | "union" | "type" => {
                let after = tokens.get(index + 2).map_or("", |(_, token)| *token);
                let is_union = *token != "union" || ["{", "<"].contains(&after);
                let is_associated = *token == "type" && braces.last() == Some(&true);
                if let Some((_, name)) = tokens.get(index + 1)
                    && name.starts_with(char::is_uppercase)
                    && is_union
                    && !is_associated
                {
                    found.push((*at, *token, *name));
                }
            }
            _ => {}
        }
        if ["{", "}", ";"].contains(token) {
            item = index + 1;
        }
    }
    found
}

/// Whether an item with these first tokens is an `impl` or a `trait`.
fn has_associated_types(item: &[(usize, &str)]) -> bool {
    let keywords =
        ["impl", "trait", "fn", "struct", "enum", "union", "mod", "const", "static", "let", "match", "if"];
    item.iter()
        .find(|(_, token)| keywords.contains(token))
        .is_some_and(|(_, token)| ["impl", "trait"].contains(token))
}

/// Names and the marks `{ } ; < = $ #` of masked code.
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

    fn names(code: &str) -> Vec<&str> {
        types(code).into_iter().map(|(_, _, name)| name).collect()
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
            "trait T { type C; fn f() { if a {} } type E: F; }",
            "pub unsafe impl<T> A for B<T> where T: C { type D = E; }",
            "#[async_trait] impl A for B { fn f() -> C {} type D = E; }",
            "let union = Union; fn union(a: Union) {}",
            "struct $name { a: u8 } enum #name {}",
            "fn f(r#type: Kind) {}",
        ] {
            let code = code.replace("trait T", "trait");
            assert_eq!(names(&code), [""; 0], "{code}");
        }
    }

    #[test]
    fn a_name_that_is_defined_twice_is_named_at_each_place() {
        let files = [
            ("a/src/lib.rs", "pub struct Answer;\nstruct Other;"),
            ("b/tests/b.rs", "fn f() {\n    enum Answer {}\n}"),
        ];
        assert_eq!(
            found(are_unique, &files),
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
             1 of 2 type names are defined more than once\n"
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
            assert!(found(are_unique, &[("b.rs", definition), (path, text)]).is_empty(), "{path}");
        }
    }

    #[test]
    fn allowed_names_have_a_reason() {
        for (name, reason) in ALLOWED {
            let one = format!("struct {name};");
            assert!(reason.contains(' '), "{name}");
            assert!(found(are_unique, &[("a.rs", &one), ("b.rs", &one)]).is_empty());
        }
    }
}
