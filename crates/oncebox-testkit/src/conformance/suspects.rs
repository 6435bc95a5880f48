//! Suspects, entries that a worker died with: their claims, their runs alone, and their blame.

use std::time::Duration;

use oncebox::state::{ErrorText, NextState, Outcome, PoisonReason, Status, Suspicion};
use oncebox::store::{Claim, Claimed, Settled};

use crate::fixture::{
    HOUR, PAST_LEASE, SECOND, claims, failed, handler, ids, inbox, key, offer, offer_ordered, offer_to,
    policy, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, StoreUnderTest};

/// Lets the worker of all running entries die, and settles its entries.
async fn worker_dies<S: StoreUnderTest>(h: &Harness<S>) -> Vec<Claim> {
    h.advance(PAST_LEASE);
    let rescued = h.rescue("h", 100).await;
    for Claimed { claim, .. } in &rescued {
        assert_eq!(h.settle(claim, Outcome::Crashed).await, Settled::Applied);
    }
    claims(&rescued)
}

async fn all_running<S: StoreUnderTest>(h: &Harness<S>, count: usize) {
    for n in 0..count {
        h.first(offer(n.to_string())).await;
    }
    assert_eq!(h.claim("h", 100).await.len(), count);
}

async fn suspicion<S: StoreUnderTest>(h: &Harness<S>, id: &str) -> u32 {
    h.entry(id, "h").await.suspicion.stored()
}

// FAULTS C3: entries of a killed process return at once, and not one by one.
pub async fn everything_a_dead_worker_held_is_claimed_at_once<S: StoreUnderTest>(h: &Harness<S>) {
    all_running(h, 40).await;
    assert_eq!(worker_dies(h).await.len(), 40);
    h.first(offer("healthy")).await;
    assert_eq!(ids(&h.claim("h", 100).await), ["healthy"], "a claim of healthy work takes no suspect");
    let params = claim_params(&[route("h")], 100).suspect().idle(true);
    let claimed = h.store.claim(&params).await.expect("claim");
    assert_eq!(claimed.len(), 40);
    assert!(claimed.iter().all(|one| one.claim.suspicion.stored() == 1 && !one.claim.alone));
    assert_eq!(claims(&h.store.claim(&params).await.expect("claim")), claims(&claimed), "read back");
    assert!(h.claim_suspect("h").await.is_empty());
}

pub async fn suspects_of_two_handlers_are_claimed_together<S: StoreUnderTest>(h: &Harness<S>) {
    for id in ["1", "2", "3"] {
        h.first(offer_to(id, &["a", "b"])).await;
    }
    for name in ["a", "b"] {
        for Claimed { claim, .. } in h.claim(name, 10).await {
            h.settle(&claim, Outcome::Crashed).await;
        }
    }
    let claim = async |limit| {
        let params = claim_params(&[route("a"), route("b")], limit).suspect();
        h.store.claim(&params).await.expect("claim").len()
    };
    assert_eq!((claim(0).await, claim(2).await, claim(10).await), (0, 4, 2), "each want has its limit");
}

/// Makes so many suspects of each kind, and claims them all, with a factor on their company.
async fn claimed_together<S: StoreUnderTest>(
    h: &Harness<S>,
    levels: &[(u32, usize)],
    factor: usize,
) -> Vec<(u32, usize)> {
    for (suspicion, count) in levels {
        for n in 0..*count {
            let mut settlement =
                h.running(&format!("{suspicion}/{n}")).await.settle(&policy(), Outcome::Crashed);
            settlement.suspicion = Suspicion::from_stored(*suspicion);
            assert_eq!(h.send(settlement).await, Settled::Applied);
        }
        h.advance(SECOND);
    }
    let mut claimed = Vec::new();
    loop {
        let params = claim_params(&[route("h")], 100).suspect().company_factor(factor);
        let found = h.store.claim(&params).await.expect("claim");
        let Some(first) = found.first() else { return claimed };
        claimed.push((first.claim.suspicion.stored(), found.len()));
    }
}

pub async fn a_claim_takes_one_level_and_its_company<S: StoreUnderTest>(h: &Harness<S>) {
    let claimed = claimed_together(h, &[(2, 20), (1, 3), (3, 2), (5, 1)], 1).await;
    assert_eq!(claimed, [(2, 16), (2, 4), (1, 3), (3, 1), (3, 1), (5, 1)]);
}

