//! Intake: stores or runs each delivery, then settles it with its broker. Each module names its tests.

pub(super) mod delivery;
pub(super) mod direct;
pub(super) mod forget;
pub(super) mod inline;
pub(super) mod intake_switch;
pub(super) mod lines;
pub(super) mod receiver;
pub(crate) mod source_state;
