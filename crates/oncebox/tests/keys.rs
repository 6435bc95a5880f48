//! By which key a message is recognised: the inbox's, that of its type, or that of each handler.

mod support;

use std::time::Duration;

use oncebox::config::{MissingKey, OnConflict};
use oncebox::source::{Ack, channel};
use oncebox::state::Status;
use oncebox::store::{Inspect, KnownMessage, Mark, Seq, Transactional as _};
use oncebox::{Accepted, Config, Dedupe, KeyStrategy, Message, Processed, Receipt};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::log_capture::LogCapture;
use support::{SECOND, Testbed, counts, in_time, message, quiet};

fn by(header: &str) -> Dedupe {
    Dedupe::By(KeyStrategy::header(header))
}

fn config(config: Config) -> Testbed {
    Testbed::new(|inbox, script| inbox.config(config).on("t", script.handler("h")))
}

fn undeduplicated() -> Config {
    Config { missing_key: MissingKey::Undeduplicated, ..Config::default() }
}

// FAULTS A11: only where the inbox is told to, and without inventing an id.
#[tokio::test]
async fn a_message_without_a_key_is_taken_where_that_is_allowed_and_every_delivery_runs() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = config(undeduplicated());
    for _ in 0..2 {
        assert!(matches!(setup.inbox.accept(message("", "ok")).await.unwrap(), Accepted::First(_)));
    }
    assert_eq!(setup.inbox.receive(message("", "ok")).await.unwrap(), Receipt::Done);
    let batch = setup.inbox.accept_batch([message("", "ok"), message("", "ok")]).await.unwrap();
    assert!(batch.iter().all(|one| matches!(one, Ok(Accepted::First(_)))), "{batch:?}");
    assert_eq!(setup.inbox.drain().await.unwrap(), 5);
    assert_eq!(setup.script.runs("h", ""), 5, "and the id that handlers see is empty");
    assert_eq!(capture.counted("oncebox_undeduplicated_total{inbox=test,reason=missing_key}"), 5);
    assert_eq!(capture.logged("no key: every delivery runs").len(), 5);
    assert!(capture.logged("every delivery runs").iter().all(|line| line.starts_with("DEBUG")));

    setup.accept("1", "ok").await;
    assert!(matches!(setup.inbox.accept(message("1", "ok")).await.unwrap(), Accepted::Duplicate(_)));
    assert_eq!(setup.inbox.key_of(&message("", "ok"), "h").unwrap(), None);
}

#[tokio::test]
async fn inline_handlers_and_once_take_it_too() {
    let setup =
        Testbed::new(|inbox, script| inbox.config(undeduplicated()).on("t", script.handler("h").inline()));
    for _ in 0..2 {
        assert_eq!(setup.inbox.process(message("", "ok")).await.unwrap(), Processed::Done);
        assert_eq!(setup.inbox.receive(message("", "ok")).await.unwrap(), Receipt::Done);
        let mut tx = setup.store().begin().await.unwrap();
        assert_eq!(setup.inbox.once(&mut tx, &message("", "ok"), "other").await.unwrap(), Mark::First);
        setup.store().commit(tx).await.unwrap();
    }
    assert_eq!(setup.script.runs("h", ""), 4);
}

// FAULTS A4: the same delivery is not stored twice because an answer was lost.
#[tokio::test]
async fn one_delivery_without_a_key_is_recognised_while_it_is_tried_again() {
    let setup = Testbed::new(|inbox, script| {
        let h = script.handler("h");
        inbox.config(undeduplicated()).on("t", h).on("t", script.handler("now").inline())
    });
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 1);
    running.receive(source).unwrap();
    setup
        .store()
        .faults()
        .script(StoreVerb::Accept, [Some(StoreFault::ErrAfter), Some(StoreFault::ErrAfter)]);
    setup.store().faults().next(StoreVerb::Mark, StoreFault::ErrBefore(oncebox::ErrorKind::Unavailable));
    let delivery = tokio::spawn(async move { sender.deliver(message("", "ok")).await });
    quiet().await;
    setup.pass(2 * SECOND).await;
    assert_eq!(in_time(delivery).await.unwrap().unwrap(), Ack::Done);
    in_time(running.idle()).await;
    assert_eq!(counts(&setup.inbox).await.messages, 1);
    assert_eq!((setup.script.runs("h", ""), setup.script.runs("now", "")), (1, 1));
}

