//! A sequence on a store. After each step, its result and the store's content are compared with the model.

mod lease;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use oncebox::state::{InLine, Operation, Outcome, Settlement, Status, operate};
use oncebox::store::{
    Accepted, Admin as _, Claim, NewMessage, RenewParams, Renewed, SettleIn as _, Settled, Store as _,
    SweepParams, Token, Transactional as _,
};
use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Message, OnPoisoned, Policy, config::OnConflict};

use super::inbox_model::{EVERYTHING, InboxModel, ModelEntry, is_ordered};
use super::step::{DONE, HANDLERS, Lost, ModelOffer, ModelStep, spelled};
use crate::fixture::{
    LEASE, PAST_LEASE, RETENTION, inbox_named, key_in, moved_to, offer_routed, outcomes, policy,
};
use crate::{FaultyStore, Harness, StoreFault, StoreUnderTest, StoreVerb};

/// Description of a difference.
pub(super) type Checked<T = ()> = Result<T, String>;

/// Entry of a claim.
type EntryId = (u8, &'static str);

/// One sequence of operations.
pub(super) struct ModelRun<'a, S> {
    pub(super) h: &'a Harness<S>,
    store: FaultyStore<S>,
    pub(super) inbox: InboxName,
    pub(super) model: InboxModel,
    /// Every claim that was ever made, stale ones included.
    claims: Vec<(Claim, EntryId)>,
    /// Handlers, each with the number of renames that the store surely knows.
    known: BTreeSet<(&'static str, usize)>,
    last_token: Option<Token>,
    /// Latest time so far. It differs from now if the clock was set back.
    latest: Timestamp,
    turned_back: Duration,
    made: usize,
    log: Vec<String>,
}

impl<'a, S: StoreUnderTest> ModelRun<'a, S> {
    pub(super) fn new(h: &'a Harness<S>, inbox: &str) -> Self {
        Self {
            h,
            store: FaultyStore::new(h.store.clone()),
            inbox: inbox_named(inbox),
            model: InboxModel::default(),
            claims: Vec::new(),
            known: BTreeSet::new(),
            last_token: None,
            latest: h.now(),
            turned_back: Duration::ZERO,
            made: 0,
            log: Vec::new(),
        }
    }

    pub(super) fn turned_back(&self) -> Duration {
        self.turned_back
    }

    /// Returns the number of steps.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    pub(super) fn into_log(self) -> Vec<String> {
        self.log
    }

    /// Runs all steps, then finishes everything: nothing may be left that cannot be handled or removed.
    pub(super) async fn all(&mut self, steps: impl Iterator<Item = ModelStep>) -> Checked {
        for step in steps {
            self.log.push(format!("{step:?}"));
            self.made += 1;
            self.step(&step).await?;
            self.compare().await?;
        }
        self.log.push("everything is brought to its end".into());
        self.finish().await?;
        self.compare().await
    }

    async fn step(&mut self, step: &ModelStep) -> Checked {
        match step {
            ModelStep::Accept { offers, lost } => self.accept(offers, *lost).await,
            ModelStep::Claim { handler, renames, limit, suspect, lost } => {
                self.claim((handler, *renames), *limit, *suspect, *lost).await.map(drop)
            }
            ModelStep::Settle { ago, outcome, on_poisoned, lost } => {
                let Some((claim, id)) = self.claim_made(*ago) else { return Ok(()) };
                let settlement = claim.settle(&policy_with(*on_poisoned), outcomes()[*outcome].clone());
                self.settle(&settlement, id, *lost).await
            }
            ModelStep::Complete { ago, lost } => self.complete(*ago, *lost).await,
            ModelStep::Renew { ago, lost } => self.renew(*ago, *lost).await,
            ModelStep::Rescue { handler, renames, limit, lapse, settle, on_poisoned, lost } => {
                if *lapse {
                    self.advance(PAST_LEASE);
                }
                for (claim, id) in self.rescue((handler, *renames), *limit, *lost).await? {
                    if *settle {
                        let settlement = claim.settle(&policy_with(*on_poisoned), Outcome::Crashed);
                        self.settle(&settlement, id, Lost::No).await?;
                    }
                }
                Ok(())
            }
            ModelStep::Advance(by) => {
                self.advance(*by);
                Ok(())
            }
            ModelStep::TurnBack(by) => {
                self.h.clock.turn_back(*by);
                self.turned_back += *by;
                Ok(())
            }
            ModelStep::Operate { id, handler, renames, operation, lost } => {
                self.operate(*id, (handler, *renames), *operation, *lost).await
            }
            ModelStep::Pause { handler, renames, pause, lost } => {
                self.pause((handler, *renames), *pause, *lost).await
            }
            ModelStep::Sweep { wait, page, lost } => {
                self.advance(*wait);
                self.sweep(*page, *lost).await
            }
        }
    }

    /// Makes a call. If its response is lost, the caller repeats it. Also returns true if the result is that of a repeat.
    async fn call<T: Debug>(
        &self,
        verb: StoreVerb,
        lost: Lost,
        call: impl AsyncFn(&FaultyStore<S>) -> Result<T, Error>,
    ) -> Checked<(Result<T, Error>, bool)> {
        let fault = match lost {
            Lost::No => return Ok((call(&self.store).await, false)),
            Lost::After => StoreFault::ErrAfter,
            Lost::Before => StoreFault::ErrBefore(ErrorKind::CommitUnknown),
        };
        self.store.faults().next(verb, fault);
        match call(&self.store).await {
            Err(error) if error.kind() == ErrorKind::CommitUnknown => {}
            // The call failed by itself, and did nothing.
            Err(error) => return Ok((Err(error), false)),
            Ok(answer) => return Err(format!("{verb:?} answers {answer:?}, though the answer is lost")),
        }
        Ok((call(&self.store).await, lost == Lost::After))
    }

    async fn accept(&mut self, offers: &[ModelOffer], lost: Lost) -> Checked {
        let batch: Vec<NewMessage> = offers.iter().map(|offer| self.new_message(offer)).collect();
        let (answers, repeated) =
            self.call(StoreVerb::Accept, lost, async |store| store.accept(&batch).await).await?;
        let answers = answers.map_err(failed("accept"))?;
        check(answers.len() == offers.len(), || format!("{} offers got {answers:?}", offers.len()))?;
        for (offer, answer) in offers.iter().zip(answers) {
            let expected = self.model.accept(offer, answer, repeated, self.h.now())?;
            check(answer == expected, || format!("{answer:?} instead of {expected:?} for {offer:?}"))?;
            if !matches!(answer, Accepted::Conflict(_) | Accepted::Stale) {
                let known = offer.handlers.iter().map(|name| (*name, offer.renames));
                self.known.extend(known.flat_map(|(name, renames)| (0..=renames).map(move |n| (name, n))));
            }
        }
        Ok(())
    }

    fn new_message(&self, offer: &ModelOffer) -> NewMessage {
        let mut message = message(offer.id, offer.payload);
        if let Some(age) = offer.age {
            message = message.with_time(self.h.now().before(age));
        }
        let routes = offer.handlers.iter().map(|name| spelled(name, offer.renames));
        let mut new = moved_to(&self.inbox, &offer_routed(message, routes));
        new.delay = offer.delay;
        new.on_conflict = if offer.first_wins { OnConflict::FirstWins } else { OnConflict::Quarantine };
        new
    }

    async fn settle(&mut self, settlement: &Settlement, id: EntryId, lost: Lost) -> Checked {
        let claim = &settlement.claim;
        let batch = [settlement.clone()];
        let (settled, _) =
            self.call(StoreVerb::Settle, lost, async |store| store.settle(&batch).await).await?;
        let settled = settled.map_err(failed("settle"))?;
        let now = self.h.now();
        let expected = if let Some(entry) = self.held(claim, id) {
            entry.settle(settlement, now);
            self.model.arrange(now);
            Settled::Applied
        } else {
            let entry = self.model.entries.get(&id).filter(|entry| entry.seq == claim.seq);
            // After an operator's change the store cannot recognise a repeated settlement. The comparison of the content shows that
            // it changes nothing.
            if entry.is_some_and(|entry| entry.operated || entry.generation() > claim.generation) {
                return Ok(());
            }
            let status = settlement.next.status();
            // A pending entry may have been parked at once.
            let is = |entry: &ModelEntry| {
                entry.status == status || (status == Status::Pending && entry.in_line == Some(InLine::Parked))
            };
            let written = |entry: &ModelEntry| entry.token == Some(claim.token) && is(entry);
            if entry.is_some_and(written) { Settled::Applied } else { Settled::LeaseLost }
        };
        let says =
            || format!("{settled:?} instead of {expected:?} for {:?} of {:?}", settlement.next, claim.token);
        check(settled == [expected], says)
    }

    async fn complete(&mut self, ago: usize, lost: Lost) -> Checked {
        let Some((claim, id)) = self.claim_made(ago) else { return Ok(()) };
        // Without the lease there is no commit whose response could be lost.
        let lost = if self.held(&claim, id).is_some() { lost } else { Lost::No };
        let complete = async |store: &FaultyStore<S>| {
            let mut tx = store.begin().await?;
            let settled = store.complete(&mut tx, &claim).await?;
            if settled == Settled::Applied {
                store.commit(tx).await?;
            }
            Ok(settled)
        };
        let (settled, repeated) = self.call(StoreVerb::Commit, lost, complete).await?;
        let settled = settled.map_err(failed("complete"))?;
        let now = self.h.now();
        let mut expected = Settled::LeaseLost;
        if let Some(entry) = self.held(&claim, id) {
            entry.settle(&Settlement::done(&claim), now);
            self.model.arrange(now);
            // The work must not be done twice, so its repeat is refused.
            expected = if repeated { Settled::LeaseLost } else { Settled::Applied };
        }
        check(settled == expected, || format!("{settled:?} instead of {expected:?} for {:?}", claim.token))
    }

    async fn renew(&mut self, ago: usize, lost: Lost) -> Checked {
        let Some((claim, id)) = self.claim_made(ago) else { return Ok(()) };
        let params = RenewParams::new(vec![claim.clone()], LEASE);
        let (renewed, _) =
            self.call(StoreVerb::Renew, lost, async |store| store.renew(&params).await).await?;
        let renewed = renewed.map_err(failed("renew"))?;
        let until = self.h.now().after(LEASE);
        let mut expected = Renewed::LeaseLost;
        if let Some(entry) = self.held(&claim, id) {
            entry.at = until;
            expected = Renewed::Extended;
        }
        check(renewed == [expected], || format!("{renewed:?} instead of {expected:?} for {:?}", claim.token))
    }

    fn advance(&mut self, by: Duration) {
        self.h.advance(by);
        self.latest = self.latest.max(self.h.now());
    }

    /// Returns the key by which an operator names a handler: one that the store knows, or the first.
    fn called(&self, (name, renames): (&'static str, usize)) -> HandlerKey {
        spelled(name, if self.known.contains(&(name, renames)) { renames } else { 0 }).key
    }

    async fn operate(
        &mut self,
        id: u8,
        called: (&'static str, usize),
        operation: Operation,
        lost: Lost,
    ) -> Checked {
        let (inbox, key, handler) = (self.inbox.clone(), key(&self.inbox, id), self.called(called));
        let (name, _) = called;
        let call = async |store: &FaultyStore<S>| store.operate(&inbox, &key, &handler, operation).await;
        let (answer, repeated) = self.call(StoreVerb::Operate, lost, call).await?;
        let answer = answer.map(|view| view.status).map_err(|error| error.kind());
        let now = self.h.now();
        let mut expected = Err(ErrorKind::NotFound);
        if let Some(entry) = self.model.entries.get_mut(&(id, name)) {
            expected = operate(entry.status, entry.in_line, operation).map_err(|error| error.kind());
            if let Ok(next) = expected {
                entry.operate(operation, next, now);
                self.model.arrange(now);
                let entry = &self.model.entries[&(id, name)];
                expected = if repeated {
                    operate(entry.status, entry.in_line, operation).map_err(|error| error.kind())
                } else {
                    Ok(entry.status)
                };
            }
        }
        check(answer == expected, || format!("{answer:?} instead of {expected:?}"))
    }

    async fn pause(&mut self, called: (&'static str, usize), pause: bool, lost: Lost) -> Checked {
        let (inbox, handler) = (self.inbox.clone(), self.called(called));
        let (name, _) = called;
        let (answer, _) = if pause {
            self.model.paused.insert(name);
            self.call(StoreVerb::Pause, lost, async |store| store.pause(&inbox, &handler).await).await?
        } else {
            self.model.paused.remove(name);
            self.call(StoreVerb::Resume, lost, async |store| store.resume(&inbox, &handler).await).await?
        };
        answer.map_err(failed("pause or resume"))
    }

    async fn sweep(&mut self, page: usize, lost: Lost) -> Checked {
        let before: BTreeSet<u8> = self.model.messages.keys().copied().collect();
        let may_go = self.model.forgettable(self.h.now().before(RETENTION));
        let mut params = SweepParams::new(self.inbox.clone(), RETENTION, page);
        let mut lost = lost;
        loop {
            let (swept, _) =
                self.call(StoreVerb::Sweep, lost, async |store| store.sweep(&params).await).await?;
            let swept = swept.map_err(failed("sweep"))?;
            lost = Lost::No;
            check(swept.next.is_none_or(|next| Some(next) > params.after), || {
                format!("{swept:?} goes back")
            })?;
            match swept.next {
                None => break,
                next => params.after = next,
            }
        }
        let mut gone = BTreeSet::new();
        for id in before {
            let view = self.store.show(&self.inbox, &key(&self.inbox, id)).await.map_err(failed("show"))?;
            if view.is_none_or(|view| view.stored.is_none()) {
                gone.insert(id);
            }
        }
        // Messages that came while the clock was wrong may stay a little longer. No message may be removed too early.
        let all_gone = gone == may_go || self.turned_back > Duration::ZERO;
        check(all_gone && gone.is_subset(&may_go), || format!("swept were {gone:?}, finished {may_go:?}"))?;
        self.model.forget(&gone);
        Ok(())
    }

    /// Finishes every entry, and removes every message.
    async fn finish(&mut self) -> Checked {
        self.advance(EVERYTHING);
        for name in HANDLERS {
            self.pause((name, 1), false, Lost::No).await?;
            for (claim, id) in self.rescue((name, 1), 100, Lost::No).await? {
                self.settle(&claim.settle(&policy(), Outcome::Released), id, Lost::No).await?;
            }
        }
        let is_poisoned =
            |(id, entry): (&EntryId, &ModelEntry)| (entry.status == Status::Poisoned).then_some(*id);
        for (id, name) in self.model.entries.iter().filter_map(is_poisoned).collect::<Vec<_>>() {
            self.operate(id, (name, 2), Operation::Discard, Lost::No).await?;
        }
        while self.model.with_status(Status::Pending) > 0 {
            let mut claimed = 0;
            for (name, suspect) in HANDLERS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
                for (claim, id) in self.claim((name, 0), 10, suspect, Lost::No).await? {
                    let settlement = claim.settle(&policy(), outcomes()[DONE].clone());
                    self.settle(&settlement, id, Lost::No).await?;
                    claimed += 1;
                }
            }
            check(claimed > 0, || "something waits, and nothing can be claimed".into())?;
        }
        self.compare().await?;
        self.advance(EVERYTHING);
        self.sweep(100, Lost::No).await?;
        check(self.model.messages.is_empty(), || "finished messages stay for ever".into())
    }
}

fn policy_with(on_poisoned: OnPoisoned) -> Policy {
    let mut policy = policy();
    policy.on_poisoned = on_poisoned;
    policy
}

pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

pub(super) fn failed(verb: &str) -> impl FnOnce(Error) -> String {
    move |error| format!("{verb} fails: {error}")
}

fn message(id: u8, payload: u8) -> Message {
    let message = Message::new(vec![id], "order.placed", vec![payload]);
    if is_ordered(id) { message.with_ordering_key("k") } else { message }
}

pub(super) fn key(inbox: &InboxName, id: u8) -> oncebox::Key {
    key_in(inbox, &message(id, 0))
}
