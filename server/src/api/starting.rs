//! Health responses while the process waits for a store at its start. Tests: below.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use oncebox::HealthStatus;
use serde::Serialize;

use super::problem;

/// Seconds until a client should retry.
const RETRY_AFTER: u64 = 5;

/// A store that the process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AwaitedStore {
    /// Name in the configuration.
    pub(crate) store: String,
    /// Kind of the last error; `None` before the first attempt has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
}

#[derive(Serialize)]
struct StartingHealth {
    status: HealthStatus,
    waiting_for: AwaitedStore,
    inboxes: [(); 0],
}

/// Answers `/livez` with 200: a restart would not bring the store back. Answers `/readyz` with 503 and the name of the store.
pub(super) fn health(path: &str, store: AwaitedStore) -> Response {
    let live = path == "/livez";
    let status = if live { HealthStatus::Degraded } else { HealthStatus::Unhealthy };
    let document = StartingHealth { status, waiting_for: store, inboxes: [] };
    let code = if live { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::to_vec(&document).unwrap_or_default();
    let mut response = problem::respond(code, "application/json", Body::from(body));
    if !live {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn probes_name_the_awaited_store_and_restart_nothing() {
        let store = AwaitedStore { store: "main".into(), reason: Some("unavailable") };
        for (path, code, status) in [("/livez", 200, "degraded"), ("/readyz", 503, "unhealthy")] {
            let response = health(path, store.clone());
            assert_eq!(
                (response.status().as_u16(), response.headers().contains_key("retry-after")),
                (code, code == 503)
            );
            let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
            let expected = format!(
                r#"{{"status":"{status}","waiting_for":{{"store":"main","reason":"unavailable"}},"inboxes":[]}}"#
            );
            assert_eq!(body, expected);
        }
    }
}
