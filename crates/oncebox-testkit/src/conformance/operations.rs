//! Operations happen once for each identity, and are recorded.

use std::time::Duration;

use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{
    Acted, Action, ActionKind, ActionResult, Actor, Admin as _, AuditFilter, BlockedParams, DuplicateCount,
    EntryExplanation, ExamineParams, Finding, MessageView, OperationId, OperationView, OrderQueue, PausedKey,
    RegisterParams, Settled, SweepParams,
};
use oncebox::{ErrorKind, Key, Result};

use crate::fixture::{
    HOUR, RETENTION, SECOND, handler, ids, inbox, inbox_named, key, moved_to, offer, offer_ordered,
};
use crate::{FaultyStore, Harness, StoreFault, StoreUnderTest, StoreVerb};

fn on(id: &str, operation: Operation) -> Action {
    Action::new(inbox(), ActionKind::Entry { key: key(id), handler: handler("h"), operation })
}

fn pause() -> Action {
    Action::new(inbox(), ActionKind::Pause { handler: handler("h") })
}

async fn audit<S: StoreUnderTest>(
    h: &Harness<S>,
    change: impl FnOnce(&mut AuditFilter),
) -> Vec<OperationView> {
    let mut filter = AuditFilter::new(inbox());
    change(&mut filter);
    h.store.audit(&filter).await.expect("audit").operations
}

// FAULTS J1
pub async fn who_did_what_and_why_is_recorded<S: StoreUnderTest>(h: &Harness<S>) {
    h.poisoned("1").await;
    h.advance(SECOND);
    let action = on("1", Operation::Retry).by("ada", "the\0 depot is back");
    let acted = h.store.act(&action).await.expect("act");
    assert_eq!(acted, Acted::now(ActionResult::Entry(Box::new(h.entry("1", "h").await))));
    let [record] = &audit(h, |_| {}).await[..] else { panic!("one record") };
    assert_eq!((record.id, record.parent, record.at), (action.id, None, h.now()));
    assert_eq!((&*record.actor, &*record.reason), ("ada", "the\u{fffd} depot is back"));
    assert_eq!((&*record.verb, record.key), ("retry", Some(key("1"))));
    assert_eq!((record.handler.clone(), &*record.body), (Some(handler("h")), &*action.body()));
    assert_eq!(ActionResult::decode(&record.answer).expect("an answer"), acted.answer);
    // FAULTS S12: a record outlives the message whose payload the error may repeat.
    assert!(h.entry("1", "h").await.error.is_some(), "the entry has it");
    assert_eq!(acted.answer.entry().and_then(|entry| entry.error.clone()), None);
    assert!(!record.answer.contains("error"), "{}", record.answer);
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    let short = &audit(h, |_| {}).await[0];
    assert_eq!((&*short.actor, &*short.verb, short.key), (Action::UNKNOWN_ACTOR, "pause", None));
}

// FAULTS J1
pub async fn the_same_again_is_done_once_and_answered_the_same<S: StoreUnderTest>(h: &Harness<S>) {
    h.completed("1").await;
    let replay = on("1", Operation::Replay).by("ada", "again");
    let first = h.store.act(&replay).await.expect("act");
    h.advance(SECOND);
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    let another = h.another().await;
    for _ in 0..2 {
        let again = another.act(&replay).await.expect("act again");
        assert!(again.repeated);
        assert_eq!(again.answer, first.answer, "as it was right afterwards");
    }
    assert_eq!((h.status("1").await, h.entry("1", "h").await.generation), (Status::Completed, 1));
    assert_eq!(audit(h, |_| {}).await.len(), 1);
    let new = h.store.act(&replay.clone().id(OperationId::fresh())).await.expect("another one");
    assert_eq!(new.answer.entry().map(|entry| entry.generation), Some(2));
    for (action, changed) in [(pause(), true), (pause(), false)] {
        let acted = h.store.act(&action).await.expect("pause");
        assert_eq!(acted.answer, ActionResult::Changed(changed));
        assert_eq!(h.store.act(&action).await.expect("pause").answer, ActionResult::Changed(changed));
    }
    let resume = Action::new(inbox(), ActionKind::Resume { handler: handler("h") });
    assert_eq!(h.store.act(&resume).await.expect("resume").answer, ActionResult::Changed(true));
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    h.store.act(&resume).await.expect("resume again");
    assert_eq!(h.count().await.paused, [handler("h")], "a repeat resumes nothing");
}

