//! What watchers and operators are told while the process waits for a store at its start.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use oncebox::HealthStatus;
use serde::Serialize;

use super::problem;

/// When to ask again.
const RETRY_AFTER: u64 = 5;

/// A store that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AwaitedStore {
    /// Its name in the configuration.
    pub(crate) store: String,
    /// The kind of the last error; nothing before the first attempt has ended.
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
    async fn a_probe_is_told_what_is_waited_for_and_does_not_kill() {
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
