//! Batches items that arrive at the same time. Tests: below, and `tests/batcher.rs` of `oncebox`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

/// Maximum items of a batch, and maximum bytes unless it is a single item.
const MAX_BATCH: usize = 500;
const BYTES: usize = 4 << 20;
/// Maximum batches at once.
const AT_ONCE: usize = 2;
/// Minimum items of a second batch beside the first. Smaller batches cost more than they save.
const MIN_CONCURRENT_BATCH: usize = 96;

/// Batches items that arrive at the same time, so that one write stores them. For sources that receive many messages in
/// parallel.
///
/// An item waits only while another batch is written: items that arrive meanwhile share the next batch.
pub struct Batcher<T> {
    items: mpsc::UnboundedSender<T>,
    task: AbortHandle,
}

/// Permit of a batch. A drop lets the next batch begin.
#[derive(Debug)]
pub struct BatchPermit(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    taken: AtomicUsize,
    free: Notify,
}

impl Drop for BatchPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.free.notify_one();
    }
}

impl<T: Send + 'static> Batcher<T> {
    /// Starts the batcher, which calls `work` with each batch. `bytes` returns the approximate size of an item. Call it within
    /// a Tokio runtime. After a drop, pushed items are still handled.
    pub fn start<Bytes, Work, Done>(bytes: Bytes, work: Work) -> Self
    where
        Bytes: Fn(&T) -> usize + Send + 'static,
        Work: Fn(Vec<T>, BatchPermit) -> Done + Send + 'static,
        Done: Future<Output = ()> + Send + 'static,
    {
        let (items, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(bytes, work, queue)).abort_handle();
        Self { items, task }
    }

    /// Adds an item. Returns it as the error if the task has ended, for example with the runtime.
    pub fn push(&self, item: T) -> Result<(), T> {
        self.items.send(item).map_err(|unsent| unsent.0)
    }

    /// Drops all items that are not done.
    pub fn abort(&self) {
        self.task.abort();
    }
}

impl<T> fmt::Debug for Batcher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

async fn run<T, Bytes, Work, Done>(bytes: Bytes, work: Work, mut queue: mpsc::UnboundedReceiver<T>)
where
    T: Send + 'static,
    Bytes: Fn(&T) -> usize,
    Work: Fn(Vec<T>, BatchPermit) -> Done,
    Done: Future<Output = ()> + Send + 'static,
{
    let turns = Arc::<Turns>::default();
    let (mut arrived, mut waiting) = (Vec::new(), VecDeque::new());
    let (mut batches, mut open) = (JoinSet::new(), true);
    while open || !waiting.is_empty() || !batches.is_empty() {
        let taken = turns.taken.load(Ordering::Relaxed);
        if !waiting.is_empty() && (taken == 0 || (taken < AT_ONCE && waiting.len() >= MIN_CONCURRENT_BATCH)) {
            turns.taken.fetch_add(1, Ordering::Relaxed);
            batches.spawn(work(batch(&mut waiting, &bytes), BatchPermit(Arc::clone(&turns))));
            continue;
        }
        tokio::select! {
            count = queue.recv_many(&mut arrived, MAX_BATCH), if open => {
                open = count > 0;
                waiting.extend(arrived.drain(..));
            }
            () = turns.free.notified() => {}
            Some(done) = batches.join_next() => {
                if let Err(panic) = done {
                    tracing::error!(error = %panic, "storing a batch panicked");
                }
            }
        }
    }
}