pub async fn an_identity_is_for_one_thing<S: StoreUnderTest>(h: &Harness<S>) {
    for id in ["1", "2"] {
        h.poisoned(id).await;
    }
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    let id = OperationId::fresh();
    h.store.act(&on("1", Operation::Retry).id(id)).await.expect("act");
    let before = h.snapshot().await;
    let mut elsewhere = on("1", Operation::Retry);
    elsewhere.inbox = other;
    for wrong in [on("2", Operation::Retry), on("1", Operation::Discard), pause(), elsewhere] {
        let error = h.store.act(&wrong.id(id)).await.expect_err("it was used for something else");
        assert_eq!(error.kind(), ErrorKind::OperationReused);
    }
    assert_eq!(h.snapshot().await, before);
    assert_eq!(audit(h, |_| {}).await.len(), 1);
}

pub async fn an_identity_is_for_one_reason<S: StoreUnderTest>(h: &Harness<S>) {
    h.poisoned("1").await;
    let cases =
        [on("1", Operation::Retry), pause(), Action::new(inbox(), ActionKind::Purge { age: HOUR, limit: 1 })];
    for action in cases {
        let action = action.by("ada", "the depot is back");
        h.store.act(&action).await.expect("act");
        let before = h.snapshot().await;
        for reason in ["the depot is gone", "The depot is back", ""] {
            let error = h.store.act(&action.clone().by("ada", reason)).await.expect_err("another reason");
            assert_eq!(error.kind(), ErrorKind::OperationReused);
            assert!(error.what().contains("with another reason"), "{error}");
            assert!(!error.what().contains("depot"), "{error}");
        }
        let mut other = action.clone();
        other.kind = ActionKind::Resume { handler: handler("g") };
        let verb = h.store.act(&other).await;
        assert!(verb.expect_err("another verb").what().contains("with another verb"));
        let again =
            h.store.act(&action.clone().by("bob", "the depot is back")).await.expect("the same again");
        assert!(again.repeated, "who asks again does not matter");
        let record = &audit(h, |filter| filter.id = Some(action.id)).await[0];
        assert_eq!((&*record.actor, &*record.reason), ("ada", "the depot is back"));
        assert_eq!(h.snapshot().await, before);
    }
}

pub async fn what_is_refused_is_not_recorded<S: StoreUnderTest>(h: &Harness<S>) {
    h.running("1").await;
    let retry = on("1", Operation::Retry);
    assert_eq!(h.store.act(&retry).await.expect_err("it runs").kind(), ErrorKind::Refused);
    let unknown = on("unknown", Operation::Retry);
    assert_eq!(h.store.act(&unknown).await.expect_err("unknown").kind(), ErrorKind::NotFound);
    assert!(audit(h, |_| {}).await.is_empty());
    h.advance(crate::fixture::PAST_LEASE);
    let claim = h.rescue_one("h").await;
    h.settle(&claim, crate::fixture::rejected()).await;
    assert!(!h.store.act(&retry).await.expect("now it may be").repeated);
}

