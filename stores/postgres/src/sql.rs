//! The statements of the store, rendered with the configured schema and prefix. Tests: `sql/tests.rs`,
//! `tests/statements.rs`, `tests/plans.rs`.

use std::fmt;
use std::sync::Arc;

use oncebox_core::{Error, ErrorKind, Result};

use crate::sections::section;

/// Maximum bytes of a schema name or prefix. PostgreSQL cuts names at 63 bytes, and the store adds its own to the
/// prefix.
const MAX_PREFIX: usize = 32;

/// Prefix of all names in the SQL files, and the schema that they name.
const TEMPLATE_PREFIX: &str = "oncebox_";
const TEMPLATE_SCHEMA: &str = "public";

/// Location of the tables: their schema and the prefix of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) schema: String,
    pub(crate) prefix: String,
}

impl Default for Namespace {
    fn default() -> Self {
        Self { schema: TEMPLATE_SCHEMA.into(), prefix: TEMPLATE_PREFIX.into() }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.prefix)
    }
}

impl Namespace {
    /// Refuses names that are not plain identifiers. Statements contain them quoted, but not escaped.
    pub(crate) fn check(&self) -> Result<()> {
        let plain = |name: &str| {
            name.len() <= MAX_PREFIX
                && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        for (what, name) in [("schema", &self.schema), ("prefix", &self.prefix)] {
            if !plain(name) {
                let rule =
                    format!("a letter or `_`, then letters, digits and `_`, {MAX_PREFIX} characters at most");
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!("`{what}` is {name:?}: it is not a plain name; use {rule}"),
                ));
            }
        }
        Ok(())
    }

    /// Returns `template` with the configured names. The templates are valid SQL for the default ones: this replaces
    /// `oncebox_name` by the qualified name, `"oncebox_name"` by the bare one, and the quoted `public` by the schema.
    pub(crate) fn render(&self, template: &str) -> Arc<str> {
        let mut sql = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some((before, from)) = rest.split_once(TEMPLATE_PREFIX) {
            let end = from
                .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '%'))
                .unwrap_or(from.len());
            let (name, behind) = from.split_at(end);
            sql.push_str(before);
            if before.ends_with('"') {
                sql.extend([&self.prefix, name]);
            } else {
                sql.extend(["\"", &self.schema, "\".\"", &self.prefix, name, "\""]);
            }
            rest = behind;
        }
        sql.push_str(rest);
        for quote in ['"', '\''] {
            sql = sql.replace(
                &format!("{quote}{TEMPLATE_SCHEMA}{quote}"),
                &format!("{quote}{}{quote}", self.schema),
            );
        }
        sql.into()
    }
}

macro_rules! statements {
    ($($file:literal: $($name:ident),+;)*) => {
        /// All statements with table names, ready to send.
        pub(crate) struct Statements {
            $($(pub(crate) $name: Arc<str>,)+)*
        }

        impl Statements {
            pub(crate) fn new(place: &Namespace) -> Self {
                Self {
                    $($($name: place.render(const { section(include_str!($file), stringify!($name)) }),)+)*
                }
            }
        }
    };
}

