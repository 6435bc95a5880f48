//! Intake: what happens to a delivery until it is stored or done, and its broker is told. Each module names its tests.

pub(super) mod delivery;
pub(super) mod direct;
pub(super) mod forget;
pub(super) mod inline;
pub(super) mod intake_switch;
pub(super) mod lines;
pub(super) mod receiver;
