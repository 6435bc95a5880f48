//! A sidecar, a scripted handler and an HTTP client for tests. Nothing sleeps.

mod client;
mod receiver;
mod sidecar;
mod watched;

pub(crate) use client::{HttpReply, get, post, raw, request};
pub(crate) use receiver::{Receiver, ReceiverTls, Reply, Request};
pub(crate) use sidecar::{Sidecar, oncebox, oncebox_with};

use std::time::Duration;

/// Time limit of every wait, long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// Returns a configuration with one inbox and one handler. Adds `more` to the handler.
pub(crate) fn one_handler(url: &str, more: &str) -> String {
    format!(
        "allow_private = [\"127.0.0.0/8\"]\n\
         [inbox.orders]\n\
         poll = \"100ms\"\n\
         [inbox.orders.handler.ship]\n\
         url = \"{url}\"\n\
         {more}\n"
    )
}

/// Retry policy with short delays.
pub(crate) const AT_ONCE: &str = "retry = { attempts = 5, first = \"20ms\", max = \"20ms\" }\n";
