//! Responses when the service did not do the work of a request now. Tests: `tests/service.rs` and `tests/axum.rs`.

use bytes::Bytes;
use oncebox::Error;

/// Reason why the service did not do the work of a request now.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotRunReason {
    /// The request has no key.
    NoKey,
    /// The work was done before. Its stored result, if there is one.
    Duplicate(Option<Bytes>),
    /// Another request with the key is running: the work is neither done nor free.
    Busy,
    /// The key was used for another request. Nothing is done.
    Conflict,
    /// The request cannot be handled: too large, unreadable, or without the tenant that the inbox requires.
    Refused(Error),
    /// The store or the memory failed. Nothing is known to be stored, so the client may repeat the request.
    Failed(Error),
}

/// Responses for requests that do not run, and the rule which responses of the service mean that its work is done.
pub trait ResponsePolicy<Res>: Send + Sync + 'static {
    /// Returns the response.
    fn answer(&self, instead: NotRunReason) -> Res;

    /// Returns true if the work is done: the layer then keeps the key and commits the transaction.
    fn is_done(&self, response: &Res) -> bool;

    /// Returns the response, and the result of at most `limit` bytes that is stored for duplicates. It is called for work that is
    /// done, unless the service set a result itself. Default: nothing is stored.
    fn record(
        &self,
        response: Res,
        limit: usize,
    ) -> impl Future<Output = oncebox::Result<(Res, Option<Bytes>)>> + Send
    where
        Res: Send,
    {
        let _ = limit;
        std::future::ready(Ok((response, None)))
    }
}

/// A policy from two functions: the response for requests that do not run, and the rule which responses mean that the work is done.
/// The rule has no default, because services such as those of HTTP report failures as responses, and a default would take these for
/// work that is done.
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

/// Replaces the rule which responses mean that the work is done.
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

    fn record(
        &self,
        response: Res,
        limit: usize,
    ) -> impl Future<Output = oncebox::Result<(Res, Option<Bytes>)>> + Send
    where
        Res: Send,
    {
        self.0.record(response, limit)
    }
}

/// Responses for HTTP, with the feature `http`:
///
/// | | status | |
/// |---|---|---|
/// | duplicate | as stored | status, headers and body of the first response, and the header `oncebox-duplicate: true` |
/// | busy | 409 | `retry-after: 1` |
/// | the key was used for another request | 422 | |
/// | the body is too large | 413 | the limit is `limits.payload` of the inbox |
/// | the body cannot be read, or the tenant is missing | 400 | |
/// | no key | 400 | |
/// | the store failed | 503 | `retry-after: 1`; 500 if a retry cannot succeed |
///
/// The work is done if the status is a success. In a transaction, the layer then stores the response without `date`, `set-cookie` and
/// the headers of its connection. A response over `limits.result` of the inbox is rolled back and becomes a 500: raise the limit, or
/// call [`TxGuard::set_result`](crate::TxGuard::set_result), whose result a duplicate gets with status 200. The layer for keys in
/// memory stores no response: there a duplicate gets 200 and no body.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpResponses;

/// Header that marks the response of a duplicate.
#[cfg(feature = "http")]
pub const DUPLICATE: &str = "oncebox-duplicate";

/// Seconds after which a client should retry.
#[cfg(feature = "http")]
pub const RETRY_AFTER: u32 = 1;

#[cfg(feature = "http")]
impl<B> ResponsePolicy<http::Response<B>> for HttpResponses
where
    B: http_body_util::BodyExt<Data: Send, Error: Into<oncebox::BoxError>> + From<Bytes> + Send + 'static,
{
    fn answer(&self, instead: NotRunReason) -> http::Response<B> {
        use http::header::{HeaderName, HeaderValue, RETRY_AFTER as AFTER};
        use http::{Response, StatusCode};
        let after = (AFTER, HeaderValue::from(RETRY_AFTER));
        let (status, header, body) = match instead {
            NotRunReason::Duplicate(result) => {
                let header = (HeaderName::from_static(DUPLICATE), HeaderValue::from_static("true"));
                if let Some(mut stored) = result.as_ref().and_then(crate::http_body::decode) {
                    stored.headers_mut().extend([header]);
                    return stored.map(B::from);
                }
                (StatusCode::OK, Some(header), result.unwrap_or_default())
            }
            NotRunReason::Busy => {
                (StatusCode::CONFLICT, Some(after), "the same request is being handled; try again".into())
            }
            NotRunReason::Conflict => (
                StatusCode::UNPROCESSABLE_ENTITY,
                None,
                "the key was used for another request; send this one under a key of its own".into(),
            ),
            NotRunReason::Refused(error) => {
                let too_large = error.kind() == oncebox::ErrorKind::TooLarge;
                let status = if too_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
                (status, None, error.what().to_owned().into())
            }
            NotRunReason::NoKey => (
                StatusCode::BAD_REQUEST,
                None,
                "the request has no key, so a repeat could not be told".into(),
            ),
            // Errors of the store name tables and hosts, so only the log shows them.
            NotRunReason::Failed(error) if error.is_retryable() => {
                tracing::warn!(error = %error, "cannot check request for duplicate");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    Some(after),
                    "the request could not be recorded; try again".into(),
                )
            }
            NotRunReason::Failed(error) => {
                tracing::error!(error = %error, "cannot check request for duplicate");
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

    async fn record(
        &self,
        response: http::Response<B>,
        limit: usize,
    ) -> oncebox::Result<(http::Response<B>, Option<Bytes>)> {
        let (head, body) = response.into_parts();
        let body = crate::http_body::collect(body, limit, "response").await.map_err(|error| {
            let what =
                "the response cannot be stored for repeats of the request, so its work was rolled back";
            Error::new(oncebox::ErrorKind::TooLarge, what).caused_by(error)
        })?;
        let stored = crate::http_body::encode(&head, &body);
        Ok((http::Response::from_parts(head, body.into()), Some(stored)))
    }
}