// FAULTS J1: an operator presses the button in two windows.
pub async fn one_of_many_at_once_is_done<S: StoreUnderTest>(h: &Harness<S>) {
    h.completed("1").await;
    let replay = on("1", Operation::Replay);
    let mut calls = Vec::new();
    for _ in 0..8 {
        let (store, replay) = (h.another().await, replay.clone());
        calls.push(tokio::spawn(async move { store.act(&replay).await }));
    }
    let mut acted: Vec<Acted> = Vec::new();
    for call in calls {
        acted.push(call.await.expect("no panic").expect("act"));
    }
    assert_eq!(acted.iter().filter(|acted| !acted.repeated).count(), 1);
    assert!(acted.iter().all(|one| one.answer == acted[0].answer));
    assert_eq!(h.entry("1", "h").await.generation, 1);
}

pub async fn an_answer_that_was_lost_is_asked_for_again<S: StoreUnderTest>(h: &Harness<S>) {
    h.completed("1").await;
    let store = FaultyStore::new(h.store.clone());
    store.faults().next(StoreVerb::Operate, StoreFault::ErrAfter);
    let replay = on("1", Operation::Replay);
    let lost = store.act(&replay).await.expect_err("the answer is lost");
    assert_eq!(lost.kind(), ErrorKind::CommitUnknown);
    let again: Result<Acted> = store.act(&replay).await;
    assert!(again.expect("act again").repeated);
    assert_eq!(h.entry("1", "h").await.generation, 1);
}

