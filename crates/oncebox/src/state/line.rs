//! Order: what a poisoned entry means to those behind it with the same ordering key.

use super::{EntryEvent, Status};

/// What happens to the entries behind one that is poisoned, if they have its ordering key and its handler.
///
/// It is written down with the entry when it is poisoned: a handler that changes its mind does so for what is
/// poisoned from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPoisoned {
    /// They wait, pending, until a person retries, discards or unblocks the poisoned one.
    #[default]
    Block,
    /// They go on without it. It is flagged as [skipped](InLine::Skipped).
    Skip,
    /// They are parked with it, as poisoned for the reason [parked](super::PoisonReason::Parked): those that wait
    /// and those that are yet to come. So the backlog holds only what can run. When a person retries, discards or
    /// unblocks the first one, all of them are pending again, in their order.
    Park,
}

impl OnPoisoned {
    /// What an entry with an ordering key is in its line, once it is poisoned.
    pub const fn in_line(self) -> InLine {
        match self {
            Self::Block => InLine::Blocks,
            Self::Skip => InLine::Skipped,
            Self::Park => InLine::Parks,
        }
    }
}

/// What a poisoned entry with an ordering key is to those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InLine {
    /// Those behind it wait for it.
    Blocks,
    /// Those behind it are parked.
    Parks,
    /// Those behind it go on without it.
    Skipped,
    /// It is parked itself, because of an earlier one that [parks](Self::Parks).
    Parked,
}

impl InLine {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Blocks, Self::Parks, Self::Skipped, Self::Parked];

    /// The word for it in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Parks => "parks",
            Self::Skipped => "skipped",
            Self::Parked => "parked",
        }
    }

    /// What a word in the database stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// Whether those behind it cannot run.
    pub const fn holds_back(self) -> bool {
        matches!(self, Self::Blocks | Self::Parks)
    }
}

/// What follows for an entry with an ordering key from those before it in its line: whether one of them
/// [parks](InLine::Parks). Pure; a store asks after everything that changes a line.
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
