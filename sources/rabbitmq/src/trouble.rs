//! Reasons why a source does not consume, for the log and for health. Tests: tests/leader.rs and tests/faults.rs.

use std::error::Error as _;

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use oncebox_core::{Error, ErrorKind};

use crate::error::broken;
use crate::queue::{Queue, QueueKind};

/// Reason why a source does not consume.
#[derive(Debug)]
pub(crate) struct SessionFailure {
    /// Error with the broker's own text, for the log and the monitor.
    pub(crate) error: Error,
    /// The reason for health, without text of the broker.
    pub(crate) reason: String,
    /// True if the cause is a message that the client cannot parse, and not the broker.
    pub(crate) unreadable: bool,
}

impl SessionFailure {
    fn new(error: Error, reason: impl Into<String>) -> Self {
        Self { error, reason: reason.into(), unreadable: false }
    }

    pub(crate) fn connecting(error: Error) -> Self {
        Self::new(error, "cannot connect to the broker")
    }

    /// Returns a failure to declare, check or consume the queue.
    pub(crate) fn at(queue: &Queue, error: Error) -> Self {
        let name = &queue.name;
        if queue.kind == QueueKind::Classic || !leaderless(&error) {
            return Self::new(
                error,
                format!("cannot use the queue {name:?}; the log has the broker's answer"),
            );
        }
        let reason = format!("the queue {name:?} has no leader, or its leader does not answer");
        let advice = format!(
            "the source keeps trying; if this lasts, run `rabbitmq-queues quorum_status {name}` and restart the node of the queue"
        );
        let error = Error::new(ErrorKind::Unavailable, format!("{reason}; {advice}: {}", error.what()))
            .caused_by(error);
        Self::new(error, reason)
    }

    pub(crate) fn cancelled(queue: &Queue) -> Self {
        let what = "the broker cancelled the consumer: the queue was deleted, or moved to another node";
        let reason = format!("the broker cancelled the consumer of the queue {:?}", queue.name);
        Self::new(Error::new(ErrorKind::Unavailable, what), reason)
    }

    /// Returns the failure of a session, with advice for the operator.
    pub(crate) fn lost(cause: lapin::Error) -> Self {
        let hint = match cause.kind() {
            lapin::ErrorKind::ProtocolError(error) => match error.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
                    "the broker closed the channel; if a delivery was in hand for longer than its consumer timeout, hold less or raise that"
                }
                AMQPErrorKind::Soft(_) => "the broker closed the channel",
                AMQPErrorKind::Hard(_) => "the broker closed the connection",
            },
            lapin::ErrorKind::MissingHeartbeatError => "the broker sent no heartbeat",
            lapin::ErrorKind::ParsingError(_) => {
                "a message cannot be taken apart: a property or the name of a header is not UTF-8; a quorum queue dead-letters it after its delivery limit, from a classic queue it has to be removed by hand"
            }
            _ => "the connection was lost",
        };
        let unreadable = matches!(cause.kind(), lapin::ErrorKind::ParsingError(_));
        Self { unreadable, ..Self::new(broken(hint, cause), hint) }
    }
}

/// Returns true if the broker responded as for a quorum queue without a leader: with an internal error, or not at all.
fn leaderless(error: &Error) -> bool {
    let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<lapin::Error>()) else {
        // Without a cause, the response timed out.
        return true;
    };
    matches!(
        cause.kind(),
        lapin::ErrorKind::ProtocolError(error)
            if *error.kind() == AMQPErrorKind::Hard(AMQPHardError::INTERNALERROR)
    )
}
