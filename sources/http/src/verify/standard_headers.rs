//! The names that senders of Standard Webhooks give to the three headers.

use http::HeaderMap;

/// The headers that id, time and signatures are in. What is verified and what becomes the key must be the same header, so both ask
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandardHeaders {
    pub(crate) id: &'static str,
    pub(crate) timestamp: &'static str,
    pub(crate) signature: &'static str,
}

impl StandardHeaders {
    const STANDARD: Self =
        Self { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
    /// Names that Svix used before the specification; its customers (Clerk, Resend and others) still send them.
    const SVIX: Self = Self { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

    /// The names that a request uses. A request with any header of the specification uses these, and the others count for nothing.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let standard = Self::STANDARD;
        let uses = [standard.id, standard.timestamp, standard.signature];
        let svix =
            !uses.iter().any(|name| headers.contains_key(*name)) && headers.contains_key(Self::SVIX.id);
        if svix { Self::SVIX } else { standard }
    }
}
