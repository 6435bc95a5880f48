//! Erasure of one message (FAULTS S12): removed content, kept proofs, and refusals.

use crate::OperatorSteps as _;
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{
    Accepted, Action, ActionKind, ActionResult, AuditFilter, BackfillParams, EntryFilter, ErasureCounts,
    OrderQueue,
};
use oncebox::{ErrorKind, HandlerKey, Message, OnPoisoned, Result};

use super::line::poison;
use crate::fixture::{
    RETENTION, SECOND, failed, ids, inbox, inbox_named, key, key_in, message, offer, offer_message,
    offer_ordered, offer_routed, offer_to, route,
};
use crate::{Harness, OperateTier};

impl<S: OperateTier> Harness<S> {
    async fn erase(&self, id: &str, discard_unfinished: bool) -> Result<ErasureCounts> {
        self.store.erase(&inbox(), &key(id), discard_unfinished).await
    }

    /// Returns the records of operations on a message, as text.
    async fn records(&self, id: &str) -> String {
        let mut filter = AuditFilter::new(inbox());
        filter.key = Some(key(id));
        format!("{:?}", self.store.audit(&filter).await.expect("audit").operations)
    }
}

/// Returns a message under a key, with another payload.
fn other(id: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", "something else").with_source("shop")
}

pub async fn an_erased_message_leaves_its_key_and_nothing_else<S: OperateTier>(h: &Harness<S>) {
    let secret = message("4111").with_ordering_key("customer-7").with_header("name", "Ada");
    let first = h.first(offer_routed(secret, [route("h")])).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, failed()).await;
    h.advance(RETENTION / 100);
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    h.operate("4111", "h", Operation::Replay).await.expect("replay");
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    h.accept_all(&[offer_message(other("4111"))]).await;
    h.completed("neighbour").await;
    let before = h.show("4111").await.expect("it is known");
    assert_eq!((before.quarantined.len(), before.entries.len(), before.erased), (1, 2, false));
    assert!(
        h.records("4111").await.contains("label: Some") || h.records("4111").await.contains("ordering_key")
    );

    assert_eq!(h.erase("4111", false).await.expect("erase"), ErasureCounts::new(0, 1));
    let view = h.show("4111").await.expect("its key is known");
    assert!(view.stored.is_none() && view.erased && view.quarantined.is_empty(), "{view:?}");
    let left: Vec<_> = view.entries.iter().map(|entry| (entry.seq, entry.status, entry.generation)).collect();
    assert_eq!(left, [(first, Status::Completed, 0), (first, Status::Completed, 1)]);
    assert!(view.entries.iter().all(|entry| entry.label.is_none() && entry.error.is_none()), "{view:?}");
    assert_eq!(
        view.entries[0].received_at, before.entries[0].received_at,
        "that it came, and when, is known"
    );
    let history = h.store.history(&inbox(), &key("4111")).await.expect("history").expect("it is known");
    assert!(history.attempts.is_empty(), "{history:?}");
    let listed = h.list(&inbox(), Status::Completed, 10).await;
    let of = |id: &str| listed.iter().find(|entry| entry.key == key(id)).expect("it is listed");
    assert!(of("4111").label.is_none() && of("neighbour").label.is_some(), "{listed:?}");
    let records = h.records("4111").await;
    // Id and ordering key are stored in hexadecimal digits.
    for part in ["shop", "34313131", "637573746f6d65722d37", "order.placed"] {
        assert!(!records.contains(part), "{part} in {records}");
    }
    let explained = h.store.explain(&inbox(), &key("4111")).await.expect("explain").expect("it is known");
    let story = format!("{:?}", explained.story());
    assert!(story.contains("erased its content") && story.contains("asked to erase"), "{story}");
    assert!(h.show("neighbour").await.is_some_and(|view| view.stored.is_some() && !view.erased));
    assert_eq!(h.count().await.messages, 2, "its key counts");
}

