//! Where messages come in from brokers.

use anyhow::{Result, bail};
use oncebox::{Running, Store};

use crate::config::RabbitmqPlan;

/// Takes messages from a queue.
pub(super) fn consume<S: Store>(_: &Running<S>, plan: &RabbitmqPlan) -> Result<()> {
    bail!("the queue {:?}: not yet", plan.queue)
}
