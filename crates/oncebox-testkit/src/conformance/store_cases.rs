//! The list of cases for every store.

/// Runs the cases of [`store_conformance!`](crate::store_conformance) for every store.
#[doc(hidden)]
#[macro_export]
macro_rules! store_tier {
    ($setup:expr) => {
        $crate::tier_cases!($setup;
            accept {
                a_batch_answers_in_its_order,
                a_duplicate_is_told_how_late_it_is,
                a_key_twice_in_a_batch_is_a_duplicate_of_itself,
                sequences_grow,
                a_handler_added_later_gets_the_redelivery,
                another_type_under_the_key_is_a_conflict,
                a_batch_keeps_each_message_as_it_came,
                ids_and_payloads_are_any_bytes,
                payloads_are_opaque,
                the_key_is_reported_with_the_claim,
            }
            claim {
                an_empty_store_gives_nothing,
                only_due_entries_are_claimed,
                entries_come_by_due_time_then_sequence,
                each_handler_has_its_own_limit,
                a_limit_of_zero_gives_nothing,
                keys_that_were_apart_are_claimed_under_the_stored_key,
                the_oldest_comes_first_whatever_its_key,
                an_entry_is_claimed_once,
                tokens_only_grow,
                the_same_claim_id_reads_the_claim_back,
                a_claim_that_held_nothing_may_claim_again,
                a_lease_that_ran_out_is_not_claimable,
            }
            settle {
                an_empty_batch_is_nothing,
                releasing_and_snoozing_count_nothing,
                a_repeated_settlement_is_recognised,
                a_long_delay_does_not_overflow,
            }
            renew {
                a_late_renewal_holds_unless_a_rescue_took_over,
            }
            rescue {
                only_leases_that_ran_out_are_taken,
                a_handler_never_sees_a_lower_fence,
                the_same_claim_id_reads_the_rescue_back,
                the_limit_is_kept_and_nothing_is_left_behind,
                inboxes_are_rescued_apart,
                a_rescued_entry_is_claimable_once_it_is_settled,
            }
            suspects {
                everything_a_dead_worker_held_is_claimed_at_once,
                suspects_of_two_handlers_are_claimed_together,
                a_claim_takes_one_level_and_its_company,
                the_company_grows_by_the_factor,
                a_suspect_waits_for_its_due_time,
                only_one_suspect_of_an_idle_worker_runs_alone,
                a_rescue_tells_how_the_dead_run_began,
                a_renewal_ends_solitude_and_never_begins_it,
                a_later_run_does_not_inherit_solitude,
                a_key_keeps_its_order_through_deaths,
            }
            sweep {
                an_empty_store_has_nothing_to_sweep,
                retention_counts_from_completion,
                a_poisoned_message_is_never_swept,
                each_sweep_moves_the_watermark,
                messages_without_entries_have_a_watermark,
                one_process_at_a_time_sweeps,
                a_message_without_entries_leaves_by_its_arrival,
                a_sweep_that_removes_nothing_forgets_nothing,
            }
            order {
                a_key_is_handled_one_by_one_in_order,
                order_holds_within_a_batch,
                keys_do_not_wait_for_each_other,
                handlers_do_not_wait_for_each_other,
                sources_and_inboxes_do_not_wait_for_each_other,
                the_end_of_one_releases_the_next_at_once,
                a_retry_in_the_future_keeps_the_next_waiting,
                a_lease_that_ran_out_keeps_the_next_waiting,
                a_message_after_the_last_finished_does_not_wait,
                a_new_message_waits_behind_one_that_is_tried_again_later,
                a_delay_is_kept_by_one_that_had_to_wait,
                a_handler_added_later_keeps_the_order,
                an_earlier_entry_that_is_added_late_waits_for_a_running_one,
                a_handler_added_later_goes_by_the_order_of_the_first,
                a_stale_settlement_releases_no_entry,
            }
            line {
                the_policy_decides_about_the_entries_behind,
                other_handlers_are_not_parked,
                the_death_of_a_worker_keeps_the_order,
            }
            alias {
                what_an_old_process_completed_is_a_duplicate_to_a_new_one,
                old_and_new_processes_keep_one_order,
                keys_that_were_apart_count_for_each_other_once_they_are_linked,
                a_key_that_was_renamed_names_no_other_handler,
                the_longest_window_of_all_keys_counts,
                what_one_key_forgot_is_stale_for_all,
            }
            rename {
                an_earlier_one_under_a_former_key_goes_first,
                whatever_is_not_the_end_under_a_former_key_keeps_the_new_ones_waiting,
                a_worker_that_died_under_a_former_key_keeps_the_new_ones_waiting,
                those_that_wait_do_not_hide_others,
                unordered_messages_do_not_wait_for_a_former_key,
            }
            tenant {
                a_batch_may_mix_tenants,
                tenants_do_not_wait_for_each_other,
                a_legacy_key_covers_the_handler_of_a_tenant,
            }
            concurrency {
                owners_and_rescuers_have_one_winner,
            }
            unknown {
                a_claim_is_recognised,
            }
        );
    };
}
