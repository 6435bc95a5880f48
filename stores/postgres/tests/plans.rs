//! Query plans of the hot statements: none reads a whole table that grows with the traffic.

mod fixture;
mod support;

use fixture::{accept, claim, complete_all};
use oncebox::store::Migrate as _;
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::postgres::PgListener;
use oncebox_postgres::sqlx::{
    self, AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, raw_sql,
};
use oncebox_servers::{Cluster, PostgresVersion};
use oncebox_testkit::TestClock;
use support::{Schema, StatementFile, run, statement};

/// Statements of the hot paths, the kind of their session, and the tables that they may read whole, with the reason.
const HOT: [(&str, &str, &[&str]); 32] = [
    ("accept_plain", "ingest", &[]),
    ("accept_plain_by_time", "ingest", &[]),
    ("accept_one", "ingest", &[]),
    ("accept_one_by_time", "ingest", &[]),
    ("accept_known", "ingest", &[]),
    ("accept_add_handlers", "ingest", &[]),
    ("accept_message_again", "ingest", &[]),
    ("accept_stored_order", "ingest", &[]),
    ("claim_oldest", "control", &[]),
    ("claim_all", "control", &[]),
    ("claim_few", "control", &[]),
    ("claim_suspect", "control", &[]),
    ("claim_held", "control", &[]),
    ("settle_complete", "control", &[]),
    ("settle_complete_one", "control", &[]),
    ("settle_settled_by", "control", &[]),
    ("renew", "control", &[]),
    ("mark_recall", "control", &[]),
    ("mark_record", "control", &[]),
    // For an operator, one line at a time.
    ("order_unpark", "control", &["poisoned"]),
    // At most as many rows as claims within a lease.
    ("rescue", "control", &["claim"]),
    ("rescue_forget", "control", &["claim"]),
    ("history_count_duplicates", "control", &[]),
    ("sweep_proofs", "control", &[]),
    ("sweep_again", "control", &[]),
    // A step for each handler, or a limited number of rows.
    ("sweep_marks", "control", &["mark"]),
    ("orphans", "control", &["claim", "entry", "scheduled"]),
    ("backlog", "control", &["poisoned", "entry", "scheduled"]),
    ("backfill_page", "control", &[]),
    ("backfill_hold", "control", &[]),
    ("backfill_add", "control", &[]),
    ("partition_unfinished", "control", &[]),
];

/// Functions on the hot paths, with the number of their checked statements.
const FUNCTIONS: [(&str, usize); 8] = [
    ("accept_v1", 1),
    ("accept_new_v1", 1),
    ("hold_v1", 1),
    ("settle_v1", 2),
    ("release_v1", 1),
    ("wait_turn_v1", 1),
    ("park_v1", 2),
    ("mark_v1", 1),
];

/// Tables that grow with the traffic or the backlog.
const LARGE: [&str; 8] = ["proof", "message", "entry", "scheduled", "claim", "outcome", "poisoned", "mark"];

/// The large tables, with partitions in place of partitioned tables.
const TABLES: [&str; 8] =
    ["proof", "entry", "scheduled", "claim", "poisoned", "mark", "message_1", "outcome_1"];

/// Columns that make an index condition selective: a lane or a handler alone may have all rows. One index of the
/// poisoned entries has only the few that block others.
const SELECTIVE: [&str; 7] = ["seq ", "seq)", "order_key", "digest", "claim_id", "due ", "at "];

/// Enough rows to make a full scan expensive, inserted while the statistics say that the tables are empty.
const FILL: &str = "
    CREATE TEMP TABLE n AS
    SELECT (1::bigint << 36) | (n << 6) | n % 4 AS seq, n % 4 AS lane, (n % 4)::int2 AS l,
           sha256(n::text::bytea) AS digest, 1000 + n AS at
    FROM generate_series(1::bigint, 100000) n;
    INSERT INTO @inbox (name, watermark) VALUES ('orders', -1);
    INSERT INTO @handler (inbox, key, origin) VALUES (1, 'h', 'h'), (1, 'g', 'g');
    INSERT INTO @proof SELECT seq, at, l, 1, digest, substr(digest, 1, 16), '\\x0001' FROM n;
    INSERT INTO @message SELECT seq, at, NULL, l, 1, digest, '', digest, 't', NULL, '', 'payload' FROM n;
    INSERT INTO @entry (seq, due, lane, handler) SELECT seq, at, l, 1 FROM n;
    INSERT INTO @scheduled (seq, due, not_before, crashes, lane, handler, order_key)
    SELECT seq, at, at, (seq >> 6) % 2, l, 2, CASE WHEN (seq >> 6) % 3 = 0 THEN substr(digest, 1, 16) END FROM n;
    INSERT INTO @entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id)
    SELECT seq, at, l, 2, seq, at, at, gen_random_uuid() FROM n;
    INSERT INTO @claim SELECT claim_id, lease_until, ARRAY[lane], ARRAY[handler], ARRAY[seq], ARRAY[seq] FROM @entry
    WHERE claim_id IS NOT NULL;
    INSERT INTO @mark (at, lane, digest, inbox, handler) SELECT at, l, digest, 1, 'h' FROM n;
    INSERT INTO @outcome SELECT seq, seq, at, 0, 0, 0, l, 1, 'completed', NULL FROM n;
    INSERT INTO @poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason)
    SELECT seq, seq, at, 0, 0, 0, l, 1, 'rejected' FROM n";

