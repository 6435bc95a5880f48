//! Routes of a real axum router, each made idempotent with one line.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Router, http};
use oncebox::{Inbox, Memory, Recent};
use oncebox_sqlite::rusqlite::Connection;
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_tower::{IdempotentLayer, RequestTx, header};
use tempfile::TempDir;
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt as _;

fn request(key: &str, body: &str) -> Request {
    let request = http::Request::post("/charge").header("idempotency-key", key);
    request.body(Body::from(body.to_owned())).unwrap()
}

struct ShopReply {
    status: StatusCode,
    duplicate: bool,
    retry_after: Option<String>,
    body: String,
}

async fn send(router: &Router, request: Request) -> ShopReply {
    let response: Response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, duplicate, retry_after) =
        (parts.status, header("oncebox-duplicate").as_deref() == Some("true"), header("retry-after"));
    let body = to_bytes(body, 1 << 20).await.unwrap();
    ShopReply { status, duplicate, retry_after, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// A shop in a SQLite file, with an inbox beside its table.
struct ShopFixture {
    dir: TempDir,
    inbox: Inbox<Sqlite>,
}

impl ShopFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store =
            Sqlite::options(dir.path().join("shop.db")).synchronous(Synchronous::Normal).open().unwrap();
        let inbox = Inbox::builder("shop", store).build().unwrap();
        let shop = Self { dir, inbox };
        // No column is unique, so that a double run shows.
        shop.connect().execute_batch("CREATE TABLE charge (body TEXT NOT NULL)").unwrap();
        shop
    }

    fn connect(&self) -> Connection {
        Connection::open(self.dir.path().join("shop.db")).unwrap()
    }

    fn charges(&self) -> i64 {
        self.connect().query_row("SELECT count(*) FROM charge", [], |row| row.get(0)).unwrap()
    }

    fn route(&self) -> Router {
        let layer =
            IdempotentLayer::transactional(self.inbox.clone(), "charge", header("idempotency-key")).unwrap();
        Router::new().route("/charge", post(charge).layer(layer))
    }
}

/// Charges by the request's body, which also selects the end of the run.
async fn charge(
    Extension(tx): Extension<RequestTx<Sqlite>>,
    body: String,
) -> Result<(StatusCode, String), StatusCode> {
    let mut tx = tx.lock().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    tx.execute("INSERT INTO charge VALUES (?1)", [&body]).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let receipt = format!("receipt for {body}");
    tx.set_result(receipt.clone()).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    match body.as_str() {
        "declined" => Err(StatusCode::PAYMENT_REQUIRED),
        "panic" => panic!("the card reader is on fire"),
        _ => Ok((StatusCode::CREATED, receipt)),
    }
}

#[tokio::test]
async fn a_transactional_route_takes_effect_once_and_answers_alike() {
    let shop = ShopFixture::new();
    let router = shop.route();
    let first = send(&router, request("1", "7 euro")).await;
    assert_eq!(
        (first.status, first.duplicate, &*first.body),
        (StatusCode::CREATED, false, "receipt for 7 euro")
    );
    for _ in 0..2 {
        let again = send(&router, request("1", "7 euro")).await;
        assert_eq!((again.status, again.duplicate), (StatusCode::OK, true));
        assert_eq!(again.body, first.body, "the stored result");
    }
    assert_eq!(shop.charges(), 1);
    assert_eq!(send(&router, request("2", "7 euro")).await.status, StatusCode::CREATED);
    assert_eq!(shop.charges(), 2);
}

