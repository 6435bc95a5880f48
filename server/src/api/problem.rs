//! What a client is told when something did not work: RFC 9457.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use oncebox::{Error, ErrorKind};

use super::wire;

macro_rules! causes {
    ($($name:ident $word:literal $status:ident $title:literal, $advice:literal;)+) => {
        /// Why something did not work. Each has one status, and says what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ProblemKind { $($name,)+ }

        impl ProblemKind {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)+ }
            }
        }
    };
}

causes! {
    Malformed "malformed" BAD_REQUEST "The request cannot be read",
        "correct the request; /api/v1/openapi.json describes it";
    Unauthenticated "unauthenticated" UNAUTHORIZED "Nobody knows who asks",
        "send a token: `Authorization: Bearer …`";
    Forbidden "forbidden" FORBIDDEN "Whoever asks may not do this",
        "use a token with the role that is needed";
    NotFound "not-found" NOT_FOUND "There is no such thing",
        "check the path, the inbox, the key and the handler";
    Method "method-not-allowed" METHOD_NOT_ALLOWED "This path is not used in this way",
        "use a method that the header Allow names";
    Timeout "timeout" REQUEST_TIMEOUT "The body came too slowly",
        "send it again";
    Refused "refused" CONFLICT "It is not in a state that allows this",
        "look at the current state first";
    Reused "operation-reused" CONFLICT "The identity was used for something else",
        "make a new operation id for each thing that is to be done";
    Changed "count-changed" CONFLICT "The count is not what was expected",
        "look at the preview again, then send its count";
    TooLarge "too-large" PAYLOAD_TOO_LARGE "The body is too large",
        "send less";
    MediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "The body is not JSON",
        "send JSON, and say so: `content-type: application/json`";
    Invalid "invalid" UNPROCESSABLE_ENTITY "A value cannot be what it is",
        "correct the value; /api/v1/openapi.json says what it may be";
    Internal "internal" INTERNAL_SERVER_ERROR "Something went wrong here",
        "look at the log of the server";
    Unavailable "unavailable" SERVICE_UNAVAILABLE "The store does not answer",
        "ask again after the time in Retry-After; for something that is to be done, with the same operation id";
    Unknown "outcome-unknown" SERVICE_UNAVAILABLE "It is not known whether it was done",
        "ask again with the same operation id: what was done is not done twice";
}

/// Result of an API call.
pub(super) type ApiResult<T> = Result<T, ApiProblem>;

/// Problem of one request.
#[derive(Clone, Debug)]
pub(crate) struct ApiProblem {
    cause: ProblemKind,
    detail: String,
}

/// When to come again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl ApiProblem {
    pub(crate) fn new(cause: ProblemKind, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    /// The same of a call that changes nothing: what became of a commit is no matter.
    pub(crate) fn of_a_look(self) -> Self {
        match self.cause {
            ProblemKind::Unknown => {
                Self::new(ProblemKind::Unavailable, "the store was lost while it was looked at")
            }
            _ => self,
        }
    }

    pub(crate) const fn cause(&self) -> ProblemKind {
        self.cause
    }

    /// What happened, for this request.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    fn document(&self) -> wire::ProblemDocument {
        let kept = match self.cause {
            ProblemKind::Unknown => "it is not known whether the change was stored",
            _ => "nothing was stored by this call",
        };
        wire::ProblemDocument {
            r#type: format!("{}{}", wire::ProblemDocument::TYPE, self.cause.word()),
            title: self.cause.title().into(),
            status: self.cause.status().as_u16(),
            detail: self.detail.clone(),
            kept: kept.into(),
            advice: self.cause.advice().into(),
        }
    }
}

impl From<Error> for ApiProblem {
    /// What is wrong with the request is told; what is wrong with the store is logged.
    fn from(error: Error) -> Self {
        let cause = match error.kind() {
            ErrorKind::NotFound => ProblemKind::NotFound,
            ErrorKind::Refused => ProblemKind::Refused,
            ErrorKind::OperationReused => ProblemKind::Reused,
            ErrorKind::InvalidHandler
            | ErrorKind::InvalidMessage
            | ErrorKind::Unsupported
            | ErrorKind::Tenant => ProblemKind::Invalid,
            ErrorKind::CommitUnknown => {
                tracing::warn!(%error, "an operator is told that nothing is known of an action");
                return Self::new(ProblemKind::Unknown, "the answer of the store to the commit never came");
            }
            // A password that was changed, say: the words of the database name hosts and users.
            ErrorKind::InvalidConfig => {
                tracing::error!(%error, "an operator cannot be answered: the store cannot be used as it is configured");
                return Self::new(
                    ProblemKind::Internal,
                    "the store cannot be used as it is configured; the log says more",
                );
            }
            ErrorKind::Corrupt | ErrorKind::SchemaTooNew | ErrorKind::SchemaOutdated => {
                tracing::error!(%error, "an operator cannot be answered");
                return Self::new(
                    ProblemKind::Internal,
                    "the store holds what cannot be read; the log says more",
                );
            }
            kind => {
                tracing::warn!(%error, "an operator is told to come again");
                let what = match kind {
                    ErrorKind::Full => "the store is full: make room first",
                    ErrorKind::Denied => "the store refused the login or a privilege; the log says more",
                    ErrorKind::ReadOnly => "the store takes no changes: it is a standby, or set to read only",
                    _ => "the store does not answer now",
                };
                return Self::new(ProblemKind::Unavailable, format!("{what}; the log says more"));
            }
        };
        Self::new(cause, error.what())
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = respond(self.cause.status(), "application/problem+json", Body::from(json));
        let headers = response.headers_mut();
        match self.cause.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
            }
            _ => {}
        }
        response
    }
}

/// An answer that is nobody else's: never cached, never taken for anything but what it is.
pub(super) fn respond(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    guarded(response)
}

/// What keeps an answer from being cached, framed or guessed at.
pub(super) fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_says_what_happened_and_what_to_do() {
        let mut words = std::collections::HashSet::new();
        for cause in ProblemKind::ALL {
            let document = ApiProblem::new(*cause, "x").document();
            assert!(words.insert(document.r#type), "{cause:?}");
            assert!(!document.title.is_empty() && !document.advice.is_empty() && !document.kept.is_empty());
            let response = ApiProblem::new(*cause, "x").into_response();
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(response.headers()["cache-control"], "no-store");
            let again = response.headers().contains_key("retry-after");
            assert_eq!(again, response.status() == StatusCode::SERVICE_UNAVAILABLE, "{cause:?}");
        }
    }

    #[test]
    fn a_look_leaves_nothing_in_doubt() {
        let lost = || ApiProblem::from(Error::new(ErrorKind::CommitUnknown, "lost"));
        assert_eq!(lost().cause(), ProblemKind::Unknown);
        assert_eq!(lost().of_a_look().cause(), ProblemKind::Unavailable);
        assert_eq!(ApiProblem::new(ProblemKind::NotFound, "x").of_a_look().cause(), ProblemKind::NotFound);
    }

    // What a database says of itself is not told to clients.
    #[test]
    fn errors_of_the_store_keep_to_themselves() {
        use ErrorKind::{CommitUnknown, Corrupt, Denied, Full, InvalidConfig, ReadOnly, Unavailable};
        for kind in [Unavailable, CommitUnknown, Corrupt, Denied, Full, ReadOnly, InvalidConfig] {
            let problem = ApiProblem::from(Error::new(kind, "connection to db.internal refused"));
            assert!(problem.cause().status().is_server_error());
            assert!(!problem.detail.contains("db.internal"));
        }
    }
}
