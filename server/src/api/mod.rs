//! The HTTP API for operators, with metrics and health for monitoring. Tests: `tests/serve/api/`.

pub(crate) mod access;
mod actions;
mod jobs;
mod logins;
mod openapi;
mod problem;
mod queries;
mod request;
pub(crate) mod routes;
mod starting;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{ConnectInfo, RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, get, on};
use futures_util::FutureExt as _;
use oncebox::{Health, HealthLimits, Inbox, InboxName, Store};
use oncebox_http::{Anonymous, TooManyRefusals, Unproven};
use parking_lot::RwLock;
use serde::Serialize;
use tower::ServiceExt as _;

use access::{Access, ApiCaller, ApiRole, names_own_host};
use jobs::Jobs;
use logins::RefusedLogins;
use problem::{ApiProblem, ProblemKind};
use request::ApiRequest;
use routes::{ApiCall, ApiRoute, Method, PREFIX, ROUTES};

use crate::config::InboxPlan;
use crate::operator::wire::{self, EntryVerb};
use crate::operator::{DoctorQuery, OperatorClient as _, RequestWords, StoreClient};

pub(crate) use starting::AwaitedStore;

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Time limit for receiving a request body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Words of the API in errors of its requests.
pub(crate) const FIELDS: RequestWords = RequestWords {
    actor: "the actor is missing; set `actor`",
    everything: "name the entries in `which`, or set `everything`",
    unknown: "`unknown`",
};

/// Paths outside [`PREFIX`] for monitoring, and the role that each needs.
pub(crate) const OUTSIDE: [(&str, Option<ApiRole>); 3] =
    [("/livez", None), ("/readyz", None), ("/metrics", Some(ApiRole::Viewer))];

/// An inbox that this process serves.
pub(crate) struct ServedInbox {
    pub(crate) plan: Arc<InboxPlan>,
    pub(crate) inbox: Inbox<Arc<dyn Store>>,
    /// Client without a caller.
    pub(crate) operator: StoreClient,
}

impl ServedInbox {
    pub(crate) fn name(&self) -> &InboxName {
        self.inbox.name()
    }
}

/// Inboxes and settings of one configuration.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) inboxes: Vec<ServedInbox>,
    pub(crate) access: Access,
    pub(crate) limits: HealthLimits,
}

impl Current {
    /// Returns the health of each inbox.
    pub(crate) fn health(&self) -> Vec<Health> {
        self.inboxes.iter().map(|served| served.inbox.health_by(&self.limits)).collect()
    }
}

/// State of the API. A reload replaces the configuration while connections stay open.
#[derive(Default)]
pub(crate) struct OperatorApi {
    current: RwLock<Arc<Current>>,
    /// Store that the process waits for at its start.
    awaited: RwLock<Option<AwaitedStore>>,
    jobs: Jobs,
    refused: RefusedLogins,
}

impl OperatorApi {
    /// Replaces the inboxes and settings.
    pub(crate) fn replace(&self, current: Current) {
        *self.current.write() = Arc::new(current);
        *self.awaited.write() = None;
    }

    /// Serves health and metrics while the stores open, with the tokens of the configuration.
    pub(crate) fn starting(&self, access: Access) {
        *self.current.write() = Arc::new(Current { access, ..Current::default() });
    }

    /// Reports the store that the process waits for.
    pub(crate) fn wait_for(&self, store: AwaitedStore) {
        *self.awaited.write() = Some(store);
    }

    /// Returns the store that the process waits for.
    fn awaited(&self) -> Option<AwaitedStore> {
        self.awaited.read().clone()
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }

    /// Stops long operations. An operator continues one with the same operation id.
    pub(crate) fn close(&self) {
        self.jobs.close();
    }

    /// Authorizes a request. Without a required role, returns the caller if the host header names this machine or a token is valid,
    /// and `None` otherwise.
    fn authorize(
        &self,
        current: &Current,
        role: Option<ApiRole>,
        head: &Parts,
    ) -> Result<Option<ApiCaller>, ApiProblem> {
        let peer = head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        // Then even a right token is not looked at: a guess must not learn more than another.
        let guesses = !current.access.tokens.is_empty() && head.extensions.get::<TooManyRefusals>().is_some();
        let Some(role) = role else {
            let caller = || current.access.caller(head, peer).ok().filter(|caller| caller.name.is_some());
            let known = || if guesses { None } else { caller() };
            let anyone = || ApiCaller { name: None, roles: Vec::new() };
            return Ok(if names_own_host(head) { Some(anyone()) } else { known() });
        };
        if guesses {
            return Err(ApiProblem::new(
                ProblemKind::Throttled,
                "too many refused requests came from this address",
            ));
        }
        let lacks =
            || ApiProblem::new(ProblemKind::Forbidden, format!("this needs the role {}", role.as_str()));
        let allowed = |caller: ApiCaller| if caller.may(role) { Ok(caller) } else { Err(lacks()) };
        let caller = current.access.caller(head, peer).and_then(allowed);
        let refused = |problem: &ApiProblem| self.refused.note(problem.kind(), problem.detail(), head, peer);
        caller.inspect_err(refused).map(Some)
    }

