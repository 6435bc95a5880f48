//! The layer and its service. Tests: `tests/service.rs` and `tests/axum.rs`.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use oncebox::store::{MarkIn, Store, Transactional};
use oncebox::{
    Admission, Error, ErrorKind, HandlerKey, Inbox, MarkedWork, Message, Opened, Permit, Recent, Result,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{DoneWhen, HttpResponses, NotRunReason, ResponseFns, ResponsePolicy};
use crate::key::{KeyOf, TenantOf};
use crate::tx::{CarryTx, RequestTx};

/// Layer that makes a service idempotent.
///
/// `T` is the [tenant](IdempotentLayer::tenant) of a request; by default there is none.
pub struct IdempotentLayer<G, K, A, T = NoTenant> {
    guard: G,
    key: Arc<K>,
    answer: Arc<A>,
    tenant: Arc<T>,
}

/// No tenants: all requests share their keys. See [`IdempotentLayer::tenant`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTenant;

/// Marks in a store, for one handler key.
pub struct Marks<S: Store> {
    inbox: Inbox<S>,
    handler: HandlerKey,
}

impl<S: Store> Clone for Marks<S> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), handler: self.handler.clone() }
    }
}

impl<S: Store> std::fmt::Debug for Marks<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marks").field("inbox", &self.inbox).field("handler", &self.handler).finish()
    }
}

impl<K> IdempotentLayer<Recent, K, HttpResponses> {
    /// Remembers keys in the memory of the process, for the window of `recent`, and forgets them when it ends. `key` selects the
    /// key of a request. Several routes that share one memory need [`Recent::of`] each.
    pub fn recent(recent: Recent, key: K) -> Self {
        Self {
            guard: recent,
            key: Arc::new(key),
            answer: Arc::new(HttpResponses),
            tenant: Arc::new(NoTenant),
        }
    }
}

impl<S: Store, K> IdempotentLayer<Marks<S>, K, HttpResponses> {
    /// Marks keys in the store of `inbox`, under the stable name `handler`, in a transaction that the service gets with its request
    /// as a [`RequestTx`]. The layer commits it if the service did the work, and otherwise rolls it back.
    ///
    /// The mark is the same as that of `once` for a message with this id and no source.
    pub fn transactional(inbox: Inbox<S>, handler: &str, key: K) -> Result<Self>
    where
        S: Transactional,
    {
        let guard = Marks { inbox, handler: HandlerKey::new(handler)? };
        Ok(Self { guard, key: Arc::new(key), answer: Arc::new(HttpResponses), tenant: Arc::new(NoTenant) })
    }
}

impl<G, K, A, T> IdempotentLayer<G, K, A, T> {
    /// Replaces [`HttpResponses`]: `answer` makes the response for a reason, and `done` returns true if a response of the service
    /// means that the work is done. Otherwise the layer releases the key and rolls back.
    pub fn answer_with<Res, F, D>(self, answer: F, done: D) -> IdempotentLayer<G, K, ResponseFns<F, D>, T>
    where
        F: Fn(NotRunReason) -> Res + Send + Sync + 'static,
        D: Fn(&Res) -> bool + Send + Sync + 'static,
    {
        self.answer_by(ResponseFns(answer, done))
    }

    /// Sets a [`ResponsePolicy`].
    pub fn answer_by<B>(self, answer: B) -> IdempotentLayer<G, K, B, T> {
        IdempotentLayer { guard: self.guard, key: self.key, answer: Arc::new(answer), tenant: self.tenant }
    }

    /// Sets the rule which responses mean that the work is done. Otherwise the layer releases the key and rolls back.
    pub fn done_when<D>(self, done: D) -> IdempotentLayer<G, K, DoneWhen<A, D>, T>
    where
        A: Clone,
    {
        let answer = Arc::unwrap_or_clone(self.answer);
        let answer = Arc::new(DoneWhen(answer, done));
        IdempotentLayer { guard: self.guard, key: self.key, answer, tenant: self.tenant }
    }

