//! Endpoints together: from a request to the store, and back to a response. Tests: tests/answers.rs and
//! tests/refusals.rs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use metrics::SharedString;
use oncebox::observe::{LogThrottle, names};
use oncebox::time::{SharedClock, SystemClock, Timestamp};
use oncebox::{Error, ErrorKind, Inbox, Incoming, Message, Received, Result, Store};

use crate::body::{
    self, BodyLimits, Budget, BudgetShare, DigestTurns, Holding, UnverifiedPool, UnverifiedShare,
};
use crate::endpoint::Endpoint;
use crate::format::{Content, VerifiedRequest, kept};
use crate::problem::{ProblemType, RequestProblem, respond};
use crate::quota::QuotaBucket;
use crate::request_batcher::RequestBatcher;
use crate::response::{self, MessageOutcome};
use crate::verify::{HeadProof, Proof, Refusal, Verify};

/// Log lines per minute, endpoint and reason about unverified senders.
const LINES: u32 = 5;
/// Maximum characters of a path in a log: the sender chooses it.
const LONGEST_PATH: usize = 100;

/// An inbox with any store.
#[async_trait]
pub(crate) trait Sink: Send + Sync {
    /// Receives the messages of one request.
    async fn receive(&self, messages: Vec<Incoming>) -> Result<Vec<Result<Received>>>;

    /// Receives messages of several requests.
    async fn receive_each(&self, messages: Vec<Incoming>) -> Vec<Result<Received>>;

    /// Opens the receive span of a message.
    fn incoming(&self, message: Message) -> Incoming;

    /// Returns true if no handler runs before the response.
    fn only_stores(&self, message: &Message) -> bool;
}

#[async_trait]
impl<S: Store> Sink for Inbox<S> {
    async fn receive(&self, messages: Vec<Incoming>) -> Result<Vec<Result<Received>>> {
        self.receive_batch(messages).await
    }

    async fn receive_each(&self, messages: Vec<Incoming>) -> Vec<Result<Received>> {
        Inbox::receive_each(self, messages).await
    }

    fn incoming(&self, message: Message) -> Incoming {
        Inbox::incoming(self, message)
    }

    fn only_stores(&self, message: &Message) -> bool {
        Inbox::only_stores(self, message)
    }
}

/// Endpoints and the inboxes they feed; becomes an [`axum::Router`].
///
/// All endpoints share one path prefix, `/in` by default. A request below it without an endpoint gets the same response
/// as an unverified sender. The response time may still differ.
#[must_use]
pub struct Ingress {
    prefix: String,
    endpoints: Vec<(Endpoint, Arc<dyn Sink>)>,
    bodies: BodyLimits,
    clock: SharedClock,
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            prefix: "/in".to_owned(),
            endpoints: Vec::new(),
            bodies: BodyLimits::default(),
            clock: SystemClock::shared(),
        }
    }
}

impl Ingress {
    /// Creates an ingress without endpoints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the path prefix of all endpoints; empty for none. Default: `/in`.
    pub fn at(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Adds an endpoint that feeds `inbox`.
    pub fn endpoint<S: Store>(mut self, endpoint: Endpoint, inbox: &Inbox<S>) -> Self {
        self.endpoints.push((endpoint, Arc::new(inbox.clone())));
        self
    }

    /// Sets the limits on bodies.
    pub fn bodies(mut self, limits: BodyLimits) -> Self {
        self.bodies = limits;
        self
    }

    /// Sets the clock for the age of signatures and for quotas.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Validates the configuration and makes the router. It can be merged, nested, or served by
    /// [`Server`](crate::Server). Another server has to limit connections itself.
    pub fn into_router(self) -> Result<Router> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        let Self { prefix, endpoints, bodies, clock } = self;
        let well_formed =
            prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains(['{', '}', '*']);
        if !prefix.is_empty() && !well_formed {
            return refuse(format!("the path {prefix:?} of all endpoints must be like `/in`, or empty"));
        }
        let mut routes: HashMap<Box<str>, Arc<EndpointRoute>> = HashMap::new();
        for (endpoint, sink) in endpoints {
            endpoint.check()?;
            if routes.values().any(|route| route.endpoint.name == endpoint.name) {
                return refuse(format!(
                    "two endpoints are named {:?}; their ids would be mixed",
                    endpoint.name
                ));
            }
            let bucket = endpoint.quota.map(|quota| QuotaBucket::new(quota, clock.monotonic()));
            let (path, source) = (endpoint.path.clone(), Arc::from(&*endpoint.name));
            let route = EndpointRoute { endpoint, source, sink, together: RequestBatcher::default(), bucket };
            if routes.insert(path.clone(), Arc::new(route)).is_some() {
                return refuse(format!("two endpoints have the path {path:?}"));
            }
        }
        let (budget, unverified) = (Budget::new(bodies.in_flight), UnverifiedPool::new(bodies.unverified));
        let route = format!("{prefix}/{{*path}}");
        let digests = DigestTurns::new(std::thread::available_parallelism().map_or(1, usize::from));
        let log_throttle = LogThrottle::new(clock.clone());
        let pipeline =
            RequestPipeline { prefix, routes, bodies, budget, unverified, digests, log_throttle, clock };
        Ok(Router::new().route(&route, axum::routing::any(take)).with_state(Arc::new(pipeline)))
    }
}

