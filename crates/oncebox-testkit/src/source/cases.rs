//! The list of cases, which the macro turns into tests. Tests: below.

/// Runs the conformance suite on a source: `source_conformance!(name, setup)` makes a module `name` with one test for
/// each rule. See [`source`](crate::source).
#[macro_export]
macro_rules! source_conformance {
    ($name:ident, $setup:expr) => {
        mod $name {
            use super::*;

            $crate::source_conformance!(@cases $setup;
                basics {
                    a_message_is_stored_and_then_acknowledged,
                    each_of_many_is_settled_once,
                    what_comes_twice_is_done_twice_and_runs_once,
                    two_instances_share_the_work,
                    payloads_are_any_bytes,
                    what_was_sent_before_the_start_is_not_lost,
                }
                trouble {
                    while_the_store_is_away_nothing_is_acknowledged,
                    an_unknown_commit_is_not_acknowledged,
                    what_a_crash_left_unsettled_comes_again,
                    a_shutdown_settles_what_is_in_hand_or_leaves_it,
                    a_shutdown_does_not_wait_for_the_store,
                }
                refused {
                    a_message_without_an_id_is_rejected,
                    a_conflict_is_quarantined_and_comes_no_more,
                    a_type_without_a_handler_is_kept,
                }
                inline {
                    it_is_acknowledged_when_its_handler_is_done,
                    a_busy_message_is_not_acknowledged,
                    what_failed_comes_again,
                    what_its_handler_refuses_is_rejected,
                    another_message_under_its_key_is_quarantined_and_comes_no_more,
                    an_unknown_commit_of_its_handler_is_not_acknowledged,
                }
            );
        }
    };
    (@cases $setup:expr; $($group:ident { $($case:ident,)+ })+) => {
        $(mod $group {
            use super::*;

            $(#[test]
            fn $case() {
                let name = concat!(stringify!($group), "::", stringify!($case));
                $crate::source::run(name, $setup, $crate::source::$group::$case);
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_listed() {
        let list: String = include_str!("cases.rs").split_whitespace().collect();
        let groups = [
            ("basics", include_str!("basics.rs")),
            ("trouble", include_str!("trouble.rs")),
            ("refused", include_str!("refused.rs")),
            ("inline", include_str!("inline.rs")),
        ];
        for (group, source) in groups {
            let start = list.find(&format!("{group}{{")).unwrap_or_else(|| panic!("{group} is not listed"));
            let end = start + list[start..].find('}').expect("a group ends");
            let listed: Vec<&str> = list[start + group.len() + 1..end].split_terminator(',').collect();
            let cases = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            let written: Vec<&str> = cases.filter_map(|line| line.split('<').next()).collect();
            assert_eq!(listed, written, "{group}");
        }
    }
}
