//! Plan of a round: type and outcome of each message. The seed and its number determine them, so every process computes
//! the same. Tests: below.

use serde::{Deserialize, Serialize};

/// Ordering keys, and ordering keys in quick rounds: each key runs one message at a time.
const LINES: u64 = 8;
const QUICK_LINES: u64 = 64;

/// Message types of the rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlannedKind {
    Tx,
    Plain,
    Both,
    Ordered,
    Inline,
    Share,
    Batch,
    Killer,
}

impl PlannedKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Plain => "plain",
            Self::Both => "both",
            Self::Ordered => "ordered",
            Self::Inline => "inline",
            Self::Share => "share",
            Self::Batch => "batch",
            Self::Killer => "killer",
        }
    }

    /// Returns the handlers of messages of this type.
    pub(crate) const fn handlers(self) -> &'static [&'static str] {
        match self {
            Self::Tx => &["tx"],
            Self::Plain => &["plain"],
            Self::Both => &["tx", "plain"],
            Self::Ordered => &["ordered"],
            Self::Inline => &["inline"],
            Self::Share => &["share"],
            Self::Batch => &["batch"],
            Self::Killer => &["killer"],
        }
    }
}

/// Returns true if the effect of a handler is a row of the business table, written in the handler's transaction.
pub(crate) fn is_transactional(handler: &str) -> bool {
    matches!(handler, "tx" | "ordered" | "inline" | "share")
}

/// Outcome of a message at a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedOutcome {
    Well,
    /// Takes some milliseconds.
    Slow(u64),
    /// Takes longer than a lease, which is renewed.
    Long,
    /// Fails this often, then succeeds.
    Fails(u32),
    /// Panics at the first attempt.
    Panics,
    /// Hangs at the first attempt, until its timeout.
    Hangs,
    /// Snoozes once.
    Snoozes,
    /// Rejects the message.
    Rejects,
    /// Aborts its process once.
    Aborts,
    /// Aborts its process every time.
    Kills,
}

/// A generated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedMessage {
    pub(crate) number: u32,
    pub(crate) kind: PlannedKind,
    pub(crate) line: Option<u64>,
}

/// Choices of a seed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(crate) struct RoundPlan {
    pub(crate) seed: u64,
    /// True if some messages abort their process every time: each costs several leases.
    pub(crate) killers: bool,
    /// True if many handlers take longer than a lease, so that a worker is always busy.
    pub(crate) long: bool,
    /// True if handlers take no time, for as many messages as possible.
    pub(crate) quick: bool,
    /// True if no handler aborts its process.
    pub(crate) steady: bool,
}