// FAULTS C3: a worker that survives its suspects takes more of them, but never two that were alone when their worker died.
pub async fn the_company_grows_by_the_factor<S: StoreUnderTest>(h: &Harness<S>) {
    let claimed = claimed_together(h, &[(2, 40), (3, 5), (10, 3), (11, 2)], 2).await;
    assert_eq!(claimed, [(2, 32), (2, 8), (3, 2), (3, 2), (3, 1), (10, 2), (10, 1), (11, 1), (11, 1)]);
}

pub async fn a_suspect_waits_for_its_due_time<S: StoreUnderTest>(h: &Harness<S>) {
    let claim = h.settled("1", Outcome::Crashed).await;
    let suspect = h.claim_suspect("h").await.remove(0).claim;
    assert!(suspect.token > claim.token);
    let mut later = suspect.settle(&policy(), Outcome::Snooze { delay: HOUR });
    later.suspicion = suspect.suspicion;
    assert_eq!(h.send(later).await, Settled::Applied);
    assert!(h.claim_suspect("h").await.is_empty());
    h.advance(HOUR);
    assert_eq!(h.claim_suspect("h").await.len(), 1);
}

pub async fn a_paused_handler_gives_no_suspect<S: StoreUnderTest>(h: &Harness<S>) {
    h.settled("1", Outcome::Crashed).await;
    h.store.pause(&inbox(), &handler("h")).await.expect("pause");
    assert!(h.claim_suspect("h").await.is_empty());
}

pub async fn only_one_suspect_of_an_idle_worker_runs_alone<S: StoreUnderTest>(h: &Harness<S>) {
    assert!(!h.running("healthy").await.alone);
    let params = claim_params(&[route("h")], 10).idle(true);
    h.first(offer("only one")).await;
    assert!(!h.store.claim(&params).await.expect("claim")[0].claim.alone, "healthy work is never blamed");
    h.settled("1", Outcome::Crashed).await;
    let busy = h.claim_suspect("h").await.remove(0).claim;
    assert!(!busy.alone, "the worker has something else in hand");
    h.settle(&busy, Outcome::Released).await;
    let params = claim_params(&[route("h")], 10).suspect().idle(true);
    let alone = h.store.claim(&params).await.expect("claim").remove(0).claim;
    assert!(alone.alone);
    assert_eq!(h.store.claim(&params).await.expect("claim")[0].claim, alone, "read back");
    h.settle(&alone, Outcome::Released).await;
    h.settled("2", Outcome::Crashed).await;
    let two = h.claim_suspect_idle("h").await;
    assert_eq!(two.len(), 2);
    assert!(two.iter().all(|one| !one.claim.alone), "they have each other for company");
}

pub async fn a_rescue_tells_how_the_dead_run_began<S: StoreUnderTest>(h: &Harness<S>) {
    for (id, idle) in [("alone", true), ("company", false)] {
        h.settled(id, Outcome::Crashed).await;
        let claim = claim_params(&[route("h")], 10).suspect().idle(idle);
        assert_eq!(h.store.claim(&claim).await.expect("claim").len(), 1);
        h.advance(PAST_LEASE);
        let params = rescue_params(&[route("h")], 10);
        let rescued = h.store.rescue(&params).await.expect("rescue").remove(0).claim;
        assert_eq!(rescued.alone, idle, "{id}");
        assert_eq!(h.store.rescue(&params).await.expect("rescue")[0].claim, rescued, "read back");
        h.advance(PAST_LEASE);
        assert_eq!(h.rescue_one("h").await.alone, idle, "a rescuer that dies changes nothing");
        h.advance(PAST_LEASE);
        let last = h.rescue_one("h").await;
        assert_eq!(h.settle(&last, Outcome::Done).await, Settled::Applied);
    }
}

