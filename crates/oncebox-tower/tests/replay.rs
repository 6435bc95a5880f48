//! Repeats of HTTP requests: the stored response, another request under the key, and tenants.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, StatusCode, header as names};
use axum::response::IntoResponse;
use axum::routing::any;
use axum::{Router, http};
use oncebox::config::{Config, Limits, Tenants};
use oncebox::store::{MarkIn, Transactional};
use oncebox::{Inbox, Memory, Recent};
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_tower::{IdempotentLayer, header};
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt as _;

/// Runs of the route, and a gate that holds them.
#[derive(Clone)]
struct ChargeRuns {
    count: Arc<AtomicUsize>,
    begun: Arc<Notify>,
    go: Arc<Semaphore>,
}

impl ChargeRuns {
    fn new() -> Self {
        Self { count: Arc::default(), begun: Arc::default(), go: Arc::new(Semaphore::new(1_000)) }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

async fn charge(Extension(runs): Extension<ChargeRuns>, body: String) -> impl IntoResponse {
    let run = runs.count.fetch_add(1, Ordering::Relaxed) + 1;
    runs.begun.notify_one();
    runs.go.acquire().await.unwrap().forget();
    let headers = [
        ("location", format!("/charges/{run}")),
        ("content-type", "application/json".to_owned()),
        ("set-cookie", "session=1".to_owned()),
    ];
    (StatusCode::CREATED, headers, format!("{{\"run\":{run},\"of\":{body:?}}}"))
}

/// Returns the route in a transaction of the store, with the tenant in a header.
fn router<S>(inbox: Inbox<S>, runs: &ChargeRuns) -> Router
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    let tenant = |request: &Request| {
        request.headers().get("tenant").and_then(|tenant| tenant.to_str().ok()).map(ToOwned::to_owned)
    };
    let layer = IdempotentLayer::transactional(inbox, "charge", header("idempotency-key")).unwrap();
    Router::new().route("/{*path}", any(charge).layer(layer.tenant(tenant))).layer(Extension(runs.clone()))
}

fn request(key: &str, method: &str, path: &str, body: &str) -> Request {
    let request = http::Request::builder().method(method).uri(path).header("idempotency-key", key);
    request.body(Body::from(body.to_owned())).unwrap()
}

fn of_tenant(tenant: &str, key: &str) -> Request {
    let mut request = request(key, "POST", "/charge", "7 euro");
    request.headers_mut().insert("tenant", tenant.parse().unwrap());
    request
}

async fn send(router: &Router, request: Request) -> (StatusCode, HeaderMap, String) {
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn status(router: &Router, request: Request) -> u16 {
    send(router, request).await.0.as_u16()
}

fn sqlite(dir: &tempfile::TempDir) -> Sqlite {
    Sqlite::options(dir.path().join("shop.db")).synchronous(Synchronous::Normal).open().unwrap()
}

async fn repeats_get_the_first_response<S>(inbox: Inbox<S>)
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    let runs = ChargeRuns::new();
    let router = router(inbox, &runs);
    let first = send(&router, request("1", "POST", "/charge?x=1", "7 euro")).await;
    assert_eq!(first.0, StatusCode::CREATED);
    for _ in 0..2 {
        let (status, headers, body) = send(&router, request("1", "POST", "/charge?x=1", "7 euro")).await;
        assert_eq!((status, &body), (first.0, &first.2));
        for name in [names::LOCATION, names::CONTENT_TYPE] {
            assert_eq!(headers.get(&name), first.1.get(&name), "{name}");
        }
        assert_eq!(headers["oncebox-duplicate"], "true");
        assert!(!headers.contains_key(names::SET_COOKIE), "a session is not stored");
    }
    for other in [
        request("1", "POST", "/charge?x=1", "8 euro"),
        request("1", "POST", "/charge?x=2", "7 euro"),
        request("1", "POST", "/refund?x=1", "7 euro"),
        request("1", "PUT", "/charge?x=1", "7 euro"),
    ] {
        let (status, headers, body) = send(&router, other).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert!(!headers.contains_key("oncebox-duplicate"));
    }
    assert_eq!(status(&router, request("1", "POST", "/charge?x=1", "7 euro")).await, 201);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn repeats_get_the_first_response_on_memory() {
    repeats_get_the_first_response(Inbox::builder("shop", Memory::new()).build().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_get_the_first_response_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    repeats_get_the_first_response(Inbox::builder("shop", sqlite(&dir)).build().unwrap()).await;
}

#[tokio::test]
async fn a_repeat_while_the_first_runs_is_a_conflict() {
    let mut runs = ChargeRuns::new();
    runs.go = Arc::new(Semaphore::new(0));
    let router = router(Inbox::builder("shop", Memory::new()).build().unwrap(), &runs);
    let first = tokio::spawn({
        let router = router.clone();
        async move { send(&router, request("1", "POST", "/charge", "7 euro")).await }
    });
    runs.begun.notified().await;
    let (status, headers, _) = send(&router, request("1", "POST", "/charge", "7 euro")).await;
    assert_eq!((status, &headers[names::RETRY_AFTER]), (StatusCode::CONFLICT, &"1".parse().unwrap()));
    runs.go.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!(send(&router, request("1", "POST", "/charge", "7 euro")).await.2, first.2);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn tenants_do_not_share_keys() {
    let config = Config { tenants: Tenants::Required, ..Config::default() };
    let runs = ChargeRuns::new();
    let inbox = Inbox::builder("shop", Memory::new()).config(config).build().unwrap();
    let router = router(inbox, &runs);
    let a = send(&router, of_tenant("a", "1")).await;
    let b = send(&router, of_tenant("b", "1")).await;
    assert_eq!((a.0, b.0, runs.count()), (StatusCode::CREATED, StatusCode::CREATED, 2));
    assert_eq!(send(&router, of_tenant("a", "1")).await.2, a.2, "its own response, not that of the other");
    assert_eq!(send(&router, of_tenant("b", "1")).await.2, b.2);
    let (status, _, body) = send(&router, request("1", "POST", "/charge", "7 euro")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "no tenant");
    assert!(body.contains("tenant"), "{body}");
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn tenants_do_not_share_keys_in_memory() {
    let tenant =
        |request: &Request| request.headers().get("tenant").map(|one| one.to_str().unwrap().to_owned());
    let layer = IdempotentLayer::recent(Recent::default(), header("idempotency-key")).tenant(tenant);
    let runs = ChargeRuns::new();
    let router = Router::new().route("/charge", any(charge).layer(layer)).layer(Extension(runs.clone()));
    for _ in 0..2 {
        for tenant in ["a", "b"] {
            send(&router, of_tenant(tenant, "1")).await;
        }
        send(&router, request("1", "POST", "/charge", "7 euro")).await;
    }
    assert_eq!(runs.count(), 3, "two tenants, and requests without one");
}

#[tokio::test]
async fn what_is_too_large_is_refused_whole() {
    let runs = ChargeRuns::new();
    let build = |payload, result| {
        let limits = Limits { payload, result, ..Limits::default() };
        let config = Config { limits, ..Config::default() };
        router(Inbox::builder("shop", Memory::new()).config(config).build().unwrap(), &runs)
    };
    let router = build(100, 1 << 10);
    assert_eq!(status(&router, request("1", "POST", "/charge", &"7".repeat(101))).await, 413);
    assert_eq!(runs.count(), 0);
    assert_eq!(status(&router, request("1", "POST", "/charge", &"7".repeat(80))).await, 201);
    // A response that cannot be stored would be lost for repeats, so its work is rolled back.
    let router = build(1 << 10, 60);
    assert_eq!(status(&router, request("1", "POST", "/charge", &"7".repeat(101))).await, 500);
    assert_eq!(status(&router, request("1", "POST", "/charge", "7")).await, 500, "with its headers");
    assert_eq!(runs.count(), 3, "nothing was marked");
}
