//! A sidecar to talk to, a handler that does what it is told, and nothing that sleeps.

mod client;
mod receiver;
mod sidecar;
mod watched;

pub(crate) use client::{HttpReply, get, post, raw, request};
pub(crate) use receiver::{Receiver, ReceiverTls, Reply, Request};
pub(crate) use sidecar::{Sidecar, oncebox};

use std::time::Duration;

/// How long anything may take before a test gives up: a loaded machine is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// A configuration with one inbox and one handler. `more` is added to the handler.
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

/// A retry that a test does not wait for.
pub(crate) const AT_ONCE: &str = "retry = { attempts = 5, first = \"20ms\", max = \"20ms\" }\n";
