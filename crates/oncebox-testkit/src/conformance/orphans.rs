//! Orphans: entries of unknown handler keys wait, and are reported.

use std::time::Duration;

use oncebox::HandlerKey;
use oncebox::state::Outcome;
use oncebox::store::{Orphan, OrphanParams};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, SECOND, failed, handler, inbox, inbox_named, moved_to, offer, offer_message,
    offer_to, rejected,
};
use crate::{Harness, InspectTier};

const MOMENT: Duration = Duration::from_millis(1);

impl<S: InspectTier> Harness<S> {
    async fn orphans(&self, known: &[&str]) -> Vec<Orphan> {
        let known: Vec<HandlerKey> = known.iter().copied().map(handler).collect();
        self.store.orphans(&OrphanParams::new(inbox(), known, HOUR)).await.expect("orphans")
    }
}

pub async fn an_empty_store_has_no_orphans<S: InspectTier>(h: &Harness<S>) {
    assert!(h.orphans(&[]).await.is_empty());
}

// FAULTS I1: entries of a removed or renamed handler wait, and are reported after a grace.
pub async fn unknown_handlers_are_told_of_after_the_grace<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    h.first(offer_to("1", &["gone", "known", "former"])).await;
    h.advance(SECOND);
    h.first(offer_to("2", &["gone"])).await;
    h.advance(HOUR.saturating_sub(SECOND + MOMENT));
    assert!(h.orphans(&["known", "former"]).await.is_empty(), "they are not missed yet");
    h.advance(MOMENT);
    assert_eq!(h.orphans(&["known", "former"]).await, [Orphan::new(handler("gone"), 2, start)]);
    assert!(h.orphans(&["known", "former", "gone"]).await.is_empty());
    // Reporting changes nothing: a process that knows the handler still claims them.
    assert_eq!(h.claim("gone", 10).await.len(), 2);
}

pub async fn the_one_that_waits_longest_comes_first<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    for (n, name) in ["c", "a", "b"].into_iter().enumerate() {
        h.first(offer_to(n.to_string(), &[name])).await;
        h.advance(SECOND);
    }
    h.advance(HOUR);
    let keys = |orphans: Vec<Orphan>| -> Vec<String> {
        orphans.iter().map(|orphan| orphan.handler.to_string()).collect()
    };
    assert_eq!(keys(h.orphans(&[]).await), ["c", "a", "b"]);
    let mut params = OrphanParams::new(inbox(), Vec::new(), HOUR);
    params.limit = 1;
    let limited = h.store.orphans(&params).await.expect("orphans");
    assert_eq!(limited, [Orphan::new(handler("c"), 1, start)]);
}

pub async fn what_is_not_due_yet_is_not_missed<S: InspectTier>(h: &Harness<S>) {
    let mut later = offer_to("1", &["gone"]);
    later.delay = 10 * HOUR;
    h.first(later).await;
    h.advance(10 * HOUR);
    assert!(h.orphans(&[]).await.is_empty());
    h.advance(HOUR);
    let orphans = h.orphans(&[]).await;
    assert_eq!(orphans, [Orphan::new(handler("gone"), 1, h.now().before(HOUR))]);
}

// FAULTS I1: during a rolling deployment another process works for the handler.
pub async fn a_handler_that_a_process_works_for_is_no_orphan<S: InspectTier>(h: &Harness<S>) {
    h.first(offer("1")).await;
    h.first(offer("2")).await;
    h.advance(2 * HOUR);
    let due = h.now().before(2 * HOUR);
    let claim = h.claim("h", 1).await.remove(0).claim;
    assert!(h.orphans(&[]).await.is_empty(), "a worker has some of it in hand");
    h.advance(LEASE.saturating_sub(SECOND));
    h.renew(&claim).await;
    h.advance(LEASE);
    assert!(h.orphans(&[]).await.is_empty(), "it was renewed");
    h.advance(MOMENT);
    // No process rescues entries of an unknown handler.
    assert_eq!(h.orphans(&[]).await, [Orphan::new(handler("h"), 2, due)]);
}

pub async fn what_is_finished_or_waits_for_a_person_is_no_orphan<S: InspectTier>(h: &Harness<S>) {
    h.completed("completed").await;
    h.poisoned("poisoned").await;
    h.advance(2 * HOUR);
    assert!(h.orphans(&[]).await.is_empty());
}

pub async fn retries_and_suspects_count<S: InspectTier>(h: &Harness<S>) {
    h.settled("failed", failed()).await;
    h.settled("crashed", Outcome::Crashed).await;
    h.first(offer("new")).await;
    h.advance(PAST_LEASE + 2 * HOUR);
    let orphans = h.orphans(&[]).await;
    assert_eq!(orphans.iter().map(|orphan| orphan.count).collect::<Vec<_>>(), [3], "{orphans:?}");
}

pub async fn those_that_wait_for_their_turn_count<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    for n in 0..3 {
        h.first(crate::fixture::offer_ordered(n.to_string(), "k")).await;
    }
    h.advance(HOUR);
    assert_eq!(h.orphans(&[]).await, [Orphan::new(handler("h"), 3, start)]);
    let claim = h.claim_one("h").await;
    h.settle(&claim, rejected()).await;
    h.advance(2 * HOUR);
    assert!(h.orphans(&[]).await.is_empty(), "they wait for a person who looks after the first");
}

pub async fn orphans_of_another_inbox_are_its_own<S: InspectTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer("1"))).await;
    h.advance(2 * HOUR);
    assert!(h.orphans(&[]).await.is_empty());
    let params = OrphanParams::new(other, Vec::new(), HOUR);
    assert_eq!(h.store.orphans(&params).await.expect("orphans").len(), 1);
}

pub async fn many_are_counted_up_to_a_limit<S: InspectTier>(h: &Harness<S>) {
    let max = usize::try_from(OrphanParams::COUNTED).expect("a small number");
    for chunk in (0..max + 10).collect::<Vec<_>>().chunks(1_000) {
        let batch = chunk.iter().map(|n| {
            let message = oncebox::Message::new(n.to_string(), "t", "");
            let mut new = offer_message(message);
            // Some wait in another place.
            new.delay = if n % 100 == 0 { SECOND } else { Duration::ZERO };
            new
        });
        h.accept_all(&batch.collect::<Vec<_>>()).await;
    }
    h.advance(2 * HOUR);
    assert_eq!(h.orphans(&[]).await[0].count, OrphanParams::COUNTED);
}
