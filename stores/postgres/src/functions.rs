//! The functions of the store in the database. Their names contain a version, so that processes of two builds work side
//! by side and each calls its own. A published function never changes: a change is a new file with the next version.
//! Tests: `tests/functions.rs`.

use std::borrow::Cow;

use oncebox_core::Result;
use oncebox_core::store::Migration;

use crate::migrate::SchemaPlan;
use crate::row::get;
use crate::session::{PgSession, query};
use crate::sql::{Statements, with_values};

/// Name of the step that creates functions.
const STEP: &str = "functions";

/// All functions that this build calls: the name after the prefix, and the statement that creates the function.
const FUNCTIONS: [(&str, &str); 13] = [
    ("accept_new_v1", include_str!("../functions/accept_new_v1.sql")),
    ("accept_v1", include_str!("../functions/accept_v1.sql")),
    ("check_timeline_v1", include_str!("../functions/check_timeline_v1.sql")),
    ("drop_partition_v1", include_str!("../functions/drop_partition_v1.sql")),
    ("drop_payload_v1", include_str!("../functions/drop_payload_v1.sql")),
    ("here_v1", include_str!("../functions/here_v1.sql")),
    ("hold_v1", include_str!("../functions/hold_v1.sql")),
    ("make_partition_v1", include_str!("../functions/make_partition_v1.sql")),
    ("mark_v1", include_str!("../functions/mark_v1.sql")),
    ("park_v1", include_str!("../functions/park_v1.sql")),
    ("release_v1", include_str!("../functions/release_v1.sql")),
    ("settle_v1", include_str!("../functions/settle_v1.sql")),
    ("wait_turn_v1", include_str!("../functions/wait_turn_v1.sql")),
];

/// Returns the step that creates the functions that are not `present`. `None` if all are. `version` is that of the tables.
pub(crate) fn step(
    plan: &SchemaPlan,
    sql: &Statements,
    present: &[String],
    version: u32,
) -> Option<Migration> {
    let missing = missing(plan, present);
    if missing.is_empty() {
        return None;
    }
    let mut text = String::new();
    for (_, create) in FUNCTIONS.iter().filter(|(name, _)| missing.contains(name)) {
        text.extend([&*plan.place.render(create), "\n"]);
    }
    let start = with_values(&sql.schema_start, &[plan.lanes.to_string()]);
    text.extend([&*sql.schema_inherit_grants, ";\n", &start, ";\n"]);
    Some(Migration { version, name: STEP, sql: Cow::Owned(text) })
}

/// Returns true for the result of [`step`]. The store does not record this step: the server's catalogue lists the
/// functions.
pub(crate) fn is_step(step: &Migration) -> bool {
    step.name == STEP
}

/// Returns the functions that are not `present`, without the prefix.
fn missing(plan: &SchemaPlan, present: &[String]) -> Vec<&'static str> {
    let names = FUNCTIONS.iter().map(|(name, _)| *name);
    names.filter(|name| !present.contains(&format!("{}{name}", plan.place.prefix))).collect()
}

fn names(plan: &SchemaPlan) -> Vec<String> {
    FUNCTIONS.iter().map(|(name, _)| format!("{}{name}", plan.place.prefix)).collect()
}

/// Reads which of the functions exist.
pub(crate) async fn present(
    session: &mut PgSession,
    sql: &Statements,
    plan: &SchemaPlan,
) -> Result<Vec<String>> {
    let rows = session.rows(query(&sql.schema_functions).bind(names(plan))).await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

/// Drops the former versions of the functions and returns their names.
pub(crate) async fn drop_former(
    session: &mut PgSession,
    sql: &Statements,
    plan: &SchemaPlan,
) -> Result<Vec<String>> {
    let rows = session.rows(query(&sql.schema_former_functions).bind(names(plan))).await?;
    let mut dropped = Vec::with_capacity(rows.len());
    for row in rows {
        session.batch(get::<String>(&row, 1)?.into()).await?;
        dropped.push(get(&row, 0)?);
    }
    Ok(dropped)
}
