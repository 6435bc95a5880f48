//! Group commit: calls that wait while a batch is stored share the next one. Tests: `tests/split_batch.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use oncebox_core::store::{Accepted, NewMessage};
use oncebox_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::accept::{Offered, StoredBatch, store};
use crate::db::{Db, SharedDb};
use crate::partition::{PartitionLimits, count_of, go_on};
use crate::session::Sessions;
use crate::wake::Waker;

/// Maximum messages of calls that share a batch. A single call may have more.
const BATCH: usize = 500;
/// Maximum batches that are stored at the same time.
pub(crate) const WRITERS: usize = 2;
/// Minimum waiting messages for a second concurrent batch: smaller batches cost more than they gain.
const MIN_CONCURRENT_BATCH: usize = 96;
/// Maximum bytes of calls that share a batch.
const BYTES: usize = 4 << 20;

/// One call of accept.
struct AcceptCall {
    offers: Vec<Offered>,
    answer: oneshot::Sender<Result<Vec<Accepted>>>,
}

/// Batches concurrent calls of accept.
pub(crate) struct BatchWriter {
    calls: mpsc::UnboundedSender<AcceptCall>,
    ingest: Ingest,
}

impl BatchWriter {
    /// Starts the task that stores batches. It ends when the writer is dropped and every call has its result.
    pub(crate) fn start(db: SharedDb, sessions: Sessions, waker: Waker, partitions: PartitionLimits) -> Self {
        let (calls, queue) = mpsc::unbounded_channel();
        let ingest = Ingest { db, sessions, waker, partitions, ending: Arc::default(), busy: Arc::default() };
        tokio::spawn(write(ingest.clone(), queue));
        Self { calls, ingest }
    }

    pub(crate) async fn accept(&self, db: &Db, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut offers = Vec::with_capacity(batch.len());
        for new in batch {
            offers.push(Offered::new(db, new).await?);
        }
        if let Some(_alone) = self.ingest.alone() {
            // No other call waits, so this one skips the queue. A caller that stops waiting affects only its own batch. Boxed,
            // because this future is large and queued calls do not need it.
            return Box::pin(self.ingest.store(&offers)).await;
        }
        let (answer, answered) = oneshot::channel();
        self.calls.send(AcceptCall { offers, answer }).map_err(|_| stopped(ErrorKind::Unavailable))?;
        answered.await.unwrap_or_else(|_| Err(stopped(ErrorKind::CommitUnknown)))
    }
}

fn stopped(kind: ErrorKind) -> Error {
    Error::new(kind, "the PostgreSQL writer has stopped")
}

/// Context of a batch insert.
#[derive(Clone)]
struct Ingest {
    db: SharedDb,
    sessions: Sessions,
    waker: Waker,
    partitions: PartitionLimits,
    /// True while a task ends a full partition.
    ending: Arc<AtomicBool>,
    /// Number of batches that are being stored.
    busy: Arc<AtomicUsize>,
}

/// A batch that is being stored.
struct ActiveBatch(Arc<AtomicUsize>);

impl Drop for ActiveBatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ingest {
    /// Reserves a place for a batch, if no batch is being stored.
    fn alone(&self) -> Option<ActiveBatch> {
        let free = self.busy.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        free.is_ok().then(|| ActiveBatch(Arc::clone(&self.busy)))
    }

    /// Reserves a place for a batch, beside others.
    fn beside(&self) -> ActiveBatch {
        self.busy.fetch_add(1, Ordering::Relaxed);
        ActiveBatch(Arc::clone(&self.busy))
    }

    async fn store(&self, offers: &[Offered]) -> Result<Vec<Accepted>> {
        let StoredBatch { accepted, work } = store(&self.db, &self.sessions, offers).await?;
        let stored = offers.iter().zip(&accepted).filter_map(|(offer, accepted)| match accepted {
            Accepted::First(_) => Some((offer.inbox(), offer.lane(), offer.new.key, &*offer.new.message)),
            _ => None,
        });
        self.db.timeline.acknowledged(stored);
        self.watch_size(&accepted);
        if work {
            self.waker.work();
        }
        Ok(accepted)
    }

