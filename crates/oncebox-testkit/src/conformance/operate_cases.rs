//! The list of cases for stores that operators change.

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for stores that operators change.
#[doc(hidden)]
#[macro_export]
macro_rules! operate_tier {
    ($setup:expr) => {
        $crate::tier_cases!($setup;
            claim {
                a_paused_handler_gives_nothing,
                keys_that_were_apart_are_paused_by_their_own_name,
                pausing_leaves_what_runs,
                inboxes_do_not_share_entries,
            }
            rescue {
                a_paused_handler_is_still_rescued,
            }
            suspects {
                a_paused_handler_gives_no_suspect,
            }
            sweep {
                a_replayed_entry_keeps_the_message,
                the_memory_never_moves_back,
            }
            windows {
                a_replayed_entry_has_its_window_again,
            }
            register {
                what_a_sweep_passed_leaves_later,
            }
            backlog {
                what_poisoned_entries_hold_back_is_counted,
                a_paused_key_is_not_blocked,
            }
            backfill {
                an_empty_store_has_nothing_to_backfill,
                a_new_handler_gets_what_is_stored,
                again_it_adds_nothing,
                an_entry_under_a_legacy_key_is_one,
                other_types_are_passed_over,
                another_inbox_gets_nothing,
                it_goes_on_where_it_was,
                order_is_kept,
                older_ones_go_before_one_that_waits,
                one_that_runs_is_waited_for,
                a_parked_key_parks_what_is_backfilled,
                a_backfilled_message_stays,
                what_its_handler_forgot_is_not_backfilled,
                everything_goes_on_meanwhile,
            }
            order {
                an_unordered_handler_ignores_the_key,
                a_poisoned_head_blocks_until_it_is_discarded,
                a_poisoned_head_goes_first_when_it_is_retried,
                discarding_one_that_waits_lets_the_others_be,
                discarding_the_head_releases_the_next,
                a_replay_goes_before_what_still_waits,
                a_replay_waits_for_what_already_runs,
            }
            line {
                a_skipped_head_waits_its_turn_when_it_is_retried,
                a_parked_key_comes_back_in_order,
                a_parked_entry_waits_for_its_head,
                a_parked_entry_keeps_its_delay,
                one_that_runs_is_parked_when_it_would_wait,
                an_unblocked_key_goes_on,
                only_what_holds_others_back_is_unblocked,
                each_poisoned_one_is_unblocked_by_itself,
                blocked_keys_are_listed_oldest_first,
            }
            alias {
                a_backfill_adds_nothing_to_what_another_key_covers,
                a_pause_is_of_all_keys,
                operators_see_the_newest_key_and_may_use_any,
            }
            rename {
                a_poisoned_one_under_a_former_key_blocks_unless_it_is_skipped,
                a_suspect_waits_for_an_earlier_one_under_a_former_key,
                a_paused_former_key_keeps_the_new_ones_waiting,
            }
            tenant {
                what_is_quarantined_alone_has_its_tenant,
                a_handler_added_later_keeps_the_order_of_its_tenant,
                counts_and_lists_are_by_tenant,
                a_replay_is_counted_once_for_its_tenant,
                another_tenant_is_neither_shown_nor_touched,
                what_is_quarantined_is_listed_by_tenant,
                blocked_keys_are_listed_by_tenant,
                inboxes_do_not_share_tenants,
                tenants_are_compared_letter_by_letter,
            }
            edges {
                every_edge_is_walked,
                only_what_is_pending_can_be_claimed,
            }
            concurrency {
                a_discard_and_a_claim_have_one_winner,
                many_replays_make_one_generation,
            }
            admin {
                inboxes_are_shown_apart,
                the_unknown_is_not_found,
                a_retry_forgets_attempts_and_crashes,
                a_discard_ends_what_waits_or_is_poisoned,
                a_replay_is_a_new_generation,
                what_is_listed_can_be_acted_on,
                a_replayed_entry_is_counted_once,
                what_is_not_allowed_is_refused_and_changes_nothing,
                the_latest_generation_decides,
                pauses_are_listed,
                a_purge_removes_old_quarantined_messages_only,
                quarantined_messages_are_counted_and_listed_by_reason,
            }
            history {
                failed_attempts_are_remembered,
                history_leaves_with_its_message,
                the_history_of_one_entry_is_bounded,
                why_an_entry_does_not_run,
                why_an_entry_waits_for_another,
                a_conflict_is_part_of_the_story,
            }
            list {
                the_latest_generation_is_listed_once,
                a_cursor_survives_what_happens_meanwhile,
            }
            operations {
                who_did_what_and_why_is_recorded,
                the_same_again_is_done_once_and_answered_the_same,
                an_identity_is_for_one_thing,
                an_identity_is_for_one_reason,
                what_is_refused_is_not_recorded,
                one_of_many_at_once_is_done,
                an_answer_that_was_lost_is_asked_for_again,
                records_are_listed_page_by_page_and_by_what_they_are_about,
                the_token_is_recorded_beside_the_actor,
                records_outlive_what_they_are_about,
                progress_is_noted_by_one_at_a_time,
                a_purge_is_done_once,
                a_paused_ordering_key_waits_and_others_go_on,
                pausing_an_ordering_key_leaves_what_runs,
                the_doctor_tells_what_waits_for_a_person,
                the_doctor_tells_what_is_remembered_for_ever,
                the_doctor_compares_windows_with_what_comes_again,
            }
            erase {
                an_erased_message_leaves_its_key_and_nothing_else,
                requests_on_many_lose_the_ids_of_an_erased_message,
                what_comes_under_an_erased_key_is_a_duplicate,
                what_is_unfinished_refuses_or_is_discarded,
                what_runs_is_not_erased,
                those_behind_an_erased_one_go_on,
                an_erased_message_never_runs_again,
                an_erasure_is_recorded_and_done_once,
                each_tenant_erases_its_own,
                an_erased_key_is_forgotten_with_its_retention,
            }
        );
    };
}
