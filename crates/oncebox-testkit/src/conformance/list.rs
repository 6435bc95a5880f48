//! Lists of entries: filters and pages.

use oncebox::Message;
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{EntryCursor, EntryFilter, EntryView};

use crate::fixture::{
    SECOND, handler, inbox, inbox_named, key, message, moved_to, offer, offer_message, offer_to, text,
};
use crate::{Harness, InspectTier, OperateTier, StoreTier};

/// Returns everything that a filter matches, over pages of a size.
async fn all<S: InspectTier>(h: &Harness<S>, filter: &EntryFilter, limit: usize) -> Vec<EntryView> {
    let mut filter = filter.clone();
    filter.limit = limit;
    let mut entries: Vec<EntryView> = Vec::new();
    loop {
        let page = h.store.list(&filter).await.expect("list");
        assert!(page.entries.len() <= limit, "no more than asked for");
        entries.extend(page.entries);
        let Some(next) = page.next else { break };
        assert!(filter.after.is_none_or(|after| after < next), "pages go on");
        // Through its text form, as clients get it.
        filter.after = Some(next.to_string().parse::<EntryCursor>().expect("a cursor comes back"));
    }
    assert!(entries.is_sorted_by(|a, b| a.cursor() < b.cursor()), "by number and handler, each once");
    entries
}

fn any() -> EntryFilter {
    EntryFilter::any(inbox())
}

fn with(change: impl FnOnce(&mut EntryFilter)) -> EntryFilter {
    let mut filter = any();
    change(&mut filter);
    filter
}

fn ids(entries: &[EntryView]) -> Vec<String> {
    let id =
        |entry: &EntryView| entry.label.as_ref().map(|label| String::from_utf8_lossy(&label.id).into_owned());
    entries.iter().map(|entry| id(entry).expect("its message is there")).collect()
}

/// Stores one message in each status, with the word for the status as its id.
async fn one_of_each<S: StoreTier>(h: &Harness<S>) {
    h.completed(Status::Completed.as_str()).await;
    h.poisoned(Status::Poisoned.as_str()).await;
    h.settled(Status::Discarded.as_str(), crate::fixture::dismissed()).await;
    h.running(Status::Running.as_str()).await;
    h.first(offer(Status::Pending.as_str())).await;
}

pub async fn statuses_are_one_several_or_any<S: InspectTier>(h: &Harness<S>) {
    one_of_each(h).await;
    let others = inbox_named("other");
    h.first(moved_to(&others, &offer("other"))).await;
    let order = ["completed", "poisoned", "discarded", "running", "pending"];
    for limit in [1, 2, 100] {
        assert_eq!(ids(&all(h, &any(), limit).await), order);
        let mut two = any();
        two.statuses = vec![Status::Pending, Status::Discarded];
        assert_eq!(ids(&all(h, &two, limit).await), ["discarded", "pending"]);
        for status in Status::ALL {
            assert_eq!(ids(&all(h, &EntryFilter::new(inbox(), status), limit).await), [status.as_str()]);
        }
    }
}

pub async fn what_is_listed_is_what_is_shown<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    let message = Message::new("id\0\u{1}", "order.placed", "payload").with_source("shop");
    h.first(offer_message(message.with_ordering_key("k").with_tenant("acme"))).await;
    let [listed] = &all(h, &any(), 10).await[..] else { panic!("one entry") };
    let label = listed.label.as_ref().expect("its message is there");
    assert_eq!(
        (&*label.source, &*label.message_type, &*label.id),
        ("shop", "order.placed", &b"id\0\x01"[..])
    );
    assert_eq!(label.ordering_key.as_deref(), Some(&b"k"[..]));
    assert_eq!((listed.received_at, listed.tenant.as_deref()), (start, Some("acme")));
    let shown = h.store.show(&inbox(), &listed.key).await.expect("show").expect("known");
    assert_eq!(shown.entries, std::slice::from_ref(listed));
}

pub async fn each_condition_counts<S: InspectTier>(h: &Harness<S>) {
    let start = h.now();
    h.first(offer_to("plain", &["a", "b"])).await;
    h.advance(SECOND);
    h.first(offer_message(Message::new("typed", "order.paid", "x").with_source("shop"))).await;
    h.advance(SECOND);
    h.first(offer_message(message("sourced").with_source("depot"))).await;
    h.first(offer_message(message("ordered").with_ordering_key("k%"))).await;
    h.first(offer_message(message("a tenant's").with_tenant("acme"))).await;
    let found = async |change: &dyn Fn(&mut EntryFilter)| {
        let filter = with(change);
        assert!(filter.is_narrow());
        let found = all(h, &filter, 100).await;
        assert_eq!(all(h, &filter, 1).await, found);
        ids(&found)
    };
    assert_eq!(found(&|f| f.handler = Some(handler("b"))).await, ["plain"]);
    assert_eq!(found(&|f| f.message_type = Some("order.paid".into())).await, ["typed"]);
    assert!(found(&|f| f.message_type = Some("order.%".into())).await.is_empty(), "no patterns");
    assert_eq!(found(&|f| f.source = Some("depot".into())).await, ["sourced"]);
    assert_eq!(found(&|f| f.ordering_key = Some((*b"k%").into())).await, ["ordered"]);
    assert!(found(&|f| f.ordering_key = Some((*b"k").into())).await.is_empty());
    assert_eq!(found(&|f| f.tenant = Some("acme".into())).await, ["a tenant's"]);
    assert_eq!(found(&|f| f.id_contains = Some((*b"ed").into())).await, ["typed", "sourced", "ordered"]);
    assert!(found(&|f| f.id_contains = Some((*b"_y").into())).await.is_empty());
    assert_eq!(found(&|f| f.received_before = Some(start.after(SECOND))).await, ["plain", "plain"]);
    assert_eq!(found(&|f| f.received_from = Some(start.after(2 * SECOND))).await.len(), 3);
    let second = |f: &mut EntryFilter| {
        (f.received_from, f.received_before) = (Some(start.after(SECOND)), Some(start.after(2 * SECOND)));
    };
    assert_eq!(found(&second).await, ["typed"]);
    let both = |f: &mut EntryFilter| {
        (f.message_type, f.source) = (Some("order.placed".into()), Some("depot".into()));
    };
    assert_eq!(found(&both).await, ["sourced"]);
    assert!(!any().is_narrow(), "everything is no filter");
    assert!(!with(|f| f.id_contains = Some((*b"").into())).is_narrow(), "an empty part is in every id");
    assert!(!with(|f| f.error_contains = Some("".into())).is_narrow(), "and in every error");
}

