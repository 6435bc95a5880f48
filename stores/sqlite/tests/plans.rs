//! Query plans of SQLite: no statement reads a whole table that grows with the traffic.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oncebox_sqlite::rusqlite::{Connection, params_from_iter};
use support::TestFile;

/// Statements that read a whole table, and why they may.
const SCANS: [(&str, &str); 37] = [
    ("admin/behind", "what another part of it has found"),
    ("admin/count_quarantine", "an operator asks, on a connection of its own"),
    ("admin/count_finished", "an operator asks, on a connection of its own"),
    ("admin/count_messages", "an operator asks, on a connection of its own"),
    ("admin/count_pending", "an operator asks, on a connection of its own"),
    ("admin/count_replayed", "an operator asks, on a connection of its own"),
    ("admin/count_running", "no more than the workers have in hand"),
    ("admin/count_tenant", "an operator asks, on a connection of its own"),
    ("admin/list", "no more than the workers have in hand, and what another part of it has found"),
    ("admin/purge_quarantine", "an operator asks, for rows that only conflicts make"),
    ("admin/show_entries", "no more than the workers have in hand"),
    ("admin/totals_tenant", "an operator asks, for rows that only conflicts make"),
    ("backlog/blocked", "a limited number of rows, which another part of it has looked for"),
    ("backlog/pending", "a limited number of rows, which another part of it has looked for"),
    ("backlog/poisoned", "a limited number of rows"),
    ("claim/peek_in_turn", "as many rows as a handler has keys"),
    ("claim/peek_suspects", "as many rows as a handler has keys"),
    ("examine/index", "as many rows as the schema has"),
    ("examine/lost", "a limited number of rows, and no more than the workers have in hand"),
    ("history/ahead", "what another part of it has found"),
    ("history/holders", "no more than the workers have in hand"),
    ("mark/inbox", "a row for each handler: its references, when a mark names a new inbox"),
    ("order/look", "one row that it brings along"),
    ("orphans/running", "no more than the workers have in hand"),
    ("orphans/waiting", "a limited number of rows, which another part of it has looked for"),
    ("owner/leave", "no more than the workers have in hand"),
    ("owner/others", "a row for each process that claims, and no more than the workers have in hand"),
    ("rescue/expired", "no more than the workers have in hand, and the owners that it is given"),
    ("settle/settled_by", "no more than the workers have in hand, and only for a repeat"),
    ("sweep/running", "no more than the workers have in hand"),
    ("writer/add_handler", "a row for each handler and key: their references, when a handler is new"),
    ("writer/add_inbox", "a row for each handler: its references, when an inbox is new"),
    ("writer/counters", "one row"),
    ("writer/handlers", "as many rows as there are handlers"),
    ("writer/inboxes", "as many rows as there are inboxes"),
    ("writer/save_counters", "one row"),
    ("writer/schema_table", "as many rows as there are tables"),
];

fn sql_files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let folders = std::fs::read_dir(root).expect("the folder of statements");
    let files = folders.flat_map(|folder| {
        std::fs::read_dir(folder.expect("a folder").path()).expect("a folder of statements")
    });
    files.map(|file| file.expect("a file").path()).collect()
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a statement");
    let unbound = statement.parameter_count();
    let nulls = std::iter::repeat_n(None::<i64>, unbound);
    let steps = statement.query_map(params_from_iter(nulls), |row| row.get(3));
    steps.expect("a plan").map(|step| step.expect("a step")).collect()
}

// A client asks for the progress of an operation every second, and its table is kept for 400 days.
#[test]
fn an_operation_is_found_by_its_identity() {
    let file = TestFile::new();
    drop(file.open());
    let plan = plan(&file.connect(), include_str!("../sql/operation/audit_id.sql"));
    let found = "SEARCH oncebox_operation USING INDEX sqlite_autoindex_oncebox_operation_1 (id=?)";
    assert_eq!(plan, [found]);
}

