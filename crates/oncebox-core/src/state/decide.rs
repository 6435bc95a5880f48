//! The next state of a claimed entry, decided from the outcome of its handler.

use std::time::Duration;

use super::policy::Policy;
use super::suspicion::Suspicion;
use super::text::ErrorText;
use super::{Claim, EntryEvent, InLine, Status};

/// Outcome of a claimed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler did its work.
    Done,
    /// The handler failed: an error, a panic or a timeout.
    Retry {
        /// Error text.
        error: ErrorText,
        /// Wait that the handler asked for, if it did.
        after: Option<Duration>,
    },
    /// The handler asks for a later attempt. This one does not count.
    Snooze {
        /// Wait until the next attempt.
        delay: Duration,
    },
    /// The handler reports that no retry will succeed.
    Reject {
        /// Reason.
        error: ErrorText,
    },
    /// The handler reports that the message needs no handling.
    Discard {
        /// Reason.
        reason: ErrorText,
    },
    /// The payload did not decode into the handler's type.
    Undecodable {
        /// Decoder's error.
        error: ErrorText,
    },
    /// The worker released the claim before it started, or stopped before it finished.
    Released,
    /// The worker died: its lease expired, or the store knows that its process is gone.
    Crashed,
}

impl Outcome {
    /// Returns the error or reason, if there is one.
    pub const fn text(&self) -> Option<&ErrorText> {
        match self {
            Self::Retry { error, .. } | Self::Reject { error } | Self::Undecodable { error } => Some(error),
            Self::Discard { reason } => Some(reason),
            Self::Done | Self::Snooze { .. } | Self::Released | Self::Crashed => None,
        }
    }
}

/// Reason for poisoning an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoisonReason {
    /// All attempts failed.
    Exhausted,
    /// The handler reported that no retry will succeed.
    Rejected,
    /// The payload did not decode within the grace.
    Undecodable,
    /// Too many workers died while they ran it alone.
    Crashed,
    /// It never failed: an earlier entry with its ordering key is poisoned, and its handler [parks](super::OnPoisoned::Park) such
    /// keys.
    Parked,
}

impl PoisonReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Exhausted, Self::Rejected, Self::Undecodable, Self::Crashed, Self::Parked];

    /// Returns the word for it in the database and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
            Self::Crashed => "crashed",
            Self::Parked => "parked",
        }
    }
}

/// Next state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextState {
    /// Done.
    Completed,
    /// Claimable again after a wait, which starts when the store writes it, on the store's clock.
    Pending {
        /// Wait.
        delay: Duration,
    },
    /// Failed for good.
    Poisoned {
        /// Reason.
        reason: PoisonReason,
    },
    /// Given up on purpose.
    Discarded,
}

impl NextState {
    /// Returns the status of this state.
    pub const fn status(self) -> Status {
        match self {
            Self::Completed => Status::Completed,
            Self::Pending { .. } => Status::Pending,
            Self::Poisoned { .. } => Status::Poisoned,
            Self::Discarded => Status::Discarded,
        }
    }
}

/// A claim and its next state. The store writes it if the claim still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// Claim under which it was decided: the fence.
    pub claim: Claim,
    /// Event, for metrics and the diagram.
    pub event: EntryEvent,
    /// Next state.
    pub next: NextState,
    /// Failed attempts, including this one.
    pub attempts: u32,
    /// Suspicion that the entry crashes its worker, including this run.
    pub suspicion: Suspicion,
    /// Last error text of the handler. `None` keeps the stored one.
    pub error: Option<ErrorText>,
    /// Effect on the entries behind it, if it is poisoned and has an ordering key.
    pub in_line: Option<InLine>,
}

