//! The statements of the store. Tests: `tests/statements.rs`, `tests/plans.rs`.

use crate::sections::section;

macro_rules! statements {
    ($($file:literal: $($name:ident),+;)*) => {
        /// All statements, by the names of their sections.
        pub(crate) struct SqliteStatements {
            $($(pub(crate) $name: &'static str,)+)*
        }

        /// The statements of the files in `sql`.
        pub(crate) static SQL: SqliteStatements = SqliteStatements {
            $($($name: const { section(include_str!($file), stringify!($name)) },)+)*
        };
    };
}

statements! {
    "../sql/accept.sql": accept_add_handlers, accept_begin_part, accept_end_part, accept_entry, accept_known, accept_message, accept_order, accept_quarantine, accept_take_lock, accept_undo_part;
    "../sql/admin.sql":
        admin_add_outcome, admin_behind, admin_blocked, admin_count_finished, admin_count_messages,
        admin_count_pending, admin_count_poisoned, admin_count_quarantine, admin_count_replayed,
        admin_count_running, admin_count_tenant, admin_list, admin_list_quarantine, admin_paused_keys,
        admin_purge_quarantine, admin_remove_pending, admin_remove_poisoned, admin_set_paused,
        admin_show_entries, admin_show_message, admin_show_quarantine, admin_totals_tenant,
        admin_unblock;
    "../sql/backfill.sql": backfill_page;
    "../sql/backlog.sql": backlog_blocked, backlog_first, backlog_pending, backlog_poisoned;
    "../sql/checkpoint.sql": checkpoint_truncate;
    "../sql/claim.sql":
        claim_held, claim_peek, claim_peek_in_turn, claim_peek_suspects, claim_remove, claim_remove_one,
        claim_take, claim_take_one;
    "../sql/erase.sql":
        erase_answers, erase_bodies, erase_marks, erase_message, erase_outcomes, erase_quarantine,
        erase_set_answer, erase_set_body;
    "../sql/examine.sql": examine_index, examine_late, examine_lost, examine_windows;
    "../sql/history.sql":
        history_ahead, history_attempt, history_attempts, history_count_duplicates,
        history_delete_duplicates, history_duplicates, history_forget_attempts, history_holders;
    "../sql/mark.sql": mark, mark_fingerprint, mark_inbox, mark_recall, mark_record;
    "../sql/operation.sql":
        operation_add, operation_audit, operation_audit_id, operation_audit_key, operation_audit_parent,
        operation_forget, operation_known, operation_note;
    "../sql/order.sql":
        order_begin, order_end, order_go, order_let_go, order_look, order_next, order_park,
        order_park_remove, order_pass_on, order_stop, order_stopped, order_unpark, order_unpark_begin,
        order_unpark_remove, order_wait_turn;
    "../sql/orphans.sql": orphans_oldest, orphans_running, orphans_waiting;
    "../sql/owner.sql": owner_enter, owner_leave, owner_others, owner_own;
    "../sql/proof.sql": proof_find, proof_forget, proof_merge, proof_tail;
    "../sql/register.sql":
        register, register_forget, register_set_tenants, register_tenants, register_windows;
    "../sql/renew.sql": renew;
    "../sql/rescue.sql": rescue_expired, rescue_take_over;
    "../sql/settle.sql":
        settle_carried, settle_finish, settle_handler_id, settle_outcome, settle_pending,
        settle_poisoned, settle_settled_by;
    "../sql/share.sql": share_hold, share_release, share_rollback, share_savepoint;
    "../sql/sweep.sql":
        sweep_candidate, sweep_candidates, sweep_cursor, sweep_delete_cursors, sweep_ends,
        sweep_mark_handler, sweep_marks, sweep_message, sweep_outcomes, sweep_running, sweep_set_cursor,
        sweep_set_sweeper, sweep_sweeper, sweep_unfinished;
    "../sql/transaction.sql":
        transaction_begin, transaction_begin_read, transaction_commit, transaction_rollback;
    "../sql/writer.sql":
        writer_add_handler, writer_add_inbox, writer_add_key, writer_counters, writer_handlers,
        writer_inboxes, writer_join_handler, writer_rename_handler, writer_save_counters,
        writer_schema_add, writer_schema_create, writer_schema_table, writer_schema_version,
        writer_set_handler_watermark, writer_set_watermark;
}