macro_rules! fixed_statements {
    ($($file:literal: $($name:ident),+;)*) => {
        /// The statements that contain no table names, or whose text the caller completes.
        pub(crate) struct FixedStatements {
            $($(pub(crate) $name: &'static str,)+)*
        }

        pub(crate) const FIXED: FixedStatements = FixedStatements {
            $($($name: const { section(include_str!($file), stringify!($name)) },)+)*
        };
    };
}

fixed_statements! {
    "../sql/mark.sql": mark_within;
    "../sql/schema.sql": schema_grant_vacuum, schema_grants, schema_recovering;
    "../sql/session.sql":
        session_control, session_finish, session_handlers, session_hold_process, session_ingest, session_process,
        session_reads, session_store, session_wakeups;
    "../sql/settle.sql": settle_finish;
    "../sql/share.sql": share_next, share_savepoint, share_undo;
    "../sql/transaction.sql":
        transaction_begin, transaction_begin_read, transaction_begin_store, transaction_chain,
        transaction_commit, transaction_probe, transaction_rollback;
}

statements! {
    "../sql/accept.sql":
        accept_one, accept_one_by_time, accept_new, accept_plain, accept_plain_by_time, accept,
        accept_add_handlers, accept_forgotten, accept_known, accept_message_again, accept_open,
        accept_quarantine, accept_stored_order, accept_unordered;
    "../sql/admin.sql":
        admin_blocked, admin_count, admin_count_tenant, admin_discarded, admin_find, admin_hold,
        admin_list, admin_list_quarantine, admin_order, admin_paused, admin_paused_keys, admin_pending,
        admin_purge_quarantine, admin_remove, admin_set_paused, admin_show_entries, admin_show_message,
        admin_show_quarantine, admin_totals, admin_totals_tenant, admin_unblock;
    "../sql/backfill.sql": backfill_add, backfill_hold, backfill_page;
    "../sql/backlog.sql": backlog;
    "../sql/claim.sql": claim_few, claim_all, claim_oldest, claim_suspect, claim_held;
    "../sql/erase.sql": erase, erase_answers, erase_bodies, erase_set_body;
    "../sql/examine.sql":
        examine_indexes, examine_late, examine_lost, examine_settings, examine_tables,
        examine_transactions, examine_windows;
    "../sql/history.sql":
        history_ahead, history_attempts, history_count_duplicates, history_duplicates, history_holders;
    "../sql/mark.sql": mark, mark_quarantine, mark_recall, mark_record;
    "../sql/names.sql":
        names_add_handler, names_add_inbox, names_add_keys, names_group, names_handlers, names_inboxes,
        names_join, names_known, names_lock, names_rename;
    "../sql/operation.sql":
        operation_add, operation_answer, operation_audit, operation_forget, operation_known,
        operation_note;
    "../sql/order.sql":
        order_go, order_hold, order_lock, order_release, order_stop, order_unpark, order_wait_turn;
    "../sql/orphans.sql": orphans;
    "../sql/partition.sql":
        partition_drop, partition_drop_payload, partition_handlers, partition_list, partition_lock,
        partition_lock_messages, partition_make, partition_patience, partition_proofs, partition_rotate,
        partition_start, partition_state, partition_unfinished;
    "../sql/register.sql":
        register, register_forget, register_set_tenants, register_tenants, register_windows;
    "../sql/renew.sql": renew;
    "../sql/rescue.sql": rescue, rescue_forget;
    "../sql/schema.sql":
        schema_add, schema_create, schema_create_schema, schema_exists, schema_former_functions,
        schema_functions, schema_inherit_grants, schema_lock, schema_meta, schema_start, schema_version,
        schema_waiting;
    "../sql/settle.sql": settle, settle_complete, settle_complete_one, settle_hold, settle_settled_by;
    "../sql/sweep.sql":
        sweep_again, sweep_begin, sweep_cursor, sweep_go_on, sweep_marks, sweep_open_for, sweep_proofs, sweep_renew,
        sweep_set_cursor;
    "../sql/timeline.sql": timeline_check, timeline_latest, timeline_lost, timeline_missing;
    "../sql/vacuum.sql": vacuum_due, vacuum_run;
    "../sql/wake.sql": wake_notify;
}

/// Replaces the parameters of a statement by values, for SQL that is sent as text. A value is a number, `NULL` or
/// quoted.
pub(crate) fn with_values(sql: &str, values: &[String]) -> String {
    // Replace the last one first: `$1` is the start of `$10`.
    let numbered = (1..).zip(values).collect::<Vec<(usize, _)>>();
    numbered
        .iter()
        .rev()
        .fold(sql.to_owned(), |sql, (number, value)| sql.replace(&format!("${number}"), value))
}

#[cfg(test)]
mod tests;
