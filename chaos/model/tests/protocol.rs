//! Every state of the protocol, and a counterexample for each omitted rule.

use oncebox_model::{Flaw, Protocol};
use stateright::{Checker as _, HasDiscoveries, Model as _};

/// Depth that reaches each counterexample.
const DEPTH: usize = 16;

#[test]
fn the_protocol_holds_in_every_state() {
    let checker = Protocol::sound(1, 1, 1).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000, "{} states", checker.unique_state_count());
}

#[test]
fn each_rule_that_is_left_out_leads_to_what_it_prevents() {
    for (flaw, broken) in Flaw::ALL {
        let checker = Protocol::without(flaw).checker().target_max_depth(DEPTH);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let path = checker.discovery(broken).unwrap_or_else(|| panic!("{flaw:?} breaks nothing"));
        assert!(path.into_actions().len() <= DEPTH, "{flaw:?}");
    }
}
