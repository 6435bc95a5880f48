//! Tenants: messages of several customers in one inbox, strictly separated.

use crate::OperatorSteps as _;
use oncebox::config::{OnTenantsChange, Tenants};
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{
    Accepted, Action, ActionKind, BlockedParams, EntryView, InboxCounts, NewMessage, QuarantineFilter,
    QuarantineReason, RegisterParams, Settled, Tenancy, TenantScope,
};
use oncebox::{ErrorKind, Key, Message};

use crate::fixture::{
    HOUR, PAST_LEASE, RETENTION, again as duplicate, dismissed, handler, inbox, inbox_named, message,
    moved_to, offer, offer_message, offer_routed, rejected, renamed, route,
};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

/// Registers a process with a tenants setting.
async fn register<S: InspectTier>(store: &S, name: &str, tenancy: Tenancy) -> Result<(), ErrorKind> {
    let mut params = RegisterParams::new(inbox_named(name), RETENTION);
    params.tenancy = Some(tenancy);
    store.register(&params).await.map_err(|error| error.kind())
}

// FAULTS G5: a message with another tenant has another key, so a redelivery would run again.
pub async fn an_inbox_does_not_change_its_tenants_unnoticed<S: InspectTier>(h: &Harness<S>) {
    let (off, required) = (Tenancy::new(Tenants::Off), Tenancy::new(Tenants::Required));
    let refused = Err(ErrorKind::TenantsChanged);
    let other = h.another().await;
    assert_eq!(register(&h.store, "orders", off.clone()).await, Ok(()));
    assert_eq!(register(&other, "orders", required.clone()).await, refused);
    let silent = RegisterParams::new(inbox_named("orders"), RETENTION);
    other.register(&silent).await.expect("a process without a word about tenants");
    assert_eq!(register(&h.store, "orders", off.clone()).await, Ok(()), "it stays");
    assert_eq!(register(&other, "other", required.clone()).await, Ok(()), "each inbox by itself");

    let accepting = required.clone().on_change(OnTenantsChange::Accept);
    assert_eq!(register(&other, "orders", accepting).await, Ok(()));
    assert_eq!(register(&h.store, "orders", off.clone()).await, refused, "the new one is recorded");
    assert_eq!(register(&h.store, "orders", required).await, Ok(()));

    let acme = Tenancy::adopting("acme");
    assert_eq!(register(&h.store, "adopts", off.clone()).await, Ok(()));
    assert_eq!(register(&other, "adopts", acme.clone()).await, Ok(()), "every key stays");
    assert_eq!(register(&h.store, "adopts", off).await, refused);
    assert_eq!(register(&h.store, "adopts", Tenancy::adopting("globex")).await, refused);
    assert_eq!(register(&h.store, "orders", acme).await, refused, "its own messages have other keys there");
}

pub async fn one_of_two_tenants_settings_at_once_is_recorded<S: InspectTier>(h: &Harness<S>) {
    let settings = [Tenants::Off, Tenants::Optional, Tenants::Required].map(Tenancy::new);
    let mut calls = Vec::new();
    for n in 0..9 {
        let (store, tenancy) = (h.another().await, settings[n % 3].clone());
        calls.push(tokio::spawn(async move { register(&store, "orders", tenancy).await }));
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("no panic"));
    }
    let winners: Vec<_> = (0..3).filter(|n| register_is_ok(&answers, *n)).collect();
    let [winner] = winners[..] else { panic!("one setting: {answers:?}") };
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n % 3 == winner { Ok(()) } else { Err(ErrorKind::TenantsChanged) };
        assert_eq!(*answer, expected, "{answers:?}");
    }
}

/// Registers a process with one of three settings. Returns true if the store accepted it.
fn register_is_ok(answers: &[Result<(), ErrorKind>], setting: usize) -> bool {
    answers.iter().skip(setting).step_by(3).any(Result::is_ok)
}