/// Two messages that differ in their id and in what else `change` does have one key for the handler.
fn meet(setup: &Testbed, kind: &str, handler: &str, header: &str) -> bool {
    let message = |id: &str, value: &str| {
        let mut message = Message::new(id.to_owned(), kind, "ok");
        for name in ["inbox", "all", "order", "placed", "own"] {
            message = message.with_header(name, if name == header { "same" } else { value }.to_owned());
        }
        message
    };
    let key = |message| setup.inbox.key_of(&message, handler).expect("a good message").expect("a key");
    key(message("1", "a")) == key(message("2", "b"))
}

#[test]
fn the_handler_counts_more_than_the_type_the_type_than_the_pattern_and_the_pattern_than_the_inbox() {
    let rules = |all: bool| {
        Testbed::new(|inbox, script| {
            let inbox = inbox
                .config(Config { key: KeyStrategy::header("inbox"), ..Config::default() })
                .key_for("order.*", by("order"))
                .key_for("order.placed", by("placed"))
                .on(["mail", "order.placed", "order.sent"], script.handler("h"))
                .on(["mail", "order.placed", "order.sent"], script.handler("own").dedupe(by("own")));
            if all { inbox.key_for("*", by("all")) } else { inbox }
        })
    };
    for (all, kind, handler, header) in [
        (false, "mail", "h", "inbox"),
        (true, "mail", "h", "all"),
        (true, "order.sent", "h", "order"),
        (true, "order.placed", "h", "placed"),
        (true, "order.placed", "own", "own"),
        (true, "order.sent", "own", "own"),
        (true, "mail", "own", "own"),
        // A name that is not registered goes by its type, as with `once`.
        (true, "order.placed", "unknown", "placed"),
    ] {
        let setup = rules(all);
        for other in ["inbox", "all", "order", "placed", "own"] {
            assert_eq!(meet(&setup, kind, handler, other), other == header, "{kind} {handler} {other}");
        }
    }
}

/// A message with an order number.
fn order(id: &str, order: &str) -> Message {
    message(id, "ok").with_header("order", order.to_owned())
}

#[tokio::test]
async fn handlers_with_different_keys_are_offered_together_and_each_runs_once_for_its_own() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("by-id")).on("t", script.handler("by-order").dedupe(by("order")))
    });
    let accept = async |id: &str, number: &str| setup.inbox.accept(order(id, number)).await.unwrap();
    assert!(matches!(accept("1", "7").await, Accepted::First(_)));
    assert!(matches!(accept("2", "7").await, Accepted::First(_)), "new for one of them");
    assert!(matches!(accept("2", "7").await, Accepted::Duplicate(_)), "new for neither");
    assert_eq!(setup.store().faults().calls(StoreVerb::Accept), 3, "one call for all keys");
    setup.inbox.drain().await.unwrap();
    let runs = |handler, id| setup.script.runs(handler, id);
    assert_eq!((runs("by-id", "1"), runs("by-id", "2")), (1, 1));
    assert_eq!((runs("by-order", "1"), runs("by-order", "2")), (1, 0));
    let batch = [order("2", "7"), order("3", "7"), order("4", "8"), message("", "ok"), order("4", "8")];
    let batch = setup.inbox.accept_batch(batch).await.unwrap();
    let answers: Vec<_> =
        batch.iter().map(|one| one.as_ref().map_or("refused", |one| one.as_str())).collect();
    assert_eq!(answers, ["duplicate", "first", "first", "refused", "duplicate"]);
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
}

