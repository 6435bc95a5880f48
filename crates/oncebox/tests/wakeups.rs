//! No wake-up is lost: with a poll that never comes, whatever is missed would hang for good.

mod support;

use oncebox::store::Inspect;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox::{BoxError, Config, Context, Inbox, Memory, Message, Retry, Snooze, Status, handler};
use support::panicky::Panicky;
use support::{RunScript, in_time, message};
use tokio::sync::watch;

/// A store without wakeups: only those of the process itself remain.
fn mute() -> Panicky {
    Panicky::new(Memory::new()).mute()
}

fn never_polled() -> Config {
    let never = Duration::from_hours(24);
    Config { poll: never, rescue: never, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_message_wakes_its_handler() {
    let script = RunScript::default();
    let inbox = Inbox::builder("test", mute())
        .config(never_polled())
        .on("t", script.handler("a"))
        .on("u", script.handler("b"))
        .on("v", script.handler("c"))
        .build()
        .unwrap();
    let running = inbox.start();
    for number in 0..1_000 {
        let kind = ["t", "u", "v"][number % 3];
        inbox.accept(Message::new(number.to_string(), kind, "ok")).await.unwrap();
        in_time(script.started(number + 1)).await;
    }
    in_time(running.idle()).await;
    in_time(running.shutdown()).await;
}

/// Does its work at the second or third time, and fails in every way before.
async fn stumbles(message: Message, cx: &mut Context<Panicky>) -> Result<(), BoxError> {
    let counts = cx.data::<RunCounts>()?;
    let RunCounts { runs, done } = &*counts;
    let run = runs.fetch_add(1, Ordering::SeqCst);
    tokio::task::yield_now().await;
    match (message.payload()[0], cx.attempt()) {
        (b'f', 1) => Err("no".into()),
        (b'p', 1 | 2) => panic!("no"),
        (b's', _) if !run.is_multiple_of(3) => Err(Snooze(Duration::from_millis(1)).into()),
        _ => {
            done.send_modify(|done| *done += 1);
            Ok(())
        }
    }
}

/// Number of runs, and of successful runs.
#[derive(Default)]
struct RunCounts {
    runs: AtomicUsize,
    done: watch::Sender<u64>,
}

// Retries, snoozes and lines: what comes later has to be remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_comes_to_its_end_without_being_looked_for() {
    const MESSAGES: u64 = 2_000;
    let store = mute();
    let few = Duration::from_millis(2);
    let done = watch::Sender::new(0);
    let inbox = Inbox::builder("test", store.clone())
        .config(Config { in_flight: 50, batch: 20, ..never_polled() })
        .data(RunCounts { done: done.clone(), ..RunCounts::default() })
        .on("t", handler("narrow", stumbles).concurrency(3).retry(Retry::new(9, few, few)))
        .on("t", handler("wide", stumbles).concurrency(40).retry(Retry::new(9, few, few)))
        .build()
        .unwrap();
    let running = inbox.start();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let inbox = inbox.clone();
            tokio::spawn(async move {
                for number in 0..MESSAGES / 4 {
                    let play = ["fail", "ok", "snooze", "panic", "ok"][usize::try_from(number % 5).unwrap()];
                    let message = message(&format!("{producer}/{number}"), play);
                    let line = format!("{}", number % 100);
                    let ordered = if number % 2 == 0 { message.with_ordering_key(line) } else { message };
                    inbox.accept(ordered).await.unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        in_time(producer).await.unwrap();
    }
    // Waiting for `idle` would be a wake-up in itself.
    in_time(done.subscribe().wait_for(|done| *done >= 2 * MESSAGES)).await.unwrap();
    in_time(running.idle()).await;
    let counts = store.memory.count(inbox.name(), None).await.unwrap();
    assert_eq!((counts.with_status(Status::Completed), running.in_flight()), (2 * MESSAGES, 0));
    in_time(running.shutdown()).await;
}
