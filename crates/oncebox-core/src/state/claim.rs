//! The claim of an entry: the part of an entry that the rules read.

use std::fmt;

use uuid::Uuid;

use super::{NextState, Outcome, Policy, Settlement, Suspicion, decide};
use crate::key::{Key, OrderKey};
use crate::name::{HandlerKey, InboxName};
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
