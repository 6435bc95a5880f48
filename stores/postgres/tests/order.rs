//! Lines of ordered entries with concurrent changes: each transaction must see the changes of the other.

mod support;

use oncebox::state::{Operation, Settlement, Status};
use oncebox::store::{
    Claimed, Examine, ExamineParams, Inspect, SettleIn as _, Settled, Store as _, Transactional as _,
};
use oncebox::time::Clock as _;
use oncebox::{ErrorKind, OnPoisoned, Policy};
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_testkit::OperatorSteps as _;
use support::{
    Schema, claim, claim_one, claim_params, first, handler, in_time, inbox, key, offer, offer_ordered, run,
};

async fn accept_ordered(store: &Postgres, id: &str) {
    store.accept(&[offer_ordered(id, "k")]).await.expect("accept");
}

async fn done(store: &Postgres, claimed: &Claimed) {
    let settled = store.settle(&[Settlement::done(&claimed.claim)]).await.expect("settle");
    assert_eq!(settled, [Settled::Applied]);
}

fn ids(claimed: &[Claimed]) -> Vec<&[u8]> {
    claimed.iter().map(|claimed| claimed.message.id()).collect()
}

/// Waits until a statement of the store waits for a lock.
async fn blocked(schema: &Schema, locks: &str) {
    let blocked = "EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                   WHERE NOT l.granted AND l.locktype = ':locks' AND a.query LIKE '%:schema%')";
    schema.wait_for(&blocked.replace(":schema", &schema.name).replace(":locks", locks)).await;
}

// FAULTS B14: the new entry sees an unfinished head, and the worker that finishes the head sees no entry behind it.
#[tokio::test]
async fn who_comes_while_the_head_is_being_completed_is_not_left_behind() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    accept_ordered(&store, "1").await;
    let head = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(store.complete(&mut tx, &head.claim).await.expect("complete"), Settled::Applied);
    let committing = async {
        blocked(&schema, "advisory").await;
        store.commit(tx).await.expect("commit");
    };
    in_time(Box::pin(async { tokio::join!(accept_ordered(&store, "2"), committing) })).await;
    assert_eq!(ids(&claim(&store, 2).await), [b"2"]);
}

// FAULTS B14: a separate statement reads the line after the lock.
#[tokio::test]
async fn a_settlement_that_waits_for_one_who_comes_sees_it() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    accept_ordered(&store, "1").await;
    let head = claim_one(&store).await;
    // Another process is storing the key of another message in the batch. The batch holds its line's lock, and waits.
    first(&store, "0").await;
    let mut other = schema.connect().await;
    let hide = "CREATE TEMP TABLE hidden AS SELECT * FROM @proof p WHERE p.seq NOT IN (SELECT seq FROM @entry WHERE token IS NOT NULL); \
                DELETE FROM @proof p USING hidden h WHERE p.seq = h.seq; DELETE FROM @entry WHERE token IS NULL";
    run(&mut other, &schema.sql(hide)).await.expect("a hidden row");
    run(&mut other, &schema.sql("BEGIN; INSERT INTO @proof SELECT * FROM hidden")).await.expect("a row");

    let batch = [offer("0"), offer_ordered("2", "k")];
    let accepting = async { store.accept(&batch).await.expect("accept") };
    let settling = async {
        blocked(&schema, "transactionid").await;
        done(&store, &head).await;
    };
    let deciding = async {
        blocked(&schema, "advisory").await;
        run(&mut other, "COMMIT").await.expect("an end");
    };
    in_time(Box::pin(async { tokio::join!(accepting, settling, deciding) })).await;
    assert_eq!(ids(&claim(&store, 2).await), [b"2"]);
}

