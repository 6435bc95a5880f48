//! Poisoned heads of an ordering key: effect on the entries behind them, and operations on them.

use crate::OperatorSteps as _;
use oncebox::state::{InLine, Operation, Outcome, PoisonReason, Status};
use oncebox::store::{BlockedKey, BlockedParams, Claim, EntryView, Settled};
use oncebox::time::Timestamp;
use oncebox::{ErrorKind, OnPoisoned, Policy, Retry};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, SECOND, failed, handler, id, ids, inbox, inbox_named, key, message, moved_to,
    offer, offer_ordered, offer_routed, policy, rejected, route,
};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

const POLICIES: [OnPoisoned; 3] = [OnPoisoned::Block, OnPoisoned::Skip, OnPoisoned::Park];

// FAULTS B15
pub async fn a_skipped_head_lets_the_next_one_go<S: InspectTier>(h: &Harness<S>) {
    poison_head(h, &["1", "2", "3"], OnPoisoned::Skip).await;
    let head = h.entry("1", "h").await;
    assert_eq!((head.status, head.reason), (Status::Poisoned, Some(PoisonReason::Rejected)));
    assert!(head.is_skipped());
    let listed = h.list(&inbox(), Status::Poisoned, 10).await;
    assert_eq!(listed.iter().map(EntryView::is_skipped).collect::<Vec<_>>(), [true]);
    finish_in_order(h, &["2", "3"]).await;
    h.first(offer_ordered("4", "k")).await;
    finish_in_order(h, &["4"]).await;
}

// FAULTS B15
pub async fn the_policy_decides_about_the_entries_behind<S: StoreTier>(h: &Harness<S>) {
    for (order, on_poisoned) in ["block", "skip", "park"].into_iter().zip(POLICIES) {
        h.accept_all(&[
            offer_ordered(format!("{order} 1"), order),
            offer_ordered(format!("{order} 2"), order),
        ])
        .await;
        let head = h.claim_one("h").await;
        poison(h, &head, on_poisoned).await;
        let next = h.claim("h", 10).await;
        assert_eq!(next.len(), usize::from(on_poisoned == OnPoisoned::Skip), "{order}");
    }
}

pub async fn a_skipped_head_waits_its_turn_when_it_is_retried<S: OperateTier>(h: &Harness<S>) {
    poison_head(h, &["1", "2", "3"], OnPoisoned::Skip).await;
    let second = h.claim_one("h").await;
    let retried = h.operate("1", "h", Operation::Retry).await.expect("retry");
    assert_eq!((retried.status, retried.in_line), (Status::Pending, None));
    assert!(h.claim("h", 10).await.is_empty(), "never two of a key at once");
    h.settle(&second, Outcome::Done).await;
    finish_in_order(h, &["1", "3"]).await;
}

// FAULTS B15: entries that cannot run are not in the backlog.
pub async fn a_parked_key_is_parked_from_the_start<S: InspectTier>(h: &Harness<S>) {
    h.first(offer_ordered("other", "another key")).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    poison_head(h, &["1", "2"], OnPoisoned::Park).await;
    h.advance(SECOND);
    h.first(offer_ordered("3", "k")).await;
    h.accept_all(&[offer_ordered("4", "k"), offer_ordered("other 2", "another key"), offer("free")]).await;
    assert_eq!(h.entry("1", "h").await.in_line, Some(InLine::Parks));
    for name in ["2", "3", "4"] {
        let entry = h.entry(name, "h").await;
        assert_eq!((entry.status, entry.reason), (Status::Poisoned, Some(PoisonReason::Parked)), "{name}");
        assert_eq!((entry.in_line, entry.attempts), (Some(InLine::Parked), 0), "{name}");
    }
    assert_eq!(h.entry("3", "h").await.at, h.now(), "when it was parked");
    let counts = h.count().await;
    assert_eq!((counts.with_status(Status::Pending), counts.with_status(Status::Poisoned)), (2, 4));
    h.advance(HOUR);
    let mut claimed = ids(&h.claim("h", 10).await);
    claimed.sort();
    assert_eq!(claimed, ["free", "other 2"]);
}

pub async fn a_parked_key_comes_back_in_order<S: OperateTier>(h: &Harness<S>) {
    for operation in [Operation::Retry, Operation::Discard, Operation::Unblock] {
        let names: Vec<String> = (0..4).map(|n| format!("{operation:?} {n}")).collect();
        for name in &names[..3] {
            h.first(offer_ordered(name, operation.as_str())).await;
        }
        let claim = h.claim_one("h").await;
        poison(h, &claim, OnPoisoned::Park).await;
        h.first(offer_ordered(&names[3], operation.as_str())).await;
        let head = h.operate(&names[0], "h", operation).await.expect("the head is operated on");
        assert_eq!(head.is_skipped(), operation == Operation::Unblock);
        for name in &names[1..] {
            let entry = h.entry(name, "h").await;
            assert_eq!((entry.status, entry.reason, entry.in_line), (Status::Pending, None, None), "{name}");
        }
        let from = usize::from(operation != Operation::Retry);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        finish_in_order(h, &names[from..]).await;
    }
}