pub async fn records_are_listed_page_by_page_and_by_what_they_are_about<S: StoreUnderTest>(h: &Harness<S>) {
    let parent = OperationId::fresh();
    for n in 0..5 {
        h.poisoned(&n.to_string()).await;
        let mut action =
            on(&n.to_string(), Operation::Discard).by(if n % 2 == 0 { "ada" } else { "bob" }, "");
        action.parent = (n > 2).then_some(parent);
        h.store.act(&action).await.expect("act");
        h.store.pause(&inbox_named("other"), &handler("h")).await.expect("pause");
    }
    let all = audit(h, |_| {}).await;
    assert_eq!(all.len(), 5, "of one inbox");
    assert!(all.is_sorted_by(|a, b| a.number > b.number), "the latest first");
    let mut filter = AuditFilter::new(inbox());
    filter.limit = 2;
    let mut pages = Vec::new();
    loop {
        let page = h.store.audit(&filter).await.expect("audit");
        assert!(page.operations.len() <= 2);
        pages.extend(page.operations);
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    assert_eq!(pages, all);
    assert_eq!(audit(h, |f| f.key = Some(key("3"))).await, all[1..2]);
    assert_eq!(audit(h, |f| f.parent = Some(parent)).await, all[..2]);
    assert_eq!(audit(h, |f| f.id = Some(all[4].id)).await, all[4..]);
    assert_eq!(audit(h, |f| f.actor = Some("bob".into())).await, [all[1].clone(), all[3].clone()]);
    assert!(audit(h, |f| f.actor = Some("b%".into())).await.is_empty());
    assert!(audit(h, |f| (f.actor, f.key) = (Some("bob".into()), Some(key("0")))).await.is_empty());
}

// A name may look like another token's record: the token is a field of its own.
pub async fn the_token_is_recorded_beside_the_actor<S: StoreUnderTest>(h: &Harness<S>) {
    let requests = [
        ("ada", Some("night")),
        ("ada (token root)", Some("night")),
        ("ada (token root)", None),
        ("ada", Some("root")),
    ];
    for (n, (name, token)) in requests.into_iter().enumerate() {
        h.poisoned(&n.to_string()).await;
        let action = on(&n.to_string(), Operation::Discard).by(Actor::from(name).with_token(token), "");
        h.store.act(&action).await.expect("act");
    }
    let of =
        |records: Vec<OperationView>| -> Vec<Key> { records.into_iter().filter_map(|one| one.key).collect() };
    let recorded = audit(h, |_| {}).await.into_iter().rev().map(|one| (one.actor, one.token));
    let expected = requests.map(|(name, token)| (name.into(), token.map(Into::into)));
    assert_eq!(recorded.collect::<Vec<_>>(), expected);
    assert_eq!(of(audit(h, |f| f.token = Some("root".into())).await), [key("3")]);
    assert_eq!(of(audit(h, |f| f.token = Some("night".into())).await), [key("1"), key("0")]);
    let both = |f: &mut AuditFilter| (f.token, f.actor) = (Some("night".into()), Some("ada".into()));
    assert_eq!(of(audit(h, both).await), [key("0")]);
    let by_key = |f: &mut AuditFilter| (f.token, f.key) = (Some("night".into()), Some(key("3")));
    assert!(audit(h, by_key).await.is_empty());
    let none = |f: &mut AuditFilter| f.token = Some("nigh%".into());
    assert!(audit(h, none).await.is_empty());
}

pub async fn records_outlive_what_they_are_about<S: StoreUnderTest>(h: &Harness<S>) {
    h.poisoned("1").await;
    let discard = on("1", Operation::Discard).by("ada", "no use");
    let first = h.store.act(&discard).await.expect("act");
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert!(h.show("1").await.is_none());
    assert_eq!(audit(h, |f| f.key = Some(key("1"))).await.len(), 1);
    assert_eq!(h.store.act(&discard).await.expect("again").answer, first.answer);
    h.advance(SweepParams::AUDIT.saturating_sub(RETENTION + Duration::from_millis(1)));
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    h.sweep(RETENTION).await;
    assert_eq!(audit(h, |_| {}).await.len(), 2);
    h.advance(Duration::from_millis(1));
    h.sweep_pages(&inbox_named("other"), RETENTION, 10).await;
    assert_eq!(audit(h, |_| {}).await.len(), 2, "each inbox by itself");
    h.sweep(RETENTION).await;
    let left = audit(h, |_| {}).await;
    assert_eq!(left.iter().map(|record| &*record.verb).collect::<Vec<_>>(), ["pause"]);
}

pub async fn progress_is_noted_by_one_at_a_time<S: StoreUnderTest>(h: &Harness<S>) {
    let begun = Action::new(
        inbox(),
        ActionKind::Backfill { handler: handler("h"), kinds: vec!["order.placed".into()] },
    );
    assert_eq!(h.store.act(&begun).await.expect("begin").answer, ActionResult::Begun);
    let noted = async || audit(h, |f| f.id = Some(begun.id)).await.remove(0).progress;
    assert_eq!(noted().await, None);
    assert!(h.store.progress(begun.id, 0, "a").await.expect("note"));
    assert!(!h.store.progress(begun.id, 0, "b").await.expect("note"), "another process continues it");
    assert_eq!(noted().await, Some((1, "a".into())));
    assert!(h.store.progress(begun.id, 1, "c").await.expect("note"));
    assert_eq!(noted().await, Some((2, "c".into())));
    assert!(!h.store.progress(OperationId::fresh(), 0, "d").await.expect("note"), "nothing to note");
    assert!(h.store.act(&begun).await.expect("again").repeated);
    assert_eq!(noted().await, Some((2, "c".into())));
}

pub async fn a_purge_is_done_once<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer("1")).await;
    let conflict = |n: u8| oncebox::Message::new("1", "order.placed", vec![n]).with_source("shop");
    for n in 0..4 {
        h.accept(crate::fixture::offer_message(conflict(n))).await;
    }
    h.advance(HOUR);
    let purge = Action::new(inbox(), ActionKind::Purge { age: HOUR, limit: 3 });
    for _ in 0..2 {
        assert_eq!(h.store.act(&purge).await.expect("purge").answer, ActionResult::Purged(3));
    }
    assert_eq!(h.count().await.quarantined, 1);
}

fn line() -> OrderQueue {
    OrderQueue::new("shop", *b"k")
}

