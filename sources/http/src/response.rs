//! Responses for requests, made from the outcomes of their messages. Tests: below and tests/answers.rs.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use oncebox::{Accepted, ErrorKind, HandlerAnswer, HandlerKey, Processed, Receipt, Received, Result};
use serde::Serialize;

use crate::problem::{ProblemBody, ProblemType, RequestProblem, after, respond};

/// Outcome of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    Accepted,
    Duplicate,
    /// Handlers stored it, now or before; for other handlers it was quarantined.
    Mixed(MixedResult),
    Problem(RequestProblem),
}

/// Outcome of a message that was quarantined for some of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MixedResult {
    /// True if a handler stored it with this delivery.
    is_new: bool,
    handlers: Vec<(HandlerKey, &'static str)>,
}

impl MixedResult {
    /// Returns a value if the message was quarantined for some handlers only.
    fn of(received: &Received) -> Option<Self> {
        let answers = || received.handlers.iter().map(|(_, answer)| answer);
        if answers().all(HandlerAnswer::is_quarantined) || !answers().any(HandlerAnswer::is_quarantined) {
            return None;
        }
        let handlers = received.handlers.iter().map(|(handler, answer)| (handler.clone(), answer.as_str()));
        Some(Self { is_new: answers().any(HandlerAnswer::is_new), handlers: handlers.collect() })
    }

    fn word(&self) -> &'static str {
        if self.is_new { "accepted" } else { "duplicate" }
    }

    fn handlers(&self) -> Vec<HandlerItem<'_>> {
        let handlers = self.handlers.iter();
        handlers.map(|(handler, outcome)| HandlerItem { handler: handler.as_str(), outcome }).collect()
    }
}

impl MessageOutcome {
    pub(crate) fn of(received: Result<Received>) -> Self {
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Duplicate => return Self::Duplicate,
            Err(error) => return Self::Problem(RequestProblem::of(&error)),
        };
        match received.receipt {
            Receipt::Busy => {
                Self::Problem(RequestProblem::new(ProblemType::Busy, "another worker has this message"))
            }
            Receipt::Failed { after } | Receipt::Snoozed { after } => {
                Self::Problem(RequestProblem::new(ProblemType::Failed, "a handler failed").after(after))
            }
            Receipt::Rejected { .. } => Self::Problem(RequestProblem::new(
                ProblemType::Rejected,
                "a handler rejected the message for good",
            )),
            // Done, and variants that later versions add.
            _ => {
                if let Some(mixed) = MixedResult::of(&received) {
                    return Self::Mixed(mixed);
                }
                let marked = HandlerAnswer::Ran(Processed::Conflict);
                match received.accepted {
                    Some(Accepted::Stale) => Self::Problem(RequestProblem::new(
                        ProblemType::Stale,
                        "the message is too old to be compared",
                    )),
                    Some(Accepted::Conflict(_)) => Self::Problem(in_conflict()),
                    _ if received.handlers.iter().any(|(_, answer)| *answer == marked) => {
                        Self::Problem(in_conflict())
                    }
                    _ if received.duplicate => Self::Duplicate,
                    _ => Self::Accepted,
                }
            }
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::ACCEPTED,
            Self::Mixed(mixed) if mixed.is_new => StatusCode::ACCEPTED,
            Self::Duplicate | Self::Mixed(_) => StatusCode::OK,
            Self::Problem(problem) => problem.status(),
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Mixed(mixed) => mixed.word(),
            Self::Problem(problem) => problem.cause.word(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after,
            _ => None,
        }
    }

    /// Ranks a status: a list has the status of its worst message. Messages to retry come first, then refused ones. A
    /// sender that reads the status alone never drops a message that was not stored.
    fn rank(&self) -> (bool, u16) {
        let status = self.status();
        let again = status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 429);
        (again, if status == StatusCode::OK { 0 } else { status.as_u16() })
    }
}

/// Builds the response for one message.
pub(crate) fn one(answer: MessageOutcome) -> Response {
    let json = |status, text: &'static str| {
        respond(status, "application/json", Body::from(Bytes::from_static(text.as_bytes())))
    };
    match answer {
        MessageOutcome::Accepted => json(StatusCode::ACCEPTED, r#"{"outcome":"accepted"}"#),
        MessageOutcome::Duplicate => json(StatusCode::OK, r#"{"outcome":"duplicate"}"#),
        MessageOutcome::Mixed(mixed) => {
            let json =
                serde_json::to_vec(&MixedOutcome { outcome: mixed.word(), handlers: mixed.handlers() });
            let body = Body::from(json.unwrap_or_default());
            respond(MessageOutcome::Mixed(mixed).status(), "application/json", body)
        }
        MessageOutcome::Problem(problem) => problem.into_response(),
    }
}

fn in_conflict() -> RequestProblem {
    RequestProblem::new(ProblemType::Conflict, "this id was stored before with another content")
}

/// Outcome of a message at one handler.
#[derive(Serialize)]
struct HandlerItem<'a> {
    handler: &'a str,
    outcome: &'static str,
}

/// Response for one message whose handlers differ.
#[derive(Serialize)]
struct MixedOutcome<'a> {
    outcome: &'static str,
    handlers: Vec<HandlerItem<'a>>,
}

#[derive(Serialize)]
struct ListedOutcome<'a> {
    status: u16,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    handlers: Vec<HandlerItem<'a>>,
}

#[derive(Serialize)]
struct OutcomeList<'a> {
    results: Vec<ListedOutcome<'a>>,
}

/// Builds the response for a list of messages: one item for each, in their order.
pub(crate) fn many(answers: &[MessageOutcome]) -> Response {
    let results = answers.iter().map(|answer| ListedOutcome {
        status: answer.status().as_u16(),
        outcome: answer.word(),
        problem: match answer {
            MessageOutcome::Problem(problem) => Some(problem.document()),
            _ => None,
        },
        handlers: match answer {
            MessageOutcome::Mixed(mixed) => mixed.handlers(),
            _ => Vec::new(),
        },
    });
    let json = serde_json::to_vec(&OutcomeList { results: results.collect() }).unwrap_or_default();
    let worst = answers.iter().max_by_key(|answer| answer.rank());
    let status = worst.map_or(StatusCode::OK, MessageOutcome::status);
    let mut response = respond(status, "application/json", Body::from(json));
    after(&mut response, answers.iter().filter_map(MessageOutcome::retry_after).max());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(cause: ProblemType) -> MessageOutcome {
        MessageOutcome::Problem(RequestProblem::new(cause, "x"))
    }

    // A sender that reads only the status must not lose a message.
    #[test]
    fn the_worst_of_a_list_is_the_status_of_the_whole() {
        use MessageOutcome::{Accepted, Duplicate};
        for (answers, expected) in [
            (vec![], 200),
            (vec![Duplicate, Duplicate], 200),
            (vec![Duplicate, Accepted], 202),
            (vec![Accepted, problem(ProblemType::Malformed)], 400),
            (vec![problem(ProblemType::Malformed), problem(ProblemType::Conflict)], 422),
            (vec![problem(ProblemType::Conflict), problem(ProblemType::Busy), Accepted], 409),
            (
                vec![
                    problem(ProblemType::Busy),
                    problem(ProblemType::Unavailable),
                    problem(ProblemType::Conflict),
                ],
                503,
            ),
        ] {
            assert_eq!(many(&answers).status().as_u16(), expected, "{answers:?}");
        }
    }
}
