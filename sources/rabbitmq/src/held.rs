//! Deliveries held for a retry, without the broker's notice. Tests: tests/again.rs.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::time::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::parcel::Parcel;

/// Deliveries of one session that wait for a retry.
#[derive(Debug, Default)]
pub(crate) struct HeldDeliveries {
    waiting: Mutex<HeldQueue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct HeldQueue {
    /// By due time, then by arrival.
    parcels: BTreeMap<(Duration, u64), Parcel>,
    next: u64,
    over: bool,
}

impl HeldDeliveries {
    /// Holds a delivery until `due`, on the monotonic clock. After the session, the broker has it already.
    pub(crate) fn push(&self, due: Duration, parcel: Parcel) {
        let mut waiting = self.waiting.lock();
        if waiting.over {
            return;
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.parcels.insert((due, number), parcel);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Returns the next due delivery.
    pub(crate) async fn due(&self, clock: &dyn Clock) -> Parcel {
        loop {
            let changed = self.changed.notified();
            let wait = {
                let mut waiting = self.waiting.lock();
                let now = clock.monotonic();
                match waiting.parcels.first_entry() {
                    Some(first) if first.key().0 <= now => return first.remove(),
                    Some(first) => Some(first.key().0.saturating_sub(now)),
                    None => None,
                }
            };
            match wait {
                Some(wait) => tokio::select! {
                    () = clock.sleep(wait) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Drops all deliveries, and holds no more.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.over = true;
        let parcels = std::mem::take(&mut waiting.parcels);
        drop(waiting);
        drop(parcels);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().parcels.len()
    }
}
