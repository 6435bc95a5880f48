//! Endpoints together: from a request to the store, and back to an answer.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use metrics::SharedString;
use oncebox::observe::{Hush, names};
use oncebox::time::{SharedClock, SystemClock};
use oncebox::{Error, ErrorKind, Inbox, Incoming, Message, Received, Result, Store};

use crate::answer::{self, Answer};
use crate::body::{self, BodyLimits, Budget, Share};
use crate::endpoint::Endpoint;
use crate::format::{Content, Sent, kept};
use crate::problem::{Cause, Problem, respond};
use crate::quota::Bucket;
use crate::together::Together;
use crate::verify::{Proof, REPLAY_WINDOW, Refusal, Verify};

/// So many lines a minute say why the senders of one endpoint are not verified, for each reason.
const LINES: u32 = 5;
/// A path is logged up to this length, in characters: a sender chooses it.
const LONGEST_PATH: usize = 100;

/// An inbox, whatever its store.
#[async_trait]
pub(crate) trait Sink: Send + Sync {
    /// Messages of one request.
    async fn receive(&self, messages: Vec<Incoming>) -> Result<Vec<Result<Received>>>;

    /// Messages of several requests.
    async fn receive_each(&self, messages: Vec<Incoming>) -> Vec<Result<Received>>;

    /// Opens the receive span of a message.
    fn incoming(&self, message: Message) -> Incoming;

    /// Whether no handler runs before the answer.
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
/// All endpoints live under one path, `/in` if nothing else is said. Who sends to an address under it that is none gets
/// the same answer as one who cannot prove who it is, so that addresses cannot be found by trying.
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
    /// No endpoints yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another path than `/in` for all of them; empty for none.
    pub fn at(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Adds an endpoint; its messages go into `inbox`.
    pub fn endpoint<S: Store>(mut self, endpoint: Endpoint, inbox: &Inbox<S>) -> Self {
        self.endpoints.push((endpoint, Arc::new(inbox.clone())));
        self
    }

    /// What bodies may cost.
    pub fn bodies(mut self, limits: BodyLimits) -> Self {
        self.bodies = limits;
        self
    }

    /// The clock by which signatures are too old and quotas come back.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Checks everything, and makes the router. It can be merged into another one, nested, or served by
    /// [`Server`](crate::Server). Where it is served by something else, the limits on connections are that one's business.
    pub fn into_router(self) -> Result<Router> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        let Self { prefix, endpoints, bodies, clock } = self;
        let well_formed =
            prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains(['{', '}', '*']);
        if !prefix.is_empty() && !well_formed {
            return refuse(format!("the path {prefix:?} of all endpoints must be like `/in`, or empty"));
        }
        let mut routes: HashMap<Box<str>, Arc<Route>> = HashMap::new();
        for (endpoint, sink) in endpoints {
            endpoint.check()?;
            if routes.values().any(|route| route.endpoint.name == endpoint.name) {
                return refuse(format!(
                    "two endpoints are named {:?}; their ids would be mixed",
                    endpoint.name
                ));
            }
            let bucket = endpoint.quota.map(|quota| Bucket::new(quota, clock.monotonic()));
            let (path, source) = (endpoint.path.clone(), Arc::from(&*endpoint.name));
            let route = Route { endpoint, source, sink, together: Together::default(), bucket };
            if routes.insert(path.clone(), Arc::new(route)).is_some() {
                return refuse(format!("two endpoints have the path {path:?}"));
            }
        }
        let budget = Budget::new(bodies.in_flight);
        let route = format!("{prefix}/{{*path}}");
        let gate = Gate {
            prefix,
            routes,
            nobody: Verify::nobody()?,
            bodies,
            budget,
            hush: Hush::new(clock.clone()),
            clock,
        };
        Ok(Router::new().route(&route, axum::routing::any(take)).with_state(Arc::new(gate)))
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

/// What every request passes.
struct Gate {
    prefix: String,
    routes: HashMap<Box<str>, Arc<Route>>,
    nobody: Verify,
    bodies: BodyLimits,
    budget: Arc<Budget>,
    hush: Hush,
    clock: SharedClock,
}

struct Route {
    endpoint: Endpoint,
    /// Its name, for labels.
    source: Arc<str>,
    sink: Arc<dyn Sink>,
    together: Together,
    bucket: Option<Bucket>,
}

/// Up to the proof, a request is treated alike whether its address exists or not.
async fn take(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    gate.take(&parts, body).await.unwrap_or_else(|problem| {
        let route = gate.routes.get(gate.path(&parts));
        count(route.map(|route| &route.source), problem.cause.word());
        problem.into_response()
    })
}

/// Counts what a sender is told.
fn count(source: Option<&Arc<str>>, answer: &'static str) {
    // Whoever tries addresses makes no labels.
    let source = source.map_or(SharedString::const_str(""), |source| Arc::clone(source).into());
    metrics::counter!(names::HTTP_ANSWERS, "source" => source, "answer" => answer).increment(1);
}

impl Gate {
    async fn take(&self, parts: &Parts, body: Body) -> Result<Response, Problem> {
        if parts.method != Method::POST {
            return Err(Problem::new(Cause::Method, "only POST brings messages"));
        }
        let (body, share) = body::read(body, &parts.headers, &self.bodies, &self.budget).await?;
        let route = self.verified(parts, &body).map_err(|refusal| self.refused(parts, refusal))?;
        route.take(parts, body, share, &self.clock).await
    }

    /// The path of an endpoint, as it is registered.
    fn path<'a>(&self, parts: &'a Parts) -> &'a str {
        parts.uri.path().strip_prefix(&*self.prefix).unwrap_or_default()
    }

