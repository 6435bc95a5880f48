//! The result of the demo. Tests: below.

use serde::Serialize;

use super::Args;
use super::shop::Shipments;

/// Result of the demo, as `--json` prints it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct DemoReport {
    /// Different messages.
    pub(crate) offered: u64,
    /// Deliveries of them.
    pub(crate) deliveries: u64,
    /// Rows in the business table.
    pub(crate) effects: u64,
    /// Messages without a row.
    pub(crate) lost: u64,
    /// Rows beyond the first of a message.
    pub(crate) doubled: u64,
    /// Worker processes that died.
    pub(crate) crashes: u64,
    /// Deliveries recognised as duplicates.
    pub(crate) duplicates: u64,
    /// Handler runs that failed or panicked and were retried.
    pub(crate) retried: u64,
    /// Deliveries repeated because their worker died before it acknowledged them.
    pub(crate) redelivered: u64,
    /// Seed of the faults.
    pub(crate) seed: u64,
}

/// Counts during the demo.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DemoCounts {
    pub(crate) duplicates: u64,
    pub(crate) failed: u64,
    pub(crate) panicked: u64,
    /// Workers that the demo killed.
    pub(crate) killed: u64,
    /// Workers that a handler aborted.
    pub(crate) aborted: u64,
}

impl DemoReport {
    /// Computes the result. Lost and doubled come only from the business table.
    pub(crate) fn new(
        args: &Args,
        deliveries: u64,
        shipments: Shipments,
        seen: DemoCounts,
        seed: u64,
    ) -> Self {
        Self {
            offered: u64::from(args.messages),
            deliveries,
            effects: shipments.effects,
            lost: u64::from(args.messages).saturating_sub(shipments.orders),
            doubled: shipments.effects - shipments.orders,
            crashes: seen.killed + seen.aborted,
            duplicates: seen.duplicates,
            retried: seen.failed + seen.panicked,
            redelivered: deliveries
                .saturating_sub(u64::from(args.messages) * (u64::from(args.duplicates) + 1)),
            seed,
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.lost == 0 && self.doubled == 0
    }

    /// Formats the result as a table.
    pub(crate) fn table(&self, seen: DemoCounts, seconds: f64) -> String {
        let verdict = if self.is_sound() {
            "Every message took effect exactly once."
        } else {
            "The inbox failed: see lost and doubled."
        };
        format!(
            "\n\
             offered    {:>9}   different messages\n\
             delivered  {:>9}   deliveries, {} of them repeated after a worker died\n\
             duplicates {:>9}   deliveries recognised as duplicates\n\
             retried    {:>9}   handler runs that failed ({}) or panicked ({})\n\
             crashed    {:>9}   workers: {} killed by the demo, {} aborted by a handler\n\
             effects    {:>9}   rows in the business table\n\
             lost       {:>9}\n\
             doubled    {:>9}\n\
             \n\
             {verdict} ({seconds:.1} s; repeat the faults with --seed {})",
            self.offered,
            self.deliveries,
            self.redelivered,
            self.duplicates,
            self.retried,
            seen.failed,
            seen.panicked,
            self.crashes,
            seen.killed,
            seen.aborted,
            self.effects,
            self.lost,
            self.doubled,
            self.seed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(effects: u64, orders: u64) -> DemoReport {
        let args = Args { messages: 10, duplicates: 3, workers: 1, seed: None, json: false, keep: None };
        DemoReport::new(&args, 40, Shipments { effects, orders }, DemoCounts::default(), 1)
    }

    #[test]
    fn missing_rows_are_lost_and_extra_rows_are_doubled() {
        assert!(report(10, 10).is_sound());
        assert_eq!((report(9, 9).lost, report(9, 9).doubled), (1, 0));
        assert_eq!((report(11, 10).lost, report(11, 10).doubled), (0, 1));
        // One lost and one doubled order do not cancel out.
        assert_eq!((report(10, 9).lost, report(10, 9).doubled), (1, 1));
        assert!(!report(10, 9).is_sound() && !report(9, 9).is_sound() && !report(11, 10).is_sound());
    }
}
