//! Settles deliveries with the channel that brought them. Tests: below.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::{Channel, Connection};
use oncebox_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Maximum verdicts in one batch.
const BATCH: usize = 1_024;
/// Maximum delayed acknowledgements and their maximum delay. They wait for earlier deliveries, so that one frame
/// acknowledges all.
const LATE: usize = 2_048;
const PATIENCE: Duration = Duration::from_millis(10);

/// Verdict on a delivery, for the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerVerdict {
    /// Stored or ignored: acknowledge.
    Ack,
    /// Rejected: the broker dead-letters or drops it.
    Reject,
    /// Requeue: the broker delivers it again.
    GiveBack,
}

pub(crate) enum SettleRequest {
    Settle {
        tag: u64,
        verdict: BrokerVerdict,
        written: Option<oneshot::Sender<Result<()>>>,
    },
    /// The session ended: the broker requeues unsettled deliveries.
    Close,
}

/// Handle of a delivery to its session. A delivery can reach no other channel.
#[derive(Clone, Debug)]
pub(crate) struct Settler {
    orders: mpsc::UnboundedSender<SettleRequest>,
}

impl Settler {
    /// Starts the task that owns the channel.
    pub(crate) fn start(connection: Connection, channel: Channel) -> Self {
        let (orders, queue) = mpsc::unbounded_channel();
        tokio::spawn(run(connection, channel, queue));
        Self { orders }
    }

    /// Sends a verdict; completes when it is written to the connection.
    pub(crate) async fn settle(&self, tag: u64, verdict: BrokerVerdict) -> Result<()> {
        let (written, answer) = oneshot::channel();
        let order = SettleRequest::Settle { tag, verdict, written: Some(written) };
        if self.orders.send(order).is_err() {
            return Err(gone());
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Requeues a delivery without waiting.
    pub(crate) fn give_back(&self, tag: u64) {
        // If the receiver is gone, so is the channel, and the broker has the delivery already.
        let _ =
            self.orders.send(SettleRequest::Settle { tag, verdict: BrokerVerdict::GiveBack, written: None });
    }

    pub(crate) fn close(&self) {
        let _ = self.orders.send(SettleRequest::Close);
    }
}

fn gone() -> Error {
    let what = "the channel that brought the delivery is gone: the broker brings it again";
    Error::new(ErrorKind::Unavailable, what)
}

async fn run(connection: Connection, channel: Channel, mut queue: mpsc::UnboundedReceiver<SettleRequest>) {
    let (mut orders, mut tags, mut waiting) = (Vec::new(), Tags::default(), Vec::new());
    let mut open = true;
    while open {
        let mut verdicts = Vec::new();
        if let Some(more) = until(tags.until, queue.recv_many(&mut orders, BATCH)).await {
            open = more > 0;
            for order in orders.drain(..) {
                match order {
                    SettleRequest::Settle { tag, verdict, written } => {
                        verdicts.push((tag, verdict));
                        waiting.extend(written.map(|written| (tag, written)));
                    }
                    SettleRequest::Close => open = false,
                }
            }
        }
        let written_all = write(&channel, tags.frames(&verdicts, open.then(Instant::now))).await;
        for (tag, written) in std::mem::take(&mut waiting) {
            if tags.late.contains(&tag) {
                waiting.push((tag, written));
            } else {
                // A caller that no longer waits needs no result.
                let _ = written.send(if written_all { Ok(()) } else { Err(gone()) });
            }
        }
    }
    // From here on, the remaining deliveries cannot be settled.
    drop(queue);
    let _ = connection.close(200, "done".into()).await;
}

/// Returns the output of a future, if it ends in time.
async fn until<T>(end: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => tokio::time::timeout_at(end, future).await.ok(),
        None => Some(future.await),
    }
}

/// Writes frames. Returns whether all of them were written.
async fn write(channel: &Channel, frames: Frames) -> bool {
    let write = |frame| async move {
        match frame {
            Frame::Ack(tag) => channel.basic_ack(tag, BasicAckOptions { multiple: false }).await,
            Frame::Nack { tag, requeue } => {
                channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue }).await
            }
        }
    };
    let mut written = join_all(frames.each.into_iter().map(write)).await.into_iter().all(|one| one.is_ok());
    // Write this one last: it would also acknowledge deliveries that are rejected or requeued.
    if let Some(tag) = frames.all_up_to.filter(|_| written) {
        written = channel.basic_ack(tag, BasicAckOptions { multiple: true }).await.is_ok();
    }
    written
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Ack(u64),
    Nack { tag: u64, requeue: bool },
}

/// Frames to write for a batch of verdicts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frames {
    /// Written first, in any order.
    each: Vec<Frame>,
    /// Then one acknowledgement for all unsettled deliveries up to this tag.
    all_up_to: Option<u64>,
}

/// Settled delivery tags of a channel, which counts from 1.
#[derive(Debug, Default)]
struct Tags {
    /// All tags up to this one are settled.
    floor: u64,
    /// Settled tags above it.
    above: BTreeSet<u64>,
    /// Tags with an unwritten acknowledgement, and its latest time whatever happens to earlier tags.
    late: BTreeSet<u64>,
    until: Option<Instant>,
}