pub async fn a_parked_entry_waits_for_its_head<S: OperateTier>(h: &Harness<S>) {
    poison_head(h, &["1", "2", "3", "4"], OnPoisoned::Park).await;
    for operation in [Operation::Retry, Operation::Unblock, Operation::Replay] {
        let before = h.snapshot().await;
        let error = h.operate("3", "h", operation).await.expect_err("it is parked");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(h.snapshot().await, before, "{operation:?}");
    }
    let discarded = h.operate("3", "h", Operation::Discard).await.expect("discard");
    assert_eq!((discarded.status, discarded.in_line), (Status::Discarded, None));
    h.operate("1", "h", Operation::Retry).await.expect("retry");
    finish_in_order(h, &["1", "2", "4"]).await;
}

pub async fn a_parked_entry_keeps_its_delay<S: OperateTier>(h: &Harness<S>) {
    poison_head(h, &["1"], OnPoisoned::Park).await;
    let mut later = offer_ordered("2", "k");
    later.delay = HOUR;
    h.first(later).await;
    h.operate("1", "h", Operation::Unblock).await.expect("unblock");
    assert!(h.claim("h", 10).await.is_empty(), "it was asked for in an hour");
    h.advance(HOUR);
    assert_eq!(ids(&h.claim("h", 10).await), ["2"]);
}

