//! Sections of the SQL files: `-- name: settle_outcome` begins a statement. The compiler cuts the files. Tests:
//! `tests/statements.rs`.

/// Marker at the start of a section's first line. The name of its statement follows.
const NAME: &[u8] = b"-- name: ";

/// Returns the statement `name` of a file, without the comments above it and without its last semicolon. In a constant, a
/// name that is missing or used twice fails the build.
pub(crate) const fn section<'a>(file: &'a str, name: &str) -> &'a str {
    let mut found = None;
    let mut rest = after_name(file);
    while let Some(text) = rest {
        rest = after_name(text);
        let behind = match rest {
            Some(next) => next.len() + NAME.len(),
            None => 0,
        };
        let (own, body) = split_line(text.split_at(text.len() - behind).0);
        if equal(own.as_bytes(), name.as_bytes()) {
            assert!(found.is_none(), "two statements of a file have this name");
            found = Some(statement(body));
        }
    }
    match found {
        Some(statement) => statement,
        None => panic!("no statement of the file has this name"),
    }
}

/// Returns the text after the next `-- name: `.
const fn after_name(text: &str) -> Option<&str> {
    let mut rest = text;
    while !rest.is_empty() {
        if starts_with(rest.as_bytes(), NAME) {
            return Some(rest.split_at(NAME.len()).1);
        }
        rest = split_line(rest).1;
    }
    None
}

/// Removes the comments above a statement, and the semicolon after it.
const fn statement(body: &str) -> &str {
    let mut sql = body;
    while starts_with(sql.as_bytes(), b"--") {
        sql = split_line(sql).1;
    }
    let sql = sql.trim_ascii();
    assert!(matches!(sql.as_bytes().last(), Some(b';')), "a statement ends with a semicolon");
    sql.split_at(sql.len() - 1).0
}

/// Returns the first line without its end, and the text after it.
const fn split_line(text: &str) -> (&str, &str) {
    let mut at = 0;
    while at < text.len() && text.as_bytes()[at] != b'\n' {
        at += 1;
    }
    let (line, behind) = text.split_at(at);
    (line, if behind.is_empty() { behind } else { behind.split_at(1).1 })
}

const fn starts_with(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && equal(text.split_at(start.len()).0, start)
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
