//! Model of claims, leases and fences, small enough to visit every reachable state. Tests: tests/protocol.rs.
//!
//! Two workers, two messages, two handlers each: one with its effect in its own transaction, one with its effect
//! outside. Workers crash, or are suspended past their lease and continue, and commits are in doubt, each as often as a
//! budget allows. [`Protocol::sound`] holds in every state. Each of [`Flaw::ALL`] omits one rule, and must lead to the
//! violation that its rule prevents.

use stateright::{Model, Property};

/// Messages; each has one entry per handler.
const MESSAGES: usize = 2;
/// Entries: message times handler. Even ones are transactional.
const ENTRIES: usize = MESSAGES * 2;
/// Entry of the first message's transactional handler under a former key: only with a flaw.
const FORMER: usize = ENTRIES;
/// Maximum entries.
const SLOTS: usize = ENTRIES + 1;
/// Workers.
const WORKERS: usize = 2;

/// A rule that the protocol omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A delivery is acknowledged before its message is committed.
    AckBeforeCommit,
    /// A completion ignores the token.
    UnfencedComplete,
    /// A failure ignores the token.
    UnfencedFail,
    /// A commit in doubt counts as committed.
    UnknownIsOk,
    /// A commit in doubt counts as rolled back, and the step repeats under another identity.
    UnknownIsRolledBack,
    /// A rescue takes an entry with a valid lease.
    RescueOfTheLiving,
    /// The effect is committed before the completion, not with it.
    CompletionApart,
    /// Expired leases are never rescued.
    NoRescue,
    /// New processes treat the keys of a renamed handler as one, old processes as two.
    RenameForgets,
}

impl Flaw {
    /// Every flaw, with the property it breaks.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::AckBeforeCommit, "what is acknowledged is stored"),
        (Self::UnfencedComplete, "a transactional effect happens at most once"),
        (Self::UnfencedFail, "completed stays completed"),
        (Self::UnknownIsOk, "what is acknowledged is stored"),
        (Self::UnknownIsRolledBack, "one key has one message"),
        (Self::RescueOfTheLiving, "a repeat has a fault that explains it"),
        (Self::CompletionApart, "a transactional effect happens at most once"),
        (Self::NoRescue, "everything can still come to its end"),
        (Self::RenameForgets, "a transactional effect happens at most once"),
    ];
}

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProtocolDelivery {
    /// The broker has it.
    Waiting,
    /// The broker received an acknowledgement.
    Acked,
}

/// State of an entry in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProtocolEntry {
    Absent,
    Pending,
    /// Leased under a token; the lease may have expired.
    Running {
        token: u8,
        expired: bool,
    },
    Completed,
}

/// State of a worker: its entry and its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hand {
    Idle,
    /// Runs the handler under a token.
    Runs {
        entry: u8,
        token: u8,
    },
    /// The handler is done, and its effect written; a transactional effect is not committed yet.
    Done {
        entry: u8,
        token: u8,
    },
    /// The effect is committed without the completion: only with a flaw.
    Apart {
        entry: u8,
        token: u8,
    },
}

/// The whole state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolState {
    deliveries: [ProtocolDelivery; MESSAGES],
    /// Number of times each message is stored.
    stored: [u8; MESSAGES],
    entries: [ProtocolEntry; SLOTS],
    hands: [Hand; WORKERS],
    /// True if a worker is suspended.
    stopped: [bool; WORKERS],
    /// Committed effects of transactional handlers, and finished runs of plain ones.
    effects: [u8; SLOTS],
    /// Faults that hit an entry while it ran.
    faults: [u8; SLOTS],
    /// True if an entry was completed once.
    was_completed: [bool; SLOTS],
    /// Number of claims of an entry: the token of its next claim. Fences are compared only within an entry, so each
    /// entry counts its own tokens. A common counter would only add equivalent states.
    claims: [u8; SLOTS],
    fails: u8,
    crashes: u8,
    zombies: u8,
    unknowns: u8,
    /// True if an old process received a message again that a new one completed.
    redelivered: bool,
}