pub async fn error_text_is_looked_for_as_it_is<S: InspectTier>(h: &Harness<S>) {
    for (id, error) in
        [("percent", "50% off"), ("plain", "500 off"), ("quote", "it's \\ _odd_"), ("utf", "größe")]
    {
        h.settled(id, Outcome::Reject { error: text(error) }).await;
    }
    h.completed("fine").await;
    let cases: [(&str, &[&str]); 9] = [
        ("50%", &["percent"]),
        ("50", &["percent", "plain"]),
        ("%", &["percent"]),
        ("_", &["quote"]),
        ("'", &["quote"]),
        ("\\", &["quote"]),
        ("öß", &["utf"]),
        ("OFF", &[]),
        ("", &["percent", "plain", "quote", "utf", "fine"]),
    ];
    for (text, expected) in cases {
        let filter = with(|f| f.error_contains = Some(text.into()));
        assert_eq!(ids(&all(h, &filter, 2).await), expected, "{text:?}");
    }
}

pub async fn the_latest_generation_is_listed_once<S: OperateTier>(h: &Harness<S>) {
    h.completed("1").await;
    let generations = async |filter: EntryFilter| {
        let found = [all(h, &filter, 1).await, all(h, &filter, 100).await];
        assert_eq!(found[0], found[1]);
        found[0].iter().map(|entry| (entry.generation, entry.status)).collect::<Vec<_>>()
    };
    let finished = || EntryFilter::new(inbox(), Status::Completed);
    for generation in 1..=2 {
        h.operate("1", "h", Operation::Replay).await.expect("replay");
        assert_eq!(generations(any()).await, [(generation, Status::Pending)]);
        assert!(generations(finished()).await.is_empty(), "it is to be done again");
        let claim = h.claim_one("h").await;
        assert_eq!(generations(any()).await, [(generation, Status::Running)]);
        h.settle(&claim, Outcome::Done).await;
        assert_eq!(generations(any()).await, [(generation, Status::Completed)]);
        assert_eq!(generations(finished()).await, [(generation, Status::Completed)]);
    }
}

pub async fn a_page_that_matches_little_is_short_and_goes_on<S: InspectTier>(h: &Harness<S>) {
    let many = EntryFilter::EXAMINED + 200;
    let batch: Vec<_> = (0..many).map(|n| offer_to(n.to_string(), &["a", "b"])).collect();
    for part in batch.chunks(500) {
        h.accept_all(part).await;
    }
    let last = (many - 1).to_string();
    let mut filter = with(|f| f.id_contains = Some(last.clone().into_bytes().into()));
    let first = h.store.list(&filter).await.expect("list");
    assert!(first.entries.is_empty() && first.next.is_some(), "no more is looked at than a page may cost");
    assert_eq!(ids(&all(h, &filter, 10).await), [last.clone(), last]);
    (filter.id_contains, filter.handler) = (None, Some(handler("b")));
    assert_eq!(all(h, &filter, 1_000).await.len(), many);
    filter.handler = None;
    assert_eq!(all(h, &filter, 999).await.len(), 2 * many, "a page may end within a message");
}

pub async fn a_cursor_survives_what_happens_meanwhile<S: OperateTier>(h: &Harness<S>) {
    for n in 0..6 {
        h.first(offer_to(n.to_string(), &["a", "b"])).await;
    }
    let mut filter = with(|f| f.limit = 5);
    let page = h.store.list(&filter).await.expect("list");
    assert_eq!(ids(&page.entries), ["0", "0", "1", "1", "2"]);
    filter.after = page.next;
    // Listed entries change and go, others change, and new ones come.
    for id in ["0", "2"] {
        h.operate(id, "a", Operation::Discard).await.expect("discard");
    }
    h.operate("4", "b", Operation::Discard).await.expect("discard");
    h.first(offer_to("6", &["a"])).await;
    filter.limit = 100;
    let rest = h.store.list(&filter).await.expect("list");
    assert_eq!(ids(&rest.entries), ["2", "3", "3", "4", "4", "5", "5", "6"]);
    assert_eq!(rest.entries[0].handler, handler("b"));
    assert_eq!(rest.entries[4].status, Status::Discarded);
    assert_eq!(rest.entries[0].key, key("2"));
}
