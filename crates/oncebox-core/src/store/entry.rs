//! Parameters and results of the store's verbs: accept, claim, settle, renew and rescue.

use std::sync::Arc;
use std::time::Duration;

use super::Route;
use crate::config::OnConflict;
use crate::key::{Fingerprint, Key, OrderKey};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{Claim, ClaimId, Policies, Seq, Status};
use crate::time::Timestamp;

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
    /// Already stored. Entries were added for new handlers: holds their number. Every store passes the conformance case
    /// `a_handler_added_later_gets_the_redelivery`.
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

    /// Returns the number of the stored message, if there is one.
    pub const fn seq(self) -> Option<Seq> {
        match self {
            Self::First(seq) | Self::HandlersAdded(seq, _) | Self::Conflict(seq) => Some(seq),
            Self::Duplicate(known) => Some(known.seq),
            Self::Stale => None,
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
    /// Entries that a worker died with: the one that waited longest, and others with the same [suspicion](crate::state::Suspicion).
    /// Their number is limited by [`company`](crate::state::Suspicion::company) and the quotas.
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
    /// Factor on the [company](crate::state::Suspicion::company) of suspects. Default: 1. A worker doubles it after each group of them that it
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
    pub status: Status,
    /// Number of entries.
    pub count: u64,
}
