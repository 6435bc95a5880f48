//! Where the key of a request comes from.

/// Finds the key of a request: what is the same each time it is sent. A `Fn(&Req) -> Option<Vec<u8>>` is one.
///
/// A request without a key, or with one of white space, is refused: a made-up key would let every repeat through.
pub trait KeyOf<Req>: Send + Sync + 'static {
    /// The key.
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

/// The value of a header. See [`header`].
#[cfg(feature = "http")]
#[derive(Clone, Debug)]
pub struct HeaderKey(&'static str);

/// Takes the value of a header as the key, for example `idempotency-key` or `webhook-id`. A header that stands there
/// twice is no key: nobody can say which of them was meant.
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
