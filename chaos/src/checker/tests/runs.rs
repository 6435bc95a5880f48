//! Tests of the checker: repeated runs and their explanations, I4, I5, I6 and I10.

use super::{Case, Fact, HandlerEnd, NEVER, PlannedKind, PlannedOutcome, SettleResult};

const H: &str = "plain";

/// A message that fails once in the first process and finishes in the second, which runs at 200. The ledger has no
/// response of the store to the first.
fn failed_then_done(end: HandlerEnd) -> (u32, Case) {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Plain, |outcome| matches!(outcome, PlannedOutcome::Fails(_)), &[]);
    case.taken(m).run((m, H), (1, 1), 100, end).run((m, H), (2, 2), 200, HandlerEnd::Ok);
    case.settled((m, H), (2, 2), 220, "completed", SettleResult::Applied).ended((m, H), 2, 0);
    (m, case)
}

fn unexplained(m: u32) -> String {
    format!("I4: message {m} ran at plain again (process 2, token 2), and nothing had happened to process 1")
}

#[test]
fn i4_a_run_after_one_that_gave_its_entry_back_is_no_repeat() {
    for answer in [SettleResult::Applied, SettleResult::Unknown, SettleResult::Error] {
        let (m, mut case) = failed_then_done(HandlerEnd::Fail);
        case.settled((m, H), (1, 1), 115, "retrying", answer).is_clean();
    }
    // The store responded that another worker has the entry: the ledgers must hold the reason.
    let (m, mut case) = failed_then_done(HandlerEnd::Fail);
    case.settled((m, H), (1, 1), 115, "retrying", SettleResult::Lost).cries([&unexplained(m)]);
}

// The first process ends after its retry was committed, and before it recorded the store's response. Another one had
// claimed the entry by then, so the first had met no fault when the second run began.
#[test]
fn i4_a_retry_whose_answer_is_in_no_ledger_is_no_repeat() {
    for end in [HandlerEnd::Fail, HandlerEnd::Panic, HandlerEnd::Snooze, HandlerEnd::Store] {
        let (_, mut case) = failed_then_done(end);
        case.fault(300, 1, "kill").fault(310, 1, "gone").is_clean();
    }
}

#[test]
fn i4_only_a_process_that_went_down_left_its_answer_unwritten() {
    // The process still lives.
    let (m, mut case) = failed_then_done(HandlerEnd::Fail);
    case.cries([&unexplained(m)]);
    // Another process ended.
    case.fault(310, 2, "gone").cries([&unexplained(m)]);
    // It was killed, but did not end.
    case.fault(300, 1, "kill").cries([&unexplained(m)]);
}

#[test]
fn i4_only_a_handler_that_said_no_gives_its_entry_back() {
    for end in [HandlerEnd::Ok, HandlerEnd::Reject, HandlerEnd::Dropped] {
        let (m, mut case) = failed_then_done(end);
        case.fault(310, 1, "gone").cries([&unexplained(m)]);
    }
    // A recorded response stays.
    let (m, mut case) = failed_then_done(HandlerEnd::Fail);
    case.settled((m, H), (1, 1), 115, "retrying", SettleResult::Lost)
        .fault(310, 1, "gone")
        .cries([&unexplained(m)]);
}

#[test]
fn i4_two_at_once_are_a_repeat_whatever_the_first_says_later() {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Plain, |outcome| matches!(outcome, PlannedOutcome::Fails(_)), &[]);
    // The first ends at 110; the second begins at 105.
    case.taken(m).run((m, H), (1, 1), 100, HandlerEnd::Fail).run((m, H), (2, 2), 105, HandlerEnd::Ok);
    case.settled((m, H), (2, 2), 220, "completed", SettleResult::Applied).ended((m, H), 2, 0);
    case.fault(310, 1, "gone").cries([&unexplained(m)]);
    case.settled((m, H), (1, 1), 115, "retrying", SettleResult::Applied).cries([&unexplained(m)]);
}

/// The first process began without an end; the second finished it.
fn taken_over() -> (u32, Case) {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.taken(m).begun((m, H), (1, 1), 100).run((m, H), (2, 2), 200, HandlerEnd::Ok);
    case.settled((m, H), (2, 2), 220, "completed", SettleResult::Applied).ended((m, H), 2, 0);
    (m, case)
}

