//! Findings of `doctor` from the server: settings, indexes, dead rows, old transactions, failovers. Tests:
//! `tests/operations.rs`.

use std::time::Duration;

use oncebox_core::Result;
use oncebox_core::store::{ExamineParams, Finding, Severity};
use oncebox_core::time::Timestamp;

use crate::db::{Db, FOREVER};
use crate::migrate::{SchemaPlan, standby_missing};
use crate::register;
use crate::row::get;
use crate::session::{PgSession, query};
use crate::timeline::failovers;

/// Minimum dead rows of a finding. A table with more dead rows than live rows slows every reader.
const DEAD: i64 = 100_000;
/// Maximum failovers per report.
const FAILOVERS: i64 = 10;

pub(crate) async fn examine(db: &Db, plan: &SchemaPlan, params: &ExamineParams) -> Result<Vec<Finding>> {
    // Runs before it takes a connection: a caller that holds one must not wait for another.
    let inbox = db.known_inbox(&params.inbox).await?;
    let mut session = db.reads().await?;
    let mut findings = server(db, &mut session, params).await?;
    if let Some(inbox) = inbox {
        findings.extend(windows(db, &mut session, inbox, params).await?);
    }
    findings.extend(indexes(db, &mut session, plan).await?);
    findings.extend(tables(db, &mut session).await?);
    findings.extend(transactions(db, &mut session, params).await?);
    findings.extend(unending(db, &mut session, params).await?);
    findings.extend(waiting(db, &mut session).await?);
    findings.extend(lost(db, &mut session).await?);
    for failover in failovers(db, &mut session, FAILOVERS).await? {
        findings.extend(failover.finding(params.now));
    }
    session.end().await?;
    Ok(findings)
}

/// Checks the server's settings and clock.
async fn server(db: &Db, session: &mut PgSession, params: &ExamineParams) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for row in session.rows(query(&db.sql.examine_settings)).await? {
        let (name, value): (&str, &str) = (get(&row, 0)?, get(&row, 1)?);
        let finding = match (name, value) {
            ("fsync", "off") => Finding::new(
                Severity::Danger,
                "fsync_off",
                "fsync is off: a crash of the machine can lose or damage what was acknowledged",
                "set fsync = on",
            ),
            ("full_page_writes", "off") => Finding::new(
                Severity::Danger,
                "full_page_writes_off",
                "full_page_writes is off: a crash of the machine can damage tables",
                "set full_page_writes = on, unless the file system writes pages whole",
            ),
            ("synchronous_commit", "off") => Finding::new(
                Severity::Warning,
                "synchronous_commit_off",
                "synchronous_commit is off: the store switches it on for itself and for handlers' transactions, but what `once` marks \
                 on the caller's own connection can be lost in a crash",
                "set synchronous_commit = on for the service's role",
            ),
            ("autovacuum", "off") => Finding::new(
                Severity::Danger,
                "autovacuum_off",
                "autovacuum is off: dead rows of the hot table are never removed, and claims become slow",
                "set autovacuum = on",
            ),
            ("clock", millis) => {
                let theirs = Timestamp::from_millis(millis.parse().unwrap_or_default());
                let Some(skew) = params.skew(theirs) else { continue };
                skew
            }
            _ => continue,
        };
        findings.push(finding);
    }
    Ok(findings)
}

/// Compares the registered windows with the latest redelivery.
async fn windows(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
    params: &ExamineParams,
) -> Result<Vec<Finding>> {
    let (registered, now) = register::registered(db, session, inbox).await?;
    let lanes = db.all_lanes();
    let looked = i64::try_from(ExamineParams::LOOKED.div_ceil(lanes.len().max(1))).unwrap_or(i64::MAX);
    let rows = session.rows(query(&db.sql.examine_late).bind(inbox).bind(lanes).bind(looked)).await?;
    let late = rows.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
    let late = late.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    Ok(params.windows(&registered, late, now))
}

/// Finds missing or invalid indexes.
async fn indexes(db: &Db, session: &mut PgSession, plan: &SchemaPlan) -> Result<Vec<Finding>> {
    let mut wanted: Vec<String> = Vec::new();
    for step in plan.steps() {
        let made = step.sql.lines().filter_map(|line| line.split_once(" INDEX "));
        wanted.extend(made.filter_map(|(_, rest)| rest.split('"').nth(1)).map(str::to_owned));
    }
    let mut findings = Vec::new();
    let question = query(&db.sql.examine_indexes).bind(plan.place.schema.clone()).bind(wanted);
    for row in session.rows(question).await? {
        let (name, missing): (&str, bool) = (get(&row, 0)?, get(&row, 1)?);
        let state = if missing { "missing" } else { "not valid: it was built half" };
        findings.push(Finding::new(
            Severity::Danger,
            "index",
            format!("the index {name} is {state}; statements that need it read whole tables"),
            format!(
                "make it as the migration does (`REINDEX INDEX CONCURRENTLY {name}` if it is only invalid)"
            ),
        ));
    }
    Ok(findings)
}

/// Finds commits that wait for a standby.
async fn waiting(db: &Db, session: &mut PgSession) -> Result<Option<Finding>> {
    let rows = session.rows(query(&db.sql.schema_waiting)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let fix =
        "if it lasts, start the standby, or take it out of synchronous_standby_names and reload the server";
    let what = standby_missing(get(row, 0)?);
    Ok(Some(Finding::new(Severity::Warning, "commits_wait_for_standby", what, fix)))
}

/// Finds windows without an end.
async fn unending(db: &Db, session: &mut PgSession, params: &ExamineParams) -> Result<Option<Finding>> {
    let question = query(&db.sql.examine_windows).bind(params.inbox.as_str().to_owned()).bind(FOREVER);
    let rows = session.rows(question).await?;
    let handlers: Vec<&str> = rows.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    Ok(params.unending(handlers))
}

/// Finds entries without a message.
async fn lost(db: &Db, session: &mut PgSession) -> Result<Option<Finding>> {
    let looked = i64::try_from(ExamineParams::LOOKED).unwrap_or(i64::MAX);
    let rows = session.rows(query(&db.sql.examine_lost).bind(looked)).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
    Ok(ExamineParams::lost(count.unsigned_abs()))
}

/// Finds tables with more dead rows than live rows.
async fn tables(db: &Db, session: &mut PgSession) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for row in session.rows(query(&db.sql.examine_tables).bind(DEAD)).await? {
        let (name, dead, living): (&str, i64, i64) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        findings.push(Finding::new(
            Severity::Warning,
            "dead_rows",
            format!("{name} has {dead} dead rows beside {living} living ones"),
            "see whether a long transaction keeps vacuum from removing them, or vacuum the table by hand",
        ));
    }
    Ok(findings)
}

/// Finds transactions that keep vacuum from removing dead rows.
async fn transactions(db: &Db, session: &mut PgSession, params: &ExamineParams) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let long = i64::try_from(params.long_transaction.as_secs()).unwrap_or(i64::MAX);
    for row in session.rows(query(&db.sql.examine_transactions).bind(long)).await? {
        let (what, seconds): (&str, i64) = (get(&row, 0)?, get(&row, 1)?);
        findings.push(Finding::new(
            Severity::Warning,
            "long_transaction",
            format!("{what} holds back the removal of dead rows since {seconds} seconds"),
            "end it, or find out why it never ends",
        ));
    }
    Ok(findings)
}