    /// Scopes keys by tenant: the requests of two tenants under one key are two requests. `tenant` returns the tenant, as the
    /// service has authenticated it; a client must not choose it. A request without a tenant is refused if
    /// [`Config::tenants`](oncebox::Config::tenants) of the inbox is `Required`.
    pub fn tenant<T2>(self, tenant: T2) -> IdempotentLayer<G, K, A, T2> {
        IdempotentLayer { guard: self.guard, key: self.key, answer: self.answer, tenant: Arc::new(tenant) }
    }
}

impl<G: Clone, K, A, T> Clone for IdempotentLayer<G, K, A, T> {
    fn clone(&self) -> Self {
        let (key, answer) = (Arc::clone(&self.key), Arc::clone(&self.answer));
        Self { guard: self.guard.clone(), key, answer, tenant: Arc::clone(&self.tenant) }
    }
}

impl<G: std::fmt::Debug, K, A, T> std::fmt::Debug for IdempotentLayer<G, K, A, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotentLayer").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl<Svc, G: Clone, K, A, T> Layer<Svc> for IdempotentLayer<G, K, A, T> {
    type Service = Idempotent<Svc, G, K, A, T>;

    fn layer(&self, inner: Svc) -> Self::Service {
        Idempotent { inner, layer: self.clone() }
    }
}

/// Service that does the work of a key once. Made by [`IdempotentLayer`].
pub struct Idempotent<Svc, G, K, A, T = NoTenant> {
    inner: Svc,
    layer: IdempotentLayer<G, K, A, T>,
}

impl<Svc: Clone, G: Clone, K, A, T> Clone for Idempotent<Svc, G, K, A, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<Svc, G: std::fmt::Debug, K, A, T> std::fmt::Debug for Idempotent<Svc, G, K, A, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotent").field("layer", &self.layer).finish_non_exhaustive()
    }
}

type ResponseFuture<Svc, Req> = Pin<
    Box<dyn Future<Output = Result<<Svc as Service<Req>>::Response, <Svc as Service<Req>>::Error>> + Send>,
>;

/// Key of a request, and its tenant.
struct TenantKey {
    tenant: Option<String>,
    id: Vec<u8>,
}

impl<G, K, A, T> IdempotentLayer<G, K, A, T> {
    /// Returns the key of a request. Refuses a missing or blank key.
    fn key<Req>(&self, request: &Req) -> std::result::Result<TenantKey, NotRunReason>
    where
        K: KeyOf<Req>,
        T: TenantOf<Req>,
    {
        let id = self.key.key(request).filter(|key| !oncebox::is_blank(key)).ok_or(NotRunReason::NoKey)?;
        Ok(TenantKey { tenant: self.tenant.tenant(request), id })
    }
}

fn admit(recent: &Recent, key: &TenantKey) -> std::result::Result<Permit, NotRunReason> {
    // The length separates the two, so no tenant can choose the key of another one.
    let scoped = match key.tenant.as_deref() {
        Some(tenant) => [b"t", &tenant.len().to_be_bytes()[..], tenant.as_bytes(), &key.id].concat(),
        None => [b"-", &key.id[..]].concat(),
    };
    match recent.admit(scoped) {
        Ok(Admission::First(permit)) => Ok(permit),
        Ok(Admission::Duplicate) => Err(NotRunReason::Duplicate(None)),
        Ok(Admission::Busy) => Err(NotRunReason::Busy),
        Err(error) => Err(NotRunReason::Failed(error)),
    }
}

impl<Svc, Req, K, A, T> Service<Req> for Idempotent<Svc, Recent, K, A, T>
where
    Svc: Service<Req>,
    Svc::Future: Send + 'static,
    Svc::Response: Send + 'static,
    Svc::Error: Send + 'static,
    K: KeyOf<Req>,
    A: ResponsePolicy<Svc::Response>,
    T: TenantOf<Req>,
{
    type Response = Svc::Response;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let admitted = self.layer.key(&request).and_then(|key| admit(&self.layer.guard, &key));
        let permit = match admitted {
            Ok(permit) => permit,
            Err(instead) => return Box::pin(ready(Ok(self.layer.answer.answer(instead)))),
        };
        let (run, answer) = (self.inner.call(request), Arc::clone(&self.layer.answer));
        Box::pin(async move {
            // An error, a panic and a cancelled request drop the permit, which releases the key.
            let response = run.await?;
            if answer.is_done(&response) {
                permit.done();
            }
            Ok(response)
        })
    }
}