impl std::fmt::Debug for Ingress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let endpoints: Vec<&Endpoint> = self.endpoints.iter().map(|(endpoint, _)| endpoint).collect();
        f.debug_struct("Ingress")
            .field("prefix", &self.prefix)
            .field("endpoints", &endpoints)
            .finish_non_exhaustive()
    }
}

/// Steps that every request passes.
struct RequestPipeline {
    prefix: String,
    routes: HashMap<Box<str>, Arc<EndpointRoute>>,
    bodies: BodyLimits,
    /// For verified senders.
    budget: Arc<Budget>,
    /// For unverified senders.
    unverified: Arc<UnverifiedPool>,
    /// Turns for digests of large bodies.
    digests: Arc<DigestTurns>,
    log_throttle: LogThrottle,
    clock: SharedClock,
}

struct EndpointRoute {
    endpoint: Endpoint,
    /// The name of the endpoint, for labels.
    source: Arc<str>,
    sink: Arc<dyn Sink>,
    together: RequestBatcher,
    bucket: Option<QuotaBucket>,
}

async fn take(State(pipeline): State<Arc<RequestPipeline>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let route = pipeline.routes.get(pipeline.path(&parts)).cloned();
    let taken = pipeline.take(route.as_ref(), parts, body).await;
    taken.unwrap_or_else(|problem| {
        count(route.map(|route| Arc::clone(&route.source)).as_ref(), problem.cause.word());
        problem.into_response()
    })
}

/// Counts a response by its result.
fn count(source: Option<&Arc<str>>, result: &'static str) {
    // A client that guesses paths must not add labels.
    let source = source.map_or(SharedString::const_str(""), |source| Arc::clone(source).into());
    metrics::counter!(names::HTTP_RESPONSES, "source" => source, "result" => result).increment(1);
}

impl RequestPipeline {
    async fn take(
        &self,
        route: Option<&Arc<EndpointRoute>>,
        parts: Parts,
        body: Body,
    ) -> Result<Response, RequestProblem> {
        if parts.method != Method::POST {
            return Err(RequestProblem::new(ProblemType::Method, "only POST brings messages").of_untrusted());
        }
        // Check the head first: a body is read only if it can still pass.
        let now = self.clock.now();
        let standing = route.map_or(HeadProof::Fails, |route| route.check_head(&parts, now));
        match (route, standing) {
            (Some(route), HeadProof::Holds) => {
                let (mut share, max) = (BudgetShare::none(&self.budget), self.max_body(route));
                let holding = Holding::Verified(&mut share);
                let body = body::read(body, &parts.headers, max, &self.bodies, holding).await?;
                route.take(&parts, body, share, &self.clock).await
            }
            (Some(route), HeadProof::NeedsBody) => {
                let proven = self.prove(route, parts, body, now).await;
                let (parts, body, room) = proven.map_err(RequestProblem::of_untrusted)?;
                let mut share = BudgetShare::none(&self.budget);
                share.grow(body.len())?;
                drop(room);
                route.take(&parts, body, share, &self.clock).await
            }
            _ => {
                let refused = self.refused(route, &parts, now);
                body::discard(body, &parts.headers).await;
                Err(refused)
            }
        }
    }

    fn max_body(&self, route: &EndpointRoute) -> usize {
        self.bodies.max.min(route.endpoint.max_body)
    }

