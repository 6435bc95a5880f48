//! Divides the file descriptors, so that connections leave enough for stores, operators and deliveries. Tests: below.

use oncebox_http::ServerLimits;

use crate::config::ConfigPlan;

/// Reserve for the log, listeners, name resolution, telemetry and libraries.
const BASE: usize = 32;
/// Reserve for each store: its connections or files.
const STORE: usize = 48;
/// Reserve for each queue.
const QUEUE: usize = 2;
/// Configurations that run during a reload. A further reload before the old one has finished uses the room of idle connections.
const CONFIGURATIONS: usize = 2;
/// Maximum connections to the port for operators.
const OPERATORS: usize = 256;
/// Minimum connections to each port.
const MIN_CONNECTIONS: usize = 8;

/// Maximum connections of each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connections {
    pub(super) messages: usize,
    pub(super) operators: usize,
}

/// Raises the limit on file descriptors to the maximum of this process, and returns it; `None` without a limit.
#[cfg(unix)]
pub(super) fn raise_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, "cannot raise file descriptor limit");
            current
        }
    };
    limit.and_then(|limit| usize::try_from(limit).ok())
}

#[cfg(not(unix))]
pub(super) fn raise_limit() -> Option<usize> {
    None
}

/// Divides the descriptors of the process. Deliveries and stores come first, up to two thirds of all. A reload runs the deliveries and
/// queues of two configurations at the same time, until the old one has finished; the stores stay open.
pub(super) fn divide(plan: &ConfigPlan, limit: Option<usize>) -> Connections {
    let max = ServerLimits::default().connections;
    let Some(limit) = limit else { return Connections { messages: max, operators: OPERATORS } };
    let deliveries = plan.inboxes.iter().flat_map(|inbox| &inbox.handlers).map(|handler| handler.concurrency);
    let queues = plan.inboxes.iter().map(|inbox| inbox.rabbitmq.len() * QUEUE);
    let once = deliveries.chain(queues).fold(0, usize::saturating_add);
    let needed = once.saturating_mul(CONFIGURATIONS).saturating_add(BASE + STORE * plan.stores.len());
    let operators = (limit / 16).clamp(MIN_CONNECTIONS, OPERATORS);
    let reserve = needed.min(limit / 3 * 2).saturating_add(operators);
    let messages = limit.saturating_sub(reserve).clamp(MIN_CONNECTIONS, max);
    if messages < max {
        tracing::warn!(
            limit,
            reserve,
            connections = messages,
            advice = "raise the limit (`ulimit -n`, `LimitNOFILE`)",
            "few file descriptors, connections limited"
        );
    }
    Connections { messages, operators }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    fn plan(concurrency: usize) -> ConfigPlan {
        let text = format!(
            "[inbox.orders]\n[inbox.orders.handler.ship]\nurl = \"https://example.com/\"\nconcurrency = {concurrency}\n"
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.toml");
        std::fs::write(&path, text).unwrap();
        let Loaded { plan, .. } = crate::config::load(&path, crate::config::Secrets::Read).unwrap();
        plan
    }

    // FAULTS A18: connections never use the descriptors of stores, operators and deliveries.
    #[test]
    fn senders_get_the_remaining_descriptors() {
        for (limit, concurrency, messages, operators) in [
            (1 << 20, 16, 4_096, 256),
            (4_096, 16, 3_728, 256),
            (1_024, 16, 848, 64),
            (256, 16, 128, 16),
            (256, 1_000, 70, 16),
            (64, 16, 14, 8),
            (20, 16, 8, 8),
        ] {
            let expected = Connections { messages, operators };
            assert_eq!(divide(&plan(concurrency), Some(limit)), expected, "{limit} {concurrency}");
        }
        assert_eq!(divide(&plan(16), None).messages, 4_096);
    }
}
