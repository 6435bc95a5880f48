//! Computes how much to claim: divides free capacity among handlers that may have work. Tests: below.

/// Capacity and use, in entries.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct Room {
    pub(in crate::runtime) capacity: usize,
    pub(in crate::runtime) busy: usize,
}

impl Room {
    /// No limit.
    #[cfg(test)]
    const ANY: Self = Self { capacity: usize::MAX, busy: 0 };

    const fn free(self) -> usize {
        self.capacity.saturating_sub(self.busy)
    }

    /// Returns true if a claim is large enough. Many small claims of a big backlog would cost more.
    fn is_worth_a_claim(self, batch: usize) -> bool {
        self.busy == 0 || self.free() >= (self.capacity.min(batch) / 4).max(1)
    }
}

/// State of a handler for the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) room: Room,
    /// Limit of its throttle: rate and breaker.
    pub(super) throttle: Room,
    /// True if there may be due entries.
    pub(super) hungry: bool,
}

impl Seat {
    fn free(self) -> usize {
        self.room.free().min(self.throttle.free())
    }
}

/// Number of entries to claim per handler, in the order of the handlers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimPlan {
    /// Maximum entries per handler.
    pub(super) limits: Vec<usize>,
    /// Maximum suspects per handler: all free capacity, even without known due entries.
    pub(super) suspects: Vec<usize>,
    /// True if a handler may have entries, but too little free capacity for a claim.
    pub(super) short: bool,
}

impl ClaimPlan {
    /// Divides the free capacity. `turn` changes at each call, so that no handler is always last. `eager` allows small claims,
    /// after a wait brought no more capacity.
    pub(super) fn new(total: Room, batch: usize, seats: &[Seat], turn: usize, eager: bool) -> Self {
        let mut plan = Self { limits: vec![0; seats.len()], suspects: vec![0; seats.len()], short: false };
        let enough = |room: Room| room.free() > 0 && (eager || room.is_worth_a_claim(batch));
        let (mut served, mut open): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for index in (0..seats.len()).map(|index| (index + turn) % seats.len()) {
            let seat = seats[index];
            if total.free() == 0 || seat.free() == 0 {
                continue;
            }
            open.push(index);
            if seat.hungry {
                if enough(total) && enough(seat.room) && enough(seat.throttle) {
                    served.push(index);
                } else {
                    plan.short = true;
                }
            }
        }
        let free = total.free().min(batch);
        share_out(&mut plan.limits, free, &served, seats);
        share_out(&mut plan.suspects, free, &open, seats);
        plan
    }

    pub(super) fn claims(&self) -> bool {
        self.limits.iter().any(|limit| *limit > 0)
    }

    /// Returns true if there is capacity for one more entry.
    pub(super) fn has_room(&self) -> bool {
        self.suspects.iter().any(|limit| *limit > 0)
    }
}

/// Divides the free capacity among some handlers: an equal share for each, so that one call serves all; the rest goes to
/// those with capacity.
fn share_out(limits: &mut [usize], mut free: usize, among: &[usize], seats: &[Seat]) {
    let share = free.checked_div(among.len()).unwrap_or(0).max(1);
    for limit in [share, usize::MAX] {
        for &index in among {
            let more = seats[index].free().min(limit).saturating_sub(limits[index]).min(free);
            limits[index] += more;
            free -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Seat = seat(64, 0);

    const fn seat(capacity: usize, busy: usize) -> Seat {
        Seat { room: Room { capacity, busy }, throttle: Room::ANY, hungry: true }
    }

    fn plan(in_flight: usize, seats: &[Seat], turn: usize) -> ClaimPlan {
        let busy = seats.iter().map(|seat| seat.room.busy).sum();
        ClaimPlan::new(Room { capacity: in_flight, busy }, 100, seats, turn, false)
    }

    // A handler that is not asked must wait for a wake-up that may never come.
    #[test]
    fn all_who_may_have_work_are_asked_in_one_call() {
        assert_eq!(plan(512, &[IDLE; 10], 3).limits, [10; 10]);
        let fed = Seat { hungry: false, ..IDLE };
        assert_eq!(plan(512, &[fed, IDLE, fed], 0).limits, [0, 64, 0]);
        assert_eq!(plan(512, &[IDLE, IDLE], 0).limits, [50, 50]);
        let small = seat(4, 0);
        assert_eq!(plan(512, &[small, IDLE, IDLE], 0).limits, [4, 63, 33]);
    }

    #[test]
    fn with_less_room_than_handlers_all_have_their_turn() {
        for turn in 0..3 {
            let mut expected = [0; 3];
            expected[turn] = 1;
            assert_eq!(plan(1, &[IDLE; 3], turn).limits, expected);
        }
    }

    #[test]
    fn never_more_than_there_is_room_for() {
        for (in_flight, busy) in [(1, 0), (3, 1), (100, 60), (512, 64), (512, 0)] {
            let seats = [seat(64, busy), IDLE, IDLE];
            let plan = plan(in_flight, &seats, 1);
            let asked: usize = plan.limits.iter().sum();
            assert!(asked <= in_flight.saturating_sub(busy).min(100), "{in_flight} {busy} {plan:?}");
            assert!(plan.limits[0] <= 64 - busy.min(64));
        }
    }

    #[test]
    fn suspects_get_all_the_room_there_is() {
        let fed = Seat { hungry: false, ..IDLE };
        assert_eq!(plan(512, &[fed, fed], 0).suspects, [50, 50]);
        assert_eq!(plan(512, &[seat(64, 60)], 0).suspects, [4], "even a little");
        assert_eq!(plan(64, &[seat(64, 64), fed], 0).suspects, [0, 0]);
    }

    // Slots must not stay empty behind runs that take hours.
    #[test]
    fn a_little_room_is_waited_with_but_not_for_ever() {
        let few = seat(64, 60);
        let waits = plan(512, &[few], 0);
        assert!(waits.short && !waits.claims() && waits.has_room());
        let eager = ClaimPlan::new(Room { capacity: 512, busy: 60 }, 100, &[few], 0, true);
        assert_eq!(eager.limits, [4]);
        let full = seat(64, 64);
        assert_eq!(plan(512, &[full], 0), ClaimPlan { limits: vec![0], suspects: vec![0], short: false });
        assert_eq!(plan(512, &[], 0), ClaimPlan::default());
    }
    // Tokens are gathered like room is: a claim for each that grows would be many small claims.
    #[test]
    fn never_more_than_the_gate_lets_through() {
        let gated = |capacity, busy| Seat { throttle: Room { capacity, busy }, ..IDLE };
        assert_eq!(plan(512, &[gated(10, 0), IDLE], 0).limits, [10, 64]);
        assert_eq!(plan(512, &[gated(1, 0)], 0).limits, [1], "a probe");
        let shut = plan(512, &[gated(0, 0)], 0);
        assert_eq!(shut, ClaimPlan { limits: vec![0], suspects: vec![0], short: false }, "an open breaker");
        let few = plan(512, &[gated(100, 90)], 0);
        assert!(few.short && !few.claims() && few.has_room());
        let eager = ClaimPlan::new(Room { capacity: 512, busy: 0 }, 100, &[gated(100, 90)], 0, true);
        assert_eq!(eager.limits, [10]);
    }
}