    /// Returns all routes. `metrics` serves the metrics.
    pub(crate) fn router(self: &Arc<Self>, metrics: &Router) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            let filter = match route.method {
                Method::Get => MethodFilter::GET,
                Method::Post => MethodFilter::POST,
            };
            let api = Arc::clone(self);
            let answer = move |parts: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
                answer(Arc::clone(&api), route, parts, request)
            };
            router = router.route(&format!("{PREFIX}{}", route.path), on(filter, answer));
        }
        let health = Arc::clone(self);
        let health = oncebox_telemetry::health_router(move || health.current().health());
        for (path, role) in OUTSIDE {
            let (api, inner) = (Arc::clone(self), if role.is_some() { metrics } else { &health });
            let inner = inner.clone();
            let answer = async move |request: Request| {
                let (head, body) = request.into_parts();
                let presents_token = head.headers.contains_key(AUTHORIZATION);
                let caller = match api.authorize(&api.current(), role, &head) {
                    Ok(caller) => caller,
                    Err(problem) => return problem.into_response(),
                };
                let answer = match (role, api.awaited()) {
                    (None, Some(store)) => starting::health(path, store),
                    _ => inner.oneshot(Request::from_parts(head, body)).await.into_response(),
                };
                let mut answer =
                    if caller.is_some() { problem::guarded(answer) } else { without_details(&answer) };
                if caller.is_none() && presents_token {
                    answer.extensions_mut().insert(Unproven);
                }
                if role.is_none() { anonymous(answer) } else { answer }
            };
            router = router.route(path, get(answer));
        }
        router
            .fallback(async || ApiProblem::new(ProblemKind::NotFound, "the path does not exist"))
            .method_not_allowed_fallback(async || {
                ApiProblem::new(ProblemKind::Method, "the path exists, with other methods")
            })
    }
}

/// Marks an answer that every client gets: it proves nothing about the sender.
fn anonymous(mut answer: Response) -> Response {
    answer.extensions_mut().insert(Anonymous);
    answer
}

/// Reduces a health response to its status: any page in a browser can send such a request.
fn without_details(answer: &Response) -> Response {
    let word = if answer.status().is_success() { "ok\n" } else { "not ok\n" };
    problem::respond(answer.status(), "text/plain; charset=utf-8", Body::from(word))
}

async fn answer(
    api: Arc<OperatorApi>,
    route: &'static ApiRoute,
    parts: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let answered = AssertUnwindSafe(answered(api, route, parts, request)).catch_unwind().await;
    match answered {
        Ok(Ok(response)) if route.role.is_none() => anonymous(response),
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        // Not quoted: the panic message may hold a payload.
        Err(_) => {
            tracing::error!(call = route.call.name(), "API request panicked");
            let kind = if route.is_read() { ProblemKind::Internal } else { ProblemKind::Unknown };
            ApiProblem::new(kind, "the request panicked; see the log").into_response()
        }
    }
}