impl Tags {
    /// Returns one acknowledgement for all tags below which everything is settled, because each frame costs the broker
    /// as much as a message. Others wait for earlier tags, unless there are too many. `None` as the time writes all of
    /// them, at the end.
    fn frames(&mut self, verdicts: &[(u64, BrokerVerdict)], now: Option<Instant>) -> Frames {
        self.above.extend(verdicts.iter().map(|(tag, _)| tag));
        while self.above.remove(&(self.floor + 1)) {
            self.floor += 1;
        }
        let mut frames = Frames::default();
        for &(tag, verdict) in verdicts {
            match verdict {
                BrokerVerdict::Ack => _ = self.late.insert(tag),
                BrokerVerdict::Reject => frames.each.push(Frame::Nack { tag, requeue: false }),
                BrokerVerdict::GiveBack => frames.each.push(Frame::Nack { tag, requeue: true }),
            }
        }
        let late = self.late.split_off(&(self.floor + 1));
        frames.all_up_to = std::mem::replace(&mut self.late, late).last().copied();
        let is_time = now.is_none_or(|now| self.until.is_some_and(|until| until <= now));
        if is_time || self.late.len() > LATE {
            frames.each.extend(std::mem::take(&mut self.late).into_iter().map(Frame::Ack));
        }
        let wait = now.filter(|_| !self.late.is_empty()).map(|now| now + PATIENCE);
        self.until = wait.map(|wait| self.until.unwrap_or(wait));
        frames
    }
}

/// A delivery to settle once. Dropping it requeues it.
#[derive(Debug)]
pub(crate) struct DeliveryTag {
    settler: Arc<Settler>,
    number: u64,
    settled: bool,
}

impl DeliveryTag {
    pub(crate) fn new(settler: Arc<Settler>, number: u64) -> Self {
        Self { settler, number, settled: false }
    }

    pub(crate) async fn settle(mut self, verdict: BrokerVerdict) -> Result<()> {
        self.settled = true;
        self.settler.settle(self.number, verdict).await
    }
}

impl Drop for DeliveryTag {
    fn drop(&mut self) {
        if !self.settled {
            self.settler.give_back(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(each: &[Frame], all_up_to: impl Into<Option<u64>>) -> Frames {
        Frames { each: each.to_vec(), all_up_to: all_up_to.into() }
    }

    #[test]
    fn those_below_which_all_is_settled_share_one_acknowledgement() {
        let (mut tags, now) = (Tags::default(), Some(Instant::now()));
        let acks = |numbers: &[u64]| numbers.iter().map(|tag| (*tag, BrokerVerdict::Ack)).collect::<Vec<_>>();
        assert_eq!(tags.frames(&acks(&[1, 2, 3]), now), frames(&[], 3));
        // 4 is unsettled, and later tags wait for it.
        assert_eq!(tags.frames(&acks(&[6, 5]), now), frames(&[], None));
        assert_eq!(tags.frames(&acks(&[8, 4]), now), frames(&[], 6));
        assert_eq!(tags.frames(&acks(&[7, 9]), now), frames(&[], 9));
        assert_eq!((tags.floor, tags.above.len(), tags.late.len(), tags.until), (9, 0, 0, None));
    }

    // A delivery that is held long does not delay other acknowledgements.
    #[test]
    fn what_has_waited_long_enough_is_acknowledged_by_itself() {
        let (mut tags, start) = (Tags::default(), Instant::now());
        let mut at = |parts: u32, tag: u64| {
            tags.frames(&[(tag, BrokerVerdict::Ack)], Some(start + PATIENCE * parts / 4))
        };
        assert_eq!(at(0, 2), frames(&[], None));
        assert_eq!(at(3, 4), frames(&[], None));
        assert_eq!(
            at(4, 3),
            frames(&[Frame::Ack(2), Frame::Ack(3), Frame::Ack(4)], None),
            "the first has waited"
        );
        assert_eq!(at(5, 6), frames(&[], None), "each is told once, and the next ones wait anew");
        assert_eq!(at(8, 7), frames(&[], None));
        assert_eq!(
            tags.frames(&[], Some(start + PATIENCE * 9 / 4)),
            frames(&[Frame::Ack(6), Frame::Ack(7)], None)
        );
        // Settled tags are not written again.
        assert_eq!(tags.frames(&[(1, BrokerVerdict::Ack)], Some(start + PATIENCE * 9)), frames(&[], 1));
        assert_eq!(tags.floor, 4);
    }

    #[test]
    fn too_many_do_not_wait_and_neither_do_the_last() {
        let mut tags = Tags::default();
        let many: Vec<_> = (2..).take(LATE + 1).map(|tag| (tag, BrokerVerdict::Ack)).collect();
        assert_eq!(tags.frames(&many, Some(Instant::now())).each.len(), LATE + 1);
        assert!(tags.late.is_empty() && tags.until.is_none());
        assert_eq!(tags.frames(&[(9_000, BrokerVerdict::Ack)], None), frames(&[Frame::Ack(9_000)], None));
    }

    // An acknowledgement of several must never cover a rejected or requeued one.
    #[test]
    fn what_is_not_acknowledged_goes_first() {
        let mut tags = Tags::default();
        let verdicts = [
            (2, BrokerVerdict::Ack),
            (1, BrokerVerdict::Reject),
            (3, BrokerVerdict::GiveBack),
            (4, BrokerVerdict::Ack),
        ];
        let nack = |tag, requeue| Frame::Nack { tag, requeue };
        let now = Some(Instant::now());
        assert_eq!(tags.frames(&verdicts, now), frames(&[nack(1, false), nack(3, true)], 4));
        assert_eq!(tags.frames(&[(6, BrokerVerdict::Reject)], now), frames(&[nack(6, false)], None));
        assert_eq!(tags.frames(&[(5, BrokerVerdict::Ack)], now), frames(&[], 5));
    }
}