pub async fn requests_on_many_lose_the_ids_of_an_erased_message<S: OperateTier>(h: &Harness<S>) {
    let ada = message("ada-7").with_ordering_key("customer-ada");
    h.first(offer_routed(ada, [route("h")])).await;
    let claim = h.claim_one("h").await;
    h.settle(&claim, Outcome::Done).await;
    let other = other("ada-7").with_ordering_key("customer-eve");
    h.accept_all(&[offer_message(other)]).await;
    let search = |set: &dyn Fn(&mut EntryFilter)| {
        let mut filter = EntryFilter::new(inbox(), Status::Poisoned);
        set(&mut filter);
        ActionKind::Bulk { operation: Operation::Retry, filter: Box::new(filter), limit: 9 }
    };
    let bytes = |text: &str| Some(text.as_bytes().into());
    let line = |key: &str| OrderQueue::new("shop", key.as_bytes());
    let handler = || HandlerKey::new("h").expect("a name");
    let erased = [
        search(&|filter| filter.id_contains = bytes("ada")),
        search(&|filter| filter.ordering_key = bytes("customer-ada")),
        search(&|filter| filter.ordering_key = bytes("customer-eve")),
        search(&|filter| filter.error_contains = Some("no customer-ada here".into())),
        ActionKind::PauseKey { handler: handler(), line: line("customer-ada") },
        ActionKind::ResumeKey { handler: handler(), line: line("customer-ada") },
    ];
    let kept = [
        search(&|filter| filter.id_contains = bytes("bob")),
        search(&|filter| filter.error_contains = Some("timeout".into())),
        ActionKind::PauseKey { handler: handler(), line: line("customer-bob") },
    ];
    let act = |kind: &ActionKind| Action::new(inbox(), kind.clone());
    let actions: Vec<Action> = erased.iter().chain(&kept).map(act).collect();
    for action in &actions {
        h.store.act(action).await.expect("act");
    }
    let elsewhere = Action::new(inbox_named("elsewhere"), erased[0].clone());
    h.store.act(&elsewhere).await.expect("act");
    h.erase("ada-7", false).await.expect("erase");
    let records = h.store.audit(&AuditFilter::new(inbox())).await.expect("audit").operations;
    let body = |action: &Action| {
        let record = records.iter().find(|record| record.id == action.id).expect("it is recorded");
        record.body.clone()
    };
    let (erased, kept) = actions.split_at(erased.len());
    for action in erased {
        let (before, left) = (action.body(), body(action));
        assert!(left.contains("erased"), "{left}");
        // Hexadecimal: ada, customer-ada, customer-eve.
        for part in ["616461", "637573746f6d65722d616461", "637573746f6d65722d657665", "customer-ada"] {
            assert!(!left.contains(part), "{part} in {left}, which was {before}");
        }
    }
    for action in kept {
        assert_eq!(body(action), action.body().into());
    }
    let other = h.store.audit(&AuditFilter::new(inbox_named("elsewhere"))).await.expect("audit").operations;
    assert_eq!(other[0].body, elsewhere.body().into(), "another inbox");
}

pub async fn what_comes_under_an_erased_key_is_a_duplicate<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.erase("1", false).await.expect("erase");
    let before = h.snapshot().await;
    let again = [
        offer("1"),
        offer_message(other("1")),
        offer_to("1", &["h", "g"]),
        offer_routed(other("1").with_ordering_key("k"), [route("g")]),
    ];
    for new in &again {
        let accepted = h.accept_all(std::slice::from_ref(new)).await;
        assert!(matches!(accepted[..], [Accepted::Duplicate(_)]), "{accepted:?}");
    }
    assert!(h.accept_all(&again).await.iter().all(|one| matches!(one, Accepted::Duplicate(_))));
    assert_eq!(h.snapshot().await, before, "nothing of it is stored again");
    let batch = [offer("2"), offer("1"), offer("3")];
    let accepted = h.accept_all(&batch).await;
    assert!(
        matches!(accepted[..], [Accepted::First(_), Accepted::Duplicate(_), Accepted::First(_)]),
        "{accepted:?}"
    );
}

pub async fn what_is_unfinished_refuses_or_is_discarded<S: OperateTier>(h: &Harness<S>) {
    h.poisoned("poisoned").await;
    h.first(offer_to("waits", &["h", "g"])).await;
    let claim = h.claim_one("g").await;
    h.settle(&claim, Outcome::Done).await;
    for (id, entries) in [("poisoned", 1), ("waits", 1)] {
        let before = h.snapshot().await;
        let error = h.erase(id, false).await.expect_err("it is not finished");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert_eq!(h.snapshot().await, before, "{id}");
        assert_eq!(h.erase(id, true).await.expect("erase"), ErasureCounts::new(entries, 0));
        assert_eq!(h.entry(id, "h").await.status, Status::Discarded, "{id}");
        assert!(h.entry(id, "h").await.error.is_none(), "{id}");
    }
    assert_eq!(h.entry("waits", "g").await.status, Status::Completed);
    assert!(h.claim("h", 10).await.is_empty());
}

pub async fn what_runs_is_not_erased<S: OperateTier>(h: &Harness<S>) {
    h.first(offer_to("1", &["h", "g"])).await;
    let claim = h.claim_one("h").await;
    for discard in [false, true] {
        let before = h.snapshot().await;
        let error = h.erase("1", discard).await.expect_err("it runs");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert_eq!(h.snapshot().await, before, "nothing of it is discarded: {discard}");
    }
    h.settle(&claim, Outcome::Done).await;
    assert_eq!(h.erase("1", true).await.expect("erase"), ErasureCounts::new(1, 0));
}

