//! Lines: the table of lines agrees with the pending and running entries, and a settled batch releases the next entry
//! of each line.

mod support;

use std::time::Duration;

use oncebox::Policy;
use oncebox::state::{ErrorText, Outcome, Settlement, Status};
use oncebox::store::{Action, ActionKind, Inspect, NewMessage, Operate, OrderQueue, Settled, Store as _};
use oncebox_sqlite::Sqlite;
use support::{TestFile, claim, claim_one, handler, inbox, key, message, offer_message};

fn ordered(id: &str, line: &str) -> NewMessage {
    offer_message(message(id).with_ordering_key(line.as_bytes().to_vec()), &["h"])
}

async fn accept(store: &Sqlite, offers: &[NewMessage]) {
    store.accept(offers).await.expect("accept");
}

// A waiting entry has the last of all due times. An entry whose delay ends at that time may still run, and
// the store can tell the two apart.
#[tokio::test]
async fn one_that_asks_for_the_last_of_all_times_does_not_wait_behind_itself() {
    let file = TestFile::new();
    let store = file.open();
    let mut never = ordered("1", "never");
    never.delay = Duration::MAX;
    let mut after = ordered("3", "after");
    after.delay = Duration::MAX;
    accept(&store, &[never, ordered("2", "after"), after]).await;
    file.check();
    let claimed = claim_one(&store).await;
    assert_eq!(claimed.claim.key, key("2"));
    store.settle(&[Settlement::done(&claimed.claim)]).await.expect("settle");
    file.check();
    assert_eq!(file.count("oncebox_entry WHERE due = 9223372036854775806"), 2);
}

// One batch of five lines: one continues, one ends, one is retried, one is poisoned, and one was paused meanwhile.
#[tokio::test]
async fn the_lines_of_a_batch_go_on_together() {
    let file = TestFile::new();
    let store = file.open();
    let lines = ["goes", "ends", "retried", "poisoned", "paused"];
    accept(&store, &lines.map(|line| ordered(line, line))).await;
    let behind = ["goes", "retried", "poisoned", "paused"];
    accept(&store, &behind.map(|line| ordered(&format!("{line}-2"), line))).await;
    accept(&store, &behind.map(|line| ordered(&format!("{line}-3"), line))).await;
    let claimed = claim(&store, 100).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.claim.key).collect::<Vec<_>>(), lines.map(key));
    let paused = OrderQueue::new(claimed[0].message.source(), *b"paused");
    let pause = |line| Action::new(inbox(), ActionKind::PauseKey { handler: handler("h"), line });
    store.act(&pause(paused.clone())).await.expect("pause");
    let settlements: Vec<Settlement> = claimed
        .iter()
        .map(|claimed| {
            let error = ErrorText::new("no");
            match claimed.message.id() {
                b"retried" => claimed.claim.settle(&Policy::default(), Outcome::Retry { error, after: None }),
                b"poisoned" => claimed.claim.settle(&Policy::default(), Outcome::Reject { error }),
                _ => Settlement::done(&claimed.claim),
            }
        })
        .collect();
    let settled = store.settle(&settlements).await.expect("settle");
    assert!(settled.iter().all(|settled| *settled == Settled::Applied), "{settled:?}");
    file.check();
    assert_eq!(claim_one(&store).await.claim.key, key("goes-2"));
    let history = store.history(&inbox(), &key("paused-3")).await.expect("history").expect("a message");
    let ahead: Vec<_> = history.ahead.iter().map(|ahead| (ahead.key, ahead.status)).collect();
    assert_eq!(ahead, [(key("paused-2"), Status::Pending)], "who waits itself");
    assert_eq!(file.count("oncebox_line"), 4, "the line that ended is gone");
    // The repeat of a settlement whose answer was lost releases no second entry.
    let settled = store.settle(&settlements).await.expect("settle");
    assert!(settled.iter().all(|settled| *settled == Settled::Applied), "{settled:?}");
    assert!(claim(&store, 100).await.is_empty());
    let resume = Action::new(inbox(), ActionKind::ResumeKey { handler: handler("h"), line: paused });
    store.act(&resume).await.expect("resume");
    assert_eq!(claim_one(&store).await.claim.key, key("paused-2"));
    file.clock.advance(Duration::from_hours(1));
    assert_eq!(claim_one(&store).await.claim.key, key("retried"));
    file.check();
}