#[tokio::test]
async fn one_that_is_let_go_is_found_before_a_deep_backlog_that_came_later() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    for id in ["1", "2", "3"] {
        accept_ordered(&store, id).await;
    }
    let head = claim_one(&store).await;
    let backlog: Vec<_> = (0..1_000).map(|n| offer(&format!("later {n}"))).collect();
    store.accept(&backlog).await.expect("accept");
    assert_eq!(claim(&store, 100).await.len(), 100);
    done(&store, &head).await;
    let next = claim(&store, 100).await;
    let second = next.iter().find(|claimed| claimed.message.id() == b"2").expect("it was let go");
    let mut tx = store.begin().await.expect("begin");
    store.complete(&mut tx, &second.claim).await.expect("complete");
    // Claims meanwhile do not find the follower, and continue.
    assert_eq!(claim(&store, 100).await.len(), 100);
    store.commit(tx).await.expect("commit");
    assert!(ids(&claim(&store, 100).await).contains(&&b"3"[..]), "it was let go");
}

/// Returns options with another default isolation level.
fn serializable(schema: &Schema) -> PostgresOptions {
    let join = if schema.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{join}options[default_transaction_isolation]=serializable", schema.url());
    Postgres::options(&url).expect("a good URL").schema(&schema.name)
}

#[tokio::test]
async fn another_default_of_the_server_changes_nothing_for_the_store_and_is_refused_where_it_would() {
    let schema = Schema::shared();
    let store = schema.shop_with(serializable(&schema)).await;
    for id in ["1", "2", "3"] {
        accept_ordered(&store, id).await;
    }
    done(&store, &claim_one(&store).await).await;
    let second = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    let error = store.complete(&mut tx, &second.claim).await.expect_err("it could not see who comes");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    assert!(error.what().contains("READ COMMITTED"), "{error}");
    store.rollback(tx).await;
    // The isolation level that the handler sets for its transaction counts.
    let mut tx = store.begin().await.expect("begin");
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await.expect("the first statement");
    assert_eq!(store.complete(&mut tx, &second.claim).await.expect("complete"), Settled::Applied);
    store.commit(tx).await.expect("commit");
    assert_eq!(ids(&claim(&store, 2).await), [b"3"]);
}

// FAULTS E22: an operator can resume a line, whatever happened to its message.
#[tokio::test]
async fn a_line_whose_head_cannot_be_read_can_be_unblocked_and_its_head_dismissed() {
    let damages =
        ["UPDATE @message SET headers = '\\xff' WHERE id = '1'", "DELETE FROM @message WHERE id = '1'"];
    for damage in damages {
        for operation in [Operation::Unblock, Operation::Discard] {
            let schema = Schema::shared();
            let store = schema.shop().await;
            accept_ordered(&store, "1").await;
            accept_ordered(&store, "2").await;
            schema.run(damage).await;
            let examined = ExamineParams::new(inbox(), oncebox::time::SystemClock::default().now());
            let found = store.examine(&examined).await.expect("examine");
            let lost = found.iter().any(|finding| finding.code == "lost_message");
            assert_eq!(lost, damage.starts_with("DELETE"), "{damage}: {found:?}");
            assert!(claim(&store, 2).await.is_empty(), "no worker gets an unreadable entry");
            let shown = store.show(&inbox(), &key("1")).await.expect("show").expect("known");
            assert!(shown.stored.is_none());
            assert_eq!(shown.entries[0].status, Status::Poisoned);
            let operate =
                async |operation| store.operate(&inbox(), &key("1"), &handler("h"), operation).await;
            let error = operate(Operation::Retry).await.expect_err("nothing can be given to a handler");
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused), "{error}");
            operate(operation).await.expect("it needs no message");
            assert_eq!(ids(&claim(&store, 2).await), [b"2"], "{damage} {operation:?}");
        }
    }
}

// FAULTS E22, B15: a handler's rule for poisoned messages applies to unreadable messages, too.
#[tokio::test]
async fn a_line_whose_head_cannot_be_read_goes_on_if_its_handler_skips() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    accept_ordered(&store, "1").await;
    accept_ordered(&store, "2").await;
    schema.run("UPDATE @message SET headers = '\\xff' WHERE id = '1'").await;
    let mut skips = Policy::default();
    skips.on_poisoned = OnPoisoned::Skip;
    let params = || claim_params(2).policies([(handler("h"), skips.clone())].into_iter().collect());
    assert!(store.claim(&params()).await.expect("claim").is_empty(), "no worker gets an unreadable entry");
    assert_eq!(ids(&store.claim(&params()).await.expect("claim")), [b"2"]);
}
