//! Tests of the checker: offered and acknowledged messages against stored ones, I1, I2, I3, I5, I7, I8 and I11.

use super::{Case, Fact, HandlerEnd, PlannedKind, PlannedOutcome, SettleResult};

fn text(m: u32) -> String {
    m.to_string()
}

#[test]
fn i1_a_message_that_is_refused_is_noticed() {
    let mut case = Case::new();
    case.note(1, 0, Fact::Offered { m: 5, v: 0 });
    case.is_clean();
    case.note(2, 0, Fact::Refused { m: 5, v: 0, why: "too large".into() });
    case.cries(["I1: message 5 was refused: too large"]);
}

#[test]
fn i1_what_was_acknowledged_and_is_not_there_is_noticed() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.note(1, 0, Fact::Offered { m, v: 0 });
    // It was never acknowledged.
    case.is_clean();
    case.note(2, 0, Fact::Acked { m, v: 0 });
    case.cries([&format!("I1: message {m} at plain: it was acknowledged, and is not there"), "I11: 1 ackn"]);
}

#[test]
fn i1_each_handler_of_a_message_counts() {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Both, |outcome| outcome == PlannedOutcome::Well, &[]);
    case.good(m);
    case.cries([&format!("I1: message {m} at plain: it was acknowledged, and is not there")]);
    case.run((m, "plain"), (2, 2), 200, HandlerEnd::Ok);
    case.settled((m, "plain"), (2, 2), 220, "completed", SettleResult::Applied);
    case.ended((m, "plain"), 2, 0).is_clean();
}

#[test]
fn i1_what_is_completed_has_happened() {
    for kind in [PlannedKind::Plain, PlannedKind::Tx] {
        let mut case = Case::new();
        let m = case.well(kind);
        let place = (m, kind.handlers()[0]);
        case.taken(m).begun(place, (1, 1), 100).settled(
            place,
            (1, 1),
            111,
            "completed",
            SettleResult::Applied,
        );
        case.ended(place, 1, 0)
            .cries([&format!("I1: message {m} at {}: it is completed, and noth", place.1)]);
    }
}

#[test]
fn i1_an_inline_effect_is_there_when_its_message_is_acknowledged() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Inline);
    case.note(1, 0, Fact::Offered { m, v: 0 }).effect(m, 0, "inline").row("marks", ["1"]);
    case.note(2, 0, Fact::Acked { m, v: 0 }).is_clean();
    case.rows.clear();
    case.cries([&format!("I1: message {m} at inline: it was acknowledged, and its effect is not there")]);
}

#[test]
fn i1_what_is_poisoned_has_no_effect() {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Tx, |outcome| outcome == PlannedOutcome::Rejects, &[]);
    case.taken(m).run((m, "tx"), (1, 1), 100, HandlerEnd::Reject).poisoned((m, "tx"), "rejected", 0, 0);
    case.is_clean();
    case.effect(m, 0, "tx")
        .cries([&format!("I1: message {m} at tx: it is poisoned, and its effect is there")]);
}

#[test]
fn i1_an_entry_comes_to_one_requested_end() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.good(m).ended((m, "plain"), 1, 0);
    case.cries([&format!("I1: message {m} at plain: it has 2 ends")]);
    case.rows.remove("outcomes");
    case.row("outcomes", [&text(m), "plain", "0", "cancelled", "1", "0", "0"]);
    case.cries([&format!("I1: message {m} at plain: it is cancelled, which was never requested")]);
}

#[test]
fn i2_an_unknown_message_is_noticed() {
    let mut case = Case::new();
    case.row("messages", ["1", "x-1"]).cries(["I2: a message \"x-1\" is stored, and was never offered"]);
}

#[test]
fn i2_effects_of_what_was_never_offered_are_noticed() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Tx);
    case.good(m);
    case.rows.remove("effects");
    // Another payload than the offered one, and another message.
    case.effect(m, 1, "tx").effect(m + 1, 0, "tx");
    let what = |m: u32| format!("I2: message {m} has effects of what was never offered");
    case.cries([what(m).as_str(), what(m + 1).as_str()]);
}

#[test]
fn i2_one_key_has_one_payload() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Tx);
    case.good(m).note(3, 0, Fact::Offered { m, v: 1 }).is_clean();
    // Both were offered; only one may run, with or without an effect.
    case.note(300, 1, Fact::Start { m, h: "tx".into(), tok: 0, v: 1 });
    case.cries([&format!("I2: message {m} ran with two payloads")]);
}