    /// Reads a body from the pool of unverified senders, and verifies it.
    async fn prove(
        &self,
        route: &Arc<EndpointRoute>,
        parts: Parts,
        body: Body,
        now: Timestamp,
    ) -> Result<(Parts, Bytes, UnverifiedShare), RequestProblem> {
        let room = self.unverified.enter(peer(&parts), head_bytes(&parts.headers));
        let mut room = room.ok_or_else(body::no_room_for_unverified)?;
        let (holding, max) = (Holding::Unverified(&mut room), self.max_body(route));
        let body = body::read(body, &parts.headers, max, &self.bodies, holding).await?;
        let (parts, body, room, holds) = self.verified(route, parts, body, room, now).await?;
        if holds { Ok((parts, body, room)) } else { Err(self.refused(Some(route), &parts, now)) }
    }

    /// Returns the path of an endpoint as registered.
    fn path<'a>(&self, parts: &'a Parts) -> &'a str {
        parts.uri.path().strip_prefix(&*self.prefix).unwrap_or_default()
    }

    /// Returns the one response for unverified senders. Logs the reason for the operator, which the head alone shows.
    fn refused(&self, route: Option<&Arc<EndpointRoute>>, parts: &Parts, now: Timestamp) -> RequestProblem {
        let refusal = route.map_or(Refusal::UnknownPath, |route| route.refusal(parts, now));
        let (source, reason) = (route.map_or("", |route| &route.source), refusal.word());
        let label = route.map_or(SharedString::const_str(""), |route| Arc::clone(&route.source).into());
        metrics::counter!(names::HTTP_UNVERIFIED, "source" => label, "reason" => reason).increment(1);
        if let Some(suppressed) = self.log_throttle.allow_up_to(LINES, reason, source) {
            let path: String = parts.uri.path().chars().take(LONGEST_PATH).collect();
            let (peer, header) = (peer(parts), refusal.header());
            tracing::warn!(
                source,
                reason,
                header,
                peer = peer.map(tracing::field::display),
                path = %path.escape_debug(),
                suppressed,
                advice = refusal.advice(),
                "a sender was not verified"
            );
        }
        RequestProblem::unverified()
    }

    /// Verifies a proof over the body. Digests of large bodies run on blocking threads, a few at once. The pool may
    /// evict a body that waits for its turn.
    async fn verified(
        &self,
        route: &Arc<EndpointRoute>,
        parts: Parts,
        body: Bytes,
        mut room: UnverifiedShare,
        now: Timestamp,
    ) -> Result<(Parts, Bytes, UnverifiedShare, bool), RequestProblem> {
        let digests = route.endpoint.verify.as_ref().is_some_and(Verify::digests_body);
        if !digests || body.len() <= body::SMALL {
            let holds = route.holds(&parts, &body, now);
            return Ok((parts, body, room, holds));
        }
        let turn = tokio::select! {
            biased;
            () = room.evicted() => return Err(body::no_room_for_unverified()),
            turn = self.digests.take(peer(&parts)) => turn,
        };
        let route = Arc::clone(route);
        // The digest outlives a client that disconnects; it returns its room when it ends.
        let digested = tokio::task::spawn_blocking(move || {
            let holds = route.holds(&parts, &body, now);
            drop(turn);
            (parts, body, room, holds)
        });
        digested.await.map_err(|error| {
            tracing::error!(%error, "cannot verify a signature");
            RequestProblem::new(ProblemType::Unavailable, "the signature could not be checked")
        })
    }
}

fn peer(parts: &Parts) -> Option<SocketAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer)
}

/// Returns the approximate bytes of a request head in memory while its body is read.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().fold(1 << 10, |bytes, (name, value)| bytes + name.as_str().len() + value.len() + 64)
}

impl EndpointRoute {
    fn proof<'a>(&self, parts: &'a Parts, body: &'a [u8], now: Timestamp) -> Proof<'a> {
        let peer = peer(parts).map(|peer| peer.ip());
        Proof { parts, body, peer, now, window: self.endpoint.window }
    }

    fn check_head(&self, parts: &Parts, now: Timestamp) -> HeadProof {
        let verify = self.endpoint.verify.as_ref();
        verify.map_or(HeadProof::Fails, |verify| verify.check_head(&self.proof(parts, b"", now)))
    }