/// Applies the settings of the store's own sessions.
async fn apply_settings(connection: &mut PgConnection, kind: &str) {
    let settings =
        [statement("session_store"), statement(&format!("session_{kind}"))].map(|of| of.sql).join(";");
    connection.execute(raw_sql(AssertSqlSafe(settings))).await.expect("the settings of a session");
}

/// Returns the generic plan of a statement.
async fn plan(schema: &Schema, kind: &str, name: &str) -> Vec<String> {
    plan_by("EXPLAIN", schema.connect().await, schema, kind, name).await
}

/// Returns the plan from another kind of `EXPLAIN`, on a connection that may have other settings.
async fn plan_by(
    explain: &str,
    mut connection: PgConnection,
    schema: &Schema,
    kind: &str,
    name: &str,
) -> Vec<String> {
    apply_settings(&mut connection, kind).await;
    let StatementFile { sql, types, .. } = statement(name);
    let nulls = vec!["NULL"; types.len()].join(", ");
    let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
    let prepare = format!("PREPARE hot {types} AS {}", schema.sql(&sql));
    connection
        .execute(raw_sql(AssertSqlSafe(prepare)))
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let rows = connection.fetch_all(raw_sql(AssertSqlSafe(format!("{explain} EXECUTE hot ({nulls})")))).await;
    rows.expect("a plan").iter().map(|row| row.get(0)).collect()
}

/// Returns the generic plans of a function's statements, with the function's settings, in a session that joins whole
/// tables by default.
async fn plans_within(schema: &Schema, function: &str) -> Vec<Vec<String>> {
    let sql = "SELECT prosrc, proconfig, ARRAY(SELECT format_type(t, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS u (t, n) \
               ORDER BY n), proargnames FROM pg_proc WHERE oid = '@:function'::regproc";
    let sql = schema.sql(sql).replace(":function", function);
    let mut connection = schema.connect().await;
    let row = connection.fetch_one(raw_sql(AssertSqlSafe(sql))).await.expect("a function");
    apply_settings(&mut connection, "ingest").await;
    let (mut source, types): (String, Vec<String>) = (row.get(0), row.get(2));
    // Replace the longest names first: one may be the start of another.
    let names = (1..).zip(row.get::<Vec<String>, _>(3)).take(types.len());
    let mut names: Vec<(usize, String)> = names.collect();
    names.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
    for (number, name) in names {
        source = source.replace(&name, &format!("${number}"));
    }
    for setting in row.get::<Vec<String>, _>(1) {
        let (name, value) = setting.split_once('=').expect("a setting");
        let value = if name == "search_path" { value.to_owned() } else { format!("'{value}'") };
        run(&mut connection, &format!("SET {name} = {value}")).await.expect("a setting");
    }
    let nulls = vec!["NULL"; types.len()].join(", ");
    let mut plans = Vec::new();
    for statement in statements_of(&source) {
        let prepare = format!("PREPARE hot ({}) AS {statement}", types.join(", "));
        let prepared = run(&mut connection, &prepare).await;
        prepared.unwrap_or_else(|error| panic!("{function}: {error}:\n{statement}"));
        let explain = format!("EXPLAIN EXECUTE hot ({nulls})");
        let rows = connection.fetch_all(raw_sql(AssertSqlSafe(explain))).await.expect("a plan");
        plans.push(rows.iter().map(|row| row.get(0)).collect());
        run(&mut connection, "DEALLOCATE hot").await.expect("no statement");
    }
    plans
}

