//! History of a message, and explanations for its entries.

use oncebox::state::{EntryEvent, Operation, Outcome, Status};
use oncebox::store::{Action, ActionKind, DuplicateCount, EntryExplanation, Explanation, Seq};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, RETENTION, SECOND, failed, handler, inbox, key, offer, offer_message,
    offer_ordered, rejected, text,
};
use crate::{Harness, StoreUnderTest};

async fn explain<S: StoreUnderTest>(h: &Harness<S>, id: &str) -> Explanation {
    h.store.explain(&inbox(), &key(id)).await.expect("explain").expect("known")
}

/// Returns the explanation of the latest generation of an entry of `h`.
async fn why<S: StoreUnderTest>(h: &Harness<S>, id: &str) -> EntryExplanation {
    let explained = explain(h, id).await;
    assert_eq!(explained.view.entries.len(), explained.why.len());
    explained.why.last().expect("an entry").clone()
}

pub async fn failed_attempts_are_remembered<S: StoreUnderTest>(h: &Harness<S>) {
    let start = h.now();
    let first = h.running("1").await;
    h.settle(&first, failed()).await;
    h.advance(5 * SECOND);
    let second = h.claim_one("h").await;
    h.advance(PAST_LEASE);
    let rescued = h.rescue_one("h").await;
    h.settle(&rescued, Outcome::Crashed).await;
    let third = h.claim_suspect("h").await.remove(0).claim;
    h.settle(&third, Outcome::Snooze { delay: SECOND }).await;
    h.advance(SECOND);
    let fourth = h.claim_one("h").await;
    h.settle(&fourth, Outcome::Reject { error: text("no such order") }).await;
    assert_ne!(second.claim_id, rescued.claim_id);
    let attempts = explain(h, "1").await.history.attempts;
    let shown: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt.event, attempt.attempts, attempt.suspicion.stored(), attempt.claim_id))
        .collect();
    assert_eq!(
        shown,
        [
            (EntryEvent::Fail, 1, 0, first.claim_id),
            (EntryEvent::Crash, 1, 1, rescued.claim_id),
            (EntryEvent::Reject, 1, 0, fourth.claim_id)
        ],
        "what was postponed is no failure"
    );
    assert_eq!((attempts[0].at, attempts[0].error.clone()), (start, Some(text("failed"))));
    assert!(attempts[1].error.is_some(), "a crash says so");
    assert_eq!(attempts[2].error.clone(), Some(text("no such order")));
    assert!(attempts.iter().all(|attempt| attempt.handler == handler("h") && attempt.generation == 0));
    h.operate("1", "h", Operation::Retry).await.expect("retry");
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    let after = explain(h, "1").await;
    assert_eq!(after.history.attempts, attempts, "success has a row of its own");
    assert_eq!(after.operations.iter().map(|one| &*one.verb).collect::<Vec<_>>(), ["retry"]);
}

pub async fn duplicate_counts_are_summed_up<S: StoreUnderTest>(h: &Harness<S>) {
    let (one, two) = (h.first(offer("1")).await, h.first(offer("2")).await);
    let start = h.now();
    let duplicates = |seq: Seq, count, first, last| DuplicateCount {
        seq,
        count,
        first: start.after(first * SECOND),
        last: start.after(last * SECOND),
        varied: count / 2,
    };
    assert_eq!(explain(h, "1").await.history.duplicates, None);
    h.store
        .count_duplicates(&[duplicates(one, 3, 2, 4), duplicates(two, 1, 1, 1)])
        .await
        .expect("count_duplicates");
    h.store
        .count_duplicates(&[duplicates(one, 2, 1, 3), duplicates(Seq(7), 1, 1, 1)])
        .await
        .expect("count_duplicates");
    h.store.count_duplicates(&[]).await.expect("count_duplicates");
    assert_eq!(explain(h, "1").await.history.duplicates, Some(duplicates(one, 5, 1, 4)));
    assert_eq!(explain(h, "2").await.history.duplicates, Some(duplicates(two, 1, 1, 1)));
    assert_eq!(h.count().await.messages, 2);
}

pub async fn history_leaves_with_its_message<S: StoreUnderTest>(h: &Harness<S>) {
    let poisoned = h.poisoned("1").await;
    h.store
        .count_duplicates(&[DuplicateCount {
            seq: poisoned.seq,
            count: 1,
            first: h.now(),
            last: h.now(),
            varied: 0,
        }])
        .await
        .expect("count_duplicates");
    h.advance(RETENTION);
    h.sweep(RETENTION).await;
    let kept = explain(h, "1").await.history;
    assert_eq!(
        (kept.attempts.len(), kept.duplicates.is_some()),
        (1, true),
        "what waits for a person is kept whole"
    );
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    assert!(h.store.explain(&inbox(), &key("1")).await.expect("explain").is_none());
    assert!(h.store.history(&inbox(), &key("1")).await.expect("history").is_none());
    h.first(offer("1")).await;
    let anew = explain(h, "1").await.history;
    assert!(anew.attempts.is_empty() && anew.duplicates.is_none(), "{anew:?}");
}

