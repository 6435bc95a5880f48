//! What a sequence is made of.
//!
//! A step names its claim by how long ago it was made, and its message by a small number. So whatever is left of a
//! sequence is a sequence, which is what making it shorter needs.

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
/// By their origins.
pub(super) const HANDLERS: [&str; 2] = ["a", "b"];
/// How often a process may have renamed its handlers.
const RENAMES: usize = 3;

/// A handler as a process knows it that has renamed it so often: with all of its former keys.
pub(super) fn spelled(handler: &str, renames: usize) -> Route {
    let keys: Vec<HandlerKey> = (0..=renames).rev().map(|n| key(handler, n)).collect();
    Route { key: keys[0].clone(), legacy: keys[1..].into() }
}

/// A key of a handler.
fn key(handler: &str, renames: usize) -> HandlerKey {
    crate::fixture::handler(&format!("{handler}{}", "x".repeat(renames)))
}
/// As many as there are outcomes.
pub(super) const OUTCOMES: usize = 8;
/// The outcome of a run that went well.
pub(super) const DONE: usize = 0;

/// What became of the first answer to a call. The caller is told that the commit is unknown, and repeats the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It came.
    No,
    /// The call was done.
    After,
    /// The call was not done.
    Before,
}

/// A message that comes in.
#[derive(Clone, Debug)]
pub(super) struct ModelOffer {
    pub(super) id: u8,
    pub(super) payload: u8,
    pub(super) handlers: Vec<&'static str>,
    pub(super) renames: usize,
    pub(super) delay: Duration,
    pub(super) first_wins: bool,
    /// How old its producer says it is, if it does.
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
    /// A worker dies: its leases run out, somebody takes over what it had, and says so unless it dies as well.
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

/// Any step, those that make work for others more often.
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

/// A handler, and how often it was renamed in the process that asks.
fn handler() -> impl Strategy<Value = (&'static str, usize)> {
    (select(HANDLERS.to_vec()), 0..RENAMES)
}

fn outcome() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(DONE), 3 => 0..OUTCOMES]
}

fn on_poisoned() -> impl Strategy<Value = OnPoisoned> {
    select(vec![OnPoisoned::Block, OnPoisoned::Skip, OnPoisoned::Park])
}

/// How many claims ago: most often one of the last, but stale ones as well.
fn ago() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..3, 1 => 0_usize..20]
}

fn one_in(n: u32) -> impl Strategy<Value = bool> {
    prop_oneof![n - 1 => Just(false), 1 => Just(true)]
}