// Where the key of one falls back to the id, both have the same: the message is stored once.
#[tokio::test]
async fn equal_keys_of_two_handlers_are_one_message() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("by-id")).on("t", script.handler("by-order").dedupe(by("order")))
    });
    setup.accept("1", "ok").await;
    assert_eq!(counts(&setup.inbox).await.messages, 1);
    assert_eq!(capture.counted("oncebox_accepted_total{inbox=test,outcome=first}"), 1);
    assert_eq!(
        capture.counted("oncebox_accepted_total{inbox=test,outcome=handlers_added}"),
        0,
        "it is offered once"
    );
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
    assert_eq!(setup.status("1", "by-id").await, Status::Completed);
    assert_eq!(setup.status("1", "by-order").await, Status::Completed);
}

#[tokio::test]
async fn the_common_case_is_offered_as_one() {
    let setup = Testbed::new(|inbox, script| {
        // The inbox's own key in other words is no other key.
        let id = Dedupe::By(KeyStrategy::MessageId);
        inbox.on("t", script.handler("a")).on("t", script.handler("b").dedupe(id)).key_for("*", Dedupe::On)
    });
    setup.accept("1", "ok").await;
    assert_eq!(counts(&setup.inbox).await.messages, 1);
}

#[tokio::test]
async fn a_handler_without_dedupe_runs_at_every_delivery_and_the_others_do_not() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| {
        inbox
            .on(["t", "u"], script.handler("once"))
            .on(["t", "u"], script.handler("always").dedupe(Dedupe::Off))
            .on("t", script.handler("now").inline().dedupe(Dedupe::Off))
            // What is said last counts: code replaces what came with the function.
            .on("t", script.handler("explicit").dedupe(Dedupe::Off).dedupe(Dedupe::On))
            .key_for("v*", Dedupe::Off)
            .on("v", script.handler("typed"))
    });
    for _ in 0..3 {
        assert_eq!(setup.inbox.receive(message("1", "ok")).await.unwrap(), Receipt::Done);
        setup.inbox.receive(Message::new("1", "v", "ok")).await.unwrap();
        setup.inbox.drain().await.unwrap();
    }
    let runs = |handler| setup.script.runs(handler, "1");
    assert_eq!((runs("once"), runs("explicit")), (1, 1));
    assert_eq!((runs("always"), runs("now"), runs("typed")), (3, 3, 3));
    assert_eq!(
        capture.counted("oncebox_undeduplicated_total{inbox=test,reason=off}"),
        6,
        "once for each message"
    );
}

#[tokio::test]
async fn inline_handlers_mark_their_own_key() {
    let setup = Testbed::new(|inbox, script| {
        let by_order = script.handler("by-order").inline().dedupe(by("order"));
        inbox.on("t", script.handler("by-id").inline()).on("t", by_order)
    });
    let process = async |id, number| setup.inbox.process(order(id, number)).await.unwrap();
    assert_eq!(process("1", "7").await, Processed::Done);
    assert_eq!(process("2", "7").await, Processed::Done, "new for one of them");
    assert_eq!(process("2", "7").await, Processed::Duplicate);
    assert_eq!(setup.script.log(), ["by-id 1 1", "by-order 1 1", "by-id 2 1"]);
    let mut tx = setup.store().begin().await.unwrap();
    let once = async |tx: &mut _, handler| setup.inbox.once(tx, &order("3", "7"), handler).await.unwrap();
    assert_eq!(once(&mut tx, "by-order").await, Mark::Duplicate, "`once` goes by the handler's key");
    assert_eq!(once(&mut tx, "by-id").await, Mark::First);
}

#[tokio::test]
async fn a_fire_and_forget_handler_runs_once_for_its_own_key() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .on("t", script.handler("by-id"))
            .on("t", script.handler("by-order").fire_and_forget().dedupe(by("order")))
            .on("t", script.handler("always").fire_and_forget().dedupe(Dedupe::Off))
            .on("alone", script.handler("alone").fire_and_forget())
    });
    for (id, number) in [("1", "7"), ("2", "7"), ("1", "7"), ("3", "8")] {
        setup.inbox.accept(order(id, number)).await.unwrap();
        setup.inbox.accept(Message::new(id, "alone", "ok").with_source("alone")).await.unwrap();
        quiet().await;
    }
    setup.inbox.drain().await.unwrap();
    let runs = |handler| ["1", "2", "3"].map(|id| setup.script.runs(handler, id));
    assert_eq!((runs("by-id"), runs("by-order")), ([1, 1, 1], [1, 0, 1]));
    assert_eq!((runs("always"), runs("alone")), ([2, 1, 1], [1, 1, 1]));
}

