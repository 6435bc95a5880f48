//! From what became of messages to the answer for a request.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use oncebox::{Accepted, ErrorKind, Receipt, Received, Result};
use serde::Serialize;

use crate::problem::{Cause, Document, Problem, after, respond};

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted,
    Duplicate,
    Problem(Problem),
}

impl Answer {
    pub(crate) fn of(received: Result<Received>) -> Self {
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Duplicate => return Self::Duplicate,
            Err(error) => return Self::Problem(Problem::of(&error)),
        };
        match received.receipt {
            Receipt::Busy => {
                Self::Problem(Problem::new(Cause::Busy, "somebody else is working on this message"))
            }
            Receipt::Failed { after } | Receipt::Snoozed { after } => {
                Self::Problem(Problem::new(Cause::Failed, "a handler did not do its work").after(after))
            }
            Receipt::Rejected { .. } => {
                Self::Problem(Problem::new(Cause::Rejected, "a handler says that no retry will help"))
            }
            // Done, and what may come to be.
            _ => match received.accepted {
                Some(Accepted::Conflict(_)) => Self::Problem(Problem::new(
                    Cause::Conflict,
                    "this id was stored before with another content",
                )),
                Some(Accepted::Stale) => {
                    Self::Problem(Problem::new(Cause::Stale, "the message is too old to be compared"))
                }
                _ if received.duplicate => Self::Duplicate,
                _ => Self::Accepted,
            },
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::ACCEPTED,
            Self::Duplicate => StatusCode::OK,
            Self::Problem(problem) => problem.status(),
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Problem(problem) => problem.cause.word(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after,
            _ => None,
        }
    }

    /// Of a list, the status of the worst is that of the whole: first what must come again, then what was refused. So a
    /// sender that looks at the status alone never takes for stored what is not.
    fn rank(&self) -> (bool, u16) {
        let status = self.status();
        let again = status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 429);
        (again, if status == StatusCode::OK { 0 } else { status.as_u16() })
    }
}

/// The answer for one message.
pub(crate) fn one(answer: Answer) -> Response {
    let json = |status, text: &'static str| {
        respond(status, "application/json", Body::from(Bytes::from_static(text.as_bytes())))
    };
    match answer {
        Answer::Accepted => json(StatusCode::ACCEPTED, r#"{"outcome":"accepted"}"#),
        Answer::Duplicate => json(StatusCode::OK, r#"{"outcome":"duplicate"}"#),
        Answer::Problem(problem) => problem.into_response(),
    }
}

#[derive(Serialize)]
struct Item<'a> {
    status: u16,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Document<'a>>,
}

#[derive(Serialize)]
struct Items<'a> {
    results: Vec<Item<'a>>,
}

/// The answer for a list of messages: one for each, in their order.
pub(crate) fn many(answers: &[Answer]) -> Response {
    let results = answers.iter().map(|answer| Item {
        status: answer.status().as_u16(),
        outcome: answer.word(),
        problem: match answer {
            Answer::Problem(problem) => Some(problem.document()),
            _ => None,
        },
    });
    let json = serde_json::to_vec(&Items { results: results.collect() }).unwrap_or_default();
    let worst = answers.iter().max_by_key(|answer| answer.rank());
    let status = worst.map_or(StatusCode::OK, Answer::status);
    let mut response = respond(status, "application/json", Body::from(json));
    after(&mut response, answers.iter().filter_map(Answer::retry_after).max());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(cause: Cause) -> Answer {
        Answer::Problem(Problem::new(cause, "x"))
    }

    // A sender that looks at the status alone must not lose a message.
    #[test]
    fn the_worst_of_a_list_is_the_status_of_the_whole() {
        use Answer::{Accepted, Duplicate};
        for (answers, expected) in [
            (vec![], 200),
            (vec![Duplicate, Duplicate], 200),
            (vec![Duplicate, Accepted], 202),
            (vec![Accepted, problem(Cause::Malformed)], 400),
            (vec![problem(Cause::Malformed), problem(Cause::Conflict)], 422),
            (vec![problem(Cause::Conflict), problem(Cause::Busy), Accepted], 409),
            (vec![problem(Cause::Busy), problem(Cause::Unavailable), problem(Cause::Conflict)], 503),
        ] {
            assert_eq!(many(&answers).status().as_u16(), expected, "{answers:?}");
        }
    }
}
