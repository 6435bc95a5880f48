//! The API for operators, on a running sidecar.

mod access;
mod canary;
mod clients;
mod commands;
mod errors;
mod fuzz;
mod guide;
mod many;
mod one;
mod postgres;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::support::{HttpReply, Receiver, Reply, Request, Sidecar, oncebox, post, request};

/// Returns a new operation id.
fn fresh() -> String {
    oncebox::store::OperationId::fresh().to_string()
}

/// Returns a token and its lines for the configuration.
pub(crate) fn token(name: &str, roles: &[&str]) -> (String, String) {
    let roles: Vec<&str> = roles.iter().flat_map(|role| ["--role", role]).collect();
    let made = oncebox(Path::new("."), &[&["token", name], &roles[..]].concat());
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8(made.stderr).unwrap();
    let token = said.lines().map(str::trim).find(|line| line.starts_with("obx_")).expect("a token");
    (token.to_owned(), String::from_utf8(made.stdout).unwrap())
}

/// A client of the API.
struct Operator {
    base: String,
    token: Option<String>,
}

impl Operator {
    fn new(sidecar: &Sidecar, token: Option<&str>) -> Self {
        Self { base: format!("{}/api/v1", sidecar.operators()), token: token.map(ToOwned::to_owned) }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut all = headers.to_vec();
        all.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        request(method, &format!("{}{path}", self.base), &all, body).expect("an answer")
    }

    fn get(&self, path: &str) -> HttpReply {
        self.ask("GET", path, &[], b"")
    }

    fn post(&self, path: &str, body: &Value) -> HttpReply {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Sends a request that must succeed, and returns its response.
    fn look(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    fn act(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert!(matches!(answer.status, 200 | 202), "{path}: {answer:?}");
        answer.json()
    }

    /// Sends a request that must fail, and returns its problem.
    fn refused(&self, path: &str, body: &Value) -> (u16, String) {
        problem(&self.post(path, body))
    }
}

/// Returns status and word of a problem, which must be complete.
fn problem(answer: &HttpReply) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let json = answer.json();
    assert_eq!(json["status"], answer.status, "{answer:?}");
    for member in ["type", "title", "detail", "kept", "advice"] {
        assert!(json[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {answer:?}");
    }
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    let word = json["type"].as_str().unwrap().strip_prefix("urn:oncebox:problem:").unwrap();
    (answer.status, word.to_owned())
}

/// A handler that fails until it is fixed.
struct Depot {
    handler: Receiver,
    well: Arc<AtomicBool>,
}

impl Depot {
    fn closed() -> Self {
        let well = Arc::new(AtomicBool::new(false));
        let open = Arc::clone(&well);
        let handler = Receiver::new(move |request: &Request| {
            // A message that always fails.
            if open.load(Ordering::SeqCst) && request.id() != "hopeless" {
                return Reply::status(200);
            }
            Reply::Status(500, "", "50% of the depot is closed_".into())
        });
        Self { handler, well }
    }

    fn mend(&self) {
        self.well.store(true, Ordering::SeqCst);
    }
}

/// Starts a sidecar whose messages are poisoned at the first failure.
fn failing(depot: &Depot, more: &str) -> Sidecar {
    Sidecar::with(&config(&depot.handler.url(), more))
}

fn config(url: &str, more: &str) -> String {
    format!(
        "allow_private = [\"127.0.0.0/8\"]\n\
         [api]\n\
         listen = \"127.0.0.1:0\"\n\
         redact_pointers = [\"/card\"]\n\
         redact_patterns = [\"4[0-9]{{15}}\"]\n\
         {more}\n\
         [inbox.orders]\n\
         poll = \"100ms\"\n\
         [inbox.orders.handler.ship]\n\
         url = \"{url}\"\n\
         retry = \"never\"\n"
    )
}

/// Sends messages and waits until each is poisoned.
fn poison(sidecar: &Sidecar, ids: &[&str]) {
    for id in ids {
        post(&sidecar.url("orders"), id, "order.placed", r#"{"card":"secret","order":7}"#);
    }
    sidecar.wait_count("poisoned", ids.len());
}

/// Returns the key of the message with an id.
fn key_of(operator: &Operator, id: &str) -> String {
    let found = operator.look(&format!("/inboxes/orders/entries?id_contains={id}"));
    found["entries"][0]["key"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned()
}
