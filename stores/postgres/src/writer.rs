//! Group commit: calls that wait while a batch is stored share the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox::store::{Accepted, NewMessage};
use oncebox::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};

use crate::accept::{Offer, Stored, store};
use crate::db::{Db, SharedDb};
use crate::segment::{Segments, count_of, go_on};
use crate::unit::Units;
use crate::wake::Waker;

/// The most messages that calls share a batch for. One call alone may bring more.
const BATCH: usize = 500;
/// The most bytes that calls share a batch for.
const BYTES: usize = 4 << 20;

/// One call of accept.
struct Call {
    offers: Vec<Offer>,
    answer: oneshot::Sender<Result<Vec<Accepted>>>,
}

/// Where calls of accept wait for each other.
pub(crate) struct Writer {
    calls: mpsc::UnboundedSender<Call>,
}

impl Writer {
    /// Starts the task that stores. It ends when the writer is dropped and every call is answered.
    pub(crate) fn start(db: SharedDb, units: Units, waker: Waker, segments: Segments) -> Self {
        let (calls, queue) = mpsc::unbounded_channel();
        tokio::spawn(write(Ingest { db, units, waker, segments, ending: Arc::default() }, queue));
        Self { calls }
    }

    pub(crate) async fn accept(&self, db: &Db, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut offers = Vec::with_capacity(batch.len());
        for new in batch {
            offers.push(Offer::new(db, new).await?);
        }
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { offers, answer }).map_err(|_| stopped(ErrorKind::Unavailable))?;
        answered.await.unwrap_or_else(|_| Err(stopped(ErrorKind::CommitUnknown)))
    }
}

fn stopped(kind: ErrorKind) -> Error {
    Error::new(kind, "the PostgreSQL writer has stopped")
}

/// What storing needs.
#[derive(Clone)]
struct Ingest {
    db: SharedDb,
    units: Units,
    waker: Waker,
    segments: Segments,
    /// Whether a full segment is being ended.
    ending: Arc<AtomicBool>,
}

impl Ingest {
    /// Ends the segment when it is full. Sweeping does so, too, but may be far away.
    fn watch_size(&self, accepted: &[Accepted]) {
        let full =
            |one: &Accepted| matches!(one, Accepted::First(seq) if count_of(seq.0) >= self.segments.size);
        if !accepted.iter().any(full) || self.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let ingest = self.clone();
        tokio::spawn(async move {
            if let Err(error) = go_on(&ingest.db, &ingest.segments).await {
                tracing::info!(%error, "a full partition was not ended; trying again");
            }
            ingest.ending.store(false, Ordering::Relaxed);
        });
    }
}

async fn write(ingest: Ingest, mut queue: mpsc::UnboundedReceiver<Call>) {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(call) => call,
            None => match queue.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let mut calls = vec![first];
        let size = |call: &Call| (call.offers.len(), call.offers.iter().map(Offer::bytes).sum::<usize>());
        let (mut messages, mut bytes) = size(&calls[0]);
        // Nothing is delayed to fill a batch.
        while let Ok(call) = queue.try_recv() {
            let (more, more_bytes) = size(&call);
            (messages, bytes) = (messages + more, bytes + more_bytes);
            if messages > BATCH || bytes > BYTES {
                next = Some(call);
                break;
            }
            calls.push(call);
        }
        let flush = flush(ingest.clone(), calls);
        // A task of its own: a panic costs the batch its answers, not the store its writer.
        if let Err(panic) = tokio::spawn(flush).await {
            tracing::error!(%panic, "storing a batch panicked");
        }
    }
}

/// Stores the batch of several calls. If it is refused for what one of them brought, each gets its own.
async fn flush(ingest: Ingest, calls: Vec<Call>) {
    let mut offers = Vec::with_capacity(calls.iter().map(|call| call.offers.len()).sum());
    let mut shares = Vec::with_capacity(calls.len());
    for call in calls {
        shares.push((call.offers.len(), call.answer));
        offers.extend(call.offers);
    }
    match store(&ingest.db, &ingest.units, &offers).await {
        Ok(Stored { accepted, work }) => {
            ingest.watch_size(&accepted);
            if work {
                ingest.waker.work();
            }
            let mut accepted = accepted.into_iter();
            for (share, answer) in shares {
                // Whoever has gone away will be told by the redelivery.
                let _ = answer.send(Ok(accepted.by_ref().take(share).collect()));
            }
        }
        Err(error) if shares.len() > 1 && is_of_one(error.kind()) => {
            let mut offers = offers.into_iter();
            for (share, answer) in shares {
                let alone = Call { offers: offers.by_ref().take(share).collect(), answer };
                Box::pin(flush(ingest.clone(), vec![alone])).await;
            }
        }
        Err(error) => {
            for (_, answer) in shares {
                let _ = answer.send(Err(error.duplicate()));
            }
        }
    }
}

/// Whether an error may be the doing of one message among many.
const fn is_of_one(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidMessage | ErrorKind::TooLarge | ErrorKind::Corrupt)
}