    /// Returns the reason why a request of this endpoint was not verified. An endpoint without a proof refuses like an
    /// unknown path.
    fn refusal(&self, parts: &Parts, now: Timestamp) -> Refusal {
        let verify = self.endpoint.verify.as_ref();
        verify.map_or(Refusal::UnknownPath, |verify| verify.refusal(&self.proof(parts, b"", now)))
    }

    fn holds(&self, parts: &Parts, body: &[u8], now: Timestamp) -> bool {
        let verify = self.endpoint.verify.as_ref();
        verify.is_some_and(|verify| verify.holds(&self.proof(parts, body, now)))
    }

    async fn take(
        &self,
        parts: &Parts,
        body: Bytes,
        share: BudgetShare,
        clock: &SharedClock,
    ) -> Result<Response, RequestProblem> {
        let Endpoint { max_batch, .. } = self.endpoint;
        let proof = self.endpoint.verify.as_ref().and_then(Verify::header);
        let message_type = self.endpoint.message_type.as_deref();
        let headers = &parts.headers;
        let sent = VerifiedRequest { headers, kept: kept(headers, proof), message_type, max_batch };
        let content = self.endpoint.format.read(sent, body)?;
        let items = match content {
            Content::One(message) => {
                self.spend(1, clock)?;
                let answer = self.store_one(message, share).await;
                count(Some(&self.source), answer.word());
                return Ok(response::one(answer));
            }
            Content::Many(items) => items,
            Content::Question(text) => {
                return Ok(respond(StatusCode::OK, "text/plain; charset=utf-8", Body::from(text)));
            }
        };
        self.spend(items.len().max(1), clock)?;
        let answers = self.store(items, share).await;
        for answer in &answers {
            count(Some(&self.source), answer.word());
        }
        Ok(response::many(&answers))
    }

    /// Spends messages of the quota.
    fn spend(&self, messages: usize, clock: &SharedClock) -> Result<(), RequestProblem> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let quota = bucket.take(messages, clock.monotonic());
        quota.map_err(|wait| RequestProblem::new(ProblemType::Quota, "the quota is used up").after(wait))
    }

    /// Stores the one message of a request, batched with other requests unless an inline handler runs.
    async fn store_one(&self, message: Message, share: BudgetShare) -> MessageOutcome {
        if self.sink.only_stores(&message) {
            return MessageOutcome::of(
                self.together.receive(&self.sink, self.incoming(message), share).await,
            );
        }
        let mut answers = self.store(vec![Ok(message)], share).await;
        answers.pop().unwrap_or_else(|| MessageOutcome::of(lost()))
    }

    /// Stores the readable messages. Runs in its own task: a disconnect does not stop it, least of all between a commit
    /// and its response.
    async fn store(
        &self,
        items: Vec<Result<Message, RequestProblem>>,
        share: BudgetShare,
    ) -> Vec<MessageOutcome> {
        let (mut messages, mut refused) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            refused.push(item.map(|message| messages.push(self.incoming(message))).err());
        }
        let (sink, count) = (Arc::clone(&self.sink), messages.len());
        let task = tokio::spawn(async move {
            let received = if messages.is_empty() { Ok(Vec::new()) } else { sink.receive(messages).await };
            drop(share);
            received
        });
        let received = match task.await {
            Ok(received) => received,
            Err(panic) => {
                tracing::error!(error = %panic, "storing a message panicked");
                Err(Error::new(ErrorKind::CommitUnknown, "storing the message panicked"))
            }
        };
        let mut received = match received {
            Ok(received) => received,
            Err(error) => (0..count).map(|_| Err(error.to_shared())).collect(),
        }
        .into_iter();
        let answer = |refused: Option<RequestProblem>| match refused {
            Some(problem) => MessageOutcome::Problem(problem),
            None => MessageOutcome::of(received.next().unwrap_or_else(lost)),
        };
        refused.into_iter().map(answer).collect()
    }

    /// Takes source and tenant from the endpoint, never from the sender. Starts the receive span: a request without
    /// proof has none.
    fn incoming(&self, message: Message) -> Incoming {
        let message = message.with_source(self.endpoint.name.clone());
        self.sink.incoming(match &self.endpoint.tenant {
            Some(tenant) => message.with_tenant(tenant.clone()),
            None => message,
        })
    }
}

fn lost() -> Result<Received> {
    Err(Error::new(ErrorKind::CommitUnknown, "the store did not answer for a message"))
}
