//! The next state of an entry, decided from an operation.

use super::{EntryEvent, InLine, Status};
use crate::error::{Error, ErrorKind, Result};

/// Operations on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Run a poisoned entry again, and reset its attempts and crashes.
    Retry,
    /// Discard a poisoned or pending entry.
    Discard,
    /// Run a finished entry again, as a new generation.
    Replay,
    /// Let the entries behind a poisoned one with its ordering key continue without it. It stays poisoned, as skipped.
    Unblock,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::Retry, Self::Discard, Self::Replay, Self::Unblock];

    /// Returns the verb.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
            Self::Replay => "replay",
            Self::Unblock => "unblock",
        }
    }

    /// Returns true if the operation is possible for some entry with this status.
    pub fn is_for(self, status: Status) -> bool {
        let places = InLine::ALL.map(Some).into_iter().chain([None]);
        places.into_iter().any(|in_line| operate(status, in_line, self).is_ok())
    }

    /// Returns the status of the entries that it is for, if its caller names none.
    pub const fn usual_status(self) -> Status {
        match self {
            Self::Retry | Self::Discard | Self::Unblock => Status::Poisoned,
            Self::Replay => Status::Completed,
        }
    }

    /// Returns its event in the diagram.
    pub const fn event(self) -> EntryEvent {
        match self {
            Self::Retry => EntryEvent::Retry,
            Self::Discard => EntryEvent::Discard,
            Self::Replay => EntryEvent::Replay,
            Self::Unblock => EntryEvent::Unblock,
        }
    }
}

/// Decides the next state of an entry after an operation. Pure, and the only place that does. `in_line` is the effect of a poisoned
/// entry with an ordering key on those behind it.
pub fn operate(status: Status, in_line: Option<InLine>, operation: Operation) -> Result<Status> {
    let verb = operation.as_str();
    let refuse = |what: String| Err(Error::new(ErrorKind::Refused, what));
    match (status, operation) {
        (Status::Poisoned, Operation::Retry | Operation::Unblock) if in_line == Some(InLine::Parked) => {
            refuse(format!(
                "cannot {verb} an entry that is parked: it waits for a poisoned one with its ordering key; retry, discard or unblock that one"
            ))
        }
        (Status::Poisoned, Operation::Unblock) => match in_line {
            Some(in_line) if in_line.holds_back() => Ok(Status::Poisoned),
            Some(_) => refuse("nothing to unblock: those behind the entry go on without it already".into()),
            None => {
                refuse("nothing to unblock: the entry has no ordering key, so nothing waits for it".into())
            }
        },
        (Status::Poisoned, Operation::Retry) | (Status::Completed | Status::Discarded, Operation::Replay) => {
            Ok(Status::Pending)
        }
        (Status::Pending | Status::Poisoned, Operation::Discard) => Ok(Status::Discarded),
        (status, _) => refuse(format!("cannot {verb} an entry that is {status}")),
    }
}

/// Decides the effect of an erasure on an entry of the message: none if it is finished, else [`Operation::Discard`] if the operator
/// asked for that. Pure, and the only place that does.
pub fn erase(status: Status, discard_unfinished: bool) -> Result<Option<Operation>> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Refused, what));
    match status {
        Status::Completed | Status::Discarded => Ok(None),
        Status::Pending | Status::Poisoned if discard_unfinished => Ok(Some(Operation::Discard)),
        Status::Pending | Status::Poisoned => refuse(format!(
            "cannot erase a message while an entry of it is {status}; let it finish, or discard what is unfinished with the erasure"
        )),
        Status::Running => refuse(
            "cannot erase a message while an entry of it runs; pause its handler if it is retried, and ask again when the run has ended"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS J1, J3: an operation never changes a leased entry.
    #[test]
    fn running_entries_are_left_alone() {
        for operation in Operation::ALL {
            assert_eq!(operate(Status::Running, None, operation).unwrap_err().kind(), ErrorKind::Refused);
        }
    }

    #[test]
    fn each_operation_is_for_some_statuses() {
        let of = |operation: Operation| Status::ALL.map(|status| operation.is_for(status));
        assert_eq!(Status::ALL.map(Status::as_str).join(" "), "pending running completed poisoned discarded");
        assert_eq!(of(Operation::Retry), [false, false, false, true, false]);
        assert_eq!(of(Operation::Discard), [true, false, false, true, false]);
        assert_eq!(of(Operation::Replay), [false, false, true, false, true]);
        assert_eq!(of(Operation::Unblock), [false, false, false, true, false]);
    }

    // FAULTS S12: an erasure discards nothing unless the operator asks for it, and takes nothing from a worker.
    #[test]
    fn an_erasure_discards_what_waits_and_only_if_asked() {
        let of = |discard: bool| Status::ALL.map(|status| erase(status, discard).ok());
        let discard = Some(Some(Operation::Discard));
        assert_eq!(Status::ALL.map(Status::as_str).join(" "), "pending running completed poisoned discarded");
        assert_eq!(of(false), [None, None, Some(None), None, Some(None)]);
        assert_eq!(of(true), [discard, None, Some(None), discard, Some(None)]);
        assert_eq!(erase(Status::Running, true).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn only_what_holds_others_back_is_unblocked() {
        for in_line in InLine::ALL.map(Some).into_iter().chain([None]) {
            let unblocked = operate(Status::Poisoned, in_line, Operation::Unblock);
            assert_eq!(unblocked.is_ok(), in_line.is_some_and(InLine::holds_back), "{in_line:?}");
            assert_eq!(
                operate(Status::Poisoned, in_line, Operation::Retry).is_ok(),
                in_line != Some(InLine::Parked)
            );
        }
    }
}