// A long run may get company. From then on the death of its worker does not count against it.
pub async fn a_renewal_ends_solitude_and_never_begins_it<S: StoreUnderTest>(h: &Harness<S>) {
    for (id, idle, alone, expected) in [
        ("1", true, true, true),
        ("2", true, false, false),
        ("3", false, true, false),
        ("4", false, false, false),
    ] {
        h.settled(id, Outcome::Crashed).await;
        let params = claim_params(&[route("h")], 10).suspect().idle(idle);
        let claim = h.store.claim(&params).await.expect("claim").remove(0).claim;
        h.renew(&Claim { alone, ..claim.clone() }).await;
        h.renew(&claim).await;
        h.advance(PAST_LEASE);
        let rescued = h.rescue_one("h").await;
        assert_eq!(rescued.alone, expected, "{id}");
        h.settle(&rescued, Outcome::Done).await;
    }
}

pub async fn a_later_run_does_not_inherit_solitude<S: StoreUnderTest>(h: &Harness<S>) {
    h.settled("1", Outcome::Crashed).await;
    for idle in [true, false, true] {
        let params = claim_params(&[route("h")], 10).suspect().idle(idle);
        let claim = h.store.claim(&params).await.expect("claim").remove(0).claim;
        assert_eq!(claim.alone, idle);
        h.settle(&claim, Outcome::Released).await;
    }
}

// FAULTS C3: a process that is killed from outside three times, or a hundred, blames no entry.
pub async fn three_deaths_in_company_poison_nothing<S: StoreUnderTest>(h: &Harness<S>) {
    all_running(h, 3).await;
    for (death, wait) in [(1, 0), (2, 0), (3, 1), (4, 2), (5, 5), (6, 10), (7, 20), (8, 30), (9, 30)] {
        assert_eq!(worker_dies(h).await.len(), 3, "at death {death}");
        let due = h.now().after(Duration::from_secs(wait));
        for id in ["0", "1", "2"] {
            let entry = h.entry(id, "h").await;
            assert_eq!((entry.status, entry.at), (Status::Pending, due), "at death {death}");
            assert_eq!((entry.suspicion.stored(), entry.suspicion.own_crashes()), (death, 0));
        }
        h.advance(Duration::from_secs(wait));
        let mut claimed = 0;
        while claimed < 3 {
            let found = h.claim_suspect("h").await.len();
            assert!(found > 0, "all of them can be claimed");
            claimed += found;
        }
    }
}

// FAULTS C3: a message that crashes its process is found and poisoned.
pub async fn three_deaths_alone_poison_after_growing_waits<S: StoreUnderTest>(h: &Harness<S>) {
    h.running("1").await;
    worker_dies(h).await;
    let waits: [Option<u64>; 3] = [Some(10), Some(60), None];
    for (death, wait) in (1..).zip(waits) {
        assert_eq!(h.claim_suspect_idle("h").await.len(), 1);
        worker_dies(h).await;
        let entry = h.entry("1", "h").await;
        assert_eq!(entry.suspicion.own_crashes(), death);
        let Some(wait) = wait.map(Duration::from_secs) else {
            assert_eq!((entry.status, entry.reason), (Status::Poisoned, Some(PoisonReason::Crashed)));
            continue;
        };
        assert_eq!((entry.status, entry.at), (Status::Pending, h.now().after(wait)));
        h.advance(wait.saturating_sub(SECOND));
        assert!(h.claim_suspect_idle("h").await.is_empty());
        h.advance(SECOND);
    }
    assert!(h.claim_suspect_idle("h").await.is_empty());
}

pub async fn explain_tells_how_a_suspect_goes_on<S: StoreUnderTest>(h: &Harness<S>) {
    let explained_parts = async || {
        let explained = h.store.explain(&inbox(), &key("1")).await.expect("explain").expect("known");
        let reasons = explained.reasons();
        (reasons[0].clone(), explained.to_string())
    };
    let holds = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    h.running("1").await;
    assert!(!explained_parts().await.0.contains("suspect"));
    worker_dies(h).await;
    let (reason, whole) = explained_parts().await;
    holds(&reason, &["it is due since", "it is a suspect", "no crash counts against it", "with all others"]);
    holds(&whole, &["not counted, 0 of the 3 crashes that poison it", &reason]);
    assert_eq!(h.claim_suspect_idle("h").await.len(), 1);
    holds(&explained_parts().await.0, &["a worker has it until", "it is a suspect"]);
    worker_dies(h).await;
    let (reason, whole) = explained_parts().await;
    let at = h.now().after(Duration::from_secs(10));
    holds(
        &reason,
        &[&format!("it is due at {at}"), "a worker died while it ran this entry alone", "runs it alone"],
    );
    holds(&whole, &["crash 1 of the 3 that poison it"]);
    h.advance(Duration::from_secs(10));
    let claim = h.claim_suspect_idle("h").await.remove(0).claim;
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(explained_parts().await.0, "it is finished");
}

