//! Access: every route with every role.

use std::io::{Read as _, Write as _};

use super::super::support::{Sidecar, oncebox, request};
use super::{Depot, Operator, config, failing, problem, token};

/// Every route and its required role. Add new routes here.
const ROUTES: &[(&str, &str, Option<&str>)] = &[
    ("GET", "/api/v1/openapi.json", None),
    ("GET", "/api/v1/me", Some("viewer")),
    ("GET", "/api/v1/inboxes", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/counts", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/entries", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/messages/{key}", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/messages/{key}/payload", Some("payload-reader")),
    ("GET", "/api/v1/inboxes/{inbox}/messages/{key}/explain", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/quarantine", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/blocked", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/handlers", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/retention", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/doctor", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/audit", Some("viewer")),
    ("GET", "/api/v1/inboxes/{inbox}/operations/{operation}", Some("viewer")),
    ("POST", "/api/v1/inboxes/{inbox}/operations/{operation}/stop", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/messages/{key}/retry", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/messages/{key}/discard", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/messages/{key}/replay", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/messages/{key}/unblock", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/messages/{key}/erase", Some("admin")),
    ("POST", "/api/v1/inboxes/{inbox}/bulk/preview", Some("viewer")),
    ("POST", "/api/v1/inboxes/{inbox}/bulk", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/pause", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/resume", Some("operator")),
    ("POST", "/api/v1/inboxes/{inbox}/purge/preview", Some("viewer")),
    ("POST", "/api/v1/inboxes/{inbox}/purge", Some("admin")),
    ("POST", "/api/v1/inboxes/{inbox}/backfill", Some("admin")),
];

/// Paths outside the API.
const OUTSIDE: &[(&str, &str, Option<&str>)] =
    &[("GET", "/livez", None), ("GET", "/readyz", None), ("GET", "/metrics", Some("viewer"))];

const ROLES: [&str; 4] = ["viewer", "payload-reader", "operator", "admin"];

fn may(role: &str, needed: &str) -> bool {
    role == needed || role == "admin" || needed == "viewer"
}

fn filled(path: &str) -> String {
    path.replace("{inbox}", "orders")
        .replace("{key}", &"0".repeat(64))
        .replace("{operation}", "5d0b9f5e-4f52-4b2e-9f2a-3f6f6c1f2b10")
}

// FAULTS S8.
#[test]
fn every_route_checks_every_role() {
    let made: Vec<(&str, (String, String))> =
        ROLES.iter().map(|role| (*role, token(role, &[role]))).collect();
    let tables: String = made.iter().map(|(_, (_, table))| table.as_str()).collect();
    let depot = Depot::closed();
    let sidecar = failing(&depot, &tables);
    let operators = sidecar.operators();
    let known = Operator::new(&sidecar, None).look("/openapi.json");
    let described: usize =
        known["paths"].as_object().unwrap().values().map(|one| one.as_object().unwrap().len()).sum();
    assert_eq!(described, ROUTES.len(), "every route is listed here, with the role it needs");
    let wrong = token("untrusted", &["admin"]).0;
    for (method, path, needed) in ROUTES.iter().chain(OUTSIDE) {
        if path.starts_with("/api") {
            let operation = &known["paths"][path][method.to_lowercase()];
            assert_eq!(operation["x-role"].as_str(), *needed, "{path}");
        }
        let ask = |bearer: Option<String>| {
            let bearer = bearer.map(|token| format!("Bearer {token}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
            request(method, &format!("{operators}{}", filled(path)), &headers, b"{}").unwrap()
        };
        for unknown in [None, Some(wrong.clone()), Some(String::new())] {
            let answer = ask(unknown);
            if needed.is_some() {
                assert_eq!(problem(&answer), (401, "unauthenticated".into()), "{method} {path}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
            } else {
                assert_eq!(answer.status, 200, "{method} {path}");
            }
        }
        for (role, (token, _)) in &made {
            let answer = ask(Some(token.clone()));
            if needed.is_none_or(|needed| may(role, needed)) {
                assert!(![401, 403].contains(&answer.status), "{method} {path} as {role}: {answer:?}");
            } else {
                assert_eq!(problem(&answer), (403, "forbidden".into()), "{method} {path} as {role}");
            }
        }
    }
}

#[test]
fn tokens_are_added_and_removed_without_a_restart() {
    let (depot, (first, one), (second, two)) =
        (Depot::closed(), token("ada", &["viewer"]), token("bo", &["operator", "payload-reader"]));
    let sidecar = failing(&depot, &one);
    let me = Operator::new(&sidecar, Some(&first)).look("/me");
    assert_eq!((&me["name"], &me["roles"]), (&"ada".into(), &serde_json::json!(["viewer"])));
    sidecar.write_config(&config(&depot.handler.url(), &two).replace("127.0.0.1:0", "127.0.0.1:1"));
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "api.listen", "needs a restart"]);
    sidecar.write_config(&config(&depot.handler.url(), &two));
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    assert_eq!(Operator::new(&sidecar, Some(&first)).get("/me").status, 401);
    let me = Operator::new(&sidecar, Some(&second)).look("/me");
    assert_eq!(me["roles"], serde_json::json!(["viewer", "payload-reader", "operator"]));
}

// FAULTS S7, S9: DNS rebinding and a page of another site.
#[test]
fn without_tokens_only_programs_of_this_machine_have_access() {
    let sidecar = Sidecar::quick(&[]);
    let open = Operator::new(&sidecar, None);
    assert_eq!(open.look("/me")["roles"].as_array().unwrap().len(), 4);
    for bad in [("host", "evil.example"), ("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")]
    {
        assert_eq!(problem(&open.ask("GET", "/inboxes", &[bad], b"")), (403, "forbidden".into()), "{bad:?}");
        let metrics = request("GET", &format!("{}/metrics", sidecar.operators()), &[bad], b"").unwrap();
        assert_eq!(metrics.status, 403, "{bad:?}");
    }
    for passed_on in
        ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "via", "x-real-ip"]
    {
        let answer = open.ask("GET", "/inboxes", &[(passed_on, "10.0.0.1")], b"");
        assert_eq!(problem(&answer), (403, "forbidden".into()), "{passed_on}");
    }
    // Request of an nginx with only `proxy_pass`.
    let address = sidecar.operators().strip_prefix("http://").unwrap().to_owned();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    write!(stream, "GET /api/v1/inboxes HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 403 ") && answer.contains("oncebox token"), "{answer}");
    // A second sidecar finds the port in use and chooses another one.
    let other = Sidecar::quick(&[]);
    assert_ne!(other.operators(), sidecar.operators());
}

#[test]
fn a_new_token_comes_with_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (token, table) = token("night-shift", &["operator"]);
    assert_eq!(token.len(), 47);
    assert!(
        table.starts_with("\n[api.token.night-shift]\nhash = \"sha256:") && !table.contains(&token),
        "{table}"
    );
    for bad in [&["token", "a b"][..], &["token", "ada", "--role", "root"]] {
        assert_eq!(oncebox(dir.path(), bad).status.code(), Some(2), "{bad:?}");
    }
}
