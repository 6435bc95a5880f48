//! Claims what can be run, and starts it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::Core;
use super::executor::{Verdict, execute};
use crate::error::{ErrorKind, Result};
use crate::inbox::Shared;
use crate::state::{Outcome, Policy, Settlement, decide};
use crate::store::{ClaimParams, Claimed, Store, Wakeup, Want};

/// How long a suspect waits for its neighbours to finish before it runs beside them after all: rather a neighbour
/// that may be blamed once than an entry that never runs.
const ALONE_WITHIN: Duration = Duration::from_secs(10);

/// The longest pause between two tries while the store does not answer.
const MAX_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn run<S: Store>(
    core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
) -> Result<()> {
    let mut wakeup = core.inbox.store.wakeups().map(crate::store::Wakeups::subscribe);
    let mut pause = Duration::ZERO;
    let mut suspects = true;
    while !core.stop.requested() {
        let round = round(&core, &settlements, &mut suspects).await;
        match round {
            Ok(Round::More) => pause = Duration::ZERO,
            Ok(Round::Idle(wait)) => {
                pause = Duration::ZERO;
                idle(&core, wakeup.as_mut(), wait, &mut suspects).await;
            }
            Err(error) if error.is_retryable() => {
                if pause.is_zero() {
                    tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot claim; trying again");
                }
                pause = (pause * 2).clamp(Duration::from_millis(100), MAX_PAUSE);
                tokio::select! {
                    () = core.inbox.clock.sleep(pause) => {}
                    () = core.stop.wait() => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a round found.
enum Round {
    /// There may be more to claim at once.
    More,
    /// Nothing to do before something happens.
    Idle(Idle),
}

/// What ends an idle wait besides a request to stop.
struct Idle {
    /// Something was claimed by nobody because its handler is busy: look again when something lands.
    landing: Option<Landing>,
    /// Nothing more is due: look again when told, or at the next poll.
    poll: bool,
}

type Landing = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn round<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    suspects: &mut bool,
) -> Result<Round> {
    // Listens before it looks: what lands in between ends the wait.
    let landing: Landing = Box::pin(core.flights.landing());
    let Capacity { wants, busy } = capacity(core);
    if wants.is_empty() {
        return Ok(Round::Idle(Idle { landing: Some(landing), poll: false }));
    }
    if std::mem::take(suspects)
        && let Some(suspect) = claim(core, wants.clone(), true).await?.pop()
    {
        *suspects = true;
        alone(core, settlements, suspect).await;
        return Ok(Round::More);
    }
    let asked: usize = wants.iter().map(|want| want.limit).sum();
    let claimed = claim(core, wants, false).await?;
    let (full, none) = (claimed.len() >= asked, claimed.is_empty());
    for claimed in claimed {
        launch(core, settlements, claimed);
    }
    if none && core.flights.len() == 0 {
        core.quiet.send_modify(|rounds| *rounds = rounds.wrapping_add(1));
    }
    Ok(if full { Round::More } else { Round::Idle(Idle { landing: busy.then_some(landing), poll: true }) })
}

async fn idle<S: Store>(core: &Core<S>, wakeup: Option<&mut Wakeup>, wait: Idle, suspects: &mut bool) {
    let Shared { clock, config, nudge, .. } = &*core.inbox;
    let woken = async {
        match wakeup {
            Some(wakeup) => wakeup.woken().await,
            None => std::future::pending().await,
        }
    };
    let landed = async {
        match wait.landing {
            Some(landing) => landing.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = landed => {}
        () = core.stop.wait() => {}
        () = woken, if wait.poll => {}
        () = nudge.wait(), if wait.poll => {}
        () = core.suspects.notified(), if wait.poll => *suspects = true,
        () = clock.sleep(nudge.due_within(clock.monotonic(), config.poll)), if wait.poll => {
            // What no wake-up told of is found here, suspects of other workers included.
            *suspects = true;
        }
    }
}

/// What can be taken on.
struct Capacity {
    wants: Vec<Want>,
    /// Some handler has no room worth a claim.
    busy: bool,
}

fn capacity<S: Store>(core: &Core<S>) -> Capacity {
    let config = &core.inbox.config;
    let mut free = config.in_flight.saturating_sub(core.flights.len()).min(config.batch);
    let mut capacity = Capacity { wants: Vec::new(), busy: false };
    let handlers: Vec<_> = core.inbox.registry.durable().collect();
    // Each round starts with another handler, so that a busy one cannot starve those behind it.
    let turn = core.inbox.nudge.turn();
    for index in 0..handlers.len() {
        let handler = handlers[(index + turn) % handlers.len()];
        let (busy, room) = (core.flights.count(&handler.route.key), handler.registration.concurrency);
        let limit = room.saturating_sub(busy).min(free);
        // Claiming a handful at a time while more lands every moment would make small batches of a big backlog.
        let worth = (room.min(config.batch) / 4).max(1);
        if limit >= worth || (busy == 0 && limit > 0) {
            free -= limit;
            capacity.wants.push(Want { route: handler.route.clone(), limit });
        } else {
            capacity.busy = true;
        }
    }
    capacity
}

async fn claim<S: Store>(core: &Core<S>, wants: Vec<Want>, suspect: bool) -> Result<Vec<Claimed>> {
    if wants.is_empty() {
        return Ok(Vec::new());
    }
    let inbox = &core.inbox;
    let params = ClaimParams::new(inbox.name.clone(), wants, inbox.config.lease);
    let params = if suspect { params.suspect() } else { params };
    loop {
        // Taken before the claim is sent: the lease cannot have begun earlier.
        let deadline = inbox.clock.monotonic() + inbox.config.lease;
        match inbox.store.claim(&params).await {
            Ok(claimed) => {
                for Claimed { claim, .. } in &claimed {
                    if let Some(handler) = inbox.registry.by_key(&claim.handler) {
                        core.flights.insert(claim, &handler.route.key, deadline);
                    }
                }
                return Ok(claimed);
            }
            // The same claim id finds what was claimed, if it was.
            Err(error) if error.kind() == ErrorKind::CommitUnknown && !core.stop.requested() => {
                inbox.clock.sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn launch<S: Store>(core: &Arc<Core<S>>, settlements: &UnboundedSender<Settlement>, claimed: Claimed) {
    let Some(handler) = core.inbox.registry.by_key(&claimed.claim.handler).map(Arc::clone) else {
        // A store answered with a handler nobody asked for; its lease runs out and the right worker gets it.
        tracing::error!(handler = %claimed.claim.handler, "claimed an entry of an unknown handler");
        return;
    };
    let claim = claimed.claim.clone();
    let (task_core, settlements) = (Arc::clone(core), settlements.clone());
    let task = tokio::spawn(async move {
        let claim = claimed.claim.clone();
        match execute(&task_core.inbox, &handler, claimed, &task_core.cut).await {
            Verdict::Settle(settlement) => {
                // Fails only when the runtime is gone; then the lease runs out.
                let _ = settlements.send(settlement);
            }
            Verdict::Written => {
                task_core.flights.land([&claim]);
                task_core.inbox.nudge.now();
            }
        }
    });
    core.flights.attach(&claim, task.abort_handle());
}

/// Runs an entry that crashed a worker before, with nothing beside it.
async fn alone<S: Store>(core: &Arc<Core<S>>, settlements: &UnboundedSender<Settlement>, suspect: Claimed) {
    tokio::select! {
        () = core.flights.down_to(1) => {}
        () = core.inbox.clock.sleep(ALONE_WITHIN) => {}
        () = core.stop.wait() => {}
    }
    let claim = suspect.claim.clone();
    if !core.flights.holds(&claim) {
        return; // The lease was lost while waiting.
    }
    if core.stop.requested() {
        // Fails only when the runtime is gone; then the lease runs out.
        let _ = settlements.send(decide(&Policy::default(), &claim, Outcome::Released));
        return;
    }
    launch(core, settlements, suspect);
    tokio::select! {
        () = core.flights.down_to(0) => {}
        () = core.inbox.clock.sleep(ALONE_WITHIN) => {}
        () = core.stop.wait() => {}
    }
}