/// Takes the first waiting items, as many as fit into a batch, at least one.
fn batch<T>(waiting: &mut VecDeque<T>, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0;
    let fits = |item: &&T| {
        sum += bytes(item);
        sum <= BYTES
    };
    let count = waiting.iter().take(MAX_BATCH).take_while(fits).count().max(1);
    waiting.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    type Batches = Arc<parking_lot::Mutex<Vec<Vec<usize>>>>;

    /// Records batches, each of which ends when it gets a permit.
    fn batcher() -> (Batcher<usize>, Batches, Arc<Semaphore>) {
        let (batches, go) = (Batches::default(), Arc::new(Semaphore::new(0)));
        let (noted, gone) = (Arc::clone(&batches), Arc::clone(&go));
        let work = move |batch: Vec<usize>, turn| {
            noted.lock().push(batch);
            let go = Arc::clone(&gone);
            async move {
                let Ok(permit) = go.acquire_owned().await else { panic!("a bug") };
                permit.forget();
                drop(turn);
            }
        };
        (Batcher::start(|_| 100, work), batches, go)
    }

    async fn quiet() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn sizes(batches: &Batches) -> Vec<usize> {
        batches.lock().iter().map(Vec::len).collect()
    }

    #[tokio::test]
    async fn what_comes_behind_a_batch_waits_for_it_or_for_many_others() {
        let (batcher, batches, go) = batcher();
        batcher.push(0).unwrap();
        quiet().await;
        assert_eq!(sizes(&batches), [1], "nothing is delayed");
        for item in 1..MIN_CONCURRENT_BATCH {
            batcher.push(item).unwrap();
        }
        quiet().await;
        assert_eq!(sizes(&batches), [1], "too few to begin beside another");
        batcher.push(MIN_CONCURRENT_BATCH).unwrap();
        quiet().await;
        assert_eq!(sizes(&batches), [1, MIN_CONCURRENT_BATCH]);
        for item in 0..=2 * MAX_BATCH {
            batcher.push(item).unwrap();
        }
        quiet().await;
        assert_eq!(sizes(&batches), [1, MIN_CONCURRENT_BATCH], "not a third");
        go.add_permits(1);
        quiet().await;
        assert_eq!(sizes(&batches), [1, MIN_CONCURRENT_BATCH, MAX_BATCH]);
        go.add_permits(1);
        quiet().await;
        assert_eq!(sizes(&batches), [1, MIN_CONCURRENT_BATCH, MAX_BATCH, MAX_BATCH]);
        go.add_permits(2);
        quiet().await;
        assert_eq!(
            sizes(&batches),
            [1, MIN_CONCURRENT_BATCH, MAX_BATCH, MAX_BATCH, 1],
            "what is left does not wait for ever"
        );
    }

    // FAULTS A18: a statement has bounds, whatever comes together.
    #[test]
    fn a_batch_is_not_too_large_unless_one_item_is() {
        let mut waiting = VecDeque::from([BYTES / 2, BYTES / 2, 1, BYTES + 1, BYTES, 1]);
        let mut next = || batch(&mut waiting, |bytes| *bytes);
        assert_eq!(next(), [BYTES / 2, BYTES / 2]);
        assert_eq!(next(), [1]);
        assert_eq!(next(), [BYTES + 1]);
        assert_eq!(next(), [BYTES]);
        assert_eq!(next(), [1]);
    }

    #[tokio::test]
    async fn a_batch_that_panics_gives_its_turn_back() {
        let (batcher, batches, go) = batcher();
        batcher.push(0).unwrap();
        quiet().await;
        go.close();
        quiet().await;
        batcher.push(1).unwrap();
        quiet().await;
        assert_eq!(sizes(&batches), [1, 1]);
    }

    #[tokio::test]
    async fn what_was_pushed_before_the_end_is_worked_on_unless_it_is_given_up() {
        for abort in [false, true] {
            let (batcher, batches, go) = batcher();
            batcher.push(0).unwrap();
            quiet().await;
            batcher.push(1).unwrap();
            if abort {
                batcher.abort();
            }
            drop(batcher);
            go.add_permits(2);
            quiet().await;
            assert_eq!(sizes(&batches).len(), if abort { 1 } else { 2 });
            assert_eq!(go.available_permits(), if abort { 2 } else { 0 });
        }
    }

    #[tokio::test]
    async fn an_item_is_returned_after_an_abort() {
        let (batcher, ..) = batcher();
        batcher.abort();
        quiet().await;
        assert_eq!(batcher.push(7), Err(7));
    }
}
