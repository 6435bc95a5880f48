//! Oncebox: a durable inbox for message consumers.
#![doc = include_str!("docs/manual.md")]

pub mod config;
pub mod error;
mod handler;
mod inbox;
mod key;
mod memory;
mod message;
mod name;
pub mod observe;
mod runtime;
pub mod source;
pub mod state;
pub mod store;
pub mod time;

#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/order.md")]
    mod order {}
}

pub use config::Config;
pub use error::{BoxError, Error, ErrorKind, Result};
pub use handler::{Context, Discard, Failure, HandlerFn, Registration, Reject, RetryAfter, Snooze, handler};
pub use inbox::{Builder, Inbox, Processed, Receipt};
pub use key::{Fingerprint, Key, KeyStrategy, OrderKey};
pub use memory::{Memory, MemoryTx};
pub use message::{DecodeError, FromMessage, Headers, Message};
pub use name::{HandlerKey, InboxName, MAX_NAME};
pub use runtime::Running;
pub use state::{OnPoisoned, Policy, Retry, Status};
pub use store::{Accepted, Mark, Store};
