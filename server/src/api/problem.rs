//! Problem documents of the API, after RFC 9457. Tests: below.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use oncebox::{Error, ErrorKind};

use crate::operator::{OperatorError, wire};

macro_rules! problem_kinds {
    ($($name:ident $word:literal $status:ident $title:literal, $advice:literal;)+) => {
        /// Kind of a problem: its status, title and advice.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ProblemKind { $($name,)+ }

        impl ProblemKind {
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

problem_kinds! {
    Malformed "malformed" BAD_REQUEST "Malformed request",
        "correct the request; see /api/v1/openapi.json";
    Unauthenticated "unauthenticated" UNAUTHORIZED "Missing or unknown token",
        "send a token: `Authorization: Bearer …`";
    Forbidden "forbidden" FORBIDDEN "Not allowed",
        "use a token with the required role";
    NotFound "not-found" NOT_FOUND "Not found",
        "check the path, inbox, key and handler";
    Method "method-not-allowed" METHOD_NOT_ALLOWED "Method not allowed",
        "use a method in the header Allow";
    Timeout "timeout" REQUEST_TIMEOUT "Body timed out",
        "retry the request";
    Refused "refused" CONFLICT "The current state does not allow this",
        "read the current state first";
    Reused "operation-reused" CONFLICT "Operation id used for another request",
        "create a new operation id for each operation";
    Changed "count-changed" CONFLICT "The count has changed",
        "request the preview again, then send its count";
    TooLarge "too-large" PAYLOAD_TOO_LARGE "Body too large",
        "send a smaller body";
    MediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "Body is not JSON",
        "send JSON with `content-type: application/json`";
    Invalid "invalid" UNPROCESSABLE_ENTITY "Invalid value",
        "correct the value; see /api/v1/openapi.json";
    Throttled "too-many-refusals" TOO_MANY_REQUESTS "Too many refused requests",
        "retry after the time in Retry-After, with a token that is known";
    Internal "internal" INTERNAL_SERVER_ERROR "Internal error",
        "see the log of the server";
    Unavailable "unavailable" SERVICE_UNAVAILABLE "Store unavailable",
        "retry after the time in Retry-After, with the same operation id";
    Unknown "outcome-unknown" SERVICE_UNAVAILABLE "Outcome unknown",
        "retry with the same operation id: it runs at most once";
}

/// Result of an API call.
pub(super) type ApiResult<T> = Result<T, ApiProblem>;

/// Problem of one request.
#[derive(Clone, Debug)]
pub(crate) struct ApiProblem {
    kind: ProblemKind,
    detail: String,
}

/// Time until a client should retry.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl ApiProblem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Converts the problem of a call that only reads: an unknown commit does not matter there.
    pub(crate) fn of_read(self) -> Self {
        match self.kind {
            ProblemKind::Unknown => Self::new(ProblemKind::Unavailable, "lost the connection to the store"),
            _ => self,
        }
    }

    pub(crate) const fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the description of this occurrence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    fn document(&self) -> wire::ProblemDocument {
        let kept = match self.kind {
            ProblemKind::Unknown => "the change may have been stored",
            _ => "this request changed nothing",
        };
        wire::ProblemDocument {
            r#type: format!("{}{}", wire::ProblemDocument::TYPE, self.kind.word()),
            title: self.kind.title().into(),
            status: self.kind.status().as_u16(),
            detail: self.detail.clone(),
            kept: kept.into(),
            advice: self.kind.advice().into(),
        }
    }
}

impl From<Error> for ApiProblem {
    /// Reports errors in the request to the client, and logs errors of the store.
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NotFound => ProblemKind::NotFound,
            ErrorKind::Refused => ProblemKind::Refused,
            ErrorKind::OperationReused => ProblemKind::Reused,
            ErrorKind::InvalidHandler
            | ErrorKind::InvalidMessage
            | ErrorKind::Unsupported
            | ErrorKind::Tenant => ProblemKind::Invalid,
            ErrorKind::CommitUnknown => {
                tracing::warn!(%error, "API action: commit outcome unknown");
                return Self::new(ProblemKind::Unknown, "the store did not confirm the commit");
            }
            // For example after a password change. Database errors name hosts and users, so they are only logged.
            ErrorKind::InvalidConfig => {
                tracing::error!(%error, "API request failed");
                return Self::new(ProblemKind::Internal, "the store configuration is not valid; see the log");
            }
            ErrorKind::Corrupt | ErrorKind::SchemaTooNew | ErrorKind::SchemaOutdated => {
                tracing::error!(%error, "API request failed");
                return Self::new(ProblemKind::Internal, "this build cannot read the store; see the log");
            }
            kind => {
                tracing::warn!(%error, "API request failed for now");
                let what = match kind {
                    ErrorKind::Full => "the store is full: free space first",
                    ErrorKind::Denied => "the store refused the login or a privilege",
                    ErrorKind::ReadOnly => "the store is a standby or read-only",
                    _ => "the store does not respond",
                };
                return Self::new(ProblemKind::Unavailable, format!("{what}; see the log"));
            }
        };
        Self::new(kind, error.what())
    }
}

impl From<OperatorError> for ApiProblem {
    fn from(error: OperatorError) -> Self {
        let kind = match error {
            OperatorError::Store(error) => return error.into(),
            OperatorError::Invalid(_) => ProblemKind::Invalid,
            OperatorError::Changed { .. } => ProblemKind::Changed,
            // Of another process, which no route asks.
            OperatorError::Unreachable(_) | OperatorError::Refused(..) | OperatorError::Lost(_) => {
                ProblemKind::Unavailable
            }
        };
        Self::new(kind, error.to_string())
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = respond(self.kind.status(), "application/problem+json", Body::from(json));
        let headers = response.headers_mut();
        match self.kind.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
            }
            _ => {}
        }
        response
    }
}

/// Builds a response that no client or proxy caches.
pub(super) fn respond(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    guarded(response)
}

/// Adds headers against caching, framing and content sniffing.
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
    fn every_problem_has_a_title_and_advice() {
        let mut words = std::collections::HashSet::new();
        for kind in ProblemKind::ALL {
            let document = ApiProblem::new(*kind, "x").document();
            assert!(words.insert(document.r#type), "{kind:?}");
            assert!(!document.title.is_empty() && !document.advice.is_empty() && !document.kept.is_empty());
            let response = ApiProblem::new(*kind, "x").into_response();
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(response.headers()["cache-control"], "no-store");
            let again = response.headers().contains_key("retry-after");
            let later = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
            assert_eq!(again, later.contains(&response.status()), "{kind:?}");
        }
    }

    #[test]
    fn a_read_has_no_unknown_outcome() {
        let lost = || ApiProblem::from(Error::new(ErrorKind::CommitUnknown, "lost"));
        assert_eq!(lost().kind(), ProblemKind::Unknown);
        assert_eq!(lost().of_read().kind(), ProblemKind::Unavailable);
        assert_eq!(ApiProblem::new(ProblemKind::NotFound, "x").of_read().kind(), ProblemKind::NotFound);
    }

    // Clients never see the text of a database error.
    #[test]
    fn errors_of_the_store_are_not_sent_to_clients() {
        use ErrorKind::{CommitUnknown, Corrupt, Denied, Full, InvalidConfig, ReadOnly, Unavailable};
        for kind in [Unavailable, CommitUnknown, Corrupt, Denied, Full, ReadOnly, InvalidConfig] {
            let problem = ApiProblem::from(Error::new(kind, "connection to db.internal refused"));
            assert!(problem.kind().status().is_server_error());
            assert!(!problem.detail.contains("db.internal"));
        }
    }
}