pub async fn other_handlers_are_not_parked<S: StoreTier>(h: &Harness<S>) {
    let both = |id: &str| offer_routed(message(id).with_ordering_key("k"), [route("h"), route("g")]);
    h.accept_all(&[both("1"), both("2")]).await;
    let claim = h.claim_one("h").await;
    poison(h, &claim, OnPoisoned::Park).await;
    h.first(both("3")).await;
    for expected in ["1", "2", "3"] {
        let claimed = h.claim("g", 10).await;
        assert_eq!(ids(&claimed), [expected]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
    assert!(h.claim("h", 10).await.is_empty());
}

// After a replay, a younger one can run while an older one fails.
pub async fn one_that_runs_is_parked_when_it_would_wait<S: OperateTier>(h: &Harness<S>) {
    for n in ["1", "2", "3"] {
        h.first(offer_ordered(n, "k")).await;
    }
    let first = h.claim_one("h").await;
    poison(h, &first, OnPoisoned::Skip).await;
    let second = h.claim_one("h").await;
    h.settle(&second, Outcome::Done).await;
    let third = h.claim_one("h").await;
    h.operate("1", "h", Operation::Retry).await.expect("retry");
    let settlement = third.settle(&policy(), Outcome::Released);
    assert_eq!(h.send(settlement.clone()).await, Settled::Applied);
    let first = h.claim_one("h").await;
    poison(h, &first, OnPoisoned::Park).await;
    assert_eq!(h.entry("3", "h").await.in_line, Some(InLine::Parked));
    assert_eq!(h.send(settlement).await, Settled::Applied, "a repeat is recognised where it is now");
    h.operate("1", "h", Operation::Discard).await.expect("discard");
    finish_in_order(h, &["3"]).await;
}

pub async fn an_unblocked_key_goes_on<S: OperateTier>(h: &Harness<S>) {
    poison_head(h, &["1", "2", "3"], OnPoisoned::Block).await;
    assert!(h.claim("h", 10).await.is_empty());
    let head = h.store.unblock(&inbox(), &key("1"), &handler("h")).await.expect("unblock");
    assert_eq!((head.status, head.reason), (Status::Poisoned, Some(PoisonReason::Rejected)));
    assert!(head.is_skipped());
    finish_in_order(h, &["2", "3"]).await;
    h.first(offer_ordered("4", "k")).await;
    finish_in_order(h, &["4"]).await;
    h.operate("1", "h", Operation::Retry).await.expect("retry");
    finish_in_order(h, &["1"]).await;
}

pub async fn only_what_holds_others_back_is_unblocked<S: OperateTier>(h: &Harness<S>) {
    h.poisoned("unordered").await;
    h.first(offer("pending")).await;
    poison_head(h, &["1", "2"], OnPoisoned::Block).await;
    h.operate("1", "h", Operation::Unblock).await.expect("unblock");
    for name in ["unordered", "pending", "1", "2"] {
        let before = h.snapshot().await;
        let error = h.operate(name, "h", Operation::Unblock).await.expect_err("nothing to unblock");
        assert_eq!(error.kind(), ErrorKind::Refused, "{name}: {error}");
        assert_eq!(h.snapshot().await, before, "{name}");
    }
    let error = h.operate("unknown", "h", Operation::Unblock).await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub async fn each_poisoned_one_is_unblocked_by_itself<S: OperateTier>(h: &Harness<S>) {
    poison_head(h, &["1", "2", "3"], OnPoisoned::Block).await;
    h.operate("1", "h", Operation::Unblock).await.expect("unblock");
    let second = h.claim_one("h").await;
    poison(h, &second, OnPoisoned::Block).await;
    assert!(h.claim("h", 10).await.is_empty(), "the second one blocks by itself");
    h.operate("2", "h", Operation::Unblock).await.expect("unblock");
    finish_in_order(h, &["3"]).await;
}

// FAULTS S24
pub async fn blocked_keys_are_listed_oldest_first<S: OperateTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(moved_to(&other, &offer_ordered("1", "k"))).await;
    let started = h.now();
    let bytes = b"\0k\xff".to_vec();
    let mut first = Vec::new();
    for (n, order) in [b"a".to_vec(), bytes.clone(), b"c".to_vec()].into_iter().enumerate() {
        let ordered = message(format!("head {n}")).with_ordering_key(order);
        first.push(h.first(offer_routed(ordered, [route("h")])).await);
    }
    for (claim, on_poisoned) in
        h.claim("h", 10).await.iter().zip([OnPoisoned::Park, OnPoisoned::Block, OnPoisoned::Skip])
    {
        h.advance(SECOND);
        poison(h, &claim.claim, on_poisoned).await;
    }
    assert_eq!(blocked(h, 10).await.len(), 2, "no entry waits yet, but the next would");
    for n in 0..3 {
        h.advance(SECOND);
        let parked = message(format!("parked {n}")).with_ordering_key("a");
        let waiting = message(format!("waiting {n}")).with_ordering_key(bytes.clone());
        h.first(offer_routed(parked, [route("h")])).await;
        h.first(offer_routed(waiting, [route("h")])).await;
    }
    let listed = blocked(h, 10).await;
    let received = Some(started.after(4 * SECOND));
    let expected = |key: &BlockedKey| (key.head, key.head_key, key.parks, key.waiting, key.oldest);
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(expected(&listed[0]), (first[0], key("head 0"), true, 3, received));
    assert_eq!(expected(&listed[1]), (first[1], key("head 1"), false, 3, received));
    assert_eq!([&listed[0].ordering_key[..], &listed[1].ordering_key], [b"a", &bytes[..]]);
    assert_eq!([listed[0].since, listed[1].since], [started.after(SECOND), started.after(2 * SECOND)]);
    assert!(listed.iter().all(|key| key.handler == handler("h")));
    assert_eq!(blocked(h, 1).await, listed[..1]);
    assert!(h.store.blocked(&BlockedParams::new(other)).await.expect("blocked").is_empty());
    assert!(h.store.blocked(&BlockedParams::new(inbox_named("no"))).await.expect("blocked").is_empty());
    h.operate("head 0", "h", Operation::Unblock).await.expect("unblock");
    h.operate("head 1", "h", Operation::Discard).await.expect("discard");
    assert!(blocked(h, 10).await.is_empty());
}

pub async fn a_failing_head_is_retried_in_place<S: InspectTier>(h: &Harness<S>) {
    for n in ["1", "2"] {
        h.first(offer_ordered(n, "k")).await;
    }
    for attempt in 1..=2 {
        let claim = h.claim_one("h").await;
        h.settle(&claim, failed()).await;
        assert_eq!(h.entry("1", "h").await.attempts, attempt);
        assert_eq!(h.entry("2", "h").await.at, Timestamp::MAX);
        assert!(blocked(h, 10).await.is_empty(), "it may still succeed");
        h.advance(HOUR);
    }
    let claim = h.claim_one("h").await;
    h.settle(&claim, failed()).await;
    assert_eq!(h.status("1").await, Status::Poisoned);
    assert_eq!(blocked(h, 10).await[0].waiting, 1);
}

// FAULTS B14, C3: every reason for poisoning keeps the policy.
pub async fn the_policy_counts_however_the_head_is_poisoned<S: InspectTier>(h: &Harness<S>) {
    let outcomes = [rejected(), failed(), Outcome::Crashed];
    for (n, (on_poisoned, outcome)) in
        POLICIES.iter().flat_map(|policy| outcomes.iter().map(move |outcome| (*policy, outcome))).enumerate()
    {
        let names = [format!("{n} head"), format!("{n} next")];
        for name in &names {
            h.first(offer_ordered(name, &n.to_string())).await;
        }
        let mut claim = h.claim_one("h").await;
        if *outcome == Outcome::Crashed {
            h.advance(PAST_LEASE);
            // As if it had been its worker's only run.
            claim = Claim { alone: true, ..h.rescue_one("h").await };
        }
        let mut last = with(on_poisoned);
        (last.retry, last.crashes) = (Retry::never(), 1);
        assert_eq!(h.send(claim.settle(&last, outcome.clone())).await, Settled::Applied);
        let next = h.entry(&names[1], "h").await;
        let waits = next.at == Timestamp::MAX;
        match on_poisoned {
            OnPoisoned::Skip => {
                let claim = h.claim_one("h").await;
                h.settle(&claim, Outcome::Done).await;
            }
            OnPoisoned::Park => assert_eq!(next.reason, Some(PoisonReason::Parked)),
            _ => assert!(next.status == Status::Pending && waits),
        }
        assert!(h.claim("h", 10).await.is_empty(), "{on_poisoned:?} {outcome:?}");
    }
}

// FAULTS B14: a worker crashes with the heads of several keys, and another instance continues.
pub async fn the_death_of_a_worker_keeps_the_order<S: StoreTier>(h: &Harness<S>) {
    for n in 0..3 {
        for order in ["a", "b", "c"] {
            h.first(offer_ordered(format!("{order}{n}"), order)).await;
        }
    }
    assert_eq!(h.claim("h", 10).await.len(), 3);
    let other = h.another().await;
    let claim = async |suspect: bool| {
        let params = crate::harness::claim_params(&[route("h")], 10);
        let params = if suspect { params.suspect() } else { params };
        other.claim(&params).await.expect("claim")
    };
    assert!(claim(false).await.is_empty());
    h.advance(LEASE + SECOND);
    assert!(claim(false).await.is_empty());
    let rescued = other.rescue(&crate::harness::rescue_params(&[route("h")], 10)).await.expect("rescue");
    let crashed: Vec<_> =
        rescued.iter().map(|rescued| rescued.claim.settle(&policy(), Outcome::Crashed)).collect();
    assert_eq!(other.settle(&crashed).await.expect("settle"), [Settled::Applied; 3]);
    assert!(claim(false).await.is_empty(), "the heads are suspects, and the others wait for them");
    let mut done: Vec<String> = Vec::new();
    loop {
        let claimed = [claim(true).await, claim(false).await].concat();
        if claimed.is_empty() {
            break;
        }
        for claimed in claimed {
            done.push(id(&claimed));
            h.settle(&claimed.claim, Outcome::Done).await;
        }
    }
    for order in ["a", "b", "c"] {
        let of: Vec<&String> = done.iter().filter(|id| id.starts_with(order)).collect();
        assert_eq!(of, [&format!("{order}0"), &format!("{order}1"), &format!("{order}2")]);
    }
}

fn with(on_poisoned: OnPoisoned) -> Policy {
    let mut policy = policy();
    policy.on_poisoned = on_poisoned;
    policy
}

pub(super) async fn poison<S: StoreTier>(h: &Harness<S>, claim: &Claim, on_poisoned: OnPoisoned) {
    assert_eq!(h.send(claim.settle(&with(on_poisoned), rejected())).await, Settled::Applied);
}

/// Stores messages of one ordering key, of which the first is poisoned.
async fn poison_head<S: StoreTier>(h: &Harness<S>, ids: &[&str], on_poisoned: OnPoisoned) {
    for id in ids {
        h.first(offer_ordered(id, "k")).await;
    }
    let claimed = h.claim("h", 10).await;
    for claimed in claimed {
        if id(&claimed) == ids[0] {
            poison(h, &claimed.claim, on_poisoned).await;
        } else {
            h.settle(&claimed.claim, Outcome::Released).await;
        }
    }
}

/// Claims and completes exactly these, one after the other.
async fn finish_in_order<S: StoreTier>(h: &Harness<S>, expected: &[&str]) {
    for name in expected {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [*name], "of {expected:?}");
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
    assert!(h.claim("h", 10).await.is_empty(), "nothing is left after {expected:?}");
}

async fn blocked<S: InspectTier>(h: &Harness<S>, limit: usize) -> Vec<BlockedKey> {
    let mut params = BlockedParams::new(inbox());
    params.limit = limit;
    h.store.blocked(&params).await.expect("blocked")
}
