//! Upkeep: rescues, sweeps, reports, and keeps the other components alive. Each module names its tests.

pub(super) mod backlog;
pub(super) mod orphans;
pub(super) mod repeat;
pub(super) mod rescuer;
pub(super) mod supervisor;
pub(super) mod sweeper;
