//! History of a message, and the explanation of where its entries stand.

use std::fmt::{self, Write as _};

use super::{ClaimId, EntryView, MessageView, OperationView, Seq};
use crate::key::Key;
use crate::message::Message;
use crate::name::HandlerKey;
use crate::state::{EntryEvent, ErrorText, InLine, Settlement, Status, Suspicion};
use crate::time::Timestamp;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// First key under which the store knew the handler.
    pub origin: HandlerKey,
    /// Generation of the entry.
    pub generation: u32,
    /// Time of the settlement.
    pub at: Timestamp,
    /// Event: fail, exhaust, reject, crash or `crash_out`.
    pub event: EntryEvent,
    /// Failed attempts, including this one.
    pub attempts: u32,
    /// Suspicion that the entry crashes its worker, including this run.
    pub suspicion: Suspicion,
    /// Error text of the handler.
    pub error: Option<ErrorText>,
    /// Claim of the settlement: the worker's, or after a crash that of the process that rescued the entry.
    pub claim_id: ClaimId,
}

impl Attempt {
    /// Maximum attempts kept per entry, counted from its start or its last retry by an operator. Later attempts are only counted.
    pub const KEPT: u32 = 100;

    /// Returns the event for the word that a store kept.
    pub fn event_of(word: &str) -> Option<EntryEvent> {
        let kept = [
            EntryEvent::Fail,
            EntryEvent::Exhaust,
            EntryEvent::Reject,
            EntryEvent::Crash,
            EntryEvent::CrashOut,
        ];
        kept.into_iter().find(|event| event.as_str() == word)
    }
}

impl Settlement {
    /// Returns the event if the history keeps this attempt. It keeps no success, snooze or release, and nothing beyond
    /// [`Attempt::KEPT`].
    pub fn failure(&self) -> Option<EntryEvent> {
        let failed = Attempt::event_of(self.event.as_str()).is_some();
        let few = self.attempts.saturating_add(self.suspicion.stored()) <= Attempt::KEPT;
        Some(self.event).filter(|_| failed && few)
    }
}

/// Duplicate deliveries of a stored message.
///
/// Processes count duplicates in memory and store the sums from time to time, so a duplicate costs no write of its own. A process
/// that dies loses its last counts, and one that sees very many keys at once may merge some. The number is a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateCount {
    /// Stored message.
    pub seq: Seq,
    /// Number of duplicates.
    pub count: u64,
    /// Time of the first duplicate, on the receiving process's clock.
    pub first: Timestamp,
    /// Time of the last duplicate.
    pub last: Timestamp,
    /// Number of duplicates with another payload: duplicates only because [the first wins](crate::config::OnConflict::FirstWins).
    pub varied: u64,
}

impl DuplicateCount {
    /// Adds the counts of the same message.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            seq: self.seq,
            count: self.count.saturating_add(other.count),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            varied: self.varied.saturating_add(other.varied),
        }
    }
}

/// Worker that holds a running entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// Claim of the worker.
    pub claim_id: ClaimId,
    /// Time of the claim.
    pub claimed_at: Timestamp,
    /// End of the lease.
    pub lease_until: Timestamp,
}

/// First entry before another one with the same ordering key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryAhead {
    /// Handler key of both entries.
    pub handler: HandlerKey,
    /// Number of its message.
    pub seq: Seq,
    /// Key of its message.
    pub key: Key,
    /// Status.
    pub status: Status,
}

/// History that a store keeps of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageHistory {
    /// Time on the store's clock.
    pub now: Timestamp,
    /// Failed attempts, the oldest first.
    pub attempts: Vec<Attempt>,
    /// Duplicate deliveries that processes have stored.
    pub duplicates: Option<DuplicateCount>,
    /// Holders of running entries.
    pub holders: Vec<LeaseHolder>,
    /// Entries before those that wait for their turn or are parked.
    pub ahead: Vec<EntryAhead>,
    /// Handlers that are paused.
    pub paused: Vec<HandlerKey>,
    /// Handlers for which the ordering key of the message is paused.
    pub key_paused: Vec<HandlerKey>,
}

