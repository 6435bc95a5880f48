//! Claims entries that can run now and starts them. Tests: `tests/durable.rs`, `tests/wakeups.rs`, `tests/rate.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc::UnboundedSender;

use super::launch::{give_back, launch_all};
use super::plan::{ClaimPlan, Room, Seat};
use crate::error::Result;
use crate::handler::RegisteredHandler;
use crate::inbox::Shared;
use crate::runtime::Core;
use crate::runtime::upkeep::repeat::{Pauses, answered, is_trouble};
use crate::state::{Outcome, Settlement};
use crate::store::{Claim, ClaimMode, ClaimParams, ClaimQuota, Claimed, RenewParams, Store, Wakeup};

/// First wait of suspects until no other entry is in hand, and of healthy entries for suspects.
const ALONE_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait of suspects until no other entry is in hand. It doubles with each wait in vain, so that it exceeds the longest run.
const ALONE_WITHIN_MAX: Duration = Duration::from_hours(1);
/// Wait for more free capacity before a small claim.
const GATHER: Duration = Duration::from_millis(20);

pub(in crate::runtime) async fn run<S: Store>(
    core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
) -> Result<()> {
    Dispatcher::new(core, settlements).run().await
}

/// Permits of the rate limit that were taken for a claim. A drop returns the unused ones.
struct TakenTokens<'a, S: Store> {
    handlers: &'a [Arc<RegisteredHandler<S>>],
    taken: Vec<usize>,
}

impl<S: Store> Drop for TakenTokens<'_, S> {
    fn drop(&mut self) {
        for (handler, taken) in self.handlers.iter().zip(&self.taken) {
            handler.throttle.give_back(*taken);
        }
    }
}

/// Returns the number of claims for a handler.
fn count<S: Store>(claimed: &[Claimed], handler: &RegisteredHandler<S>) -> usize {
    claimed.iter().filter(|claimed| handler.route.answers_to(&claimed.claim.handler)).count()
}

struct Dispatcher<S: Store> {
    core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
    wakeup: Option<Wakeup>,
    handlers: Vec<Arc<RegisteredHandler<S>>>,
    /// True for each handler that may have more due entries.
    hungry: Vec<bool>,
    /// True if suspects, entries of dead workers, may be due.
    suspects: bool,
    /// True after a suspect ran: healthy entries have the next turn.
    after_suspect: bool,
    /// No suspect is claimed before this time, if healthy entries may be due.
    healthy_until: Duration,
    /// Claims that run alone, until they end or others run beside them.
    solitary: Vec<Claim>,
    /// Next wait of suspects until no other entry is in hand.
    patience: Duration,
    /// Factor on the company of suspects. It doubles after each group that this worker survived.
    company: usize,
    /// The group of suspects that runs apart from healthy entries.
    group: Vec<Claim>,
    /// Time of the last query for all handlers.
    polled: Duration,
    /// The last ticket of a caller that waits for the end of all work.
    ticket: u64,
    turn: usize,
    eager: bool,
}

impl<S: Store> Dispatcher<S> {
    fn new(core: Arc<Core<S>>, settlements: UnboundedSender<Settlement>) -> Self {
        let wakeup = core.inbox.store.wakeups().map(crate::store::Wakeups::subscribe);
        let handlers: Vec<_> = core.inbox.registry.durable().cloned().collect();
        let polled = core.inbox.clock.monotonic();
        Self {
            wakeup,
            hungry: vec![true; handlers.len()],
            suspects: !handlers.is_empty(),
            handlers,
            after_suspect: false,
            healthy_until: Duration::ZERO,
            solitary: Vec::new(),
            patience: ALONE_WITHIN,
            company: 1,
            group: Vec::new(),
            polled,
            ticket: 0,
            turn: 0,
            eager: false,
            core,
            settlements,
        }
    }

