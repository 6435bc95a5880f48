//! Several keys, one handler: processes from before and after a rename of a handler share its entries, in any order of arrival.

use crate::OperatorSteps as _;
use std::time::Duration;

use oncebox::ErrorKind;
use oncebox::state::{Operation, Outcome, Settlement, Status};
use oncebox::store::{
    Accepted, BackfillParams, Backfilled, BacklogParams, BlockedParams, Claimed, EntryFilter, NewMessage,
    OrphanParams, RegisterParams, Route, Settled, SweepParams,
};
use tokio::task::JoinSet;

use crate::fixture::{
    HOUR, PAST_LEASE, RETENTION, failed, handler, id, ids, inbox, key, message, offer_routed, policy,
    rejected, renamed, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, InspectTier, OperateTier, StoreTier, TransactionalTier};

/// Returns the handler as an old process knows it.
fn old() -> Route {
    route("three")
}

/// Returns the handler as a new process knows it.
fn new() -> Route {
    renamed("drei", &["three"])
}

fn offer(id: &str, route: &Route) -> NewMessage {
    offer_routed(message(id), [route.clone()])
}

fn ordered(id: &str, route: &Route) -> NewMessage {
    offer_routed(message(id).with_ordering_key("k"), [route.clone()])
}

async fn accept<S: StoreTier>(store: &S, new: NewMessage) -> Accepted {
    store.accept(&[new]).await.expect("accept").remove(0)
}

async fn first<S: StoreTier>(store: &S, new: NewMessage) {
    let accepted = accept(store, new).await;
    assert!(matches!(accepted, Accepted::First(_)), "{accepted:?}");
}

async fn duplicate<S: StoreTier>(store: &S, new: NewMessage) {
    let accepted = accept(store, new).await;
    assert!(matches!(accepted, Accepted::Duplicate(_)), "{accepted:?}");
}

async fn claim<S: StoreTier>(store: &S, route: &Route) -> Vec<Claimed> {
    store.claim(&claim_params(std::slice::from_ref(route), 10)).await.expect("claim")
}

async fn settle<S: StoreTier>(store: &S, claimed: &Claimed, outcome: Outcome) {
    let settled = store.settle(&[claimed.claim.settle(&policy(), outcome)]).await.expect("settle");
    assert_eq!(settled, [Settled::Applied]);
}

/// Completes all entries that a process can claim, and returns the ids.
async fn work<S: StoreTier>(store: &S, route: &Route) -> Vec<String> {
    let claimed = claim(store, route).await;
    for claimed in &claimed {
        settle(store, claimed, Outcome::Done).await;
    }
    ids(&claimed)
}

async fn register<S: StoreTier>(store: &S, route: &Route, window: Duration) {
    let mut params = RegisterParams::new(inbox(), RETENTION);
    params.windows = route.keys().map(|key| (key.clone(), window)).collect();
    params.routes = vec![route.clone()];
    store.register(&params).await.expect("register");
}

// FAULTS I1
pub async fn what_a_new_process_completed_is_a_duplicate_to_an_old_one<S: InspectTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&after, offer("1", &new())).await;
    first(&before, offer("0", &old())).await;
    first(&after, offer("2", &new())).await;
    assert_eq!(work(&after, &new()).await.len(), 3);
    for id in ["0", "1", "2"] {
        duplicate(&before, offer(id, &old())).await;
        assert_eq!(h.show(id).await.expect("known").entries.len(), 1);
    }
    assert!(work(&before, &old()).await.is_empty(), "no effect twice");
}

pub async fn what_an_old_process_completed_is_a_duplicate_to_a_new_one<S: StoreTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&before, offer("1", &old())).await;
    assert_eq!(work(&before, &old()).await, ["1"]);
    duplicate(&after, offer("1", &new())).await;
    first(&before, offer("2", &old())).await;
    duplicate(&after, offer("2", &new())).await;
    duplicate(&before, offer("2", &old())).await;
    assert_eq!(work(&after, &new()).await, ["2"]);
}

pub async fn an_old_process_claims_what_a_new_one_accepted<S: TransactionalTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    register(&after, &new(), RETENTION).await;
    first(&after, offer("1", &new())).await;
    let claimed = claim(&before, &old()).await;
    assert_eq!(ids(&claimed), ["1"]);
    let claimed = &claimed[0].claim;
    assert_eq!((&claimed.handler, &claimed.origin), (&handler("three"), &handler("three")));
    assert_eq!(
        before
            .renew(&oncebox::store::RenewParams::new(vec![claimed.clone()], HOUR))
            .await
            .expect("renew")
            .len(),
        1
    );
    let tx = before.begin().await.expect("begin");
    assert_eq!(before.finish(tx, claimed).await.expect("finish"), Settled::Applied);
    assert_eq!(h.entry("1", "drei").await.status, Status::Completed);
    duplicate(&after, offer("1", &new())).await;
}