// FAULTS G5, S4, S20
pub async fn the_same_id_of_two_tenants_is_two_messages<S: InspectTier>(h: &Harness<S>) {
    let offers = [of("a", "1"), of("b", "1"), offer("1")];
    for new in &offers {
        h.first(new.clone()).await;
    }
    for new in &offers {
        assert!(matches!(h.accept(new.clone()).await, Accepted::Duplicate(_)));
        let view = h.store.show(&inbox(), &new.key).await.expect("show").expect("known");
        assert_eq!((view.tenant.as_deref(), view.entries.len()), (new.message.tenant(), 1));
    }
    let mut conflict = of_message("a", Message::new("1", "order.placed", "other"));
    assert!(matches!(h.accept(conflict.clone()).await, Accepted::Conflict(_)));
    conflict = of_message("c", Message::new("1", "order.placed", "other"));
    h.first(conflict).await;
    assert_eq!(h.claim("h", 10).await.len(), 4);
}

pub async fn a_batch_may_mix_tenants<S: StoreTier>(h: &Harness<S>) {
    let answers = h.accept_all(&[of("a", "1"), offer("1"), of("b", "1"), of("a", "1")]).await;
    let [Accepted::First(first), Accepted::First(_), Accepted::First(_), again] = answers[..] else {
        panic!("unexpected answers {answers:?}")
    };
    assert_eq!(again, duplicate(first));
    let mut tenants: Vec<_> =
        h.claim("h", 10).await.iter().map(|one| one.message.tenant().map(str::to_owned)).collect();
    tenants.sort();
    assert_eq!(tenants, [None, Some("a".into()), Some("b".into())]);
}

pub async fn a_tenant_comes_back_with_its_message<S: InspectTier>(h: &Harness<S>) {
    let sent = of("a", "1");
    h.first(sent.clone()).await;
    let claimed = h.claim("h", 1).await.remove(0);
    assert_eq!((&claimed.message, claimed.claim.key), (&sent.message, sent.key));
    h.advance(PAST_LEASE);
    assert_eq!(h.rescue("h", 1).await[0].message, sent.message);
    let other = of_message("a", Message::new("1", "order.placed", "other"));
    h.accept(other.clone()).await;
    let view = h.store.show(&inbox(), &sent.key).await.expect("show").expect("known");
    assert_eq!(view.stored.expect("stored").2, sent.message);
    assert_eq!(view.quarantined[0].message, other.message);
}

pub async fn what_is_quarantined_alone_has_its_tenant<S: OperateTier>(h: &Harness<S>) {
    let now = h.now();
    h.first(of("a", "1")).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    h.advance(RETENTION);
    assert_eq!(h.sweep(RETENTION).await.messages, 1);
    let late = of_message("b", Message::new("2", "order.placed", "late").with_time(now));
    assert_eq!(h.accept(late.clone()).await, Accepted::Stale);
    let shown = tenant(h, "b").show(&late.key).await.expect("show").expect("known");
    assert_eq!((shown.tenant.as_deref(), shown.quarantined[0].reason), (Some("b"), QuarantineReason::Stale));
    assert!(tenant(h, "a").show(&late.key).await.expect("show").is_none());
    assert_eq!(tenant(h, "b").count().await.expect("count").quarantined, 1);
    assert_eq!(tenant(h, "a").count().await.expect("count"), InboxCounts::default());
}

// FAULTS S20: a blocking head of one tenant does not block another tenant.
pub async fn tenants_do_not_wait_for_each_other<S: StoreTier>(h: &Harness<S>) {
    let ordered =
        |tenant: &str, id: &str| offer_message(message(id).with_ordering_key("k").with_tenant(tenant));
    for id in ["1", "2"] {
        h.first(ordered("a", id)).await;
        h.first(ordered("b", id)).await;
        h.first(offer_message(message(id).with_ordering_key("k"))).await;
    }
    let heads = h.claim("h", 10).await;
    assert_eq!(heads.len(), 3, "the first of each line");
    for head in &heads {
        let outcome = if head.message.tenant() == Some("a") { rejected() } else { Outcome::Done };
        h.settle(&head.claim, outcome).await;
    }
    let mut next: Vec<_> = h.claim("h", 10).await.iter().map(|one| one.message.tenant().is_some()).collect();
    next.sort_unstable();
    assert_eq!(next, [false, true], "a waits for its poisoned head; b and none go on");
}