#[tokio::test]
async fn a_response_that_says_no_forgets_the_mark_and_the_writes() {
    let shop = ShopFixture::new();
    let router = shop.route();
    assert_eq!(send(&router, request("1", "declined")).await.status, StatusCode::PAYMENT_REQUIRED);
    assert_eq!(shop.charges(), 0);
    assert_eq!(send(&router, request("1", "7 euro")).await.status, StatusCode::CREATED);
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_panic_forgets_the_mark_and_the_writes() {
    let shop = ShopFixture::new();
    let router = shop.route();
    let panicked = tokio::spawn({
        let router = router.clone();
        async move { router.oneshot(request("1", "panic")).await.map(|_| ()) }
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(send(&router, request("1", "7 euro")).await.status, StatusCode::CREATED);
    assert_eq!(shop.charges(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_at_once_one_takes_effect() {
    let shop = ShopFixture::new();
    let router = shop.route();
    let storm: Vec<_> = (0..16)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move { send(&router, request("1", "7 euro")).await })
        })
        .collect();
    let mut created = 0;
    for answer in storm {
        let answer = answer.await.unwrap();
        match answer.status {
            StatusCode::CREATED => created += 1,
            StatusCode::OK => assert!(answer.duplicate && answer.body == "receipt for 7 euro"),
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => assert!(answer.retry_after.is_some()),
            other => panic!("{other}"),
        }
    }
    assert_eq!((created, shop.charges()), (1, 1));
}

#[tokio::test]
async fn a_request_without_a_key_is_refused() {
    let shop = ShopFixture::new();
    let recent = Router::new().route(
        "/charge",
        post(|| async { "charged" })
            .layer(IdempotentLayer::recent(Recent::default(), header("idempotency-key"))),
    );
    for router in [shop.route(), recent] {
        let none = http::Request::post("/charge").body(Body::empty()).unwrap();
        let twice =
            http::Request::post("/charge").header("idempotency-key", "1").header("idempotency-key", "2");
        for bad in [none, request("", "7 euro"), request("\t ", "7 euro"), twice.body(Body::empty()).unwrap()]
        {
            let answer = send(&router, bad).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
        }
    }
    assert_eq!(shop.charges(), 0);
}

#[tokio::test]
async fn a_recent_route_runs_once_and_is_busy_meanwhile() {
    let runs = Arc::new(AtomicUsize::new(0));
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let serve = {
        let (runs, begun, go) = (Arc::clone(&runs), Arc::clone(&begun), Arc::clone(&go));
        move |body: String| async move {
            runs.fetch_add(1, Ordering::Relaxed);
            begun.notify_one();
            go.acquire().await.unwrap().forget();
            if body == "bad" { Err(StatusCode::UNPROCESSABLE_ENTITY) } else { Ok("charged") }
        }
    };
    let layer = IdempotentLayer::recent(Recent::default(), header("idempotency-key"));
    let router = Router::new().route("/charge", post(serve).layer(layer));
    let first = tokio::spawn({
        let router = router.clone();
        async move { send(&router, request("1", "bad")).await }
    });
    begun.notified().await;
    let busy = send(&router, request("1", "bad")).await;
    assert_eq!((busy.status, busy.retry_after.as_deref()), (StatusCode::CONFLICT, Some("1")));
    go.add_permits(2);
    assert_eq!(first.await.unwrap().status, StatusCode::UNPROCESSABLE_ENTITY);
    // The first request failed, so the key is free.
    let second = send(&router, request("1", "good")).await;
    assert_eq!((second.status, second.duplicate), (StatusCode::OK, false));
    let third = send(&router, request("1", "good")).await;
    assert_eq!((third.status, third.duplicate, &*third.body), (StatusCode::OK, true, ""));
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_counts_as_done_can_be_chosen() {
    let runs = Arc::new(AtomicUsize::new(0));
    let serve = {
        let runs = Arc::clone(&runs);
        move || async move {
            runs.fetch_add(1, Ordering::Relaxed);
            StatusCode::NOT_FOUND
        }
    };
    // A retry cannot succeed.
    let layer = IdempotentLayer::recent(Recent::default(), header("idempotency-key"))
        .done_when(|response: &Response| !response.status().is_server_error());
    let router = Router::new().route("/charge", post(serve).layer(layer));
    assert_eq!(send(&router, request("1", "")).await.status, StatusCode::NOT_FOUND);
    assert!(send(&router, request("1", "")).await.duplicate);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// Responds, and leaves a task behind that keeps the transaction.
async fn hold(
    Extension(tx): Extension<RequestTx<Memory>>,
    Extension(go): Extension<Arc<Semaphore>>,
) -> &'static str {
    let guard = tx.lock().await.unwrap();
    tokio::spawn(async move {
        go.acquire().await.unwrap().forget();
        drop(guard);
    });
    "done, or so it says"
}

#[tokio::test]
async fn a_transaction_that_is_still_in_use_is_not_committed() {
    let inbox = Inbox::builder("shop", Memory::new()).build().unwrap();
    let layer = IdempotentLayer::transactional(inbox, "hold", header("idempotency-key")).unwrap();
    let go = Arc::new(Semaphore::new(0));
    let router = Router::new().route("/charge", post(hold).layer(layer)).layer(Extension(Arc::clone(&go)));
    assert_eq!(send(&router, request("1", "")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(send(&router, request("1", "")).await.status, StatusCode::CONFLICT, "still open");
    go.add_permits(1);
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(send(&router, request("1", "")).await.status, StatusCode::SERVICE_UNAVAILABLE, "free again");
}
