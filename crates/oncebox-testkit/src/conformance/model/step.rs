//! Steps of a sequence.
//!
//! A step names its claim by its age, and its message by a small number. So every part of a sequence is a sequence, and shortening
//! works.

use std::time::Duration;

use oncebox::state::Operation;
use oncebox::store::Route;
use oncebox::{HandlerKey, OnPoisoned};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any as arbitrary};
use proptest::prop_oneof;
use proptest::sample::{select, subsequence};

use crate::fixture::{HOUR, PAST_LEASE, RETENTION, SECOND};

pub(super) const MESSAGES: u8 = 6;
/// Handlers by their origins.
pub(super) const HANDLERS: [&str; 2] = ["a", "b"];
/// Maximum renames of a process.
const RENAMES: usize = 3;

/// Returns a handler as a process knows it after so many renames, with all of its former keys.
pub(super) fn spelled(handler: &str, renames: usize) -> Route {
    let keys: Vec<HandlerKey> = (0..=renames).rev().map(|n| key(handler, n)).collect();
    Route::renamed(keys[0].clone(), keys[1..].into())
}

/// Returns a key of a handler.
fn key(handler: &str, renames: usize) -> HandlerKey {
    crate::fixture::handler(&format!("{handler}{}", "x".repeat(renames)))
}
/// Number of outcomes.
pub(super) const OUTCOMES: usize = 8;
/// Outcome of a successful run.
pub(super) const DONE: usize = 0;

/// Fate of the first response to a call. If it is lost, the caller gets an unknown commit, and repeats the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It arrived.
    No,
    /// The call was done.
    After,
    /// The call was not done.
    Before,
}

/// An offered message.
#[derive(Clone, Debug)]
pub(super) struct ModelOffer {
    pub(super) id: u8,
    pub(super) payload: u8,
    pub(super) handlers: Vec<&'static str>,
    pub(super) renames: usize,
    pub(super) delay: Duration,
    pub(super) first_wins: bool,
    /// Age of the message, if its producer dates it.
    pub(super) age: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) enum ModelStep {
    Accept {
        offers: Vec<ModelOffer>,
        lost: Lost,
    },
    Claim {
        handler: &'static str,
        renames: usize,
        limit: usize,
        suspect: bool,
        lost: Lost,
    },
    Settle {
        ago: usize,
        outcome: usize,
        on_poisoned: OnPoisoned,
        lost: Lost,
    },
    Complete {
        ago: usize,
        lost: Lost,
    },
    Renew {
        ago: usize,
        lost: Lost,
    },
    /// A worker dies: its leases expire, and another one settles its entries, unless it dies as well.
    Rescue {
        handler: &'static str,
        renames: usize,
        limit: usize,
        lapse: bool,
        settle: bool,
        on_poisoned: OnPoisoned,
        lost: Lost,
    },
    Advance(Duration),
    TurnBack(Duration),
    Operate {
        id: u8,
        handler: &'static str,
        renames: usize,
        operation: Operation,
        lost: Lost,
    },
    Pause {
        handler: &'static str,
        renames: usize,
        pause: bool,
        lost: Lost,
    },
    Sweep {
        wait: Duration,
        page: usize,
        lost: Lost,
    },
}

/// Any step. Steps that make work for others are more frequent.
pub(super) fn any() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        25 => (vec(offer(), 1..=3), lost()).prop_map(|(offers, lost)| ModelStep::Accept { offers, lost }),
        22 => (handler(), 0_usize..4, one_in(4), lost()).prop_map(|((handler, renames), limit, suspect, lost)| {
            ModelStep::Claim { handler, renames, limit, suspect, lost }
        }),
        16 => (ago(), outcome(), on_poisoned(), lost())
            .prop_map(|(ago, outcome, on_poisoned, lost)| ModelStep::Settle { ago, outcome, on_poisoned, lost }),
        8 => (ago(), lost()).prop_map(|(ago, lost)| ModelStep::Complete { ago, lost }),
        4 => (ago(), lost()).prop_map(|(ago, lost)| ModelStep::Renew { ago, lost }),
        8 => (handler(), 0_usize..4, arbitrary::<bool>(), arbitrary::<bool>(), on_poisoned(), lost()).prop_map(
            |((handler, renames), limit, lapse, settle, on_poisoned, lost)| {
                ModelStep::Rescue { handler, renames, limit, lapse, settle, on_poisoned, lost }
            }
        ),
        7 => select(vec![SECOND, 5 * SECOND, PAST_LEASE, HOUR, RETENTION / 2]).prop_map(ModelStep::Advance),
        2 => select(vec![SECOND, 5 * SECOND, PAST_LEASE, HOUR]).prop_map(ModelStep::TurnBack),
        8 => (0..MESSAGES, handler(), select(Operation::ALL.to_vec()), lost())
            .prop_map(|(id, (handler, renames), operation, lost)| {
                ModelStep::Operate { id, handler, renames, operation, lost }
            }),
        3 => (handler(), arbitrary::<bool>(), lost())
            .prop_map(|((handler, renames), pause, lost)| ModelStep::Pause { handler, renames, pause, lost }),
        4 => (select(vec![Duration::ZERO, RETENTION / 2, RETENTION]), 1_usize..4, lost())
            .prop_map(|(wait, page, lost)| ModelStep::Sweep { wait, page, lost }),
    ]
}

fn offer() -> impl Strategy<Value = ModelOffer> {
    let payload = prop_oneof![7 => Just(0_u8), 1 => Just(1_u8)];
    let handlers =
        prop_oneof![4 => Just(HANDLERS.to_vec()), 3 => subsequence(HANDLERS.to_vec(), 0..=HANDLERS.len())];
    let delay = prop_oneof![Just(Duration::ZERO), Just(3 * SECOND)];
    let age = prop_oneof![3 => Just(None), 1 => select(vec![Duration::ZERO, HOUR, RETENTION]).prop_map(Some)];
    (0..MESSAGES, payload, handlers, 0..RENAMES, delay, one_in(4), age).prop_map(
        |(id, payload, handlers, renames, delay, first_wins, age)| ModelOffer {
            id,
            payload,
            handlers,
            renames,
            delay,
            first_wins,
            age,
        },
    )
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![6 => Just(Lost::No), 1 => Just(Lost::After), 1 => Just(Lost::Before)]
}

/// A handler, and the number of its renames in the calling process.
fn handler() -> impl Strategy<Value = (&'static str, usize)> {
    (select(HANDLERS.to_vec()), 0..RENAMES)
}

fn outcome() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(DONE), 3 => 0..OUTCOMES]
}

fn on_poisoned() -> impl Strategy<Value = OnPoisoned> {
    select(vec![OnPoisoned::Block, OnPoisoned::Skip, OnPoisoned::Park])
}

/// Age of a claim: often one of the last, but also stale ones.
fn ago() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..3, 1 => 0_usize..20]
}

fn one_in(n: u32) -> impl Strategy<Value = bool> {
    prop_oneof![n - 1 => Just(false), 1 => Just(true)]
}
