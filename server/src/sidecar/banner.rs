//! Prints the addresses at the start. Tests: `tests/serve/zero_config.rs`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{Addresses, Origin};
use crate::api::routes::PREFIX;
use crate::config::{ConfigPlan, StorePlace};

/// Returns the readiness URLs of this process.
pub(super) fn watch(plan: &ConfigPlan, addresses: Addresses) -> String {
    let messages = format!("{}/readyz", base(plan, addresses.messages));
    match addresses.operators {
        Some(operators) => format!("{messages} and {}", url(plan, operators, "/readyz")),
        None => messages,
    }
}

/// Returns the base URL for messages.
fn base(plan: &ConfigPlan, address: SocketAddr) -> String {
    format!("{}://{address}", if plan.tls.is_some() { "https" } else { "http" })
}

/// Returns a URL for operators.
fn url(plan: &ConfigPlan, address: SocketAddr, path: &str) -> String {
    let tls = plan.api.as_ref().is_some_and(|api| api.tls);
    format!("{}://{address}{path}", if tls { "https" } else { "http" })
}

pub(super) fn print(origin: &Origin, plan: &ConfigPlan, addresses: Addresses, json: bool) {
    let address = addresses.messages;
    if json {
        for (inbox, http) in
            plan.inboxes.iter().flat_map(|inbox| inbox.http.iter().map(move |http| (inbox, http)))
        {
            let url = format!("{}{}", base(plan, address), http.url_path());
            tracing::info!(inbox = inbox.name, url, "message endpoint");
        }
        if let Some(operators) = addresses.operators {
            tracing::info!(url = url(plan, operators, PREFIX), "operator API");
        }
        tracing::info!(%address, "ready");
        return;
    }
    eprint!("{}", text(origin, plan, addresses));
}

fn text(origin: &Origin, plan: &ConfigPlan, addresses: Addresses) -> String {
    let base = base(plan, addresses.messages);
    let mut text =
        format!("oncebox {}: duplicate deliveries take effect once\n\n", env!("CARGO_PKG_VERSION"));
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: &str| _ = writeln!(text, "  {name:<8}  {value}");
    for store in &plan.stores {
        match &store.place {
            StorePlace::Sqlite(path) => line("store", &format!("{} (SQLite)", path.display())),
            StorePlace::Postgres { .. } => line("store", &format!("{} (PostgreSQL)", store.name)),
        }
    }
    for inbox in &plan.inboxes {
        line("inbox", &inbox.name);
        for http in &inbox.http {
            line("POST to", &format!("{base}{} ({})", http.url_path(), http.describe()));
        }
        for queue in &inbox.rabbitmq {
            line("queue", &format!("{} (RabbitMQ)", queue.queue));
        }
        for handler in &inbox.handlers {
            let types = handler.types.join(", ");
            line("deliver", &format!("{types} to {}: {}", handler.key, shown(&handler.endpoint.url)));
        }
        if inbox.handlers.is_empty() {
            line("deliver", "no handler yet: messages are stored");
        }
    }
    if let Some(operators) = addresses.operators {
        let open = plan.api.as_ref().is_some_and(|api| api.access.tokens.is_empty());
        let whom = if open { "from this machine" } else { "with a token" };
        line("API", &format!("{} ({whom})", url(plan, operators, PREFIX)));
        line("monitor", &format!("{} and /metrics", url(plan, operators, "/readyz")));
    }
    if let Origin::ZeroConfig(quick) = origin {
        let target = format!("{base}/in/messages");
        _ = write!(
            text,
            "\nSend a message twice:\n  curl -i {target} -H 'message-id: evt_1' -H 'message-type: order.placed' -d '{{\"order\":7}}'\n"
        );
        if quick.to.is_none() {
            text.push_str("\nTo deliver messages, start with --to http://127.0.0.1:9000/hook\n");
        }
    }
    text.push_str("\nready; stop with Ctrl-C. Messages:\n");
    text
}

/// Returns the origin of a URL: its path often contains a token.
fn shown(url: &reqwest::Url) -> String {
    let origin = url.origin().ascii_serialization();
    if url.path() == "/" && url.query().is_none() { origin } else { format!("{origin}/…") }
}