pub async fn a_claim_has_a_key_that_its_caller_knows<S: InspectTier>(h: &Harness<S>) {
    first(&h.store, offer("1", &old())).await;
    let named = |claimed: &[Claimed]| -> Vec<(String, String)> {
        let names = claimed.iter().map(|one| (one.claim.handler.to_string(), one.claim.origin.to_string()));
        names.collect()
    };
    let expected = |key: &str| vec![(key.to_owned(), "three".to_owned())];
    let params = claim_params(&[new()], 1);
    let claimed = h.store.claim(&params).await.expect("claim");
    assert_eq!(named(&claimed), expected("drei"));
    assert_eq!(named(&h.store.claim(&params).await.expect("claim")), expected("drei"), "read back");
    h.advance(PAST_LEASE);
    let rescued = h.store.rescue(&rescue_params(&[old()], 10)).await.expect("rescue");
    assert_eq!(named(&rescued), expected("three"));
    h.advance(PAST_LEASE);
    let rescued = h.store.rescue(&rescue_params(&[new()], 10)).await.expect("rescue");
    assert_eq!(named(&rescued), expected("drei"));
    settle(&h.store, &rescued[0], Outcome::Crashed).await;
    let suspect = h.store.claim(&claim_params(&[old()], 1).suspect()).await.expect("claim");
    assert_eq!(named(&suspect), expected("three"));
    settle(&h.store, &suspect[0], failed()).await;
    let attempts = h.store.history(&inbox(), &key("1")).await.expect("history").expect("known").attempts;
    assert!(attempts.iter().all(|one| (&one.handler, &one.origin) == (&handler("drei"), &handler("three"))));
    assert_eq!(attempts.len(), 2);
}

// FAULTS B14
pub async fn old_and_new_processes_keep_one_order<S: StoreTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&after, ordered("1", &new())).await;
    first(&before, ordered("2", &old())).await;
    first(&after, ordered("3", &new())).await;
    first(&before, ordered("4", &old())).await;
    for (expected, of_new) in [("1", false), ("2", true), ("3", true), ("4", false)] {
        let (store, route) = if of_new { (&after, new()) } else { (&before, old()) };
        let claimed = claim(store, &route).await;
        assert_eq!(ids(&claimed), [expected]);
        assert!(claim(&before, &old()).await.is_empty() && claim(&after, &new()).await.is_empty());
        settle(store, &claimed[0], Outcome::Done).await;
    }
}

pub async fn three_generations_of_keys_are_one_handler<S: InspectTier>(h: &Harness<S>) {
    let generations = [route("a"), renamed("b", &["a"]), renamed("c", &["b"])];
    for (n, route) in generations.iter().enumerate() {
        first(&h.store, offer(&n.to_string(), route)).await;
    }
    for route in &generations {
        for n in 0..3 {
            duplicate(&h.another().await, offer(&n.to_string(), route)).await;
        }
    }
    let oldest = h.another().await;
    let claimed = claim(&oldest, &generations[0]).await;
    assert_eq!(claimed.len(), 3);
    assert!(claimed.iter().all(|one| one.claim.origin == handler("a") && one.claim.handler == handler("a")));
    settle(&oldest, &claimed[0], Outcome::Released).await;
    let newest = claim(&h.store, &generations[2]).await;
    assert_eq!((&newest[0].claim.handler, &newest[0].claim.origin), (&handler("c"), &handler("a")));
    assert!(h.show("0").await.expect("known").entries.iter().all(|entry| entry.handler == handler("c")));
}

pub async fn the_newest_generation_may_come_first<S: InspectTier>(h: &Harness<S>) {
    first(&h.store, offer("1", &renamed("c", &["b"]))).await;
    duplicate(&h.store, offer("1", &renamed("b", &["a"]))).await;
    duplicate(&h.another().await, offer("1", &route("a"))).await;
    let entry = h.entry("1", "c").await;
    assert_eq!((entry.handler, entry.origin), (handler("c"), handler("b")), "an older key is no newer name");
    let claimed = claim(&h.store, &route("a")).await;
    assert_eq!((&claimed[0].claim.handler, &claimed[0].claim.origin), (&handler("a"), &handler("b")));
}

