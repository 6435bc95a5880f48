//! Tests of the checker: failovers and refusals, I1, I4 and I6.

use super::{Case, Fact, HandlerEnd, PlannedKind, SettleResult};
use crate::ledger::{DENIED, DENIED_FOR_LONG, FAILED_OVER, LOSES_FROM_NOW};
use crate::plan::id_of;

const H: &str = "plain";

fn fault(what: impl Into<String>) -> Fact {
    Fact::Fault { life: 0, what: what.into() }
}

#[test]
fn i1_what_a_failover_lost_has_to_be_named() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.note(1, 0, Fact::Offered { m, v: 0 }).note(2, 0, Fact::Acked { m, v: 0 });
    case.rules.loses = true;
    case.cries([&format!("I1: message {m} at plain: it was acknowledged, and is not there"), "I11: 1 ackn"]);
    case.row("lost", [&id_of(m)]).is_clean();
    // If commits wait for the replica, nothing can be lost.
    case.rules.loses = false;
    case.cries(["I1: the store reports 1 messages", "I1: message", "I11: 1 ackn"]);
}

#[test]
fn i1_what_is_named_was_offered_and_is_not_unfinished() {
    let mut case = Case::new();
    case.rules.loses = true;
    case.row("lost", [&id_of(7)])
        .cries(["I1: the store reports message 7 as lost, and it was never offered"]);
    // A message that was stored again and never finished is still lost.
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.rules.loses = true;
    case.taken(m).row("lost", [&id_of(m)]);
    case.cries([&format!("I1: message {m} at plain: it was acknowledged, and is not there")]);
}

#[test]
fn i1_inline_effects_are_lost_by_their_number() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Inline);
    case.note(1, 0, Fact::Offered { m, v: 0 }).note(2, 0, Fact::Acked { m, v: 0 });
    case.rules.loses = true;
    case.cries([&format!("I1: message {m} at inline: it was acknowledged, and its effect is not there")]);
    case.row("lost marks", ["1"]).is_clean();
}

#[test]
fn i2_a_run_that_a_failover_lost_leaves_the_key_to_another_payload() {
    let two_payloads = |first: u64| {
        let mut case = Case::new();
        let m = case.well(PlannedKind::Plain);
        case.rules.loses = true;
        case.note(1, 0, fault(LOSES_FROM_NOW)).note(200, 0, fault(FAILED_OVER));
        case.note(1, 0, Fact::Offered { m, v: 0 }).note(1, 0, Fact::Offered { m, v: 1 });
        case.note(first, 1, Fact::Start { m, h: H.into(), tok: 1, v: 0 });
        case.note(500, 2, Fact::Start { m, h: H.into(), tok: 2, v: 1 });
        (m, case)
    };
    two_payloads(100).1.is_clean_of("I2");
    // This run is in the remaining history.
    let (m, mut case) = two_payloads(300);
    case.cries_of("I2", &format!("I2: message {m} ran with two payloads"));
}

#[test]
fn i4_a_completion_that_a_failover_lost_explains_another_run() {
    let done = |faults: &[(u64, &str)]| {
        let mut case = Case::new();
        let m = case.well(PlannedKind::Plain);
        case.taken(m).run((m, H), (1, 1), 100, HandlerEnd::Ok).settled(
            (m, H),
            (1, 1),
            115,
            "completed",
            SettleResult::Applied,
        );
        for (at, what) in faults {
            case.note(*at, 0, fault(*what));
        }
        case.run((m, H), (2, 2), 200, HandlerEnd::Ok).settled(
            (m, H),
            (2, 2),
            220,
            "completed",
            SettleResult::Applied,
        );
        case.ended((m, H), 2, 0);
        case.rules.loses = true;
        (m, case)
    };
    done(&[(112, LOSES_FROM_NOW), (150, FAILED_OVER)]).1.is_clean();
    // A complete replica explains nothing.
    let (m, mut case) = done(&[(150, FAILED_OVER)]);
    case.cries([&format!("I4, I10: message {m} ran at plain again")]);
}

#[test]
fn i4_a_refusal_explains_no_repeat() {
    let repeated = |what: String| {
        let mut case = Case::new();
        let m = case.well(PlannedKind::Plain);
        case.taken(m).run((m, H), (1, 1), 100, HandlerEnd::Ok).settled(
            (m, H),
            (1, 1),
            115,
            "completed",
            SettleResult::Error,
        );
        case.note(150, 0, fault(what)).run((m, H), (2, 2), 200, HandlerEnd::Ok);
        case.settled((m, H), (2, 2), 220, "completed", SettleResult::Applied).ended((m, H), 2, 0);
        (m, case)
    };
    repeated("server: killed".into()).1.is_clean();
    // The lease expired meanwhile.
    repeated(format!("{DENIED_FOR_LONG}logins")).1.is_clean();
    let (m, mut case) = repeated(format!("{DENIED}logins"));
    case.cries([&format!("I4: message {m} ran at plain again (process 2, token 2)")]);
}

#[test]
fn i6_a_fence_does_not_go_back_in_a_failover() {
    let claimed = |late: bool| {
        let mut case = Case::new();
        let m = case.well(PlannedKind::Plain);
        case.taken(m).note(100, 1, Fact::Claimed { m, h: H.into(), tok: 9 });
        if late {
            // It was suspended between its claim and its ledger.
            case.note(140, 2, Fact::Stall { ms: 0 });
        }
        case.run((m, H), (2, 4), 150, HandlerEnd::Ok).settled(
            (m, H),
            (2, 4),
            170,
            "completed",
            SettleResult::Applied,
        );
        case.ended((m, H), 4, 0);
        case.rules.fails_over = true;
        (m, case)
    };
    let (m, mut case) = claimed(false);
    case.cries([&format!("I6: the fence of message {m} at plain went back from 9 to 4 (process 2)")]);
    claimed(true).1.is_clean();
}