async fn hold<S: StoreUnderTest>(h: &Harness<S>, paused: bool) -> ActionResult {
    let (handler, line) = (handler("h"), line());
    let what =
        if paused { ActionKind::PauseKey { handler, line } } else { ActionKind::ResumeKey { handler, line } };
    h.store.act(&Action::new(inbox(), what)).await.expect("act").answer
}

pub async fn a_paused_ordering_key_waits_and_others_go_on<S: StoreUnderTest>(h: &Harness<S>) {
    for id in ["1", "2"] {
        h.first(offer_ordered(id, "k")).await;
    }
    h.first(offer_ordered("other", "l")).await;
    let before = h.count().await;
    assert_eq!(hold(h, true).await, ActionResult::Changed(true));
    assert_eq!(hold(h, true).await, ActionResult::Changed(false));
    h.first(offer_ordered("3", "k")).await;
    let counts = h.count().await;
    assert_eq!(counts.paused_keys, [PausedKey { handler: handler("h"), line: line() }]);
    assert_eq!(counts.with_status(Status::Poisoned), before.with_status(Status::Poisoned), "it is no entry");
    assert!(h.store.blocked(&BlockedParams::new(inbox())).await.expect("blocked").is_empty());
    assert_eq!(h.list(&inbox(), Status::Poisoned, 10).await, []);
    assert_eq!(ids(&h.claim("h", 10).await), ["other"], "nothing of the key, everything else");
    let explained = h.store.explain(&inbox(), &offer_ordered("1", "k").key).await.expect("explain");
    assert_eq!(explained.expect("known").why, [EntryExplanation::KeyPaused]);
    assert_eq!(hold(h, false).await, ActionResult::Changed(true));
    assert_eq!(hold(h, false).await, ActionResult::Changed(false));
    assert!(h.count().await.paused_keys.is_empty());
    for id in ["1", "2", "3"] {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [id], "in its order");
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn pausing_an_ordering_key_leaves_what_runs<S: StoreUnderTest>(h: &Harness<S>) {
    for id in ["1", "2"] {
        h.first(offer_ordered(id, "k")).await;
    }
    let claim = h.claim_one("h").await;
    hold(h, true).await;
    assert_eq!(h.settle(&claim, crate::fixture::failed()).await, Settled::Applied);
    h.advance(HOUR);
    assert!(h.claim("h", 10).await.is_empty(), "its retry waits, too");
    hold(h, false).await;
    let claim = h.claim_one("h").await;
    assert_eq!((claim.key, claim.attempts), (offer_ordered("1", "k").key, 1));
    hold(h, true).await;
    assert_eq!(h.settle(&claim, crate::fixture::rejected()).await, Settled::Applied);
    let blocked = h.store.blocked(&BlockedParams::new(inbox())).await.expect("blocked");
    assert_eq!(blocked.iter().map(|key| (key.head_key, key.waiting)).collect::<Vec<_>>(), [(claim.key, 1)]);
    let discard = ActionKind::Entry { key: claim.key, handler: handler("h"), operation: Operation::Discard };
    h.store.act(&Action::new(inbox(), discard)).await.expect("discard");
    assert!(h.claim("h", 10).await.is_empty(), "it is still paused");
    hold(h, false).await;
    assert_eq!(h.claim_one("h").await.key, offer_ordered("2", "k").key);
}

pub async fn the_doctor_tells_what_waits_for_a_person<S: StoreUnderTest>(h: &Harness<S>) {
    let mut params = ExamineParams::new(inbox(), h.now());
    // A store may use its server's clock, which the test does not move.
    let of = |findings: &[Finding]| -> Vec<&'static str> {
        findings
            .iter()
            .map(|finding| finding.code)
            .filter(|code| !matches!(*code, "clock_skew" | "not_durable"))
            .collect()
    };
    let before = h.store.doctor(&params).await.expect("doctor");
    assert!(before.iter().all(|finding| finding.code != "index"), "{before:?}");
    h.poisoned("1").await;
    h.first(offer("2")).await;
    h.accept(crate::fixture::offer_message(oncebox::Message::new("2", "x", "y").with_source("shop"))).await;
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    assert_eq!(hold(h, true).await, ActionResult::Changed(true));
    // A handler with a claim within a lease is known.
    h.advance(crate::fixture::PAST_LEASE);
    params.known = Some(vec![handler("another")]);
    let findings = of(&h.store.doctor(&params).await.expect("doctor"));
    for code in ["orphaned", "quarantined", "paused", "key_paused", "poisoned"] {
        assert!(findings.contains(&code), "{code} is not told: {findings:?}");
    }
    assert!(!findings.contains(&"lost_message"), "a key that is paused has no message to lose: {findings:?}");
}

