//! Query plans of SQLite: no statement reads a whole table that grows with the traffic.

mod support;

use std::collections::BTreeMap;

use oncebox_sqlite::rusqlite::{Connection, params_from_iter};
use support::{TestFile, statement, statements};

/// Statements that read a whole table, with the reason.
const SCANS: [(&str, &str); 38] = [
    ("accept_take_lock", "the table has one row"),
    ("admin_behind", "what another part of it has found"),
    ("admin_count_quarantine", "an operator asks, on a connection of its own"),
    ("admin_count_finished", "an operator asks, on a connection of its own"),
    ("admin_count_messages", "an operator asks, on a connection of its own"),
    ("admin_count_pending", "an operator asks, on a connection of its own"),
    ("admin_count_replayed", "an operator asks, on a connection of its own"),
    ("admin_count_running", "no more than the workers have in hand"),
    ("admin_count_tenant", "an operator asks, on a connection of its own"),
    ("admin_list", "no more than the workers have in hand, and what another part of it has found"),
    ("admin_purge_quarantine", "an operator asks, for rows that only conflicts make"),
    ("admin_show_entries", "no more than the workers have in hand"),
    ("admin_totals_tenant", "an operator asks, for rows that only conflicts make"),
    ("backlog_blocked", "a limited number of rows, which another part of it has looked for"),
    ("backlog_pending", "a limited number of rows, which another part of it has looked for"),
    ("backlog_poisoned", "a limited number of rows"),
    ("claim_peek_in_turn", "as many rows as a handler has keys"),
    ("claim_peek_suspects", "as many rows as a handler has keys"),
    ("examine_index", "as many rows as the schema has"),
    ("examine_lost", "a limited number of rows, and no more than the workers have in hand"),
    ("history_ahead", "what another part of it has found"),
    ("history_holders", "no more than the workers have in hand"),
    ("mark_inbox", "a row for each handler: its references, when a mark names a new inbox"),
    ("order_look", "one row that it brings along"),
    ("orphans_running", "no more than the workers have in hand"),
    ("orphans_waiting", "a limited number of rows, which another part of it has looked for"),
    ("owner_leave", "no more than the workers have in hand"),
    ("owner_others", "a row for each process that claims, and no more than the workers have in hand"),
    ("rescue_expired", "no more than the workers have in hand, and the owners that it is given"),
    ("settle_settled_by", "no more than the workers have in hand, and only for a repeat"),
    ("sweep_running", "no more than the workers have in hand"),
    ("writer_add_handler", "a row for each handler and key: their references, when a handler is new"),
    ("writer_add_inbox", "a row for each handler: its references, when an inbox is new"),
    ("writer_counters", "one row"),
    ("writer_handlers", "as many rows as there are handlers"),
    ("writer_inboxes", "as many rows as there are inboxes"),
    ("writer_save_counters", "one row"),
    ("writer_schema_table", "as many rows as there are tables"),
];

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a statement");
    let unbound = statement.parameter_count();
    let nulls = std::iter::repeat_n(None::<i64>, unbound);
    let steps = statement.query_map(params_from_iter(nulls), |row| row.get(3));
    steps.expect("a plan").map(|step| step.expect("a step")).collect()
}

// A client queries the progress of an operation every second, and the store keeps the table's rows for 400 days.
#[test]
fn an_operation_is_found_by_its_identity() {
    let file = TestFile::new();
    drop(file.open());
    let plan = plan(&file.connect(), &statement("operation_audit_id"));
    let found = "SEARCH oncebox_operation USING INDEX sqlite_autoindex_oncebox_operation_1 (id=?)";
    assert_eq!(plan, [found]);
}

#[test]
fn no_statement_reads_a_whole_table() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    let mut scans = BTreeMap::new();
    for (name, sql) in statements() {
        if sql.contains("CREATE TABLE") {
            continue;
        }
        // A constant row is not a table.
        let scanned: Vec<String> = plan(&connection, &sql)
            .into_iter()
            .filter(|step| step.starts_with("SCAN") && step != "SCAN CONSTANT ROW")
            .collect();
        if !scanned.is_empty() {
            scans.insert(name, scanned);
        }
    }
    for (allowed, _why) in SCANS {
        assert!(scans.remove(allowed).is_some(), "{allowed} reads no whole table: take it off the list");
    }
    assert!(scans.is_empty(), "{scans:#?}");
}

// SQLite uses a partial index only for a query that repeats its condition, and a claim must not read waiting entries.
#[test]
fn due_entries_and_lines_are_found_by_their_indexes() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    let due = "USING INDEX oncebox_entry_due (handler=? AND due<?)";
    for (name, found) in [
        ("claim_take", vec![format!("SEARCH oncebox_entry {due}")]),
        ("claim_peek", vec![format!("SEARCH oncebox_entry {due}")]),
        (
            "backlog_first",
            vec![
                "SEARCH oncebox_entry USING COVERING INDEX oncebox_entry_due (handler=? AND due<?)"
                    .to_owned(),
            ],
        ),
    ] {
        assert_eq!(plan(&connection, &statement(name)), found, "{name}");
    }
    // The query reads no parked entries to find the head of a line, nor to find the first parked entry.
    let blocked = plan(&connection, &statement("backlog_blocked"));
    let head = "USING COVERING INDEX oncebox_poisoned_head (handler=?)";
    assert!(blocked.iter().any(|step| step.ends_with(head)), "{blocked:#?}");
    let parked =
        "USING COVERING INDEX oncebox_poisoned_order (handler=? AND order_key=? AND in_line=? AND seq>?)";
    assert_eq!(blocked.iter().filter(|step| step.ends_with(parked)).count(), 2, "{blocked:#?}");
    let peek = plan(&connection, &statement("claim_peek_in_turn"));
    assert!(peek.contains(&format!("SEARCH e {due}")), "{peek:#?}");
    let waiting = "USING COVERING INDEX oncebox_entry_order (handler=? AND line=?)";
    for name in ["order_next", "order_look"] {
        let plan = plan(&connection, &statement(name));
        assert!(plan.iter().any(|step| step.ends_with(waiting)), "{plan:#?}");
        assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:#?}");
    }
}

// A statement that runs once per message creates no temporary table, which would cost more than its other
// work.
#[test]
fn what_each_message_needs_makes_no_table() {
    let file = TestFile::new();
    drop(file.open());
    let connection = file.connect();
    for name in [
        "accept_entry",
        "accept_message",
        "order_look",
        "order_begin",
        "order_next",
        "order_pass_on",
        "order_let_go",
        "order_end",
        "settle_pending",
        "settle_finish",
        "settle_outcome",
    ] {
        let explain = format!("EXPLAIN {}", statement(name));
        let mut statement = connection.prepare(&explain).expect("a statement");
        let nulls = std::iter::repeat_n(None::<i64>, statement.parameter_count());
        let codes = statement.query_map(params_from_iter(nulls), |row| row.get(1)).expect("the steps");
        let codes: Vec<String> = codes.map(|code| code.expect("a step")).collect();
        assert!(!codes.iter().any(|code| code == "OpenEphemeral"), "{name}");
    }
}