/// A step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolAction {
    /// The broker delivers, and the message is accepted. `Some(made)` if the commit is in doubt.
    Accept(usize, Option<bool>),
    /// A worker claims an entry. In doubt: it holds the entry without knowing, or does not hold it.
    Claim(usize, usize, Option<bool>),
    /// A handler ends.
    Run(usize),
    /// A handler fails, and releases its entry.
    Fail(usize),
    /// A completion, with the effect if it is transactional.
    Complete(usize, Option<bool>),
    /// A worker dies.
    Crash(usize),
    /// A worker is suspended, and its lease expires.
    Stop(usize),
    /// A worker continues.
    Resume(usize),
    /// A rescue takes an entry with an expired lease.
    Rescue(usize),
    /// The first message comes again, to a process that uses a former key of its handler.
    Redeliver,
}

/// The protocol, with its budgets.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    flaw: Option<Flaw>,
    crashes: u8,
    zombies: u8,
    unknowns: u8,
}

impl Protocol {
    /// Returns the real protocol.
    pub const fn sound(crashes: u8, zombies: u8, unknowns: u8) -> Self {
        Self { flaw: None, crashes, zombies, unknowns }
    }

    /// Returns the protocol without one of its rules.
    pub const fn without(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), crashes: 1, zombies: 1, unknowns: 1 }
    }

    fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    const fn is_transactional(entry: usize) -> bool {
        entry.is_multiple_of(2)
    }
}

impl ProtocolState {
    fn holds(&self, entry: u8, token: u8) -> bool {
        matches!(self.entries[usize::from(entry)], ProtocolEntry::Running { token: held, .. } if held == token)
    }

    fn note_fault(&mut self, hand: Hand) {
        if let Hand::Runs { entry, .. } | Hand::Done { entry, .. } | Hand::Apart { entry, .. } = hand {
            self.faults[usize::from(entry)] += 1;
        }
    }

    fn expire(&mut self, hand: Hand) {
        if let Hand::Runs { entry, token } | Hand::Done { entry, token } | Hand::Apart { entry, token } = hand
            && self.holds(entry, token)
        {
            self.entries[usize::from(entry)] = ProtocolEntry::Running { token, expired: true };
        }
    }
}

impl Model for Protocol {
    type State = ProtocolState;
    type Action = ProtocolAction;

    fn init_states(&self) -> Vec<ProtocolState> {
        vec![ProtocolState {
            deliveries: [ProtocolDelivery::Waiting; MESSAGES],
            stored: [0; MESSAGES],
            entries: [ProtocolEntry::Absent; SLOTS],
            hands: [Hand::Idle; WORKERS],
            stopped: [false; WORKERS],
            effects: [0; SLOTS],
            faults: [0; SLOTS],
            was_completed: [false; SLOTS],
            claims: [0; SLOTS],
            fails: 1,
            crashes: self.crashes,
            zombies: self.zombies,
            unknowns: self.unknowns,
            redelivered: false,
        }]
    }

    fn actions(&self, state: &ProtocolState, actions: &mut Vec<ProtocolAction>) {
        let doubts: &[Option<bool>] =
            if state.unknowns > 0 { &[None, Some(true), Some(false)] } else { &[None] };
        for message in 0..MESSAGES {
            if state.deliveries[message] == ProtocolDelivery::Waiting {
                actions.extend(doubts.iter().map(|doubt| ProtocolAction::Accept(message, *doubt)));
            }
        }
        for worker in (0..WORKERS).filter(|worker| !state.stopped[*worker]) {
            match state.hands[worker] {
                Hand::Idle => {
                    let pending = (0..SLOTS).filter(|entry| state.entries[*entry] == ProtocolEntry::Pending);
                    actions.extend(pending.flat_map(|entry| {
                        doubts.iter().map(move |doubt| ProtocolAction::Claim(worker, entry, *doubt))
                    }));
                }
                Hand::Runs { .. } => {
                    actions.push(ProtocolAction::Run(worker));
                    actions.extend((state.fails > 0).then_some(ProtocolAction::Fail(worker)));
                }
                Hand::Done { .. } | Hand::Apart { .. } => {
                    actions.extend(doubts.iter().map(|doubt| ProtocolAction::Complete(worker, *doubt)));
                }
            }
            if state.hands[worker] != Hand::Idle {
                actions.extend((state.crashes > 0).then_some(ProtocolAction::Crash(worker)));
                actions.extend((state.zombies > 0).then_some(ProtocolAction::Stop(worker)));
            }
        }
        actions.extend((0..WORKERS).filter(|worker| state.stopped[*worker]).map(ProtocolAction::Resume));
        if state.entries[0] == ProtocolEntry::Completed && !state.redelivered {
            actions.push(ProtocolAction::Redeliver);
        }
        for entry in 0..SLOTS {
            if let ProtocolEntry::Running { expired, .. } = state.entries[entry]
                && (expired || self.has(Flaw::RescueOfTheLiving))
                && !self.has(Flaw::NoRescue)
            {
                actions.push(ProtocolAction::Rescue(entry));
            }
        }
    }

