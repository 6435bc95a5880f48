//! Findings of `doctor` from the file: log, indexes, lost entries, windows, clocks. Tests: `tests/operations.rs`.

use std::time::Duration;

use oncebox_core::store::{ExamineParams, Finding, Severity};
use oncebox_core::time::Timestamp;
use oncebox_core::{ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::connect::{FileOpener, Synchronous};
use crate::error::store_error;
use crate::migrate::MIGRATIONS;
use crate::mode;
use crate::names::NameMap;
use crate::register;
use crate::register::FOREVER;
use crate::sql::SQL;

/// Log size, in bytes, that shows that checkpoints fail because a reader is always open. 256 MiB.
const LONG_LOG: u64 = 256 * 1024 * 1024;
/// Minimum pages of a file for a finding about more free pages than used ones.
const MANY_PAGES: i64 = 25_600;

pub(crate) fn examine(
    connection: &Connection,
    names: &NameMap,
    opener: &FileOpener,
    params: &ExamineParams,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = params.skew(now).into_iter().collect();
    findings.extend(times(connection, names, params, now)?);
    if opener.synchronous == Synchronous::Normal {
        findings.push(Finding::new(
            Severity::Danger,
            "synchronous_normal",
            "synchronous is normal: the last commits can be lost with the power, though their messages were acknowledged",
            "open the file with `Synchronous::Full`",
        ));
    }
    findings.extend(mode::examine(&opener.path));
    findings.extend(missing_indexes(connection)?);
    findings.extend(lost(connection)?);
    findings.extend(unending(connection, params)?);
    let pragma = |name: &str| -> Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(store_error)
    };
    let (pages, free) = (pragma("page_count")?, pragma("freelist_count")?);
    if pages > MANY_PAGES && free > pages / 2 {
        findings.push(Finding::new(
            Severity::Info,
            "free_pages",
            format!("{free} of {pages} pages of the file are free; new messages fill them first"),
            "run VACUUM while nothing else uses the file, if the disk is short",
        ));
    }
    let mut log = opener.path.clone().into_os_string();
    log.push("-wal");
    let length = std::fs::metadata(&log).map_or(0, |log| log.len());
    if length > LONG_LOG {
        findings.push(Finding::new(
            Severity::Warning,
            "long_log",
            format!("the log of the file has {length} bytes: a reader keeps it from being folded in"),
            "end the transaction that reads for so long",
        ));
    }
    Ok(findings)
}

/// Finds entries without a message: another program deleted it.
fn lost(connection: &Connection) -> Result<Option<Finding>> {
    let looked = i64::try_from(ExamineParams::LOOKED).unwrap_or(i64::MAX);
    let count = connection
        .prepare_cached(SQL.examine_lost)
        .and_then(|mut look| look.query_row([looked], |row| row.get::<_, i64>(0)))
        .map_err(store_error);
    match count {
        Ok(count) => Ok(ExamineParams::lost(count.unsigned_abs())),
        // Another check reports a missing table.
        Err(error) if error.kind() == ErrorKind::SchemaOutdated => Ok(None),
        Err(error) => Err(error),
    }
}

fn unending(connection: &Connection, params: &ExamineParams) -> Result<Option<Finding>> {
    let mut statement = connection.prepare_cached(SQL.examine_windows).map_err(store_error)?;
    let rows = statement
        .query_map(params![params.inbox.as_str(), FOREVER], |row| row.get::<_, String>(0))
        .map_err(store_error)?;
    let handlers: Vec<String> = rows.collect::<rusqlite::Result<_>>().map_err(store_error)?;
    Ok(params.unending(handlers.iter().map(String::as_str)))
}

/// Checks the stored times: the windows, and the clocks of the processes that wrote the file.
fn times(
    connection: &Connection,
    names: &NameMap,
    params: &ExamineParams,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let Some(inbox) = names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    let looked = i64::try_from(ExamineParams::LOOKED).unwrap_or(i64::MAX);
    let (late, last): (Option<i64>, Option<i64>) = connection
        .prepare_cached(SQL.examine_late)
        .and_then(|mut look| look.query_row(params![inbox.id, looked], |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(store_error)?;
    let late = late.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    let mut findings = params.windows(&register::windows(connection, inbox.id)?, late, now);
    let ahead = last.map_or(Duration::ZERO, |last| Timestamp::from_millis(last).since(now));
    if ahead > ExamineParams::SKEW {
        findings.push(Finding::new(
            Severity::Danger,
            "clock_back",
            format!("the last message was stored {ahead:?} from now: the clock went back, or another machine's is ahead"),
            "fix the clocks: leases, retries and retention of a file use the clock of the process that opens it",
        ));
    }
    Ok(findings)
}

fn missing_indexes(connection: &Connection) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut statement = connection.prepare_cached(SQL.examine_index).map_err(store_error)?;
    for step in MIGRATIONS {
        let made = step.sql.lines().filter_map(|line| line.split_once(" INDEX "));
        let names = made.filter_map(|(_, rest)| rest.split_whitespace().next());
        for name in names {
            let found: Option<i64> =
                statement.query_row([name], |row| row.get(0)).optional().map_err(store_error)?;
            if found.is_none() {
                findings.push(Finding::new(
                    Severity::Danger,
                    "index",
                    format!(
                        "the index {name} is missing; statements that need it read whole tables, or fail"
                    ),
                    "make it as the migration does",
                ));
            }
        }
    }
    Ok(findings)
}