impl RoundPlan {
    fn rng(&self, number: u32, salt: u64) -> fastrand::Rng {
        let mut rng = fastrand::Rng::with_seed(
            self.seed ^ (u64::from(number) << 20) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        // The first number of a seed is close to that of its neighbours.
        rng.u64(..);
        rng
    }

    pub(crate) fn message(&self, number: u32) -> PlannedMessage {
        let mut rng = self.rng(number, 1);
        let roll = rng.u32(0..1_000);
        let kind = if self.quick { Self::quick_kind(roll) } else { self.kind(roll) };
        let lines = if self.quick { QUICK_LINES } else { LINES };
        let line = (kind == PlannedKind::Ordered).then(|| rng.u64(0..lines));
        PlannedMessage { number, kind, line }
    }

    fn kind(&self, roll: u32) -> PlannedKind {
        match roll {
            0..2 if self.killers => PlannedKind::Killer,
            0..290 => PlannedKind::Tx,
            290..480 => PlannedKind::Plain,
            480..620 => PlannedKind::Both,
            620..770 => PlannedKind::Ordered,
            770..880 => PlannedKind::Inline,
            880..940 => PlannedKind::Share,
            _ => PlannedKind::Batch,
        }
    }

    /// All types, mostly those without a commit of their own.
    const fn quick_kind(roll: u32) -> PlannedKind {
        match roll {
            0..60 => PlannedKind::Tx,
            60..100 => PlannedKind::Both,
            100..180 => PlannedKind::Ordered,
            180..240 => PlannedKind::Inline,
            240..440 => PlannedKind::Share,
            440..660 => PlannedKind::Batch,
            _ => PlannedKind::Plain,
        }
    }

    pub(crate) fn outcome(&self, number: u32, handler: &str) -> PlannedOutcome {
        let salt = handler.bytes().fold(7, |salt: u64, byte| salt.wrapping_mul(31) + u64::from(byte));
        let mut rng = self.rng(number, salt);
        let roll = rng.u32(0..10_000);
        let outcome = match roll {
            0..600 => PlannedOutcome::Fails(rng.u32(1..4)),
            600..800 => PlannedOutcome::Panics,
            800..900 => PlannedOutcome::Rejects,
            900..1_100 => PlannedOutcome::Snoozes,
            1_100..1_150 => PlannedOutcome::Hangs,
            1_150..1_165 => PlannedOutcome::Aborts,
            1_165..1_185 => PlannedOutcome::Long,
            1_185..1_500 if self.long => PlannedOutcome::Long,
            1_185..3_500 => PlannedOutcome::Slow(rng.u64(1..25)),
            _ => PlannedOutcome::Well,
        };
        match (handler, outcome) {
            ("killer", _) => PlannedOutcome::Kills,
            (_, PlannedOutcome::Aborts) if self.steady => PlannedOutcome::Well,
            (
                _,
                PlannedOutcome::Slow(_)
                | PlannedOutcome::Long
                | PlannedOutcome::Hangs
                | PlannedOutcome::Aborts,
            ) if self.quick => PlannedOutcome::Well,
            // While SQLite's one transaction is open, no other write happens, which shows nothing.
            ("share" | "ordered" | "inline", PlannedOutcome::Long | PlannedOutcome::Hangs)
            | ("tx", PlannedOutcome::Hangs) => PlannedOutcome::Slow(3),
            // The transport does its retries.
            ("inline", PlannedOutcome::Rejects) | ("batch", PlannedOutcome::Hangs | PlannedOutcome::Long) => {
                PlannedOutcome::Well
            }
            _ => outcome,
        }
    }

    /// Returns the payload of a message; another `variant` gives another payload under the same id.
    pub(crate) fn payload(&self, number: u32, variant: u8) -> String {
        let pad = self.rng(number, u64::from(variant) + 99).usize(0..200);
        format!("{{\"number\":{number},\"variant\":{variant},\"pad\":\"{}\"}}", "x".repeat(pad))
    }
}

/// Returns the key of a handler after its rename.
pub(crate) fn renamed(handler: &str) -> String {
    format!("{handler}{RENAMED}")
}

/// Returns the handler of a key: the keys before and after a rename are one handler.
pub(crate) fn handler_of(key: &str) -> &str {
    key.strip_suffix(RENAMED).unwrap_or(key)
}

const RENAMED: &str = "-renamed";

/// Returns the number of a message from its id. Over HTTP the id begins with its source.
pub(crate) fn number_of(id: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(id).ok()?;
    text.strip_prefix("chaos ").unwrap_or(text).strip_prefix("m-")?.parse().ok()
}

/// Returns the id of a message.
pub(crate) fn id_of(number: u32) -> String {
    format!("m-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_chooses_the_same_and_meets_every_fate() {
        let plan = RoundPlan { seed: 7, killers: true, long: false, quick: false, steady: false };
        let mut seen = std::collections::HashSet::new();
        for number in 0..20_000 {
            let message = plan.message(number);
            assert_eq!(message, plan.message(number));
            for handler in message.kind.handlers() {
                let outcome = plan.outcome(number, handler);
                assert_eq!(outcome, plan.outcome(number, handler));
                seen.insert(std::mem::discriminant(&outcome));
            }
        }
        assert_eq!(seen.len(), 10);
        assert_eq!([number_of(id_of(12).as_bytes()), number_of(b"chaos m-12")], [Some(12); 2]);
    }
}
