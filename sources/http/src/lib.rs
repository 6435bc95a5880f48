//! Messages over HTTP for oncebox: CloudEvents, plain bodies and signed webhooks.
//!
//! An [`Endpoint`] says who may send to an address and how a message and its key are read; an [`Ingress`] binds endpoints
//! to inboxes and becomes an [`axum::Router`]; a [`Server`] serves any router under limits for untrusted clients.

mod answer;
mod body;
mod endpoint;
mod format;
mod ingress;
mod local;
mod problem;
mod quota;
mod request_batcher;
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

/// The programs of the guides, so that they compile and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/http.md")]
    mod http {}
    #[doc = include_str!("../../../docs/guides/webhooks.md")]
    mod webhooks {}
}
