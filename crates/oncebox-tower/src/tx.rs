//! Transaction of a request, for its service. Tests: `tests/service.rs` and `tests/axum.rs`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use oncebox::store::Transactional;
use oncebox::{Error, ErrorKind, MarkedWork, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Handle to the transaction that marks the key of a request. Writes through it commit with the mark, or not at all. Clones are the
/// same transaction. It ends with the response, even if handles remain.
pub struct RequestTx<S: Transactional> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: Transactional> {
    state: Mutex<RequestTxState<S>>,
    /// One user at a time.
    turn: Arc<Semaphore>,
}

struct RequestTxState<S: Transactional> {
    /// `None` while a guard holds it.
    work: Option<MarkedWork<S>>,
    over: bool,
}

impl<S: Transactional> RequestTx<S> {
    pub(crate) fn new(work: MarkedWork<S>) -> Self {
        let state = Mutex::new(RequestTxState { work: Some(work), over: false });
        Self { shared: Arc::new(Shared { state, turn: Arc::new(Semaphore::new(1)) }) }
    }

    /// Waits for other users, then returns the transaction until the guard is dropped.
    pub async fn lock(&self) -> Result<TxGuard<S>> {
        let turn = Arc::clone(&self.shared.turn).acquire_owned().await.map_err(|_| over())?;
        let work = self.shared.state.lock().work.take().ok_or_else(over)?;
        Ok(TxGuard { shared: Arc::clone(&self.shared), work: Some(work), _turn: turn })
    }

    /// Ends the use of the transaction. Returns `None` if a guard still holds it: it is rolled back when that is dropped.
    pub(crate) fn end(&self) -> Option<MarkedWork<S>> {
        let mut state = self.shared.state.lock();
        state.over = true;
        state.work.take()
    }
}

fn over() -> Error {
    Error::new(ErrorKind::Refused, "the transaction of the request is over: its response was sent")
}

impl<S: Transactional> Clone for RequestTx<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Transactional> fmt::Debug for RequestTx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// Exclusive use of the transaction. It derefs to the store's own type.
pub struct TxGuard<S: Transactional> {
    shared: Arc<Shared<S>>,
    /// `Some` until this is dropped.
    work: Option<MarkedWork<S>>,
    _turn: OwnedSemaphorePermit,
}

impl<S: Transactional> TxGuard<S> {
    /// Stores a result for duplicates of the request. `limits.result` of the inbox limits its size.
    pub fn set_result(&mut self, result: impl Into<Bytes>) -> Result<()> {
        self.work.as_mut().ok_or_else(over)?.set_result(result)
    }
}

impl<S: Transactional> Deref for TxGuard<S> {
    type Target = S::Tx;

    #[expect(clippy::expect_used, reason = "only `drop` takes it out")]
    fn deref(&self) -> &S::Tx {
        self.work.as_ref().expect("it is there until this is dropped").as_tx()
    }
}

impl<S: Transactional> DerefMut for TxGuard<S> {
    #[expect(clippy::expect_used, reason = "only `drop` takes it out")]
    fn deref_mut(&mut self) -> &mut S::Tx {
        self.work.as_mut().expect("it is there until this is dropped").tx()
    }
}

impl<S: Transactional> Drop for TxGuard<S> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if !state.over {
            state.work = self.work.take();
        }
    }
}

impl<S: Transactional> fmt::Debug for TxGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxGuard").finish_non_exhaustive()
    }
}

/// Request that carries the transaction to the service. HTTP requests do so in their extensions.
pub trait CarryTx<S: Transactional>: Sized {
    /// Stores the handle in the request.
    fn carry(&mut self, tx: RequestTx<S>);

    /// Returns the request and the content that distinguishes it from another one under its key, of at most `limit` bytes. Another
    /// content is [`NotRunReason::Conflict`](crate::NotRunReason::Conflict). Default: `None`, nothing is compared.
    fn content(self, limit: usize) -> impl Future<Output = Result<(Self, Option<Bytes>)>> + Send
    where
        Self: Send,
    {
        let _ = limit;
        std::future::ready(Ok((self, None)))
    }
}

#[cfg(feature = "http")]
impl<S: Transactional, B> CarryTx<S> for http::Request<B>
where
    B: http_body_util::BodyExt<Data: Send, Error: Into<oncebox::BoxError>> + From<Bytes> + Send,
{
    fn carry(&mut self, tx: RequestTx<S>) {
        self.extensions_mut().insert(tx);
    }

    /// Method, path, query and body.
    async fn content(self, limit: usize) -> Result<(Self, Option<Bytes>)> {
        let (head, body) = self.into_parts();
        let target = head.uri.path_and_query().map_or("", |target| target.as_str());
        let limit = limit.saturating_sub(head.method.as_str().len() + target.len() + 2);
        let body = crate::http_body::collect(body, limit, "request").await?;
        let content = [head.method.as_str().as_bytes(), b" ", target.as_bytes(), b"\n", &body].concat();
        Ok((Self::from_parts(head, body.into()), Some(content.into())))
    }
}
