//! Planted bugs by name, and the runs that must detect them. The feature `sabotage` compiles the bugs. Tests: `cargo
//! xtask chaos sabotage`.

use crate::driver::{Mix, StoreKind};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bug {
    AckBeforeCommit,
    CheckThenInsert,
    UnfencedComplete,
    UnfencedFail,
    ReleaseWithoutOwner,
    AppClockLease,
    UnknownIsOk,
    UnknownIsRolledBack,
    SweepOfTheUnfinished,
    ShutdownBurnsAttempts,
    NoCrashCounter,
    NoHeadCheck,
    NoPoll,
    BatchFailsInnocents,
    KeyOfTheDelivery,
    RescueOfTheLiving,
    ForgetsEarly,
    ConflictIsNew,
    FailIsDone,
    CompletionApart,
    RenewalThatLies,
    RenameForgets,
    DropsTheDenied,
    OwnerLockIgnored,
    FenceGoesBack,
    LossUnreported,
}

/// A bug with its name, its description and its runs.
pub(crate) struct Planted {
    pub(crate) bug: Bug,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) store: StoreKind,
    pub(crate) mix: Mix,
    /// The invariants it breaks; a report of one of them detects it.
    pub(crate) breaks: &'static str,
}

/// All planted bugs.
pub(crate) const BUGS: &[Planted] = &[
    planted(
        Bug::AckBeforeCommit,
        "ack-before-commit",
        "a delivery is acknowledged before its message is committed",
        StoreKind::Sqlite,
        Mix::Kills,
        "I1",
    ),
    planted(
        Bug::CheckThenInsert,
        "check-then-insert",
        "a mark is looked for first and written after the work",
        StoreKind::Postgres,
        Mix::Kills,
        "I1 I3",
    ),
    planted(
        Bug::UnfencedComplete,
        "unfenced-complete",
        "a completion is committed though its claim is lost",
        StoreKind::Sqlite,
        Mix::Zombies,
        "I3 I5 I6",
    ),
    planted(
        Bug::UnfencedFail,
        "unfenced-fail",
        "a late failure reopens an entry that another worker completed",
        StoreKind::Sqlite,
        Mix::Zombies,
        "I3 I4 I5",
    ),
    planted(
        Bug::ReleaseWithoutOwner,
        "release-without-owner",
        "a late release frees the claim of the new owner",
        StoreKind::Postgres,
        Mix::Zombies,
        "I4",
    ),
    planted(
        Bug::AppClockLease,
        "app-clock-lease",
        "leases go by the clock of the process, and clocks differ",
        StoreKind::Postgres,
        Mix::Calm,
        "I3 I4 I11",
    ),
    planted(
        Bug::UnknownIsOk,
        "unknown-is-ok",
        "a commit in doubt is taken for one that happened",
        StoreKind::Sqlite,
        Mix::Unknown,
        "I1",
    ),
    planted(
        Bug::UnknownIsRolledBack,
        "unknown-is-rolled-back",
        "a commit in doubt is taken for one that did not happen, and made again as another",
        StoreKind::Sqlite,
        Mix::Unknown,
        "I2 I3 I11",
    ),
    planted(
        Bug::SweepOfTheUnfinished,
        "sweep-of-the-unfinished",
        "the sweep removes entries that wait",
        StoreKind::Sqlite,
        Mix::Kills,
        "I1",
    ),
    planted(
        Bug::ShutdownBurnsAttempts,
        "shutdown-burns-attempts",
        "a run that a shutdown stops counts as failed",
        StoreKind::Sqlite,
        Mix::Calm,
        "I7",
    ),
    planted(
        Bug::NoCrashCounter,
        "no-crash-counter",
        "crashes of a process by an entry are not counted",
        StoreKind::Sqlite,
        Mix::Calm,
        "I7 I9",
    ),
    planted(
        Bug::NoHeadCheck,
        "no-head-check",
        "an ordered entry is handed out though an earlier one waits",
        StoreKind::Sqlite,
        Mix::Kills,
        "I8",
    ),
    planted(
        Bug::NoPoll,
        "no-poll",
        "wake-ups are lost, and workers do not poll",
        StoreKind::Sqlite,
        Mix::Calm,
        "I9",
    ),
    planted(
        Bug::BatchFailsInnocents,
        "batch-fails-innocents",
        "one that fails makes those settled with it fail",
        StoreKind::Sqlite,
        Mix::Kills,
        "I7",
    ),
    planted(
        Bug::KeyOfTheDelivery,
        "key-of-the-delivery",
        "the dedupe key is of the delivery, not of the message",
        StoreKind::Sqlite,
        Mix::Kills,
        "I2 I3 I11",
    ),
    planted(
        Bug::RescueOfTheLiving,
        "rescue-of-the-living",
        "entries are taken over while their lease holds",
        StoreKind::Sqlite,
        Mix::Calm,
        "I4",
    ),
    planted(
        Bug::ForgetsEarly,
        "forgets-early",
        "what is finished is forgotten before its window is over",
        StoreKind::Sqlite,
        // Workers that are killed too often do not sweep.
        Mix::Calm,
        "I3 I4",
    ),
    planted(
        Bug::ConflictIsNew,
        "conflict-is-new",
        "another payload under a known key runs as a new message",
        StoreKind::Sqlite,
        Mix::Kills,
        "I2",
    ),
    planted(
        Bug::FailIsDone,
        "fail-is-done",
        "a handler that failed counts as done",
        StoreKind::Sqlite,
        Mix::Kills,
        "I1",
    ),
    planted(
        Bug::CompletionApart,
        "completion-apart",
        "the completion is committed after the handler's own transaction",
        StoreKind::Sqlite,
        Mix::Kills,
        "I3",
    ),
    planted(
        Bug::RenewalThatLies,
        "renewal-that-lies",
        "leases of handlers that run are not renewed",
        StoreKind::Postgres,
        Mix::Calm,
        "I4",
    ),
    planted(
        Bug::RenameForgets,
        "rename-forgets",
        "only processes from after a rename know that two keys are one handler",
        StoreKind::Sqlite,
        Mix::Rename,
        "I3 I4",
    ),
    planted(
        Bug::DropsTheDenied,
        "drops-the-denied",
        "a settlement is dropped when the login is refused",
        StoreKind::Postgres,
        Mix::Denied,
        "I4",
    ),
    planted(
        Bug::OwnerLockIgnored,
        "owner-lock-ignored",
        "the lock of a living process says nothing, so its entries are taken over",
        StoreKind::Sqlite,
        Mix::Calm,
        "I4",
    ),
    planted(
        Bug::FenceGoesBack,
        "fence-goes-back",
        "tokens of later claims are lower than those of earlier ones",
        StoreKind::Postgres,
        Mix::Kills,
        "I6",
    ),
    planted(
        Bug::LossUnreported,
        "loss-unreported",
        "a failover loses acknowledged messages, and no report names them",
        StoreKind::Postgres,
        Mix::FailoverAsync,
        "I1",
    ),
];

const fn planted(
    bug: Bug,
    name: &'static str,
    what: &'static str,
    store: StoreKind,
    mix: Mix,
    breaks: &'static str,
) -> Planted {
    Planted { bug, name, what, store, mix, breaks }
}

impl Planted {
    /// Returns true if this bug leads to such a violation. A backlog counts only for bugs about it.
    pub(crate) fn leads_to(&self, violation: &str) -> bool {
        let rule = violation.split([':', ',']).next().unwrap_or_default();
        self.breaks.split(' ').any(|one| one == rule) && !violation.contains("not finished")
            || (rule == "I9" && self.breaks.contains("I9"))
    }
}

impl Bug {
    /// Returns the bug of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        BUGS.iter().find(|planted| planted.name == name).map(|planted| planted.bug)
    }
}