/// Decides the next state of a claimed entry. Pure, and the only place that does.
///
/// The decode grace ends by the time of the claim, which comes from the store's clock.
pub fn decide(policy: &Policy, claim: &Claim, outcome: Outcome) -> Settlement {
    let mut settlement = Settlement {
        claim: claim.clone(),
        event: EntryEvent::Done,
        next: NextState::Completed,
        attempts: claim.attempts,
        suspicion: claim.suspicion,
        error: None,
        in_line: None,
    };
    if matches!(outcome, Outcome::Retry { .. } | Outcome::Snooze { .. } | Outcome::Undecodable { .. }) {
        // Its worker lives: it need not run alone for all of its attempts.
        settlement.suspicion = claim.suspicion.after_survival();
    }
    let retry_now = NextState::Pending { delay: Duration::ZERO };
    (settlement.event, settlement.next, settlement.error) = match outcome {
        Outcome::Done => (EntryEvent::Done, NextState::Completed, None),
        Outcome::Snooze { delay } => (EntryEvent::Snooze, NextState::Pending { delay }, None),
        Outcome::Released => (EntryEvent::Release, retry_now, None),
        Outcome::Discard { reason } => (EntryEvent::Dismiss, NextState::Discarded, Some(reason)),
        Outcome::Reject { error } => {
            (EntryEvent::Reject, NextState::Poisoned { reason: PoisonReason::Rejected }, Some(error))
        }
        Outcome::Retry { error, after } => {
            settlement.attempts = claim.attempts.saturating_add(1);
            if settlement.attempts >= policy.retry.attempts {
                (EntryEvent::Exhaust, NextState::Poisoned { reason: PoisonReason::Exhausted }, Some(error))
            } else {
                let delay = after.unwrap_or_else(|| policy.retry.delay(settlement.attempts, spread(claim)));
                (EntryEvent::Fail, NextState::Pending { delay }, Some(error))
            }
        }
        Outcome::Undecodable { error } => {
            if claim.claimed_at.since(claim.received_at) < policy.decode_grace {
                (EntryEvent::Defer, NextState::Pending { delay: policy.decode_retry }, Some(error))
            } else {
                (EntryEvent::Reject, NextState::Poisoned { reason: PoisonReason::Undecodable }, Some(error))
            }
        }
        Outcome::Crashed => {
            settlement.suspicion = claim.suspicion.after_crash(claim.alone);
            let own = settlement.suspicion.own_crashes();
            // The limit is a setting of the worker, so the store knows it only from this text.
            let limit = policy.crashes;
            let error = Some(ErrorText::new(if claim.alone {
                format!(
                    "a worker died while it ran this entry alone: crash {own} of the {limit} that poison it"
                )
            } else {
                format!(
                    "a worker died while it held this entry and others: not counted, {own} of the {limit} crashes that poison it"
                )
            }));
            match claim.alone {
                false => {
                    let delay = settlement.suspicion.company_wait();
                    (EntryEvent::Crash, NextState::Pending { delay }, error)
                }
                true if own < policy.crashes => {
                    (EntryEvent::Crash, NextState::Pending { delay: policy.crash_wait(own) }, error)
                }
                true => (EntryEvent::CrashOut, NextState::Poisoned { reason: PoisonReason::Crashed }, error),
            }
        }
    };
    if claim.order.is_some() && settlement.next.status() == Status::Poisoned {
        settlement.in_line = Some(policy.on_poisoned.in_line());
    }
    settlement
}

/// Spreads entries that failed together. It uses no random number, because a decision must be repeatable.
fn spread(claim: &Claim) -> u32 {
    let key = claim.key.as_bytes();
    let seed = u32::from_le_bytes([key[0], key[1], key[2], key[3]]);
    // Odd multiplier: other attempts of the same entry get other values.
    seed.wrapping_add(claim.attempts.wrapping_mul(0x9E37_79B9))
}

#[cfg(test)]
mod tests {
    use super::super::OnPoisoned;
    use super::super::policy::Retry;
    use super::*;
    use crate::time::Timestamp;

    fn claim() -> Claim {
        Claim::for_tests()
    }

    fn failed() -> Outcome {
        Outcome::Retry { error: ErrorText::new("no"), after: None }
    }

    #[test]
    fn only_a_handlers_no_counts_as_an_attempt() {
        let policy = Policy::default();
        let text = ErrorText::new("x");
        assert_eq!(decide(&policy, &claim(), failed()).attempts, 1);
        for outcome in [
            Outcome::Done,
            Outcome::Released,
            Outcome::Crashed,
            Outcome::Snooze { delay: Duration::ZERO },
            Outcome::Undecodable { error: text.clone() },
            Outcome::Reject { error: text.clone() },
        ] {
            assert_eq!(decide(&policy, &claim(), outcome).attempts, 0);
        }
    }