#[tokio::test]
async fn an_inline_handler_needs_no_more_than_its_own_key() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("h").inline().dedupe(Dedupe::By(KeyStrategy::Content)))
    });
    assert_eq!(setup.inbox.receive(message("", "ok")).await.unwrap(), Receipt::Done);
    assert_eq!(setup.inbox.process(message("", "ok")).await.unwrap(), Processed::Duplicate);
    assert_eq!(counts(&setup.inbox).await.messages, 0);
}

#[tokio::test]
async fn a_key_of_handler_and_correlation_is_one_for_each_handler() {
    for by_type in [false, true] {
        let setup = Testbed::new(|inbox, script| {
            let key = KeyStrategy::handler_and_correlation_id();
            let inbox = if by_type {
                inbox.key_for("*", Dedupe::By(key))
            } else {
                inbox.config(Config { key, ..Config::default() })
            };
            let (a, b, c) = (script.handler("a"), script.handler("b"), script.handler("c"));
            inbox.on("t", a).on("t", b).on("u", c).on("t", script.handler("now").inline())
        });
        let of = |id: &str, kind: &str, correlation: &str| {
            Message::new(id.to_owned(), kind, "ok").with_header("correlation-id", correlation.to_owned())
        };
        let accept = async |message| setup.inbox.accept(message).await.unwrap().as_str();
        assert_eq!(accept(of("1", "t", "x")).await, "first");
        assert_eq!(accept(of("2", "t", "x")).await, "duplicate");
        assert_eq!(accept(of("3", "u", "x")).await, "first", "another handler");
        assert_eq!(accept(of("4", "t", "y")).await, "first");
        assert_eq!(counts(&setup.inbox).await.messages, 5, "one for each handler and correlation");
        assert_eq!(setup.inbox.process(of("5", "t", "x")).await.unwrap(), Processed::Done);
        assert_eq!(setup.inbox.process(of("6", "t", "x")).await.unwrap(), Processed::Duplicate);
        setup.inbox.drain().await.unwrap();
        let mut log = setup.script.log();
        log.sort();
        assert_eq!(log, ["a 1 1", "a 4 1", "b 1 1", "b 4 1", "c 3 1", "now 5 1"]);
    }
}

// FAULTS A10: quarantined under one key, run under the other.
#[tokio::test]
async fn a_conflict_of_one_key_leaves_the_handlers_of_the_other_alone() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .on("t", script.handler("by-id"))
            .on("t", script.handler("by-order").dedupe(by("order")))
            .on("t", script.handler("now").inline())
            .on("t", script.handler("now-by-order").inline().dedupe(by("order")))
    });
    // Without its inline handlers: no mark keeps them from running.
    setup.inbox.accept(order("1", "7")).await.unwrap();
    let other = || Message::new("2", "t", "ok;ok").with_header("order", "7");
    assert_eq!(setup.inbox.receive(other()).await.unwrap(), Receipt::Done);
    assert!(matches!(setup.inbox.accept(other()).await.unwrap(), Accepted::Conflict(_)));
    setup.inbox.drain().await.unwrap();
    let runs = |handler| setup.script.runs(handler, "2");
    assert_eq!((runs("by-id"), runs("now")), (1, 1));
    assert_eq!((runs("by-order"), runs("now-by-order")), (0, 0), "what is quarantined does not run");
    assert_eq!(counts(&setup.inbox).await.quarantined, 1);
}

