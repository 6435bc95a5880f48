//! Error responses in the format of RFC 9457. Tests: tests/answers.rs.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use oncebox::{Error, ErrorKind};
use serde::Serialize;

use crate::server::Unproven;

/// Reason why a request, or one of its messages, was refused or not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestProblem {
    pub(crate) cause: ProblemType,
    /// Cause in this request, for the sender.
    pub(crate) detail: String,
    pub(crate) retry_after: Option<Duration>,
    /// True if the sender was not verified.
    pub(crate) unproven: bool,
}

macro_rules! causes {
    ($($name:ident $word:literal $status:ident $title:literal, $kept:literal, $advice:literal;)+) => {
        /// Problem types. Each has one status, and states what was kept and what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ProblemType { $($name,)+ }

        impl ProblemType {
            /// All types, for the tests and the documentation.
            #[cfg(test)]
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

            const fn kept(self) -> &'static str {
                match self { $(Self::$name => $kept,)+ }
            }

            const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)+ }
            }
        }
    };
}

causes! {
    Malformed "malformed" BAD_REQUEST "The request cannot be read",
        "nothing", "correct the message; sending it again as it is will not help";
    MissingKey "missing-key" BAD_REQUEST "The message has no id",
        "nothing", "send the id that the message has at its producer, the same each time";
    Unverified "unverified" UNAUTHORIZED "The sender is not known or not proven",
        "nothing", "check the address, the secret, the signature and the clock of the sender";
    Method "method-not-allowed" METHOD_NOT_ALLOWED "Messages are posted",
        "nothing", "use POST";
    Timeout "timeout" REQUEST_TIMEOUT "The body was too slow",
        "nothing", "send the message again";
    Busy "busy" CONFLICT "Another worker has the message",
        "nothing new", "send the message again later: it is neither done nor free";
    TooLarge "too-large" PAYLOAD_TOO_LARGE "The message is too large",
        "nothing", "send less, or a reference to the data";
    MediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "The format is not understood",
        "nothing", "send one of the formats that this address takes";
    Conflict "conflict" UNPROCESSABLE_ENTITY "The same id came before with another content",
        "quarantined, for a person to decide; it does not run", "do not send it again; give every message an id of its own";
    Stale "stale" UNPROCESSABLE_ENTITY "The message is older than what is remembered",
        "quarantined, for a person to decide; it does not run", "do not send it again; it may have been handled before";
    Unrouted "unrouted" UNPROCESSABLE_ENTITY "Nothing handles messages of this type",
        "nothing", "register a handler for the type, or do not send it here";
    Rejected "rejected" UNPROCESSABLE_ENTITY "A handler refused the message for good",
        "nothing of its work", "correct the message; sending it again as it is will not help";
    Quota "over-quota" TOO_MANY_REQUESTS "This source sends too much",
        "nothing", "send the message again after the time in Retry-After";
    Internal "internal" INTERNAL_SERVER_ERROR "The inbox is not set up for this message",
        "nothing", "send the message again after the operator has fixed the configuration";
    Unavailable "unavailable" SERVICE_UNAVAILABLE "The message cannot be stored now",
        "nothing", "send the message again after the time in Retry-After";
    Unknown "outcome-unknown" SERVICE_UNAVAILABLE "It is not known whether the message was stored",
        "perhaps the message", "send the message again: if it was stored it is recognised";
    Failed "failed" SERVICE_UNAVAILABLE "A handler failed",
        "nothing of its work", "send the message again after the time in Retry-After";
}

#[derive(Serialize)]
pub(crate) struct ProblemBody<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    kept: &'static str,
    advice: &'static str,
}