/// Returns the statements of a function that read tables: those with clauses, and conditions with EXISTS.
fn statements_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in source.split(';') {
        if let Some((_, condition)) = piece.split_once("IF EXISTS") {
            let (condition, _) = condition.split_once("THEN\n").expect("a condition");
            found.push(format!("SELECT EXISTS{condition}"));
        }
        if let Some(at) = piece.find("WITH ") {
            let into = [
                "INTO places, line_lanes, line_handlers, line_keys",
                "INTO places, seqs",
                "INTO home, open, before, marked, known",
            ];
            found.push(into.iter().fold(piece[at..].to_owned(), |sql, into| sql.replace(into, "")));
        }
    }
    found
}

/// Returns the tables that a plan reads whole, row by row or along an index without a condition. A partition of
/// messages counts as `message`.
fn scanned(plan: &[String]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (at, line) in plan.iter().enumerate() {
        let bound = plan.get(at + 1).is_some_and(|next| {
            next.trim_start().starts_with("Index Cond:")
                && (SELECTIVE.iter().any(|few| next.contains(few)) || line.contains("oncebox_poisoned_line"))
                // Such a condition bounds the start of a scan, but not its end.
                && !next.contains("ROW(")
        });
        let whole =
            line.contains("Seq Scan on ") || (line.contains("Index") && line.contains("Scan") && !bound);
        let name = line.split(" on ").nth(1).and_then(|from| from.split_whitespace().next());
        let Some(name) = name.filter(|_| whole).and_then(|name| name.strip_prefix("oncebox_")) else {
            continue;
        };
        let part = |table: &&str| {
            name == *table || name.strip_prefix(*table).is_some_and(|rest| rest.starts_with('_'))
        };
        found.extend(LARGE.into_iter().find(part));
    }
    found
}

/// Returns the plan of the statement that completes a claim on a handler's connection, which has its own settings.
async fn plan_of_finish(schema: &Schema) -> Vec<String> {
    let mut connection = schema.connect().await;
    let prepare = schema.sql(&statement("session_finish").sql);
    connection.execute(raw_sql(AssertSqlSafe(prepare))).await.expect("it is prepared");
    let mut finish = statement("settle_finish").sql.replace("EXECUTE", "EXPLAIN EXECUTE");
    // Any number is valid: `$1` becomes 1.
    for (parameter, value) in [("$6", format!("'{}'", uuid::Uuid::nil())), ("$", String::new())] {
        finish = finish.replace(parameter, &value);
    }
    let rows = connection.fetch_all(raw_sql(AssertSqlSafe(format!("BEGIN; {finish}")))).await;
    rows.expect("a plan").iter().map(|row| row.get(0)).collect()
}

/// Returns the hot statements that read a whole table, with their plans.
async fn wrong_plans(schema: &Schema) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, kind, allowed) in HOT {
        let plan = plan(schema, kind, name).await;
        if let Some(table) = scanned(&plan).into_iter().find(|table| !allowed.contains(table)) {
            wrong.push(format!("{name} reads all of {table}:\n{}", plan.join("\n")));
        }
    }
    for (function, count) in FUNCTIONS {
        let plans = plans_within(schema, function).await;
        assert_eq!(plans.len(), count, "{function}");
        for plan in plans {
            if let Some(table) = scanned(&plan).first() {
                wrong.push(format!("{function} reads all of {table}:\n{}", plan.join("\n")));
            }
        }
    }
    wrong
}

/// Creates tables whose statistics stay as they are.
async fn tables() -> Schema {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    schema.options().apply().await.expect("apply");
    for table in TABLES {
        schema.run(&format!("ALTER TABLE @{table} SET (autovacuum_enabled = false)")).await;
    }
    schema
}

#[tokio::test]
async fn no_hot_statement_reads_a_whole_table() {
    let schema = tables().await;
    for table in LARGE {
        schema.run(&format!("ANALYZE @{table}")).await;
    }
    // The plan was made while the table was empty.
    schema.run("VACUUM @entry").await;
    let finish = plan_of_finish(&schema).await;
    assert!(
        finish.iter().any(|line| line.contains("Index Scan using oncebox_entry_pkey")),
        "{}",
        finish.join("\n")
    );
    schema.run(FILL).await;
    let wrong = wrong_plans(&schema).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Entries that wait behind another entry are not claimable. The query uses an index without them.
    let backlog = plan(&schema, "control", "backlog").await;
    assert!(backlog.iter().any(|line| line.contains("scheduled_due")), "{}", backlog.join("\n"));
}

