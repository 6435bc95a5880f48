//! The list of cases for stores whose transactions handlers share.

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for stores whose transactions handlers share.
#[doc(hidden)]
#[macro_export]
macro_rules! transactional_tier {
    ($setup:expr) => {
        $crate::tier_cases!($setup;
            rescue {
                the_former_owner_is_fenced_off,
            }
            sweep {
                a_sweep_counts_everything_it_removes,
                marks_leave_after_their_retention,
                marks_of_another_inbox_are_left_alone,
                no_old_mark_is_left_behind,
            }
            windows {
                for_ever_is_a_window_too,
                marks_leave_by_the_window_of_their_handler,
            }
            register {
                a_handler_that_the_sweeper_does_not_know_keeps_its_window,
            }
            mark {
                the_first_mark_is_first_and_the_second_a_duplicate,
                a_mark_can_be_looked_up,
                inboxes_do_not_share_marks,
                a_mark_twice_in_one_transaction_is_a_duplicate,
                a_rollback_leaves_no_mark,
                an_open_mark_is_not_free,
                many_marks_of_one_key_have_one_first,
                a_completion_appears_with_the_commit,
                a_rollback_leaves_the_claim,
                marks_and_completions_share_a_commit,
                the_owner_may_complete_after_its_lease,
                a_stale_token_cannot_complete,
                what_is_settled_cannot_be_completed,
                what_is_completed_ignores_settlements,
                a_completion_keeps_the_counters,
                a_completion_releases_the_next_in_order,
                a_rescue_and_a_commit_have_one_winner,
            }
            accept_in {
                a_message_appears_with_the_commit,
                a_rollback_leaves_nothing,
                a_duplicate_of_a_stored_message_is_one,
                a_key_twice_in_a_transaction_is_a_duplicate,
                an_empty_batch_is_nothing,
                a_rival_of_an_open_key_is_not_first,
                a_rival_of_a_key_that_was_rolled_back_is_first,
                many_transactions_of_one_key_have_one_first,
                a_conflict_is_quarantined_with_the_transaction,
                a_conflict_within_the_transaction_is_quarantined,
                a_message_that_may_be_forgotten_is_stale,
                handlers_are_added_with_the_commit,
                handlers_are_added_within_the_transaction,
                a_delay_postpones_the_first_attempt,
                several_inboxes_share_a_transaction,
                an_ordered_message_waits_behind_earlier_ones,
                ordering_keys_go_by_the_commits,
                a_poisoned_head_blocks_what_is_accepted,
                a_lower_number_that_is_committed_late_is_claimed,
                a_message_and_a_completion_share_a_commit,
                a_lost_claim_takes_the_message_with_it,
                a_commit_without_an_answer_is_recognised,
                the_commit_wakes_workers,
            }
            quarantine {
                another_message_under_a_mark_is_in_conflict,
                a_mark_without_a_fingerprint_compares_nothing,
                a_conflict_is_seen_by_its_own_transaction,
                of_rivals_with_other_messages_none_is_a_duplicate,
                what_is_in_conflict_with_a_mark_is_quarantined,
                an_inbox_of_marks_alone_can_quarantine,
                another_message_is_not_run_inline_and_quarantined,
                once_quarantines_another_message,
            }
            result {
                a_result_comes_back_with_its_mark,
                an_erased_result_is_gone_and_its_mark_stays,
                a_mark_without_a_result_has_none,
                results_are_any_bytes,
                a_rollback_leaves_no_result,
                a_result_is_seen_by_its_own_transaction,
                a_result_is_left_once,
                a_result_needs_a_mark,
                handlers_and_inboxes_do_not_share_results,
                a_result_leaves_with_its_mark,
            }
            inline {
                a_duplicate_gets_the_result_of_the_first,
                of_duplicates_at_once_one_body_runs,
                a_deadlock_runs_the_unit_again,
                a_handler_that_always_deadlocks_is_given_up,
                an_unknown_commit_is_never_made_again,
                what_fails_leaves_neither_mark_nor_result,
            }
            order {
                an_unordered_handler_ignores_the_key_in_a_transaction,
            }
            alias {
                an_old_process_claims_what_a_new_one_accepted,
            }
            unknown {
                a_commit_is_not_made_twice,
                what_was_not_done_is_done_by_the_repeat,
            }
        );
    };
}

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for stores whose transactions several runs share.
#[doc(hidden)]
#[macro_export]
macro_rules! share_tier {
    ($setup:expr) => {
        $crate::tier_cases!($setup;
            accept_in {
                a_part_that_is_undone_takes_its_messages_with_it,
            }
            quarantine {
                a_quarantine_is_undone_with_its_transaction,
            }
            result {
                a_result_is_undone_with_its_part,
            }
            share {
                claims_that_hold_are_held,
                a_stale_claim_is_not_held,
                a_rescue_and_a_held_claim_have_one_winner,
                a_part_that_is_undone_leaves_the_others,
                what_was_undone_can_be_done_again,
                a_completion_is_undone_with_its_part,
                all_completions_appear_with_the_commit,
                nothing_is_left_of_a_transaction_that_was_dropped,
                each_completion_has_its_own_answer,
                no_claims_are_nothing,
                completions_release_the_next_in_order,
            }
            model {
                random_operations_do_what_the_model_does,
            }
        );
    };
}
