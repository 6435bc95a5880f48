//! Record and recall: results stored with a mark for its duplicates.

use crate::OperatorSteps as _;
use oncebox::store::Mark;
use oncebox::{ErrorKind, InboxName};

use super::mark::begin_marked;
use crate::fixture::{RETENTION, SECOND, handler, inbox, inbox_named, key, key_in, message};
use crate::{Harness, ShareTier, TransactionalTier};

/// Marks a key that must be new, stores a result with it, and commits.
async fn leave<S: TransactionalTier>(h: &Harness<S>, id: &str, result: &[u8]) {
    let mut tx = begin_marked(&h.store, id).await;
    h.store.record(&mut tx, &inbox(), &key(id), &handler("h"), result).await.expect("record");
    h.store.commit(tx).await.expect("commit");
}

/// Returns the result that a duplicate gets.
async fn recall<S: TransactionalTier>(h: &Harness<S>, id: &str, by: &str) -> Option<Vec<u8>> {
    let mut tx = h.store.begin().await.expect("begin");
    let (inbox, key, handler) = (inbox(), key(id), handler(by));
    assert_eq!(h.store.mark(&mut tx, &inbox, &key, &handler, None).await.expect("mark"), Mark::Duplicate);
    let result = h.store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall");
    result.map(|result| result.to_vec())
}

pub async fn a_result_comes_back_with_its_mark<S: TransactionalTier>(h: &Harness<S>) {
    leave(h, "1", b"shipped").await;
    for _ in 0..2 {
        assert_eq!(recall(h, "1", "h").await.as_deref(), Some(&b"shipped"[..]));
    }
}

// FAULTS S12
pub async fn an_erased_result_is_gone_and_its_mark_stays<S: TransactionalTier>(h: &Harness<S>) {
    leave(h, "1", b"shipped to Ada").await;
    leave(h, "2", b"kept").await;
    h.store.erase(&inbox(), &key("1"), false).await.expect("erase");
    assert_eq!(recall(h, "1", "h").await, None, "a duplicate is told nothing");
    assert_eq!(recall(h, "2", "h").await.as_deref(), Some(&b"kept"[..]));
}

pub async fn a_mark_without_a_result_has_none<S: TransactionalTier>(h: &Harness<S>) {
    assert_eq!(h.mark("1", "h").await, Mark::First);
    assert_eq!(recall(h, "1", "h").await, None);
}

// An empty result is a result.
pub async fn results_are_any_bytes<S: TransactionalTier>(h: &Harness<S>) {
    let large = vec![0xA5; 64 << 10];
    for (id, result) in [("empty", &b""[..]), ("nul", b"a\0b"), ("no text", b"\xff\xfe"), ("large", &large)] {
        leave(h, id, result).await;
        assert_eq!(recall(h, id, "h").await.as_deref(), Some(result), "{id}");
    }
}

pub async fn a_rollback_leaves_no_result<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = begin_marked(&h.store, "1").await;
    h.store.record(&mut tx, &inbox(), &key("1"), &handler("h"), b"lost").await.expect("record");
    drop(tx);
    let tx = begin_marked(&h.store, "1").await;
    h.store.commit(tx).await.expect("commit");
    assert_eq!(recall(h, "1", "h").await, None);
}

pub async fn a_result_is_seen_by_its_own_transaction<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = begin_marked(&h.store, "1").await;
    let (inbox, key, handler) = (inbox(), key("1"), handler("h"));
    assert_eq!(h.store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall"), None);
    h.store.record(&mut tx, &inbox, &key, &handler, b"x").await.expect("record");
    let result = h.store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall");
    assert_eq!(result.as_deref(), Some(&b"x"[..]));
}

pub async fn a_result_is_left_once<S: TransactionalTier>(h: &Harness<S>) {
    let (inbox, key, handler) = (inbox(), key("1"), handler("h"));
    let mut tx = begin_marked(&h.store, "1").await;
    h.store.record(&mut tx, &inbox, &key, &handler, b"first").await.expect("record");
    let again = h.store.record(&mut tx, &inbox, &key, &handler, b"second").await;
    assert_eq!(again.expect_err("it has one").kind(), ErrorKind::Refused);
    h.store.commit(tx).await.expect("a refusal does not spoil the transaction");
    // A duplicate does not change the stored result.
    let mut tx = h.store.begin().await.expect("begin");
    assert_eq!(h.store.mark(&mut tx, &inbox, &key, &handler, None).await.expect("mark"), Mark::Duplicate);
    let again = h.store.record(&mut tx, &inbox, &key, &handler, b"third").await;
    assert_eq!(again.expect_err("it has one").kind(), ErrorKind::Refused);
    drop(tx);
    assert_eq!(recall(h, "1", "h").await.as_deref(), Some(&b"first"[..]));
}

pub async fn a_result_needs_a_mark<S: TransactionalTier>(h: &Harness<S>) {
    let mut tx = h.store.begin().await.expect("begin");
    let (inbox, key, handler) = (inbox(), key("1"), handler("h"));
    assert_eq!(h.store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall"), None);
    let refused = h.store.record(&mut tx, &inbox, &key, &handler, b"x").await;
    assert_eq!(refused.expect_err("there is no mark").kind(), ErrorKind::Refused);
}

pub async fn handlers_and_inboxes_do_not_share_results<S: TransactionalTier>(h: &Harness<S>) {
    let other = inbox_named("other");
    let marks: [(&InboxName, &str); 3] = [(&inbox(), "h"), (&inbox(), "i"), (&other, "h")];
    for (inbox, by) in marks {
        let mut tx = h.store.begin().await.expect("begin");
        let (key, by) = (key_in(inbox, &message("1")), handler(by));
        assert_eq!(h.store.mark(&mut tx, inbox, &key, &by, None).await.expect("mark"), Mark::First);
        let result = format!("{inbox} {by}");
        h.store.record(&mut tx, inbox, &key, &by, result.as_bytes()).await.expect("record");
        h.store.commit(tx).await.expect("commit");
    }
    let mut tx = h.store.begin().await.expect("begin");
    for (inbox, by) in marks {
        let (key, by) = (key_in(inbox, &message("1")), handler(by));
        let result = h.store.recall(&mut tx, inbox, &key, &by).await.expect("recall");
        assert_eq!(result.as_deref(), Some(format!("{inbox} {by}").as_bytes()));
    }
}

pub async fn a_result_is_undone_with_its_part<S: ShareTier>(h: &Harness<S>) {
    let (inbox, key, handler) = (inbox(), key("1"), handler("h"));
    let mut tx = begin_marked(&h.store, "1").await;
    h.store.savepoint(&mut tx).await.expect("savepoint");
    h.store.record(&mut tx, &inbox, &key, &handler, b"undone").await.expect("record");
    h.store.rollback_to_savepoint(&mut tx).await.expect("rollback");
    assert_eq!(h.store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall"), None);
    h.store.record(&mut tx, &inbox, &key, &handler, b"kept").await.expect("record");
    h.store.commit(tx).await.expect("commit");
    assert_eq!(recall(h, "1", "h").await.as_deref(), Some(&b"kept"[..]));
}

pub async fn a_result_leaves_with_its_mark<S: TransactionalTier>(h: &Harness<S>) {
    leave(h, "1", b"old").await;
    h.advance(RETENTION + SECOND);
    assert_eq!(h.sweep(RETENTION).await.marks, 1);
    assert_eq!(h.mark("1", "h").await, Mark::First);
    assert_eq!(recall(h, "1", "h").await, None);
}