    #[test]
    fn the_last_attempt_poisons() {
        let policy = Policy {
            retry: Retry::new(3, Duration::from_secs(1), Duration::from_secs(1)),
            ..Policy::default()
        };
        let mut claim = claim();
        for expected in [Status::Pending, Status::Pending, Status::Poisoned] {
            let settlement = decide(&policy, &claim, failed());
            assert_eq!(settlement.next.status(), expected);
            claim.attempts = settlement.attempts;
        }
        for attempts in [0, 1] {
            let policy = Policy { retry: Retry { attempts, ..Retry::default() }, ..Policy::default() };
            assert_eq!(
                decide(&policy, &Claim::for_tests(), failed()).next,
                NextState::Poisoned { reason: PoisonReason::Exhausted }
            );
        }
    }

    // FAULTS C3: a message that kills its process is poisoned, although no handler rejected it.
    #[test]
    fn the_third_crash_alone_poisons() {
        let mut claim = Claim { alone: true, ..claim() };
        let wait = |seconds| NextState::Pending { delay: Duration::from_secs(seconds) };
        let poisoned = NextState::Poisoned { reason: PoisonReason::Crashed };
        for (own, expected) in [(1, wait(10)), (2, wait(60)), (3, poisoned)] {
            let settlement = decide(&Policy::default(), &claim, Outcome::Crashed);
            assert_eq!((settlement.suspicion.own_crashes(), settlement.next), (own, expected));
            claim.suspicion = settlement.suspicion;
        }
    }

    // FAULTS C3: a process that is killed from outside blames none of its entries, and one in a crash loop is not fed at once.
    #[test]
    fn crashes_in_company_never_poison_and_wait_longer_each_time() {
        let (mut claim, policy) = (claim(), Policy { crashes: 1, ..Policy::default() });
        let waits = [0, 0, 1, 2, 5, 10, 20].into_iter().chain(std::iter::repeat_n(30, 100));
        for seconds in waits.clone() {
            let settlement = decide(&policy, &claim, Outcome::Crashed);
            assert_eq!(settlement.next, NextState::Pending { delay: Duration::from_secs(seconds) });
            assert_eq!(settlement.suspicion.own_crashes(), 0);
            claim.suspicion = settlement.suspicion;
        }
        claim.suspicion = decide(&policy, &claim, failed()).suspicion;
        for seconds in waits {
            let settlement = decide(&policy, &claim, Outcome::Crashed);
            let expected = NextState::Pending { delay: Duration::from_secs(seconds) };
            assert_eq!(settlement.next, expected, "a run that its worker survived starts the waits again");
            claim.suspicion = settlement.suspicion;
        }
        claim.alone = true;
        assert_eq!(decide(&policy, &claim, Outcome::Crashed).next.status(), Status::Poisoned);
    }

    // FAULTS C13: a newer build may know the format.
    #[test]
    fn undecodable_waits_out_the_grace() {
        let policy = Policy::default();
        let mut claim = claim();
        let outcome = || Outcome::Undecodable { error: ErrorText::new("bad") };
        assert_eq!(
            decide(&policy, &claim, outcome()).next,
            NextState::Pending { delay: policy.decode_retry }
        );
        claim.received_at = Timestamp::ZERO;
        claim.claimed_at = Timestamp::ZERO.after(policy.decode_grace);
        assert_eq!(
            decide(&policy, &claim, outcome()).next,
            NextState::Poisoned { reason: PoisonReason::Undecodable }
        );
    }

    #[test]
    fn the_policy_says_what_a_poisoned_one_is_to_those_behind_it() {
        let reject = || Outcome::Reject { error: ErrorText::new("no") };
        let ordered = Claim { order: Some(crate::OrderKey::from_bytes([7; 16])), ..claim() };
        for on_poisoned in [OnPoisoned::Block, OnPoisoned::Skip, OnPoisoned::Park] {
            let policy = Policy { on_poisoned, ..Policy::default() };
            assert_eq!(decide(&policy, &ordered, reject()).in_line, Some(on_poisoned.in_line()));
            assert_eq!(decide(&policy, &ordered, failed()).in_line, None, "it is tried again");
            assert_eq!(decide(&policy, &claim(), reject()).in_line, None, "no order, so no entry waits");
        }
    }

    #[test]
    fn the_wait_the_handler_asked_for_is_kept() {
        let after = Some(Duration::from_secs(77));
        let outcome = Outcome::Retry { error: ErrorText::new("no"), after };
        assert_eq!(
            decide(&Policy::default(), &claim(), outcome).next,
            NextState::Pending { delay: Duration::from_secs(77) }
        );
    }
}