    fn next_state(&self, last: &ProtocolState, action: ProtocolAction) -> Option<ProtocolState> {
        let mut state = last.clone();
        match action {
            ProtocolAction::Accept(message, doubt) => self.accept(&mut state, message, doubt),
            ProtocolAction::Claim(worker, entry, doubt) => claim(&mut state, worker, entry, doubt),
            ProtocolAction::Run(worker) => {
                if let Hand::Runs { entry, token } = state.hands[worker] {
                    if !Self::is_transactional(usize::from(entry)) {
                        state.effects[usize::from(entry)] += 1;
                    }
                    state.hands[worker] = Hand::Done { entry, token };
                }
            }
            ProtocolAction::Fail(worker) => self.fail(&mut state, worker),
            ProtocolAction::Complete(worker, doubt) => self.complete(&mut state, worker, doubt),
            ProtocolAction::Crash(worker) => {
                state.crashes -= 1;
                let hand = std::mem::replace(&mut state.hands[worker], Hand::Idle);
                state.note_fault(hand);
                state.expire(hand);
            }
            ProtocolAction::Stop(worker) => {
                state.zombies -= 1;
                state.stopped[worker] = true;
                state.note_fault(state.hands[worker]);
                state.expire(state.hands[worker]);
            }
            ProtocolAction::Resume(worker) => state.stopped[worker] = false,
            ProtocolAction::Rescue(entry) => state.entries[entry] = ProtocolEntry::Pending,
            ProtocolAction::Redeliver => {
                state.redelivered = true;
                // The store knows that both keys are one handler, so the existing entry covers it.
                if self.has(Flaw::RenameForgets) {
                    state.entries[FORMER] = ProtocolEntry::Pending;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is acknowledged is stored", |_, state: &ProtocolState| {
                (0..MESSAGES).all(|m| state.deliveries[m] == ProtocolDelivery::Waiting || state.stored[m] > 0)
            }),
            Property::always("one key has one message", |_, state: &ProtocolState| {
                state.stored.iter().all(|count| *count <= 1)
            }),
            Property::always("a transactional effect happens at most once", |_, state: &ProtocolState| {
                let of_handler = |e: usize| {
                    if e == 0 { state.effects[e] + state.effects[FORMER] } else { state.effects[e] }
                };
                (0..ENTRIES).filter(|e| Self::is_transactional(*e)).all(|e| of_handler(e) <= 1)
            }),
            Property::always(
                "an effect and its completion are one",
                |model: &Self, state: &ProtocolState| {
                    model.flaw.is_some()
                        || (0..ENTRIES).filter(|e| Self::is_transactional(*e)).all(|e| {
                            (state.effects[e] == 1) == (state.entries[e] == ProtocolEntry::Completed)
                        })
                },
            ),
            Property::always("a repeat has a fault that explains it", |_, state: &ProtocolState| {
                (0..ENTRIES)
                    .filter(|e| !Self::is_transactional(*e))
                    .all(|e| state.effects[e] <= 1 + state.faults[e])
            }),
            Property::always("completed stays completed", |_, state: &ProtocolState| {
                (0..SLOTS).all(|e| !state.was_completed[e] || state.entries[e] == ProtocolEntry::Completed)
            }),
            Property::always(
                "everything can still come to its end",
                |model: &Self, state: &ProtocolState| {
                    // A worker holds each leased entry, or a rescue takes it back.
                    let held = |at: usize, token: u8| {
                        let mine = |hand: &Hand| matches!(hand, Hand::Runs { entry, token: held } | Hand::Done { entry, token: held } | Hand::Apart { entry, token: held } if usize::from(*entry) == at && *held == token);
                        state.hands.iter().any(mine)
                    };
                    (0..SLOTS).all(|at| match state.entries[at] {
                        ProtocolEntry::Running { token, expired } => {
                            held(at, token) || (expired && !model.has(Flaw::NoRescue))
                        }
                        _ => true,
                    })
                },
            ),
            Property::sometimes("everything is done", |_, state: &ProtocolState| {
                state.entries[..ENTRIES].iter().all(|entry| *entry == ProtocolEntry::Completed)
            }),
            Property::sometimes(
                "a zombie is refused and its work is done by another",
                |_, state: &ProtocolState| {
                    state.zombies == 0
                        && state.effects[1] == 2
                        && state.entries[1] == ProtocolEntry::Completed
                },
            ),
        ]
    }
}