#[test]
fn answers_for_several_keys_are_put_together() {
    use Accepted::{Conflict, Duplicate, First, HandlersAdded, Stale};
    let duplicate = |seq| Duplicate(KnownMessage::new(Seq(seq), Duration::ZERO));
    let ranked = [duplicate(1), HandlersAdded(Seq(2), 1), First(Seq(3)), Stale, Conflict(Seq(4))];
    for (place, low) in ranked.iter().enumerate() {
        for high in &ranked[place + 1..] {
            assert_eq!((low.and(*high), high.and(*low)), (*high, *high));
        }
    }
    assert_eq!(duplicate(1).and(duplicate(2)), duplicate(1));
    assert_eq!(HandlersAdded(Seq(1), 2).and(HandlersAdded(Seq(2), 3)), HandlersAdded(Seq(1), 5));
}

// FAULTS A10, G4
#[tokio::test]
async fn a_conflict_is_accepted_as_new_and_its_repeats_are_duplicates() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| {
        let config = Config { on_conflict: Some(OnConflict::AcceptAsNew), ..Config::default() };
        inbox.config(config).on("t", script.handler("h")).on("t", script.handler("now").inline())
    });
    for payload in ["ok", "ok;ok", "ok;ok;ok"] {
        let accept = async || setup.inbox.accept(message("1", payload)).await.unwrap().as_str();
        assert_eq!((accept().await, accept().await), ("first", "duplicate"));
        assert_eq!(setup.inbox.process(message("1", payload)).await.unwrap(), Processed::Done);
        assert_eq!(setup.inbox.process(message("1", payload)).await.unwrap(), Processed::Duplicate);
    }
    setup.inbox.drain().await.unwrap();
    assert_eq!((setup.script.runs("h", "1"), setup.script.runs("now", "1")), (3, 3));
    assert_eq!(counts(&setup.inbox).await.quarantined, 0);
    let allowed = "oncebox_allowed_conflicts_total{inbox=test,policy=accept_as_new}";
    assert_eq!(capture.counted(allowed), 2, "once for both handlers");
    let lines = capture.logged("another payload");
    assert!(lines[0].contains("before="), "{lines:?}");
}

#[tokio::test]
async fn conflicts_are_counted_where_they_are_noticed() {
    for (on_conflict, conflicts, policy) in [
        (OnConflict::Quarantine, 3, "none"),
        (OnConflict::FirstWins, 0, "first_wins"),
        (OnConflict::AcceptAsNew, 0, "accept_as_new"),
    ] {
        let capture = LogCapture::default();
        let _listening = capture.listen();
        let setup = config(Config { on_conflict: Some(on_conflict), ..Config::default() });
        for payload in ["ok", "a", "b", "a", "ok"] {
            setup.inbox.accept(message("1", payload)).await.unwrap();
            setup.inbox.accept(message(payload, "ok")).await.unwrap();
        }
        assert_eq!(
            capture.counted("oncebox_accepted_total{inbox=test,outcome=conflict}"),
            conflicts,
            "{on_conflict:?}"
        );
        let allowed = format!("oncebox_allowed_conflicts_total{{inbox=test,policy={policy}}}");
        // What is accepted as new is counted once for each payload, a duplicate each time.
        let counted = [("none", 0), ("first_wins", 3), ("accept_as_new", 2)];
        let expected = counted.into_iter().find(|(known, _)| *known == policy).map(|(_, count)| count);
        assert_eq!(Some(capture.counted(&allowed)), expected, "{on_conflict:?}");
    }
}

