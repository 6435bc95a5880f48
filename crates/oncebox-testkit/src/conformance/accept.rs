//! Accept: each message once per key, with one entry per handler.

use std::collections::HashSet;

use oncebox::config::OnConflict;
use oncebox::state::{Outcome, Status};
use oncebox::store::{Accepted, KnownMessage, NewMessage, QuarantineReason};
use oncebox::time::Timestamp;
use oncebox::{Headers, Message};

use crate::fixture::{
    HOUR, SECOND, again, handler, ids, inbox, inbox_named, key, message, moved_to, offer, offer_message,
    offer_routed, offer_to, renamed,
};
use crate::{Harness, StoreUnderTest};

pub async fn the_first_is_stored_and_the_second_is_a_duplicate<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    for _ in 0..3 {
        assert_eq!(h.accept(offer("1")).await, again(seq));
    }
    assert_eq!(h.count().await.messages, 1);
    assert_eq!(h.list(&inbox(), Status::Pending, 10).await.len(), 1);
}

pub async fn an_empty_batch_is_nothing<S: StoreUnderTest>(h: &Harness<S>) {
    assert_eq!(h.accept_all(&[]).await, []);
    assert_eq!(h.count().await.messages, 0);
}

pub async fn a_batch_answers_in_its_order<S: StoreUnderTest>(h: &Harness<S>) {
    let known = h.first(offer("known")).await;
    let other_payload = offer_message(Message::new("known", "order.placed", "other").with_source("shop"));
    let answers = h
        .accept_all(&[
            offer("a"),
            offer("known"),
            offer("b"),
            other_payload,
            offer_to("known", &["h", "new"]),
        ])
        .await;
    let [Accepted::First(a), Accepted::Duplicate(dup), Accepted::First(b), Accepted::Conflict(of), added] =
        answers[..]
    else {
        panic!("unexpected answers {answers:?}")
    };
    assert!(a < b, "sequences grow within a batch");
    assert_eq!((dup.seq, of, added), (known, known, Accepted::HandlersAdded(known, 1)));
}

// Retention advice uses these delays.
pub async fn a_duplicate_is_told_how_late_it_is<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let ordered = h.first(offer_message(message("2").with_ordering_key("k"))).await;
    let known = |seq, age| Accepted::Duplicate(KnownMessage::new(seq, age));
    for hours in 1..4 {
        h.advance(HOUR);
        assert_eq!(h.accept(offer("1")).await, known(seq, hours * HOUR));
        // Several at once and ordered messages may use other statements.
        let batch = [
            offer("1"),
            offer(hours.to_string() + " new"),
            offer_message(message("2").with_ordering_key("k")),
        ];
        let answers = h.accept_all(&batch).await;
        assert_eq!(answers[0], known(seq, hours * HOUR));
        assert_eq!(answers[2], known(ordered, hours * HOUR));
        assert_eq!(h.accept_all(&[offer("1"), offer("1")]).await, [known(seq, hours * HOUR); 2]);
    }
    h.advance(SECOND);
    h.accept(offer_to("1", &["h", "more"])).await;
    h.advance(SECOND);
    let first = 3 * HOUR + 2 * SECOND;
    assert_eq!(h.accept(offer_to("1", &["more"])).await, known(seq, first), "the first delivery counts");
}

pub async fn a_key_twice_in_a_batch_is_a_duplicate_of_itself<S: StoreUnderTest>(h: &Harness<S>) {
    let answers = h.accept_all(&[offer("1"), offer("1"), offer("1")]).await;
    let [Accepted::First(seq), second, third] = answers[..] else { panic!("unexpected answers {answers:?}") };
    assert_eq!((second, third), (again(seq), again(seq)));
    assert_eq!(h.claim("h", 10).await.len(), 1);
}

pub async fn a_conflict_within_a_batch_is_quarantined<S: StoreUnderTest>(h: &Harness<S>) {
    let answers = h.accept_all(&[offer("1"), conflicting("1", "other")]).await;
    let [Accepted::First(seq), second] = answers[..] else { panic!("unexpected answers {answers:?}") };
    assert_eq!(second, Accepted::Conflict(seq));
    assert_eq!(h.count().await.quarantined, 1);
}