#[test]
fn no_statement_reads_a_whole_table() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    let mut scans = BTreeMap::new();
    for path in sql_files() {
        let sql = std::fs::read_to_string(&path).expect("a statement");
        let name: PathBuf = path.with_extension("").components().rev().take(2).collect();
        let name: PathBuf = name.components().rev().collect();
        if sql.contains("CREATE TABLE") {
            continue;
        }
        // A constant row is no table.
        let scanned: Vec<String> = plan(&connection, &sql)
            .into_iter()
            .filter(|step| step.starts_with("SCAN") && step != "SCAN CONSTANT ROW")
            .collect();
        if !scanned.is_empty() {
            scans.insert(name.display().to_string(), scanned);
        }
    }
    for (allowed, _why) in SCANS {
        assert!(scans.remove(allowed).is_some(), "{allowed} reads no whole table: take it off the list");
    }
    assert!(scans.is_empty(), "{scans:#?}");
}

// Partial indexes are used only by who says the words of their condition, and a claim must not look at those that wait.
#[test]
fn due_entries_and_lines_are_found_by_their_indexes() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    let due = "USING INDEX oncebox_entry_due (handler=? AND due<?)";
    for (sql, found) in [
        (include_str!("../sql/claim/take.sql"), vec![format!("SEARCH oncebox_entry {due}")]),
        (include_str!("../sql/claim/peek.sql"), vec![format!("SEARCH oncebox_entry {due}")]),
        (
            include_str!("../sql/backlog/first.sql"),
            vec![
                "SEARCH oncebox_entry USING COVERING INDEX oncebox_entry_due (handler=? AND due<?)"
                    .to_owned(),
            ],
        ),
    ] {
        assert_eq!(plan(&connection, sql), found, "{sql}");
    }
    // Those that are parked behind a head are not read to find it, and not to find the first of them.
    let blocked = plan(&connection, include_str!("../sql/backlog/blocked.sql"));
    let head = "USING COVERING INDEX oncebox_poisoned_head (handler=?)";
    assert!(blocked.iter().any(|step| step.ends_with(head)), "{blocked:#?}");
    let parked =
        "USING COVERING INDEX oncebox_poisoned_order (handler=? AND order_key=? AND in_line=? AND seq>?)";
    assert_eq!(blocked.iter().filter(|step| step.ends_with(parked)).count(), 2, "{blocked:#?}");
    let peek = plan(&connection, include_str!("../sql/claim/peek_in_turn.sql"));
    assert!(peek.contains(&format!("SEARCH e {due}")), "{peek:#?}");
    let waiting = "USING COVERING INDEX oncebox_entry_order (handler=? AND line=?)";
    for sql in [include_str!("../sql/order/next.sql"), include_str!("../sql/order/look.sql")] {
        let plan = plan(&connection, sql);
        assert!(plan.iter().any(|step| step.ends_with(waiting)), "{plan:#?}");
        assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:#?}");
    }
}

// What runs once for each message makes no table for itself: that costs more than the rest of such a statement.
#[test]
fn what_each_message_needs_makes_no_table() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    for sql in [
        include_str!("../sql/accept/entry.sql"),
        include_str!("../sql/accept/message.sql"),
        include_str!("../sql/order/look.sql"),
        include_str!("../sql/order/begin.sql"),
        include_str!("../sql/order/next.sql"),
        include_str!("../sql/order/pass_on.sql"),
        include_str!("../sql/order/let_go.sql"),
        include_str!("../sql/order/end.sql"),
        include_str!("../sql/settle/pending.sql"),
        include_str!("../sql/settle/finish.sql"),
        include_str!("../sql/settle/outcome.sql"),
    ] {
        let mut statement = connection.prepare(&format!("EXPLAIN {sql}")).expect("a statement");
        let nulls = std::iter::repeat_n(None::<i64>, statement.parameter_count());
        let codes = statement.query_map(params_from_iter(nulls), |row| row.get(1)).expect("the steps");
        let codes: Vec<String> = codes.map(|code| code.expect("a step")).collect();
        assert!(!codes.iter().any(|code| code == "OpenEphemeral"), "{sql}");
    }
}