pub async fn a_handler_added_later_keeps_the_order_of_its_tenant<S: OperateTier>(h: &Harness<S>) {
    let ordered = |id: &str, handlers: &[&str]| {
        let message = message(id).with_ordering_key("k").with_tenant("a");
        offer_routed(message, handlers.iter().copied().map(route))
    };
    for id in ["1", "2"] {
        h.first(ordered(id, &["h"])).await;
    }
    for id in ["1", "2"] {
        assert!(matches!(h.accept(ordered(id, &["h", "new"])).await, Accepted::HandlersAdded(_, 1)));
    }
    let first = h.claim_one("new").await;
    assert_eq!(h.settle(&first, Outcome::Done).await, Settled::Applied);
    // A replay reads the order of the stored message again.
    let operated = h.store.operate(&inbox(), &first.key, &handler("new"), Operation::Replay).await;
    assert_eq!(operated.expect("replay").generation, 1);
    assert_eq!(h.claim_one("new").await.key, first.key, "one of a line at a time");
}

pub async fn counts_and_lists_are_by_tenant<S: OperateTier>(h: &Harness<S>) {
    for name in ["a", "b"] {
        one_of_each(h, name).await;
    }
    h.first(of("b", "more")).await;
    h.first(offer("no tenant")).await;
    let count = async |name| tenant(h, name).count().await.expect("count");
    for (name, pending) in [("a", 1), ("b", 2), ("unknown", 0)] {
        let counts = count(name).await;
        assert_eq!(counts.with_status(Status::Pending), pending, "{name}");
        let expected = u64::from(pending > 0);
        for status in [Status::Running, Status::Completed, Status::Poisoned, Status::Discarded] {
            assert_eq!(counts.with_status(status), expected, "{name} {status}");
        }
        assert_eq!((counts.messages, counts.quarantined), (pending + 4 * expected, 0));
        for status in Status::ALL {
            let expected = counts.with_status(status);
            for limit in [1, 2, 10] {
                let listed = list(&tenant(h, name), status, limit).await;
                assert_eq!(listed.len() as u64, expected, "{name} {status}, pages of {limit}");
            }
        }
    }
    let all = h.count().await;
    assert_eq!(
        (all.messages, all.with_status(Status::Pending)),
        (12, 4),
        "a view without a tenant shows everything"
    );
    h.accept(of_message("a", Message::new("pending", "order.placed", "other"))).await;
    assert_eq!((count("a").await.quarantined, count("b").await.quarantined), (1, 0));
}

pub async fn a_replay_is_counted_once_for_its_tenant<S: OperateTier>(h: &Harness<S>) {
    let new = of("a", "1");
    h.first(new.clone()).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    let a = tenant(h, "a");
    let counts = async || {
        let counts = a.count().await.expect("count");
        Status::ALL.map(|status| counts.with_status(status))
    };
    assert_eq!(counts().await, [0, 0, 1, 0, 0]);
    operate(&a, &new.key, Operation::Replay).await.expect("replay");
    assert_eq!(counts().await, [1, 0, 0, 0, 0]);
    let claim = h.claim_one("h").await;
    assert_eq!(counts().await, [0, 1, 0, 0, 0]);
    h.settle(&claim, rejected()).await;
    assert_eq!(counts().await, [0, 0, 0, 1, 0]);
    operate(&a, &new.key, Operation::Discard).await.expect("discard");
    assert_eq!(counts().await, [0, 0, 0, 0, 1]);
}

