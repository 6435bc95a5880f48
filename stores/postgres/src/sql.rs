//! The statements of the store, rendered with the configured schema and prefix. Tests: `sql/tests.rs`,
//! `tests/plans.rs`.

use std::fmt;
use std::sync::Arc;

use oncebox_core::{Error, ErrorKind, Result};

/// The longest schema name or prefix: PostgreSQL cuts names at 63 bytes, and ours are added to the prefix.
const MAX_PREFIX: usize = 32;

/// Prefix of all names in the SQL files.
const TEMPLATE_PREFIX: &str = "oncebox_";

/// Where the tables are: a schema, and what their names start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) schema: String,
    pub(crate) prefix: String,
}

impl Default for Namespace {
    fn default() -> Self {
        Self { schema: "public".into(), prefix: TEMPLATE_PREFIX.into() }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.prefix)
    }
}

impl Namespace {
    /// Refuses what is not a plain identifier: names go into statements, quoted, but never escaped.
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
    /// `oncebox_name` by the qualified name, and `"oncebox_name"` by the bare one.
    pub(crate) fn render(&self, template: &str) -> Arc<str> {
        let mut sql = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some((before, from)) = rest.split_once(TEMPLATE_PREFIX) {
            let end =
                from.find(|c: char| !(c.is_ascii_lowercase() || c == '_' || c == '%')).unwrap_or(from.len());
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
        sql.replace(":schema", &self.schema).into()
    }
}

macro_rules! statements {
    ($($name:ident: $file:literal,)*) => {
        /// Every statement, ready to be sent.
        pub(crate) struct Statements {
            /// The short ways in, and what they are when something may have been forgotten.
            pub(crate) accept_plain: [Arc<str>; 2],
            pub(crate) accept_one: [Arc<str>; 2],
            pub(crate) claim_oldest: Arc<str>,
            pub(crate) claim_all: Arc<str>,
            pub(crate) claim_suspect: Arc<str>,
            $(pub(crate) $name: Arc<str>,)*
        }

        impl Statements {
            pub(crate) fn new(place: &Namespace) -> Self {
                Self {
                    accept_plain: doubted(include_str!("../sql/accept/plain.sql"), "$19").map(|sql| place.render(&sql)),
                    accept_one: doubted(include_str!("../sql/accept/one.sql"), "$16").map(|sql| place.render(&sql)),
                    claim_oldest: place.render(&claim(include_str!("../sql/claim/oldest.sql"))),
                    claim_all: place.render(&claim(include_str!("../sql/claim/all.sql"))),
                    claim_suspect: place.render(&in_line(include_str!("../sql/claim/suspect.sql"))),
                    $($name: place.render(strip(include_str!($file))),)*
                }
            }
        }
    };
}

statements! {
    accept: "../sql/accept/accept.sql",
    accept_new: "../sql/accept/new.sql",
    accept_known: "../sql/accept/known.sql",
    accept_quarantine: "../sql/accept/quarantine.sql",
    accept_add_handlers: "../sql/accept/add_handlers.sql",
    accept_forgotten: "../sql/accept/forgotten.sql",
    accept_stored_order: "../sql/accept/stored_order.sql",
    accept_message_again: "../sql/accept/message_again.sql",
    claim_few: "../sql/claim/few.sql",
    claim_held: "../sql/claim/held.sql",
    settle: "../sql/settle/settle.sql",
    settle_complete: "../sql/settle/complete.sql",
    settle_complete_one: "../sql/settle/complete_one.sql",
    settle_settled_by: "../sql/settle/settled_by.sql",
    settle_hold: "../sql/settle/hold.sql",
    renew: "../sql/renew/renew.sql",
    rescue: "../sql/rescue/rescue.sql",
    rescue_forget: "../sql/rescue/forget.sql",
    vacuum_due: "../sql/vacuum/due.sql",
    vacuum_run: "../sql/vacuum/run.sql",
    order_lock: "../sql/order/lock.sql",
    order_wait_turn: "../sql/order/wait_turn.sql",
    order_release: "../sql/order/release.sql",
    order_unpark: "../sql/order/unpark.sql",
    mark: "../sql/mark/mark.sql",
    mark_record: "../sql/mark/record.sql",
    mark_quarantine: "../sql/mark/quarantine.sql",
    mark_recall: "../sql/mark/recall.sql",
    names_inboxes: "../sql/names/inboxes.sql",
    names_handlers: "../sql/names/handlers.sql",
    names_add_inbox: "../sql/names/add_inbox.sql",
    names_lock: "../sql/names/lock.sql",
    names_known: "../sql/names/known.sql",
    names_add_handler: "../sql/names/add_handler.sql",
    names_add_keys: "../sql/names/add_keys.sql",
    names_rename: "../sql/names/rename.sql",
    names_join: "../sql/names/join.sql",
    names_group: "../sql/names/group.sql",
    meta: "../sql/schema/meta.sql",
    schema_exists: "../sql/schema/exists.sql",
    schema_version: "../sql/schema/version.sql",
    schema_create: "../sql/schema/create.sql",
    schema_create_schema: "../sql/schema/create_schema.sql",
    partition_patience: "../sql/partition/patience.sql",
    schema_add: "../sql/schema/add.sql",
    schema_lock: "../sql/schema/lock.sql",
    recovering: "../sql/schema/recovering.sql",
    schema_waiting: "../sql/schema/waiting.sql",
    timeline_check: "../sql/timeline/check.sql",
    timeline_check_pooled: "../sql/timeline/check_pooled.sql",
    timeline_missing: "../sql/timeline/missing.sql",
    timeline_lost: "../sql/timeline/lost.sql",
    timeline_latest: "../sql/timeline/latest.sql",
    notify: "../sql/wake/notify.sql",
    orphans: "../sql/orphans/orphans.sql",
    backlog: "../sql/backlog/backlog.sql",
    backfill_page: "../sql/backfill/page.sql",
    backfill_hold: "../sql/backfill/hold.sql",
    backfill_add: "../sql/backfill/add.sql",
    sweep_begin: "../sql/sweep/begin.sql",
    sweep_go_on: "../sql/sweep/go_on.sql",
    sweep_renew: "../sql/sweep/renew_sweep.sql",
    sweep_proofs: "../sql/sweep/proofs.sql",
    sweep_again: "../sql/sweep/again.sql",
    sweep_cursor: "../sql/sweep/cursor.sql",
    sweep_set_cursor: "../sql/sweep/set_cursor.sql",
    register: "../sql/register/register.sql",
    register_forget: "../sql/register/forget.sql",
    register_set_tenants: "../sql/register/set_tenants.sql",
    register_tenants: "../sql/register/tenants.sql",
    register_windows: "../sql/register/windows.sql",
    sweep_marks: "../sql/sweep/marks.sql",
    partition_state: "../sql/partition/state.sql",
    partition_start: "../sql/partition/start.sql",
    partition_rotate: "../sql/partition/rotate.sql",
    partition_make: "../sql/partition/make.sql",
    partition_list: "../sql/partition/list.sql",
    partition_lock: "../sql/partition/lock.sql",
    partition_unfinished: "../sql/partition/unfinished.sql",
    partition_proofs: "../sql/partition/proofs.sql",
    partition_drop_payload: "../sql/partition/drop_payload.sql",
    partition_drop: "../sql/partition/drop.sql",
    partition_lock_messages: "../sql/partition/lock_messages.sql",
    partition_handlers: "../sql/partition/handlers.sql",
    order_stop: "../sql/order/stop.sql",
    order_hold: "../sql/order/hold.sql",
    order_go: "../sql/order/go.sql",
    admin_paused_keys: "../sql/admin/paused_keys.sql",
    examine_settings: "../sql/examine/settings.sql",
    examine_indexes: "../sql/examine/indexes.sql",
    examine_tables: "../sql/examine/tables.sql",
    examine_windows: "../sql/examine/windows.sql",
    examine_transactions: "../sql/examine/transactions.sql",
    examine_late: "../sql/examine/late.sql",
    examine_lost: "../sql/examine/lost.sql",
    history_attempts: "../sql/history/attempts.sql",
    history_count_duplicates: "../sql/history/count_duplicates.sql",
    history_duplicates: "../sql/history/duplicates.sql",
    history_holders: "../sql/history/holders.sql",
    history_ahead: "../sql/history/ahead.sql",
    operation_add: "../sql/operation/add.sql",
    operation_answer: "../sql/operation/answer.sql",
    operation_known: "../sql/operation/known.sql",
    operation_note: "../sql/operation/note.sql",
    operation_audit: "../sql/operation/audit.sql",
    operation_forget: "../sql/operation/forget.sql",
    admin_count: "../sql/admin/count.sql",
    admin_count_tenant: "../sql/admin/count_tenant.sql",
    admin_totals: "../sql/admin/totals.sql",
    admin_totals_tenant: "../sql/admin/totals_tenant.sql",
    admin_order: "../sql/admin/order.sql",
    admin_paused: "../sql/admin/paused.sql",
    admin_list: "../sql/admin/list.sql",
    admin_blocked: "../sql/admin/blocked.sql",
    admin_unblock: "../sql/admin/unblock.sql",
    admin_list_quarantine: "../sql/admin/list_quarantine.sql",
    admin_find: "../sql/admin/find.sql",
    admin_show_message: "../sql/admin/show_message.sql",
    admin_show_entries: "../sql/admin/show_entries.sql",
    admin_show_quarantine: "../sql/admin/show_quarantine.sql",
    admin_hold: "../sql/admin/hold.sql",
    admin_remove: "../sql/admin/remove.sql",
    admin_pending: "../sql/admin/pending.sql",
    admin_discarded: "../sql/admin/discarded.sql",
    admin_set_paused: "../sql/admin/set_paused.sql",
    erase: "../sql/erase/erase.sql",
    erase_answers: "../sql/erase/answers.sql",
    erase_bodies: "../sql/erase/bodies.sql",
    erase_set_body: "../sql/erase/set_body.sql",
    admin_purge_quarantine: "../sql/admin/purge_quarantine.sql",
}

/// A short way in without and with the look at what was forgotten, which costs every message that has no need of it.
/// The value that says by whom comes last.
fn doubted(accept: &str, by_whom: &str) -> [String; 2] {
    [include_str!("../sql/accept/no_watermark.sql"), include_str!("../sql/accept/watermark.sql")]
        .map(|watermark| strip(accept).replace(":watermark", strip(watermark)).replace(":doubted", by_whom))
}

/// The claim, with which of those found are taken.
fn claim(found: &str) -> String {
    in_line(&strip(include_str!("../sql/claim/claim.sql")).replace(":found", strip(found)))
}

/// A claim, with the look at other keys of a handler that was renamed.
fn in_line(claim: &str) -> String {
    strip(claim).replace(":first_of_line", strip(include_str!("../sql/claim/first_of_line.sql")))
}

/// Leaves out the comment a file starts with: it is for readers of the file, not for the server's log.
pub(crate) fn strip(mut sql: &str) -> &str {
    while let Some(line) = sql.strip_prefix("--") {
        sql = line.split_once('\n').map_or("", |(_, rest)| rest);
    }
    sql.trim_end()
}

#[cfg(test)]
mod tests;