/// Value of Retry-After if no other time is known.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl RequestProblem {
    pub(crate) fn new(cause: ProblemType, detail: impl Into<String>) -> Self {
        let again = matches!(cause.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::CONFLICT);
        Self { cause, detail: detail.into(), retry_after: again.then_some(RETRY_AFTER), unproven: false }
    }

    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Marks the problem as one of a sender without a proof.
    pub(crate) fn of_untrusted(mut self) -> Self {
        self.unproven = true;
        self
    }

    /// Returns the one problem for every unverified sender.
    pub(crate) fn unverified() -> Self {
        Self::new(ProblemType::Unverified, "the request was not verified").of_untrusted()
    }

    /// Returns the problem for an error of the inbox. The sender learns about faults of its message. Errors of the
    /// store are logged and not shown.
    pub(crate) fn of(error: &Error) -> Self {
        let cause = match error.kind() {
            ErrorKind::MissingKey => ProblemType::MissingKey,
            ErrorKind::InvalidMessage => ProblemType::Malformed,
            ErrorKind::TooLarge => ProblemType::TooLarge,
            ErrorKind::Unrouted => ProblemType::Unrouted,
            ErrorKind::CommitUnknown => {
                tracing::warn!(%error, "commit outcome unknown, answered 503");
                return Self::new(ProblemType::Unknown, "the answer of the store to the commit never came");
            }
            ErrorKind::Tenant | ErrorKind::Unsupported | ErrorKind::InvalidConfig => {
                tracing::error!(%error, "inbox configuration refuses message");
                return Self::new(ProblemType::Internal, "the inbox is not set up to take this message");
            }
            _ => {
                tracing::warn!(%error, "message not stored, sender must retry");
                return Self::new(ProblemType::Unavailable, "the store does not take messages now");
            }
        };
        Self::new(cause, error.what())
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.cause.status()
    }

    pub(crate) fn document(&self) -> ProblemBody<'_> {
        ProblemBody {
            r#type: format!("urn:oncebox:problem:{}", self.cause.word()),
            title: self.cause.title(),
            status: self.status().as_u16(),
            detail: &self.detail,
            kept: self.cause.kept(),
            advice: self.cause.advice(),
        }
    }
}

impl IntoResponse for RequestProblem {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = respond(self.status(), "application/problem+json", Body::from(json));
        after(&mut response, self.retry_after);
        if self.unproven {
            response.extensions_mut().insert(Unproven);
        }
        if self.cause == ProblemType::Unverified {
            // Every 401 requires it. It is the same for all proofs.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.cause == ProblemType::Method {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

/// Returns a response that no cache may store.
pub(crate) fn respond(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Sets `Retry-After` in whole seconds, at least one.
pub(crate) fn after(response: &mut Response, wait: Option<Duration>) {
    if let Some(wait) = wait {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_says_what_was_kept_and_what_to_do() {
        let mut words = std::collections::HashSet::new();
        for cause in ProblemType::ALL {
            let problem = RequestProblem::new(*cause, "x");
            let json = serde_json::to_value(problem.document()).unwrap();
            for member in ["type", "title", "detail", "kept", "advice"] {
                assert!(json[member].as_str().is_some_and(|text| !text.is_empty()), "{cause:?} {member}");
            }
            assert!(words.insert(cause.word()), "{cause:?}");
            assert!(cause.status().is_client_error() || cause.status().is_server_error());
            let response = problem.into_response();
            let must_wait = matches!(response.status().as_u16(), 503 | 409);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), must_wait, "{cause:?}");
        }
    }

    // FAULTS J5: the metric has one label per result, and no other.
    #[test]
    fn every_answer_has_its_word_in_the_metric() {
        use oncebox::observe::names::{HTTP_RESPONSES, LabelValues, Metric};
        let label = Metric::named(HTTP_RESPONSES).and_then(|metric| metric.label("result")).unwrap();
        let LabelValues::Words(words) = label.values else { panic!("the answers are words") };
        let answers =
            ["accepted", "duplicate"].into_iter().chain(ProblemType::ALL.iter().map(|cause| cause.word()));
        assert_eq!(words, answers.collect::<Vec<_>>());
    }

    // Untrusted clients must not see the text of database errors.
    #[test]
    fn errors_of_the_store_keep_to_themselves() {
        for kind in [ErrorKind::Unavailable, ErrorKind::CommitUnknown, ErrorKind::Corrupt, ErrorKind::Full] {
            let problem = RequestProblem::of(&Error::new(kind, "connection to db.internal refused"));
            assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(!problem.detail.contains("db.internal"));
        }
    }
}
