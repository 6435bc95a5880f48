//! Quorum queues need a leader. RabbitMQ 3.10 that was killed may have forgotten a queue on its disk. It then starts the queue
//! as a new and empty one, and a new queue waits for an election that nothing triggers. Publishes are not confirmed, and
//! consumers get `INTERNAL_ERROR`. [`RabbitMqServer::kill9`] keeps the broker from forgetting queues; this module is for what is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use super::RabbitMqServer;
use crate::process;

/// How long the elections after a start may take. A healthy broker needs less than a second, or a few on a busy machine.
const ELECTION: Duration = Duration::from_secs(5);
/// How often elections are triggered before the broker is started again.
const TRIES: u32 = 3;

impl RabbitMqServer {
    /// Waits until every quorum queue has a leader, and triggers elections where none comes. Prints what it did. Returns the
    /// queues that have no leader in spite of that.
    pub fn elect_leaders(&self) -> Result<Vec<String>> {
        for attempt in 1..=TRIES {
            let Some(left) = self.leaderless_after(ELECTION)? else { return Ok(Vec::new()) };
            eprintln!(
                "oncebox-servers: RabbitMQ on port {} has no leader for {} after {} s, and may have lost its messages; triggering an election ({attempt} of {TRIES})",
                self.port(),
                left.join(", "),
                ELECTION.as_secs()
            );
            self.ask("elect")?;
            self.elections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.leaderless_after(ELECTION)?.unwrap_or_default())
    }

    /// Returns the quorum queues that still have no leader after `patience`; `None` as soon as all have one.
    fn leaderless_after(&self, patience: Duration) -> Result<Option<Vec<String>>> {
        let mut left = Vec::new();
        let waited = process::within(patience, || {
            left = self.leaderless()?;
            Ok(left.is_empty().then_some(()))
        })?;
        Ok(waited.is_none().then_some(left))
    }

    /// How often elections had to be triggered so far.
    pub fn elections(&self) -> u32 {
        self.elections.load(Ordering::Relaxed)
    }

    /// Returns the quorum queues without a leader, each with the state of its member.
    pub fn leaderless(&self) -> Result<Vec<String>> {
        let answer = self.ask("leaderless")?;
        Ok(answer.split('\t').filter(|queue| !queue.is_empty()).map(str::to_owned).collect())
    }
}
