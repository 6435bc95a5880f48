//! What is answered when the service did not do the work now.

use bytes::Bytes;
use oncebox::Error;

/// Why there is another answer than the service's own.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotRunReason {
    /// The request has no key.
    NoKey,
    /// The work was done before, and left this result, if it left one.
    Duplicate(Option<Bytes>),
    /// The work is being done right now: neither done nor free.
    Busy,
    /// The store or the memory failed. Nothing is known to be stored: the same request may be sent again.
    Failed(Error),
}

/// Says what is answered instead, and which of the service's own responses mean that the work is done.
pub trait ResponsePolicy<Res>: Send + Sync + 'static {
    /// The answer.
    fn answer(&self, instead: NotRunReason) -> Res;

    /// Whether the work is done, so that the key is kept and the transaction committed.
    fn is_done(&self, response: &Res) -> bool;
}

/// Two functions: one answers instead, one says which responses mean that the work is done. There is no default for the second,
/// because services that answer failures with a response, as HTTP's do, would have them taken for work that is done.
#[derive(Clone, Debug)]
pub struct ResponseFns<F, D>(pub(crate) F, pub(crate) D);

impl<Res, F, D> ResponsePolicy<Res> for ResponseFns<F, D>
where
    F: Fn(NotRunReason) -> Res + Send + Sync + 'static,
    D: Fn(&Res) -> bool + Send + Sync + 'static,
{
    fn answer(&self, instead: NotRunReason) -> Res {
        self.0(instead)
    }

    fn is_done(&self, response: &Res) -> bool {
        self.1(response)
    }
}

/// Another opinion on which responses mean that the work is done.
#[derive(Clone, Debug)]
pub struct DoneWhen<A, D>(pub(crate) A, pub(crate) D);

impl<Res, A, D> ResponsePolicy<Res> for DoneWhen<A, D>
where
    A: ResponsePolicy<Res>,
    D: Fn(&Res) -> bool + Send + Sync + 'static,
{
    fn answer(&self, instead: NotRunReason) -> Res {
        self.0.answer(instead)
    }

    fn is_done(&self, response: &Res) -> bool {
        self.1(response)
    }
}

/// The answers for HTTP, with the feature `http`:
///
/// | | status | |
/// |---|---|---|
/// | duplicate | 200 | the stored result, or nothing; the header `oncebox-duplicate: true` |
/// | busy | 409 | `retry-after: 1` |
/// | no key | 400 | |
/// | the store failed | 503 | `retry-after: 1`; 500 if trying again cannot help |
///
/// The work is done when the status says success.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpResponses;

/// The header that tells a duplicate from a first answer.
#[cfg(feature = "http")]
pub const DUPLICATE: &str = "oncebox-duplicate";

/// After how many seconds a request is worth sending again.
#[cfg(feature = "http")]
pub const RETRY_AFTER: u32 = 1;

#[cfg(feature = "http")]
impl<B: From<Bytes>> ResponsePolicy<http::Response<B>> for HttpResponses {
    fn answer(&self, instead: NotRunReason) -> http::Response<B> {
        use http::header::{HeaderName, HeaderValue, RETRY_AFTER as AFTER};
        use http::{Response, StatusCode};
        let after = (AFTER, HeaderValue::from(RETRY_AFTER));
        let (status, header, body) = match instead {
            NotRunReason::Duplicate(result) => {
                let header = (HeaderName::from_static(DUPLICATE), HeaderValue::from_static("true"));
                (StatusCode::OK, Some(header), result.unwrap_or_default())
            }
            NotRunReason::Busy => {
                (StatusCode::CONFLICT, Some(after), "the same request is being handled; try again".into())
            }
            NotRunReason::NoKey => (
                StatusCode::BAD_REQUEST,
                None,
                "the request has no key, so a repeat could not be told".into(),
            ),
            // What the store says is for the log: it names tables and hosts.
            NotRunReason::Failed(error) if error.is_retryable() => {
                tracing::warn!(error = %error, "cannot say whether a request is a duplicate");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    Some(after),
                    "the request could not be recorded; try again".into(),
                )
            }
            NotRunReason::Failed(error) => {
                tracing::error!(error = %error, "cannot say whether a request is a duplicate");
                (StatusCode::INTERNAL_SERVER_ERROR, None, "the request could not be recorded".into())
            }
        };
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        response.headers_mut().extend(header);
        response
    }

    fn is_done(&self, response: &http::Response<B>) -> bool {
        response.status().is_success()
    }
}
