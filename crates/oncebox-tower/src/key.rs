//! Selection of a request's key and tenant. Tests: `tests/service.rs`, `tests/replay.rs` and `tests/axum.rs`.

use crate::NoTenant;

/// Selects the key of a request, which is the same in every repeat. A `Fn(&Req) -> Option<Vec<u8>>` implements it.
///
/// The layer refuses a request with a missing or blank key: with an invented key every repeat would run.
pub trait KeyOf<Req>: Send + Sync + 'static {
    /// Returns the key.
    fn key(&self, request: &Req) -> Option<Vec<u8>>;
}

impl<Req, F> KeyOf<Req> for F
where
    F: Fn(&Req) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    fn key(&self, request: &Req) -> Option<Vec<u8>> {
        self(request)
    }
}

/// Selects the tenant of a request. A `Fn(&Req) -> Option<String>` implements it.
pub trait TenantOf<Req>: Send + Sync + 'static {
    /// Returns the tenant.
    fn tenant(&self, request: &Req) -> Option<String>;
}

impl<Req> TenantOf<Req> for NoTenant {
    fn tenant(&self, _: &Req) -> Option<String> {
        None
    }
}

impl<Req, F> TenantOf<Req> for F
where
    F: Fn(&Req) -> Option<String> + Send + Sync + 'static,
{
    fn tenant(&self, request: &Req) -> Option<String> {
        self(request)
    }
}

/// Selects the value of a header. See [`header`].
#[cfg(feature = "http")]
#[derive(Clone, Debug)]
pub struct HeaderKey(&'static str);

/// Selects the value of a header, for example `idempotency-key` or `webhook-id`. A header that occurs twice gives no key, because
/// the two values may differ.
#[cfg(feature = "http")]
pub const fn header(name: &'static str) -> HeaderKey {
    HeaderKey(name)
}

#[cfg(feature = "http")]
impl<B> KeyOf<http::Request<B>> for HeaderKey {
    fn key(&self, request: &http::Request<B>) -> Option<Vec<u8>> {
        let mut values = request.headers().get_all(self.0).iter();
        let value = values.next()?;
        values.next().is_none().then(|| value.as_bytes().to_vec())
    }
}