/// Claims the only suspect, settles it, and returns its suspicion.
async fn after<S: StoreUnderTest>(h: &Harness<S>, before: u32, outcome: Outcome) -> (u32, Status) {
    let id = format!("{before} {outcome:?}");
    let mut settlement = h.running(&id).await.settle(&policy(), Outcome::Crashed);
    (settlement.suspicion, settlement.next) =
        (Suspicion::from_stored(before), NextState::Pending { delay: Duration::ZERO });
    assert_eq!(h.send(settlement).await, Settled::Applied);
    let claim = h.claim_suspect("h").await.remove(0).claim;
    assert_eq!(h.settle(&claim, outcome).await, Settled::Applied);
    (suspicion(h, &id).await, h.entry(&id, "h").await.status)
}

// FAULTS C3: an entry that its handler survived does not run alone for the rest of its attempts.
pub async fn an_outcome_of_a_living_worker_clears_deaths_in_company<S: StoreUnderTest>(h: &Harness<S>) {
    let undecodable = || Outcome::Undecodable { error: ErrorText::new("not yet") };
    for outcome in [failed(), Outcome::Snooze { delay: SECOND }, undecodable()] {
        for before in [1, 2, 3] {
            assert_eq!(after(h, before, outcome.clone()).await, (0, Status::Pending), "{outcome:?}");
        }
        assert_eq!(after(h, 11, outcome).await, (11, Status::Pending), "what it did alone is kept");
    }
    h.advance(HOUR);
    assert_eq!(h.claim("h", 100).await.len(), 9, "they are healthy work");
    assert_eq!(h.claim_suspect("h").await.len(), 1);
    for before in [2, 3] {
        assert_eq!(after(h, before, Outcome::Released).await, (before, Status::Pending), "it did not run");
        assert_eq!(h.claim_suspect("h").await.len(), 1);
    }
}

pub async fn the_limit_of_crashes_is_the_handlers<S: StoreUnderTest>(h: &Harness<S>) {
    let mut own = policy();
    (own.crashes, own.crash_delay) = (2, HOUR);
    h.running("1").await;
    worker_dies(h).await;
    for expected in [Status::Pending, Status::Poisoned] {
        assert_eq!(h.claim_suspect_idle("h").await.len(), 1);
        h.advance(PAST_LEASE);
        let settlement = h.rescue_one("h").await.settle(&own, Outcome::Crashed);
        assert_eq!(h.send(settlement).await, Settled::Applied);
        let entry = h.entry("1", "h").await;
        assert_eq!(entry.status, expected);
        h.advance(HOUR);
    }
    assert_eq!(suspicion(h, "1").await, 12);
}

// FAULTS F1: the first of each key returns at once, and nothing overtakes it.
pub async fn a_key_keeps_its_order_through_deaths<S: StoreUnderTest>(h: &Harness<S>) {
    for (id, order) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")] {
        h.first(offer_ordered(id, order)).await;
    }
    assert_eq!(h.claim("h", 10).await.len(), 2);
    for _ in 0..2 {
        worker_dies(h).await;
        let mut heads = ids(&h.claim_suspect("h").await);
        heads.sort();
        assert_eq!(heads, ["a1", "b1"], "one for each key, both at once");
        assert!(h.claim("h", 10).await.is_empty() && h.claim_suspect("h").await.is_empty());
    }
    for claim in worker_dies(h).await {
        assert_eq!(claim.suspicion.stored(), 2);
    }
    h.advance(SECOND);
    let head = h.claim_suspect("h").await.remove(0);
    h.settle(&head.claim, Outcome::Done).await;
    assert_eq!(ids(&h.claim("h", 10).await).len(), 1, "the next of that key");
}