pub async fn the_doctor_tells_what_is_remembered_for_ever<S: StoreUnderTest>(h: &Harness<S>) {
    let params = ExamineParams::new(inbox(), h.now());
    let findings = async || {
        let all = h.store.doctor(&params).await.expect("doctor");
        all.into_iter().find(|finding| finding.code == "remembered_for_ever")
    };
    let mut windows = RegisterParams::new(inbox(), RETENTION);
    windows.windows = vec![(handler("ledger"), Duration::MAX), (handler("h"), RETENTION)];
    h.store.register(&RegisterParams::new(inbox_named("other"), Duration::MAX)).await.expect("register");
    assert_eq!(findings().await, None);
    h.store.register(&windows).await.expect("register");
    let finding = findings().await.expect("one has no end");
    assert!(finding.what.ends_with("of \"ledger\""), "{finding}");
    windows.retention = Duration::MAX;
    h.store.register(&windows).await.expect("register");
    let finding = findings().await.expect("two have no end");
    assert!(finding.what.ends_with("of \"ledger\", messages without a handler"), "{finding}");
}

// FAULTS H1
pub async fn the_doctor_compares_windows_with_what_comes_again<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let params = |redelivery: Option<Duration>| {
        let mut params = ExamineParams::new(inbox(), h.now());
        params.redelivery = redelivery;
        params
    };
    let codes = async |redelivery: Option<Duration>| {
        let findings = h.store.examine(&params(redelivery)).await.expect("examine");
        let windows = ["short_window", "late_duplicates"];
        findings
            .into_iter()
            .map(|finding| finding.code)
            .filter(|code| windows.contains(code))
            .collect::<Vec<_>>()
    };
    assert!(codes(Some(48 * HOUR)).await.is_empty(), "no process has registered a window");
    h.store.register(&RegisterParams::new(inbox(), 24 * HOUR)).await.expect("register");
    h.store.register(&RegisterParams::new(inbox_named("other"), HOUR)).await.expect("register");
    assert!(codes(Some(24 * HOUR)).await.is_empty());
    assert_eq!(codes(Some(25 * HOUR)).await, ["short_window"]);
    let late = |hours: u32| DuplicateCount {
        seq,
        count: 1,
        first: h.now(),
        last: h.now().after(HOUR * hours),
        varied: 0,
    };
    h.store.count_duplicates(&[late(12)]).await.expect("count_duplicates");
    assert!(codes(None).await.is_empty(), "twice as long is enough");
    h.store.count_duplicates(&[late(13)]).await.expect("count_duplicates");
    assert_eq!(codes(None).await, ["late_duplicates"]);
}

pub async fn of_many_conflicts_under_a_key_some_are_shown<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer("1")).await;
    for n in 0..=MessageView::MAX_QUARANTINED {
        let conflict = oncebox::Message::new("1", "order.placed", format!("other {n}")).with_source("shop");
        h.accept(crate::fixture::offer_message(conflict)).await;
    }
    assert_eq!(h.count().await.conflicts, MessageView::MAX_QUARANTINED as u64 + 1);
    assert_eq!(h.show("1").await.expect("it is known").quarantined.len(), MessageView::MAX_QUARANTINED);
}