    /// Ends the partition when it is full. The sweep does so, too, but may run much later.
    fn watch_size(&self, accepted: &[Accepted]) {
        let full =
            |one: &Accepted| matches!(one, Accepted::First(seq) if count_of(seq.0) >= self.partitions.size);
        if !accepted.iter().any(full) || self.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let ingest = self.clone();
        tokio::spawn(async move {
            if let Err(error) = go_on(&ingest.db, &ingest.partitions).await {
                tracing::info!(%error, "cannot end a full partition, retrying");
            }
            ingest.ending.store(false, Ordering::Relaxed);
        });
    }
}

/// Stores batches until the last caller is dropped. A batch is never delayed to fill it, unless another one is
/// being stored: then it needs enough messages to run beside it.
async fn write(ingest: Ingest, mut queue: mpsc::UnboundedReceiver<AcceptCall>) {
    let mut waiting = VecDeque::new();
    let mut arrived = Vec::new();
    let mut flushes = JoinSet::new();
    let mut open = true;
    while open || !waiting.is_empty() || !flushes.is_empty() {
        while !waiting.is_empty()
            && (flushes.is_empty() || (flushes.len() < WRITERS && messages(&waiting) >= MIN_CONCURRENT_BATCH))
        {
            // A separate task: after a panic, the batch gets no results, but the writer continues.
            flushes.spawn(flush(ingest.clone(), batch(&mut waiting)));
        }
        tokio::select! {
            count = queue.recv_many(&mut arrived, BATCH), if open => {
                open = count > 0;
                waiting.extend(arrived.drain(..));
            }
            Some(flushed) = flushes.join_next() => {
                if let Err(panic) = flushed {
                    tracing::error!(%panic, "storing a batch panicked");
                }
            }
        }
    }
}

fn messages(calls: &VecDeque<AcceptCall>) -> usize {
    calls.iter().map(|call| call.offers.len()).sum()
}

/// Takes the calls that share the next batch.
fn batch(waiting: &mut VecDeque<AcceptCall>) -> Vec<AcceptCall> {
    let (mut calls, mut messages, mut bytes) = (Vec::new(), 0, 0);
    while let Some(call) = waiting.pop_front() {
        messages += call.offers.len();
        bytes += call.offers.iter().map(Offered::bytes).sum::<usize>();
        if !calls.is_empty() && (messages > BATCH || bytes > BYTES) {
            waiting.push_front(call);
            break;
        }
        calls.push(call);
    }
    calls
}

/// Stores the batch of several calls. If the batch is refused because of one call's messages, stores each call on its
/// own.
async fn flush(ingest: Ingest, calls: Vec<AcceptCall>) {
    let mut offers = Vec::with_capacity(calls.iter().map(|call| call.offers.len()).sum());
    let mut shares = Vec::with_capacity(calls.len());
    for call in calls {
        shares.push((call.offers.len(), call.answer));
        offers.extend(call.offers);
    }
    let _busy = ingest.beside();
    match ingest.store(&offers).await {
        Ok(accepted) => {
            let mut accepted = accepted.into_iter();
            for (share, answer) in shares {
                // A caller that stopped waiting gets the result by a redelivery.
                let _ = answer.send(Ok(accepted.by_ref().take(share).collect()));
            }
        }
        Err(error) if shares.len() > 1 && error.kind().is_per_message() => {
            let mut offers = offers.into_iter();
            for (share, answer) in shares {
                let alone = AcceptCall { offers: offers.by_ref().take(share).collect(), answer };
                Box::pin(flush(ingest.clone(), vec![alone])).await;
            }
        }
        Err(error) => {
            for (_, answer) in shares {
                let _ = answer.send(Err(error.to_shared()));
            }
        }
    }
}
