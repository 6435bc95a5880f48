//! Tier 2 of a store: the changes that operators make, each recorded with its actor. Tests: the tier `operate` of the conformance
//! suite in `oncebox-testkit`.

use async_trait::async_trait;

use super::{Acted, Action, BackfillParams, Backfilled, Examine, Inspect, OperationId};
use crate::error::Result;

/// Store that operators change. [`operate`](crate::state::operate) chooses each next state.
#[async_trait]
pub trait Operate: Inspect {
    /// Does an action and records its actor and reason, in one transaction. A refused action is not recorded.
    ///
    /// The store does the same action under the same identity once, and returns the same result each time. If its response is lost,
    /// the caller repeats the call. Another action under that identity is an error of kind
    /// [`OperationReused`](crate::ErrorKind::OperationReused).
    async fn act(&self, action: &Action) -> Result<Acted>;

    /// Adds entries of a handler to stored messages that have none for it, one page at a time in the order of acceptance. It serves
    /// a handler that was added after the messages. Repeating a call adds nothing twice, so an interrupted backfill restarts at its
    /// last position or from the start. Accepting, claiming and sweeping continue meanwhile.
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled>;

    /// Notes the progress of a long operation, unless another process did so since the `noted`th note. Returns true if it did.
    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool>;
}

/// Store with everything that an operator needs: [`Inspect`], [`Operate`] and [`Examine`].
pub trait Admin: Operate + Examine {}

impl<S: Operate + Examine + ?Sized> Admin for S {}
