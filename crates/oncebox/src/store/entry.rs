//! Parameters and results of the store's verbs: accept, claim, settle, renew and rescue.

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

/// Number that a store gives a message when it accepts it. Later messages have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Fence of a claim. It grows with every claim of a store, also over a failover of its database, so a store can refuse an older
/// claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

/// Identity of one claim call, made by the caller. A caller whose response was lost repeats the call with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// Returns a new, unique identity.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Incoming message. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewMessage {
    /// Inbox that receives it.
    pub inbox: InboxName,
    /// Its dedupe key.
    pub key: Key,
    /// Digest that distinguishes messages under one key.
    pub fingerprint: Fingerprint,
    /// Identity of the ordering key, if the message has one.
    pub order: Option<OrderKey>,
    /// Handlers of its type. Empty if there is none.
    pub routes: Arc<[Route]>,
    /// The message.
    pub message: Arc<Message>,
    /// Handling of a known key with another payload. Default: quarantine.
    pub on_conflict: OnConflict,
    /// Wait before the first attempt. Default: none.
    pub delay: Duration,
    /// True if an earlier delivery is possible. False if the key was made for this message alone: then its age does not matter.
    pub compared: bool,
}

impl NewMessage {
    /// Returns a message for `routes`, and derives its fingerprint and order.
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

    /// Returns true if it conflicts with the message stored under its key. With `FirstWins`, another payload of the same type is no
    /// conflict. Another type always is one: its handlers would get a message of the wrong type.
    pub fn conflicts_with(&self, known: &Fingerprint) -> bool {
        self.on_conflict.is_conflict(known, &self.fingerprint)
    }

    /// Returns the message's time, if its age decides whether the store may have forgotten it.
    pub fn doubtful_since(&self) -> Option<Timestamp> {
        self.message.time().filter(|_| self.compared)
    }
}

/// Stored message that a duplicate repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownMessage {
    /// Its number.
    pub seq: Seq,
    /// Time between both deliveries, on the store's clock.
    pub age: Duration,
    /// True if this one has another payload than the first. Only with [`FirstWins`](crate::config::OnConflict::FirstWins):
    /// otherwise it is a conflict.
    pub varied: bool,
}

impl KnownMessage {
    /// Returns a message that was stored `age` ago.
    pub const fn new(seq: Seq, age: Duration) -> Self {
        Self { seq, age, varied: false }
    }

    /// Sets whether the payloads differ.
    #[must_use]
    pub const fn varied(mut self, varied: bool) -> Self {
        self.varied = varied;
        self
    }
}

/// Result of offering a message to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// New, and now stored.
    First(Seq),
    /// Already stored. Nothing changed.
    Duplicate(KnownMessage),
    /// Already stored. Entries were added for new handlers.
    HandlersAdded(Seq, usize),
    /// Another payload is stored under its key. The message is quarantined and does not run.
    Conflict(Seq),
    /// Older than the watermark of one of its handlers, so it may have run before. The message is quarantined and does not run.
    Stale,
}

impl Accepted {
    /// Combines the results of a message that was offered under two keys. The order of precedence: conflict, stale, first, handlers
    /// added (both counts together), duplicate.
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

    /// Returns the word for it in metrics and on the command line.
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
    /// Handler: the first key of the caller's route under which the store knows it.
    pub handler: HandlerKey,
    /// First key under which the store knew the handler. It is the same for every process, so idempotency keys are derived from it.
    pub origin: HandlerKey,
    /// The message's dedupe key.
    pub key: Key,
    /// The fence.
    pub token: Token,
    /// Identity of the claim call.
    pub claim_id: ClaimId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Suspicion that the entry crashes its worker.
    pub suspicion: Suspicion,
    /// True if nothing else ran in the process when the run began. That is so only if an idle worker claims one suspect. On a
    /// rescued claim it describes the run whose worker died.
    pub alone: bool,
    /// Number of replays by operators.
    pub generation: u32,
    /// Order queue of the entry, if its message has an ordering key. Another entry may wait for this one.
    pub order: Option<OrderKey>,
    /// Time of acceptance, on the store's clock.
    pub received_at: Timestamp,
    /// Time of the claim, on the store's clock.
    pub claimed_at: Timestamp,
}

