//! The schema and its version. Tests: `tests/migrate.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use oncebox_core::store::Migration;
use oncebox_core::{Error, ErrorKind, Result};

use crate::db::lock_number;
use crate::error::GRANTS;
use crate::functions;
use crate::row::get;
use crate::session::{PgSession, Sessions, query};
use crate::sql::{Namespace, Statements, with_values};

/// All migrations of the tables, in order: version, name, and SQL with template names. Migrations are only added.
/// Version 1 belongs to unpublished builds.
const STEPS: &[(u32, &str, &str)] = &[(2, "inbox", include_str!("../migrations/0002_inbox.sql"))];

/// CHECK constraints of the four tables that every message uses. `checks(true)` adds them with the tables.
const CHECKS: &str = include_str!("../migrations/checks.sql");

/// Settings of the tables.
#[derive(Clone, Debug)]
pub(crate) struct SchemaPlan {
    pub(crate) place: Namespace,
    pub(crate) lanes: i16,
    pub(crate) checks: bool,
}

impl SchemaPlan {
    /// Returns all migrations of the tables, with the configured names.
    pub(crate) fn steps(&self) -> Vec<Migration> {
        let render = |sql: &str| self.place.render(sql);
        let mut steps: Vec<_> = STEPS
            .iter()
            .map(|(version, name, sql)| Migration {
                version: *version,
                name,
                sql: Cow::Owned(render(sql).to_string()),
            })
            .collect();
        // Add the checks with the tables: later, PostgreSQL would read every row to validate them.
        if let (true, Some(first)) = (self.checks, steps.first_mut()) {
            first.sql.to_mut().push_str(&render(CHECKS));
        }
        steps
    }
}

/// Returns the SQL that [`apply`] runs on an empty database, as one text.
pub(crate) fn whole(plan: &SchemaPlan) -> String {
    let statements = Statements::new(&plan.place);
    let mut sql = format!("{};\n{};\n", statements.schema_create_schema, statements.schema_create);
    for step in plan.steps() {
        let values = [step.version.to_string(), format!("'{}'", step.name)];
        let add = with_values(&statements.schema_add, &values);
        sql.extend([format!("\n-- Version {}: {}\n{}\n{add};\n", step.version, step.name, step.sql)]);
    }
    if let Some(step) = functions::step(plan, &statements, &[], latest(plan)) {
        sql.extend(["\n-- Functions\n", &*step.sql]);
    }
    sql
}

/// Returns the latest version of the tables that this build knows.
fn latest(plan: &SchemaPlan) -> u32 {
    plan.steps().last().map_or(0, |last| last.version)
}

/// Returns the version of the schema, and true if there is a schema to put it in.
async fn look(session: &mut PgSession, sql: &Statements) -> Result<(u32, bool)> {
    let rows = session.rows(query(&sql.schema_exists)).await?;
    let Some(row) = rows.first() else { return Ok((0, false)) };
    let (table, schema) = (get::<bool>(row, 0)?, get::<bool>(row, 1)?);
    if !table {
        return Ok((0, schema));
    }
    let rows = session.rows(query(&sql.schema_version)).await?;
    let version = rows.first().map_or(Ok(0), |row| get::<i32>(row, 0))?;
    Ok((version.unsigned_abs(), schema))
}

pub(crate) async fn current(sessions: &Sessions, sql: &Statements) -> Result<u32> {
    let mut session = sessions.single().await?;
    let (version, _) = look(&mut session, sql).await?;
    session.end().await?;
    Ok(version)
}

/// Returns the missing steps. Returns an error if the schema is newer than this build, or of an unpublished build.
pub(crate) async fn pending(
    sessions: &Sessions,
    sql: &Statements,
    plan: &SchemaPlan,
) -> Result<Vec<Migration>> {
    let mut session = sessions.single().await?;
    let (version, _) = look(&mut session, sql).await?;
    let present = functions::present(&mut session, sql, plan).await?;
    session.end().await?;
    missing(version, &present, sql, plan)
}

/// Returns the steps that are missing on top of version `current`, and the step that creates the functions that are not `present`.
fn missing(current: u32, present: &[String], sql: &Statements, plan: &SchemaPlan) -> Result<Vec<Migration>> {
    let steps = plan.steps();
    let known = latest(plan);
    if current > known {
        let what =
            format!("the tables {} have schema version {current}, this build knows {known}", plan.place);
        return Err(Error::new(ErrorKind::SchemaTooNew, what));
    }
    if current != 0 && steps.first().is_some_and(|first| current < first.version) {
        let what = format!(
            "the tables {}* have schema version {current} of an unpublished build, which this build cannot read; use a new schema or \
             another prefix",
            plan.place
        );
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    }
    let functions = functions::step(plan, sql, present, known);
    Ok(steps.into_iter().filter(|step| step.version > current).chain(functions).collect())
}

