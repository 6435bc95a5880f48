//! Bulk operations: dry run, limits, stops, crashes and continuation.

use std::process::{Child, Stdio};

use oncebox::state::{Outcome, Status};
use oncebox::store::{AuditFilter, EntryFilter, Inspect, OperationId};
use oncebox_sqlite::rusqlite::Connection;

use crate::fixture::{ADA, OperateFixture, PATIENCE, inbox, lines, refused, said, work};

const ID: &str = "5d0b9f5e-4f52-4b2e-9f2a-3f6f6c1f2b10";

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_operation_needs_confirmation() {
    let fixture = OperateFixture::new().await;
    let filter = [&ADA[..], &["--error", "refused"]].concat();
    let shown = &fixture.json("discard", &filter)[0];
    assert_eq!((&shown["dry_run"], &shown["count"]), (&true.into(), &3.into()), "{shown}");
    assert_eq!(shown["first"].as_array().map(Vec::len), Some(3));
    assert_eq!(fixture.count(Status::Poisoned).await, 3, "nothing is done without --confirm");
    let everything = fixture.run("discard", &ADA);
    assert_eq!(everything.status.code(), Some(2), "everything is never meant by accident");
    assert!(said(&everything).contains("--everything"), "{everything:?}");
    let other = fixture.run("discard", &[&filter[..], &["--confirm", "--expect", "4"]].concat());
    assert_eq!(other.status.code(), Some(5), "another count was seen: {other:?}");
    assert_eq!(fixture.count(Status::Poisoned).await, 3);
    let report = &fixture.json("discard", &[&filter[..], &["--confirm", "--limit", "2"]].concat())[0];
    assert_eq!((&report["state"], &report["done"]), (&"capped".into(), &2.into()), "{report}");
    assert_eq!(fixture.count(Status::Poisoned).await, 1);
    let rest = &fixture.json("discard", &[&ADA[..], &["--everything", "--confirm"]].concat())[0];
    assert_eq!((&rest["state"], &rest["done"]), (&"finished".into(), &1.into()), "{rest}");
    for wrong in [["--limit", "0"], ["--limit", "100001"], ["--per-second", "0"], ["--expect", "1"]] {
        assert_eq!(fixture.code("discard", &[&filter[..], &wrong].concat()), 2, "{wrong:?}");
    }
}

// FAULTS J1: it would read all completed entries and change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn impossible_operations_are_refused_at_once() {
    let fixture = OperateFixture::new().await;
    for (verb, status) in [("discard", "completed"), ("retry", "pending"), ("replay", "poisoned")] {
        for more in [&["--type", "order.placed"][..], &["--everything", "--confirm"]] {
            let refused = fixture.run(verb, &[&ADA[..], &["--status", status], more].concat());
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(said(&refused).contains(&format!("never {status}; remove that status")), "{refused:?}");
        }
    }
    assert_eq!(fixture.json("audit", &[]).len(), 1, "nothing was recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_id_belongs_to_one_filter() {
    let fixture = OperateFixture::new().await;
    let first = [&ADA[..], &["--error", "refused", "--confirm", "--operation", ID, "--limit", "1"]].concat();
    let report = fixture.json("discard", &first);
    assert_eq!(fixture.json("discard", &first), report, "the same again is done once");
    let other = [&ADA[..], &["--error", "depot", "--confirm", "--operation", ID, "--limit", "1"]].concat();
    assert_eq!(fixture.code("discard", &other), 5);
    assert_eq!(fixture.count(Status::Poisoned).await, 2);
}