// FAULTS I1: the former key was missing at first, and both handlers have run.
pub async fn keys_that_were_apart_count_for_each_other_once_they_are_linked<S: StoreTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&before, offer("1", &old())).await;
    first(&after, offer("2", &route("drei"))).await;
    first(&after, offer("3", &route("drei"))).await;
    let added = accept(&before, offer("3", &old())).await;
    assert!(matches!(added, Accepted::HandlersAdded(_, 1)), "not linked yet: {added:?}");
    register(&after, &new(), RETENTION).await;
    first(&after, offer("4", &new())).await;
    for id in ["1", "2", "3", "4"] {
        duplicate(&before, offer(id, &old())).await;
        duplicate(&after, offer(id, &new())).await;
        duplicate(&h.another().await, offer(id, &route("drei"))).await;
    }
    let mut claimed = claim(&after, &new()).await;
    claimed.sort_by_key(|one| (one.claim.seq, one.claim.handler.clone()));
    let named: Vec<_> = claimed.iter().map(|one| (id(one), one.claim.handler.as_str())).collect();
    let expected = [("1", "three"), ("2", "drei"), ("3", "drei"), ("3", "three"), ("4", "drei")];
    assert_eq!(named, expected.map(|(id, name)| (id.to_owned(), name)));
    assert!(claimed.iter().all(|one| one.claim.handler == one.claim.origin), "each keeps its origin");
    for one in &claimed {
        settle(&after, one, Outcome::Done).await;
        duplicate(&before, offer(&id(one), &old())).await;
    }
    // A third key joins the group, through one of the two.
    duplicate(&h.another().await, offer("2", &renamed("trois", &["three"]))).await;
    duplicate(&h.another().await, offer("1", &renamed("tre", &["drei"]))).await;
}

pub async fn a_key_that_was_renamed_names_no_other_handler<S: StoreTier>(h: &Harness<S>) {
    register(&h.another().await, &new(), RETENTION).await;
    let register = async |routes: [Route; 2]| {
        let mut params = RegisterParams::new(inbox(), RETENTION);
        params.routes = routes.into();
        h.store.register(&params).await.map_err(|error| error.kind())
    };
    assert_eq!(register([route("drei"), old()]).await, Err(ErrorKind::InvalidHandler));
    assert_eq!(register([route("drei"), route("vier")]).await, Ok(()));
    assert_eq!(register([new(), route("vier")]).await, Ok(()));
    assert_eq!(register([renamed("drei", &["vier"]), route("five")]).await, Ok(()));
    assert_eq!(register([old(), route("vier")]).await, Err(ErrorKind::InvalidHandler), "a group is one, too");
}

pub async fn a_backfill_adds_nothing_to_what_another_key_covers<S: OperateTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&before, offer("1", &old())).await;
    first(&after, offer("2", &route("drei"))).await;
    register(&after, &new(), RETENTION).await;
    for (store, route) in [(&before, old()), (&after, new())] {
        let mut params = BackfillParams::new(inbox(), route, vec!["order.placed".into()]);
        params.limit = 100;
        assert_eq!(store.backfill(&params).await.expect("backfill"), Backfilled::default());
    }
}

pub async fn a_pause_is_of_all_keys<S: OperateTier>(h: &Harness<S>) {
    let (before, after) = (h.another().await, h.another().await);
    first(&before, offer("1", &old())).await;
    register(&after, &new(), RETENTION).await;
    for (pause, resume) in [("three", "drei"), ("drei", "three")] {
        h.store.pause(&inbox(), &handler(pause)).await.expect("pause");
        assert_eq!(h.count().await.paused, [handler("drei")]);
        assert!(claim(&before, &old()).await.is_empty() && claim(&after, &new()).await.is_empty());
        h.store.resume(&inbox(), &handler(resume)).await.expect("resume");
        assert!(h.count().await.paused.is_empty());
    }
    assert_eq!(claim(&before, &old()).await.len(), 1);
}

