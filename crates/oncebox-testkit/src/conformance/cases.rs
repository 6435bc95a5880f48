//! The list of cases, which the macro turns into tests.

/// Runs the conformance suite on a store: `store_conformance!(name, setup)` makes a module `name` with one test for
/// each rule. See [`conformance`](crate::conformance).
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $setup:expr) => {
        mod $name {
            use super::*;

            $crate::store_conformance!(@cases $setup;
                accept {
                    the_first_is_stored_and_the_second_is_a_duplicate,
                    an_empty_batch_is_nothing,
                    a_batch_answers_in_its_order,
                    a_duplicate_is_told_how_late_it_is,
                    a_key_twice_in_a_batch_is_a_duplicate_of_itself,
                    a_conflict_within_a_batch_is_kept_aside,
                    a_large_batch_is_stored_whole,
                    sequences_grow,
                    every_handler_gets_an_entry,
                    a_message_without_a_handler_is_stored_without_entries,
                    a_handler_added_later_gets_the_redelivery,
                    a_finished_entry_is_not_added_again,
                    an_entry_under_a_legacy_key_covers_the_handler,
                    another_payload_under_the_key_is_kept_aside,
                    another_type_under_the_key_is_a_conflict,
                    a_conflict_does_not_pile_up,
                    first_wins_takes_a_conflict_for_a_duplicate,
                    first_wins_keeps_another_type_aside,
                    a_delay_postpones_the_first_attempt,
                    inboxes_do_not_share_keys,
                    a_batch_may_serve_several_inboxes,
                    a_message_comes_back_whole,
                    a_batch_keeps_each_message_as_it_came,
                    ids_and_payloads_are_any_bytes,
                    payloads_are_opaque,
                    the_key_is_reported_with_the_claim,
                }
                claim {
                    an_empty_store_gives_nothing,
                    a_claim_says_what_it_is,
                    only_due_entries_are_claimed,
                    entries_come_by_due_time_then_sequence,
                    each_handler_has_its_own_limit,
                    a_limit_of_zero_gives_nothing,
                    only_wanted_handlers_are_claimed,
                    keys_that_were_apart_are_claimed_under_the_stored_key,
                    the_oldest_comes_first_whatever_its_key,
                    an_entry_is_claimed_once,
                    tokens_only_grow,
                    the_same_claim_id_reads_the_claim_back,
                    a_claim_that_held_nothing_may_claim_again,
                    a_lease_that_ran_out_is_not_claimable,
                    a_paused_handler_gives_nothing,
                    keys_that_were_apart_are_paused_by_their_own_name,
                    pausing_leaves_what_runs,
                    inboxes_do_not_share_entries,
                }
                settle {
                    an_empty_batch_is_nothing,
                    completed_is_kept_with_its_history,
                    a_retry_waits_on_the_stores_clock,
                    poisoned_is_kept_with_its_reason,
                    discarded_is_kept_with_its_reason,
                    no_error_keeps_what_was_said_before,
                    releasing_and_snoozing_count_nothing,
                    any_error_text_is_kept,
                    a_claim_that_never_was_changes_nothing,
                    a_stale_token_changes_nothing_after_a_rescue,
                    a_stale_token_changes_nothing_after_the_next_claim,
                    repeating_a_settlement_is_applied_and_changes_nothing,
                    a_settlement_twice_in_a_batch_is_applied_once,
                    a_repeat_is_stale_once_somebody_claimed,
                    what_is_settled_absorbs_other_settlements,
                    stale_settlements_in_a_batch_are_refused_singly,
                    a_batch_may_mix_every_outcome,
                    the_owner_may_settle_after_its_lease,
                    handlers_are_settled_apart,
                    a_long_delay_does_not_overflow,
                }
                renew {
                    the_lease_counts_from_the_renewal,
                    a_late_renewal_holds_if_nobody_took_over,
                    a_stale_token_changes_nothing,
                    what_is_settled_cannot_be_renewed,
                    answers_come_in_order,
                    a_renewal_changes_nothing_else,
                }
                rescue {
                    only_leases_that_ran_out_are_taken,
                    the_rescuer_gets_the_entry_as_it_was,
                    the_former_owner_is_fenced_off,
                    a_handler_never_sees_a_lower_fence,
                    the_same_claim_id_reads_the_rescue_back,
                    the_limit_is_kept_and_nothing_is_left_behind,
                    only_known_handlers_are_rescued,
                    inboxes_are_rescued_apart,
                    a_rescued_entry_is_claimable_once_it_is_settled,
                    a_rescue_that_is_not_settled_is_rescued_again,
                    a_paused_handler_is_still_rescued,
                }
                suspects {
                    everything_a_dead_worker_held_is_claimed_at_once,
                    suspects_of_two_handlers_are_claimed_together,
                    a_claim_takes_one_level_and_its_company,
                    a_suspect_waits_for_its_due_time,
                    a_paused_handler_gives_no_suspect,
                    only_one_suspect_of_an_idle_worker_runs_alone,
                    a_rescue_tells_how_the_dead_run_began,
                    a_renewal_ends_solitude_and_never_begins_it,
                    a_later_run_does_not_inherit_solitude,
                    three_deaths_in_company_poison_nothing,
                    three_deaths_alone_poison_after_growing_waits,
                    explain_tells_how_a_suspect_goes_on,
                    the_limit_of_crashes_is_the_handlers,
                    a_key_keeps_its_order_through_deaths,
                }
                sweep {
                    an_empty_store_has_nothing_to_sweep,
                    finished_messages_leave_after_their_retention,
                    retention_counts_from_completion,
                    unfinished_work_is_never_swept,
                    one_unfinished_handler_keeps_the_message,
                    a_replayed_entry_keeps_the_message,
                    a_message_without_entries_leaves_by_its_arrival,
                    what_is_kept_aside_is_never_swept,
                    older_than_the_memory_is_stale,
                    as_old_as_the_memory_is_stale,
                    stale_messages_do_not_pile_up,
                    a_known_key_is_never_stale,
                    a_sweep_that_removes_nothing_forgets_nothing,
                    the_memory_never_moves_back,
                    inboxes_are_swept_apart,
                    pages_lead_through_everything,
                    a_sweep_counts_everything_it_removes,
                    marks_leave_after_their_retention,
                    marks_of_another_inbox_are_left_alone,
                    no_old_mark_is_left_behind,
                    a_swept_key_can_be_used_again,
                }
                windows {
                    a_message_leaves_by_the_window_of_its_handler,
                    the_longest_window_of_a_message_counts,
                    a_window_counts_from_the_completion_of_its_handler,
                    a_replayed_entry_has_its_window_again,
                    no_window_ends_what_is_not_finished,
                    without_entries_the_window_of_the_inbox_counts,
                    for_ever_is_a_window_too,
                    marks_leave_by_the_window_of_their_handler,
                    one_sweeps_at_a_time,
                    the_other_inboxes_are_swept_meanwhile,
                    a_sweeper_that_died_is_followed_by_another,
                    a_sweeper_that_was_overtaken_stops,
                    many_sweepers_leave_nothing_behind,
                }
                register {
                    a_handler_that_the_sweeper_does_not_know_keeps_its_window,
                    the_longest_window_that_somebody_goes_by_counts,
                    the_longest_window_of_the_inbox_counts,
                    a_window_can_be_made_longer_at_once,
                    a_window_can_be_made_shorter_after_a_day,
                    what_one_handler_forgot_is_stale_for_it_alone,
                    messages_without_entries_are_forgotten_by_themselves,
                    what_a_former_key_forgot_is_stale_for_the_new_one,
                    a_handler_is_not_given_again_what_it_forgot,
                    what_is_compared_with_nothing_is_never_stale,
                    a_sweep_does_not_read_history_again,
                    what_a_sweep_passed_leaves_later,
                    a_large_backlog_is_forgotten_when_it_is_over,
                    inboxes_register_apart,
                }
                orphans {
                    an_empty_store_has_no_orphans,
                    unknown_handlers_are_told_of_after_the_grace,
                    the_one_that_waits_longest_comes_first,
                    what_is_not_due_yet_is_not_missed,
                    a_handler_that_somebody_works_for_is_no_orphan,
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
                    what_poisoned_entries_hold_back_is_counted,
                    a_paused_key_is_not_blocked,
                    what_is_held_back_is_counted_up_to_a_limit,
                    the_backlog_of_another_inbox_is_its_own,
                    a_large_backlog_is_counted_up_to_a_limit,
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
                    a_parked_key_sets_aside_what_is_backfilled,
                    a_backfilled_message_stays,
                    what_its_handler_forgot_is_not_backfilled,
                    everything_goes_on_meanwhile,
                }
                mark {
                    the_first_mark_is_first_and_the_second_a_duplicate,
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
                    what_is_completed_absorbs_settlements,
                    a_completion_keeps_the_counters,
                    a_completion_releases_the_next_in_order,
                    a_rescue_and_a_commit_have_one_winner,
                }
                quarantine {
                    another_message_under_a_mark_is_in_conflict,
                    a_mark_without_a_fingerprint_compares_nothing,
                    a_conflict_is_seen_by_its_own_transaction,
                    of_rivals_with_other_messages_none_is_a_duplicate,
                    what_is_in_conflict_with_a_mark_is_kept_aside,
                    a_quarantine_is_undone_with_its_transaction,
                    an_inbox_of_marks_alone_can_quarantine,
                    another_message_is_not_run_inline_and_kept_aside,
                    once_keeps_another_message_aside,
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
                    a_result_is_undone_with_its_part,
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
                    a_purge_removes_old_asides_only,
                    what_is_kept_aside_is_listed_page_by_page,
                    asides_are_counted_and_listed_by_reason,
                    times_are_those_of_the_store,
                }
                history {
                    failed_attempts_are_remembered,
                    absorbed_duplicates_are_summed_up,
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
                    what_is_unfinished_refuses_or_is_discarded,
                    what_runs_is_not_erased,
                    those_behind_an_erased_one_go_on,
                    an_erased_message_never_runs_again,
                    an_erasure_is_recorded_and_done_once,
                    each_tenant_erases_its_own,
                    an_erased_key_is_forgotten_with_its_retention,
                }
                order {
                    a_key_is_handled_one_by_one_in_order,
                    order_holds_within_a_batch,
                    keys_do_not_wait_for_each_other,
                    handlers_do_not_wait_for_each_other,
                    sources_and_inboxes_do_not_wait_for_each_other,
                    the_end_of_one_releases_the_next_at_once,
                    whatever_is_not_the_end_keeps_the_next_waiting,
                    a_retry_in_the_future_keeps_the_next_waiting,
                    a_lease_that_ran_out_keeps_the_next_waiting,
                    a_waiting_entry_shows_that_it_waits,
                    a_poisoned_head_blocks_until_it_is_discarded,
                    a_poisoned_head_goes_first_when_it_is_retried,
                    discarding_one_that_waits_lets_the_others_be,
                    discarding_the_head_releases_the_next,
                    a_message_after_the_last_finished_does_not_wait,
                    a_new_message_waits_behind_a_poisoned_one,
                    a_new_message_waits_behind_one_that_is_tried_again_later,
                    a_delay_is_kept_by_one_that_had_to_wait,
                    a_replay_goes_before_what_still_waits,
                    a_replay_waits_for_what_already_runs,
                    a_handler_added_later_keeps_the_order,
                    a_handler_added_later_goes_by_the_order_of_the_first,
                    a_stale_settlement_releases_nobody,
                    many_workers_keep_the_order,
                }
                line {
                    a_skipped_head_lets_the_next_one_go,
                    a_skipped_head_waits_its_turn_when_it_is_retried,
                    a_parked_key_is_set_aside,
                    a_parked_key_comes_back_in_order,
                    a_parked_entry_waits_for_its_head,
                    a_parked_entry_keeps_its_delay,
                    other_handlers_are_not_parked,
                    one_that_runs_is_parked_when_it_would_wait,
                    an_unblocked_key_goes_on,
                    only_what_holds_others_back_is_unblocked,
                    each_poisoned_one_is_unblocked_by_itself,
                    blocked_keys_are_listed_oldest_first,
                    a_failing_head_is_retried_in_place,
                    the_policy_counts_however_the_head_is_poisoned,
                    the_death_of_a_worker_keeps_the_order,
                }
                alias {
                    what_a_new_process_completed_is_a_duplicate_to_an_old_one,
                    what_an_old_process_completed_is_a_duplicate_to_a_new_one,
                    an_old_process_claims_what_a_new_one_accepted,
                    a_claim_has_a_key_that_its_caller_knows,
                    old_and_new_processes_keep_one_order,
                    three_generations_of_keys_are_one_handler,
                    the_newest_generation_may_come_first,
                    keys_that_were_apart_count_for_each_other_once_they_are_linked,
                    a_key_that_was_renamed_names_no_other_handler,
                    a_backfill_adds_nothing_to_what_another_key_covers,
                    a_pause_is_of_all_keys,
                    operators_see_the_newest_key_and_may_use_any,
                    the_longest_window_of_all_keys_counts,
                    what_one_key_forgot_is_stale_for_all,
                    whoever_comes_first_there_is_one_entry,
                }
                rename {
                    an_earlier_one_under_a_former_key_goes_first,
                    whatever_is_not_the_end_under_a_former_key_keeps_the_new_ones_waiting,
                    a_poisoned_one_under_a_former_key_blocks_unless_it_is_skipped,
                    a_worker_that_died_under_a_former_key_keeps_the_new_ones_waiting,
                    a_suspect_waits_for_an_earlier_one_under_a_former_key,
                    a_paused_former_key_keeps_the_new_ones_waiting,
                    those_that_wait_do_not_hide_others,
                    unordered_messages_do_not_wait_for_a_former_key,
                    two_instances_keep_the_order,
                }
                tenant {
                    the_same_id_of_two_tenants_is_two_messages,
                    a_batch_may_mix_tenants,
                    a_tenant_comes_back_with_its_message,
                    what_is_kept_aside_alone_has_its_tenant,
                    tenants_do_not_wait_for_each_other,
                    a_handler_added_later_keeps_the_order_of_its_tenant,
                    counts_and_lists_are_by_tenant,
                    a_replay_is_counted_once_for_its_tenant,
                    another_tenant_is_neither_shown_nor_touched,
                    what_is_kept_aside_is_listed_by_tenant,
                    blocked_keys_are_listed_by_tenant,
                    inboxes_do_not_share_tenants,
                    tenants_are_compared_letter_by_letter,
                    a_legacy_key_covers_the_handler_of_a_tenant,
                    an_inbox_does_not_change_its_tenants_unnoticed,
                    one_of_two_tenants_settings_at_once_is_recorded,
                }
                edges {
                    every_edge_is_walked,
                    only_what_is_pending_can_be_claimed,
                }
                concurrency {
                    a_dropped_inbox_gives_back_what_it_runs,
                    many_claimers_never_share_an_entry,
                    many_accepts_of_one_key_have_one_first,
                    many_conflicts_of_one_key_keep_one_original,
                    owners_and_rescuers_have_one_winner,
                    many_repeats_of_a_settlement_count_once,
                    a_discard_and_a_claim_have_one_winner,
                    many_replays_make_one_generation,
                    a_sweep_and_an_accept_of_the_key_agree,
                    two_sweepers_remove_each_message_once,
                }
                unknown {
                    an_accept_is_recognised,
                    a_claim_is_recognised,
                    a_suspect_claim_is_recognised,
                    a_settlement_is_recognised,
                    a_rescue_is_recognised,
                    a_renewal_can_be_repeated,
                    a_sweep_can_be_repeated,
                    a_commit_is_not_made_twice,
                    what_was_not_done_is_done_by_the_repeat,
                    a_storm_of_faults_loses_and_repeats_nothing,
                }
                model {
                    random_operations_do_what_the_model_does,
                }
            );
        }
    };
    (@cases $setup:expr; $($group:ident { $($case:ident,)* })*) => {
        $(
            mod $group {
                use super::*;

                $(
                    #[test]
                    fn $case() {
                        $crate::conformance::run(stringify!($case), $setup, $crate::conformance::$group::$case);
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A case that is not in the list would never run.
    #[test]
    fn every_case_is_listed() {
        let list: String = include_str!("cases.rs").split_whitespace().collect();
        let groups = [
            ("accept", include_str!("accept.rs")),
            ("claim", include_str!("claim.rs")),
            ("settle", include_str!("settle.rs")),
            ("renew", include_str!("renew.rs")),
            ("rescue", include_str!("rescue.rs")),
            ("sweep", include_str!("sweep.rs")),
            ("windows", include_str!("windows.rs")),
            ("register", include_str!("register.rs")),
            ("orphans", include_str!("orphans.rs")),
            ("backlog", include_str!("backlog.rs")),
            ("backfill", include_str!("backfill.rs")),
            ("mark", include_str!("mark.rs")),
            ("result", include_str!("result.rs")),
            ("inline", include_str!("inline.rs")),
            ("share", include_str!("share.rs")),
            ("admin", include_str!("admin.rs")),
            ("history", include_str!("history.rs")),
            ("list", include_str!("list.rs")),
            ("operations", include_str!("operations.rs")),
            ("erase", include_str!("erase.rs")),
            ("order", include_str!("order.rs")),
            ("line", include_str!("line.rs")),
            ("alias", include_str!("alias.rs")),
            ("rename", include_str!("rename.rs")),
            ("tenant", include_str!("tenant.rs")),
            ("edges", include_str!("edges.rs")),
            ("concurrency", include_str!("concurrency.rs")),
            ("unknown", include_str!("unknown.rs")),
            ("model", include_str!("model.rs")),
        ];
        for (group, source) in groups {
            // A whole word: `inline` ends as `line` does.
            let opening = format!("{group}{{");
            let mut found = list.match_indices(&opening).map(|(at, _)| at);
            let start = found.find(|at| !list[..*at].ends_with(|before: char| before.is_alphabetic()));
            let start = start.unwrap_or_else(|| panic!("{group} is not listed"));
            let end = start + list[start..].find('}').expect("a group ends");
            let listed: Vec<&str> = list[start + group.len() + 1..end].split_terminator(',').collect();
            let written: Vec<&str> = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn "))
                .filter_map(|line| line.split('<').next())
                .collect();
            assert_eq!(listed, written, "{group}");
        }
    }
}