#[test]
fn i4_a_fault_that_hit_the_run_before_explains_the_next() {
    let faults = [
        (1, Fact::Fault { life: 1, what: "kill".into() }),
        (1, Fact::Fault { life: 1, what: "settle.after: abort".into() }),
        // For all processes.
        (0, Fact::Fault { life: 0, what: "server: killed".into() }),
        (1, Fact::Unknown { verb: "commit".into() }),
        (1, Fact::Stall { ms: 1 }),
        (1, Fact::Slow { verb: "renew".into(), ms: 1 }),
    ];
    for (life, fact) in faults {
        let (m, mut case) = taken_over();
        case.note(150, life, fact.clone()).is_clean();
        // After the start of the second run, it explains nothing.
        case.lines.pop();
        case.note(5_000, life, fact).cries([&unexplained(m)]);
    }
    // For another process.
    let (m, mut case) = taken_over();
    case.fault(150, 2, "kill").cries([&unexplained(m)]);
    // The end of all faults is no fault.
    case.fault(150, 0, "quiescence").cries([&unexplained(m)]);
}

#[test]
fn i4_a_stopped_process_keeps_the_others_from_a_file_and_not_from_a_server() {
    let (m, mut case) = taken_over();
    case.fault(150, 3, "stop").cries([&unexplained(m)]);
    case.rules.one_writer = true;
    case.is_clean();
}

#[test]
fn i4_i10_a_duplicate_within_the_window_does_not_run_again() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    // The same message is delivered and acknowledged again.
    case.good(m).note(290, 0, Fact::Acked { m, v: 0 }).is_clean();
    // It runs again; no fault excuses that, because the store had confirmed its completion.
    case.fault(150, 1, "kill").begun((m, H), (2, 2), 300);
    case.cries([&format!("I4, I10: message {m} ran at plain again (process 2) after it was done")]);
}

#[test]
fn i4_an_operator_may_ask_for_another_run_of_what_was_rejected() {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Plain, |outcome| outcome == PlannedOutcome::Rejects, &[]);
    case.taken(m);
    for (life, t) in [(1, 100), (2, 200)] {
        let tok = i64::try_from(life).unwrap();
        case.run((m, H), (life, tok), t, HandlerEnd::Reject);
        case.settled((m, H), (life, tok), t + 20, "poisoned", SettleResult::Applied);
    }
    case.poisoned((m, H), "rejected", 0, 0);
    case.cries([&format!("I4, I10: message {m} ran at plain again")]);
    case.note(150, 3, Fact::Requested { op: "op".into(), m: Some(m), h: H.into() }).is_clean();
    // Each request counts once.
    case.run((m, H), (3, 3), 300, HandlerEnd::Reject)
        .cries([&format!("I4, I10: message {m} ran at plain again")]);
}

#[test]
fn i5_an_entry_is_completed_once() {
    let (m, mut case) = taken_over();
    case.note(110, 1, Fact::End { m, h: H.into(), tok: 1, end: HandlerEnd::Ok }).fault(150, 1, "stop");
    case.settled((m, H), (1, 1), 400, "completed", SettleResult::Lost).is_clean();
    case.lines.pop();
    case.settled((m, H), (1, 1), 400, "completed", SettleResult::Applied);
    case.cries([&format!("I5: message {m} at plain was completed 2 times")]);
}

#[test]
fn i6_nothing_ends_under_a_token_that_was_refused() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.taken(m).run((m, H), (1, 1), 100, HandlerEnd::Ok).ended((m, H), 1, 0);
    case.settled((m, H), (1, 1), 120, "completed", SettleResult::Lost);
    case.cries([&format!("I6: message {m} at plain ended under token 1, which was refused")]);
    // A commit in doubt succeeded: the store rightly refused later writes.
    case.lines.pop();
    case.settled((m, H), (1, 1), 115, "completed", SettleResult::Unknown);
    case.settled((m, H), (1, 1), 120, "retrying", SettleResult::Lost).is_clean();
}

#[test]
fn i6_nothing_ends_under_another_token_than_the_one_that_was_told_so() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.good_from(m, 100).ended((m, H), NEVER, 0);
    case.cries([&format!("I6: message {m} at plain ended under token 99, and another claim was told")]);
}

#[test]
fn i4_another_idempotency_key_is_noticed() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Tx);
    let keyed = |k: &str| Fact::Keyed { m, h: "tx".into(), k: k.into() };
    case.good(m).note(300, 1, keyed("one")).note(301, 2, keyed("one")).is_clean();
    case.note(302, 2, keyed("two"));
    case.cries([&format!("I4: message {m} ran at tx under 2 idempotency keys")]);
}
