//! The files in `sql`: PostgreSQL accepts every statement, with the parameter types in its header.

mod support;

use oncebox::store::Migrate as _;
use oncebox_postgres::sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _, raw_sql};
use oncebox_servers::shared;
use support::{Schema, StatementFile, statement, statements};

/// Statements that PREPARE accepts. The server parses others, too, but resolves their names only when they run.
const PLANNED: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];

async fn every_statement_is_prepared(schema: Schema) {
    schema.options().apply().await.expect("apply");
    let mut connection = schema.connect().await;
    let statements = statements();
    assert!(statements.len() > 100, "only {} statements are found", statements.len());
    for StatementFile { name, sql, types } in statements {
        // The body of a function or block has semicolons of its own.
        let end = if sql.contains("$body$") { "$body$;\n" } else { ";\n" };
        for sql in sql.split(end).map(|sql| schema.sql(&sql.replace("SAVEPOINT @", "SAVEPOINT oncebox_"))) {
            // Comments inside a section.
            let code: Vec<_> = sql.lines().skip_while(|line| line.starts_with("--")).collect();
            let sql = code.join("\n");
            let prepared = if PLANNED.iter().any(|verb| sql.starts_with(verb)) {
                let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
                let prepare = format!("PREPARE checked {types} AS {sql}; DEALLOCATE checked");
                connection.execute(raw_sql(AssertSqlSafe(prepare))).await.map(drop)
            } else {
                connection.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await.map(drop)
            };
            assert!(prepared.is_ok(), "{name}: {}\n{sql}", prepared.expect_err("an error"));
        }
    }
}

#[tokio::test]
async fn the_oldest_server_prepares_every_statement() {
    every_statement_is_prepared(Schema::new(shared::debian_url())).await;
}

#[tokio::test]
async fn the_newest_server_prepares_every_statement() {
    every_statement_is_prepared(Schema::new(shared::newest_url())).await;
}

/// Returns a text without its line breaks and indents.
fn flat(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

// Some statements repeat most of another one. A change in one must be made in the other.
#[test]
fn statements_that_share_their_text_stay_alike() {
    for (name, parameter) in [("accept_one", "$16"), ("accept_plain", "$19")] {
        let watermark = format!(
            "( SELECT max(coalesce(h.watermark, i.watermark)) FROM unnest({parameter}::int2[]) AS f (handler) LEFT JOIN @handler h \
             ON h.id = f.handler CROSS JOIN @inbox i WHERE i.id = $2 )"
        );
        let by_time = flat(&statement(&format!("{name}_by_time")).sql);
        assert_eq!(by_time.replace(&watermark, "NULL::bigint"), flat(&statement(name).sql), "{name}");
    }
    let (all, oldest) = (flat(&statement("claim_all").sql), flat(&statement("claim_oldest").sql));
    let (before, behind) = (all.split_once("postponed AS"), all.split_once("token AS MATERIALIZED"));
    assert_eq!(before.expect("a part").0, oldest.split_once("untaken AS").expect("a part").0);
    assert_eq!(behind.expect("a part").1, oldest.split_once("token AS MATERIALIZED").expect("a part").1);
    let first_of_line = |sql: &str| -> Vec<String> {
        let ends = |clause: &str| clause.split_once(" ORDER BY").expect("an order").0.to_owned();
        sql.split("AND (e.order_key IS NULL OR NOT l.renamed").skip(1).map(ends).collect()
    };
    let clauses: Vec<_> = [all, oldest, flat(&statement("claim_suspect").sql)]
        .iter()
        .flat_map(|sql| first_of_line(sql))
        .collect();
    assert_eq!(clauses.len(), 6);
    assert!(clauses.iter().all(|clause| *clause == clauses[0]), "{clauses:#?}");
}