    async fn run(mut self) -> Result<()> {
        let core = Arc::clone(&self.core);
        let mut pauses = Pauses::default();
        while !core.stop.requested() {
            core.heartbeats.turn("dispatcher", core.inbox.config.poll);
            // Listen before the claim, so that a settlement in between ends the wait.
            let landing = core.in_flight.landing();
            let grounded = core.in_flight.len() == 0;
            self.listen();
            let plan = self.plan();
            let claimed = if self.is_turn_of_suspects(&plan) {
                self.suspects(&plan).await
            } else if plan.claims() {
                self.healthy(&plan).await
            } else {
                if grounded && !self.has_work() {
                    core.idle_waiters.answer(self.ticket);
                }
                self.idle(landing, plan.short).await;
                continue;
            };
            match claimed {
                Ok(()) => pauses = Pauses::default(),
                Err(error) if is_trouble(error.kind()) => {
                    core.inbox.store.watch().trouble(&core.inbox.name, "claim", &error);
                    tokio::select! {
                        () = core.inbox.clock.sleep(pauses.next()) => {}
                        () = core.stop.wait() => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Collects all wakeups. A wakeup after this call ends the next wait.
    fn listen(&mut self) {
        let Shared { clock, config, local_wakeup, .. } = &*self.core.inbox;
        let now = clock.monotonic();
        let woken = self.wakeup.as_mut().is_some_and(|wakeup| wakeup.woken().now_or_never().is_some());
        let mut told = local_wakeup.take() || woken;
        let ticket = self.core.idle_waiters.ticket();
        // Under steady load no wait lasts as long as the poll interval, so the wait cannot check this.
        if local_wakeup.take_passed(now)
            || now >= self.polled.saturating_add(config.poll)
            || ticket > self.ticket
        {
            self.suspects = !self.handlers.is_empty();
            self.polled = now;
            told = true;
        }
        self.ticket = ticket;
        if told {
            self.hungry.fill(true);
        }
    }

    /// Returns true if there may be entries that can start now or soon. Entries of a handler with an open breaker do not
    /// count.
    fn has_work(&self) -> bool {
        let now = self.core.inbox.clock.monotonic();
        let mut handlers = self.handlers.iter().zip(&self.hungry);
        handlers.any(|(handler, hungry)| (self.suspects || *hungry) && !handler.throttle.is_shut(now))
    }

    fn is_turn_of_suspects(&self, plan: &ClaimPlan) -> bool {
        let others = (self.after_suspect && plan.claims())
            || (self.hungry.contains(&true) && self.core.inbox.clock.monotonic() < self.healthy_until);
        self.suspects && plan.has_room() && !others
    }

    fn plan(&mut self) -> ClaimPlan {
        let (Shared { config, clock, .. }, in_flight) = (&*self.core.inbox, &self.core.in_flight);
        let (total, now) = (Room { capacity: config.in_flight, busy: in_flight.len() }, clock.monotonic());
        let seat = |(handler, hungry): (&Arc<RegisteredHandler<S>>, &bool)| {
            let busy = in_flight.count(&handler.route.key);
            let room = Room { capacity: handler.registration.concurrency, busy };
            let (capacity, free) = handler.throttle.room(now);
            Seat { room, throttle: Room { capacity, busy: capacity - free }, hungry: *hungry }
        };
        let seats: Vec<Seat> = self.handlers.iter().zip(&self.hungry).map(seat).collect();
        self.turn = self.turn.wrapping_add(1);
        ClaimPlan::new(total, config.batch, &seats, self.turn, std::mem::take(&mut self.eager))
    }

    /// Waits until there may be new entries, or free capacity.
    async fn idle(&mut self, landing: impl Future<Output = ()>, short: bool) {
        let Shared { clock, config, local_wakeup, .. } = &*self.core.inbox;
        let room_is_waited_for = self.suspects || self.hungry.contains(&true);
        let wakeup = self.wakeup.as_mut();
        let woken = async {
            match wakeup {
                Some(wakeup) => wakeup.woken().await,
                None => std::future::pending().await,
            }
        };
        let (poll, now) = (self.polled.saturating_add(config.poll), clock.monotonic());
        let waits = |(handler, hungry): (&Arc<RegisteredHandler<S>>, &bool)| {
            if self.suspects || *hungry { handler.throttle.opens_at(now) } else { None }
        };
        let gates = self.handlers.iter().zip(&self.hungry).filter_map(waits);
        let suspects = Some(self.healthy_until).filter(|until| self.suspects && now < *until);
        let next = gates
            .chain(local_wakeup.next_due())
            .chain(suspects)
            .fold(poll, Duration::min)
            .saturating_sub(now);
        tokio::select! {
            () = landing, if room_is_waited_for || self.core.idle_waiters.is_waited_for() => {}
            () = self.core.stop.wait() => {}
            () = clock.sleep(GATHER), if short => self.eager = true,
            () = woken => self.hungry.fill(true),
            () = local_wakeup.wait() => self.hungry.fill(true),
            () = self.core.suspects.notified() => {
                (self.suspects, self.company) = (!self.handlers.is_empty(), 1);
            }
            // `listen` checks these two.
            () = self.core.idle_waiters.taken() => {}
            () = clock.sleep(next) => {}
        }
    }

    /// Claims and starts healthy entries.
    async fn healthy(&mut self, plan: &ClaimPlan) -> Result<()> {
        self.after_suspect = false;
        let (claimed, asked) = self.claim(&plan.limits, ClaimMode::Healthy).await?;
        // A caller that waits for the end of all work needs an empty claim: a store may defer entries that it passed as long as
        // it finds others.
        let more = !claimed.is_empty() && self.core.idle_waiters.is_waited_for();
        for (index, handler) in self.handlers.iter().enumerate() {
            // A handler with a full claim may have more entries, and so may one that was not in the claim.
            if count(&claimed, handler) < asked[index] && !more {
                self.hungry[index] = false;
            }
        }
        self.end_solitude(&claimed).await?;
        launch_all(&self.core, &self.settlements, claimed);
        Ok(())
    }

    /// Claims and starts suspects. Suspects of the first level run beside others. The rest wait until no other entry is in
    /// hand, and no healthy entry is claimed until they are settled, for a limited time.
    async fn suspects(&mut self, plan: &ClaimPlan) -> Result<()> {
        let (begun, idle) = (self.core.inbox.clock.monotonic(), self.core.in_flight.len() == 0);
        let mut claimed = self.claim_suspects(plan).await?;
        self.suspects = !claimed.is_empty();
        self.after_suspect |= self.suspects;
        if !idle && !claimed.iter().all(runs_beside_others) {
            claimed = self.separate(plan, claimed).await?;
        }
        self.end_solitude(&claimed).await?;
        let claims = || claimed.iter().map(|claimed| &claimed.claim);
        self.solitary.extend(claims().filter(|claim| claim.alone).cloned());
        let apart = claims().any(|claim| claim.alone) || !claimed.iter().all(runs_beside_others);
        let patience = claims().map(|claim| claim.suspicion.patience()).max().unwrap_or(1);
        if apart {
            self.group.extend(claims().cloned());
        }
        let rest = self.core.in_flight.len().saturating_sub(claimed.len());
        launch_all(&self.core, &self.settlements, claimed);
        if apart && rest == 0 {
            self.down_to(0, ALONE_WITHIN * patience).await;
        }
        // Healthy entries get as much time as they waited.
        let now = self.core.inbox.clock.monotonic();
        self.healthy_until = now.saturating_add(now.saturating_sub(begun));
        Ok(())
    }

    /// Claims suspects: twice as many together after each group that this worker survived. Without suspects it starts over.
    async fn claim_suspects(&mut self, plan: &ClaimPlan) -> Result<Vec<Claimed>> {
        let tested = !self.group.is_empty();
        self.group.retain(|claim| self.core.in_flight.holds(claim));
        if tested && self.group.is_empty() {
            self.company = self.company.saturating_mul(2);
        }
        if self.core.suspects.notified().now_or_never().is_some() {
            // The guilty one may be among those that were rescued.
            self.company = 1;
        }
        let claimed = self.claim(&plan.suspects, ClaimMode::Suspect).await?.0;
        if claimed.is_empty() && self.group.is_empty() {
            self.company = 1;
        }
        Ok(claimed)
    }

    /// Waits until only these suspects are in hand, and claims them again, so that the store knows that they run alone. If
    /// other runs last too long, it gives the suspects back: a death beside others counts for no entry, so the guilty one would kill
    /// its worker for ever. The next wait is twice as long.
    async fn separate(&mut self, plan: &ClaimPlan, claimed: Vec<Claimed>) -> Result<Vec<Claimed>> {
        let claims: Vec<Claim> = claimed.iter().map(|claimed| claimed.claim.clone()).collect();
        self.down_to(claims.len(), self.patience).await;
        let apart = self.core.in_flight.neighbours(&claims).is_empty();
        for claim in &claims {
            give_back(&self.core, &self.settlements, claim, Outcome::Released);
        }
        self.patience = if apart { ALONE_WITHIN } else { (2 * self.patience).min(ALONE_WITHIN_MAX) };
        if !apart || self.core.stop.requested() {
            return Ok(Vec::new());
        }
        self.down_to(0, ALONE_WITHIN).await;
        self.claim_suspects(plan).await
    }

    /// Waits until at most `rest` entries are in hand, for a limited time: neither healthy entries nor suspects may starve.
    async fn down_to(&self, rest: usize, within: Duration) {
        let Shared { clock, config, .. } = &*self.core.inbox;
        self.core.heartbeats.turn("dispatcher", config.poll.saturating_add(within));
        tokio::select! {
            () = self.core.in_flight.down_to(rest) => {}
            () = clock.sleep(within) => {}
            () = self.core.stop.wait() => {}
        }
    }

    /// Records in the store that a lone run will have others beside it, so that a later death of its worker is not counted for
    /// it alone. If the store call fails, the other entries are released.
    async fn end_solitude(&mut self, company: &[Claimed]) -> Result<()> {
        let Shared { config, store, .. } = &*self.core.inbox;
        self.solitary.retain(|claim| self.core.in_flight.holds(claim));
        if self.solitary.is_empty() || company.is_empty() {
            return Ok(());
        }
        let told = self.solitary.iter().map(|claim| Claim { alone: false, ..claim.clone() });
        let params = RenewParams::new(told.collect(), config.lease);
        if let Err(error) = store.renew(&params).await {
            for Claimed { claim, .. } in company {
                give_back(&self.core, &self.settlements, claim, Outcome::Released);
            }
            return Err(error);
        }
        self.solitary.clear();
        Ok(())
    }

    /// Claims entries, at most `limits` of each handler. Also returns the number requested of each.
    async fn claim(&self, limits: &[usize], mode: ClaimMode) -> Result<(Vec<Claimed>, Vec<usize>)> {
        let now = self.core.inbox.clock.monotonic();
        let mut tokens = TakenTokens { handlers: &self.handlers, taken: vec![0; limits.len()] };
        for ((handler, taken), limit) in self.handlers.iter().zip(&mut tokens.taken).zip(limits) {
            *taken = handler.throttle.take(*limit, now);
        }
        let asked = tokens.taken.clone();
        let wants: Vec<ClaimQuota> = self
            .handlers
            .iter()
            .zip(&asked)
            .filter(|(_, limit)| **limit > 0)
            .map(|(handler, limit)| ClaimQuota { route: handler.route.clone(), limit: *limit })
            .collect();
        if wants.is_empty() {
            return Ok((Vec::new(), asked));
        }
        let Shared { name, config, registry, .. } = &*self.core.inbox;
        let params = ClaimParams::new(name.clone(), wants, config.lease).policies(registry.policies());
        let idle = self.core.in_flight.len() == 0;
        let params = match mode {
            ClaimMode::Suspect => params.suspect().idle(idle).company_factor(self.company),
            ClaimMode::Healthy => params,
        };
        let claimed = self.ask(params).await?;
        for (handler, taken) in self.handlers.iter().zip(&mut tokens.taken) {
            *taken = taken.saturating_sub(count(&claimed, handler));
        }
        Ok((claimed, asked))
    }

    async fn ask(&self, params: ClaimParams) -> Result<Vec<Claimed>> {
        let Shared { clock, config, registry, store, .. } = &*self.core.inbox;
        // Taken before the claim is sent, so the lease cannot begin earlier.
        let deadline = clock.monotonic().saturating_add(config.lease);
        let claimed = answered(&self.core.inbox, &self.core.cut, || store.claim(&params)).await?;
        for claimed in &claimed {
            if let Some(handler) = registry.by_key(&claimed.claim.handler) {
                store.watch().claimed(claimed);
                self.core.in_flight.insert(&claimed.claim, &handler.route.key, deadline);
            }
        }
        self.core.in_flight.report(&self.core.inbox.name);
        Ok(claimed)
    }
}

/// Returns true if a suspect may run beside other entries.
fn runs_beside_others(claimed: &Claimed) -> bool {
    claimed.claim.suspicion.runs_beside_others()
}
