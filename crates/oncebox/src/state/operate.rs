//! What follows from what an operator asks.

use super::{Event, Status};
use crate::error::{Error, ErrorKind, Result};

/// What an operator can do to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Try a poisoned entry again, with its attempts and crashes forgotten.
    Retry,
    /// Give up a poisoned entry, or one that still waits.
    Discard,
    /// Run a finished entry again, as a new generation.
    Replay,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 3] = [Self::Retry, Self::Discard, Self::Replay];

    /// The verb.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
            Self::Replay => "replay",
        }
    }

    /// The event it is in the diagram.
    pub const fn event(self) -> Event {
        match self {
            Self::Retry => Event::Retry,
            Self::Discard => Event::Discard,
            Self::Replay => Event::Replay,
        }
    }
}

/// The next state of an entry under an operator's hand. Pure, and the only place where it is chosen.
pub fn operate(status: Status, operation: Operation) -> Result<Status> {
    match (status, operation) {
        (Status::Poisoned, Operation::Retry) | (Status::Completed | Status::Discarded, Operation::Replay) => {
            Ok(Status::Pending)
        }
        (Status::Pending | Status::Poisoned, Operation::Discard) => Ok(Status::Discarded),
        (status, operation) => Err(Error::new(
            ErrorKind::Refused,
            format!("cannot {} an entry that is {status}", operation.as_str()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS J1, J3: an operator never touches what a worker holds.
    #[test]
    fn running_entries_are_left_alone() {
        for operation in Operation::ALL {
            assert_eq!(operate(Status::Running, operation).unwrap_err().kind(), ErrorKind::Refused);
        }
    }
}