// FAULTS S20
pub async fn another_tenant_is_neither_shown_nor_touched<S: OperateTier>(h: &Harness<S>) {
    let keys = one_of_each(h, "a").await;
    one_of_each(h, "b").await;
    let b = tenant(h, "b");
    let before = h.snapshot().await;
    for new in &keys {
        assert!(b.show(&new.key).await.expect("show").is_none());
        for operation in Operation::ALL {
            let error = operate(&b, &new.key, operation).await.expect_err("another tenant's");
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        for status in Status::ALL {
            let listed = list(&b, status, 10).await;
            assert!(listed.iter().all(|entry| entry.key != new.key), "{status}");
        }
    }
    assert_eq!(h.snapshot().await, before);
    let mut stolen = b.filter(Status::Poisoned);
    stolen.tenant = Some("a".into());
    assert_eq!(b.list(&stolen).await.expect("list").entries, list(&b, Status::Poisoned, 10).await);
    let a = tenant(h, "a");
    let poisoned = list(&a, Status::Poisoned, 10).await.remove(0);
    operate(&a, &poisoned.key, Operation::Retry).await.expect("its own");
    assert!(list(&a, Status::Poisoned, 10).await.is_empty());
    assert_eq!(list(&b, Status::Poisoned, 10).await.len(), 1);
}

// FAULTS S20
pub async fn what_is_quarantined_is_listed_by_tenant<S: OperateTier>(h: &Harness<S>) {
    for name in ["a", "b"] {
        for id in ["1", "2", "3"] {
            h.first(of(name, id)).await;
            let other = of_message(name, Message::new(id, "order.placed", "other"));
            assert!(matches!(h.accept(other).await, Accepted::Conflict(_)));
        }
    }
    h.first(offer("1")).await;
    h.accept(offer_message(Message::new("1", "order.placed", "other").with_source("shop"))).await;
    let b = tenant(h, "b");
    // With another tenant in the filter, and in small pages.
    let (mut filter, mut found) = (tenant(h, "a").quarantine_filter(), Vec::new());
    filter.limit = 2;
    loop {
        let page = b.quarantined(&filter).await.expect("quarantined");
        assert!(page.quarantined.iter().all(|item| item.tenant.as_deref() == Some("b")));
        found.extend(page.quarantined.iter().map(|item| item.label.id.to_vec()));
        match page.next {
            None => break,
            next => filter.after = next,
        }
    }
    assert_eq!(found, [b"1", b"2", b"3"]);
    let all = h.store.quarantined(&QuarantineFilter::new(inbox())).await.expect("quarantined");
    assert_eq!(all.quarantined.len(), 7, "a view without a tenant shows everything");
    for name in ["", "c", "\0"] {
        let theirs = tenant(h, name);
        let page = theirs.quarantined(&theirs.quarantine_filter()).await.expect("quarantined");
        assert!(page.quarantined.is_empty() && theirs.blocked(10).await.expect("blocked").is_empty());
    }
}

// FAULTS S20
pub async fn blocked_keys_are_listed_by_tenant<S: OperateTier>(h: &Harness<S>) {
    let ordered =
        |tenant: &str, id: &str| offer_message(message(id).with_ordering_key("k").with_tenant(tenant));
    let mut heads = Vec::new();
    for name in ["a", "b"] {
        heads.push(h.first(ordered(name, "1")).await);
        let head = h.claim_one("h").await;
        h.settle(&head, rejected()).await;
    }
    h.first(ordered("b", "2")).await;
    let blocked = tenant(h, "b").blocked(1).await.expect("blocked");
    assert_eq!(blocked.len(), 1, "the older one of another tenant takes no place");
    assert_eq!((blocked[0].head, blocked[0].waiting), (heads[1], 1));
    assert_eq!(tenant(h, "a").blocked(10).await.expect("blocked")[0].head, heads[0]);
    assert_eq!(h.store.blocked(&BlockedParams::new(inbox())).await.expect("blocked").len(), 2);
}

pub async fn inboxes_do_not_share_tenants<S: OperateTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    h.first(of("a", "1")).await;
    h.first(moved_to(&other, &of("a", "1"))).await;
    h.first(moved_to(&other, &of("a", "2"))).await;
    let there = TenantScope::new(&h.store, other, "a");
    assert_eq!(there.count().await.expect("count").messages, 2);
    assert_eq!(tenant(h, "a").count().await.expect("count").messages, 1);
    assert_eq!(list(&there, Status::Pending, 10).await.len(), 2);
}

