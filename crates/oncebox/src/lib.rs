//! Oncebox: a durable inbox for message consumers.
#![doc = include_str!("docs/manual.md")]

pub mod config;
mod consumers;
mod direct;
#[cfg(test)]
mod fixtures;
mod handler;
pub mod health;
mod inbox;
mod memory;
pub mod observe;
mod once;
pub mod operate;
pub mod privacy;
mod recent;
mod retention;
mod runtime;
pub mod source;
pub mod state;
pub mod time;

#[doc(inline)]
pub use oncebox_core::{error, store};
use oncebox_core::{key, message, name, text};

pub use config::Config;
pub use config::dedupe::Dedupe;
pub use consumers::{Consumers, Requirement};
pub use direct::Direct;
#[doc(inline)]
pub use error::{BoxError, Error, ErrorKind, Result};
pub use handler::{
    BatchContext, BatchFn, BatchItem, BatchResult, Context, Data, Discard, ErrorMessage, ErrorReport,
    ErrorValue, Failure, HandlerContext, HandlerFn, HandlerFuture, IntoBatchResult, IntoFailure,
    IntoRegistration, IntoTypes, Registration, Reject, RetryAfter, Snooze, batch_handler, handler,
};
pub use health::{Health, HealthLimits, HealthStatus};
pub use inbox::{
    DryRun, HandlerAnswer, Inbox, InboxBuilder, Incoming, Processed, Receipt, Received, Results,
};
#[doc(inline)]
pub use key::{Fingerprint, Key, KeyContext, KeyStrategy, OrderKey, is_blank};
pub use memory::{Memory, MemoryTx};
#[doc(inline)]
pub use message::{DecodeError, FromMessage, Headers, Message};
#[doc(inline)]
pub use name::{HandlerKey, InboxName, MAX_NAME};
pub use once::{MarkedWork, Opened};
#[cfg(feature = "macros")]
pub use oncebox_macros::handler;
pub use recent::{Admission, Permit, Recent, RecentBuilder};
pub use retention::RetentionAdvice;
pub use runtime::Running;
#[doc(inline)]
pub use state::{Breaker, BreakerState, OnPoisoned, Policy, Rate, Retry, Status};
#[doc(inline)]
pub use store::{Accepted, Mark, Store};

/// The programs of the guides, so that they compile and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/retries.md")]
    mod retries {}
    #[doc = include_str!("../../../docs/guides/batches.md")]
    mod batches {}
    #[doc = include_str!("../../../docs/guides/order.md")]
    mod order {}
    #[doc = include_str!("../../../docs/guides/limits.md")]
    mod limits {}
    #[doc = include_str!("../../../docs/guides/accept-in-transaction.md")]
    mod accept_in_transaction {}
    #[doc = include_str!("../../../docs/guides/inline.md")]
    mod inline {}
    #[doc = include_str!("../../../docs/guides/macro.md")]
    mod attribute {}
    #[doc = include_str!("../../../docs/guides/several-inboxes.md")]
    mod several_inboxes {}
    #[doc = include_str!("../../../docs/guides/retention.md")]
    mod retention {}
    #[doc = include_str!("../../../docs/guides/handlers-over-time.md")]
    mod handlers_over_time {}
    #[doc = include_str!("../../../docs/guides/identity.md")]
    mod identity {}
    #[doc = include_str!("../../../docs/guides/tenants.md")]
    mod tenants {}
    #[doc = include_str!("../../../docs/guides/operate.md")]
    mod operate {}
}
