//! The state diagram, drawn from the table that the tests compare with the rules.

use std::fmt::Write as _;

use super::Status;

/// Event that moves an entry from one status to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EntryEvent {
    /// The message was stored for a handler.
    Accept,
    /// A worker claimed it.
    Claim,
    /// The handler did its work.
    Done,
    /// The handler failed and may try again.
    Fail,
    /// The handler failed for the last time.
    Exhaust,
    /// The handler reported that no retry will succeed, or the payload never decoded.
    Reject,
    /// The payload does not decode yet.
    Defer,
    /// The handler asked for a later attempt.
    Snooze,
    /// The worker released it.
    Release,
    /// The handler reported that it needs no handling.
    Dismiss,
    /// The worker died.
    Crash,
    /// Too many workers died while they ran it alone.
    CrashOut,
    /// An operator retried it.
    Retry,
    /// An operator discarded it.
    Discard,
    /// An operator replayed it.
    Replay,
    /// An operator let the entries behind it continue.
    Unblock,
    /// An earlier entry with its ordering key is poisoned, and parks those behind it.
    Park,
    /// That entry no longer parks it.
    Unpark,
}

impl EntryEvent {
    /// Returns the word for it in metrics and in the diagram.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Claim => "claim",
            Self::Done => "done",
            Self::Fail => "fail",
            Self::Exhaust => "exhaust",
            Self::Reject => "reject",
            Self::Defer => "defer",
            Self::Snooze => "snooze",
            Self::Release => "release",
            Self::Dismiss => "dismiss",
            Self::Crash => "crash",
            Self::CrashOut => "crash_out",
            Self::Retry => "retry",
            Self::Discard => "discard",
            Self::Replay => "replay",
            Self::Unblock => "unblock",
            Self::Park => "park",
            Self::Unpark => "unpark",
        }
    }

    /// Returns its effect on the counters, for the label of its arrow.
    const fn note(self) -> &'static str {
        match self {
            Self::Fail | Self::Exhaust => " (attempts + 1)",
            Self::Crash => " (crashes + 1 if it ran alone)",
            Self::CrashOut => " (crashes + 1)",
            Self::Retry => " (by an operator, counters = 0)",
            Self::Discard | Self::Unblock => " (by an operator)",
            Self::Replay => " (by an operator, generation + 1)",
            _ => "",
        }
    }
}

/// One arrow of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// Status where it starts. `None` for the start of the diagram.
    pub from: Option<Status>,
    /// Event.
    pub event: EntryEvent,
    /// Status where it ends.
    pub to: Status,
}

const fn edge(from: Option<Status>, event: EntryEvent, to: Status) -> Edge {
    Edge { from, event, to }
}

/// Every arrow.
pub const EDGES: &[Edge] = {
    use Status::{Completed, Discarded, Pending, Poisoned, Running};
    &[
        edge(None, EntryEvent::Accept, Pending),
        edge(Some(Pending), EntryEvent::Claim, Running),
        edge(Some(Running), EntryEvent::Done, Completed),
        edge(Some(Running), EntryEvent::Fail, Pending),
        edge(Some(Running), EntryEvent::Snooze, Pending),
        edge(Some(Running), EntryEvent::Release, Pending),
        edge(Some(Running), EntryEvent::Defer, Pending),
        edge(Some(Running), EntryEvent::Crash, Pending),
        edge(Some(Running), EntryEvent::Exhaust, Poisoned),
        edge(Some(Running), EntryEvent::Reject, Poisoned),
        edge(Some(Running), EntryEvent::CrashOut, Poisoned),
        edge(Some(Running), EntryEvent::Dismiss, Discarded),
        edge(Some(Poisoned), EntryEvent::Retry, Pending),
        edge(Some(Poisoned), EntryEvent::Discard, Discarded),
        edge(Some(Pending), EntryEvent::Discard, Discarded),
        edge(Some(Completed), EntryEvent::Replay, Pending),
        edge(Some(Discarded), EntryEvent::Replay, Pending),
        edge(Some(Poisoned), EntryEvent::Unblock, Poisoned),
        edge(Some(Pending), EntryEvent::Park, Poisoned),
        edge(Some(Poisoned), EntryEvent::Unpark, Pending),
    ]
};

/// Returns the diagram as Mermaid text.
pub fn diagram() -> String {
    let mut out = String::from("stateDiagram-v2\n");
    for edge in EDGES {
        let from = edge.from.map_or("[*]", Status::as_str);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "    {from} --> {}: {}{}", edge.to, edge.event.as_str(), edge.event.note());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::state::{
        Claim, ErrorText, InLine, Operation, Outcome, Policy, Retry, Suspicion, decide, follow, operate,
    };
    use crate::time::Timestamp;

    /// Every arrow that the pure functions produce for all inputs.
    fn produced() -> BTreeSet<Edge> {
        let text = || ErrorText::new("x");
        let mut edges = BTreeSet::new();
        for (attempts, suspicion, age) in [(0, 0, 0), (9, 0, 0), (0, 99, 0), (0, 0, i64::MAX)] {
            let claim = Claim {
                attempts,
                suspicion: Suspicion::from_stored(suspicion),
                alone: suspicion > 0,
                claimed_at: Timestamp::from_millis(age),
                ..Claim::for_tests()
            };
            let policy = Policy { retry: Retry { attempts: 5, ..Retry::default() }, ..Policy::default() };
            for outcome in [
                Outcome::Done,
                Outcome::Retry { error: text(), after: None },
                Outcome::Snooze { delay: Duration::ZERO },
                Outcome::Reject { error: text() },
                Outcome::Discard { reason: text() },
                Outcome::Undecodable { error: text() },
                Outcome::Released,
                Outcome::Crashed,
            ] {
                let settlement = decide(&policy, &claim, outcome);
                edges.insert(edge(Some(Status::Running), settlement.event, settlement.next.status()));
            }
        }
        for status in Status::ALL {
            for in_line in InLine::ALL.map(Some).into_iter().chain([None]) {
                for operation in Operation::ALL {
                    if let Ok(to) = operate(status, in_line, operation) {
                        edges.insert(edge(Some(status), operation.event(), to));
                    }
                }
                for behind_parked in [true, false] {
                    if let Some((event, to)) = follow(status, in_line, behind_parked) {
                        edges.insert(edge(Some(status), event, to));
                    }
                }
            }
        }
        edges
    }

    // The first two arrows are the verbs accept and claim. The conformance suite walks every arrow on every store.
    #[test]
    fn the_table_holds_exactly_what_the_rules_produce() {
        let table: BTreeSet<Edge> = EDGES[2..].iter().copied().collect();
        assert_eq!(produced(), table);
        assert_eq!(table.len() + 2, EDGES.len(), "an arrow is listed twice");
    }
}