pub async fn tenants_are_compared_letter_by_letter<S: OperateTier>(h: &Harness<S>) {
    let names = ["a", "A", "a ", " a", "ä", "a\u{308}", "%", "_", "'", "null"];
    for name in names {
        h.first(of(name, "1")).await;
    }
    for name in names {
        assert_eq!(tenant(h, name).count().await.expect("count").messages, 1, "{name:?}");
        assert_eq!(list(&tenant(h, name), Status::Pending, 10).await.len(), 1, "{name:?}");
    }
    for name in ["", "b", "a%", "\0", "a\0"] {
        assert_eq!(tenant(h, name).count().await.expect("count"), InboxCounts::default(), "{name:?}");
        assert!(list(&tenant(h, name), Status::Pending, 10).await.is_empty(), "{name:?}");
    }
}

pub async fn a_legacy_key_covers_the_handler_of_a_tenant<S: StoreTier>(h: &Harness<S>) {
    let old = offer_routed(message("1").with_tenant("a"), [route("old")]);
    let seq = h.first(old).await;
    let again = offer_routed(message("1").with_tenant("a"), [renamed("new", &["old"])]);
    assert_eq!(h.accept(again).await, duplicate(seq));
    h.advance(HOUR);
    assert_eq!(h.claim("old", 10).await.len(), 1);
}

/// Returns a message of a tenant for the handler `h`.
fn of(tenant: &str, id: &str) -> NewMessage {
    offer_message(message(id).with_tenant(tenant))
}

/// Returns the given message of a tenant, from the source of all others.
fn of_message(tenant: &str, message: Message) -> NewMessage {
    offer_message(message.with_source("shop").with_tenant(tenant))
}

fn tenant<'a, S: OperateTier>(h: &'a Harness<S>, name: &str) -> TenantScope<'a, S> {
    TenantScope::new(&h.store, inbox(), name)
}

async fn list<S: OperateTier>(of: &TenantScope<'_, S>, status: Status, limit: usize) -> Vec<EntryView> {
    let mut filter = of.filter(status);
    filter.limit = limit;
    let mut entries = Vec::new();
    loop {
        let page = of.list(&filter).await.expect("list");
        assert!(page.entries.len() <= limit);
        entries.extend(page.entries);
        match page.next {
            None => return entries,
            next => filter.after = next,
        }
    }
}

/// Stores one message of a tenant in each status, with the word for the status as its id.
async fn one_of_each<S: StoreTier>(h: &Harness<S>, tenant: &str) -> Vec<NewMessage> {
    let mut offered = Vec::new();
    for (status, outcome) in [
        (Status::Completed, Some(Outcome::Done)),
        (Status::Poisoned, Some(rejected())),
        (Status::Discarded, Some(dismissed())),
        (Status::Running, None),
    ] {
        let new = of(tenant, status.as_str());
        h.first(new.clone()).await;
        let claim = h.claim_one("h").await;
        if let Some(outcome) = outcome {
            h.settle(&claim, outcome).await;
        }
        offered.push(new);
    }
    // Last, so that no claim takes it: later messages have another handler.
    let pending = NewMessage::new(
        inbox(),
        of(tenant, Status::Pending.as_str()).key,
        of(tenant, Status::Pending.as_str()).message,
        [route("later")].into(),
    );
    h.first(pending.clone()).await;
    offered.push(pending);
    offered
}

/// Does an operation on the entry of `h`, within a tenant.
async fn operate<S: OperateTier>(
    scope: &TenantScope<'_, S>,
    key: &Key,
    operation: Operation,
) -> oncebox::Result<()> {
    let kind = ActionKind::Entry { key: *key, handler: handler("h"), operation };
    scope.act(&Action::new(inbox(), kind)).await.map(|_| ())
}