async fn answered(
    api: Arc<OperatorApi>,
    route: &'static ApiRoute,
    parts: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Result<Response, ApiProblem> {
    let (head, body) = request.into_parts();
    let current = api.current();
    let foreign = || {
        if head.headers.contains_key(AUTHORIZATION) {
            return ApiProblem::new(ProblemKind::Unauthenticated, "the token is unknown");
        }
        let what = "the host header does not name this machine; send a token";
        ApiProblem::new(ProblemKind::Forbidden, what)
    };
    let caller = api.authorize(&current, route.role, &head)?.ok_or_else(foreign)?;
    if let (Some(_), Some(store)) = (route.role, api.awaited()) {
        return Err(ApiProblem::new(
            ProblemKind::Unavailable,
            format!("the store {:?} is not open yet", store.store),
        ));
    }
    let parts = parts.map_err(|_| ApiProblem::new(ProblemKind::Malformed, "the path is not valid"))?;
    let parts = parts.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = if route.takes_body() { read(&head.headers, body).await? } else { Bytes::new() };
    let query = head.uri.query().unwrap_or_default().to_owned();
    let request = ApiRequest { api, current, call: route.call, caller, parts, query, body };
    if !query_is_known(&request) {
        return Err(ApiProblem::new(ProblemKind::Malformed, "this path has no query parameters"));
    }
    run(&request, route).await.map_err(|problem| if route.is_read() { problem.of_read() } else { problem })
}

/// Returns false for a query on a route that has no parameters.
fn query_is_known(request: &ApiRequest) -> bool {
    request.query.is_empty() || !openapi::query_kinds(request.call).is_empty()
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiProblem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(ApiProblem::new(ProblemKind::MediaType, "the content-type is not application/json"));
    }
    let late = |_| ApiProblem::new(ProblemKind::Timeout, "the body did not arrive in time");
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_BODY)).await.map_err(late)?;
    // Too long, or the client hung up and reads no response.
    read.map_err(|_| ApiProblem::new(ProblemKind::TooLarge, format!("the body exceeds {MAX_BODY} bytes")))
}

fn json<T: Serialize>(route: &ApiRoute, answer: &T) -> Result<Response, ApiProblem> {
    let bytes = serde_json::to_vec(answer)
        .map_err(|_| ApiProblem::new(ProblemKind::Internal, "cannot encode the response"))?;
    let status = StatusCode::from_u16(route.status).unwrap_or(StatusCode::OK);
    Ok(problem::respond(status, "application/json", Body::from(bytes)))
}

async fn run(request: &ApiRequest, route: &ApiRoute) -> Result<Response, ApiProblem> {
    let client = || request.client();
    match request.call {
        ApiCall::OpenApi => json(route, &openapi::document()),
        ApiCall::Me => json(route, &queries::me(request)),
        ApiCall::Inboxes => json(route, &queries::inboxes(request)),
        ApiCall::Counts => {
            let query: wire::TenantQuery = request.query()?;
            json(route, &client()?.counts(query.tenant.as_deref()).await?)
        }
        ApiCall::Entries => json(route, &client()?.entries(&request.query()?).await?),
        ApiCall::Message => json(route, &client()?.message(&request.key()?).await?),
        ApiCall::Payload => json(route, &client()?.payloads(&request.key()?).await?),
        ApiCall::Explain => json(route, &client()?.explain(&request.key()?).await?),
        ApiCall::Quarantine => json(route, &client()?.quarantined(&request.query()?).await?),
        ApiCall::Blocked => json(route, &client()?.blocked(&request.query()?).await?),
        ApiCall::Handlers => json(route, &queries::handlers(request).await?),
        ApiCall::Retention => json(route, &queries::retention(request)?),
        ApiCall::Doctor => json(route, &client()?.doctor(&DoctorQuery::default()).await?),
        ApiCall::Audit => json(route, &client()?.audit(&request.query()?).await?),
        ApiCall::Operation => json(route, &actions::progress(request).await?),
        ApiCall::Stop => json(route, &actions::stop(request).await?),
        ApiCall::Retry => entry(request, route, EntryVerb::Retry).await,
        ApiCall::Discard => entry(request, route, EntryVerb::Discard).await,
        ApiCall::Replay => entry(request, route, EntryVerb::Replay).await,
        ApiCall::Unblock => entry(request, route, EntryVerb::Unblock).await,
        ApiCall::BulkPreview => json(route, &client()?.preview(&request.body()?).await?),
        ApiCall::Bulk => json(route, &actions::bulk(request).await?),
        ApiCall::Pause => json(route, &client()?.hold(true, &request.body()?).await?),
        ApiCall::Resume => json(route, &client()?.hold(false, &request.body()?).await?),
        ApiCall::PurgePreview => json(route, &client()?.purge_preview(&request.body()?).await?),
        ApiCall::Erase => json(route, &client()?.erase(&request.key()?, &request.body()?).await?),
        ApiCall::Purge => json(route, &client()?.purge(&request.body()?).await?),
        ApiCall::Backfill => json(route, &actions::backfill(request).await?),
    }
}

async fn entry(request: &ApiRequest, route: &ApiRoute, verb: EntryVerb) -> Result<Response, ApiProblem> {
    json(route, &request.client()?.act(verb, &request.key()?, &request.body()?).await?)
}
