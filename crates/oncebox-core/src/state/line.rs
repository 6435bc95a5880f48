//! Ordering: effect of a poisoned entry on those behind it with the same ordering key.

use super::{EntryEvent, Status};

/// Effect of a poisoned entry on those behind it with the same handler and ordering key.
///
/// It is stored with the entry when it is poisoned. A changed setting applies to entries that are poisoned later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPoisoned {
    /// They wait, pending, until an operator retries, discards or unblocks the poisoned one.
    #[default]
    Block,
    /// They continue without it. It is marked as [skipped](InLine::Skipped).
    Skip,
    /// They are parked with it, as poisoned for the reason [parked](super::PoisonReason::Parked): those that wait and those that
    /// come later. So the backlog holds only entries that can run. When an operator retries, discards or unblocks the first one,
    /// all of them are pending again, in their order.
    Park,
}

impl OnPoisoned {
    /// Returns the place of an entry with an ordering key in its queue, once it is poisoned.
    pub const fn in_line(self) -> InLine {
        match self {
            Self::Block => InLine::Blocks,
            Self::Skip => InLine::Skipped,
            Self::Park => InLine::Parks,
        }
    }
}

/// Place of a poisoned entry in the queue of its ordering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InLine {
    /// Entries behind it wait for it.
    Blocks,
    /// Entries behind it are parked.
    Parks,
    /// Entries behind it continue without it.
    Skipped,
    /// It is parked itself, because an earlier entry [parks](Self::Parks).
    Parked,
}

impl InLine {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Blocks, Self::Parks, Self::Skipped, Self::Parked];

    /// Returns the word for it in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Parks => "parks",
            Self::Skipped => "skipped",
            Self::Parked => "parked",
        }
    }

    /// Reads the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// Returns true if the entries behind it cannot run.
    pub const fn holds_back(self) -> bool {
        matches!(self, Self::Blocks | Self::Parks)
    }
}

/// Decides the next state of an entry with an ordering key, given whether an earlier one [parks](InLine::Parks) it. Pure. A store
/// calls it after every change of an order queue.
pub const fn follow(
    status: Status,
    in_line: Option<InLine>,
    behind_parked: bool,
) -> Option<(EntryEvent, Status)> {
    match (status, in_line) {
        (Status::Pending, _) if behind_parked => Some((EntryEvent::Park, Status::Poisoned)),
        (Status::Poisoned, Some(InLine::Parked)) if !behind_parked => {
            Some((EntryEvent::Unpark, Status::Pending))
        }
        _ => None,
    }
}