// FAULTS A10: a republished order is a repeat, and an operator sees that it was another message.
#[tokio::test]
async fn a_business_key_takes_another_payload_for_a_repeat_and_explains_it() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = Testbed::new(|inbox, script| {
        let business = Dedupe::By(KeyStrategy::json_pointer("/order"));
        let strict = KeyStrategy::json_pointer("/order").on_conflict(OnConflict::Quarantine);
        inbox
            .on("t", script.handler("business").dedupe(business))
            .on("strict", script.handler("strict").dedupe(Dedupe::By(strict)))
            .on("id", script.handler("id"))
    });
    let order =
        |id: &str, kind: &str| Message::new(id.to_owned(), kind, format!(r#"{{"order":7,"sent":{id}}}"#));
    let accept = async |message: Message| setup.inbox.accept(message).await.unwrap().as_str();
    setup.script.says("business", "1", "ok");
    assert_eq!(accept(order("1", "t")).await, "first");
    assert_eq!((accept(order("2", "t")).await, accept(order("1", "t")).await), ("duplicate", "duplicate"));
    assert_eq!(accept(order("3", "t")).await, "duplicate");
    assert_eq!(counts(&setup.inbox).await.quarantined, 0);
    assert_eq!(capture.counted("oncebox_allowed_conflicts_total{inbox=test,policy=first_wins}"), 2);
    setup.inbox.drain().await.unwrap();
    let key = setup.inbox.key_of(&order("1", "t"), "business").unwrap().unwrap();
    let explained = setup.store().explain(setup.inbox.name(), &key).await.unwrap().unwrap();
    let duplicates = explained.history.duplicates.unwrap();
    assert_eq!((duplicates.count, duplicates.varied), (3, 2));
    assert!(explained.to_string().contains("2 of these had another payload"), "{explained}");

    let strict = |id: &'static str, payload: &'static str| Message::new(id, "strict", payload);
    assert_eq!(accept(strict("4", r#"{"order":8}"#)).await, "first");
    let other = accept(strict("5", r#"{"order":8,"sent":5}"#)).await;
    assert_eq!(other, "conflict", "the policy beside the strategy");
    assert_eq!(accept(Message::new("6", "id", "a")).await, "first");
    assert_eq!(accept(Message::new("6", "id", "b")).await, "conflict", "a message id");
    // The pointer selects nothing, so the key is the message id.
    assert_eq!(accept(Message::new("7", "t", "{}")).await, "first");
    assert_eq!(accept(Message::new("7", "t", "[]")).await, "conflict");
}

// One key for messages of several types is a mistake that no handler must pay for with the wrong message.
#[tokio::test]
async fn a_business_key_quarantines_another_type() {
    let setup = Testbed::new(|inbox, script| {
        let config = Config { key: KeyStrategy::json_pointer("/order"), ..Config::default() };
        inbox.config(config).on("placed", script.handler("ship")).on("cancelled", script.handler("refund"))
    });
    let order = |kind: &str| Message::new("", kind, r#"{"order":7}"#);
    assert_eq!(setup.inbox.accept(order("placed")).await.unwrap().as_str(), "first");
    assert_eq!(setup.inbox.accept(order("cancelled")).await.unwrap().as_str(), "conflict");
    setup.inbox.drain().await.unwrap();
    assert_eq!(counts(&setup.inbox).await.conflicts, 1);
}

// What a source is told of each handler.
#[tokio::test]
async fn a_source_learns_what_became_of_a_message_for_each_handler() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .on("t", script.handler("pay"))
            .on("t", script.handler("saga").dedupe(by("order")))
            .on("t", script.handler("note").fire_and_forget())
            .on("t", script.handler("now").inline())
            .on("t", script.handler("now-saga").inline().dedupe(by("order")))
    });
    let receive = async |message: Message| {
        let received = setup.inbox.receive_batch([message]).await.unwrap().remove(0).unwrap();
        let words = received.handlers.iter().map(|(handler, answer)| (handler.to_string(), answer.as_str()));
        let mut words: Vec<_> = words.collect();
        words.sort();
        words.into_iter().map(|(_, word)| word).collect::<Vec<_>>()
    };
    // In the order of their names: note, now, now-saga, pay, saga.
    assert_eq!(receive(order("1", "7")).await, ["first", "done", "done", "first", "first"]);
    assert_eq!(receive(order("1", "7")).await, ["duplicate"; 5]);
    let other = || Message::new("2", "t", "ok;ok").with_header("order", "7");
    assert_eq!(receive(other()).await, ["first", "done", "conflict", "first", "conflict"]);
    assert_eq!(receive(other()).await, ["duplicate", "duplicate", "conflict", "duplicate", "conflict"]);
}
