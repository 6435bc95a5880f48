//! The list of cases for operators.

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for operators.
#[doc(hidden)]
#[macro_export]
macro_rules! operator_conformance {
    ($setup:expr) => {
        $crate::store_conformance!(@cases $setup;
            admin {
                an_unknown_inbox_is_empty,
                counts_are_by_handler_and_status,
                lists_are_by_status,
                a_message_is_shown_by_handler_key,
                pages_hold_every_entry_once,
                finished_entries_are_listed_page_by_page,
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
                what_is_quarantined_is_listed_page_by_page,
                quarantined_messages_are_counted_and_listed_by_reason,
                times_are_those_of_the_store,
            }
            history {
                failed_attempts_are_remembered,
                duplicate_counts_are_summed_up,
                history_leaves_with_its_message,
                the_history_of_one_entry_is_bounded,
                why_an_entry_does_not_run,
                why_an_entry_waits_for_another,
                a_message_without_a_handler_is_explained,
                a_conflict_is_part_of_the_story,
            }
            list {
                statuses_are_one_several_or_any,
                what_is_listed_is_what_is_shown,
                each_condition_counts,
                error_text_is_looked_for_as_it_is,
                the_latest_generation_is_listed_once,
                a_page_that_matches_little_is_short_and_goes_on,
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
                of_many_conflicts_under_a_key_some_are_shown,
            }
            erase {
                an_erased_message_leaves_its_key_and_nothing_else,
                what_comes_under_an_erased_key_is_a_duplicate,
                requests_on_many_lose_the_ids_of_an_erased_message,
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