pub async fn a_large_batch_is_stored_whole<S: StoreUnderTest>(h: &Harness<S>) {
    let batch: Vec<NewMessage> = (0..1_000).map(|n| offer_to(n.to_string(), &["h", "i"])).collect();
    let mut last = None;
    for answer in h.accept_all(&batch).await {
        let Accepted::First(seq) = answer else { panic!("unexpected answer {answer:?}") };
        assert!(last < Some(seq), "sequences grow in the order of the batch");
        last = Some(seq);
    }
    let counts = h.count().await;
    assert_eq!((counts.messages, counts.with_status(Status::Pending)), (1_000, 2_000));
}

pub async fn sequences_grow<S: StoreUnderTest>(h: &Harness<S>) {
    let first = h.first(offer("1")).await;
    let second = h.first(offer("2")).await;
    let elsewhere = h.first(moved_to(&inbox_named("other"), &offer("3"))).await;
    let third = h.first(offer("3")).await;
    assert!(first < second && second < third);
    assert!(
        elsewhere != first && elsewhere != second && elsewhere != third,
        "a sequence is unique in its store"
    );
}

// FAULTS A7: one entry per registered handler, in the same commit.
pub async fn every_handler_gets_an_entry<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer_to("1", &["a", "b", "c"])).await;
    let view = h.show("1").await.expect("the message is known");
    let (stored, received_at, stored_message) = view.stored.expect("the message is stored");
    assert_eq!((stored, received_at, &*stored_message), (seq, h.now(), &message("1")));
    let handlers: Vec<_> = view.entries.iter().map(|entry| entry.handler.as_str()).collect();
    assert_eq!(handlers, ["a", "b", "c"]);
    for entry in &view.entries {
        assert_eq!((entry.seq, entry.status, entry.at), (seq, Status::Pending, h.now()));
        assert_eq!((entry.attempts, entry.suspicion.stored(), entry.generation), (0, 0, 0));
        assert_eq!((entry.reason, &entry.error), (None, &None));
    }
}

// FAULTS A8
pub async fn a_message_without_a_handler_is_stored_without_entries<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer_to("1", &[])).await;
    assert_eq!(h.accept(offer_to("1", &[])).await, again(seq));
    let view = h.show("1").await.expect("the message is known");
    assert!(view.stored.is_some() && view.entries.is_empty());
    assert_eq!(h.count().await.messages, 1);
}

pub async fn a_handler_added_later_gets_the_redelivery<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer_to("1", &["a"])).await;
    assert_eq!(h.accept(offer_to("1", &["a", "b", "c"])).await, Accepted::HandlersAdded(seq, 2));
    assert_eq!(h.accept(offer_to("1", &["a", "b", "c"])).await, again(seq));
    assert_eq!(h.accept(offer_to("1", &["b"])).await, again(seq));
    for name in ["a", "b", "c"] {
        assert_eq!(h.claim(name, 10).await.len(), 1, "{name}");
    }
    let unrouted = h.first(offer_to("2", &[])).await;
    assert_eq!(h.accept(offer_to("2", &["a"])).await, Accepted::HandlersAdded(unrouted, 1));
    assert_eq!(ids(&h.claim("a", 10).await), ["2"]);
}

pub async fn a_finished_entry_is_not_added_again<S: StoreUnderTest>(h: &Harness<S>) {
    for outcome in crate::fixture::one_outcome_per_status() {
        let id = format!("{outcome:?}");
        let claim = h.settled(&id, outcome).await;
        assert_eq!(h.accept(offer(&id)).await, again(claim.seq));
        assert_eq!(h.show(&id).await.expect("known").entries.len(), 1);
    }
}

pub async fn an_entry_under_a_legacy_key_covers_the_handler<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer_to("1", &["old"])).await;
    let renamed_offer = || offer_routed(message("1"), [renamed("new", &["older", "old"])]);
    assert_eq!(h.accept(renamed_offer()).await, again(seq));
    let claim = h.claim_one("old").await;
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.accept(renamed_offer()).await, again(seq), "a finished one covers it too");
    h.first(offer_routed(message("2"), [renamed("new", &["old"])])).await;
    let entries = h.show("2").await.expect("known").entries;
    assert_eq!(entries[0].handler, handler("new"), "the newest key is the name");
}

// FAULTS A10
pub async fn another_payload_under_the_key_is_quarantined<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    h.advance(SECOND);
    assert_eq!(h.accept(conflicting("1", "other")).await, Accepted::Conflict(seq));
    let view = h.show("1").await.expect("known");
    assert_eq!(&*view.stored.expect("stored").2, &message("1"), "the first is not overwritten");
    let [item] = &view.quarantined[..] else { panic!("one message is quarantined: {:?}", view.quarantined) };
    assert_eq!((item.reason, item.received_at), (QuarantineReason::Conflict, h.now()));
    assert_eq!(item.message.payload(), "other");
    assert_eq!(h.count().await.quarantined, 1);
    assert_eq!(h.claim("h", 10).await.len(), 1, "the conflict does not run");
    assert_eq!(h.accept(offer("1")).await, Accepted::Duplicate(KnownMessage::new(seq, SECOND)));
}

