//! Oncebox: a durable inbox for message consumers.
#![doc = include_str!("docs/manual.md")]

pub mod config;
mod consumers;
mod direct;
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

pub use config::Config;
pub use consumers::{Consumers, Requirement};
pub use direct::Direct;
pub use error::{BoxError, Error, ErrorKind, Result};
pub use handler::{Context, Discard, Failure, HandlerFn, Registration, Reject, RetryAfter, Snooze, handler};
pub use inbox::{Builder, Inbox, Processed, Receipt};
pub use key::{Dedupe, Fingerprint, Key, KeyContext, KeyStrategy, OrderKey};
pub use memory::{Memory, MemoryTx};
pub use message::{DecodeError, FromMessage, Headers, Message};
pub use name::{HandlerKey, InboxName, MAX_NAME};
pub use runtime::Running;
pub use state::{Policy, Retry, Status};
pub use store::{Accepted, Mark, Store};

/// The programs of the guides are compiled and run with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/identity.md")]
    mod identity {}
    #[doc = include_str!("../../../docs/guides/tenants.md")]
    mod tenants {}
}
