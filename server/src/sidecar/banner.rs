//! What is said at the start.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{Addresses, Origin};
use crate::api::routes::PREFIX;
use crate::config::{ConfigPlan, StorePlace};

/// Where to see whether this process is ready.
pub(super) fn watch(plan: &ConfigPlan, addresses: Addresses) -> String {
    let messages = format!("{}/readyz", base(plan, addresses.messages));
    match addresses.operators {
        Some(operators) => format!("{messages} and {}", url(plan, operators, "/readyz")),
        None => messages,
    }
}

/// What all URLs of this process begin with.
fn base(plan: &ConfigPlan, address: SocketAddr) -> String {
    format!("{}://{address}", if plan.tls.is_some() { "https" } else { "http" })
}

/// A URL for operators.
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
            tracing::info!(inbox = inbox.name, url, "takes messages");
        }
        if let Some(operators) = addresses.operators {
            tracing::info!(url = url(plan, operators, PREFIX), "answers operators");
        }
        tracing::info!(%address, "ready");
        return;
    }
    eprint!("{}", text(origin, plan, addresses));
}

fn text(origin: &Origin, plan: &ConfigPlan, addresses: Addresses) -> String {
    let base = base(plan, addresses.messages);
    let mut text = format!("oncebox {}: what is delivered twice happens once\n\n", env!("CARGO_PKG_VERSION"));
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
            line("deliver", "to nobody yet: messages are kept");
        }
    }
    if let Some(operators) = addresses.operators {
        let open = plan.api.as_ref().is_some_and(|api| api.access.tokens.is_empty());
        let whom = if open { "for this machine" } else { "with a token" };
        line("operate", &format!("{} ({whom})", url(plan, operators, PREFIX)));
        line("watch", &format!("{} and /metrics", url(plan, operators, "/readyz")));
    }
    if let Origin::ZeroConfig(quick) = origin {
        let target = format!("{base}/in/messages");
        _ = write!(
            text,
            "\nTry it, twice:\n  curl -i {target} -H 'message-id: evt_1' -H 'message-type: order.placed' -d '{{\"order\":7}}'\n"
        );
        if quick.to.is_none() {
            text.push_str("\nTo deliver them, start with --to http://127.0.0.1:9000/hook\n");
        }
    }
    text.push_str("\nready; Ctrl-C stops. What happens:\n");
    text
}

/// A URL without what may be secret in it: many have a token in their path.
fn shown(url: &reqwest::Url) -> String {
    let origin = url.origin().ascii_serialization();
    if url.path() == "/" && url.query().is_none() { origin } else { format!("{origin}/…") }
}