pub async fn operators_see_the_newest_key_and_may_use_any<S: OperateTier>(h: &Harness<S>) {
    first(&h.store, ordered("1", &old())).await;
    first(&h.store, ordered("2", &new())).await;
    let waiting = h.store.backlog(&BacklogParams::new(inbox())).await.expect("backlog");
    assert_eq!(
        waiting.iter().map(|one| (one.handler.as_str(), one.pending)).collect::<Vec<_>>(),
        [("drei", 2)]
    );
    h.advance(2 * HOUR);
    for (known, expected) in [("three", 0), ("drei", 0), ("other", 1)] {
        let params = OrphanParams::new(inbox(), vec![handler(known)], HOUR);
        let orphans = h.store.orphans(&params).await.expect("orphans");
        assert_eq!(orphans.len(), expected, "{known}");
        assert!(orphans.iter().all(|orphan| orphan.handler == handler("drei") && orphan.count == 2));
    }
    let claimed = claim(&h.store, &old()).await;
    settle(&h.store, &claimed[0], rejected()).await;
    let blocked = h.store.blocked(&BlockedParams::new(inbox())).await.expect("blocked");
    assert_eq!(
        blocked.iter().map(|one| (one.handler.as_str(), one.waiting)).collect::<Vec<_>>(),
        [("drei", 1)]
    );
    for name in ["three", "drei"] {
        let mut filter = EntryFilter::any(inbox());
        (filter.handler, filter.limit) = (Some(handler(name)), 1);
        let page = h.store.list(&filter).await.expect("list");
        filter.after = page.next.clone();
        let rest = h.store.list(&filter).await.expect("list").entries;
        let listed: Vec<_> = page.entries.iter().chain(&rest).map(|entry| entry.handler.as_str()).collect();
        assert_eq!(listed, ["drei", "drei"], "{name}");
    }
    assert!(h.count().await.entries.iter().all(|one| one.handler == handler("drei")));
    for (name, operation) in [("three", Operation::Retry), ("drei", Operation::Discard)] {
        let entry = h.operate("1", name, operation).await.expect("operate");
        assert_eq!((entry.handler.as_str(), entry.origin.as_str()), ("drei", "three"));
    }
    assert!(h.operate("1", "other", Operation::Replay).await.is_err());
}

pub async fn the_longest_window_of_all_keys_counts<S: StoreTier>(h: &Harness<S>) {
    register(&h.another().await, &old(), 10 * RETENTION).await;
    register(&h.another().await, &new(), RETENTION).await;
    first(&h.store, offer("1", &new())).await;
    assert_eq!(work(&h.store, &new()).await, ["1"]);
    let mut params = SweepParams::new(inbox(), RETENTION, 100);
    params.windows = new().keys().map(|key| (key.clone(), RETENTION)).collect();
    h.advance(2 * RETENTION);
    // An old process still runs and registers.
    register(&h.another().await, &old(), 10 * RETENTION).await;
    assert_eq!(h.store.sweep(&params).await.expect("sweep").messages, 0);
    duplicate(&h.another().await, offer("1", &old())).await;
    h.advance(9 * RETENTION);
    assert_eq!(h.store.sweep(&params).await.expect("sweep").messages, 1);
}

// FAULTS H1
pub async fn what_one_key_forgot_is_stale_for_all<S: StoreTier>(h: &Harness<S>) {
    let dated = message("1").with_time(h.now());
    let again = |route: Route| offer_routed(dated.clone(), [route]);
    for apart in [false, true] {
        let (id, new) = if apart { ("3", renamed("zwei", &["two"])) } else { ("2", new()) };
        let old = Route::new(new.legacy[0].clone());
        if apart {
            register(&h.store, &old, RETENTION).await;
            register(&h.store, &Route::new(new.key.clone()), RETENTION).await;
        }
        first(&h.store, again(new.clone())).await;
        assert_eq!(work(&h.store, &new).await.len(), 1);
        h.advance(RETENTION + HOUR);
        assert_eq!(h.sweep(RETENTION).await.messages, 1);
        assert_eq!(accept(&h.another().await, again(old.clone())).await, Accepted::Stale);
        first(&h.store, offer(id, &old)).await;
        assert_eq!(work(&h.store, &old).await, [id]);
        h.advance(RETENTION + HOUR);
        h.sweep(RETENTION).await;
    }
}

/// Processes of both kinds start at the same time, on an empty store.
pub async fn there_is_one_entry_in_any_order_of_arrival<S: InspectTier>(h: &Harness<S>) {
    const MESSAGES: usize = 12;
    let mut processes = JoinSet::new();
    for process in 0..6 {
        let store = h.another().await;
        processes.spawn(async move {
            let route = if process % 2 == 0 { old() } else { new() };
            if process > 3 {
                register(&store, &route, RETENTION).await;
            }
            for n in 0..MESSAGES {
                accept(&store, offer(&n.to_string(), &route)).await;
                for claimed in claim(&store, &route).await {
                    assert_eq!(
                        (&claimed.claim.handler, &claimed.claim.origin),
                        (&route.key, &handler("three"))
                    );
                    let settled = store.settle(&[Settlement::done(&claimed.claim)]).await.expect("settle");
                    assert_eq!(settled, [Settled::Applied]);
                }
            }
        });
    }
    processes.join_all().await;
    assert_eq!(h.count().await.with_status(Status::Completed), MESSAGES as u64);
    for n in 0..MESSAGES {
        assert_eq!(h.show(n.to_string()).await.expect("known").entries.len(), 1);
    }
}
