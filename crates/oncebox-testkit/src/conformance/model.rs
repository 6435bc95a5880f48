//! Random operations, compared with a model that is too simple to be wrong.
//!
//! Every sequence of operations has its own inbox and its own seed. A failure names the seed; `ONCEBOX_SEED=<seed>`
//! runs that sequence alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox::state::{Event, InLine, Next, Operation, Settlement, Status, follow, operate};
use oncebox::store::{
    Accepted, Claim, ClaimMode, Claimed, EntryView, NewMessage, RenewParams, Renewed, Seq, Settled, Token,
};
use oncebox::time::Timestamp;
use oncebox::{ErrorKind, InboxName, Message, OnPoisoned, config::OnConflict};

use crate::fixture::{
    HOUR, LEASE, PAST_LEASE, RETENTION, SECOND, handler, inbox_named, key_in, moved_to, offer_routed,
    outcomes, policy, route,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, StoreUnderTest};

const STEPS: usize = 40;
const MESSAGES: u8 = 6;
const HANDLERS: [&str; 2] = ["a", "b"];

pub async fn random_operations_do_what_the_model_does<S: StoreUnderTest>(h: &Harness<S>) {
    let only = std::env::var("ONCEBOX_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..h.sequences, |seed: u64| seed..seed + 1);
    let mut last_token = None;
    for seed in seeds {
        let mut run = Run::new(h, seed, last_token);
        for _ in 0..STEPS {
            run.step().await;
        }
        run.compare_all().await;
        last_token = run.last_token;
    }
}

/// An entry of the model.
struct Entry {
    seq: Seq,
    /// The messages of one ordering key wait for each other.
    ordered: bool,
    status: Status,
    attempts: u32,
    crashes: u32,
    generation: u32,
    /// Due, end of the lease, or end.
    at: Timestamp,
    /// What it is to those behind it, if it is poisoned.
    in_line: Option<InLine>,
    /// Due, for one that is parked.
    not_before: Timestamp,
    token: Option<Token>,
    /// Whether an operator had a hand in it since its last claim.
    operated: bool,
}

/// One sequence of operations.
struct Run<'a, S> {
    h: &'a Harness<S>,
    seed: u64,
    rng: fastrand::Rng,
    inbox: InboxName,
    /// Stored messages, with the payload that came first.
    messages: BTreeMap<u8, (Seq, u8, Timestamp)>,
    asides: BTreeSet<(u8, u8)>,
    entries: BTreeMap<(u8, &'static str), Entry>,
    paused: BTreeSet<&'static str>,
    /// Every claim that was ever made, stale ones included.
    claims: Vec<Claim>,
    last_token: Option<Token>,
    log: Vec<String>,
}

impl<'a, S: StoreUnderTest> Run<'a, S> {
    fn new(h: &'a Harness<S>, seed: u64, last_token: Option<Token>) -> Self {
        Self {
            h,
            seed,
            rng: fastrand::Rng::with_seed(seed),
            inbox: inbox_named(&format!("model-{seed}")),
            messages: BTreeMap::new(),
            asides: BTreeSet::new(),
            entries: BTreeMap::new(),
            paused: BTreeSet::new(),
            claims: Vec::new(),
            last_token,
            log: Vec::new(),
        }
    }

    async fn step(&mut self) {
        match self.rng.u8(..100) {
            0..25 => self.accept().await,
            25..50 => self.claim().await,
            50..70 => self.settle().await,
            70..74 => self.renew().await,
            74..80 => self.rescue().await,
            80..88 => self.advance(),
            88..95 => self.operate().await,
            95..98 => self.pause_or_resume().await,
            _ => self.sweep().await,
        }
        let id = self.rng.u8(..MESSAGES);
        self.compare(id).await;
    }

    /// Panics with the seed and all that was done.
    #[track_caller]
    fn check(&self, holds: bool, what: &dyn std::fmt::Display) {
        assert!(holds, "seed {}: {what}\n  {}", self.seed, self.log.join("\n  "));
    }

    async fn accept(&mut self) {
        let (id, payload) = (self.rng.u8(..MESSAGES), self.rng.u8(..8) / 7);
        let handlers: Vec<&'static str> = HANDLERS.into_iter().filter(|_| self.rng.u8(..4) > 0).collect();
        let delay = if self.rng.bool() { Duration::ZERO } else { 3 * SECOND };
        let first_wins = self.rng.u8(..4) == 0;
        let mut new = self.offer(id, payload, &handlers);
        new.delay = delay;
        new.on_conflict = if first_wins { OnConflict::FirstWins } else { OnConflict::KeepAside };
        let accepted = self.h.accept(new).await;
        self.log
            .push(format!("accept {id} payload {payload} for {handlers:?}, delay {delay:?}: {accepted:?}"));
        let expected = match self.messages.get(&id) {
            Some((seq, first, _)) if *first != payload && !first_wins => {
                self.asides.insert((id, payload));
                Accepted::Conflict(*seq)
            }
            Some((seq, ..)) => match (*seq, self.add(id, *seq, &handlers, delay)) {
                (seq, 0) => Accepted::Duplicate(seq),
                (seq, added) => Accepted::HandlersAdded(seq, added),
            },
            None => {
                let Accepted::First(seq) = accepted else {
                    panic!("seed {}: {accepted:?} is new", self.seed)
                };
                self.messages.insert(id, (seq, payload, self.h.now()));
                self.add(id, seq, &handlers, delay);
                accepted
            }
        };
        self.check(accepted == expected, &format_args!("{accepted:?} instead of {expected:?}"));
    }

    fn offer(&self, id: u8, payload: u8, handlers: &[&str]) -> NewMessage {
        let mut message = Message::new(vec![id], "order.placed", vec![payload]);
        if is_ordered(id) {
            message = message.with_ordering_key("k");
        }
        moved_to(&self.inbox, &offer_routed(message, handlers.iter().copied().map(route)))
    }

    fn add(&mut self, id: u8, seq: Seq, handlers: &[&'static str], delay: Duration) -> usize {
        let mut added = 0;
        for name in handlers {
            self.entries.entry((id, name)).or_insert_with(|| {
                added += 1;
                Entry {
                    seq,
                    ordered: is_ordered(id),
                    status: Status::Pending,
                    attempts: 0,
                    crashes: 0,
                    generation: 0,
                    at: self.h.now().after(delay),
                    in_line: None,
                    not_before: Timestamp::ZERO,
                    token: None,
                    operated: false,
                }
            });
        }
        self.arrange();
        added
    }

    /// Parks and frees entries behind others.
    fn arrange(&mut self) {
        let now = self.h.now();
        for name in HANDLERS {
            let parks = |entry: &Entry| entry.in_line == Some(InLine::Parks);
            let of = |key: &(u8, &str)| key.1 == name;
            let parking = self.entries.iter().filter(|(key, entry)| of(key) && parks(entry));
            let first = parking.map(|(_, entry)| entry.seq).min();
            for (_, entry) in self.entries.iter_mut().filter(|(key, entry)| of(key) && entry.ordered) {
                let behind = first.is_some_and(|first| first < entry.seq);
                match follow(entry.status, entry.in_line, behind) {
                    Some((Event::Park, next)) => {
                        (entry.status, entry.in_line) = (next, Some(InLine::Parked));
                        (entry.not_before, entry.at) = (entry.at, now);
                    }
                    Some((_, next)) => {
                        (entry.status, entry.in_line, entry.at) = (next, None, entry.not_before);
                    }
                    None => {}
                }
            }
        }
    }

    /// Whether an entry waits for another one with its ordering key.
    fn is_blocked(&self, id: u8, name: &str) -> bool {
        let entry =
            &self.entries[&(id, HANDLERS.into_iter().find(|one| *one == name).expect("a known handler"))];
        entry.ordered
            && self.entries.iter().any(|((_, other_name), other)| {
                let unfinished = match other.status {
                    Status::Pending | Status::Running => true,
                    Status::Poisoned => other.in_line.is_some_and(InLine::holds_back),
                    Status::Completed | Status::Discarded => false,
                };
                let earlier = other.seq < entry.seq && unfinished;
                let runs = other.seq != entry.seq && other.status == Status::Running;
                other.ordered && *other_name == name && (earlier || runs)
            })
    }

    fn claimable(&self, name: &'static str, mode: ClaimMode) -> Vec<(Timestamp, Seq, u8)> {
        let mut claimable: Vec<_> = self
            .entries
            .iter()
            .filter(|((id, of), entry)| {
                *of == name
                    && entry.status == Status::Pending
                    && entry.at <= self.h.now()
                    && (entry.crashes == 0) == (mode == ClaimMode::Healthy)
                    && !self.paused.contains(name)
                    && !self.is_blocked(*id, name)
            })
            .map(|((id, _), entry)| (entry.at, entry.seq, *id))
            .collect();
        claimable.sort_unstable();
        claimable
    }

    async fn claim(&mut self) {
        let name = HANDLERS[self.rng.usize(..HANDLERS.len())];
        let (limit, suspect) = (self.rng.usize(..4), self.rng.u8(..4) == 0);
        let mut params = claim_params(&[route(name)], limit);
        params.inbox = self.inbox.clone();
        let params = if suspect { params.suspect() } else { params };
        let claimed = self.h.store.claim(&params).await.expect("claim");
        self.log.push(format!(
            "claim {limit} of {name}, {:?}: {:?}",
            params.mode,
            crate::fixture::claims(&claimed)
        ));
        let expected = self.claimable(name, params.mode);
        let most = if suspect { limit.min(1) } else { limit };
        self.check(claimed.len() == most.min(expected.len()), &format_args!("claimable are {expected:?}"));
        // An ordered entry may be dated anew when it is released, so its place among the others is the store's choice.
        if expected.iter().all(|(.., id)| !is_ordered(*id)) {
            let got: Vec<Seq> = claimed.iter().map(|claimed| claimed.claim.seq).collect();
            let wanted: Vec<Seq> = expected.iter().take(most).map(|(_, seq, _)| *seq).collect();
            self.check(got == wanted, &format_args!("claimable are {expected:?}"));
        }
        for claimed in &claimed {
            let known = expected.iter().any(|(_, seq, _)| *seq == claimed.claim.seq);
            self.check(known, &format_args!("claimable are {expected:?}"));
        }
        self.lease(name, claimed);
    }

    async fn rescue(&mut self) {
        let name = HANDLERS[self.rng.usize(..HANDLERS.len())];
        let limit = self.rng.usize(..4);
        let mut params = rescue_params(&[route(name)], limit);
        params.inbox = self.inbox.clone();
        let rescued = self.h.store.rescue(&params).await.expect("rescue");
        self.log.push(format!("rescue {limit} of {name}: {:?}", crate::fixture::claims(&rescued)));
        let lapsed = |entry: &Entry| entry.status == Status::Running && entry.at < self.h.now();
        let expected: BTreeSet<Seq> = self
            .entries
            .iter()
            .filter(|((_, of), entry)| *of == name && lapsed(entry))
            .map(|(_, e)| e.seq)
            .collect();
        self.check(rescued.len() == limit.min(expected.len()), &format_args!("lapsed are {expected:?}"));
        for rescued in &rescued {
            self.check(expected.contains(&rescued.claim.seq), &format_args!("lapsed are {expected:?}"));
        }
        self.lease(name, rescued);
    }

    /// Follows a claim or rescue.
    fn lease(&mut self, name: &'static str, claimed: Vec<Claimed>) {
        let before = self.last_token;
        for Claimed { claim, message } in claimed {
            let id = message.id()[0];
            let (now, entry) = (self.h.now(), self.entries.get_mut(&(id, name)).expect("a known entry"));
            entry.status = Status::Running;
            entry.at = now.after(LEASE);
            entry.token = Some(claim.token);
            entry.operated = false;
            let same = (claim.seq, claim.attempts, claim.crashes, claim.generation)
                == (entry.seq, entry.attempts, entry.crashes, entry.generation);
            self.check(
                same && claim.claimed_at == now && claim.handler == handler(name),
                &format_args!("{claim:?}"),
            );
            self.check(before < Some(claim.token), &"tokens only grow");
            self.last_token = self.last_token.max(Some(claim.token));
            self.claims.push(claim);
        }
    }

    async fn settle(&mut self) {
        let Some((claim, entry_id)) = self.any_claim() else {
            return;
        };
        let outcome = outcomes()[self.rng.usize(..8)].clone();
        let mut policy = policy();
        policy.on_poisoned = [OnPoisoned::Block, OnPoisoned::Skip, OnPoisoned::Park][self.rng.usize(..3)];
        let settlement: Settlement = claim.settle(&policy, outcome);
        let settled = self.h.send(settlement.clone()).await;
        self.log.push(format!("settle {:?} as {:?}: {settled:?}", claim.token, settlement.next));
        let now = self.h.now();
        let Some(entry) = self.entries.get_mut(&entry_id).filter(|entry| entry.seq == claim.seq) else {
            return self.check(settled == Settled::LeaseLost, &"the message is gone");
        };
        if entry.status == Status::Running && entry.token == Some(claim.token) {
            entry.status = settlement.next.status();
            entry.attempts = settlement.attempts;
            entry.crashes = settlement.crashes;
            entry.in_line = settlement.in_line;
            entry.at = match settlement.next {
                Next::Pending { delay } => now.after(delay),
                _ => now,
            };
            self.arrange();
            self.check(settled == Settled::Applied, &"the claim holds");
        } else if !entry.operated {
            let status = settlement.next.status();
            let parked = status == Status::Pending && entry.in_line == Some(InLine::Parked);
            let repeat = entry.token == Some(claim.token) && (entry.status == status || parked);
            let expected = if repeat { Settled::Applied } else { Settled::LeaseLost };
            self.check(settled == expected, &format_args!("expected {expected:?}"));
        }
    }

    async fn renew(&mut self) {
        let Some((claim, entry_id)) = self.any_claim() else {
            return;
        };
        let renewed = self.h.store.renew(&RenewParams::new(vec![claim.clone()], LEASE)).await.expect("renew");
        self.log.push(format!("renew {:?}: {renewed:?}", claim.token));
        let until = self.h.now().after(LEASE);
        let entry = self.entries.get_mut(&entry_id).filter(|entry| entry.seq == claim.seq);
        let held = entry.filter(|entry| entry.status == Status::Running && entry.token == Some(claim.token));
        let expected = if held.is_some() { Renewed::Extended } else { Renewed::LeaseLost };
        if let Some(entry) = held {
            entry.at = until;
        }
        self.check(renewed == [expected], &format_args!("expected {expected:?}"));
    }

    /// A claim that was made some time, preferably a late one, and its entry.
    fn any_claim(&mut self) -> Option<(Claim, (u8, &'static str))> {
        let from = if self.rng.bool() { self.claims.len().saturating_sub(3) } else { 0 };
        let claim = self.claims.get(self.rng.usize(from..self.claims.len().max(from + 1)))?.clone();
        let id = (0..MESSAGES).find(|id| self.key(*id) == claim.key).expect("a known key");
        let name = HANDLERS.into_iter().find(|name| handler(name) == claim.handler).expect("a known handler");
        Some((claim, (id, name)))
    }

    fn key(&self, id: u8) -> oncebox::Key {
        key_in(&self.inbox, &self.offer(id, 0, &[]).message)
    }

    fn advance(&mut self) {
        let by = [SECOND, 5 * SECOND, PAST_LEASE, HOUR][self.rng.usize(..4)];
        self.log.push(format!("advance {by:?}"));
        self.h.advance(by);
    }

    async fn operate(&mut self) {
        let (id, name) = (self.rng.u8(..MESSAGES), HANDLERS[self.rng.usize(..HANDLERS.len())]);
        let operation = Operation::ALL[self.rng.usize(..Operation::ALL.len())];
        let result = self.h.store.operate(&self.inbox, &self.key(id), &handler(name), operation).await;
        self.log.push(format!(
            "{operation:?} {id} for {name}: {:?}",
            result.as_ref().map_err(oncebox::Error::kind)
        ));
        let now = self.h.now();
        let Some(entry) = self.entries.get_mut(&(id, name)) else {
            return self
                .check(result.is_err_and(|error| error.kind() == ErrorKind::NotFound), &"there is no entry");
        };
        match operate(entry.status, entry.in_line, operation) {
            Err(refused) => {
                self.check(result.is_err_and(|error| error.kind() == refused.kind()), &refused);
            }
            Ok(status) => {
                if operation == Operation::Unblock {
                    entry.in_line = Some(InLine::Skipped);
                } else {
                    (entry.status, entry.at, entry.in_line) = (status, now, None);
                }
                entry.operated = true;
                entry.generation += u32::from(operation == Operation::Replay);
                if status == Status::Pending {
                    (entry.attempts, entry.crashes) = (0, 0);
                }
                self.arrange();
                let status = self.entries[&(id, name)].status;
                self.check(result.is_ok_and(|view| view.status == status), &"it is allowed");
            }
        }
    }

    async fn pause_or_resume(&mut self) {
        let name = HANDLERS[self.rng.usize(..HANDLERS.len())];
        let pause = self.rng.bool();
        self.log.push(format!("{} {name}", if pause { "pause" } else { "resume" }));
        if pause {
            self.paused.insert(name);
            self.h.store.pause(&self.inbox, &handler(name)).await.expect("pause");
        } else {
            self.paused.remove(name);
            self.h.store.resume(&self.inbox, &handler(name)).await.expect("resume");
        }
    }

    async fn sweep(&mut self) {
        self.h.advance(RETENTION);
        let horizon = self.h.now().before(RETENTION);
        let swept = self.h.sweep_pages(&self.inbox, RETENTION, 100).await;
        self.log.push(format!("sweep: {swept:?}"));
        let finished = |entry: &Entry| matches!(entry.status, Status::Completed | Status::Discarded);
        let gone: Vec<u8> = self
            .messages
            .iter()
            .filter(|(id, (.., received_at))| {
                let mut entries = self.entries.iter().filter(|((of, _), _)| of == *id);
                *received_at <= horizon && entries.all(|(_, entry)| finished(entry) && entry.at <= horizon)
            })
            .map(|(id, _)| *id)
            .collect();
        self.messages.retain(|id, _| !gone.contains(id));
        self.entries.retain(|(id, _), _| !gone.contains(id));
        self.check(swept.messages == gone.len(), &format_args!("finished are {gone:?}"));
    }

    async fn compare_all(&self) {
        for id in 0..MESSAGES {
            self.compare(id).await;
        }
        let counts = self.h.store.count(&self.inbox).await.expect("count");
        let expected = (self.messages.len() as u64, self.asides.len() as u64, self.paused.len());
        self.check(
            (counts.messages, counts.kept_aside, counts.paused.len()) == expected,
            &format_args!("{counts:?}"),
        );
        for status in [Status::Pending, Status::Running, Status::Poisoned] {
            let listed = self.h.list(&self.inbox, status, 3).await.len();
            let expected = self.entries.values().filter(|entry| entry.status == status).count();
            self.check(listed == expected, &format_args!("{listed} are {status}, not {expected}"));
            self.check(counts.with_status(status) == expected as u64, &format_args!("{counts:?}"));
        }
    }

    /// Compares all that is known of a message.
    async fn compare(&self, id: u8) {
        let view = self.h.store.show(&self.inbox, &self.key(id)).await.expect("show");
        let stored = view.as_ref().and_then(|view| view.stored.as_ref()).map(|(seq, at, _)| (*seq, *at));
        let expected = self.messages.get(&id).map(|(seq, _, at)| (*seq, *at));
        self.check(stored == expected, &format_args!("{id} is stored as {stored:?}, not {expected:?}"));
        let views = view.map(|view| view.entries).unwrap_or_default();
        for name in HANDLERS {
            let generations: Vec<&EntryView> =
                views.iter().filter(|view| view.handler == handler(name)).collect();
            let Some(entry) = self.entries.get(&(id, name)) else {
                self.check(generations.is_empty(), &format_args!("{id} has no entry for {name}"));
                continue;
            };
            let numbers: Vec<u32> = generations.iter().map(|view| view.generation).collect();
            self.check(
                numbers == (0..=entry.generation).collect::<Vec<_>>(),
                &format_args!("generations {numbers:?}"),
            );
            let latest = generations[generations.len() - 1];
            let same = (latest.status, latest.attempts, latest.crashes, latest.in_line)
                == (entry.status, entry.attempts, entry.crashes, entry.in_line);
            self.check(same, &format_args!("{id} for {name} is {latest:?}"));
            let blocked = entry.status == Status::Pending && self.is_blocked(id, name);
            let at = if blocked { Timestamp::MAX } else { entry.at };
            // An ordered entry may be dated anew when it is released.
            let right = latest.at == at || (entry.ordered && !blocked && latest.at != Timestamp::MAX);
            self.check(right, &format_args!("{id} for {name} is at {:?}, not {at:?}", latest.at));
        }
    }
}

fn is_ordered(id: u8) -> bool {
    id < MESSAGES / 2
}