impl Claim {
    /// Returns the settlement of `outcome` under `policy`; short for [`decide`].
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

/// A claim and its message.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The claim.
    pub claim: Claim,
    /// The message.
    pub message: Arc<Message>,
}

/// Maximum number of entries to claim for one handler.
#[derive(Clone, Debug)]
pub struct ClaimQuota {
    /// Key of the handler, and its legacy keys.
    pub route: Route,
    /// Maximum number of entries.
    pub limit: usize,
}

/// Entries that a claim selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimMode {
    /// Entries that no worker died with.
    #[default]
    Healthy,
    /// Entries that a worker died with: the one that waited longest, and others with the same [`Suspicion`]. Their number is
    /// limited by [`company`](Suspicion::company) and the quotas.
    Suspect,
}

/// Parameters of a claim.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Identity of this call.
    pub claim_id: ClaimId,
    /// Quotas by handler. A claim selects only entries of these handlers.
    pub wants: Vec<ClaimQuota>,
    /// Healthy entries or suspects. Default: healthy.
    pub mode: ClaimMode,
    /// True if the caller runs nothing else. If such a claim finds exactly one suspect, that one runs [alone](Claim::alone).
    pub idle: bool,
    /// Factor on the [company](Suspicion::company) of suspects. Default: 1. A worker doubles it after each group of them that it
    /// survived.
    pub company_factor: usize,
    /// Duration of the claim.
    pub lease: Duration,
    /// Policies for entries that the store cannot read, and therefore settles itself.
    pub policies: Policies,
}

impl ClaimParams {
    /// Returns a claim of healthy entries.
    pub fn new(inbox: InboxName, wants: Vec<ClaimQuota>, lease: Duration) -> Self {
        let (claim_id, policies) = (ClaimId::fresh(), Policies::default());
        let (mode, idle, company_factor) = (ClaimMode::Healthy, false, 1);
        Self { inbox, claim_id, wants, mode, idle, company_factor, lease, policies }
    }

    /// Sets the policies.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// Selects suspects.
    pub fn suspect(mut self) -> Self {
        self.mode = ClaimMode::Suspect;
        self
    }

    /// Sets whether the caller runs nothing else.
    pub fn idle(mut self, idle: bool) -> Self {
        self.idle = idle;
        self
    }

    /// Sets the factor on the company of suspects.
    pub fn company_factor(mut self, factor: usize) -> Self {
        self.company_factor = factor;
        self
    }
}

/// Result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Stored.
    Applied,
    /// The claim no longer holds. Nothing changed.
    LeaseLost,
}

/// Parameters of a renewal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenewParams {
    /// Claims to renew. A claim with `alone` false ends the entry's [alone](Claim::alone) run.
    pub claims: Vec<Claim>,
    /// Duration of the claims from now.
    pub lease: Duration,
}

impl RenewParams {
    /// Returns a renewal of `claims` for `lease` from now.
    pub fn new(claims: Vec<Claim>, lease: Duration) -> Self {
        Self { claims, lease }
    }
}

/// Result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease is extended.
    Extended,
    /// The claim no longer holds.
    LeaseLost,
}

/// Parameters of a rescue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RescueParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Identity of this call.
    pub claim_id: ClaimId,
    /// Handlers whose policy the caller knows. The rescue takes over only their entries.
    pub routes: Vec<Route>,
    /// Time for the caller to settle the entries.
    pub lease: Duration,
    /// Maximum number of entries.
    pub limit: usize,
    /// Policies for entries that the store cannot read, and therefore settles itself.
    pub policies: Policies,
}

impl RescueParams {
    /// Returns a rescue for `routes`.
    pub fn new(inbox: InboxName, routes: Vec<Route>, lease: Duration, limit: usize) -> Self {
        let (claim_id, policies) = (ClaimId::fresh(), Policies::default());
        Self { inbox, claim_id, routes, lease, limit, policies }
    }

    /// Sets the policies.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }
}

/// Number of entries of a handler with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCount {
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// Status of the entries.
    pub status: crate::state::Status,
    /// Number of entries.
    pub count: u64,
}

impl Settlement {
    /// Returns the completion of `claim`.
    pub fn done(claim: &Claim) -> Self {
        decide(&Policy::default(), claim, Outcome::Done)
    }

    /// Returns true if this completes the entry.
    pub fn is_completion(&self) -> bool {
        self.next == NextState::Completed
    }
}
