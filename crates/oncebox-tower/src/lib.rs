//! A tower layer that makes a service idempotent: an axum route, or the consumer of any pipeline. Tests: `tests/`.
//!
//! - [`IdempotentLayer::recent`] remembers keys in the memory of the process, for a while.
//! - [`IdempotentLayer::transactional`] marks the key in a transaction of the store, passes that transaction to the service, and
//!   commits both together: the effects of a request happen once, however often it is sent.
//!
//! For HTTP, a repeated request gets the status, headers and body of the first. Another request under the same key is a
//! [`Conflict`](NotRunReason::Conflict) (422). [`tenant`](IdempotentLayer::tenant) separates the keys of tenants.
//!
//! While a request runs, another one with its key is [`Busy`](NotRunReason::Busy), which is not a duplicate. A service that fails,
//! panics or is cancelled releases the key.

mod answer;
#[cfg(feature = "http")]
mod http_body;
mod key;
mod layer;
mod tx;

#[cfg(feature = "http")]
pub use answer::{DUPLICATE, RETRY_AFTER};
pub use answer::{DoneWhen, HttpResponses, NotRunReason, ResponseFns, ResponsePolicy};
#[cfg(feature = "http")]
pub use key::{HeaderKey, header};
pub use key::{KeyOf, TenantOf};
pub use layer::{Idempotent, IdempotentLayer, Marks, NoTenant};
pub use tx::{CarryTx, RequestTx, TxGuard};

/// Compiles the programs of the guide.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/guides/tower.md")]
struct Guide;