pub async fn those_behind_an_erased_one_go_on<S: OperateTier>(h: &Harness<S>) {
    for on_poisoned in [OnPoisoned::Block, OnPoisoned::Park] {
        let names: Vec<String> = (0..3).map(|n| format!("{on_poisoned:?} {n}")).collect();
        for name in &names {
            h.first(offer_ordered(name, "k")).await;
        }
        poison(h, &h.claim_one("h").await, on_poisoned).await;
        assert!(h.claim("h", 10).await.is_empty());
        h.erase(&names[0], true).await.expect("erase");
        for name in &names[1..] {
            let claimed = h.claim("h", 10).await;
            assert_eq!(ids(&claimed), [name.as_str()], "{on_poisoned:?}");
            h.settle(&claimed[0].claim, Outcome::Done).await;
        }
    }
    // An erased one in the middle leaves no gap.
    for n in ["a", "b", "c"] {
        h.first(offer_ordered(n, "k")).await;
    }
    h.erase("b", true).await.expect("erase");
    for n in ["a", "c"] {
        let claimed = h.claim("h", 10).await;
        assert_eq!(ids(&claimed), [n]);
        h.settle(&claimed[0].claim, Outcome::Done).await;
    }
}

pub async fn an_erased_message_never_runs_again<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.erase("1", false).await.expect("erase");
    for operation in [Operation::Replay, Operation::Retry] {
        let error = h.operate("1", "h", operation).await.expect_err("nothing is left to run");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    let params = BackfillParams::new(inbox(), route("later"), vec!["*".into()]);
    let backfilled = h.store.backfill(&params).await.expect("backfill");
    assert_eq!(backfilled.added, 0, "{backfilled:?}");
    for name in ["h", "later"] {
        assert!(h.claim(name, 10).await.is_empty(), "{name}");
    }
    let mut filter = EntryFilter::new(inbox(), Status::Completed);
    filter.source = Some("shop".into());
    let page = h.store.list(&filter).await.expect("list");
    assert!(page.entries.is_empty(), "nothing says any more where it came from: {page:?}");
}

pub async fn an_erasure_is_recorded_and_done_once<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.advance(SECOND);
    let what = ActionKind::Erase { key: key("1"), discard_unfinished: false };
    let action = Action::new(inbox(), what).by("ada", "request 17");
    for repeated in [false, true] {
        let acted = h.store.act(&action).await.expect("act");
        assert_eq!(
            (acted.answer, acted.repeated),
            (ActionResult::Erased(ErasureCounts::new(0, 0)), repeated)
        );
    }
    let mut filter = AuditFilter::new(inbox());
    filter.key = Some(key("1"));
    let records = h.store.audit(&filter).await.expect("audit").operations;
    let [record] = &records[..] else { panic!("one record, not {records:?}") };
    assert_eq!((&*record.actor, &*record.reason, &*record.verb), ("ada", "request 17", "erase"));
    assert_eq!((record.at, &*record.body), (h.now(), &*action.body()));
    assert_eq!(h.erase("1", false).await.expect("again"), ErasureCounts::new(0, 0), "there is nothing left");
    for inbox in [inbox(), inbox_named("unheard-of")] {
        let error = h.store.erase(&inbox, &key("unknown"), true).await.expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert!(h.records("unknown").await == "[]", "what is refused is not recorded");
}

pub async fn each_tenant_erases_its_own<S: OperateTier>(h: &Harness<S>) {
    let of = |tenant: &str| message("1").with_tenant(tenant);
    for tenant in ["a", "b"] {
        h.first(offer_message(of(tenant))).await;
    }
    let key = key_in(&inbox(), &of("a"));
    let what = || ActionKind::Erase { key, discard_unfinished: true };
    let tenant = |name: &str| oncebox::store::TenantScope::new(&h.store, inbox(), name);
    let error = tenant("b").act(&Action::new(inbox(), what())).await.expect_err("another tenant's");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    tenant("a").act(&Action::new(inbox(), what())).await.expect("its own");
    let view = tenant("a").show(&key).await.expect("show").expect("it is still a's");
    assert!(view.erased && view.tenant.as_deref() == Some("a"), "{view:?}");
    assert!(tenant("b").show(&key).await.expect("show").is_none());
    let other = h.store.show(&inbox(), &key_in(&inbox(), &of("b"))).await.expect("show");
    assert!(other.is_some_and(|view| view.stored.is_some()), "the other tenant's is there");
}

pub async fn an_erased_key_is_forgotten_with_its_retention<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    h.erase("1", false).await.expect("erase");
    h.advance(RETENTION.saturating_sub(SECOND));
    h.sweep(RETENTION).await;
    assert!(h.show("1").await.is_some_and(|view| view.erased));
    h.advance(2 * SECOND);
    h.sweep(RETENTION).await;
    assert!(h.show("1").await.is_none());
    h.first(offer("1")).await;
}
