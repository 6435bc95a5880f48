//! Leaders of quorum queues. A killed RabbitMQ 3.10 may have forgotten a queue on its disk. It then starts the queue as
//! a new and empty one, which waits for an election that nothing triggers. Publishes are not confirmed, and consumers
//! get `INTERNAL_ERROR`. [`RabbitMqServer::kill9`] makes the broker remember its queues. This module handles the
//! remaining cases. Tests: `tests/rabbitmq.rs`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use super::RabbitMqServer;
use crate::process;

/// Timeout of the elections after a start. A healthy broker needs less than a second, or a few on a busy machine.
const ELECTION: Duration = Duration::from_secs(5);
/// Number of triggered elections before the broker is restarted.
const TRIES: u32 = 3;

impl RabbitMqServer {
    /// Waits until every quorum queue has a leader, and triggers missing elections. Prints its steps. Returns the queues that still
    /// have no leader.
    pub fn elect_leaders(&self) -> Result<Vec<String>> {
        for attempt in 1..=TRIES {
            let Some(left) = self.leaderless_after(ELECTION)? else { return Ok(Vec::new()) };
            eprintln!(
                "oncebox-servers: RabbitMQ on port {} has no leader for {} after {} s, and may have lost its messages; triggering an election ({attempt} of {TRIES})",
                self.port(),
                left.join(", "),
                ELECTION.as_secs()
            );
            self.query("elect")?;
            self.elections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.leaderless_after(ELECTION)?.unwrap_or_default())
    }

    /// Returns the quorum queues without a leader after `patience`. `None` as soon as all have one.
    fn leaderless_after(&self, patience: Duration) -> Result<Option<Vec<String>>> {
        let mut left = Vec::new();
        let waited = process::within(patience, || {
            left = self.leaderless()?;
            Ok(left.is_empty().then_some(()))
        })?;
        Ok(waited.is_none().then_some(left))
    }

    /// Returns the number of triggered elections.
    pub fn elections(&self) -> u32 {
        self.elections.load(Ordering::Relaxed)
    }

    /// Returns the quorum queues without a leader, each with the state of its member.
    pub fn leaderless(&self) -> Result<Vec<String>> {
        let answer = self.query("leaderless")?;
        Ok(answer.split('\t').filter(|queue| !queue.is_empty()).map(str::to_owned).collect())
    }
}
