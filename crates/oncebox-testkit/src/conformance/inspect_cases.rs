//! The list of cases for stores that show what they hold.

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for stores that show what they hold.
#[doc(hidden)]
#[macro_export]
macro_rules! inspect_tier {
    ($setup:expr) => {
        $crate::tier_cases!($setup;
            accept {
                the_first_is_stored_and_the_second_is_a_duplicate,
                an_empty_batch_is_nothing,
                a_conflict_within_a_batch_is_quarantined,
                a_large_batch_is_stored_whole,
                every_handler_gets_an_entry,
                a_message_without_a_handler_is_stored_without_entries,
                a_finished_entry_is_not_added_again,
                an_entry_under_a_legacy_key_covers_the_handler,
                another_payload_under_the_key_is_quarantined,
                a_conflict_does_not_pile_up,
                first_wins_takes_a_conflict_for_a_duplicate,
                first_wins_quarantines_another_type,
                a_delay_postpones_the_first_attempt,
                inboxes_do_not_share_keys,
                a_batch_may_serve_several_inboxes,
                a_message_comes_back_whole,
            }
            claim {
                a_claim_says_what_it_is,
                only_wanted_handlers_are_claimed,
            }
            settle {
                completed_is_kept_with_its_history,
                a_retry_waits_on_the_stores_clock,
                poisoned_is_kept_with_its_reason,
                discarded_is_kept_with_its_reason,
                no_error_keeps_what_was_said_before,
                any_error_text_is_kept,
                a_claim_that_never_was_changes_nothing,
                a_stale_token_changes_nothing_after_a_rescue,
                a_stale_token_changes_nothing_after_the_next_claim,
                repeating_a_settlement_is_applied_and_changes_nothing,
                a_settlement_twice_in_a_batch_is_applied_once,
                a_repeat_is_stale_once_another_worker_claimed,
                what_is_settled_ignores_other_settlements,
                stale_settlements_in_a_batch_are_refused_singly,
                a_batch_may_mix_every_outcome,
                the_owner_may_settle_after_its_lease,
                handlers_are_settled_apart,
            }
            renew {
                the_lease_counts_from_the_renewal,
                a_stale_token_changes_nothing,
                what_is_settled_cannot_be_renewed,
                answers_come_in_order,
                a_renewal_changes_nothing_else,
            }
            rescue {
                the_rescuer_gets_the_entry_as_it_was,
                only_known_handlers_are_rescued,
                a_rescue_that_is_not_settled_is_rescued_again,
            }
            suspects {
                three_deaths_in_company_poison_nothing,
                three_deaths_alone_poison_after_growing_waits,
                explain_tells_how_a_suspect_goes_on,
                an_outcome_of_a_living_worker_clears_deaths_in_company,
                the_limit_of_crashes_is_the_handlers,
            }
            sweep {
                finished_messages_leave_after_their_retention,
                unfinished_work_is_never_swept,
                one_unfinished_handler_keeps_the_message,
                what_is_quarantined_is_never_swept,
                older_than_the_memory_is_stale,
                as_old_as_the_memory_is_stale,
                stale_messages_do_not_pile_up,
                a_known_key_is_never_stale,
                inboxes_are_swept_apart,
                pages_lead_through_everything,
                a_swept_key_can_be_used_again,
            }
            windows {
                a_message_leaves_by_the_window_of_its_handler,
                the_longest_window_of_a_message_counts,
                a_window_counts_from_the_completion_of_its_handler,
                no_window_ends_what_is_not_finished,
                without_entries_the_window_of_the_inbox_counts,
                one_sweeps_at_a_time,
                the_other_inboxes_are_swept_meanwhile,
                a_sweeper_that_died_is_followed_by_another,
                a_sweeper_that_was_overtaken_stops,
                many_sweepers_leave_nothing_behind,
            }
            register {
                the_longest_window_of_all_processes_counts,
                the_longest_window_of_the_inbox_counts,
                a_window_can_be_made_longer_at_once,
                a_window_can_be_made_shorter_after_a_day,
                what_one_handler_forgot_is_stale_for_it_alone,
                messages_without_entries_are_forgotten_by_themselves,
                what_a_former_key_forgot_is_stale_for_the_new_one,
                a_handler_is_not_given_again_what_it_forgot,
                what_is_compared_with_nothing_is_never_stale,
                a_sweep_does_not_read_history_again,
                a_large_backlog_is_forgotten_when_it_is_over,
                inboxes_register_apart,
            }
            orphans {
                an_empty_store_has_no_orphans,
                unknown_handlers_are_told_of_after_the_grace,
                the_one_that_waits_longest_comes_first,
                what_is_not_due_yet_is_not_missed,
                a_handler_that_a_process_works_for_is_no_orphan,
                what_is_finished_or_waits_for_a_person_is_no_orphan,
                retries_and_suspects_count,
                those_that_wait_for_their_turn_count,
                orphans_of_another_inbox_are_its_own,
                many_are_counted_up_to_a_limit,
            }
            backlog {
                an_empty_store_has_no_backlog,
                what_waits_is_counted_for_each_handler,
                what_is_due_later_waits_but_is_not_due,
                what_runs_or_is_finished_does_not_wait,
                retries_and_suspects_wait,
                poisoned_entries_are_counted_apart,
                those_behind_another_wait_and_are_not_due,
                what_is_held_back_is_counted_up_to_a_limit,
                the_backlog_of_another_inbox_is_its_own,
                a_large_backlog_is_counted_up_to_a_limit,
            }
            order {
                whatever_is_not_the_end_keeps_the_next_waiting,
                a_waiting_entry_shows_that_it_waits,
                a_new_message_waits_behind_a_poisoned_one,
                many_workers_keep_the_order,
            }
            line {
                a_skipped_head_lets_the_next_one_go,
                a_parked_key_is_parked_from_the_start,
                a_failing_head_is_retried_in_place,
                the_policy_counts_however_the_head_is_poisoned,
            }
            alias {
                what_a_new_process_completed_is_a_duplicate_to_an_old_one,
                a_claim_has_a_key_that_its_caller_knows,
                three_generations_of_keys_are_one_handler,
                the_newest_generation_may_come_first,
                there_is_one_entry_in_any_order_of_arrival,
            }
            rename {
                two_instances_keep_the_order,
            }
            tenant {
                an_inbox_does_not_change_its_tenants_unnoticed,
                one_of_two_tenants_settings_at_once_is_recorded,
                the_same_id_of_two_tenants_is_two_messages,
                a_tenant_comes_back_with_its_message,
            }
            concurrency {
                many_claimers_never_share_an_entry,
                many_accepts_of_one_key_have_one_first,
                many_conflicts_of_one_key_keep_one_original,
                many_repeats_of_a_settlement_count_once,
                a_sweep_and_an_accept_of_the_key_agree,
                two_sweepers_remove_each_message_once,
                a_dropped_inbox_gives_back_what_it_runs,
            }
            unknown {
                an_accept_is_recognised,
                a_suspect_claim_is_recognised,
                a_settlement_is_recognised,
                a_rescue_is_recognised,
                a_renewal_can_be_repeated,
                a_sweep_can_be_repeated,
                a_storm_of_faults_loses_and_repeats_nothing,
            }
            admin {
                an_unknown_inbox_is_empty,
                counts_are_by_handler_and_status,
                lists_are_by_status,
                a_message_is_shown_by_handler_key,
                pages_hold_every_entry_once,
                finished_entries_are_listed_page_by_page,
                what_is_quarantined_is_listed_page_by_page,
                times_are_those_of_the_store,
            }
            history {
                duplicate_counts_are_summed_up,
                a_message_without_a_handler_is_explained,
            }
            list {
                statuses_are_one_several_or_any,
                what_is_listed_is_what_is_shown,
                each_condition_counts,
                error_text_is_looked_for_as_it_is,
                a_page_that_matches_little_is_short_and_goes_on,
            }
            operations {
                of_many_conflicts_under_a_key_some_are_shown,
            }
        );
    };
}
