//! Values for the unit tests of this crate.

use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::Suspicion;
use crate::store::{Claim, ClaimId, Seq, Token};
use crate::time::Timestamp;

/// Returns the first claim of an entry.
pub(crate) fn claim() -> Claim {
    Claim {
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