    /// The one answer to a sender that was not verified. The operator is told why.
    fn refused(&self, parts: &Parts, refusal: Refusal) -> Problem {
        let route = self.routes.get(self.path(parts));
        let (source, reason) = (route.map_or("", |route| &route.source), refusal.word());
        let label = route.map_or(SharedString::const_str(""), |route| Arc::clone(&route.source).into());
        metrics::counter!(names::HTTP_UNVERIFIED, "source" => label, "reason" => reason).increment(1);
        if let Some(unsaid) = self.hush.may_say_up_to(LINES, reason, source) {
            let path: String = parts.uri.path().chars().take(LONGEST_PATH).collect();
            let (peer, header) = (peer(parts), refusal.header());
            tracing::warn!(
                source,
                reason,
                header,
                peer = peer.map(tracing::field::display),
                path = %path.escape_debug(),
                unsaid,
                advice = refusal.advice(),
                "a sender was not verified"
            );
        }
        Problem::unverified()
    }

    /// The endpoint of a request, if its sender is who it should be.
    fn verified(&self, parts: &Parts, body: &Bytes) -> Result<&Arc<Route>, Refusal> {
        let route = self.routes.get(self.path(parts));
        let endpoint = route.map(|route| &route.endpoint);
        let verify = endpoint.and_then(|endpoint| endpoint.verify.as_ref());
        let window = endpoint.map_or(REPLAY_WINDOW, |endpoint| endpoint.window);
        let proof = Proof {
            headers: &parts.headers,
            body,
            peer: peer(parts),
            authority: parts.uri.authority(),
            now: self.clock.now(),
            window,
        };
        let holds = Verify::any_holds(verify, &self.nobody, &proof);
        if let Some(route) = route.filter(|_| holds) {
            return Ok(route);
        }
        Err(verify.map_or(Refusal::UnknownPath, |verify| verify.refusal(&proof)))
    }
}

fn peer(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
}

impl Route {
    async fn take(
        &self,
        parts: &Parts,
        body: Bytes,
        share: Share,
        clock: &SharedClock,
    ) -> Result<Response, Problem> {
        let Endpoint { max_body, max_batch, .. } = self.endpoint;
        if body.len() > max_body {
            return Err(body::too_large(max_body));
        }
        let proof = self.endpoint.verify.as_ref().and_then(Verify::header);
        let kind = self.endpoint.kind.as_deref();
        let headers = &parts.headers;
        let sent = Sent { headers, kept: kept(headers, proof), kind, max_batch };
        let content = self.endpoint.format.read(sent, body)?;
        let items = match content {
            Content::One(message) => {
                self.spend(1, clock)?;
                let answer = self.store_one(message, share).await;
                count(Some(&self.source), answer.word());
                return Ok(answer::one(answer));
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
        Ok(answer::many(&answers))
    }

    /// Takes messages from the quota.
    fn spend(&self, messages: usize, clock: &SharedClock) -> Result<(), Problem> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let quota = bucket.take(messages, clock.monotonic());
        quota.map_err(|wait| Problem::new(Cause::Quota, "the quota is used up").after(wait))
    }

    /// Stores the one message of a request, together with those of others; unless a handler runs first.
    async fn store_one(&self, message: Message, share: Share) -> Answer {
        if self.sink.only_stores(&message) {
            return Answer::of(self.together.receive(&self.sink, self.incoming(message), share).await);
        }
        let mut answers = self.store(vec![Ok(message)], share).await;
        answers.pop().unwrap_or_else(|| Answer::of(lost()))
    }

    /// Stores what could be read. In a task of its own: a sender that goes away does not stop it, least of all between a
    /// commit and its answer.
    async fn store(&self, items: Vec<Result<Message, Problem>>, share: Share) -> Vec<Answer> {
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
            Err(error) => (0..count).map(|_| Err(error.duplicate())).collect(),
        }
        .into_iter();
        let answer = |refused: Option<Problem>| match refused {
            Some(problem) => Answer::Problem(problem),
            None => Answer::of(received.next().unwrap_or_else(lost)),
        };
        refused.into_iter().map(answer).collect()
    }

    /// The source and tenant are what was proven, not what the sender says. Its receive span begins here: a request without proof
    /// has none.
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
