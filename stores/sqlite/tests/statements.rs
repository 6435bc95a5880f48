//! The files in `sql`: SQLite accepts every statement, and every file as a whole.

mod support;

use oncebox_sqlite::rusqlite::Batch;
use oncebox_sqlite::rusqlite::fallible_iterator::FallibleIterator as _;
use support::sections::section;
use support::{TestFile, names, sql_files, statements};

#[test]
fn sqlite_prepares_every_statement() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    let statements = statements();
    assert!(statements.len() > 100, "only {} statements are found", statements.len());
    for (name, sql) in statements {
        let prepared = connection.prepare(&sql);
        assert!(prepared.is_ok(), "{name}: {}\n{sql}", prepared.expect_err("an error"));
    }
}

#[test]
fn sqlite_reads_every_file_as_it_stands() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    for text in sql_files() {
        let mut batch = Batch::new(&connection, &text);
        let mut found = 0;
        while batch.next().unwrap_or_else(|error| panic!("{error}:\n{text}")).is_some() {
            found += 1;
        }
        assert_eq!(found, names(&text).count(), "each section has one statement:\n{text}");
    }
}

#[test]
fn a_section_is_a_statement_without_its_header() {
    let file = "-- Of the file.\n\n-- name: one\n-- Reads.\n-- ?1 a\nSELECT ?1\n-- why\n;\n\n-- name: one_more\nSELECT 2;";
    assert!(names(file).eq(["one", "one_more"]));
    assert_eq!(section(file, "one"), "SELECT ?1\n-- why\n");
    assert_eq!(section(file, "one_more"), "SELECT 2");
}

#[test]
#[should_panic(expected = "no statement of the file has this name")]
fn an_unknown_name_is_refused() {
    section("-- name: one\nSELECT 1;", "on");
}

#[test]
#[should_panic(expected = "two statements of a file have this name")]
fn a_doubled_name_is_refused() {
    section("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;", "one");
}

#[test]
#[should_panic(expected = "a statement ends with a semicolon")]
fn a_statement_without_an_end_is_refused() {
    section("-- name: one\nSELECT 1\n\n-- name: two\nSELECT 2;", "one");
}