pub async fn another_type_under_the_key_is_a_conflict<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let other_type = offer_message(Message::new("1", "order.cancelled", "1").with_source("shop"));
    assert_eq!(h.accept(other_type).await, Accepted::Conflict(seq));
}

pub async fn a_conflict_does_not_pile_up<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    for _ in 0..3 {
        assert_eq!(h.accept(conflicting("1", "x")).await, Accepted::Conflict(seq));
        assert_eq!(
            h.accept_all(&[conflicting("1", "y"), conflicting("1", "y")]).await,
            [Accepted::Conflict(seq), Accepted::Conflict(seq)]
        );
    }
    assert_eq!(h.count().await.quarantined, 2, "one for each payload");
    assert_eq!(h.show("1").await.expect("known").quarantined.len(), 2);
}

pub async fn first_wins_takes_a_conflict_for_a_duplicate<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let mut second = conflicting("1", "other");
    second.on_conflict = OnConflict::FirstWins;
    let varied = Accepted::Duplicate(KnownMessage::new(seq, std::time::Duration::ZERO).varied(true));
    assert_eq!(h.accept(second).await, varied);
    assert_eq!(h.accept(offer("1")).await, again(seq));
    assert_eq!(h.count().await.quarantined, 0);
}

// Handlers of the other type must not get the first message in its place.
pub async fn first_wins_quarantines_another_type<S: StoreUnderTest>(h: &Harness<S>) {
    let seq = h.first(offer("1")).await;
    let other = Message::new("1", "order.cancelled", "1").with_source("shop");
    let mut other = offer_routed(other, ["h", "i"].map(crate::fixture::route));
    other.on_conflict = OnConflict::FirstWins;
    assert_eq!(h.accept(other).await, Accepted::Conflict(seq));
    assert_eq!(h.count().await.quarantined, 1);
    assert_eq!(h.show("1").await.expect("known").entries.len(), 1);
}

pub async fn a_delay_postpones_the_first_attempt<S: StoreUnderTest>(h: &Harness<S>) {
    let mut later = offer("1");
    later.delay = HOUR;
    h.first(later).await;
    assert_eq!(h.entry("1", "h").await.at, h.now().after(HOUR));
    assert!(h.claim("h", 1).await.is_empty());
    h.advance(HOUR.saturating_sub(SECOND));
    assert!(h.claim("h", 1).await.is_empty());
    h.advance(SECOND);
    assert_eq!(h.claim("h", 1).await.len(), 1);
}

// FAULTS G5
pub async fn inboxes_do_not_share_keys<S: StoreUnderTest>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(offer("1")).await;
    let there = moved_to(&other, &offer("1"));
    let seq = h.first(there.clone()).await;
    assert_eq!(h.accept(there).await, again(seq));
    assert_eq!(h.count().await.messages, 1);
    assert_eq!(h.store.count(&other).await.expect("count").messages, 1);
    assert_eq!(h.accept(moved_to(&other, &conflicting("1", "other"))).await, Accepted::Conflict(seq));
    assert_eq!(h.count().await.quarantined, 0);
    assert!(h.show("1").await.expect("known").quarantined.is_empty());
}

pub async fn a_batch_may_serve_several_inboxes<S: StoreUnderTest>(h: &Harness<S>) {
    let other = inbox_named("other");
    let answers = h.accept_all(&[offer("1"), moved_to(&other, &offer("1")), offer("2")]).await;
    assert!(answers.iter().all(|answer| matches!(answer, Accepted::First(_))), "{answers:?}");
    assert_eq!(h.count().await.messages, 2);
    assert_eq!(h.store.count(&other).await.expect("count").messages, 1);
}