/// Checks that nothing is missing.
pub(crate) async fn check(sessions: &Sessions, sql: &Statements, plan: &SchemaPlan) -> Result<()> {
    match pending(sessions, sql, plan).await?.first() {
        None => Ok(()),
        Some(step) => {
            let lacking = if functions::is_step(step) {
                "functions that this build calls".to_owned()
            } else {
                format!("schema version {} ({})", step.version, step.name)
            };
            let what = format!(
                "the tables {}* lack {lacking}; their owner runs `oncebox migrate apply`, in Rust `PostgresOptions::apply`, or what \
                 `oncebox migrate print` shows",
                plan.place
            );
            Err(Error::new(ErrorKind::SchemaOutdated, what))
        }
    }
}

/// Applies missing steps, in one transaction and under a lock. Two processes that start at the same time apply them
/// once.
pub(crate) async fn apply(
    sessions: &Sessions,
    sql: &Statements,
    plan: &SchemaPlan,
) -> Result<Vec<Migration>> {
    // Check first without a lock, and without the right to change the schema.
    if pending(sessions, sql, plan).await?.is_empty() {
        return Ok(Vec::new());
    }
    let made = match make(sessions, sql, plan).await {
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::CommitUnknown) => {
            Err(waits_for_standby(sessions, sql)
                .await
                .map_or(error.to_shared(), |cause| Error::new(error.kind(), cause).caused_by(error)))
        }
        made => made,
    };
    made.map_err(|error| match error.kind() {
        ErrorKind::InvalidConfig | ErrorKind::Denied => {
            let what = format!(
                "the tables {}* are not there, or not up to date, and could not be made; a role that may CREATE there runs `oncebox \
                 migrate apply` first: {}",
                plan.place,
                // Omit the advice for a role that only uses the tables.
                error.what().strip_suffix(GRANTS).unwrap_or(error.what())
            );
            Error::new(ErrorKind::InvalidConfig, what)
        }
        _ => error,
    })
}

/// Explains an error if commits wait for a standby: then a commit gets no answer, and another process waits for a lock.
async fn waits_for_standby(sessions: &Sessions, sql: &Statements) -> Option<String> {
    let mut session = sessions.look().await.ok()?;
    let rows = session.rows(query(&sql.schema_waiting)).await.ok()?;
    session.end().await.ok()?;
    Some(standby_missing(&get::<String>(rows.first()?, 0).ok()?))
}

/// Explains that commits wait for synchronous replication.
pub(crate) fn standby_missing(names: &str) -> String {
    format!(
        "a commit waits for synchronous replication: no standby of synchronous_standby_names = '{names}' confirms it; start the standby, or \
         take it out of the setting and reload the server"
    )
}

async fn make(sessions: &Sessions, sql: &Statements, plan: &SchemaPlan) -> Result<Vec<Migration>> {
    let mut session = sessions.transaction().await?;
    session.rows(query(&sql.schema_lock).bind(lock(plan))).await?;
    let (version, schema) = look(&mut session, sql).await?;
    let present = functions::present(&mut session, sql, plan).await?;
    let missing = missing(version, &present, sql, plan)?;
    if !schema {
        session.batch(Arc::clone(&sql.schema_create_schema)).await?;
    }
    session.batch(Arc::clone(&sql.schema_create)).await?;
    for step in &missing {
        session.batch(step.sql.as_ref().into()).await?;
        if functions::is_step(step) {
            continue;
        }
        let version = i32::try_from(step.version).unwrap_or(i32::MAX);
        session.run(query(&sql.schema_add).bind(version).bind(step.name)).await?;
    }
    session.end().await?;
    Ok(missing)
}

/// Drops the former versions of the functions, in one transaction and under the lock of migrations.
pub(crate) async fn drop_former_functions(
    sessions: &Sessions,
    sql: &Statements,
    plan: &SchemaPlan,
) -> Result<Vec<String>> {
    let mut session = sessions.transaction().await?;
    session.rows(query(&sql.schema_lock).bind(lock(plan))).await?;
    let dropped = functions::drop_former(&mut session, sql, plan).await?;
    session.end().await?;
    Ok(dropped)
}

/// Number of the lock that lets one process at a time migrate.
fn lock(plan: &SchemaPlan) -> i64 {
    lock_number(&[b"migrate", plan.place.schema.as_bytes(), plan.place.prefix.as_bytes()])
}