pub async fn the_history_of_one_entry_is_bounded<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer("1")).await;
    for _ in 0..2 {
        let mut claim = h.claim_one("h").await;
        for attempts in [98, 99, 150, 400] {
            claim.attempts = attempts;
            let mut failure = claim.settle(&crate::fixture::policy(), failed());
            failure.next = oncebox::state::NextState::Pending { delay: std::time::Duration::ZERO };
            h.send(failure).await;
            claim = h.claim_one("h").await;
        }
        h.settle(&claim, rejected()).await;
        h.operate("1", "h", Operation::Retry).await.expect("retry");
    }
    let attempts = explain(h, "1").await.history.attempts;
    let kept: Vec<_> = attempts.iter().map(|attempt| attempt.attempts).collect();
    assert_eq!(kept, [99, 100, 99, 100], "those after that are only counted");
}

pub async fn why_an_entry_does_not_run<S: StoreUnderTest>(h: &Harness<S>) {
    let start = h.now();
    let mut later = offer("later");
    later.delay = HOUR;
    h.first(later).await;
    assert_eq!(why(h, "later").await, EntryExplanation::NotDue(start.after(HOUR)));
    h.first(offer("1")).await;
    assert_eq!(why(h, "1").await, EntryExplanation::Due(start));
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    assert_eq!(why(h, "1").await, EntryExplanation::Paused);
    h.store.resume(&inbox(), &handler("h")).await.expect("resume");
    let claim = h.claim_one("h").await;
    let EntryExplanation::Leased { holder, over } = why(h, "1").await else { panic!("it runs") };
    assert_eq!((holder.claim_id, holder.claimed_at, over), (claim.claim_id, start, false));
    assert_eq!(holder.lease_until, start.after(LEASE));
    h.advance(PAST_LEASE);
    assert!(
        matches!(why(h, "1").await, EntryExplanation::Leased { over: true, .. }),
        "its lease has expired"
    );
    h.settle(&claim, rejected()).await;
    assert_eq!(why(h, "1").await, EntryExplanation::NeedsPerson);
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    assert_eq!(why(h, "1").await, EntryExplanation::Finished);
    h.operate("1", "h", Operation::Replay).await.expect("replay");
    let explained = explain(h, "1").await;
    assert_eq!(explained.why, [EntryExplanation::Replayed, EntryExplanation::Due(h.now())]);
    let shown = explained.to_string();
    for part in ["delivered first", "reject", "discard", "replay", "it is due since"] {
        assert!(shown.contains(part), "{part:?} is not told in {shown}");
    }
}

pub async fn why_an_entry_waits_for_another<S: StoreUnderTest>(h: &Harness<S>) {
    for id in ["1", "2", "3"] {
        h.first(offer_ordered(id, "k")).await;
    }
    let ordered = |id: &str| offer_ordered(id, "k").key;
    let ahead = async |id: &str| {
        let explained = h.store.explain(&inbox(), &ordered(id)).await.expect("explain").expect("known");
        match explained.why.last() {
            Some(EntryExplanation::Behind(ahead)) => Some((ahead.key, ahead.status)),
            _ => None,
        }
    };
    assert_eq!(ahead("1").await, None);
    assert_eq!(ahead("3").await, Some((ordered("1"), Status::Pending)));
    let claim = h.claim_one("h").await;
    assert_eq!(ahead("2").await, Some((ordered("1"), Status::Running)));
    h.settle(&claim, rejected()).await;
    assert_eq!(ahead("2").await, Some((ordered("1"), Status::Poisoned)));
    h.operate("1", "h", Operation::Unblock).await.expect("unblock");
    assert_eq!(ahead("2").await, None, "it may go");
    assert_eq!(ahead("3").await, Some((ordered("2"), Status::Pending)));
    h.first(offer_message(crate::fixture::message("other").with_ordering_key("l"))).await;
    assert_eq!(ahead("3").await, Some((ordered("2"), Status::Pending)));
}

pub async fn a_message_without_a_handler_is_explained<S: StoreUnderTest>(h: &Harness<S>) {
    let mut unrouted = offer("1");
    unrouted.routes = [].into();
    h.first(unrouted).await;
    let story = explain(h, "1").await.story();
    assert!(story[0].1.contains("type \"order.placed\", id \"1\", source \"shop\""), "{story:?}");
    assert!(story[1].1.contains("no handler that keeps messages was registered"), "{story:?}");
    h.first(offer("2")).await;
    assert_eq!(explain(h, "2").await.story().len(), 1, "it has one");
}

pub async fn a_conflict_is_part_of_the_story<S: StoreUnderTest>(h: &Harness<S>) {
    h.first(offer("1")).await;
    h.advance(SECOND);
    let other = oncebox::Message::new("1", "order.placed", "other").with_source("shop");
    h.accept(offer_message(other)).await;
    h.advance(SECOND);
    let discard = ActionKind::Entry { key: key("1"), handler: handler("h"), operation: Operation::Discard };
    let action = Action::new(inbox(), discard).by("ada", "sent twice");
    h.store.act(&action).await.expect("act");
    let story = explain(h, "1").await.story();
    let start = h.now().before(2 * SECOND);
    let times: Vec<_> = story.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [start, start.after(SECOND), h.now(), h.now()]);
    assert!(story[1].1.contains("conflict"), "{story:?}");
    let requested =
        story.iter().any(|(_, line)| line.contains("ada asked to discard") && line.contains("sent twice"));
    assert!(requested, "{story:?}");
}