pub async fn a_message_comes_back_whole<S: StoreUnderTest>(h: &Harness<S>) {
    let mut headers = Headers::default();
    headers.push("Trace", "1");
    headers.push("trace", &b"\0\xff"[..]);
    headers.push("empty", "");
    headers.push("", "no name");
    let sent = Message::new("id", "order.placed", "payload")
        .with_source("shop/é")
        .with_headers(headers)
        .with_ordering_key(&b"\0\xfe"[..])
        .with_time(Timestamp::from_millis(-5));
    let new = offer_message(sent.clone());
    h.first(new.clone()).await;
    let claimed = h.claim("h", 1).await.remove(0);
    assert_eq!(*claimed.message, sent);
    let view = h.store.show(&inbox(), &new.key).await.expect("show").expect("known");
    assert_eq!(*view.stored.expect("stored").2, sent);
    let conflict = offer_message(
        Message::new("id", "order.placed", "other").with_source("shop/é").with_header("a", &b"\0"[..]),
    );
    h.accept(conflict.clone()).await;
    let view = h.store.show(&inbox(), &new.key).await.expect("show").expect("known");
    assert_eq!(view.quarantined[0].message, conflict.message);
}

// A batch may send common values once, but not values that only most messages share.
pub async fn a_batch_keeps_each_message_as_it_came<S: StoreUnderTest>(h: &Harness<S>) {
    let plain = |id: &str| Message::new(id.to_owned(), "order.placed", "payload").with_source("shop");
    let others: [fn(Message) -> Message; 4] = [
        |message| message.with_source("elsewhere"),
        |message| message.with_header("trace", "1"),
        |message| message.with_time(Timestamp::from_millis(5)),
        |message| message.with_tenant("acme"),
    ];
    let mut sent = Vec::new();
    for (n, other) in others.into_iter().enumerate() {
        let numbered = |last: &str| plain(&format!("{n}{last}"));
        sent.push([other(numbered("a")), numbered("b")]);
        sent.push([numbered("c"), other(numbered("d"))]);
    }
    let typed = |id: &str, message_type: &str| {
        Message::new(id.to_owned(), message_type.to_owned(), "payload").with_source("shop")
    };
    sent.push([typed("e", "order.placed"), typed("f", "order.paid")]);
    sent.push([typed("g", "order.paid"), typed("h", "order.placed")]);
    for batch in sent {
        let offers = batch.clone().map(offer_message);
        let accepted = h.accept_all(&offers).await;
        assert!(accepted.iter().all(|one| matches!(one, Accepted::First(_))), "{accepted:?}");
        let claimed = h.claim("h", 10).await;
        assert_eq!(claimed.iter().map(|one| (*one.message).clone()).collect::<Vec<_>>(), batch);
    }
}

// FAULTS A12, G1
pub async fn ids_and_payloads_are_any_bytes<S: StoreUnderTest>(h: &Harness<S>) {
    let long = vec![b'x'; 1 << 20];
    let mut longer = long.clone();
    longer.push(b'x');
    let samples: [&[u8]; 14] = [
        b"ABC",
        b"abc",
        b"ABC ",
        b" ABC",
        b"ABC\0",
        b"\0",
        b"\0\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"'; drop table message; --",
        "a\u{301}".as_bytes(),
        &long,
        &longer,
    ];
    for sample in samples {
        h.first(offer(sample)).await;
    }
    for sample in samples {
        assert!(matches!(h.accept(offer(sample)).await, Accepted::Duplicate(_)));
    }
    let claimed = h.claim("h", 100).await;
    let back: HashSet<_> =
        claimed.iter().map(|claimed| (claimed.message.id(), &claimed.message.payload()[..])).collect();
    assert_eq!(back, samples.iter().map(|sample| (*sample, *sample)).collect());
}

// FAULTS G2: nothing on the way interprets the payload.
pub async fn payloads_are_opaque<S: StoreUnderTest>(h: &Harness<S>) {
    let deep = format!("{}{}", "[".repeat(14_500), "]".repeat(14_500));
    let large = vec![0xA5; 3 << 20];
    for (id, payload) in [("empty", Vec::new()), ("deep", deep.into_bytes()), ("large", large)] {
        h.first(offer_message(Message::new(id, "order.placed", payload.clone()))).await;
        let claimed = h.claim("h", 1).await.remove(0);
        assert!(claimed.message.payload() == &payload, "{id}");
        h.settle(&claimed.claim, Outcome::Done).await;
    }
}

pub async fn the_key_is_reported_with_the_claim<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer("1")).await;
    assert_eq!(h.claim_one("h").await.key, key("1"));
}

/// Returns a message with another payload under the key of `offer(id)`.
fn conflicting(id: &str, payload: &str) -> NewMessage {
    offer_message(Message::new(id.to_owned(), "order.placed", payload.to_owned()).with_source("shop"))
}