/// Reason for an entry's status, and the event that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryExplanation {
    /// Finished.
    Finished,
    /// A later generation has replaced it.
    Replayed,
    /// A worker holds it.
    Leased {
        /// Holder and end of the lease.
        holder: LeaseHolder,
        /// True if the lease has expired, so the entry waits for the next rescue.
        over: bool,
    },
    /// It failed for good and waits for an operator.
    NeedsPerson,
    /// It waits for an earlier entry with its ordering key.
    Behind(EntryAhead),
    /// Its handler is paused.
    Paused,
    /// Its ordering key is paused for its handler.
    KeyPaused,
    /// It is not due yet.
    NotDue(Timestamp),
    /// It is due, and no worker has claimed it yet.
    Due(Timestamp),
}

impl EntryExplanation {
    /// Explains where an entry stands. Pure.
    pub fn of(entry: &EntryView, view: &MessageView, history: &MessageHistory) -> Self {
        let same = |handler: &HandlerKey| *handler == entry.handler;
        let later = |other: &EntryView| same(&other.handler) && other.generation > entry.generation;
        if view.entries.iter().any(later) {
            return Self::Replayed;
        }
        let ahead = history.ahead.iter().find(|ahead| same(&ahead.handler)).cloned();
        match entry.status {
            Status::Completed | Status::Discarded => Self::Finished,
            Status::Running => history.holders.iter().find(|holder| same(&holder.handler)).map_or(
                Self::Due(entry.at),
                |holder| Self::Leased { holder: holder.clone(), over: holder.lease_until < history.now },
            ),
            Status::Poisoned if entry.in_line == Some(InLine::Parked) => {
                ahead.map_or(Self::NeedsPerson, Self::Behind)
            }
            Status::Poisoned => Self::NeedsPerson,
            Status::Pending if history.paused.iter().any(same) => Self::Paused,
            Status::Pending if history.key_paused.iter().any(same) => Self::KeyPaused,
            Status::Pending => match ahead {
                Some(ahead) => Self::Behind(ahead),
                None if entry.at > history.now => Self::NotDue(entry.at),
                None => Self::Due(entry.at),
            },
        }
    }
}

impl fmt::Display for EntryExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("it is finished"),
            Self::Replayed => f.write_str("a later generation has taken its place"),
            Self::Leased { holder, over: false } => {
                write!(f, "a worker has it until {} (claim {})", holder.lease_until, holder.claim_id)
            }
            Self::Leased { holder, over: true } => write!(
                f,
                "its worker (claim {}) has not been heard of since its lease ended at {}; it is taken over by the next rescue \
                 of a process that knows its handler",
                holder.claim_id, holder.lease_until
            ),
            Self::NeedsPerson => {
                f.write_str("it failed for good and waits for a person to retry or discard it")
            }
            Self::Behind(ahead) => write!(
                f,
                "it waits for message {} with the same ordering key, which is {} (key {})",
                ahead.seq, ahead.status, ahead.key
            ),
            Self::Paused => f.write_str("its handler is paused; resume it"),
            Self::KeyPaused => f.write_str("its ordering key is paused for its handler; resume it"),
            Self::NotDue(at) => write!(f, "it is due at {at}"),
            Self::Due(at) => write!(
                f,
                "it is due since {at} and no worker has taken it: its handler is not running, busy, over its rate, or its breaker is \
                 open (each process has its own, which the store does not know)"
            ),
        }
    }
}

/// Everything known of a key, with an explanation for each entry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The message and its entries.
    pub view: MessageView,
    /// History of the message.
    pub history: MessageHistory,
    /// Operations on it, the oldest first. Of more than 1,000, the latest.
    pub operations: Vec<OperationView>,
    /// Explanation for each entry of `view`, in the same order.
    pub why: Vec<EntryExplanation>,
}

impl Explanation {
    pub(super) fn new(view: MessageView, history: MessageHistory, operations: Vec<OperationView>) -> Self {
        let why = view.entries.iter().map(|entry| EntryExplanation::of(entry, &view, &history)).collect();
        Self { view, history, operations, why }
    }

