//! The seams of Oncebox without its runtime: messages and their identity, the rules of an entry, and the interfaces of stores and
//! sources.
//!
//! A store or a source depends on this crate. It has no I/O, no tasks and no clock of its own. Programs use `oncebox`, which
//! re-exports everything that they need.
//!
//! A module imports only from those in earlier rows:
//!
//! | module | contents |
//! |---|---|
//! | [`error`], [`time`], [`text`] | the error type, timestamps and clocks, text for operators |
//! | [`name`], [`config`] | names of inboxes and handlers, settings that keys and stores depend on |
//! | [`message`] | messages, their limits and their decoding |
//! | [`key`] | dedupe keys, fingerprints, ordering keys |
//! | [`state`] | claims, and the rules that choose the next state of an entry |
//! | [`store`] | the interface of a store |
//! | [`source`] | the interface of a source |

pub mod config;
pub mod error;
pub mod key;
pub mod message;
pub mod name;
pub mod source;
pub mod state;
pub mod store;
pub mod text;
pub mod time;

pub use error::{BoxError, Error, ErrorKind, Result};
pub use key::{Fingerprint, Key, KeyContext, KeyStrategy, OrderKey, is_blank};
pub use message::{DecodeError, FromMessage, Headers, Message};
pub use name::{HandlerKey, InboxName, MAX_NAME};
pub use state::{OnPoisoned, Policy, Retry, Status};
pub use store::{Accepted, Mark, Store};

/// Compiles the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/source-author.md")]
struct SourceAuthorGuide;