// FAULTS J1: repeated failures stop a retry.
#[tokio::test(flavor = "multi_thread")]
async fn it_stops_when_entries_fail_again() {
    let fixture = OperateFixture::with(30, refused).await;
    let args =
        [&ADA[..], &["--error", "refused", "--confirm", "--operation", ID, "--failures", "2"]].concat();
    let mut running = start(&fixture, "retry", &args);
    // A handler that still fails.
    let (store, connection) =
        (fixture.store(), Connection::open(fixture.file()).expect("another connection"));
    let id: OperationId = ID.parse().expect("a UUID");
    let mut failed_again = 0;
    while running.try_wait().expect("a child").is_none() {
        if state(&connection, id).0 as usize > failed_again {
            failed_again += work(&store, refused).await;
        }
        tokio::task::yield_now().await;
    }
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("--go-on"), "{output:?}");
    assert!((3..30).contains(&failed_again), "{failed_again}");
    assert_eq!(fixture.code("retry", &args), 1, "it stays stopped");
    let on = [&args[..], &["--go-on"]].concat();
    let on = &fixture.json("retry", &on)[0];
    assert_eq!((&on["state"], &on["done"]), (&"finished".into(), &30.into()), "{on}");
}

fn start(fixture: &OperateFixture, command: &str, args: &[&str]) -> Child {
    let mut command = fixture.command(command, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

/// Counts the entries of an operation, and its recorded steps.
fn state(connection: &Connection, id: OperationId) -> (u32, u32) {
    let count = |sql: &str| connection.query_row(sql, [&id.as_bytes()[..]], |row| row.get(0)).unwrap_or(0);
    let parts = count("SELECT count(*) FROM oncebox_operation WHERE parent = ?1");
    (parts, count("SELECT noted FROM oncebox_operation WHERE id = ?1"))
}

/// Kills an operation within a step, with entries done but not recorded. A lock on the file ensures the moment.
async fn kill_within_a_step(fixture: &OperateFixture, mut child: Child, id: OperationId) -> u32 {
    let mut connection = Connection::open(fixture.file()).expect("another connection");
    connection.busy_timeout(PATIENCE).expect("a timeout");
    // The first record is the start.
    let within = |(parts, noted): (u32, u32)| noted >= 3 && parts >= 2_u32.pow(noted - 1);
    let waiting = async {
        loop {
            if within(state(&connection, id)) {
                let held = connection
                    .transaction_with_behavior(oncebox_sqlite::rusqlite::TransactionBehavior::Immediate);
                let held = held.expect("the lock");
                // This process holds the write lock, so the state is the same when it dies.
                let now = state(&held, id);
                if within(now) {
                    child.kill().expect("kill -9");
                    child.wait().expect("it is dead");
                    return now.0;
                }
            }
            assert!(child.try_wait().expect("a child").is_none(), "it ended before it could be killed");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("a step of it in time")
}

// FAULTS J1: after kill -9 within a step, each entry is still changed once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_operation_continues_and_changes_no_entry_twice() {
    // Enough that the operation lasts longer than a look at its state.
    const MANY: usize = 500;
    let fixture = OperateFixture::with(MANY, || Outcome::Done).await;
    let id: OperationId = ID.parse().expect("a UUID");
    let args = [&ADA[..], &["--handler", "ship-order", "--confirm", "--operation", ID]].concat();
    let killed_at = kill_within_a_step(&fixture, start(&fixture, "replay", &args), id).await;
    assert!(killed_at > 3 && (killed_at as usize) < MANY, "{killed_at}");
    // Some retried entries complete meanwhile, so that the filter matches them again.
    let store = fixture.store();
    assert_eq!(work(&store, || Outcome::Done).await, killed_at as usize);
    let report = lines(&fixture.run("replay", &[&args[..], &["--json"]].concat())).remove(0);
    assert_eq!((&report["state"], &report["done"]), (&"finished".into(), &MANY.into()), "{report}");
    work(&store, || Outcome::Done).await;
    let mut parts = AuditFilter::new(inbox());
    (parts.parent, parts.limit) = (Some(id), 10_000);
    let mut keys: Vec<_> =
        store.audit(&parts).await.expect("audit").operations.into_iter().map(|part| part.key).collect();
    assert_eq!(keys.len(), MANY);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), MANY, "each entry has one record");
    let mut all = EntryFilter::new(inbox(), Status::Completed);
    all.limit = 1_000;
    let entries = store.list(&all).await.expect("list").entries;
    let generations: Vec<u32> = entries.iter().map(|entry| entry.generation).collect();
    assert_eq!(generations, [1; MANY], "replayed once, each of them");
}