// The entry table is mostly empty when it is vacuumed. From then on, PostgreSQL estimates it as empty, however many
// rows are added: it uses the earlier number of rows per page.
#[tokio::test]
async fn no_hot_statement_reads_a_whole_table_that_was_vacuumed_when_it_was_empty() {
    let schema = tables().await;
    schema.run(FILL).await;
    for table in TABLES {
        schema.run(&format!("DELETE FROM @{table}")).await;
    }
    // Partitions of messages and history are dropped whole, never emptied.
    for table in TABLES.into_iter().filter(|table| !table.ends_with("_1")) {
        schema.run(&format!("VACUUM (TRUNCATE false) @{table}")).await;
    }
    let taken_for_empty = "SELECT count(*) FROM pg_class \
                           WHERE oid IN ('@entry'::regclass, '@scheduled'::regclass) AND reltuples = 0 AND relpages > 0";
    assert_eq!(schema.number(taken_for_empty).await, 2);
    let (numbers, names) = FILL.split_once("INSERT INTO @inbox").expect("the names of an inbox");
    let (_, rows) = names.split_once("'g');").expect("and of its handlers, which are still there");
    schema.run(&format!("{numbers} {rows}")).await;
    let wrong = wrong_plans(&schema).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

// The statement must test set membership with a hash table in memory; otherwise PostgreSQL would compare each
// key with the whole set. PostgreSQL decides by the estimated size of the set and by the memory that it may
// use. With statistics, the estimate is a part of all rows; without them, it is smaller.
#[tokio::test]
async fn a_sweep_looks_up_what_stays_in_memory() {
    let schema = tables().await;
    schema.run(FILL).await;
    for table in ["proof", "entry", "scheduled", "poisoned", "outcome_1"] {
        schema.run(&format!("ANALYZE @{table}")).await;
        // A hundred billion.
        let large = "UPDATE pg_class SET relpages = 1, reltuples = 100000000 WHERE oid = '@:table'::regclass";
        schema.run(&large.replace(":table", table)).await;
    }
    let mut connection = schema.connect().await;
    run(&mut connection, "SET work_mem = '64kB'").await.expect("a setting");
    let plan = plan_by("EXPLAIN (VERBOSE)", connection, &schema, "control", "sweep_proofs").await.join("\n");
    // Each `IN` of the statement.
    let (looked_up, all) = (
        plan.matches("(hashed SubPlan").count(),
        statement("sweep_proofs").sql.matches("IN (SELECT").count(),
    );
    assert_eq!(looked_up, all, "{plan}");
}

#[test]
fn a_whole_read_is_recognised() {
    let of = |plan: &str| scanned(&plan.lines().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(of("  ->  Seq Scan on oncebox_message_1 m"), ["message"]);
    assert_eq!(of("Parallel Seq Scan on oncebox_proof p  (cost=0)\n  Filter: x"), ["proof"]);
    assert_eq!(of("Index Scan using oncebox_proof_seq on oncebox_proof p\n  Filter: x"), ["proof"]);
    assert!(of("Index Scan using oncebox_proof_seq on oncebox_proof p\n  Index Cond: (seq > 1)").is_empty());
    assert_eq!(
        of("Index Scan using oncebox_entry_pkey on oncebox_entry e\n  Index Cond: (lane = 1)"),
        ["entry"]
    );
    assert!(of("Seq Scan on oncebox_meta").is_empty());
}

/// Starts a server without other writers.
fn quiet() -> Cluster {
    let settings = [("autovacuum", "off"), ("wal_level", "minimal"), ("max_wal_senders", "0")];
    let builder = settings
        .iter()
        .fold(Cluster::builder(PostgresVersion::Debian), |builder, (name, value)| builder.set(name, value));
    builder.start().expect("a server")
}

#[tokio::test]
async fn a_claim_that_finds_nothing_writes_nothing() {
    let server = quiet();
    let clock = TestClock::new();
    let store = Postgres::options(&server.url("postgres")).expect("a good URL").clock(clock.shared());
    let store = store.open().await.expect("the store opens");
    // The store notifies other processes soon after, which writes to the log, too.
    let mut listener = PgListener::connect(&server.url("postgres")).await.expect("a listener");
    listener.listen("public.oncebox_work").await.expect("it listens");
    accept(&store, "a").await;
    listener.recv().await.expect("others are told");
    complete_all(&store, "h").await;
    let mut looking = PgConnection::connect(&server.url("postgres")).await.expect("another connection");
    let mut state = async || {
        let sql = "SELECT pg_current_wal_insert_lsn()::text || ' ' || pg_snapshot_xmax(pg_current_snapshot())::text";
        sqlx::query_scalar::<_, String>(sql).fetch_one(&mut looking).await.expect("the state of the log")
    };
    // PostgreSQL may clean up rows that are read for the first time.
    assert!(claim(&store, "h", 10).await.is_empty());
    let before = state().await;
    for _ in 0..50 {
        assert!(claim(&store, "h", 10).await.is_empty());
    }
    assert_eq!(state().await, before, "an idle claim wrote to the log");
    accept(&store, "b").await;
    assert_ne!(state().await, before, "writing would have been seen");
}

#[tokio::test]
async fn payloads_are_in_no_index_and_numbers_do_not_run_out() {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    schema.options().apply().await.expect("apply");
    let of = format!("a.attrelid = c.oid AND c.relnamespace = '{}'::regnamespace", schema.name);
    let indexed = format!(
        "SELECT count(*) FROM pg_attribute a, pg_class c WHERE {of} AND c.relkind IN ('i', 'I') AND a.attname = 'payload'"
    );
    assert_eq!(schema.number(&indexed).await, 0);
    let narrow = format!(
        "SELECT count(*) FROM pg_attribute a, pg_class c WHERE {of} AND a.attname IN ('seq', 'token', 'due', 'at', 'received_at') \
         AND a.atttypid <> 'int8'::regtype AND (c.relname, a.attname) <> ('oncebox_operation', 'token')"
    );
    assert_eq!(schema.number(&narrow).await, 0);
    let counters = format!(
        "SELECT count(*) FROM pg_sequences WHERE schemaname = '{}' AND data_type::text <> 'bigint' \
         AND sequencename ~ '(counter|token|quarantine_id_seq)$'",
        schema.name
    );
    assert_eq!(schema.number(&counters).await, 0);
}

#[tokio::test]
async fn the_tables_refuse_rows_that_cannot_be() {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    schema.options().apply().await.expect("apply");
    let digest = format!("'\\x{}'", "00".repeat(32));
    let print = format!("'\\x{}'", "00".repeat(16));
    let bad = [
        (
            "a message in the wrong lane",
            format!("@message VALUES (68719476737, 0, NULL, 2, 1, {digest}, '', '', '', NULL, '', '')"),
        ),
        ("a short digest", format!("@proof VALUES (1, 0, 1, 1, '\\x00', {print}, '')")),
        ("a short fingerprint", format!("@proof VALUES (1, 0, 1, 1, {digest}, '\\x00', '')")),
        ("half a handler", format!("@proof VALUES (1, 0, 1, 1, {digest}, {print}, '\\x00')")),
        ("a lane that is none", format!("@proof VALUES (64, 0, 64, 1, {digest}, {print}, '')")),
        ("work in the wrong lane", "@entry (seq, due, lane, handler) VALUES (1, 0, 2, 1)".into()),
        (
            "fewer than no attempts",
            "@scheduled (seq, due, not_before, attempts, lane, handler) VALUES (1, 0, 0, -1, 1, 1)".into(),
        ),
        (
            "a claim without a token",
            "@entry (seq, due, lane, handler, claim_id) VALUES (1, 0, 1, 1, gen_random_uuid())".into(),
        ),
        (
            "an outcome that is none",
            "@outcome VALUES (68719476737, 1, 0, 0, 0, 0, 1, 1, 'pending', NULL)".into(),
        ),
        (
            "a second row of what all share",
            "@meta (one, lanes, partition_id, counted, timeline) VALUES (false, 1, 1, 0, '1')".into(),
        ),
        ("too many lanes", "@meta (lanes, partition_id, counted, timeline) VALUES (65, 1, 0, '1')".into()),
        ("a handler of no inbox", "@handler (inbox, key, origin) VALUES (99, 'h', 'h')".into()),
    ];
    let mut connection = schema.connect().await;
    for (what, row) in bad {
        let insert = schema.sql(&format!("INSERT INTO {row}"));
        let error = connection.execute(raw_sql(AssertSqlSafe(insert))).await.expect_err(what);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert!(matches!(code.as_deref(), Some("23514" | "23503")), "{what}: {error}");
    }
}
