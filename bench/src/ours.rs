//! The inbox, through its public interface.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use oncebox::{Config, Context, Inbox, Message, handler};
use oncebox_sqlite::Sqlite;
use tokio::sync::Notify;

use crate::{payload, rate};

/// An inbox on a file.
pub(crate) struct InboxFile {
    inbox: Inbox<Sqlite>,
    done: Arc<HandlerRuns>,
}

/// Counts runs of the handler.
struct HandlerRuns {
    left: AtomicUsize,
    all: Notify,
}

async fn noop(_message: Message, cx: &mut Context<Sqlite>) -> Result<(), Infallible> {
    if let Ok(done) = cx.data::<Arc<HandlerRuns>>()
        && done.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        done.all.notify_one();
    }
    Ok(())
}

impl InboxFile {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let done = Arc::new(HandlerRuns { left: AtomicUsize::new(0), all: Notify::new() });
        let config = Config { batch: 2_000, in_flight: 8_000, ..Config::default() };
        let inbox = Inbox::builder("bench", Sqlite::open(dir.join("ours.db"))?)
            .config(config)
            .data(Arc::clone(&done))
            .on("bench", handler("noop", noop).concurrency(8_000))
            .build()?;
        Ok(Self { inbox, done })
    }

    /// Accepts `count` messages, one per call.
    pub(crate) async fn accept(&self, first: usize, count: usize, callers: usize) -> Result<f64> {
        let payload = Bytes::from(payload());
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (inbox, payload) = (self.inbox.clone(), payload.clone());
                tokio::spawn(async move {
                    for number in (first + caller..first + count).step_by(callers) {
                        inbox.accept(message(number, &payload)).await?;
                    }
                    Ok::<_, oncebox::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(rate(count, start))
    }

    /// Runs pending entries until all are settled.
    pub(crate) async fn process(&self, count: usize) -> Result<f64> {
        self.done.left.store(count, Ordering::Relaxed);
        let start = Instant::now();
        let running = self.inbox.start();
        self.done.all.notified().await;
        running.shutdown().await;
        let rate = rate(count, start);
        let left = oncebox::store::Admin::count(self.inbox.store(), self.inbox.name()).await?;
        ensure!(left.with_status(oncebox::Status::Pending) == 0, "something was left");
        Ok(rate)
    }

    /// Accepts and processes `count` messages in batches.
    pub(crate) async fn fill(&self, count: usize) -> Result<()> {
        self.load(count, None).await?;
        self.process(count).await?;
        Ok(())
    }

    /// Accepts `count` messages in batches, alternating over `keys` ordering keys, or without order.
    pub(crate) async fn load(&self, count: usize, keys: Option<usize>) -> Result<()> {
        let payload = Bytes::from(payload());
        for first in (0..count).step_by(1_000) {
            let batch = (first..count.min(first + 1_000)).map(|number| {
                let message = message(number, &payload);
                match keys {
                    Some(keys) => message.with_ordering_key((number % keys).to_string().into_bytes()),
                    None => message,
                }
            });
            for accepted in self.inbox.accept_batch(batch).await? {
                accepted?;
            }
        }
        Ok(())
    }
}

fn message(number: usize, payload: &Bytes) -> Message {
    Message::new(format!("0192f7a0-0000-7000-8000-{number:012}"), "bench", payload.clone())
        .with_source("bench")
}
