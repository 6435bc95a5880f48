//! Work: claims stored entries, runs their handlers, and settles them. Each module names its tests.

pub(super) mod batch;
pub(super) mod dispatcher;
pub(super) mod drive;
pub(super) mod dry_run;
pub(super) mod executor;
pub(super) mod group;
pub(super) mod idle_waiters;
pub(super) mod in_flight;
pub(super) mod launch;
pub(super) mod local_wakeup;
pub(super) mod plan;
pub(super) mod renewer;
pub(super) mod settler;
