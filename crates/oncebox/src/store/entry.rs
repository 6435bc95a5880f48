//! What goes in and out of the verbs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Route;
use crate::config::OnConflict;
use crate::key::{Fingerprint, Key, OrderKey};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{NextState, Outcome, Policies, Policy, Settlement, Suspicion, decide};
use crate::time::Timestamp;

/// The number a store gives a message when it accepts it; later messages have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The fence: grows with every claim of a store, also over a failover of its database, so that an older claim can be told from a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

/// The identity of one call of claim, made by the caller: a claim whose answer was lost is found by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// A new one, never seen before.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// From the bytes a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The bytes a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message on its way in. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewMessage {
    /// The inbox it goes to.
    pub inbox: InboxName,
    /// Its dedupe key.
    pub key: Key,
    /// What tells it from another message under the same key.
    pub fingerprint: Fingerprint,
    /// The ordering key's identity, if it asks for order.
    pub order: Option<OrderKey>,
    /// The handlers it goes to; none if its type has no handler.
    pub routes: Arc<[Route]>,
    /// The message.
    pub message: Arc<Message>,
    /// What happens if the key is known with another payload.
    pub on_conflict: OnConflict,
    /// How long to wait before the first attempt.
    pub delay: Duration,
    /// Whether it can have been here before. One under a key that was made for it alone cannot, however old it is.
    pub compared: bool,
}

impl NewMessage {
    /// A message for `routes`, with its fingerprint and order derived.
    pub fn new(inbox: InboxName, key: Key, message: Arc<Message>, routes: Arc<[Route]>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&message),
            order: OrderKey::of(&inbox, &message),
            inbox,
            key,
            routes,
            message,
            on_conflict: OnConflict::default(),
            delay: Duration::ZERO,
            compared: true,
        }
    }

    /// Whether it is in conflict with the message that its key is known with. Where the first wins, another payload of the same
    /// type is none; another type always is, because its handlers would be given a message that is not theirs.
    pub fn conflicts_with(&self, known: &Fingerprint) -> bool {
        self.on_conflict.is_conflict(known, &self.fingerprint)
    }

    /// When it was made, if that decides whether it may have been forgotten.
    pub fn doubtful_since(&self) -> Option<Timestamp> {
        self.message.time().filter(|_| self.compared)
    }
}

/// What a store knows of a message that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownMessage {
    /// Its number.
    pub seq: Seq,
    /// How long before this one it came, on the store's clock.
    pub age: Duration,
    /// Whether this one has another payload than the first. Only where
    /// [the first wins](crate::config::OnConflict::FirstWins): elsewhere it is no duplicate.
    pub varied: bool,
}

impl KnownMessage {
    /// A message that came `age` ago.
    pub const fn new(seq: Seq, age: Duration) -> Self {
        Self { seq, age, varied: false }
    }

    /// The same, for a duplicate that has another payload, or has not.
    #[must_use]
    pub const fn varied(mut self, varied: bool) -> Self {
        self.varied = varied;
        self
    }
}

/// What became of a message that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It is new and stored.
    First(Seq),
    /// It was stored before; nothing changed.
    Duplicate(KnownMessage),
    /// It was stored before; entries were added for handlers that it had not been stored for.
    HandlersAdded(Seq, usize),
    /// Its key was stored before with another payload. It is quarantined and does not run.
    Conflict(Seq),
    /// It is older than what the store remembers for one of its handlers, so it may have run before. It is quarantined and
    /// does not run.
    Stale,
}

impl Accepted {
    /// The answer for a message that was offered under two keys: what needs a person counts most, then what is new. So
    /// the order is conflict, stale, first, handlers added (all of them together), and duplicate only if both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let rank = |accepted: &Self| match accepted {
            Self::Duplicate(_) => 0,
            Self::HandlersAdded(..) => 1,
            Self::First(_) => 2,
            Self::Stale => 3,
            Self::Conflict(_) => 4,
        };
        match (self, other) {
            (Self::HandlersAdded(seq, a), Self::HandlersAdded(_, b)) => Self::HandlersAdded(seq, a + b),
            _ if rank(&other) > rank(&self) => other,
            _ => self,
        }
    }

    /// The word for it in metrics and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First(_) => "first",
            Self::Duplicate(_) => "duplicate",
            Self::HandlersAdded(..) => "handlers_added",
            Self::Conflict(_) => "conflict",
            Self::Stale => "stale",
        }
    }
}

/// An entry leased to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The inbox.
    pub inbox: InboxName,
    /// The message.
    pub seq: Seq,
    /// The handler: the first key of the caller's route that the store knows the entry's handler by.
    pub handler: HandlerKey,
    /// The first key that the store knew the handler by. It is the same for every process, whatever keys that process knows,
    /// so idempotency keys are made of it.
    pub origin: HandlerKey,
    /// The message's dedupe key.
    pub key: Key,
    /// The fence.
    pub token: Token,
    /// The call that made the claim.
    pub claim_id: ClaimId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// How far it is suspected of taking its worker down.
    pub suspicion: Suspicion,
    /// Whether the run had the process to itself when it began. Only a claim of one suspect by an idle worker has. On a rescued
    /// claim it describes the run whose worker died.
    pub alone: bool,
    /// How often an operator replayed the entry.
    pub generation: u32,
    /// The line it stands in, if the message has an ordering key: another entry may wait for this one.
    pub order: Option<OrderKey>,
    /// When the message was accepted.
    pub received_at: Timestamp,
    /// When it was claimed, on the store's clock.
    pub claimed_at: Timestamp,
}