impl Protocol {
    fn accept(self, state: &mut ProtocolState, message: usize, doubt: Option<bool>) {
        state.unknowns -= u8::from(doubt.is_some());
        let made = doubt.unwrap_or(true) && !(self.has(Flaw::AckBeforeCommit) && doubt == Some(false));
        // The key is known: the same accept again changes nothing.
        if made && state.stored[message] == 0 {
            state.stored[message] = 1;
            for entry in [message * 2, message * 2 + 1] {
                state.entries[entry] = ProtocolEntry::Pending;
            }
        } else if made && self.has(Flaw::UnknownIsRolledBack) {
            // The step repeats under another identity.
            state.stored[message] += 1;
        }
        let believed = doubt.is_none() || self.has(Flaw::UnknownIsOk) || self.has(Flaw::AckBeforeCommit);
        if believed {
            state.deliveries[message] = ProtocolDelivery::Acked;
        }
    }

    /// Releases the entry after a failure, if the claim holds.
    fn fail(self, state: &mut ProtocolState, worker: usize) {
        let Hand::Runs { entry, token } = std::mem::replace(&mut state.hands[worker], Hand::Idle) else {
            return;
        };
        state.fails -= 1;
        if state.holds(entry, token) || self.has(Flaw::UnfencedFail) {
            state.entries[usize::from(entry)] = ProtocolEntry::Pending;
        }
    }

    fn complete(self, state: &mut ProtocolState, worker: usize, doubt: Option<bool>) {
        let hand = state.hands[worker];
        let (Hand::Done { entry, token } | Hand::Apart { entry, token }) = hand else { return };
        let at = usize::from(entry);
        let transactional = Self::is_transactional(at);
        if transactional && self.has(Flaw::CompletionApart) && matches!(hand, Hand::Done { .. }) {
            state.effects[at] += 1;
            state.hands[worker] = Hand::Apart { entry, token };
            return;
        }
        state.hands[worker] = Hand::Idle;
        state.unknowns -= u8::from(doubt.is_some());
        if doubt.is_some() {
            state.faults[at] += 1;
        }
        let holds = state.holds(entry, token);
        if doubt.unwrap_or(true) && (holds || (transactional && self.has(Flaw::UnfencedComplete))) {
            if transactional && !matches!(hand, Hand::Apart { .. }) {
                state.effects[at] += 1;
            }
            state.entries[at] = ProtocolEntry::Completed;
            state.was_completed[at] = true;
        } else if doubt == Some(false) && holds {
            // Released under the same fence; refused if the commit succeeded.
            state.entries[at] = ProtocolEntry::Pending;
        }
    }
}

fn claim(state: &mut ProtocolState, worker: usize, entry: usize, doubt: Option<bool>) {
    state.unknowns -= u8::from(doubt.is_some());
    if doubt == Some(false) {
        return;
    }
    // In doubt but committed: the worker repeats the call with the same claim id, and learns that it holds the entry.
    state.claims[entry] += 1;
    let token = state.claims[entry];
    state.entries[entry] = ProtocolEntry::Running { token, expired: false };
    state.hands[worker] = Hand::Runs { entry: u8::try_from(entry).unwrap_or(u8::MAX), token };
}
