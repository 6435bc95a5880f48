//! Header names of Standard Webhooks senders. Tests: format/tests.rs and verify/tests.rs.

use http::HeaderMap;

/// Headers with the id, time and signatures. Verification and key must use the same header, so both read it here.
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

    /// Returns the names in a request. If any header of the specification is present, the other names are ignored.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let standard = Self::STANDARD;
        let uses = [standard.id, standard.timestamp, standard.signature];
        let svix =
            !uses.iter().any(|name| headers.contains_key(*name)) && headers.contains_key(Self::SVIX.id);
        if svix { Self::SVIX } else { standard }
    }
}