impl Claim {
    /// The settlement of `outcome` under `policy`; short for [`decide`].
    pub fn settle(&self, policy: &Policy, outcome: Outcome) -> Settlement {
        decide(policy, self, outcome)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            inbox: InboxName::new("i").unwrap(),
            seq: Seq(1),
            handler: HandlerKey::new("h").unwrap(),
            origin: HandlerKey::new("h").unwrap(),
            key: Key::from_bytes([7; 32]),
            token: Token(1),
            claim_id: ClaimId::from_bytes([1; 16]),
            attempts: 0,
            suspicion: Suspicion::NONE,
            alone: false,
            generation: 0,
            order: None,
            received_at: Timestamp::ZERO,
            claimed_at: Timestamp::ZERO,
        }
    }
}

/// A claim together with its message.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The claim.
    pub claim: Claim,
    /// The message.
    pub message: Arc<Message>,
}

/// How many entries of a handler are wanted.
#[derive(Clone, Debug)]
pub struct ClaimQuota {
    /// The handler's key and its legacy keys.
    pub route: Route,
    /// At most this many.
    pub limit: usize,
}

/// Which entries a claim is after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimMode {
    /// Entries that no worker died with.
    #[default]
    Healthy,
    /// Entries that a worker died with: the one that waited longest, and others of its [level](Suspicion::level), as many as its
    /// [company](Suspicion::company) and the wants allow.
    Suspect,
}

/// What is asked of claim.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The identity of this call.
    pub claim_id: ClaimId,
    /// What is wanted, by handler. Only these handlers' entries are claimed.
    pub wants: Vec<ClaimQuota>,
    /// Healthy entries or suspects.
    pub mode: ClaimMode,
    /// Whether the caller has nothing else in hand. If such a claim finds exactly one suspect, that one runs
    /// [alone](Claim::alone).
    pub idle: bool,
    /// How long the claim holds.
    pub lease: Duration,
    /// The rules by which the store settles what it cannot read, and so cannot hand out.
    pub policies: Policies,
}

impl ClaimParams {
    /// A claim of healthy entries.
    pub fn new(inbox: InboxName, wants: Vec<ClaimQuota>, lease: Duration) -> Self {
        let (claim_id, policies) = (ClaimId::fresh(), Policies::default());
        Self { inbox, claim_id, wants, mode: ClaimMode::Healthy, idle: false, lease, policies }
    }

    /// The same claim, by these rules.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// The same claim, for suspects.
    pub fn suspect(mut self) -> Self {
        self.mode = ClaimMode::Suspect;
        self
    }

    /// The same claim, by a caller that has nothing else in hand, or has.
    pub fn idle(mut self, idle: bool) -> Self {
        self.idle = idle;
        self
    }
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is written.
    Applied,
    /// The claim no longer holds; nothing was changed.
    LeaseLost,
}

/// What is asked of renew.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenewParams {
    /// The claims. One whose `alone` is false no longer runs [alone](Claim::alone), if it did.
    pub claims: Vec<Claim>,
    /// How long they hold from now.
    pub lease: Duration,
}

impl RenewParams {
    /// Renews `claims` for `lease` from now.
    pub fn new(claims: Vec<Claim>, lease: Duration) -> Self {
        Self { claims, lease }
    }
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease is extended.
    Extended,
    /// The claim no longer holds.
    LeaseLost,
}

/// What is asked of rescue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RescueParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The identity of this call.
    pub claim_id: ClaimId,
    /// Handlers whose entries may be taken over: those whose policy the caller knows.
    pub routes: Vec<Route>,
    /// How long the caller has to settle them.
    pub lease: Duration,
    /// At most this many.
    pub limit: usize,
    /// The rules by which the store settles what it cannot read, and so cannot hand out.
    pub policies: Policies,
}

impl RescueParams {
    /// A rescue for `routes`.
    pub fn new(inbox: InboxName, routes: Vec<Route>, lease: Duration, limit: usize) -> Self {
        let (claim_id, policies) = (ClaimId::fresh(), Policies::default());
        Self { inbox, claim_id, routes, lease, limit, policies }
    }

    /// The same rescue, by these rules.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }
}

/// How many entries of a handler have a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCount {
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// Their status.
    pub status: crate::state::Status,
    /// How many there are.
    pub count: u64,
}

impl Settlement {
    /// The completion of `claim`.
    pub fn done(claim: &Claim) -> Self {
        decide(&Policy::default(), claim, Outcome::Done)
    }

    /// Whether this completes the entry.
    pub fn is_completion(&self) -> bool {
        self.next == NextState::Completed
    }
}
