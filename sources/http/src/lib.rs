//! Messages over HTTP for oncebox: CloudEvents, plain bodies and signed webhooks. Tests: `tests/`.
//!
//! An [`Endpoint`] describes an address: its proof, its format and its key. An [`Ingress`] binds endpoints to inboxes
//! and becomes an [`axum::Router`]. A [`Server`] serves any router and enforces limits on untrusted clients.

mod body;
mod endpoint;
mod format;
mod ingress;
mod local;
mod problem;
mod quota;
mod request_batcher;
mod response;
mod secret;
mod server;
mod verify;

pub use body::BodyLimits;
pub use endpoint::Endpoint;
pub use format::ShopifyId;
pub use ingress::Ingress;
pub use local::{NotLocal, Pages, check_local, is_address_host, is_loopback_host, named_host};
/// CloudEvents: reads and writes events.
pub use oncebox_cloudevents as cloudevents;
pub use quota::Quota;
pub use secret::{SecretStrength, secret_forms, secret_strength};
pub use server::{Anonymous, Server, ServerLimits, Tls, TooManyRefusals, Unproven, listen};
pub use verify::{Encoding, Verify};

/// Programs of the guides, compiled as tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/http.md")]
    mod http {}
    #[doc = include_str!("../../../docs/guides/webhooks.md")]
    mod webhooks {}
}