#[test]
fn i2_an_inline_run_that_failed_leaves_the_key_to_another_payload() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Inline);
    let h = || "inline".to_owned();
    case.note(1, 0, Fact::Offered { m, v: 0 }).note(1, 0, Fact::Offered { m, v: 1 });
    for (v, end) in [(0, HandlerEnd::Fail), (1, HandlerEnd::Ok)] {
        case.note(2, 1, Fact::Start { m, h: h(), tok: 0, v }).note(
            3,
            1,
            Fact::End { m, h: h(), tok: 0, end },
        );
    }
    case.effect(m, 1, "inline").row("marks", ["1"]).is_clean();
    case.effect(m, 0, "inline").row("marks", ["2"]);
    let twice = format!("I3: the effect of message {m} at inline is there 2 times");
    case.cries([&*format!("I2: message {m} ran with two payloads"), &*twice]);
}

#[test]
fn i3_an_effect_that_is_there_twice_is_noticed() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Tx);
    case.good(m).effect(m, 0, "tx");
    case.cries([&format!("I3: the effect of message {m} at tx is there 2 times")]);
}

#[test]
fn i5_a_replay_without_a_request_is_noticed() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.good_from(m, 100).row("outcomes", [&text(m), "plain", "1", "completed", "1", "0", "0"]);
    case.cries([&format!("I5: message {m} at plain: it was replayed, and that was never requested")]);
}

const OPERATION: &str = "0192f0c1-1111-7222-8333-444455556666";

#[test]
fn i5_what_an_operator_was_told_is_recorded_once() {
    let mut case = Case::new();
    case.note(1, 1, Fact::Requested { op: OPERATION.into(), m: None, h: "tx".into() });
    // Unknown and unrecorded: the request may not have arrived.
    case.note(2, 1, Fact::Acted { op: OPERATION.into(), r: SettleResult::Unknown }).is_clean();
    case.note(3, 1, Fact::Acted { op: OPERATION.into(), r: SettleResult::Applied });
    case.cries(["I5: 1 operations were done and are not recorded, the first is 0192"]);
    let recorded = OPERATION.to_uppercase().replace('-', "");
    case.row("operations", [&recorded]).is_clean();
    case.row("operations", [&recorded]).cries(["I5: the operation 0192f0c11111722283334444555566"]);
}

#[test]
fn i5_an_operation_without_a_request_is_noticed() {
    let mut case = Case::new();
    case.row("operations", [OPERATION]);
    case.cries(["I5: the operation 0192f0c1111172228333444455556666 is recorded, and was never requested"]);
}

/// Returns a message whose handler fails `noes` times and then finishes, with `counted` attempts.
fn after(noes: u32, counted: u32) -> (u32, Case) {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Plain, |outcome| matches!(outcome, PlannedOutcome::Fails(3)), &[]);
    case.taken(m);
    for tok in 1..=i64::from(noes) {
        let t = 1_000 * tok.unsigned_abs();
        case.run((m, "plain"), (1, tok), t, HandlerEnd::Fail);
        case.settled((m, "plain"), (1, tok), t + 20, "retrying", SettleResult::Applied);
    }
    let last = i64::from(noes) + 1;
    case.run((m, "plain"), (1, last), 50_000, HandlerEnd::Ok);
    case.settled((m, "plain"), (1, last), 50_020, "completed", SettleResult::Applied);
    case.ended((m, "plain"), last, counted);
    (m, case)
}

#[test]
fn i7_attempts_are_what_handlers_said() {
    for counted in 0..=3 {
        after(3, counted).1.is_clean();
    }
    let (m, mut case) = after(3, 4);
    case.cries([&format!(
        "I7: message {m} at plain: 4 attempts are counted, and its handler failed 3 times"
    )]);
}

#[test]
fn i7_attempts_have_an_end() {
    after(8, 8).1.is_clean();
    let (m, mut case) = after(9, 9);
    case.cries([&format!("I7: message {m} at plain: 9 attempts are counted, and 8 are allowed")]);
}

#[test]
fn i7_poison_has_its_reason() {
    let outcomes = [
        ("plain", PlannedKind::Plain, PlannedOutcome::Well, "rejected", 0, 0),
        ("plain", PlannedKind::Plain, PlannedOutcome::Well, "exhausted", 0, 0),
        ("plain", PlannedKind::Plain, PlannedOutcome::Well, "crashed", 0, 13),
        ("killer", PlannedKind::Killer, PlannedOutcome::Kills, "crashed", 0, 12),
        ("killer", PlannedKind::Killer, PlannedOutcome::Kills, "crashed", 0, 15),
        ("plain", PlannedKind::Plain, PlannedOutcome::Rejects, "of no kind", 0, 0),
    ];
    for (h, kind, wanted, reason, attempts, crashes) in outcomes {
        let mut case = Case::new();
        let m = case.find(kind, |outcome| outcome == wanted, &[]);
        case.taken(m).poisoned((m, h), reason, attempts, crashes);
        case.cries([&format!("I7: message {m} at {h}: it is poisoned as {reason} after")]);
    }
    for crashes in [13, 14] {
        let mut case = Case::new();
        let m = case.find(PlannedKind::Killer, |outcome| outcome == PlannedOutcome::Kills, &[]);
        case.taken(m).poisoned((m, "killer"), "crashed", 0, crashes).is_clean();
    }
}