    /// Returns the explanations as sentences. If a worker died while it held the entry, the sentence includes the effect.
    pub fn reasons(&self) -> Vec<String> {
        let each = self.view.entries.iter().zip(&self.why);
        each.map(|(entry, why)| {
            let open = matches!(entry.status, Status::Pending | Status::Running);
            let suspicion = entry.suspicion.explained().filter(|_| open);
            suspicion.map_or_else(|| why.to_string(), |suspicion| format!("{why}; {suspicion}"))
        })
        .collect()
    }

    /// Returns the history as lines in the order of time: deliveries, attempts and operations.
    pub fn story(&self) -> Vec<(Timestamp, String)> {
        let mut story = Vec::new();
        if let Some((seq, at, message)) = &self.view.stored {
            story.push((*at, format!("delivered first, and stored as message {seq}: {}", named(message))));
            if self.view.entries.is_empty() {
                let why = format!(
                    "no handler that keeps messages was registered for the type {:?}, so nothing waits or runs (a fire-and-forget one \
                     leaves no trace); once there is one, another delivery or a backfill gives it the message",
                    message.message_type()
                );
                story.push((*at, why));
            }
        }
        if let (true, Some(entry)) = (self.view.erased, self.view.entries.first()) {
            let what = "delivered first, and stored; an operator erased its content since".to_owned();
            story.push((entry.received_at, what));
        }
        if let Some(DuplicateCount { count, first, last, varied, .. }) = &self.history.duplicates {
            let mut line = format!("duplicates delivered: at least {count} times until {last}");
            if *varied > 0 {
                let _ = write!(line, "; {varied} of these had another payload, and the first one counts");
            }
            story.push((*first, line));
        }
        for item in &self.view.quarantined {
            let why = format!("delivered and quarantined: {}", item.reason.as_str());
            story.push((item.received_at, why));
        }
        for attempt in &self.history.attempts {
            let error = attempt.error.as_ref().map_or(String::new(), |error| format!(": {error}"));
            let Attempt { handler, event, attempts, suspicion, claim_id, .. } = attempt;
            let (word, crashes) = (event.as_str(), suspicion.own_crashes());
            story.push((
                attempt.at,
                format!(
                    "{handler}: {word}, attempts {attempts}, crashes {crashes} (claim {claim_id}){error}"
                ),
            ));
        }
        for entry in &self.view.entries {
            if matches!(entry.status, Status::Completed | Status::Discarded) {
                story.push((entry.at, format!("{}: {}", entry.handler, entry.status)));
            }
        }
        for OperationView { id, at, actor, token, reason, verb, handler, .. } in &self.operations {
            let actor = asker(actor, token.as_deref());
            let handler = handler.as_ref().map_or(String::new(), |handler| format!(" {handler}"));
            story.push((*at, format!("{actor} asked to {verb}{handler} (operation {id}): {reason}")));
        }
        story.sort_by_key(|(at, _)| *at);
        story
    }
}

/// Formats an actor and its token as one line. Quotes a name that could be mistaken for more than a name.
fn asker(actor: &str, token: Option<&str>) -> String {
    let plain = |c: char| c.is_alphanumeric() || " ._-@+'".contains(c);
    let name = if actor.chars().all(plain) { actor.to_owned() } else { format!("{actor:?}") };
    token.map_or(name.clone(), |token| format!("{name} (token {token:?})"))
}

/// Formats type, id and source of a message. An id may be long, and any bytes.
fn named(message: &Message) -> String {
    const SHOWN: usize = 100;
    let id = String::from_utf8_lossy(message.id());
    let cut = if id.chars().nth(SHOWN).is_some() { "…" } else { "" };
    let id: String = id.chars().take(SHOWN).collect();
    format!("type {:?}, id {id:?}{cut}, source {:?}", message.message_type(), message.source())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.view.key)?;
        for (at, line) in self.story() {
            writeln!(f, "  {at} {line}")?;
        }
        for (entry, why) in self.view.entries.iter().zip(self.reasons()) {
            let EntryView { handler, generation, status, .. } = entry;
            writeln!(f, "  {handler} (generation {generation}) is {status}: {why}")?;
        }
        Ok(())
    }
}
