//! The protocol of claims, leases and fences as a model, small enough to look at every state it can reach.
//!
//! Two workers, two messages, two handlers each: one whose effect is in its own transaction, one whose effect lies outside.
//! Workers crash, stand still for longer than their lease and go on, and commits are in doubt; each as often as a budget
//! allows. [`Protocol::sound`] holds in every state; each of [`Flaw::ALL`] leaves one rule out, and has to lead to the
//! violation that its rule prevents.

use stateright::{Model, Property};

/// Messages; each has one entry per handler.
const MESSAGES: usize = 2;
/// Entries: message times handler. Even ones are transactional.
const ENTRIES: usize = MESSAGES * 2;
/// The entry of the first message's transactional handler under a former key: only with a flaw.
const FORMER: usize = ENTRIES;
/// Entries there may be.
const SLOTS: usize = ENTRIES + 1;
/// Workers.
const WORKERS: usize = 2;

/// A rule that the protocol omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A delivery is acknowledged before its message is committed.
    AckBeforeCommit,
    /// A completion does not look at the token.
    UnfencedComplete,
    /// A failure does not look at the token.
    UnfencedFail,
    /// A commit in doubt counts as made.
    UnknownIsOk,
    /// A commit in doubt counts as not made, and the step is done again under another identity.
    UnknownIsRolledBack,
    /// An entry is taken over though its lease holds.
    RescueOfTheLiving,
    /// The effect is committed before the completion, not with it.
    CompletionApart,
    /// A lease that ran out is never looked for.
    NoRescue,
    /// The keys of a renamed handler are one for new processes, and two for old ones.
    RenameForgets,
}

impl Flaw {
    /// Every flaw, with the property that it breaks.
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

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProtocolDelivery {
    /// The broker has it.
    Waiting,
    /// The broker was told that it is safe.
    Acked,
}

/// Where an entry stands, for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProtocolEntry {
    Absent,
    Pending,
    /// Leased under a token; the lease has run out or not.
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
    /// The handler is done, and its effect written; a transactional one is not committed yet.
    Done {
        entry: u8,
        token: u8,
    },
    /// The effect is committed and the completion is not: only with a flaw.
    Apart {
        entry: u8,
        token: u8,
    },
}

/// A state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolState {
    deliveries: [ProtocolDelivery; MESSAGES],
    /// Number of times each message is stored.
    stored: [u8; MESSAGES],
    entries: [ProtocolEntry; SLOTS],
    hands: [Hand; WORKERS],
    /// True if a worker stands still.
    stopped: [bool; WORKERS],
    /// Committed effects of transactional handlers, and runs that were done of plain ones.
    effects: [u8; SLOTS],
    /// Faults that hit an entry while it ran.
    faults: [u8; SLOTS],
    /// True if an entry was completed once.
    was_completed: [bool; SLOTS],
    /// Number of claims of an entry: the token of its next claim. A fence is compared only with one of the same entry,
    /// so each entry counts its own tokens; a common counter would only add states of the same kind.
    claims: [u8; SLOTS],
    fails: u8,
    crashes: u8,
    zombies: u8,
    unknowns: u8,
    /// True if an old process got a message again that a new one completed.
    redelivered: bool,
}

/// A step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolAction {
    /// The broker delivers, and the message is accepted. `Some(made)` if the commit is in doubt.
    Accept(usize, Option<bool>),
    /// A worker claims an entry. In doubt: it does not know that it did, or believes that it did not and did not.
    Claim(usize, usize, Option<bool>),
    /// A handler comes to its end.
    Run(usize),
    /// A handler says no, and its entry goes back.
    Fail(usize),
    /// A completion, with the effect if it is transactional.
    Complete(usize, Option<bool>),
    /// A worker dies.
    Crash(usize),
    /// A worker stands still, and its lease runs out.
    Stop(usize),
    /// A worker goes on.
    Resume(usize),
    /// An entry whose lease ran out is taken back.
    Rescue(usize),
    /// The first message comes again, to a process that knows its handler by a former key.
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
    /// The protocol as it is.
    pub const fn sound(crashes: u8, zombies: u8, unknowns: u8) -> Self {
        Self { flaw: None, crashes, zombies, unknowns }
    }

    /// The protocol without one of its rules.
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
                // The store knows that both keys are one handler, so the entry that is there covers it.
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
            // Done again under another identity.
            state.stored[message] += 1;
        }
        let believed = doubt.is_none() || self.has(Flaw::UnknownIsOk) || self.has(Flaw::AckBeforeCommit);
        if believed {
            state.deliveries[message] = ProtocolDelivery::Acked;
        }
    }

    /// A failure gives the entry back, if the claim holds.
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
            // Given back under the same fence; if the commit was made, that is refused.
            state.entries[at] = ProtocolEntry::Pending;
        }
    }
}

fn claim(state: &mut ProtocolState, worker: usize, entry: usize, doubt: Option<bool>) {
    state.unknowns -= u8::from(doubt.is_some());
    if doubt == Some(false) {
        return;
    }
    // In doubt and made: the worker asks again with the same claim id, and learns that it holds the entry.
    state.claims[entry] += 1;
    let token = state.claims[entry];
    state.entries[entry] = ProtocolEntry::Running { token, expired: false };
    state.hands[worker] = Hand::Runs { entry: u8::try_from(entry).unwrap_or(u8::MAX), token };
}