#[test]
fn i7_what_takes_its_process_down_every_time_is_never_completed() {
    let mut case = Case::new();
    let m = case.find(PlannedKind::Killer, |outcome| outcome == PlannedOutcome::Kills, &[]);
    case.good(m);
    case.cries([&format!(
        "I7: message {m} at killer: it takes its process down every time, and is completed"
    )]);
}

/// Two messages of one ordering key, in the order of their numbers.
fn of_a_line(case: &Case) -> [u32; 2] {
    let first = case.well(PlannedKind::Ordered);
    let line = |m: u32| case.rules.plan.message(m).line;
    let mut others = vec![first];
    loop {
        let next = case.find(PlannedKind::Ordered, |outcome| outcome == PlannedOutcome::Well, &others);
        if line(next) == line(first) {
            return [first, next];
        }
        others.push(next);
    }
}

#[test]
fn i8_effects_of_a_line_come_in_the_order_of_acceptance() {
    let mut case = Case::new();
    let [first, second] = of_a_line(&case);
    case.good_from(first, 100).ended((first, "ordered"), 1, 0);
    case.good_from(second, 200).ended((second, "ordered"), 1, 0).is_clean();
    let mut case = Case::new();
    case.good_from(second, 100).ended((second, "ordered"), 1, 0);
    case.good_from(first, 200).ended((first, "ordered"), 1, 0);
    case.cries([&format!("I8: message {first} took effect after message {second} of its line")]);
}

#[test]
fn i8_runs_of_a_line_do_not_overlap() {
    let mut case = Case::new();
    let [first, second] = of_a_line(&case);
    case.good_from(first, 100).ended((first, "ordered"), 1, 0);
    case.good_from(second, 105).ended((second, "ordered"), 1, 0);
    case.cries([&format!("I8: messages {first} and {second} of line")]);
    // A run with a lost claim continues beside its successor: the store refuses its writes.
    case.lines.retain(|line| !matches!(&line.fact, Fact::Settled { m, .. } if *m == first));
    case.is_clean();
}

#[test]
fn i11_entries_that_are_not_finished_are_counted() {
    let mut case = Case::new();
    case.row("unfinished", ["1"]).row("unfinished", ["2"]).cries(["I11: 2 entries are not finished"]);
}

#[test]
fn i11_a_message_is_stored_once() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.good(m).stored(m, 900).cries([&format!("I11: message {m} is stored 2 times")]);
}

#[test]
fn i11_marks_are_as_many_as_inline_effects() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Inline);
    case.note(1, 0, Fact::Offered { m, v: 0 }).effect(m, 0, "inline").row("marks", ["1"]).is_clean();
    case.row("marks", ["2"]).cries(["I11: there are 2 marks and 1 effects of inline handlers"]);
}

#[test]
fn i11_conflicts_are_quarantined_and_nothing_else() {
    let mut case = Case::new();
    let m = case.well(PlannedKind::Plain);
    case.good(m).row("quarantine", [&format!("m-{m}"), "conflict"]);
    case.cries([&format!(
        "I11: message {m} is quarantined as {{\"conflict\"}}, and never had another payload"
    )]);
    case.note(3, 0, Fact::Offered { m, v: 1 }).note(4, 0, Fact::Acked { m, v: 1 }).is_clean();
    case.rows.remove("quarantine");
    case.cries([&format!("I11: two payloads of message {m} were acknowledged, and none is quarantined")]);
}

/// An inbox that may delete messages within the round is not at fault for deleted ones, but it is for missing ones.
#[test]
fn what_may_be_forgotten_need_not_be_there() {
    let mut case = Case::new();
    case.rules.forgets = true;
    let m = case.well(PlannedKind::Tx);
    case.good_from(m, 100);
    case.rows.remove("messages");
    case.is_clean();
    case.rows.clear();
    case.cries([&format!("I1: message {m} at tx: it was acknowledged, and is not there")]);
    // Unless it came too late for its mark.
    case.row("quarantine", [&format!("m-{m}"), "stale"]).is_clean();
}