/// Marks the key, as that of a message with this id and no source.
async fn open<S>(
    inbox: &Inbox<S>,
    TenantKey { tenant, id }: TenantKey,
    content: Option<Bytes>,
    handler: &HandlerKey,
) -> Result<Opened<S>>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    let compare = content.is_some();
    let mut message = Message::new(id, "request", content.unwrap_or_default());
    if let Some(tenant) = tenant {
        message = message.with_tenant(tenant);
    }
    inbox.open_message(&message, compare, handler.as_str()).await
}

/// Ends the transaction, however the request ends: a handle that outlives the request must not keep it open.
struct EndOnDrop<S: Transactional>(RequestTx<S>);

impl<S: Transactional> EndOnDrop<S> {
    /// Rolls back, and returns when that is done.
    async fn rolled_back(self) {
        if let Some(work) = self.0.end() {
            work.rollback().await;
        }
    }
}

impl<S: Transactional> Drop for EndOnDrop<S> {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

impl<Svc, Req, S, K, A, T> Service<Req> for Idempotent<Svc, Marks<S>, K, A, T>
where
    Svc: Service<Req> + Clone + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Response: Send + 'static,
    Svc::Error: Send + 'static,
    Req: CarryTx<S> + Send + 'static,
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
    K: KeyOf<Req>,
    A: ResponsePolicy<Svc::Response>,
    T: TenantOf<Req>,
{
    type Response = Svc::Response;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let answer = Arc::clone(&self.layer.answer);
        let key = match self.layer.key(&request) {
            Ok(key) => key,
            Err(instead) => return Box::pin(ready(Ok(answer.answer(instead)))),
        };
        // The ready service serves this request. Its clone may have to become ready first.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let Marks { inbox, handler } = self.layer.guard.clone();
        Box::pin(async move {
            let (mut request, content) = match request.content(inbox.limits().payload).await {
                Ok(read) => read,
                Err(error) => return Ok(answer.answer(NotRunReason::Refused(error))),
            };
            let work = match open(&inbox, key, content, &handler).await {
                Ok(Opened::First(work)) => work,
                Ok(Opened::Duplicate(result)) => return Ok(answer.answer(NotRunReason::Duplicate(result))),
                Ok(Opened::Conflict) => return Ok(answer.answer(NotRunReason::Conflict)),
                Ok(_) => return Ok(answer.answer(NotRunReason::Busy)),
                Err(error) => return Ok(answer.answer(not_opened(error))),
            };
            let tx = EndOnDrop(RequestTx::new(work));
            request.carry(tx.0.clone());
            let response = match inner.call(request).await {
                Ok(response) => response,
                Err(error) => {
                    tx.rolled_back().await;
                    return Err(error);
                }
            };
            if !answer.is_done(&response) {
                tx.rolled_back().await;
                return Ok(response);
            }
            let committed = match tx.0.end() {
                Some(work) => commit(work, response, &*answer).await,
                None => Err(in_use()),
            };
            Ok(committed.unwrap_or_else(|error| answer.answer(NotRunReason::Failed(error))))
        })
    }
}

/// Returns the reason why a request was not marked.
fn not_opened(error: Error) -> NotRunReason {
    match error.kind() {
        ErrorKind::TooLarge | ErrorKind::InvalidMessage | ErrorKind::MissingKey | ErrorKind::Tenant => {
            NotRunReason::Refused(error)
        }
        _ => NotRunReason::Failed(error),
    }
}

/// Stores the response for duplicates, unless the service set a result itself, and commits.
async fn commit<S, Res, A>(mut work: MarkedWork<S>, response: Res, answer: &A) -> Result<Res>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
    Res: Send,
    A: ResponsePolicy<Res>,
{
    if work.has_result() {
        work.commit().await?;
        return Ok(response);
    }
    let (response, result) = answer.record(response, work.max_result()).await?;
    if let Some(result) = result {
        work.set_result(result)?;
    }
    work.commit().await?;
    Ok(response)
}

/// Returns the error about writes after the response, which cannot be part of the transaction.
fn in_use() -> Error {
    let what = "the service answered while something of it still used the transaction";
    Error::new(ErrorKind::Handler, what)
}
