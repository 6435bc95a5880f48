//! The rules: pure functions that decide the next state of an entry. No other code does.
//!
//! [`decide`] serves the runtime (a claimed entry and its outcome), [`operate`] serves operators, and [`follow`] moves the entries
//! behind a poisoned one. Stores persist the decision under the fence; they never choose a state themselves.

mod claim;
mod decide;
mod diagram;
mod line;
mod mask;
mod operate;
mod policy;
mod suspicion;
mod text;

pub use claim::{Claim, ClaimId, Seq, Token};
pub use decide::{NextState, Outcome, PoisonReason, Settlement, decide};
pub use diagram::{EDGES, Edge, EntryEvent, diagram};
pub use line::{InLine, OnPoisoned, follow};
pub use operate::{Operation, erase, operate};
pub use policy::{Policies, Policy, Retry};
pub use suspicion::Suspicion;
pub use text::ErrorText;

use std::fmt;

/// Status of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waiting to be claimed, now or at its due time.
    Pending,
    /// Leased to a worker.
    Running,
    /// Done; only an operator's replay leads out of it.
    Completed,
    /// Failed for good; an operator has to act.
    Poisoned,
    /// Discarded on purpose, by an operator or by the handler.
    Discarded,
}

impl Status {
    /// Every status, in the order of an entry's life.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Running, Self::Completed, Self::Poisoned, Self::Discarded];

    /// Returns the word for it in the database, in metrics and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Poisoned => "poisoned",
            Self::Discarded => "discarded",
        }
    }

    /// Returns true if the entry stays as it is until an operator changes it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Poisoned | Self::Discarded)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
